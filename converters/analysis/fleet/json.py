# SPDX-License-Identifier: Apache-2.0
"""A fleet's report as JSON: stable, versioned, with the unit in each key. docs/fleet.md."""

from typing import Any

from biotrail.converters.analysis.blame.json import waited
from biotrail.converters.analysis.blame.tree import Waited
from biotrail.converters.analysis.diff.json import figure
from biotrail.converters.analysis.fleet.tree import (
    FORMAT,
    Deviation,
    FleetGroup,
    FleetReport,
    HostReport,
    RecordingFacts,
)
from biotrail.converters.analysis.report.formats.json import depth, flushes, operation, pattern


def as_dict(report: FleetReport) -> dict[str, Any]:
    """Return the report as dicts and lists for json.dumps, with the keys of docs/fleet.md."""
    return {
        "format": FORMAT,
        "by": report.by,
        "begin": report.begin,
        "recordings": len(report.recordings),
        "files": report.files,
        "bytes": report.bytes,
        "events": report.events,
        "total": group(report.total),
        "groups": [group(one) for one in report.groups],
        "hosts": [_host(one) for one in report.hosts],
        "outliers": [deviation(one) for one in report.outliers],
        "compared": len(report.deviations),
        "unlike_options": [
            {"option": name, "values": values} for name, values in report.unlike_options.items()
        ],
        "blame_by": report.blame_by,
        "blame": victims(report.blame),
        "certainty": report.certainty,
        "lost_records": report.lost_records,
        "incomplete": [_recording(one) for one in report.incomplete],
        "left_out": [{"file": one.file, "why": one.why} for one in report.left_out],
    }


def group(one: FleetGroup) -> dict[str, Any]:
    """Return the figures of a group as a dict for json.dumps.

    Keys: name, rest (only if it is that of all groups too many), hosts, recordings, devices,
    span_ns, total and operations (as in the report), depth and pattern (of bios and of requests),
    flushes (None without), events.
    """
    return {
        "name": one.name,
        **({"rest": True} if one.rest else {}),
        "hosts": one.hosts,
        "recordings": one.recordings,
        "devices": one.devices,
        "span_ns": one.span_ns,
        "total": operation(one.total),
        "operations": [operation(op) for op in one.operations],
        "depth": {"queue": depth(one.queue), "issued": depth(one.issued)},
        "pattern": {"q2q": pattern(one.q2q), "d2d": pattern(one.d2d)},
        "flushes": flushes(one.flushes) if one.flushes else None,
        "events": one.events,
    }


def _host(one: HostReport) -> dict[str, Any]:
    """Return a host as a dict for json.dumps: its facts, work, and figures by operation.

    `figures` has operation, stage, figure and value_ns of each that hosts are compared by.
    """
    return {
        "host": one.host,
        "kernels": one.kernels,
        "models": one.models,
        "columns": one.columns,
        "recordings": one.recordings,
        "span_ns": one.span_ns,
        "ios": one.ios,
        "bytes": one.bytes,
        "lost_records": one.lost_records,
        "figures": [
            {"operation": op, "stage": stage, "figure": name, "value_ns": found.value}
            for (op, stage, name), found in one.estimates.items()
        ],
        "verdict": one.said,
        "verdict_of": one.said_of,
        "blame": victims(one.blame),
    }


def victims(found: list[Waited] | None) -> list[dict[str, Any]] | None:
    """Return who waited for whom, a dict for each victim; None: it was not asked for."""
    return None if found is None else [waited(one) for one in found]


def deviation(one: Deviation) -> dict[str, Any]:
    """Return a host's figure beside its peers' as a dict for json.dumps.

    Keys: host, operation, peers (their number), spreads, and those of `diff`, of which `a` is the
    median of the peers' values and `b` the host's. spreads: None if the others do
    not differ from each other.
    """
    spreads = None if one.spreads is None else round(one.spreads, 3)
    return {
        "host": one.host,
        "operation": one.operation,
        "peers": one.peers,
        "spreads": spreads,
        **figure(one.figure),
    }


def _recording(one: RecordingFacts) -> dict[str, Any]:
    """Return what is missing from a recording as a dict for json.dumps."""
    return {
        "host": one.host,
        "log_id": one.log_id,
        "files": one.files,
        "begin": one.begin,
        "span_ns": one.span_ns,
        "events": one.events,
        "lost_records": one.lost_records,
        "interrupted": one.interrupted,
        "damaged_windows": one.damaged_windows,
        "problems": one.problems,
        "problem_count": one.problem_count,
    }
