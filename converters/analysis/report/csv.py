# SPDX-License-Identifier: Apache-2.0
"""A report as CSV: a line for each stage of each group. docs/report.md lists the columns."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from biotrail.converters.analysis.report.json import summary
from biotrail.converters.analysis.report.tree import FORMAT, GroupReport, Report, Summary
from biotrail.recorder.schema.strings import guarded

NAMES = (
    *("device", "dev", "operation", "process", "pid", "cgroup", "cgroup_id", "cpu"),
    *("file", "file_kind", "file_dev", "inode"),
)
SCOPE = ("filters", "cut", "chosen")
"""Which I/O was recorded, and which of that was read: the same in every line."""
LATER = ("dir", "inodes")
"""Names that came later: at the lines' end, so that the columns before them keep their places."""
TIMES = tuple(summary(Summary(0, 0, 0.0, 0, 0, 0, 0, 0, 0), "ns"))
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
)

_COUNTED = ("failed", "unfinished", "tries", "tried_bytes")

Line = dict[str, Any]


Labelled = tuple[str, Report, Mapping[str, str]]
"""A report with the recording's label (empty: the only one), and its columns of SCOPE."""


def write(report: Report, out: TextIO, scope: Mapping[str, str] | None = None) -> None:
    """Write the head, then all lines. scope: what each line has in the columns of SCOPE."""
    write_all([("", report, scope or {})], out)


def write_all(
    reports: Sequence[Labelled], out: TextIO, cell: Callable[[str], str] = guarded
) -> None:
    """Write the head, then all lines of each report.

    Where labels are not empty, a column `recording` has them. cell: what stands for a text.
    """
    columns = ("format", *(["recording"] if reports[0][0] else []), *COLUMNS[1:])
    rows = csv.DictWriter(_Rows(out), columns, restval="", extrasaction="ignore")
    rows.writeheader()
    for label, report, scope in reports:
        for line in lines(report):
            found = {"recording": label, **line, **scope}
            cells = {name: cell(v) if isinstance(v, str) else v for name, v in found.items()}
            rows.writerow({"format": FORMAT, **cells})


class _Rows:
    """Takes rows that end in CR LF, so that csv quotes a CR in a name; they end in LF."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, row: str) -> None:
        self._out.write(row.removesuffix("\r\n") + "\n")


def lines(report: Report) -> Iterator[Line]:
    """All lines, by column; what is not known is empty."""
    whole = {"begin_ns": report.begin_ns, "end_ns": report.end_ns}
    for line in _both(report.total.bios, report.total.requests):
        yield {"section": "total", **whole, **line}
    for device in report.devices:
        for one in (device.total, *device.operations):
            for line in _both(one.bios, one.requests):
                yield {"section": "devices", **whole, **line}
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
    for interval in report.intervals:
        for group in interval.groups:
            for line in _lines(group, "bios"):
                times = {"begin_ns": interval.begin_ns, "end_ns": interval.end_ns}
                yield {"section": "intervals", **times, **line}


def _both(bios: GroupReport, requests: GroupReport) -> Iterator[Line]:
    yield from _lines(bios, "bios")
    yield from _lines(requests, "requests")


def _lines(group: GroupReport, of: str) -> Iterator[Line]:
    """The whole (Q2C; of requests: their life), then the stages."""
    work = {
        **group.name,
        "of": of,
        "ios": group.counters["ios"],
        "bytes": group.counters["bytes"],
        "ios_per_s": round(group.ios_per_s, 3),
        "bytes_per_s": round(group.bytes_per_s, 3),
        **{name: group.counters[name] for name in _COUNTED},
    }
    whole = "Q2C" if of == "bios" else "all"
    yield {**work, "stage": whole, "share": 1, **summary(group.latency, "ns")}
    for stage in group.stages:
        share = round(stage.share, 6)
        yield {**work, "stage": stage.stage, "share": share, **summary(stage.time, "ns")}
