# SPDX-License-Identifier: Apache-2.0
"""A report as CSV: a line per stage of each group. docs/report.md lists the columns."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TextIO

from biotrail.converters.analysis.figures import StageTimes, Summary, summary
from biotrail.converters.analysis.report.path import SETUP
from biotrail.converters.analysis.report.tree import (
    FORMAT,
    DeviceReport,
    GroupReport,
    PairReport,
    Report,
)
from biotrail.converters.lifecycles.operations import CLEARED
from biotrail.recorder.schema import cgroup_names
from biotrail.recorder.schema.strings import guarded

NAMES = (
    *("device", "dev", "operation", "process", "pid", "cgroup", "cgroup_id", "cpu"),
    *("file", "file_kind", "file_dev", "inode"),
)
SCOPE = ("filters", "cut", "chosen")
"""Columns that say which I/O was recorded and which part of the log was read; the same in every
line."""
LATER = ("dir", "inodes", "call", "pair", "by", "key", "writer", "thread", "tid", "file_was")
"""Name columns added in later versions, behind the others so that those keep their places."""
DOUBTFUL = ("doubtful", "mean_with_doubtful_ns", "p99_with_doubtful_ns")
"""Columns of latencies in doubt, which are in no other figure of a time: how many, and mean and p99
of the latency with them in; added later."""
CGROUPS = (*cgroup_names.FIELDS, "cgroup_kind")
"""Columns that say what a cgroup is; added later."""
TITLE = ("title",)
"""Column of what a process calls itself; added later still."""
LABEL = ("label", "container_file")
"""Columns of what people call a file, and where containers see it; likewise."""
TIMES = tuple(summary(Summary(0, 0, 0.0, 0, 0, 0, 0, 0, 0)))
COLUMNS = (
    "format",
    "section",
    "begin_ns",
    "end_ns",
    *NAMES,
    "of",
    "stage",
    "share",
    *TIMES,
    "ios",
    "bytes",
    "ios_per_s",
    "bytes_per_s",
    "failed",
    "unfinished",
    "tries",
    "tried_bytes",
    *LATER,
    *SCOPE,
    *DOUBTFUL,
    *CGROUPS,
    *CLEARED.values(),
    "recorder_ns",
    "by_workers",
    *TITLE,
    *LABEL,
)
_COUNTED = (
    "failed",
    "unfinished",
    "tries",
    "tried_bytes",
    "doubtful",
    *CLEARED.values(),
    "by_workers",
)
"""Counters that are columns of their own."""
Line = dict[str, Any]
"""Column → value; absent columns are empty."""
Labelled = tuple[str, Report, Mapping[str, str]]
"""(label of the recording, its report, its values of the SCOPE columns). label: "" if there is
only one recording."""


def write(report: Report, out: TextIO, scope: Mapping[str, str] | None = None) -> None:
    write_all([("", report, scope or {})], out)


def write_all(
    reports: Sequence[Labelled],
    out: TextIO,
    cell: Callable[[str], str] = guarded,
    more: Iterable[Line] = (),
) -> None:
    """Write the header line, then the lines of each report, to `out` as CSV.

    If the first report has a label, there is a column `recording` with the labels, after `format`.
    cell: maps each text to what is written for it; `guarded` puts an apostrophe before what a
    spreadsheet would take for a formula. more: further lines of the first report, behind its own.
    """
    columns = ("format", *(["recording"] if reports[0][0] else []), *COLUMNS[1:])
    rows = csv.DictWriter(_Rows(out), columns, restval="", extrasaction="ignore")
    rows.writeheader()
    for label, report, scope in reports:
        for line in chain(lines(report), more):
            found = {"recording": label, **line, **scope}
            cells = {name: cell(v) if isinstance(v, str) else v for name, v in found.items()}
            rows.writerow({"format": FORMAT, **cells})
        more = ()


class _Rows:
    """Output of csv's writer, which ends rows with CR LF, so that it quotes a CR in a name."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, row: str) -> None:
        self._out.write(row.removesuffix("\r\n") + "\n")


def lines(report: Report) -> Iterator[Line]:
    """Yield the report's lines as column → value: total, devices, groups, path, pairs, intervals.

    Each group of I/Os gives a line for its whole latency and one for each stage. The total, a
    device and its operations have lines of bios, then of requests; all others have lines of bios
    only. `begin_ns` and `end_ns` are the interval's, or else the log's.
    """
    whole = {"begin_ns": report.begin_ns, "end_ns": report.end_ns}
    for section, one in (
        ("total", report.total),
        *(("devices", sums) for of in report.devices for sums in (of.total, *of.operations)),
    ):
        for line in (*_lines(one.bios, "bios"), *_lines(one.requests, "requests")):
            yield {"section": section, **whole, **line}
    for section, groups in (
        ("processes", report.processes),
        ("cgroups", report.cgroups),
        ("cpus", report.cpus),
        ("files", report.files),
        ("groups", report.groups),
    ):
        for group in groups:
            for line in _lines(group, "bios"):
                yield {"section": section, **whole, **line}
            yield from ({**whole, **line} for line in _operation_lines(section, group))
    others = (_held_lines(report), _call_lines(report), _submission_lines(report))
    completions = (_completion_lines(device) for device in report.devices)
    for line in chain(*others, *completions, _pair_lines(report)):
        yield {**whole, **line}
    every = [(one, {"begin_ns": one.begin_ns, "end_ns": one.end_ns}) for one in report.intervals]
    for interval, times in every:
        for group in interval.groups:
            for line in _lines(group, "bios"):
                yield {"section": "intervals", **times, **line}
    for interval, times in every:
        for pair in interval.pairs:
            line = _line(pair.name, pair.time, pair.time, interval.end_ns - interval.begin_ns)
            yield {"section": "pair intervals", **line, **times}


def _operation_lines(section: str, group: GroupReport) -> Iterator[Line]:
    for one in group.operations:
        time = group.latency.sum
        yield {
            "section": f"{section} by operation",
            **group.name,
            "operation": one.operation,
            "of": "bios",
            "stage": "Q2C",
            "share": round(one.latency.sum / time, 6) if time else 0,
            "ios": one.ios,
            "bytes": one.bytes,
            **summary(one.latency),
        }


def _held_lines(report: Report) -> Iterator[Line]:
    for held in report.held:
        yield {
            "section": "held",
            "device": held.device,
            "dev": held.dev,
            "operation": held.operation,
            "process": held.process,
            "pid": held.pid,
            "cgroup": held.cgroup,
            "of": "bios",
            "ios": held.bios,
            "stage": "held",
            **summary(held.time),
        }


def _call_lines(report: Report) -> Iterator[Line]:
    for section, call in (
        *(("calls", call) for call in report.calls),
        *(("call groups", call) for call in report.call_groups),
    ):
        work = {
            "section": section,
            **call.name,
            "call": call.call,
            "of": "calls" if call.io else "calls without I/O",
            "ios": call.count,
            "bytes": call.bytes,
            "failed": call.failed,
        }
        yield from _whole_and_parts(work, call.time, call.parts)
    for wait in report.waits:
        what = {"section": "waits", "call": wait.call, "of": wait.reason, "ios": wait.time.count}
        share = round(wait.share, 6)
        yield {**what, "stage": "all", "share": share, **summary(wait.time)}
    for journal in report.commits:
        work = {
            "section": "commits",
            "device": journal.device,
            "dev": journal.dev,
            "of": "commits",
            "ios": journal.commits,
        }
        yield from _whole_and_parts(work, journal.time, journal.phases)


def _submission_lines(report: Report) -> Iterator[Line]:
    for one in report.submissions:
        work = {
            "section": "submissions",
            "call": one.operation,
            "of": "submissions",
            "ios": one.count,
            "bytes": one.bytes,
            "failed": one.failed,
        }
        yield from _whole_and_parts(work, one.time, one.steps)


def _completion_lines(device: DeviceReport) -> Iterator[Line]:
    for way in device.completions:
        where = {"section": "completions", "device": device.device, "dev": device.dev}
        yield from _parts({**where, "of": way.way, "ios": way.requests}, way.steps)
    for one in device.drivers:
        where = {"section": "drivers", "device": device.device, "dev": device.dev}
        work = {**where, "of": one.driver, "ios": one.requests, "failed": one.errors}
        if one.setup is not None:
            yield {**work, "stage": SETUP, **summary(one.setup)}
        yield from _parts(work, one.steps)


def _whole_and_parts(work: Line, time: Summary, parts: Sequence[StageTimes]) -> Iterator[Line]:
    yield {**work, "stage": "all", "share": 1, **summary(time)}
    yield from _parts(work, parts)


def _parts(work: Line, parts: Sequence[StageTimes]) -> Iterator[Line]:
    for part in parts:
        line = {**work, "stage": part.stage, "share": round(part.share, 6)}
        own = {} if part.recorder_ns is None else {"recorder_ns": round(part.recorder_ns, 3)}
        yield {**line, **summary(part.time), **own}


def _lines(group: GroupReport, of: str) -> Iterator[Line]:
    work = {
        **group.name,
        "of": of,
        "ios": group.ios,
        "bytes": group.bytes,
        "ios_per_s": round(group.ios_per_s, 3),
        "bytes_per_s": round(group.bytes_per_s, 3),
        **{name: group.counters[name] for name in _COUNTED},
    }
    whole = "Q2C" if of == "bios" else "all"
    every = group.with_doubtful
    more = {} if every is None else dict(zip(DOUBTFUL[1:], (every.mean, every.p99), strict=True))
    yield {**work, "stage": whole, "share": 1, **summary(group.latency), **more}
    yield from _parts(work, group.stages)


def _pair_lines(report: Report) -> Iterator[Line]:
    for pair in report.pairs:
        yield {"section": "pairs", **_line(pair.name, pair.time, pair.time, report.span_ns)}
        for group in pair.groups:
            line = _line(pair.name, group.time, pair.time, report.span_ns)
            yield {"section": "pair groups", **line, "by": group.text}
        yield from _key_lines(pair, report.span_ns)


def _line(name: str, time: Summary, whole: Summary, span: int) -> Line:
    """whole: of all pairs of that declaration. span: ns, for the rate."""
    return {
        "pair": name,
        "of": "pairs",
        "stage": "all",
        "share": round(time.sum / max(whole.sum, 1), 6),
        **summary(time),
        "ios": time.count,
        "ios_per_s": _rate(time.count, span),
    }


def _key_lines(pair: PairReport, span: int) -> Iterator[Line]:
    for key in pair.slowest_keys:
        yield {
            "section": "pair keys",
            "pair": pair.name,
            "key": key.text,
            "of": "pairs",
            "stage": "all",
            "share": round(key.sum_ns / max(pair.time.sum, 1), 6),
            "count": key.count,
            "sum_ns": key.sum_ns,
            "mean_ns": round(key.sum_ns / max(key.count, 1), 3),
            "max_ns": key.max_ns,
            "ios": key.count,
            "ios_per_s": _rate(key.count, span),
        }


def _rate(count: int, span: int) -> float:
    return round(count * 1e9 / max(span, 1), 3)
