# SPDX-License-Identifier: Apache-2.0
"""A report with its groups sorted, and with so many of them as were asked for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from biotrail.converters.analysis.report.tree import DeviceReport, GroupReport, Report
from biotrail.text.rows import Order, first

LISTS = ("processes", "cgroups", "cpus", "files", "groups")
"""Fields of a Report that hold groups."""


def weight(group: GroupReport, order: Order) -> float:
    """What a group of a report is sorted by."""
    return {
        Order.COUNT: group.counters["ios"],
        Order.BYTES: group.counters["bytes"],
        Order.MEAN: group.latency.mean,
        Order.P99: group.latency.p99,
        Order.TOTAL: group.latency.sum,
    }[order]


def in_order(groups: Sequence[GroupReport], order: Order | None) -> list[GroupReport]:
    """Return the groups of a report, sorted; as they are where no order is given."""
    if order is None:
        return list(groups)
    return sorted(groups, key=lambda group: -weight(group, order))


def arranged(report: Report, order: Order | None) -> Report:
    """Return the report with its devices, operations and groups sorted; itself without an order."""
    if order is None:
        return report
    devices = [_sorted_device(device, order) for device in report.devices]
    devices.sort(key=lambda device: -weight(device.total.bios, order))
    lists: dict[str, Any] = {name: in_order(getattr(report, name), order) for name in LISTS}
    intervals = [replace(one, groups=in_order(one.groups, order)) for one in report.intervals]
    return replace(report, devices=devices, intervals=intervals, **lists)


def _sorted_device(device: DeviceReport, order: Order) -> DeviceReport:
    operations = sorted(device.operations, key=lambda one: -weight(one.bios, order))
    return replace(device, operations=operations)


def shortened(report: Report, limit: int | None) -> tuple[Report, dict[str, int]]:
    """Return the report with at most `limit` groups in each list, and what is left out of each.

    limit: None or 0 leaves all of them.
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
