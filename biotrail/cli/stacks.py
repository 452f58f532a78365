# SPDX-License-Identifier: Apache-2.0
"""`biotrail stacks`: which call stacks and tasks queued the I/O of a log."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from biotrail.cli.options.cut_options import cut_options
from biotrail.cli.options.cuts import Cut, Opened
from biotrail.cli.options.recordings import logs_argument
from biotrail.cli.options.several import Given, of_each, recordings
from biotrail.cli.options.terminating import terminated_as_interrupted
from biotrail.converters.analysis.stacks.stacks import (
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
from biotrail.converters.events.stacks import Frame, Stack
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.pipeline import Trace
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text import tallies, units
from biotrail.text.printing import say, say_all, say_json
from biotrail.text.rows import Order, first, left_out, limit_option, sort_option

Chosen = Callable[[Iterable[Lifecycles]], Iterator[Lifecycles]]
MOST_STACKS = 10
"""Stacks printed as text without --limit."""
_BAR = 40
_US_BITS = 10
"""log2 of the first printed bucket's end: 1024 ns, which is shown as a microsecond."""


@click.command()
@logs_argument
@cut_options
@click.option(
    "--folded",
    "as_folded",
    is_flag=True,
    help="Print a line per stack in the folded format, for flame graphs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--bytes", "by_bytes", is_flag=True, help="Weight stacks by bytes, not by bios.")
@click.option(
    "--latency",
    "by_latency",
    is_flag=True,
    help="Weight stacks by their bios' total time from queue to completion.",
)
@click.option(
    "--flame",
    metavar="OUT",
    type=click.Path(),
    help="Write a flame graph: OUT.svg, or OUT.html, which can be searched and zoomed.",
)
@click.option("-f", "--force", is_flag=True, help="With --flame: replace OUT if it exists.")
@click.option(
    "--offsets",
    is_flag=True,
    help="Keep stacks apart that differ only in the offsets within functions.",
)
@sort_option("the weight")
@limit_option("10; --json and --folded have all", "--top")
def command(
    logs: tuple[str, ...],
    cut: Cut,
    as_folded: bool,
    as_json: bool,
    by_bytes: bool,
    by_latency: bool,
    flame: str | None,
    force: bool,
    offsets: bool,
    order: Order | None,
    limit: int | None,
) -> None:
    """Show which call stacks and tasks queued the I/O in LOGs, the heaviest first.

    LOG must have been made with record --stacks. Every bio counts, including those merged into
    another bio's request, with its bytes and its time from queue to completion. Stacks of the
    same functions are added up, unless --offsets is given. The files of a rotated recording are
    one log; several recordings are shown one after the other.

    \b
    sudo biotrail record --stacks --duration 10s -o disk.biotrail
    biotrail stacks disk.biotrail
    biotrail stacks disk.biotrail --latency -n 3          # the largest total latency
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
        if order is not None or limit is not None:
            raise click.UsageError("--flame shows all stacks: leave out --sort and --limit")
        _check_flame(flame, force)
    by = Weight.BYTES if by_bytes else Weight.LATENCY if by_latency else Weight.COUNT
    with terminated_as_interrupted(), recordings(logs, twice=cut.needs_file()) as found:
        several = len(found) > 1
        told = of_each(found, lambda one: _read(one, cut, percentiles=order == Order.P99))
    if as_json:
        each = [
            (one, as_dict(source.trace, table, by, limit or 0, order, offsets=offsets))
            for one, (source, table) in told
        ]
        whole = {"recordings": [one.marked(facts) for one, facts in each]}
        say_json(whole if several else each[0][1])
        return
    if flame is not None:
        _write_flame(
            flame, [(one, source.trace, table) for one, (source, table) in told], by, force
        )
        return
    for number, (one, (source, table)) in enumerate(told):
        if as_folded:
            _print_folded(one, source.trace, table, by, limit or 0, order)
            continue
        most = MOST_STACKS if limit is None else limit
        blank = [""] if number else []
        shown = text_lines(source.trace, table, by, most, order, offsets=offsets)
        lines = [*shown, *source.lines()]
        say_all([*blank, *one.head(), *lines])


def _read(one: Given, cut: Cut, percentiles: bool) -> tuple[Opened, StackTable]:
    source = one.opened(cut)
    return source, gather(source.trace, source.chosen, percentiles)


def _print_folded(
    one: Given, trace: Trace, table: StackTable, by: Weight, limit: int, order: Order | None
) -> None:
    """Print a recording's stacks in the folded format, and notes on standard error.

    If it has a label, that is the outermost frame of each stack.
    """
    stacks = trace.stacks.all()
    groups, _ = first(ranked(grouped(table.callers(), stacks, by), order), limit)
    above = f"{one.label.replace(';', ':')};" if one.label else ""
    for line in folded([group.sums for group in groups], stacks, by):
        say(above + line)
    about = f"{one.label}: " if one.label else ""
    for line in notes(trace, table, stacks):
        say(f"biotrail: {about}{line}", err=True)


def _check_flame(target: str, force: bool) -> None:
    """Raise click.UsageError for another ending than .svg or .html.

    Raises OutputError if the file exists and may not be replaced.
    """
    from biotrail.cli.reporting import flame_graph

    if flame_graph.form(target) is None:
        raise click.UsageError(f"--flame {target}: give a name that ends in .svg or .html")
    output.ensure_free(target, force)


def _write_flame(
    target: str, told: list[tuple[Given, Trace, StackTable]], by: Weight, force: bool
) -> None:
    """Write one flame graph of all recordings; if they are several, each is an outermost frame."""
    from biotrail.cli.reporting import flame_graph
    from biotrail.converters.analysis.stacks.flame import Recorded

    name = units.plural(len(told), "recording")
    if len(told) == 1:
        name = Path(told[0][0].name).name if told[0][0].paths != ["-"] else "standard input"
    recorded = [Recorded(one.label, t.callers(), trace.stacks.all()) for one, trace, t in told]
    lines = [
        f"{one.label}: {line}" if one.label else line
        for one, trace, table in told
        for line in notes(trace, table, trace.stacks.all())
    ]
    with terminated_as_interrupted():
        path = flame_graph.write(target, name, recorded, by, lines, force)
    size = units.size(path.stat().st_size)
    say(f"wrote {path} ({size}): open it in a browser; it needs no network")
    for line in lines:
        say(f"biotrail: {line}", err=True)


def ranked(groups: list[Group], order: Order | None) -> list[Group]:
    """Return the groups sorted by `order`, the largest first; None: in their present order."""
    if order is None:
        return groups
    return sorted(groups, key=lambda group: -_rank(group.sums, order))


def _rank(one: Callers, order: Order) -> float:
    return {
        Order.COUNT: one.bios,
        Order.BYTES: one.bytes,
        Order.MEAN: one.latency_ns / one.ended if one.ended else 0.0,
        Order.P99: one.times.percentiles([0.99])[0],
        Order.TOTAL: one.latency_ns,
    }[order]


def gather(trace: Trace, chosen: Chosen = iter, percentiles: bool = False) -> StackTable:
    """Read a trace to its end and return the table of its call stacks.

    chosen: filters the windows; by default all I/Os. percentiles: whether to keep each caller's
    `times`. Raises ConversionError if the log has no stacks.
    """
    if "stacks" not in trace.reader.header:
        raise ConversionError(
            "this log has no call stacks: record again with biotrail record --stacks"
        )
    table = StackTable(percentiles)
    for window in chosen(trace.lifecycles()):
        table.add(window)
    return table


def text_lines(
    trace: Trace,
    table: StackTable,
    by: Weight,
    limit: int,
    order: Order | None = None,
    *,
    offsets: bool = False,
) -> Iterator[str]:
    """Yield lines for each stack: its share, frames and latency histogram; then totals and notes.

    limit: number of stacks shown, 0: all. order: of the stacks, None: the heaviest first.
    """
    stacks = trace.stacks.all()
    groups = ranked(grouped(table.callers(), stacks, by, offsets=offsets), order)
    total = sum(group.sums.weight(by) for group in groups)
    shown, more = first(groups, limit)
    for group in shown:
        yield from _block(group, by, total, offsets)
    if more:
        count = units.plural(sum(group.sums.bios for group in groups[len(shown) :]), "bio")
        yield left_out(more, "stack", f"with {count}")
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
    """Yield the lines of one stack. total: the weight of all stacks."""
    sums = group.sums
    share = f"{100 * sums.weight(by) / total:.1f} % of " if total else ""
    what = {Weight.COUNT: "all bios", Weight.BYTES: "all bytes", Weight.LATENCY: "all time"}[by]
    yield (
        f"{sums.comm}: {units.plural(sums.bios, 'bio')}, {units.size(sums.bytes)}, {share}{what}"
    )
    yield from _frame_lines(group.stack, offsets)
    yield from _histogram(sums)
    yield ""


def _frame_lines(stack: Stack, offsets: bool) -> Iterator[str]:
    """Yield a line for each frame, kernel's first, and one for what is missing of the stack."""
    kernel, user = stack_texts(stack, offsets=offsets)
    yield from (f"  {text}" for text in kernel)
    if user:
        yield "  -- user"
    yield from (f"  {text}" for text in user)
    if stack.missing:
        yield f"  [{stack.missing}]"


def _histogram(caller: Callers) -> Iterator[str]:
    """Yield the latency histogram of a caller's bios; the first bucket holds all below 1024 ns."""
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
    """Return sentences about bios without a stack or queue time, then about the log's losses."""
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
        if missing and missing not in trace.stacks.refused:  # loss_lines reports the refused ones
            why[missing] = why.get(missing, 0) + caller.bios
    found += [f"{units.plural(n, 'bio')}: {text}" for text, n in sorted(why.items())]
    return found + tallies.loss_lines(trace)


def as_dict(
    trace: Trace,
    table: StackTable,
    by: Weight,
    limit: int = 0,
    order: Order | None = None,
    *,
    offsets: bool = False,
) -> dict[str, Any]:
    """Return the table for JSON; limit and order as for `text_lines`."""
    stacks = trace.stacks.all()
    groups = ranked(grouped(table.callers(), stacks, by, offsets=offsets), order)
    shown, more = first(groups, limit)
    return {
        "stacks": [_group(group) for group in shown],
        **({"stacks_left_out": more} if more else {}),
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
