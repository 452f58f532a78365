# SPDX-License-Identifier: Apache-2.0
"""Show a report in tables for people."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table

from biotrail.converters.analysis.report.tree import (
    DeviceReport,
    GroupReport,
    OperationReport,
    Report,
    Summary,
)
from biotrail.text import tallies, units
from biotrail.text.columns import Column, block, table, with_more, without_repeats
from biotrail.text.report_rows import in_order
from biotrail.text.rows import Order, first

NOT_KNOWN = "(file not known: direct I/O, buffers)"
PATH_WIDTH = 48
"""Most characters of a path; --json has the whole path."""
MOST_ROWS = 15
"""Rows of processes, cgroups and the like by default; the table says how many more there are."""
MOST_LINES = 1000
"""Rows of a time series by default."""

TIMES = (
    Column("mean", 1),
    Column("p50"),
    Column("p90", 3),
    Column("p99"),
    Column("p99.9", 2),
    Column("max"),
)
WORK = (
    Column("I/Os"),
    Column("I/O/s", 2),
    Column("data", 1),
    Column("data/s", 2),
    Column("size", 4),
)
_TAIL = (Column("failed"), Column("tries", 2))
"""Columns that are shown if any row has something in them."""
_NONE = "-"


def parts(
    report: Report,
    width: int,
    limit: int | None = None,
    order: Order | None = None,
    words: Sequence[str] = (),
) -> Iterator[RenderableType]:
    """Yield what to print, with a blank line between two parts.

    limit: rows of each table of operations, groups and intervals, 0: all; None: MOST_ROWS groups,
    MOST_LINES of intervals. order: of an interval's groups; None: by count. words: further lines
    below the first one.
    """
    most = MOST_ROWS if limit is None else limit
    first, *others = _head(report)
    yield block([first, *words, *others])
    if not report.devices:
        return
    yield operations(report, width, limit or 0)
    for device in report.devices:
        if device.total.bios.stages or device.total.requests.stages:
            yield _stages(device, width)
    yield _queues(report.devices, width)
    yield _patterns(report.devices, width)
    if any(device.flushes for device in report.devices):
        yield _flushes(report.devices, width)
    if report.stacked:
        yield _stacked(report, width)
    if report.by:
        yield from _chosen(report, width, most)
    else:
        yield from _lists(report, width, most)
    if report.intervals:
        lines = MOST_LINES if limit is None else limit
        yield _intervals(report, width, lines, order or Order.COUNT)


def _head(report: Report) -> list[str]:
    """Return lines on the recording and on what is left out of its figures."""
    span = units.duration(report.span_ns)
    total = report.total.bios.counters
    found = [
        f"{report.host}, kernel {report.kernel}; from {report.begin or 'an unknown time'}, {span}",
        f"{units.plural(total['ios'], 'bio')}, {units.size(total['bytes'])}, "
        f"{units.plural(report.total.requests.counters['ios'], 'request')}",
    ]
    if total["tries"]:
        found.append(
            f"{tallies.tries_text(total['tries'])}, of {units.size(total['tried_bytes'])}: beside "
            "the bios, not among them"
        )
    known = ", ".join(f"{units.count(n)} {name}" for name, n in report.certainty.items() if n)
    if known:
        found.append(f"certainty of bios: {known}")
    without = report.percentiles.without
    if without:
        what = units.plural(without, "bio has", "bios have")
        found.append(f"{what} no beginning or end in the log: counted, but in no latency")
    return found


def times(values: Summary) -> list[str]:
    """Return the cells of TIMES."""
    if not values.count:
        return ["-"] * len(TIMES)
    shown = (values.mean, values.p50, values.p90, values.p99, values.p99_9, values.max)
    return [units.duration(value) for value in shown]


def work(group: GroupReport) -> list[str]:
    """Return the cells of WORK."""
    return [
        units.count(group.counters["ios"]),
        f"{group.ios_per_s:,.0f}",
        units.size(group.counters["bytes"]),
        units.size(group.bytes_per_s) + "/s",
        units.size(group.size.mean),
    ]


def _tail(group: GroupReport) -> list[str]:
    """Return the cells of _TAIL."""
    failed = ", ".join(f"{name} {units.count(n)}" for name, n in group.errors.items())
    tries = group.counters["tries"]
    return [failed or _NONE, units.count(tries) if tries else _NONE]


def _with_tail(
    title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> Table:
    """Return a table whose rows end with the cells of _TAIL, less those columns that are empty."""
    kept = [
        place
        for place in range(len(_TAIL))
        if any(row[place - len(_TAIL)] not in ("", _NONE) for row in rows)
    ]
    shown = [[*row[: -len(_TAIL)], *(row[place - len(_TAIL)] for place in kept)] for row in rows]
    return table(title, [*columns, *(_TAIL[place] for place in kept)], shown, width)


def operations(report: Report, width: int, limit: int = 0) -> RenderableType:
    """Return the table of devices and operations, with their latencies. limit: rows, 0: all."""
    every = [
        [
            device.device,
            str(one.bios.name["operation"]),
            *work(one.bios),
            *times(one.bios.latency),
            *_tail(one.bios),
        ]
        for device in report.devices
        for one in device.operations
        if one.bios.counters["ios"] or one.bios.counters["tries"]
    ]
    rows, more = first(every, limit)
    columns = [Column("device", left=True), Column("operation", left=True), *WORK, *TIMES]
    title = "From queue to completion (Q2C)"
    return with_more(_with_tail(title, columns, without_repeats(rows, 1), width), more)


def _stages(device: DeviceReport, width: int) -> RenderableType:
    """Return the table of a device's stages, by operation."""
    rows = [row for one in device.operations for row in _stage_rows(one)]
    columns = [
        Column("operation", left=True),
        Column("stage", left=True),
        Column("count", 1),
        Column("share"),
        *TIMES,
    ]
    title = f"Where the time goes: {device.device}"
    return table(title, columns, without_repeats(rows, 1), width)


def _stage_rows(one: OperationReport) -> list[list[str]]:
    """Return rows of an operation's bio stages, and of D2C of its requests."""
    name = str(one.bios.name["operation"])
    rows = stage_rows(one.bios, [name])
    for stage in one.requests.stages:
        if stage.stage == "D2C":
            count = units.count(stage.time.count)
            rows.append([name, "D2C of requests", count, "", *times(stage.time)])
    return rows


def stage_rows(group: GroupReport, name: list[str]) -> list[list[str]]:
    """Return a row per stage: `name`, stage, count, share and TIMES."""
    return [
        [*name, s.stage, units.count(s.time.count), f"{100 * s.share:.1f} %", *times(s.time)]
        for s in group.stages
    ]


def _queues(devices: Sequence[DeviceReport], width: int) -> RenderableType:
    """Return the table of bios and requests in flight, by device."""
    rows = []
    for device in devices:
        queue, issued, whole = device.queue, device.issued, device.queue.busy_ns
        span = whole + device.queue.idle_ns
        rows.append(
            [
                device.device,
                f"{queue.mean:.2f}",
                units.count(queue.max),
                f"{queue.at_start.mean:.1f}",
                f"{issued.mean:.2f}",
                units.count(issued.max),
                f"{issued.at_start.mean:.1f}",
                f"{100 * whole / span:.1f} %" if span else "-",
                units.duration(queue.idle_ns),
            ]
        )
    columns = [
        Column("device", left=True),
        Column("Q-C mean"),
        Column("Q-C max"),
        Column("met at Q", 2),
        Column("D-C mean"),
        Column("D-C max"),
        Column("met at D", 2),
        Column("active"),
        Column("idle", 1),
    ]
    return table("In flight: bios from Q to C, requests from D to C", columns, rows, width)


_EVENTS = (
    ("back", "back_merges"),
    ("front", "front_merges"),
    ("requests", "request_merges"),
    ("splits", "splits"),
    ("requeues", "requeues"),
)


def _patterns(devices: Sequence[DeviceReport], width: int) -> RenderableType:
    """Return the table of merges, splits and seeks, by device."""
    rows = [
        [
            device.device,
            *(units.count(device.events.get(event, 0)) for _, event in _EVENTS),
            f"{100 * device.q2q.sequential_share:.0f} %",
            units.size(device.q2q.seek.mean),
            f"{100 * device.d2d.sequential_share:.0f} %",
            units.size(device.d2d.seek.mean),
        ]
        for device in devices
    ]
    columns = [
        Column("device", left=True),
        *(Column(head) for head, _ in _EVENTS),
        Column("sequential at Q"),
        Column("mean seek", 1),
        Column("at D"),
        Column("mean seek", 1),
    ]
    return table("Merges (back, front, of requests), splits and seeks", columns, rows, width)


def _flushes(devices: Sequence[DeviceReport], width: int) -> RenderableType:
    """Return the table of flush requests, by device."""
    rows = []
    for device in devices:
        if (found := device.flushes) is not None:
            shared = ", ".join(f"{bios}: {units.count(n)}" for bios, n in found.shared.items())
            counts = [units.count(found.requests), units.count(found.waits)]
            mean = f"{found.bios_per_request:.2f}"
            rows.append([device.device, *counts, mean, *times(found.time), shared])
    columns = [
        Column("device", left=True),
        Column("flushes"),
        Column("waits"),
        Column("bios each"),
        *TIMES,
        Column("flushes by bios that waited", 1, left=True),
    ]
    return table("Flush requests, and how many bios waited for each", columns, rows, width)


def _stacked(report: Report, width: int) -> RenderableType:
    """Return the table of stacked devices: time above, in and below each lower device's bios."""
    rows = [
        row
        for pair in report.stacked
        for name, values in (
            ("Q to Q below", pair.to_child),
            ("Q2C below", pair.child),
            ("C below to C", pair.from_child),
        )
        for row in [
            [
                pair.device,
                pair.below,
                pair.operation,
                name,
                units.count(values.count),
                *times(values),
            ]
        ]
    ]
    columns = [
        Column("device", left=True),
        Column("below", left=True),
        Column("operation", left=True),
        Column("part", left=True),
        Column("count", 1),
        *TIMES,
    ]
    return table("Stacked devices", columns, without_repeats(rows, 3), width)


def name_cells(group: GroupReport, fields: Sequence[str]) -> list[str]:
    """Return the group's name, a cell for each field; `(others)` for the rest of a list."""
    if "others" in group.name:
        return ["(others)", *([""] * (len(fields) - 1))]
    cells = []
    for field in fields:
        value = group.name.get(field)
        if field in ("file", "dir"):
            cells.append(file_cell(group, field))
            continue
        if field == "cgroup" and value is None:
            value = group.name.get("cgroup_id") or None
        cells.append("(unknown)" if value is None else str(value))
    return cells


def file_cell(group: GroupReport, field: str = "file") -> str:
    """Return a path's end and how many inodes had the path; without a path, why there is none.

    field: "file" or "dir".
    """
    path, kind = group.name[field], group.name["file_kind"]
    if path is None:
        device = f"({group.name.get('device')}: metadata, or the device itself)"
        known = {"device": device, "no data": "(no data)", "no name": "(files without a name)"}
        return known.get(str(kind), NOT_KNOWN)
    text = str(path)
    text = text if len(text) <= PATH_WIDTH else f"…{text[1 - PATH_WIDTH :]}"
    inodes = int(group.name.get("inodes") or 0)
    several = f" ({units.plural(inodes, 'inode', 'inodes')})" if inodes > 1 else ""
    return text + (several if field == "file" else "")


FIELDS = {
    "process": ("process", "pid"),
    "device": ("device",),
    "op": ("operation",),
    "cgroup": ("cgroup",),
    "file": ("file",),
    "inode": ("file", "inode"),
    "dir": ("dir", "inodes"),
    "cpu": ("cpu",),
}
"""Fields of a group's name, by the word of --by."""


def processes(report: Report, width: int) -> RenderableType:
    """Return the table of processes with their latencies, in the report's order."""
    return _list("Processes", FIELDS["process"], report.processes, width, MOST_ROWS)


def _lists(report: Report, width: int, limit: int) -> Iterator[RenderableType]:
    """Yield the tables of processes, cgroups, files and CPUs that have groups.

    limit: rows of each, 0: all.
    """
    for title, word, groups in (
        ("Processes", "process", report.processes),
        ("Cgroups", "cgroup", report.cgroups),
        ("Files", "file", report.files),
        ("CPUs, by where I/O was queued", "cpu", report.cpus),
    ):
        if groups:
            yield _list(title, FIELDS[word], groups, width, limit)


def _list(
    title: str, fields: Sequence[str], groups: Sequence[GroupReport], width: int, limit: int
) -> RenderableType:
    """Return a table of groups with their latencies. limit: rows, 0: all."""
    shown, more = first(groups, limit)
    rows = [[*name_cells(g, fields), *work(g), *times(g.latency), *_tail(g)] for g in shown]
    columns = [*(Column(field, left=not place) for place, field in enumerate(fields))]
    return with_more(_with_tail(title, [*columns, *WORK, *TIMES], rows, width), more)


def _chosen(report: Report, width: int, limit: int) -> Iterator[RenderableType]:
    """Yield the tables of the groups of --by: latencies, then stages. limit: groups, 0: all."""
    fields = FIELDS[report.by or "device"]
    yield _list(f"By {report.by}", fields, report.groups, width, limit)
    shown, more = first(report.groups, limit)
    rows = [row for group in shown for row in stage_rows(group, name_cells(group, fields))]
    columns = [
        *(Column(field, left=True) for field in fields),
        Column("stage", left=True),
        Column("count", 1),
        Column("share"),
        *TIMES,
    ]
    title = f"Where the time goes, by {report.by}"
    yield with_more(table(title, columns, without_repeats(rows, len(fields)), width), more, "group")


def _intervals(report: Report, width: int, limit: int, order: Order) -> RenderableType:
    """Return the table of intervals, with a row for each group in each. limit: rows, 0: all."""
    fields = FIELDS[report.by] if report.by else ("device", "operation")
    rows = []
    for interval in report.intervals:
        at = units.duration(interval.begin_ns - report.begin_ns)
        if not interval.groups:
            rows.append(
                [at, "-", *([""] * (len(fields) - 1 + len(WORK) + len(TIMES) + len(_TAIL)))]
            )
        for group in in_order(interval.groups, order):
            rows.append(
                [
                    at,
                    *name_cells(group, fields),
                    *work(group),
                    *times(group.latency),
                    *_tail(group),
                ]
            )
    columns = [
        Column("from"),
        *(Column(field, left=True) for field in fields),
        *WORK,
        *TIMES,
    ]
    title = f"Over time, {units.duration(report.interval_ns)} each"
    shown, more = first(rows, limit)
    return with_more(_with_tail(title, columns, without_repeats(shown, 1), width), more)
