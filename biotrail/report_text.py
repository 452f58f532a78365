# SPDX-License-Identifier: Apache-2.0
"""A report in tables for people."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from biotrail import units
from biotrail.columns import Column, block, table, without_repeats
from converters.answers.tree import DeviceReport, GroupReport, OperationReport, Report, Summary

NOT_KNOWN = "(file not known: direct I/O, buffers)"
PATH_WIDTH = 48
"""Characters of a path; the whole is in --json."""
MOST_ROWS = 15
"""Of processes, cgroups and the like; the rest is counted."""
MOST_LINES = 1000
"""Of a time series."""

_TIMES = (
    Column("mean", 1),
    Column("p50"),
    Column("p90", 3),
    Column("p99"),
    Column("p99.9", 2),
    Column("max"),
)
_WORK = (
    Column("I/Os"),
    Column("I/O/s", 2),
    Column("data", 1),
    Column("data/s", 2),
    Column("size", 4),
)
_FAILED = Column("failed")
_NONE = "-"


def parts(report: Report, width: int) -> Iterator[RenderableType]:
    """What to print, a blank line between two."""
    yield block(_head(report))
    if not report.devices:
        return
    yield operations(report, width)
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
        yield from _chosen(report, width)
    else:
        yield from _lists(report, width)
    if report.intervals:
        yield _intervals(report, width)


def _head(report: Report) -> list[str]:
    span = units.duration(report.span_ns)
    total = report.total.bios.counters
    found = [
        f"{report.host}, kernel {report.kernel}; from {report.begin or 'an unknown time'}, {span}",
        f"{units.plural(total['ios'], 'bio')}, {units.size(total['bytes'])}, "
        f"{units.plural(report.total.requests.counters['ios'], 'request')}",
    ]
    known = ", ".join(f"{units.count(n)} {name}" for name, n in report.certainty.items() if n)
    if known:
        found.append(f"certainty of bios: {known}")
    without = report.percentiles.without
    if without:
        what = units.plural(without, "bio has", "bios have")
        found.append(f"{what} no beginning or end in the log: counted, but in no latency")
    return found


def times(values: Summary) -> list[str]:
    """Cells of _TIMES."""
    if not values.count:
        return ["-"] * len(_TIMES)
    shown = (values.mean, values.p50, values.p90, values.p99, values.p99_9, values.max)
    return [units.duration(value) for value in shown]


def _work(group: GroupReport) -> list[str]:
    """Cells of _WORK."""
    return [
        units.count(group.counters["ios"]),
        f"{group.ios_per_s:,.0f}",
        units.size(group.counters["bytes"]),
        units.size(group.bytes_per_s) + "/s",
        units.size(group.size.mean),
    ]


def _failed(group: GroupReport) -> str:
    return ", ".join(f"{name} {units.count(n)}" for name, n in group.errors.items()) or _NONE


def _with_failures(
    title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> RenderableType:
    """A table whose rows end with what failed: a column that is there when something did."""
    if any(row[-1] not in ("", _NONE) for row in rows):
        return table(title, [*columns, _FAILED], rows, width)
    return table(title, columns, rows, width)


def operations(report: Report, width: int) -> RenderableType:
    """Devices and operations with their latencies."""
    rows = [
        [
            device.device,
            str(one.bios.name["operation"]),
            *_work(one.bios),
            *times(one.bios.latency),
            _failed(one.bios),
        ]
        for device in report.devices
        for one in device.operations
        if one.bios.counters["ios"]
    ]
    columns = [Column("device", left=True), Column("operation", left=True), *_WORK, *_TIMES]
    title = "From queue to completion (Q2C)"
    return _with_failures(title, columns, without_repeats(rows, 1), width)


def _stages(device: DeviceReport, width: int) -> RenderableType:
    rows = [row for one in device.operations for row in _stage_rows(one)]
    columns = [
        Column("operation", left=True),
        Column("stage", left=True),
        Column("count", 1),
        Column("share"),
        *_TIMES,
    ]
    title = f"Where the time goes: {device.device}"
    return table(title, columns, without_repeats(rows, 1), width)


def _stage_rows(one: OperationReport) -> list[list[str]]:
    """Of bios; then what their requests took on the device."""
    name = str(one.bios.name["operation"])
    rows = stage_rows(one.bios, [name])
    for stage in one.requests.stages:
        if stage.stage == "D2C":
            count = units.count(stage.time.count)
            rows.append([name, "D2C of requests", count, "", *times(stage.time)])
    return rows


def stage_rows(group: GroupReport, name: list[str]) -> list[list[str]]:
    """Name, stage, count, share and times of each stage."""
    return [
        [*name, s.stage, units.count(s.time.count), f"{100 * s.share:.1f} %", *times(s.time)]
        for s in group.stages
    ]


def _queues(devices: Sequence[DeviceReport], width: int) -> RenderableType:
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
        *_TIMES,
        Column("flushes by bios that waited", 1, left=True),
    ]
    return table("Flush requests, and how many bios waited for each", columns, rows, width)


def _stacked(report: Report, width: int) -> RenderableType:
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
        *_TIMES,
    ]
    return table("Stacked devices", columns, without_repeats(rows, 3), width)


def name_cells(group: GroupReport, fields: Sequence[str]) -> list[str]:
    """The group's name, a cell for each field."""
    if "others" in group.name:
        return ["(others)", *([""] * (len(fields) - 1))]
    cells = []
    for field in fields:
        value = group.name.get(field)
        if field == "file":
            cells.append(file_cell(group))
            continue
        if field == "cgroup" and value is None:
            value = group.name.get("cgroup_id") or None
        cells.append("(unknown)" if value is None else str(value))
    return cells


def file_cell(group: GroupReport) -> str:
    """A path's end, or why there is none."""
    path, kind = group.name["file"], group.name["file_kind"]
    if path is None:
        device = f"({group.name.get('device')}: metadata, or the device itself)"
        return {"device": device, "no data": "(no data)"}.get(str(kind), NOT_KNOWN)
    text = str(path)
    return text if len(text) <= PATH_WIDTH else f"…{text[1 - PATH_WIDTH :]}"


_FIELDS = {
    "process": ("process", "pid"),
    "device": ("device",),
    "op": ("operation",),
    "cgroup": ("cgroup",),
    "file": ("file",),
    "cpu": ("cpu",),
}


def processes(report: Report, width: int) -> RenderableType:
    """Processes with their latencies, most I/O first."""
    return _list("Processes", _FIELDS["process"], report.processes, width)


def _lists(report: Report, width: int) -> Iterator[RenderableType]:
    for title, word, groups in (
        ("Processes", "process", report.processes),
        ("Cgroups", "cgroup", report.cgroups),
        ("Files", "file", report.files),
        ("CPUs, by where I/O was queued", "cpu", report.cpus),
    ):
        if groups:
            yield _list(title, _FIELDS[word], groups, width)


def _list(
    title: str, fields: Sequence[str], groups: Sequence[GroupReport], width: int
) -> RenderableType:
    more = len(groups) - MOST_ROWS
    rows = [
        [*name_cells(g, fields), *_work(g), *times(g.latency), _failed(g)]
        for g in groups[:MOST_ROWS]
    ]
    columns = [*(Column(field, left=not place) for place, field in enumerate(fields))]
    title = f"{title} (and {units.count(more)} more: --json has all)" if more > 0 else title
    return _with_failures(title, [*columns, *_WORK, *_TIMES], rows, width)


def _chosen(report: Report, width: int) -> Iterator[RenderableType]:
    fields = _FIELDS[report.by or "device"]
    yield _list(f"By {report.by}", fields, report.groups, width)
    rows = [
        row
        for group in report.groups[:MOST_ROWS]
        for row in stage_rows(group, name_cells(group, fields))
    ]
    columns = [
        *(Column(field, left=True) for field in fields),
        Column("stage", left=True),
        Column("count", 1),
        Column("share"),
        *_TIMES,
    ]
    title = f"Where the time goes, by {report.by}"
    yield table(title, columns, without_repeats(rows, len(fields)), width)


def _intervals(report: Report, width: int) -> RenderableType:
    fields = _FIELDS[report.by] if report.by else ("device", "operation")
    rows = []
    for interval in report.intervals[:MOST_LINES]:
        at = units.duration(interval.begin_ns - report.begin_ns)
        if not interval.groups:
            rows.append([at, "-", *([""] * (len(fields) - 1 + len(_WORK) + len(_TIMES) + 1))])
        for group in sorted(interval.groups, key=lambda g: -g.counters["ios"]):
            rows.append(
                [
                    at,
                    *name_cells(group, fields),
                    *_work(group),
                    *times(group.latency),
                    _failed(group),
                ]
            )
    columns = [
        Column("from"),
        *(Column(field, left=True) for field in fields),
        *_WORK,
        *_TIMES,
    ]
    title = f"Over time, {units.duration(report.interval_ns)} each"
    if len(rows) > MOST_LINES or len(report.intervals) > MOST_LINES:
        title += f" (the first {units.count(MOST_LINES)} lines: --json and --csv have all)"
    return _with_failures(title, columns, without_repeats(rows[:MOST_LINES], 1), width)
