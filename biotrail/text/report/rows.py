# SPDX-License-Identifier: Apache-2.0
"""Sort and shorten a report's lists of groups."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from biotrail.converters.analysis.report.tree import DeviceReport, GroupReport, Report
from biotrail.text.rows import Order, first

LISTS = ("processes", "cgroups", "cpus", "files", "groups")
"""Fields of a Report that hold groups."""


def weight(group: GroupReport, order: Order) -> float:
    """Return what a group of a report is sorted by: its I/Os, bytes, or latency in ns."""
    return {
        Order.COUNT: group.ios,
        Order.BYTES: group.bytes,
        Order.MEAN: group.latency.mean,
        Order.P99: group.latency.p99,
        Order.TOTAL: group.latency.sum,
    }[order]


def in_order(groups: Sequence[GroupReport], order: Order | None) -> list[GroupReport]:
    """Return the groups sorted, the largest first; in their order where `order` is None.

    The rest of a list that has too many groups is last.
    """
    if order is None:
        return list(groups)
    return sorted(groups, key=lambda group: ("others" in group.name, -weight(group, order)))


def arranged(report: Report, order: Order | None) -> Report:
    """Return the report with devices, operations and groups sorted.

    Itself where `order` is None.
    """
    if order is None:
        return report
    devices = [_sorted_device(device, order) for device in report.devices]
    devices.sort(key=lambda device: -weight(device.total.bios, order))
    lists: dict[str, Any] = {name: in_order(getattr(report, name), order) for name in LISTS}
    intervals = [replace(one, groups=in_order(one.groups, order)) for one in report.intervals]
    return replace(report, devices=devices, intervals=intervals, **lists)


def _sorted_device(device: DeviceReport, order: Order) -> DeviceReport:
    """Return the device with its operations sorted."""
    operations = sorted(device.operations, key=lambda one: -weight(one.bios, order))
    return replace(device, operations=operations)


def shortened(report: Report, limit: int | None) -> tuple[Report, dict[str, int]]:
    """Return the report with at most `limit` groups per list, and how many each list leaves out.

    limit: None or 0: all. Lists that leave out nothing are not in the second result.
    """
    if not limit:
        return report, {}
    shown: dict[str, Any] = {}
    more: dict[str, int] = {}
    for name in LISTS:
        shown[name], rest = first(getattr(report, name), limit)
        if rest:
            more[name] = rest
    return replace(report, **shown), more
