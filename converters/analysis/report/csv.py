# SPDX-License-Identifier: Apache-2.0
"""A report as CSV: a line per stage of each group. docs/report.md lists the columns."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TextIO

from biotrail.converters.analysis.figures import StageTimes, Summary, summary
from biotrail.converters.analysis.report.path import SETUP
from biotrail.converters.analysis.report.tree import FORMAT, GroupReport, Report
from biotrail.converters.lifecycles.operations import CLEARED
from biotrail.recorder.schema import cgroup_paths
from biotrail.recorder.schema.strings import guarded

NAMES = (
    *("device", "dev", "operation", "process", "pid", "cgroup", "cgroup_id", "cpu"),
    *("file", "file_kind", "file_dev", "inode"),
)
SCOPE = ("filters", "cut", "chosen")
"""Columns that say which I/O was recorded and which part of the log was read; the same in every
line."""
DOUBTFUL = ("doubtful", "mean_with_doubtful_ns", "p99_with_doubtful_ns")
"""Columns of latencies in doubt, which are in no other figure of a time: how many, and mean and p99
of the latency with them in; added later."""
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
    # Added in later versions, behind the others so that those keep their places:
    *("dir", "inodes", "call", "pair", "by", "key", "writer", "thread", "tid", "file_was"),
    *SCOPE,
    *DOUBTFUL,
    *(*cgroup_paths.FIELDS, "cgroup_kind"),
    *CLEARED.values(),
    "recorder_ns",
    "by_workers",
    *("title", "label", "container_file"),
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
Line = dict[str, Any]
"""Column → value; absent columns are empty."""
Labelled = tuple[str, Report, Mapping[str, str]]
"""(label of the recording, its report, its values of the SCOPE columns). label: "" if there is
only one recording."""


def write_all(
    reports: Sequence[Labelled],
    out: TextIO,
    cell: Callable[[str], str] = guarded,
    more: Iterable[Line] = (),
) -> None:
    """Write the header line, then the lines of each report, to `out` as CSV.

    Labels are in a column `recording`, if the first report has one. cell: maps each text to what is
    written for it. more: further lines of the first report, behind its own.
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
    """Yield the report's lines as column → value: for each group its whole latency, then stages."""
    whole = {"begin_ns": report.begin_ns, "end_ns": report.end_ns}
    for section, both in (
        ("total", report.total),
        *(("devices", sums) for of in report.devices for sums in (of.total, *of.operations)),
    ):
        for line in (*_lines(both.bios, "bios"), *_lines(both.requests, "requests")):
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
            time = group.latency.sum
            for one in group.operations:
                yield {
                    **whole,
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
    for line in chain(_path_lines(report), _pair_lines(report)):
        yield {**whole, **line}
    every = [(one, {"begin_ns": one.begin_ns, "end_ns": one.end_ns}) for one in report.intervals]
    for interval, times in every:
        for group in interval.groups:
            for line in _lines(group, "bios"):
                yield {"section": "intervals", **times, **line}
    for interval, times in every:
        for pair in interval.pairs:
            count, ns = pair.time.count, pair.time.sum
            line = _pairs(pair.name, ns, interval.end_ns - interval.begin_ns, count, ns)
            yield {"section": "pair intervals", **line, **summary(pair.time), **times}


def _path_lines(report: Report) -> Iterator[Line]:
    """Yield the lines of what only logs with the path have."""
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
        yield from _parts(work, call.parts, call.time)
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
        yield from _parts(work, journal.phases, journal.time)
    for one in report.submissions:
        work = {
            "section": "submissions",
            "call": one.operation,
            "of": "submissions",
            "ios": one.count,
            "bytes": one.bytes,
            "failed": one.failed,
        }
        yield from _parts(work, one.steps, one.time)
    for device in report.devices:
        where = {"device": device.device, "dev": device.dev}
        for way in device.completions:
            work = {"section": "completions", **where, "of": way.way, "ios": way.requests}
            yield from _parts(work, way.steps)
        for driver in device.drivers:
            work = {"section": "drivers", **where, "of": driver.driver, "ios": driver.requests}
            work["failed"] = driver.errors
            if driver.setup is not None:
                yield {**work, "stage": SETUP, **summary(driver.setup)}
            yield from _parts(work, driver.steps)


def _parts(work: Line, parts: Sequence[StageTimes], whole: Summary | None = None) -> Iterator[Line]:
    if whole is not None:
        yield {**work, "stage": "all", "share": 1, **summary(whole)}
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
        of = pair.name, pair.time.sum, report.span_ns
        line = _pairs(*of, pair.time.count, pair.time.sum)
        yield {"section": "pairs", **line, **summary(pair.time)}
        for group in pair.groups:
            line = _pairs(*of, group.time.count, group.time.sum)
            yield {"section": "pair groups", **line, "by": group.text, **summary(group.time)}
        for key in pair.slowest_keys:
            yield {
                "section": "pair keys",
                "key": key.text,
                **_pairs(*of, key.count, key.sum_ns),
                "count": key.count,
                "sum_ns": key.sum_ns,
                "mean_ns": round(key.sum_ns / max(key.count, 1), 3),
                "max_ns": key.max_ns,
            }


def _pairs(name: str, whole_ns: int, span_ns: int, count: int, ns: int) -> Line:
    """Return a line on pairs. whole_ns: of all pairs of that declaration."""
    return {
        "pair": name,
        "of": "pairs",
        "stage": "all",
        "share": round(ns / max(whole_ns, 1), 6),
        "ios": count,
        "ios_per_s": round(count * 1e9 / max(span_ns, 1), 3),
    }
