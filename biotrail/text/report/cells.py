# SPDX-License-Identifier: Apache-2.0
"""Cells, columns, group names and the order of groups that the tables of a report share."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.table import Table

from biotrail.converters.analysis.figures import Summary
from biotrail.converters.analysis.report.tree import CallReport, GroupReport, Report
from biotrail.converters.events.context import called
from biotrail.converters.lifecycles.operations import CLEARED
from biotrail.text import tallies, units
from biotrail.text.columns import Column, columns_of, table
from biotrail.text.rows import Order, first

# Sort and shorten a report's lists of groups.

LISTS = ("processes", "cgroups", "cpus", "files", "groups")
"""Fields of a Report that hold groups."""


def weight(group: GroupReport, order: Order) -> float:
    return {
        Order.COUNT: group.ios,
        Order.BYTES: group.bytes,
        Order.MEAN: group.latency.mean,
        Order.P99: group.latency.p99,
        Order.TOTAL: group.latency.sum,
    }[order]


def in_order(groups: Sequence[GroupReport], order: Order | None) -> list[GroupReport]:
    """Return the groups sorted, the largest first, and the rest of a list last; None: as given."""
    if order is None:
        return list(groups)
    return sorted(groups, key=lambda group: ("others" in group.name, -weight(group, order)))


def arranged(report: Report, order: Order | None) -> Report:
    if order is None:
        return report
    devices = [
        replace(one, operations=sorted(one.operations, key=lambda each: -weight(each.bios, order)))
        for one in sorted(report.devices, key=lambda one: -weight(one.total.bios, order))
    ]
    lists: dict[str, Any] = {name: in_order(getattr(report, name), order) for name in LISTS}
    intervals = [replace(one, groups=in_order(one.groups, order)) for one in report.intervals]
    return replace(report, devices=devices, intervals=intervals, **lists)


def shortened(report: Report, limit: int | None) -> tuple[Report, dict[str, int]]:
    if not limit:
        return report, {}
    shown: dict[str, Any] = {}
    more: dict[str, int] = {}
    for name in LISTS:
        shown[name], rest = first(getattr(report, name), limit)
        if rest:
            more[name] = rest
    return replace(report, **shown), more


NOT_KNOWN = "(file not known: direct I/O, buffers)"
_WITHOUT_FILE = {
    "no data": "(no data)",
    "no name": "(files without a name)",
    "other": "(pipes, sockets and the like)",
    "swap": "(swap)",
    "journal": "(journal)",
    "metadata": "(metadata)",
    "no I/O": "(no file: queued no I/O)",
}
"""file_kind → what stands for a path."""
PATH_WIDTH = 48
"""Most characters of a path; --json has the whole path."""
TIMES = columns_of("mean @1 | p50 | p90 @3 | p99 | p99.9 @2 | max")
WORK = columns_of("I/Os | I/O/s @2 | data @1 | data/s @2 | size @4")
GROUP_WORK = columns_of("I/Os | I/O/s @3 | read @1 | written @1 | data/s @4 | size @5")
"""The same of a group of a list, with reads beside writes."""
TOTAL = columns_of("total | share")
"""Sum of a group's times, and its share of all groups'."""
NONE = "-"
IN_DOUBT = "in doubt (with: mean, p99)"
"""Head of the column of latencies in doubt, which are in no other figure: how many, and mean and
p99 with them in."""
RANGES = {name: name.removesuffix("_bytes") for name in CLEARED.values()}
"""Counter of bytes that were acted on without moving data → head of its column."""
TAIL = (
    *map(Column, RANGES.values()),
    *(*columns_of("failed | by workers @2 | tries @2"), Column(IN_DOUBT)),
)
"""Columns that are shown if any row has something in them."""
RECORDER_SHARE = 0.1
"""Share of a stage's time from which on that of the recorder's own programs is told."""
FIELDS = {
    "process": ("process", "pid"),
    "thread": ("thread", "tid", "process", "pid"),
    "device": ("device",),
    "op": ("operation",),
    "cgroup": ("cgroup",),
    "unit": ("unit", "slice"),
    "container": ("container", "runtime", "pod"),
    "pod": ("pod", "namespace"),
    "namespace": ("namespace",),
    "file": ("file",),
    "inode": ("file", "inode"),
    "dir": ("dir", "inodes"),
    "cpu": ("cpu",),
    "call": ("call",),
    "writer": ("process", "pid", "cgroup"),
    "purpose": ("purpose",),
}
"""Fields of a group's name, by the word of --by."""
OF_CGROUP = ("unit", "slice", "container", "runtime", "pod", "namespace", "is")
"""Fields that say what a cgroup is; `is`: all that people call it, in one cell."""
ID_WIDTH = 12
"""Characters of a container's id, as its runtime shows it; --json has the whole id."""
Name = Mapping[str, str | int | None]


def times(values: Summary) -> list[str]:
    if not values.count:
        return [NONE] * len(TIMES)
    shown = (values.mean, values.p50, values.p90, values.p99, values.p99_9, values.max)
    return [units.duration(value) for value in shown]


def work(group: GroupReport) -> list[str]:
    return [
        units.count(group.ios),
        f"{group.ios_per_s:,.0f}",
        units.size(group.bytes),
        units.size(group.bytes_per_s) + "/s",
        mean_size(group.size if group.size.count else group.ranges),
    ]


def ranges_text(counters: dict[str, int]) -> str:
    """Return what was acted on without moving data, to follow other words; empty: nothing."""
    found = ((counters[name], word) for name, word in RANGES.items())
    return "".join(f", {units.size(size)} {word}" for size, word in found if size)


def group_cells(group: GroupReport) -> list[str]:
    count, rate, data, speed, size = work(group)
    read = sum(one.bytes for one in group.operations if one.operation == "read")
    moved = [data, NONE]
    if group.operations:
        moved = [units.size(n) if n else NONE for n in (read, group.bytes - read)]
    return [count, rate, *moved, speed, size, *total(group), *times(group.latency), *tail(group)]


def total(group: GroupReport) -> list[str]:
    if not group.latency.count:
        return [NONE] * len(TOTAL)
    return [units.duration(group.latency.sum), units.percent(group.time_share or 0)]


def operation_rows(group: GroupReport, fields: int) -> list[list[str]]:
    """Return a row for each operation of a group that has several; its share is of the group's."""
    if len(group.operations) < 2:
        return []
    rows = []
    for one in group.operations:
        size = units.size(one.bytes) if one.bytes else NONE
        place = {"read": 0}.get(one.operation, 1)
        moved = [NONE, NONE]
        if one.operation not in CLEARED:
            moved[place] = size
        share = one.latency.sum / group.latency.sum if group.latency.sum else 0.0
        ranges = [size if CLEARED.get(one.operation) == name else NONE for name in RANGES]
        rows.append(
            [
                *[f"  {one.operation}", *([""] * (fields - 1))],
                *[units.count(one.ios), "", *moved, ""],
                units.size(one.bytes / one.ios) if one.bytes else NONE,
                *[units.duration(one.latency.sum), f"({units.percent(share)})"],
                *times(one.latency),
                *ranges,
                *([NONE] * (len(TAIL) - len(ranges))),
            ]
        )
    return rows


def mean_size(values: Summary) -> str:
    return units.size(values.mean) if values.count else NONE


def tail(group: GroupReport) -> list[str]:
    failed = ", ".join(f"{name} {units.count(n)}" for name, n in group.errors.items())
    tries = group.counters["tries"]
    ranges = [units.size(n) if (n := group.counters[name]) else NONE for name in RANGES]
    queued = group.counters["by_workers"]
    counts = [units.count(n) if n else NONE for n in (queued, tries)]
    doubtful = NONE
    if (every := group.with_doubtful) is not None:
        doubtful = units.count(group.counters["doubtful"])
        doubtful += f" ({units.duration(every.mean)}, {units.duration(every.p99)})"
    return [*ranges, failed or NONE, *counts, doubtful]


def with_tail(
    title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> Table:
    """Return a table whose rows end with the cells of TAIL, less those columns that are empty."""
    kept = [
        place
        for place in range(len(TAIL))
        if any(row[place - len(TAIL)] not in ("", NONE) for row in rows)
    ]
    shown = [[*row[: -len(TAIL)], *(row[place - len(TAIL)] for place in kept)] for row in rows]
    return table(title, [*columns, *(TAIL[place] for place in kept)], shown, width)


def stage_rows(group: GroupReport, name: list[str]) -> list[list[str]]:
    return [
        [*name, s.stage, units.count(s.time.count), units.percent(s.share), *times(s.time)]
        for s in group.stages
    ]


def recorder_lines(groups: Sequence[GroupReport]) -> list[str]:
    """Return a line on what the recorder's own programs had of stages, unless it is little."""
    each: dict[str, float] = {}
    shares: dict[str, list[str]] = {}
    for group in groups:
        for one in group.stages:
            if one.recorder_ns is not None and one.recorder_share >= RECORDER_SHARE:
                each[one.stage] = one.recorder_ns
                if operation := group.name.get("operation"):
                    share = f"{operation} {units.percent(one.recorder_share, 0)}"
                    shares.setdefault(one.stage, []).append(share)
    if not each:
        return []
    told = [
        f"{name} {units.duration(ns)}" + (f" ({', '.join(shares[name])})" if shares else "")
        for name, ns in each.items()
    ]
    return [f"the recorder's own programs took about, of each: {'; '.join(told)}"]


def doubtful_lines(ones: Sequence[tuple[GroupReport, str]]) -> list[str]:
    return [
        tallies.doubtful_line(
            one.counters["doubtful"], one.counters["ended"], about, (every.mean, every.p99)
        )
        for one, about in ones
        if (every := one.with_doubtful) is not None
    ]


def name_cells(group: GroupReport | CallReport, fields: Sequence[str]) -> list[str]:
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
        elif field == "cgroup" and "is" in fields and cgroup_words(group.name):
            value = _end(str(value))
        if field in OF_CGROUP:
            value = cgroup_cell(group.name, field)
        if field == "process" and value is None and "writer" in group.name:
            value = f"({group.name['writer']})"
        elif field == "process" and "cgroup" not in fields:
            value = process_words(group.name)
            if value is not None and len(value) > PATH_WIDTH and group.name.get("title"):
                value = f"{value[: PATH_WIDTH - 1]}…"
        if field == "pid" and value is None and {"writer", "cgroup_id"} & set(group.name):
            value = NONE
        none = "(kernel thread)" if field == "call" else "(unknown)"
        cells.append(none if value is None else str(value))
    return cells


def process_words(name: Name) -> str | None:
    """Return what people call a process, and for which cgroup workers queued; None: not known."""
    if "cgroup_id" not in name:
        process, title = name.get("process"), name.get("title")
        return None if process is None else called(str(process), str(title or ""))
    return f"{name['process']} for {name['cgroup'] or 'cgroup ' + str(name['cgroup_id'])}"


def cgroup_cell(name: Name, field: str) -> str | None:
    """Return the cell of a field of OF_CGROUP: a name; without one an id, or why there is none."""
    if field == "is":
        return cgroup_words(name)
    kind, value = name.get("cgroup_kind"), name.get(field)
    if field == "container":
        value = container_words(name)
    elif field == "pod" and value is None:
        value = name.get("pod_uid")
    if value:
        return str(value)
    if field != next(iter(name)):
        return ""
    return None if kind == "not known" else "(none)"


def container_words(name: Name) -> str:
    container = str(name.get("container") or str(name.get("container_id") or "")[:ID_WIDTH])
    return f"{container} (its monitor)" if name.get("cgroup_kind") == "monitor" else container


def cgroup_words(name: Name) -> str:
    """Return what a cgroup is, in few words: `docker web`, `shop/web-0 nginx`, `db.service`."""
    container = container_words(name)
    pod = name.get("pod") or name.get("pod_uid")
    if pod is not None:
        namespace = name.get("namespace")
        of_pod = f"{namespace}/{pod}" if namespace else f"pod {pod}"
        return f"{of_pod} {container}".strip()
    if container:
        return f"{name.get('runtime') or 'container'} {container}"
    return str(name.get("unit") or "")


def file_cell(group: GroupReport | CallReport, field: str = "file") -> str:
    """Return a path's end and how many inodes had the path; without a path, why there is none."""
    path, kind = group.name[field], group.name["file_kind"]
    if path is None:
        device = f"({group.name.get('device')}: metadata, or the device itself)"
        return device if kind == "device" else _WITHOUT_FILE.get(str(kind), NOT_KNOWN)
    text = _end(str(path))
    was = group.name.get("file_was")
    text += f" (was {_end(str(was))})" if was and field == "file" else ""
    inodes = int(group.name.get("inodes") or 0)
    several = f" ({units.plural(inodes, 'inode', 'inodes')})" if inodes > 1 else ""
    if field == "file" and (also := group.name.get("label") or group.name.get("container_file")):
        text = f"{_end(str(path), PATH_WIDTH // 2)} ({_end(str(also), PATH_WIDTH // 2)})"
    return text + (several if field == "file" else "")


def _end(path: str, most: int = PATH_WIDTH) -> str:
    return path if len(path) <= most else f"…{path[1 - most :]}"
