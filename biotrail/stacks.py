# SPDX-License-Identifier: Apache-2.0
"""`biotrail stacks`: who queued the I/O of a log, by call stack and command."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from biotrail import tallies, units
from biotrail.cut_options import cut_options
from biotrail.cuts import Cut, opened
from biotrail.opening import log_argument
from biotrail.printing import say_all, say_json
from biotrail.terminating import terminated_as_interrupted
from converters.answers.stacks import (
    BUCKETS,
    Callers,
    StackTable,
    Weight,
    folded,
    heaviest,
    stack_texts,
)
from converters.model.stacks import Frame, Stack
from converters.model.tables import Lifecycles
from converters.model.trace import Trace
from recorder.errors import ConversionError

Chosen = Callable[[Iterable[Lifecycles]], Iterator[Lifecycles]]
_BAR = 40
_US_BITS = 10
"""The printed buckets are 1024 ns and its doubles: what people read as microseconds."""


@click.command()
@log_argument
@cut_options
@click.option("--folded", "as_folded", is_flag=True, help="A line per stack, for flame graphs.")
@click.option("--json", "as_json", is_flag=True, help="Everything, as one JSON object.")
@click.option("--bytes", "by_bytes", is_flag=True, help="Weigh by bytes, not by I/Os.")
@click.option("--latency", "by_latency", is_flag=True, help="Weigh by the time from queue to end.")
@click.option(
    "-n",
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Show so many stacks.",
)
def command(
    log: str, cut: Cut, as_folded: bool, as_json: bool, by_bytes: bool, by_latency: bool, top: int
) -> None:
    """Show who queued the I/O in LOG: by call stack and command, the heaviest first.

    LOG must have been made with record --stacks. Every bio counts, those too that were merged
    into another's request, with its bytes and its time from queue to completion.

    \b
    sudo biotrail record --stacks --duration 10s -o disk.biotrail
    biotrail stacks disk.biotrail
    biotrail stacks disk.biotrail --latency --top 3       # what waited longest, all in all
    biotrail stacks --slower-than 5ms disk.biotrail
    biotrail stacks disk.biotrail --folded > disk.folded  # for flamegraph.pl or speedscope.app
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    if by_bytes and by_latency:
        raise click.UsageError("--bytes and --latency: give one of them")
    if as_folded and as_json:
        raise click.UsageError("--folded and --json: give one of them")
    by = Weight.BYTES if by_bytes else Weight.LATENCY if by_latency else Weight.COUNT
    with terminated_as_interrupted(), opened(log, cut) as source:
        trace = source.trace
        table = gather(trace, source.chosen)
    if as_json:
        say_json(as_dict(trace, table, by))
        return
    stacks = trace.stacks.all()
    if as_folded:
        say_all(folded(table.callers(), stacks, by))
        say_all((f"biotrail: {line}" for line in notes(trace, table, stacks)), err=True)
        return
    say_all([*text_lines(trace, table, by, top), *source.lines()])


def gather(trace: Trace, chosen: Chosen = iter) -> StackTable:
    """All windows of a trace, or what is chosen of them.

    Raises ConversionError where it has no stacks.
    """
    if "stacks" not in trace.reader.header:
        raise ConversionError(
            "this log has no call stacks: record again with biotrail record --stacks"
        )
    table = StackTable()
    for window in chosen(trace.lifecycles()):
        table.add(window)
    return table


def text_lines(trace: Trace, table: StackTable, by: Weight, top: int) -> Iterator[str]:
    """For people: a stack, what came from it, and the histogram of its latencies."""
    stacks = trace.stacks.all()
    callers = heaviest(table.callers(), by)
    total = sum(caller.weight(by) for caller in callers)
    for caller in callers[:top]:
        yield from _block(caller, stacks, by, total)
    if rest := callers[top:]:
        count = units.plural(sum(c.bios for c in rest), "bio")
        yield f"and {units.plural(len(rest), 'more stack')} with {count}: --top shows more"
        yield ""
    bios, size = sum(c.bios for c in callers), sum(c.bytes for c in callers)
    distinct = len({c.stack for c in callers if c.stack >= 0})
    yield (
        f"{units.plural(bios, 'bio')}, {units.size(size)}, from "
        f"{units.plural(distinct, 'distinct stack')}"
    )
    yield from notes(trace, table, stacks)


def _block(caller: Callers, stacks: list[Stack], by: Weight, total: int) -> Iterator[str]:
    share = f"{100 * caller.weight(by) / total:.1f} % of " if total else ""
    what = {Weight.COUNT: "all bios", Weight.BYTES: "all bytes", Weight.LATENCY: "all time"}[by]
    yield (
        f"{caller.comm}: {units.plural(caller.bios, 'bio')}, "
        f"{units.size(caller.bytes)}, {share}{what}"
    )
    stack = _stack_of(caller, stacks)
    kernel, user = stack_texts(stack)
    yield from (f"  {text}" for text in kernel)
    if user:
        yield "  -- user"
    yield from (f"  {text}" for text in user)
    if stack.missing:
        yield f"  [{stack.missing}]"
    yield from _histogram(caller)
    yield ""


def _stack_of(caller: Callers, stacks: list[Stack]) -> Stack:
    return stacks[caller.stack] if caller.stack >= 0 else Stack((), (), "no stack recorded")


def _histogram(caller: Callers) -> Iterator[str]:
    counts = caller.histogram.tolist()
    counts = [sum(counts[:_US_BITS]), *counts[_US_BITS:]]
    filled = [bucket for bucket, count in enumerate(counts) if count]
    if not filled:
        yield "    none of them was seen to end"
        return
    mean = units.duration(caller.latency_ns / caller.ended)
    yield f"    {'latency':>19}  {'bios':>9}  mean {mean}"
    most = max(counts)
    for bucket in range(filled[0], filled[-1] + 1):
        low = 0 if bucket == 0 else 1 << (bucket + _US_BITS - 1)
        edges = f"{units.duration(low)} to {units.duration(1 << (bucket + _US_BITS))}"
        bar = "█" * round(_BAR * counts[bucket] / most)
        yield f"    {edges:>19}  {units.count(counts[bucket]):>9}  {bar}".rstrip()


def notes(trace: Trace, table: StackTable, stacks: list[Stack]) -> list[str]:
    """What is not as it should be, a sentence each; what is missing of the log comes last."""
    callers = table.callers()
    found = []
    if none := sum(c.bios for c in callers if c.stack < 0):
        found.append(f"{units.plural(none, 'bio')} without a stack: its record is not in the log")
    if table.without_queue:
        found.append(
            f"{units.plural(table.without_queue, 'bio')} left out: when and where from "
            "they were queued is not in the log"
        )
    why: dict[str, int] = {}
    for caller in callers:
        missing = stacks[caller.stack].missing if caller.stack >= 0 else ""
        if missing and missing not in trace.stacks.refused:  # those are told with the losses
            why[missing] = why.get(missing, 0) + caller.bios
    found += [f"{units.plural(n, 'bio')}: {text}" for text, n in sorted(why.items())]
    return found + tallies.loss_lines(trace)


def as_dict(trace: Trace, table: StackTable, by: Weight) -> dict[str, Any]:
    """The whole table, the heaviest first, as plain values."""
    stacks = trace.stacks.all()
    callers = heaviest(table.callers(), by)
    return {
        "stacks": [_caller(caller, stacks) for caller in callers],
        "bios": sum(c.bios for c in callers),
        "bytes": sum(c.bytes for c in callers),
        "without_queue": table.without_queue,
        "notes": notes(trace, table, stacks),
    }


def _caller(caller: Callers, stacks: list[Stack]) -> dict[str, Any]:
    stack = _stack_of(caller, stacks)
    return {
        "comm": caller.comm,
        "kernel": [_frame(frame) for frame in stack.kernel],
        "user": [_frame(frame) for frame in stack.user],
        "missing": stack.missing,
        "bios": caller.bios,
        "bytes": caller.bytes,
        "ended": caller.ended,
        "latency_ns": caller.latency_ns,
        "histogram": [
            {"from_ns": 1 << bucket if bucket else 0, "to_ns": 1 << (bucket + 1), "bios": count}
            for bucket, count in zip(range(BUCKETS), caller.histogram.tolist(), strict=True)
            if count
        ],
    }


def _frame(frame: Frame) -> dict[str, Any]:
    return {"name": frame.name, "where": frame.where, "offset": frame.offset}
