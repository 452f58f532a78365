# SPDX-License-Identifier: Apache-2.0
"""`biotrail stacks`: who queued the I/O of a log, by call stack and command."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from biotrail import tallies, units
from biotrail.cut_options import cut_options
from biotrail.cuts import Cut, opened
from biotrail.opening import log_argument
from biotrail.terminating import terminated_as_interrupted
from converters.answers.stacks import (
    BUCKETS,
    NO_OFFSET,
    Callers,
    Group,
    StackTable,
    Weight,
    folded,
    grouped,
    stack_texts,
)
from converters.model.stacks import Frame, Stack
from converters.model.tables import Lifecycles
from converters.model.trace import Trace
from recorder import output
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
    "--flame",
    metavar="OUT",
    type=click.Path(),
    help="Write a flame graph instead: OUT.svg, or OUT.html to search and zoom.",
)
@click.option("-f", "--force", is_flag=True, help="With --flame: replace OUT if it exists.")
@click.option("--offsets", is_flag=True, help="Keep apart what differs in places in functions.")
@click.option(
    "-n",
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Show so many stacks.",
)
def command(
    log: str,
    cut: Cut,
    as_folded: bool,
    as_json: bool,
    by_bytes: bool,
    by_latency: bool,
    flame: str | None,
    force: bool,
    offsets: bool,
    top: int,
) -> None:
    """Show who queued the I/O in LOG: by call stack and command, the heaviest first.

    LOG must have been made with record --stacks. Every bio counts, those too that were merged
    into another's request, with its bytes and its time from queue to completion. Stacks of the
    same functions are one; --offsets tells apart what came from different places in them.

    \b
    sudo biotrail record --stacks --duration 10s -o disk.biotrail
    biotrail stacks disk.biotrail
    biotrail stacks disk.biotrail --latency --top 3       # what waited longest, all in all
    biotrail stacks --slower-than 5ms disk.biotrail
    biotrail stacks disk.biotrail --flame disk.html       # a flame graph; disk.svg: a picture
    biotrail stacks disk.biotrail --flame disk.svg --latency
    biotrail stacks disk.biotrail --folded > disk.folded  # for flamegraph.pl or speedscope.app
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    if by_bytes and by_latency:
        raise click.UsageError("--bytes and --latency: give one of them")
    if as_folded + as_json + (flame is not None) > 1:
        raise click.UsageError("--folded, --json and --flame: give one of them")
    if offsets and (as_folded or flame is not None):
        raise click.UsageError("--offsets: only the text and --json have offsets")
    if flame is not None:
        _check_flame(flame, force)
    by = Weight.BYTES if by_bytes else Weight.LATENCY if by_latency else Weight.COUNT
    with terminated_as_interrupted(), opened(log, cut) as source:
        trace = source.trace
        table = gather(trace, source.chosen)
    if as_json:
        click.echo(json.dumps(as_dict(trace, table, by, offsets=offsets)))
        return
    stacks = trace.stacks.all()
    if flame is not None:
        _write_flame(flame, log, trace, table, by, force)
        return
    if as_folded:
        for line in folded(table.callers(), stacks, by):
            click.echo(units.printable(line))
        for line in notes(trace, table, stacks):
            click.echo(f"biotrail: {line}", err=True)
        return
    for line in [*text_lines(trace, table, by, top, offsets=offsets), *source.lines()]:
        click.echo(line)


def _check_flame(target: str, force: bool) -> None:
    """Raise UsageError for a name of another form, OutputError where the file may not be made."""
    from biotrail import stacks_flame

    if stacks_flame.form(target) is None:
        raise click.UsageError(f"--flame {target}: give a name that ends in .svg or .html")
    output.ensure_free(target, force)


def _write_flame(
    target: str, log: str, trace: Trace, table: StackTable, by: Weight, force: bool
) -> None:
    from biotrail import stacks_flame
    from converters.answers.flame import Recorded

    stacks = trace.stacks.all()
    name = "standard input" if log == "-" else Path(log).name
    recorded = [Recorded("", table.callers(), stacks)]
    lines = notes(trace, table, stacks)
    with terminated_as_interrupted():
        path = stacks_flame.write(target, name, recorded, by, lines, force)
    size = units.size(path.stat().st_size)
    click.echo(f"wrote {path} ({size}): open it in a browser; it needs no network")
    for line in lines:
        click.echo(f"biotrail: {line}", err=True)


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


def text_lines(
    trace: Trace, table: StackTable, by: Weight, top: int, *, offsets: bool = False
) -> Iterator[str]:
    """For people: a stack, what came from it, and the histogram of its latencies."""
    stacks = trace.stacks.all()
    groups = grouped(table.callers(), stacks, by, offsets=offsets)
    total = sum(group.sums.weight(by) for group in groups)
    for group in groups[:top]:
        yield from _block(group, by, total, offsets)
    if rest := groups[top:]:
        count = units.plural(sum(group.sums.bios for group in rest), "bio")
        yield f"and {units.plural(len(rest), 'more stack')} with {count}: --top shows more"
        yield ""
    bios = sum(group.sums.bios for group in groups)
    size = sum(group.sums.bytes for group in groups)
    known = [group for group in groups if group.sums.stack >= 0]
    distinct = len({tuple(_frame_lines(group.stack, offsets)) for group in known})
    yield (
        f"{units.plural(bios, 'bio')}, {units.size(size)}, from "
        f"{units.plural(distinct, 'distinct stack')}"
    )
    yield from notes(trace, table, stacks)


def _block(group: Group, by: Weight, total: int, offsets: bool) -> Iterator[str]:
    sums = group.sums
    share = f"{100 * sums.weight(by) / total:.1f} % of " if total else ""
    what = {Weight.COUNT: "all bios", Weight.BYTES: "all bytes", Weight.LATENCY: "all time"}[by]
    yield (
        f"{units.printable(sums.comm)}: {units.plural(sums.bios, 'bio')}, "
        f"{units.size(sums.bytes)}, {share}{what}"
    )
    yield from _frame_lines(group.stack, offsets)
    yield from _histogram(sums)
    yield ""


def _frame_lines(stack: Stack, offsets: bool) -> Iterator[str]:
    kernel, user = stack_texts(stack, offsets=offsets)
    yield from (f"  {units.printable(text)}" for text in kernel)
    if user:
        yield "  -- user"
    yield from (f"  {units.printable(text)}" for text in user)
    if stack.missing:
        yield f"  [{stack.missing}]"


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


def as_dict(
    trace: Trace, table: StackTable, by: Weight, *, offsets: bool = False
) -> dict[str, Any]:
    """The whole table, the heaviest first, as plain values."""
    stacks = trace.stacks.all()
    groups = grouped(table.callers(), stacks, by, offsets=offsets)
    return {
        "stacks": [_group(group) for group in groups],
        "bios": sum(group.sums.bios for group in groups),
        "bytes": sum(group.sums.bytes for group in groups),
        "without_queue": table.without_queue,
        "notes": notes(trace, table, stacks),
    }


def _group(group: Group) -> dict[str, Any]:
    sums, stack = group.sums, group.stack
    return {
        "comm": sums.comm,
        "kernel": [_frame(frame) for frame in stack.kernel],
        "user": [_frame(frame) for frame in stack.user],
        "missing": stack.missing,
        "stacks": group.stacks,
        "bios": sums.bios,
        "bytes": sums.bytes,
        "ended": sums.ended,
        "latency_ns": sums.latency_ns,
        "histogram": [
            {"from_ns": 1 << bucket if bucket else 0, "to_ns": 1 << (bucket + 1), "bios": count}
            for bucket, count in zip(range(BUCKETS), sums.histogram.tolist(), strict=True)
            if count
        ],
    }


def _frame(frame: Frame) -> dict[str, Any]:
    offset = None if frame.offset == NO_OFFSET else frame.offset
    return {"name": frame.name, "where": frame.where, "offset": offset}
