# SPDX-License-Identifier: Apache-2.0
"""Tables of a report by device: stages, queues, patterns, flushes, stacked devices."""

from collections.abc import Sequence

from rich.console import RenderableType

from biotrail.converters.analysis.report.tree.figures import Summary
from biotrail.converters.analysis.report.tree.tree import DeviceReport, OperationReport, Report
from biotrail.text import units
from biotrail.text.columns import Column, table, without_repeats
from biotrail.text.report.cells import NONE, TIMES, mean_size, stage_rows, times


def stages(device: DeviceReport, width: int) -> RenderableType:
    """Return the table of a device's stages, by operation."""
    rows = [row for one in device.operations for row in _stage_rows(one)]
    columns = [
        Column("operation", left=True),
        Column("stage", left=True),
        Column("count", 1),
        Column("share"),
        *TIMES,
    ]
    title = f"Where the time goes: {device.device}"
    return table(title, columns, without_repeats(rows, 1), width)


def _stage_rows(one: OperationReport) -> list[list[str]]:
    """Return rows of an operation's bio stages, and of D2C of its requests."""
    name = str(one.bios.name["operation"])
    rows = stage_rows(one.bios, [name])
    for stage in one.requests.stages:
        if stage.stage == "D2C":
            count = units.count(stage.time.count)
            rows.append([name, "D2C of requests", count, "", *times(stage.time)])
    return rows


def queues(devices: Sequence[DeviceReport], width: int) -> RenderableType:
    """Return the table of bios and requests in flight, by device."""
    rows = []
    for device in devices:
        queue, issued, whole = device.queue, device.issued, device.queue.busy_ns
        span = whole + device.queue.idle_ns
        rows.append(
            [
                device.device,
                f"{queue.mean:.2f}",
                units.count(queue.max),
                _met(queue.at_start),
                f"{issued.mean:.2f}",
                units.count(issued.max),
                _met(issued.at_start),
                f"{100 * whole / span:.1f} %" if span else NONE,
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


def _met(at_start: Summary) -> str:
    """Return how many others a beginning I/O met, on average."""
    return f"{at_start.mean:.1f}" if at_start.count else NONE


_EVENTS = (
    ("back", "back_merges"),
    ("front", "front_merges"),
    ("requests", "request_merges"),
    ("splits", "splits"),
    ("requeues", "requeues"),
)


def patterns(devices: Sequence[DeviceReport], width: int) -> RenderableType:
    """Return the table of merges, splits and seeks, by device."""
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
        Column("sequential at Q"),
        Column("mean seek", 1),
        Column("at D"),
        Column("mean seek", 1),
    ]
    return table("Merges (back, front, of requests), splits and seeks", columns, rows, width)


def flushes(devices: Sequence[DeviceReport], width: int) -> RenderableType:
    """Return the table of flush requests, by device."""
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
        *TIMES,
        Column("flushes by bios that waited", 1, left=True),
    ]
    return table("Flush requests, and how many bios waited for each", columns, rows, width)


def stacked(report: Report, width: int) -> RenderableType:
    """Return the table of stacked devices: time above, in and below each lower device's bios."""
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
        *TIMES,
    ]
    return table("Stacked devices", columns, without_repeats(rows, 3), width)
