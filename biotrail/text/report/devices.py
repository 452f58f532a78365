# SPDX-License-Identifier: Apache-2.0
"""Tables of a report by device: stages, queues, patterns, flushes, stacked devices."""

from collections.abc import Sequence

from rich.console import RenderableType

from biotrail.converters.analysis.report.tree import DepthReport, DeviceReport, StackedReport
from biotrail.text import units
from biotrail.text.columns import Column, columns_of, table, with_lines, without_repeats
from biotrail.text.report.cells import NONE, TIMES, mean_size, recorder_lines, stage_rows, times


def stages(device: DeviceReport, width: int) -> RenderableType:
    rows = []
    for one in device.operations:
        rows += stage_rows(one.bios, [one.operation])
        rows += [
            [
                one.operation,
                "D2C of requests",
                units.count(stage.time.count),
                "",
                *times(stage.time),
            ]
            for stage in one.requests.stages
            if stage.stage == "D2C"
        ]
    columns = [*columns_of("operation < | stage < | count @1 | share"), *TIMES]
    made = table(f"Where the time goes: {device.device}", columns, without_repeats(rows, 1), width)
    ones = ((device.total.bios, "bios"), (device.total.requests, "requests"))
    left = [
        f"{units.count(n)} of {units.count(one.counters['ended'])} {what}"
        for one, what in ones
        if (n := one.counters["doubtful"])
    ]
    lines = [f"without {' and '.join(left)}: in doubt"] if left else []
    return with_lines(made, [*lines, *recorder_lines([one.bios for one in device.operations])])


def queues(devices: Sequence[DeviceReport], width: int) -> RenderableType:
    """Return the table of I/O in flight; where ends are not known, figures are bounds."""
    rows = []
    notes = []

    def cells(one: DepthReport) -> list[str]:
        span = one.active_ns + one.idle_ns
        return [
            f"{one.mean:.2f}",
            units.count(one.max),
            f"{one.at_start.mean:.1f}" if one.at_start.count else NONE,
            f"{100 * one.active_ns / span:.1f} %" if span else NONE,
            units.duration(one.idle_ns),
        ]

    for device in devices:
        queue, issued = device.queue, device.issued
        waiting, serving = (
            [
                low if low == high else f"{low}-{high}"
                for low, high in zip(cells(one), cells(one.high or one), strict=True)
            ]
            for one in (queue, issued)
        )
        rows.append([device.device, *waiting[:3], *serving[:3], *waiting[3:]])
        if queue.unended or issued.unended:
            what = [
                f"{units.count(of.unended)} {name}"
                for of, name in ((queue, "bios"), (issued, "requests"))
                if of.unended
            ]
            notes.append(
                f"{device.device}: of {' and '.join(what)} the end is not known: figures are from "
                "what is known to have been in flight to what may have been"
            )
    columns = columns_of(
        "device < | Q-C mean | Q-C max | met at Q @2 | D-C mean | D-C max | met at D @2 | "
        "active | idle @1"
    )
    found = table("In flight: bios from Q to C, requests from D to C", columns, rows, width)
    return with_lines(found, notes)


_EVENTS = (
    ("back", "back_merges"),
    ("front", "front_merges"),
    ("requests", "request_merges"),
    ("splits", "splits"),
    ("requeues", "requeues"),
)


def patterns(devices: Sequence[DeviceReport], width: int) -> RenderableType:
    rows = [
        [
            device.device,
            *(units.count(device.events.get(event, 0)) for _, event in _EVENTS),
            f"{100 * device.q2q.sequential_share:.0f} %",
            mean_size(device.q2q.seek),
            f"{100 * device.d2d.sequential_share:.0f} %",
            mean_size(device.d2d.seek),
        ]
        for device in devices
    ]
    columns = [
        Column("device", left=True),
        *(Column(head) for head, _ in _EVENTS),
        *columns_of("sequential at Q | mean seek @1 | at D | mean seek @1"),
    ]
    return table("Merges (back, front, of requests), splits and seeks", columns, rows, width)


def flushes(devices: Sequence[DeviceReport], width: int) -> RenderableType:
    rows, doubtful = [], 0
    for device in devices:
        if (found := device.flushes) is not None:
            shared = ", ".join(f"{bios}: {units.count(n)}" for bios, n in found.shared.items())
            counts = [units.count(found.requests), units.count(found.waits)]
            mean = f"{found.bios_per_request:.2f}"
            rows.append([device.device, *counts, mean, *times(found.time), shared])
            doubtful += found.doubtful
    columns = [
        *columns_of("device < | flushes | waits | bios each"),
        *TIMES,
        Column("flushes by bios that waited", 1, left=True),
    ]
    made = table("Flush requests, and how many bios waited for each", columns, rows, width)
    left = [f"without {units.plural(doubtful, 'time')} in doubt"] if doubtful else []
    return with_lines(made, left)


def stacked(pairs: Sequence[StackedReport], width: int) -> RenderableType:
    """Return the table of time above, in and below each lower device's bios."""
    rows = [
        [pair.device, pair.below, pair.operation, name, units.count(values.count), *times(values)]
        for pair in pairs
        for name, values in (
            ("Q to Q below", pair.to_child),
            ("Q2C below", pair.child),
            ("C below to C", pair.from_child),
        )
    ]
    columns = [*columns_of("device < | below < | operation < | part < | count @1"), *TIMES]
    made = table("Stacked devices", columns, without_repeats(rows, 3), width)
    doubtful = sum(pair.doubtful for pair in pairs)
    left = [f"without {units.plural(doubtful, 'lower bio')} in doubt"] if doubtful else []
    return with_lines(made, left)
