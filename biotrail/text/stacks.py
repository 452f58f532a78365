# SPDX-License-Identifier: Apache-2.0
"""Call stacks as text and JSON, for `biotrail stacks`."""

from collections.abc import Iterator
from typing import Any

from biotrail.converters.analysis.stacks.stacks import (
    NO_OFFSET,
    Callers,
    Group,
    StackTable,
    Weight,
    grouped,
    stack_texts,
)
from biotrail.converters.events.stacks import Frame, Stack
from biotrail.converters.pipeline import Trace
from biotrail.text import tallies, units
from biotrail.text.rows import Order, first, left_out

_BAR = 40
_SUMS = ("bios", "bytes", "ended", "doubtful", "latency_ns")
_US_BITS = 10
"""log2 of the first printed bucket's end: 1024 ns, which is shown as a microsecond."""


def ranked(groups: list[Group], order: Order | None) -> list[Group]:
    """Return the groups by `order`, the largest first. P99 needs percentiles in the table."""
    if order is None:
        return groups

    def rank(one: Callers) -> float:
        return {
            Order.COUNT: one.bios,
            Order.BYTES: one.bytes,
            Order.MEAN: one.latency_ns / one.ended if one.ended else 0.0,
            Order.P99: one.times.percentiles([0.99])[0],
            Order.TOTAL: one.latency_ns,
        }[order]

    return sorted(groups, key=lambda group: -rank(group.sums))


def text_lines(
    trace: Trace,
    table: StackTable,
    by: Weight,
    limit: int,
    order: Order | None = None,
    *,
    offsets: bool = False,
) -> Iterator[str]:
    stacks = trace.stacks.all()
    groups = ranked(grouped(table.callers(), stacks, by, offsets=offsets), order)
    total = sum(group.sums.weight(by) for group in groups)
    shown, more = first(groups, limit)
    for group in shown:
        sums = group.sums
        share = f"{100 * sums.weight(by) / total:.1f} % of " if total else ""
        what = {Weight.COUNT: "all bios", Weight.BYTES: "all bytes", Weight.LATENCY: "all time"}
        bios, size = units.plural(sums.bios, "bio"), units.size(sums.bytes)
        yield f"{sums.comm}: {bios}, {size}, {share}{what[by]}"
        yield from _frame_lines(group.stack, offsets)
        yield from _histogram(sums)
        yield ""
    if more:
        count = units.plural(sum(group.sums.bios for group in groups[len(shown) :]), "bio")
        yield left_out(more, "stack", f"with {count}")
        yield ""
    every = units.plural(sum(group.sums.bios for group in groups), "bio")
    size = units.size(sum(group.sums.bytes for group in groups))
    known = [group for group in groups if group.sums.stack >= 0]
    distinct = len({tuple(_frame_lines(group.stack, offsets)) for group in known})
    yield f"{every}, {size}, from {units.plural(distinct, 'distinct stack')}"
    yield from notes(trace, table, stacks)


def _frame_lines(stack: Stack, offsets: bool) -> Iterator[str]:
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
        if caller.doubtful:
            yield "    the latencies of all that were seen to end are in doubt"
        else:
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
    callers = table.callers()
    found = []
    if none := sum(c.bios for c in callers if c.stack < 0):
        found.append(f"{units.plural(none, 'bio')} without a stack: its record is not in the log")
    if table.without_queue:
        found.append(
            f"{units.plural(table.without_queue, 'bio')} left out: when and where from "
            "they were queued is not in the log"
        )
    if doubtful := sum(c.doubtful for c in callers):
        found.append(tallies.doubtful_line(doubtful, doubtful + sum(c.ended for c in callers)))
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
    stacks = trace.stacks.all()
    groups = ranked(grouped(table.callers(), stacks, by, offsets=offsets), order)
    shown, more = first(groups, limit)
    return {
        "stacks": [
            {
                "comm": group.sums.comm,
                "kernel": [_frame(frame) for frame in group.stack.kernel],
                "user": [_frame(frame) for frame in group.stack.user],
                "missing": group.stack.missing,
                "stacks": group.stacks,
                **{name: getattr(group.sums, name) for name in _SUMS},
                "histogram": [
                    {
                        "from_ns": 1 << bucket if bucket else 0,
                        "to_ns": 1 << (bucket + 1),
                        "bios": count,
                    }
                    for bucket, count in enumerate(group.sums.histogram.tolist())
                    if count
                ],
            }
            for group in shown
        ],
        **({"stacks_left_out": more} if more else {}),
        "bios": sum(group.sums.bios for group in groups),
        "bytes": sum(group.sums.bytes for group in groups),
        "without_queue": table.without_queue,
        "notes": notes(trace, table, stacks),
    }


def _frame(frame: Frame) -> dict[str, Any]:
    offset = None if frame.offset == NO_OFFSET else frame.offset
    return {"name": frame.name, "where": frame.where, "offset": offset}
