# SPDX-License-Identifier: Apache-2.0
"""Show a fleet's report in tables for people."""

from collections import Counter
from collections.abc import Iterator

from rich.console import RenderableType

from biotrail.converters.analysis.blame.tree import Waited
from biotrail.converters.analysis.fleet.closing import LEAST_PEERS
from biotrail.converters.analysis.fleet.tree import Deviation, FleetReport
from biotrail.text import units
from biotrail.text.blame import matrix, share
from biotrail.text.columns import Column, block, columns_of, table, with_more, without_repeats
from biotrail.text.report.cells import (
    TIMES,
    TOTAL,
    WORK,
    doubtful_lines,
    ranges_text,
    stage_rows,
    tail,
    times,
    total,
    with_tail,
    work,
)
from biotrail.text.rows import first, left_out

MOST_ROWS = 15


def parts(report: FleetReport, width: int, limit: int | None) -> Iterator[RenderableType]:
    most = MOST_ROWS if limit is None else limit
    yield block(head(report))
    operations = report.total.operations
    rows = [
        [one.operation, *work(one.bios), *times(one.bios.latency), *tail(one.bios)]
        for one in operations
    ]
    columns = [Column("operation", left=True), *WORK, *TIMES]
    yield with_tail("From queue to completion (Q2C), of all hosts", columns, rows, width)
    rows = [row for one in operations for row in stage_rows(one.bios, [one.operation])]
    columns = [*columns_of("operation < | stage < | count @1 | share"), *TIMES]
    yield table("Where the time goes", columns, without_repeats(rows, 1), width)
    yield _groups(report, width, most)
    yield from _said(report, most)
    if report.blame is not None:
        yield from _blame(report, report.blame, width, most)
    yield from _outliers(report, width, most)
    if report.incomplete:
        incomplete, more = first(report.incomplete, most)
        rows = [
            [
                one.host,
                one.files[0],
                units.count(one.lost_records),
                "no end" if one.interrupted else "",
                one.problems[0] if one.problems else "",
            ]
            for one in incomplete
        ]
        columns = columns_of("host < | file < | lost | end < | damage <")
        made = table("Recordings that are not complete", columns, rows, width)
        yield with_more(made, more)
    if report.left_out:
        rows, more = first([[one.file, one.why] for one in report.left_out], most)
        columns = columns_of("file < | why <")
        yield with_more(table("Left out", columns, rows, width), more)


def head(report: FleetReport) -> list[str]:
    whole = report.total
    lost = sum(report.lost_records.values())
    found = [
        f"{units.plural(len(report.hosts), 'host')}, "
        f"{units.plural(len(report.recordings), 'recording')} of "
        f"{units.plural(report.files, 'file')}, {units.size(report.bytes)}, "
        f"{units.plural(report.events, 'event')}",
        f"from {report.begin or 'an unknown time'}; {units.duration(whole.span_ns)} of recording "
        "in all, which rates are per",
        f"{units.plural(whole.total.bios.ios, 'bio')}, "
        f"{units.size(whole.total.bios.bytes)}"
        f"{ranges_text(whole.total.bios.counters)}, "
        f"{units.plural(whole.total.requests.ios, 'request')}",
    ]
    every = (whole.total.bios, "of bios"), (whole.total.requests, "of requests")
    found += doubtful_lines(every)
    incomplete = len(report.incomplete)
    if incomplete or report.left_out:
        found.append(
            f"{units.plural(len(report.left_out), 'file')} left out; "
            f"{units.plural(incomplete, 'recording')} not complete; "
            f"{units.plural(lost, 'record')} lost: see below"
        )
    else:
        found.append("every file was read, and nothing is missing from them")
    return found


def _groups(report: FleetReport, width: int, limit: int) -> RenderableType:
    shown, more = first(report.groups, limit)
    rows = [
        [
            "(others)" if one.rest else one.name,
            units.count(one.hosts),
            *work(one.total.bios),
            *total(one.total.bios),
            *times(one.total.bios.latency),
            *tail(one.total.bios),
        ]
        for one in shown
    ]
    columns = [Column(report.by, left=True), Column("hosts", 1), *WORK, *TOTAL, *TIMES]
    return with_more(with_tail(f"By {report.by}", columns, rows, width), more)


def _said(report: FleetReport, limit: int) -> Iterator[RenderableType]:
    """Yield the first sentence of each host, and how many hosts each rule comes first of."""
    hosts = [(one.host, one.said[0]) for one in report.hosts if one.said]
    if not hosts:
        return
    rules = Counter(str(said["rule"]) for _, said in hosts).most_common()
    head = "first sentences of the hosts' reports (docs/report.md), by rule: "
    shown, more = first(hosts, limit)
    yield block(
        [
            head + ", ".join(f"{rule} {units.count(count)}" for rule, count in rules),
            *(f"* {host}: {said['sentence']}. Next: {said['next']}." for host, said in shown),
            *([left_out(more, "host")] if more else []),
        ]
    )


def _blame(
    report: FleetReport, victims: list[Waited], width: int, limit: int
) -> Iterator[RenderableType]:
    heads = columns_of("victim < | I/Os @2 | time | mean")
    shown, more = first(victims, limit)
    rows = [
        (
            [
                *(one.name, units.count(one.ios)),
                *map(units.duration, (one.wait_ns, one.mean_ns)),
            ],
            one.parts,
        )
        for one in shown
    ]
    title = f"Whose I/O made whose I/O wait, by {report.blame_by}, of all hosts"
    yield with_more(matrix(title, heads, rows, width), more, "victim")
    behind = [
        (part.wait_ns, host.host, one, part.culprit)
        for host in report.hosts
        for one in host.blame or []
        for part in one.parts
        if part.culprit is not None
    ]
    behind.sort(key=lambda one: (-one[0], one[1], one[2].name))
    top, more = first(behind, limit)
    if not top:
        return
    cells = [
        [
            *(host, one.name, culprit, units.duration(ns), share(ns, one.wait_ns)),
            units.duration(one.mean_ns),
        ]
        for ns, host, one, culprit in top
    ]
    columns = columns_of("host < | victim < | behind < | time | of its time | mean")
    made = table("Waiting behind others, by host", columns, cells, width)
    yield with_more(made, more)


def _outliers(report: FleetReport, width: int, limit: int) -> Iterator[RenderableType]:
    if not report.deviations:
        yield block(
            [
                "hosts are not compared: that needs "
                f"{LEAST_PEERS + 1} hosts with recordings that are long enough for intervals"
            ]
        )
        return
    outliers = report.outliers
    head = (
        f"{units.plural(len(report.deviations), 'figure')} of hosts compared with the median of "
        f"their peers; {len(outliers)} differ surely, and by more than equal hosts do"
    )
    unlike = [
        f"recorded differently: {name}: "
        + ", ".join(f"{value} in {units.count(count)}" for value, count in values.items())
        + " (recording more takes time in stages, and leaving out changes rates)"
        for name, values in report.unlike_options.items()
    ]
    yield block([head, *unlike])
    if outliers:
        shown, more = first(outliers, limit)
        columns = columns_of(
            "host < | operation < | of < | figure < | host's | peers' | change | "
            "interval @1 | spreads @2"
        )
        made = table("Hosts that differ", columns, [_row(one) for one in shown], width)
        yield with_more(made, more)


def _row(one: Deviation) -> list[str]:
    figure = one.figure
    interval = ""
    if figure.relative_low is not None and figure.relative_high is not None:
        interval = f"{100 * figure.relative_low:+.1f} to {100 * figure.relative_high:+.1f} %"
    return [
        one.host,
        one.operation,
        figure.stage or "",
        figure.name,
        units.duration(figure.b or 0),
        units.duration(figure.a or 0),
        "" if figure.relative is None else f"{100 * figure.relative:+.1f} %",
        interval,
        "-" if one.spreads is None else f"{one.spreads:+.1f}",
    ]
