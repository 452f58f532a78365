# SPDX-License-Identifier: Apache-2.0
"""Tables that compare the reports of several recordings."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from biotrail.cli.options.recordings import AlignedRecording
from biotrail.converters.analysis.report.tree import GroupReport, Report
from biotrail.text import units
from biotrail.text.columns import Column, columns_of, table, with_more, without_repeats
from biotrail.text.report.cells import (
    FIELDS,
    GROUP_WORK,
    OF_CGROUP,
    TIMES,
    TOTAL,
    WORK,
    group_cells,
    name_cells,
    tail,
    times,
    weight,
    with_tail,
    work,
)
from biotrail.text.report.report import MOST_ROWS
from biotrail.text.rows import Order, first

Labelled = Sequence[tuple[str, Report]]


def parts(
    reports: Labelled,
    lined: Sequence[AlignedRecording],
    width: int,
    limit: int | None = None,
    order: Order | None = None,
) -> Iterator[RenderableType]:
    begins = {
        one.label: one.alignment.time(report.begin_ns)
        for one in lined
        for label, report in reports
        if label == one.label
    }
    first_of_all = min(begins.values(), default=0)
    cells = []
    for label, report in reports:
        at = f"+{units.duration(begins[label] - first_of_all)}" if label in begins else "-"
        total = report.total
        length, requests = units.duration(report.span_ns), units.count(total.requests.ios)
        cells.append([label, at, length, requests, *work(total.bios), *times(total.bios.latency)])
    columns = [*columns_of("recording < | begins | length | requests @1"), *WORK, *TIMES]
    yield table("Recordings, on one timeline" if lined else "Recordings", columns, cells, width)
    rows = [
        ([label, device.device, one.operation], one.bios)
        for label, report in reports
        for device in report.devices
        for one in device.operations
        if one.bios.ios
    ]
    every, more = first(rows if order is None else _sorted(rows, order), limit or 0)
    cells = [[*name, *work(group), *times(group.latency), *tail(group)] for name, group in every]
    cells = cells if order else without_repeats(cells, 2)
    columns = [*columns_of("recording < | device < | operation <"), *WORK, *TIMES]
    title = "From queue to completion (Q2C), of all recordings"
    yield with_more(with_tail(title, columns, cells, width), more)
    by = reports[0][1].by
    if by is None:
        return
    fields = FIELDS[by]
    groups = [
        ([label, *name_cells(group, fields)], group)
        for label, report in reports
        for group in report.groups
    ]
    most = MOST_ROWS if limit is None else limit
    shown, more = first(_sorted(groups, order or Order.TOTAL), most)
    cells = [[*name, *group_cells(group)] for name, group in shown]
    columns = [
        Column(head, left=head in ("recording", fields[0], *OF_CGROUP))
        for head in ("recording", *fields)
    ]
    columns += [*GROUP_WORK, *TOTAL, *TIMES]
    yield with_more(with_tail(f"By {by}, of all recordings", columns, cells, width), more)


def _sorted(
    rows: Sequence[tuple[list[str], GroupReport]], order: Order
) -> list[tuple[list[str], GroupReport]]:
    return sorted(rows, key=lambda row: ("others" in row[1].name, -weight(row[1], order)))
