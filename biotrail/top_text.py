# SPDX-License-Identifier: Apache-2.0
"""A snapshot of `biotrail top` in tables."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType

from biotrail import units
from biotrail.columns import Column, block, table, without_repeats
from biotrail.report_text import name_cells
from converters.answers.live_tree import Snapshot, Stretch
from converters.answers.tree import GroupReport, OperationReport, Summary

if TYPE_CHECKING:
    from biotrail.top import Cost

PLAIN_ROWS = 10
_FURNITURE = 24
"""Lines that are no row of a table: heads, titles, blanks."""
_LATE_NS = 3_000_000_000
_WORK = (Column("I/O/s"), Column("data/s", 1))
_TIMES = (
    Column("p50"),
    Column("p99"),
    Column("max", 2),
    Column("p50 1 min", 1),
    Column("p99 1 min", 1),
)


def parts(
    snapshot: Snapshot, cost: "Cost", width: int, height: int | None
) -> Iterator[RenderableType]:
    """What to show. height: lines that there are; None: any."""
    rows = PLAIN_ROWS if height is None else max((height - _FURNITURE) // 4, 1)
    yield block(_head(snapshot, cost))
    if snapshot.devices:
        yield _devices(snapshot, width, rows)
    if snapshot.minute.operations:
        yield _operations(snapshot, width, rows)
        yield _stages(snapshot, width, 2 * rows)
        yield _processes(snapshot, width, rows)
    if snapshot.slowest:
        yield _slowest(snapshot, width, rows)


def _head(snapshot: Snapshot, cost: "Cost") -> list[str]:
    now = snapshot.now
    total = now.total.bios
    found = [
        f"biotrail top: {units.duration(now.end_ns - now.begin_ns)}: {total.ios_per_s:,.0f} I/O/s, "
        f"{units.size(total.bytes_per_s)}/s, {units.count(total.counters['failed'])} failed; "
        f"recorder {100 * cost.recorder:.1f} %, top {100 * cost.top:.1f} % of a core; "
        f"lost {units.plural(snapshot.lost_records, 'event')}"
    ]
    if snapshot.skipped_ns:
        found.append(
            f"CANNOT KEEP UP: {units.duration(snapshot.skipped_ns)} of the recording skipped "
            "here: choose fewer devices (-d) or operations (--op)"
        )
    if cost.behind_ns > _LATE_NS and not snapshot.last:
        found.append(f"{units.duration(cost.behind_ns)} behind")
    return found


def _devices(snapshot: Snapshot, width: int, most: int) -> RenderableType:
    busy = sorted(snapshot.devices, key=lambda d: (-d.queue.busy_ns, d.device))
    rows = []
    for one in busy[:most]:
        queue, issued = one.queue, one.issued
        active = 100 * queue.busy_ns / queue.time_ns if queue.time_ns else 0.0
        rows.append(
            [
                one.device,
                units.count(queue.now),
                f"{queue.mean:.2f}",
                units.count(queue.max),
                units.count(issued.now),
                f"{issued.mean:.2f}",
                units.count(issued.max),
                f"{active:.0f} %",
            ]
        )
    columns = [
        Column("in flight", left=True),
        Column("Q-C now"),
        Column("mean"),
        Column("max"),
        Column("D-C now"),
        Column("mean"),
        Column("max"),
        Column("active"),
    ]
    return table("", columns, rows, width)


def _times(now: Summary | None, minute: Summary | None) -> list[str]:
    found = []
    for values, shown in ((now, ("p50", "p99", "max")), (minute, ("p50", "p99"))):
        some = values is not None and values.count
        found += [units.duration(getattr(values, name)) if some else "-" for name in shown]
    return found


def _work(group: GroupReport | None) -> list[str]:
    if group is None:
        return ["0", "0 B/s"]
    return [f"{group.ios_per_s:,.0f}", f"{units.size(group.bytes_per_s)}/s"]


def _named(stretch: Stretch) -> dict[tuple[object, ...], OperationReport]:
    return {tuple(o.bios.name.values()): o for o in stretch.operations}


def _cells(one: OperationReport) -> list[str]:
    return name_cells(one.bios, ("device", "operation"))


def _operations(snapshot: Snapshot, width: int, most: int) -> RenderableType:
    now = _named(snapshot.now)
    rows = []
    some = [(n, o) for n, o in _named(snapshot.minute).items() if o.bios.counters["ios"]]
    for name, one in some[:most]:
        newest = now[name].bios if name in now else None
        times = _times(newest.latency if newest else None, one.bios.latency)
        rows.append([*_cells(one), *_work(newest), *times])
    columns = [Column("Q to C", left=True), Column("", left=True), *_WORK, *_TIMES]
    return table("", columns, rows, width)


def _stages(snapshot: Snapshot, width: int, most: int) -> RenderableType:
    now = _named(snapshot.now)
    rows = []
    for name, one in _named(snapshot.minute).items():
        newest = {s.stage: s.time for s in now[name].bios.stages} if name in now else {}
        stages = sorted(one.bios.stages, key=lambda s: -s.share)
        for stage in stages:
            share = f"{100 * stage.share:.0f} %"
            times = _times(newest.get(stage.stage), stage.time)
            rows.append([*_cells(one), stage.stage, share, *times])
    columns = [
        Column("stages", left=True),
        Column("", left=True),
        Column("", left=True),
        Column("share 1 min"),
        *_TIMES,
    ]
    return table("", columns, without_repeats(rows[:most], 2), width)


def _processes(snapshot: Snapshot, width: int, most: int) -> RenderableType:
    fields = ("process", "pid")
    now = {tuple(g.name.values()): g for g in snapshot.now.processes}
    rows = []
    for group in snapshot.minute.processes[:most]:
        newest = now.get(tuple(group.name.values()))
        times = _times(newest.latency if newest else None, group.latency)
        rows.append([*name_cells(group, fields), *_work(newest), *times])
    columns = [Column("process", left=True), Column("pid"), *_WORK, *_TIMES]
    return table("", columns, rows, width)


def _slowest(snapshot: Snapshot, width: int, most: int) -> RenderableType:
    rows = [
        [
            units.duration(one.latency_ns),
            one.device,
            one.operation,
            str(one.sector),
            units.size(one.bytes),
            one.process or "(unknown)",
            str(one.pid or ""),
            f"{one.stage} {units.duration(one.stage_ns)}" if one.stage else "-",
            f"{units.duration(max(snapshot.now.end_ns - one.end_ns, 0))} ago",
        ]
        for one in snapshot.slowest[:most]
    ]
    columns = [
        Column("slowest"),
        Column("device", left=True),
        Column("", left=True),
        Column("sector", 2),
        Column("size", 2),
        Column("process", left=True),
        Column("pid", 3),
        Column("longest stage", 1, left=True),
        Column("when", 1),
    ]
    return table("", columns, rows, width)
