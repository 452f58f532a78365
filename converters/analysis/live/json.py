# SPDX-License-Identifier: Apache-2.0
"""A snapshot as JSON: stable and versioned. docs/top.md lists the keys."""

from typing import Any

from biotrail.converters.analysis.blame import json as blame_json
from biotrail.converters.analysis.blame.online import LEFT_OUT
from biotrail.converters.analysis.live.tree import (
    FORMAT,
    Blame,
    Depths,
    DeviceNow,
    Snapshot,
    Stretch,
)
from biotrail.converters.analysis.report.formats.json import call, group, operation


def as_dict(snapshot: Snapshot) -> dict[str, Any]:
    """Return the snapshot as dicts and lists for json.dumps, with the keys of docs/top.md.

    "format" is the number of that format; every other key has the name of a field of Snapshot. The
    snapshot is not changed.
    """
    return {
        "format": FORMAT,
        "number": snapshot.number,
        "last": snapshot.last,
        "devices": [_device(device) for device in snapshot.devices],
        "now": _stretch(snapshot.now),
        "minute": _stretch(snapshot.minute),
        "slowest": [dict(vars(slow)) for slow in snapshot.slowest],
        "lost_records": snapshot.lost_records,
        "skipped_ns": snapshot.skipped_ns,
        "slowest_calls": [dict(vars(slow)) for slow in snapshot.slowest_calls],
        "calls_until_ns": snapshot.calls_until_ns,
    }


def _stretch(stretch: Stretch) -> dict[str, Any]:
    """Return the figures of a stretch of time as a dict for json.dumps.

    Keys: begin_ns, end_ns; total (a dict as report.json.operation: figures of bios, with those of
    requests as `requests`); operations (a list of such dicts), processes (a list of dicts as
    report.json.group, of bios) and calls (as report.json.call), in the order of `stretch`; blame.
    """
    return {
        "begin_ns": stretch.begin_ns,
        "end_ns": stretch.end_ns,
        "total": operation(stretch.total),
        "operations": [operation(one) for one in stretch.operations],
        "processes": [group(one) for one in stretch.processes],
        "calls": [call(one) for one in stretch.calls],
        "blame": None if stretch.blame is None else _blame(stretch.blame),
    }


def _blame(blame: Blame) -> dict[str, Any]:
    """Return who waited for whom, with the keys of docs/blame.md that are told live."""
    return {
        "by": blame.by,
        "victims": [blame_json.waited(one) for one in blame.victims],
        "bases": blame_json.based(blame.based),
        "left_out": {name: blame.left_out.get(name, 0) for name in LEFT_OUT},
        "everybody_recorded": blame.everybody,
    }


def _device(device: DeviceNow) -> dict[str, Any]:
    return {
        "device": device.device,
        "queue": _depths(device.queue),
        "issued": _depths(device.issued),
    }


def _depths(depths: Depths) -> dict[str, Any]:
    """Return how many bios or requests were in flight on a device in a stretch of time as a dict.

    Keys: now, mean (6 decimals), max, active_ns (time with any in flight), time_ns (length).
    """
    return {
        "now": depths.now,
        "mean": round(depths.mean, 6),
        "max": depths.max,
        "active_ns": depths.busy_ns,
        "time_ns": depths.time_ns,
    }
