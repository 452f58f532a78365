# SPDX-License-Identifier: Apache-2.0
"""Tables of a report on the path: held bios, calls, waits, submissions, completions, drivers."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from biotrail.converters.analysis.report.path import SETUP
from biotrail.converters.analysis.report.tree import CallReport, DeviceReport, Report
from biotrail.converters.calls.names import WAIT_ONLY
from biotrail.text import units
from biotrail.text.columns import Column, columns_of, table, with_more, without_repeats
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
_WHOLE = "submit to complete"


def of_calls(report: Report, width: int, most: int) -> Iterator[RenderableType]:
    if report.calls:
        yield calls(report, width, most)
    if report.call_groups:
        fields = FIELDS[report.by or "process"]
        yield _table(f"{TITLE}, by {report.by}", report.call_groups, fields, width, most)
    if report.waits:
        yield waits(report, width, most)
    if report.commits:
        yield commits(report, width)
    if report.submissions:
        yield submissions(report, width)


def calls(report: Report, width: int, limit: int) -> RenderableType:
    title = f"{TITLE}, from entry to return: running, waiting to run, blocked for I/O or otherwise"
    if report.calls_until_ns is not None:
        timed = units.duration(max(report.calls_until_ns - report.begin_ns, 0))
        title = f"{TITLE}, from entry to return, timed in the first {timed} only (--call-budget)"
    if any(one.call.endswith(WAIT_ONLY) for one in report.calls):
        title += f"; {WAIT_ONLY.strip()}: not timed, a wait alone"
    return _table(title, report.calls, (), width, limit)


def _table(
    title: str, reports: Sequence[CallReport], fields: Sequence[str], width: int, limit: int
) -> RenderableType:
    shown, more = first(reports, limit)
    shares = [{part.stage: part.share for part in one.parts} for one in reports]
    used = [part for part in PARTS if any(one.get(part) for one in shares)]
    columns = [
        *(Column(field, left=not place) for place, field in enumerate(fields)),
        *columns_of(
            "call < | count | failed @4 | data @3 | bios @4 | total @1 | mean | p50 @3 | "
            "p99 @2 | max @2"
        ),
        *(Column(PARTS[part]) for part in used),
    ]
    rows = [
        [
            *(name_cells(one, fields) if fields else []),
            one.call if one.io else f"{one.call} (no I/O)",
            units.count(one.count),
            ", ".join(f"{name} {units.count(n)}" for name, n in one.errors.items()) or _NONE,
            units.size(one.bytes) if one.bytes else _NONE,
            units.count(one.bios) if one.bios else _NONE,
            *(
                units.duration(ns) if one.time.count else _NONE
                for ns in (one.time.sum, one.time.mean, one.time.p50, one.time.p99, one.time.max)
            ),
            *(_percent(share.get(part, 0.0)) for part in used),
        ]
        for one, share in zip(shown, shares, strict=False)
    ]
    return with_more(table(title, columns, without_repeats(rows, len(fields)), width), more)


def _percent(share: float) -> str:
    return units.percent(share) if share else _NONE


def completions(device: DeviceReport, width: int) -> RenderableType:
    rows = [
        [way.way, step.stage, units.count(step.time.count), _percent(step.share), *times(step.time)]
        for way in device.completions
        for step in way.steps
    ]
    columns = [*columns_of("completed in < | step < | count @1 | share"), *TIMES]
    title = f"From issue to completion: {device.device}"
    return table(title, columns, without_repeats(rows, 1), width)


def drivers(device: DeviceReport, width: int) -> RenderableType:
    """Return the table of the steps of a device's driver; NVMe's setup comes first."""
    rows = []
    for one in device.drivers:
        if one.setup is not None:
            rows.append([one.driver, SETUP, units.count(one.setup.count), _NONE, *times(one.setup)])
        for step in one.steps:
            cells = [one.driver, step.stage, units.count(step.time.count), _percent(step.share)]
            rows.append([*cells, *times(step.time)])
    columns = [*columns_of("driver < | step < | count @1 | share"), *TIMES]
    title = f"Steps of the driver: {device.device}"
    failed = sum(one.errors for one in device.drivers)
    late = sum(one.timeouts for one in device.drivers)
    if failed or late:
        title += f" ({units.plural(failed, 'failed dispatch', 'failed dispatches')}"
        title += f", {units.plural(late, 'time-out')})"
    return table(title, columns, without_repeats(rows, 1), width)


def waits(report: Report, width: int, limit: int) -> RenderableType:
    shown, more = first(report.waits, limit)
    faults = any(one.no_file_ns for one in report.waits)
    rows = [
        [
            one.call,
            one.reason,
            units.count(one.time.count),
            units.duration(one.time.sum),
            _percent(one.share),
            *([_percent((one.no_file_ns or 0) / max(one.time.sum, 1))] if faults else []),
            *times(one.time),
        ]
        for one in shown
    ]
    columns = [
        *columns_of("call < | waited for < | count | total | of calls"),
        *([Column("no file", 1)] if faults else []),
        *TIMES,
    ]
    title = "What calls waited for"
    if report.waits_dropped:
        title += f"; without {units.count(report.waits_dropped)} waits of calls that went on"
    return with_more(table(title, columns, rows, width), more)


def commits(report: Report, width: int) -> RenderableType:
    rows = []
    for one in report.commits:
        name, waited = one.device, units.count(one.waits)
        rows.append([name, "all", units.count(one.commits), waited, _NONE, *times(one.time)])
        for part in one.phases:
            count, share = units.count(part.time.count), _percent(part.share)
            rows.append([name, part.stage, count, "", share, *times(part.time)])
    columns = [*columns_of("journal of < | phase < | count | waits @1 | share"), *TIMES]
    return table("Commits of journals (jbd2)", columns, without_repeats(rows, 1), width)


def held(report: Report, width: int, limit: int) -> RenderableType:
    shown, more = first(report.held, limit)
    rows = [
        [
            one.cgroup or "(not known)",
            one.device,
            one.operation,
            limit_text(one.bps, one.iops),
            units.count(one.bios),
            f"{one.process} ({one.pid})" if one.process else _NONE,
            units.count(one.time.count),
            units.duration(one.time.sum) if one.time.count else _NONE,
            *times(one.time),
        ]
        for one in shown
    ]
    columns = [
        *columns_of(
            "limit of < | device < | operation < | limit | bios | most of < @2 | known | total"
        ),
        *TIMES,
    ]
    title = "Held by a cgroup's limit before Q (blk-throttle)"
    if several := sum(one.several for one in report.held):
        title += f"; of {units.count(several)}, cgroups above have limits, too"
    return with_more(table(title, columns, rows, width), more)


def limit_text(bps: int | None, iops: int | None) -> str:
    found = [f"{units.size(bps)}/s"] if bps is not None else []
    found += [f"{units.count(iops)}/s"] if iops is not None else []
    return ", ".join(found) or _NONE


def submissions(report: Report, width: int) -> RenderableType:
    rows = []
    for one in report.submissions:
        modes = ", ".join(f"{name} {units.count(count)}" for name, count in one.modes.items())
        errors = ", ".join(f"{name} {units.count(n)}" for name, n in one.errors.items()) or _NONE
        head = [one.operation, modes, errors, units.size(one.bytes) if one.bytes else _NONE]
        steps = [(_WHOLE, one.time), *((step.stage, step.time) for step in one.steps)]
        known = [(step, time) for step, time in steps if time.count]
        rows += [[*head, step, units.count(time.count), *times(time)] for step, time in known]
        rows += [] if known else [[*head, _WHOLE, _NONE, *[_NONE] * len(TIMES)]]
    columns = [
        *columns_of("operation < | mode < @2 | failed @4 | data @3 | step < | count @1"),
        *TIMES,
    ]
    title = "io_uring and aio, from submission to completion, of I/O that reached a device"
    if report.submissions_unknown:
        missed = units.plural(report.submissions_unknown, "bio")
        title += f" ({missed} of their calls without a known request)"
    return table(title, columns, without_repeats(rows, 4), width)
