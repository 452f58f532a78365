# SPDX-License-Identifier: Apache-2.0
"""Tables of a report on the path beside the block layer: calls, ways of completion, drivers."""

from collections.abc import Sequence

from rich.console import RenderableType

from biotrail.converters.analysis.report.devices.drivers import SETUP
from biotrail.converters.analysis.report.tree.tree import CallReport, DeviceReport, Report
from biotrail.converters.calls.names import WAIT_ONLY
from biotrail.text import units
from biotrail.text.columns import Column, table, with_more, without_repeats
from biotrail.text.report.cells import FIELDS, TIMES, name_cells, times
from biotrail.text.rows import first

PARTS = {
    "running": "running",
    "runnable": "to run",
    "own_io": "own I/O",
    "other_io": "other I/O",
    "otherwise": "otherwise",
    "undivided": "not divided",
}
"""Part of a call's time → head of its column, a share of the calls' time."""
_NONE = "-"
TITLE = "Calls that queued I/O or waited"
"""Those served from the cache are in no table: count and bytes are not those of a program."""


def calls(report: Report, width: int, limit: int) -> RenderableType:
    """Return the table of system calls with the parts of their time. limit: rows, 0: all."""
    title = f"{TITLE}, from entry to return: running, waiting to run, blocked for I/O or otherwise"
    if report.calls_until_ns is not None:
        timed = units.duration(max(report.calls_until_ns - report.begin_ns, 0))
        title = f"{TITLE}, from entry to return, timed in the first {timed} only (--call-budget)"
    if any(one.call.endswith(WAIT_ONLY) for one in report.calls):
        title += f"; {WAIT_ONLY.strip()}: not timed, a wait alone"
    return _table(title, report.calls, (), width, limit)


def call_groups(report: Report, width: int, limit: int) -> RenderableType:
    """Return the table of system calls by group of --by. limit: rows, 0: all."""
    fields = FIELDS[report.by or "process"]
    return _table(f"{TITLE}, by {report.by}", report.call_groups, fields, width, limit)


def _table(
    title: str, reports: Sequence[CallReport], fields: Sequence[str], width: int, limit: int
) -> RenderableType:
    """Return a table of calls. fields: of their group's name, which are the first columns."""
    shown, more = first(reports, limit)
    used = [part for part in PARTS if any(_share(one, part) for one in reports)]
    columns = [
        *(Column(field, left=not place) for place, field in enumerate(fields)),
        Column("call", left=True),
        Column("count"),
        Column("failed", 4),
        Column("data", 3),
        Column("bios", 4),
        Column("total", 1),
        Column("mean"),
        Column("p50", 3),
        Column("p99", 2),
        Column("max", 2),
        *(Column(PARTS[part]) for part in used),
    ]
    rows = [
        [
            *(name_cells(one, fields) if fields else []),
            *_cells(one),
            *(_percent(_share(one, part)) for part in used),
        ]
        for one in shown
    ]
    return with_more(table(title, columns, without_repeats(rows, len(fields)), width), more)


def _cells(one: CallReport) -> list[str]:
    """Return the cells of a row of the table of calls, without the parts."""
    time = one.time
    lasted = (time.sum, time.mean, time.p50, time.p99, time.max)
    return [
        one.call if one.io else f"{one.call} (no I/O)",
        units.count(one.count),
        ", ".join(f"{name} {units.count(n)}" for name, n in one.errors.items()) or _NONE,
        units.size(one.bytes) if one.bytes else _NONE,
        units.count(one.bios) if one.bios else _NONE,
        *(units.duration(ns) if time.count else _NONE for ns in lasted),
    ]


def _share(one: CallReport, part: str) -> float:
    """Return the share of a part in the time of the calls, 0 to 1; 0.0 if it has none."""
    return next((found.share for found in one.parts if found.stage == part), 0.0)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share else _NONE


def completions(device: DeviceReport, width: int) -> RenderableType:
    """Return the table of the steps from the issue of a device's requests to their completion."""
    rows = [
        [way.way, step.stage, units.count(step.time.count), _percent(step.share), *times(step.time)]
        for way in device.completions
        for step in way.steps
    ]
    columns = [
        Column("completed in", left=True),
        Column("step", left=True),
        Column("count", 1),
        Column("share"),
        *TIMES,
    ]
    title = f"From issue to completion: {device.device}"
    return table(title, columns, without_repeats(rows, 1), width)


def drivers(device: DeviceReport, width: int) -> RenderableType:
    """Return the table of the steps of a device's driver; NVMe's setup, before them, comes first.

    The title has the failed dispatches and the time-outs, where there are any.
    """
    rows = []
    for one in device.drivers:
        if one.setup is not None:
            rows.append([one.driver, SETUP, units.count(one.setup.count), _NONE, *times(one.setup)])
        for step in one.steps:
            cells = [one.driver, step.stage, units.count(step.time.count), _percent(step.share)]
            rows.append([*cells, *times(step.time)])
    columns = [
        Column("driver", left=True),
        Column("step", left=True),
        Column("count", 1),
        Column("share"),
        *TIMES,
    ]
    title = f"Steps of the driver: {device.device}"
    failed = sum(one.errors for one in device.drivers)
    late = sum(one.timeouts for one in device.drivers)
    if failed or late:
        title += f" ({units.plural(failed, 'failed dispatch', 'failed dispatches')}"
        title += f", {units.plural(late, 'time-out')})"
    return table(title, columns, without_repeats(rows, 1), width)
