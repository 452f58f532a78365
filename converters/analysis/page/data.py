# SPDX-License-Identifier: Apache-2.0
"""The data that a page shows: the report's JSON, I/O over time, slow I/Os; bounded for any log."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from biotrail.converters.analysis import figures
from biotrail.converters.analysis.distributions.groups import OTHERS
from biotrail.converters.analysis.distributions.keys import OP_BITS
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.figures import Summary
from biotrail.converters.analysis.fleet.tree import FleetReport, as_dict
from biotrail.converters.analysis.report.timeline import LOWER, Course, Timeline
from biotrail.converters.analysis.report.tree import Report
from biotrail.converters.events.context import Context

FLEET_ROOM = {
    "groups": 1_200_000,
    "hosts": 1_500_000,
    "outliers": 300_000,
    "said": 200_000,
    "blame": 60_000,
    "incomplete": 100_000,
    "left_out": 100_000,
}
"""Characters of JSON that each list may have, so that a page with the library is below 5 MB."""
_NOT_SHOWN = ("operations", "depth", "pattern", "flushes", "events")
"""Keys of groups that the page does not show."""


def fleet_data(report: FleetReport) -> dict[str, Any]:
    """Lists are cut to FLEET_ROOM characters of JSON.

    `left_out` has the number of rows cut from each, if any. Groups have their totals alone, hosts
    the first sentence of their reports, as `said`.
    """
    shown = as_dict(report)
    shown["groups"] = [
        {key: value for key, value in group.items() if key not in _NOT_SHOWN}
        for group in shown["groups"]
    ]
    shown["said"] = [
        {"host": host["host"], **host["verdict"][0]} for host in shown["hosts"] if host["verdict"]
    ]
    for host in shown["hosts"]:
        del host["verdict"], host["blame"]
    shown["blame"] = shown["blame"] or []
    left_out = {}
    for name, room in FLEET_ROOM.items():
        shown[name], left_out[name] = bounded(shown[name], room)
    return {"report": shown, "left_out": {name: n for name, n in left_out.items() if n}}


MOST = {
    "devices": 64,
    "processes": 50,
    "cgroups": 50,
    "cpus": 256,
    "files": 50,
    "stacked": 50,
    "calls": 64,
    "call_groups": 50,
    "waits": 50,
    "held": 50,
    "commits": 16,
    "submissions": 32,
}
ROOM = {
    "devices": 1_000_000,
    "processes": 150_000,
    "cgroups": 150_000,
    "cpus": 150_000,
    "files": 150_000,
    "stacked": 60_000,
    "calls": 60_000,
    "call_groups": 10_000,
    "waits": 20_000,
    "held": 8_000,
    "commits": 15_000,
    "submissions": 25_000,
    "blame_victims": 12_000,
    "blame_calls": 12_000,
    "blame_words": 5_000,
    "pairs": 50_000,
    "series": 780_000,
    "depths": 300_000,
    "operations": 150_000,
    "slow": 425_000,
    "words": 50_000,
    "filters": 5_000,
    "verdict": 10_000,
    "guest": 20_000,
}
"""Characters of JSON that each list may have, so that a page with the library is below 5 MB."""
ROW_BITS = 2
"""log2 of a heat map's rows per power of two."""
MOST_NAME = 200
"""Characters of a log id, host name or kernel release; longer than any kernel allows."""
MOST_PAIRS = 32
"""Declared pairs of events; of each MOST_PAIR_GROUPS values of --by and MOST_PAIR_KEYS keys."""
MOST_PAIR_GROUPS = 24
MOST_PAIR_KEYS = 10
MOST_VICTIMS = 12
MOST_EVENTS = 40
MOST_OTHERS = 8
"""Requests, mates, children and parents of a slow I/O, each."""


def page_data(
    report: Report, timeline: Timeline, context: Context, slow: Mapping[str, Any], whole: int
) -> dict[str, Any]:
    """timeline: of the report's windows.

    slow: what `biotrail slow --json` prints for the log. whole: how many I/Os of `slow`, from the
    first on, are the slowest of all; the others are the slowest of a device and operation.
    `left_out` has the number of rows cut from each list, if any.
    """
    shown = figures.as_json(report)
    shown["log"] = {key: short(text) for key, text in shown["log"].items()}
    left_out = {}
    for name, most in MOST.items():
        shown[name], left_out[name] = bounded(shown[name], ROOM[name], most)
    for pair in shown["pairs"]:
        if (over := len(pair["groups"]) - MOST_PAIR_GROUPS) > 0:
            pair["groups_cut"] = over
        del pair["groups"][MOST_PAIR_GROUPS:], pair["slowest_keys"][MOST_PAIR_KEYS:]
    shown["pairs"], left_out["pairs"] = bounded(shown["pairs"], ROOM["pairs"], MOST_PAIRS)
    if shown["blame"] is not None:
        shown["blame"] = {**shown["blame"], "experiment": None}  # `biotrail blame` shows it
        for name in ("victims", "calls"):
            rows, room = shown["blame"][name], ROOM[f"blame_{name}"]
            shown["blame"][name], left_out[f"blame_{name}"] = bounded(rows, room, MOST_VICTIMS)
    for name in ("problems", "remarks"):
        shown["loss"][name], left_out[name] = bounded(shown["loss"][name], ROOM["words"])
    series, left_out["series"] = bounded(_series(report, timeline, context), ROOM["series"])
    depths, left_out["depths"] = bounded(_depths(report, timeline, context), ROOM["depths"])
    every = [figures.as_json(one) for one in report.operations]
    operations, left_out["operations"] = bounded(every, ROOM["operations"])
    every_io = []
    for io in slow["ios"]:
        found, events = dict(io), io["events"]
        if len(events) > MOST_EVENTS:
            half = MOST_EVENTS // 2
            found["events"] = [*events[:half], *events[-half:]]
            found["events_left_out"] += len(events) - MOST_EVENTS
        for name in ("requests", "mates", "children", "parents"):
            if (over := len(io[name]) - MOST_OTHERS) > 0:
                found[name] = io[name][:MOST_OTHERS]
                found[f"{name}_left_out"] = over + io.get(f"{name}_left_out", 0)
        every_io.append(found)
    ios, left_out["slow"] = bounded(every_io, ROOM["slow"])
    return {
        "report": shown,
        "operations": operations,
        "timeline": {
            "begin_ns": timeline.origin,
            "interval_ns": timeline.interval,
            "columns": timeline.columns,
            "rows_per_octave": 1 << ROW_BITS,
            "series": series,
            "depths": depths,
        },
        "slow": {"counts": slow["counts"], "slowest": min(whole, len(ios)), "ios": ios},
        "left_out": {name: count for name, count in left_out.items() if count},
    }


def bounded(rows: Iterable[Any], room: int, most: int | None = None) -> tuple[list[Any], int]:
    """Return (rows that fit into `room` characters of JSON, number of the others)."""
    rows = list(rows)
    kept = []
    for row in rows[:most]:
        room -= len(as_json(row)) + 1
        if room < 0:
            break
        kept.append(row)
    return kept, len(rows) - len(kept)


def short(text: str) -> str:
    return text if len(text) <= MOST_NAME else text[: MOST_NAME - 1] + "…"


def as_json(value: Any) -> str:
    """Return the value as JSON that is safe in a script element, whatever names are in it."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _series(report: Report, timeline: Timeline, context: Context) -> list[dict[str, Any]]:
    """Return I/O over time: of all devices, then of each device, most I/O first.

    `device` and `operation` are None in a series of all devices or all operations. A bio that a
    stacked device queued for another is in its device's series alone, I/O of OTHERS in that of all
    I/O.
    """
    courses = timeline.courses()
    names: dict[tuple[str | None, str | None], list[Course]] = {(None, None): []}
    for coded, course in courses.items():
        lower = coded >= LOWER
        if not lower:
            names[None, None].append(course)
        if coded == OTHERS:
            continue
        place = coded - LOWER if lower else coded
        device = context.device_name(place >> OP_BITS)
        op = context.op_name(place)
        for name in (*(() if lower else ((None, op),)), (device, None), (device, op)):
            names.setdefault(name, []).append(course)
    order = {device.device: rank for rank, device in enumerate(report.devices, 1)}
    ranked = sorted(names, key=lambda name: (order.get(name[0] or "", 0), name[1] or ""))
    # Series of all devices first, then the busiest device: `bounded` leaves out the last ones.
    found = []
    for name in ranked:
        course = Course(*np.zeros((2, timeline.columns), np.int64))
        for one in names[name]:
            course.merge(one)
        columns = range(len(course.ios))
        times = {column: Summary.of(of) for column, of in course.latency.items()}
        latencies = {
            f"{figure}_ns": [
                getattr(times[column], figure) if column in times else None for column in columns
            ]
            for figure in ("p50", "p90", "p99", "max")
        }
        rows = [heat(course.latency[column]) if column in times else [] for column in columns]
        sums = {"ios": course.ios.tolist(), "bytes": course.bytes.tolist()}
        found.append({"device": name[0], "operation": name[1], **sums, **latencies, "heat": rows})
    return found


def heat(times: Distribution) -> list[int]:
    """Return a heat map's column: the first row with I/Os, then each row's I/Os from there."""
    first, counts = times.coarse(ROW_BITS)
    return [first, *counts]


def _depths(report: Report, timeline: Timeline, context: Context) -> list[dict[str, Any]]:
    order = {device.device: rank for rank, device in enumerate(report.devices)}
    found = []
    for dev, device in timeline.devices.by_dev.items():
        row: dict[str, Any] = {"device": context.device_name(dev)}
        for name, depth in (("queue", device.queue), ("issued", device.issued)):
            spans = [depth.spans.get(column) for column in range(timeline.columns)]
            row[f"{name}_mean"] = [round(span.mean, 6) if span else 0 for span in spans]
            row[f"{name}_max"] = [span.most if span else 0 for span in spans]
        found.append(row)
    return sorted(found, key=lambda row: order.get(row["device"], len(order)))
