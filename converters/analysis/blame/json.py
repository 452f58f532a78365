# SPDX-License-Identifier: Apache-2.0
"""What blame found, for JSON; docs/blame.md describes every key."""

from collections.abc import Mapping
from typing import Any

from biotrail.converters.analysis.blame.tree import Blamed, CallVictim, Part, Victim, Waited


def as_dict(blamed: Blamed) -> dict[str, Any]:
    """Return what was found as JSON's types."""
    return {
        "by": {"victim": blamed.by[0], "culprit": blamed.by[1]},
        "victims": [_victim(one) for one in blamed.victims],
        "calls": [_call(one) for one in blamed.calls],
        "ios": blamed.ios,
        "left_out": {
            "time_not_known": blamed.unknown,
            "of_upper_devices": blamed.upper,
            "requests_without_end": blamed.without_end,
        },
        "too_long_ago": blamed.forgotten,
        "everybody_recorded": blamed.named,
        "bases": {"stretch_ns": blamed.stretch_ns, **based(blamed.based)},
        "devices_on_the_cpus": blamed.shared,
    }


def based(counts: Mapping[str, int]) -> dict[str, int]:
    """Return how many I/Os have each source of a base."""
    return {name: counts.get(name, 0) for name in ("stretch", "log", "substitute")}


def _parts(parts: list[Part]) -> list[dict[str, Any]]:
    return [
        {"kind": str(one.kind), "culprit": one.culprit, "wait_ns": one.wait_ns} for one in parts
    ]


def waited(one: Waited) -> dict[str, Any]:
    """Return what is told of each victim, live or of a log."""
    return {
        "name": one.name,
        "ios": one.ios,
        "wait_ns": one.wait_ns,
        "mean_ns": round(one.mean_ns, 1),
        "parts": _parts(one.parts),
        "cannot_tell_ns": one.small_ns,
    }


def _victim(one: Victim) -> dict[str, Any]:
    return {
        **waited(one),
        "p99_ns": one.p99_ns,
        "without": [
            {
                "culprit": told.culprit,
                "mean_ns": round(told.mean_ns, 1),
                "mean_between_ns": None
                if told.between_ns is None
                else [round(end, 1) for end in told.between_ns],
                "p99_ns": told.p99_ns,
                "base_ios": told.rests_on,
            }
            for told in one.without
        ],
    }


def _call(one: CallVictim) -> dict[str, Any]:
    return {
        "name": one.name,
        "call": one.call,
        "calls": one.calls,
        "wait_ns": one.wait_ns,
        "mean_ns": round(one.wait_ns / one.calls, 1) if one.calls else 0.0,
        "parts": _parts(one.parts),
    }
