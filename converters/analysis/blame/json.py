# SPDX-License-Identifier: Apache-2.0
"""What blame found, for JSON; docs/blame.md describes every key."""

from collections.abc import Mapping
from typing import Any

from biotrail.converters.analysis.blame.tree import (
    Blamed,
    CallVictim,
    Experiment,
    Part,
    Share,
    State,
    Victim,
    Waited,
)


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
        "experiment": None if blamed.experiment is None else _experiment(blamed.experiment),
    }


def _experiment(one: Experiment) -> dict[str, Any]:
    return {
        "name": one.name,
        "label": one.label,
        "culprits": list(one.parties),
        "culprits_with_others": list(one.with_others),
        "idle": one.idle,
        "periods": one.periods,
        "periods_wanted": one.wanted,
        "stood_ns": one.stood_ns,
        "left_out_ios": one.left_out,
        "too_few": one.few,
        "victims": [
            {
                "name": victim.name,
                "running": _state(victim.running, "ios"),
                "standing": _state(victim.standing, "ios"),
                **_share(victim.truth),
                "blamed": _rounded(victim.blamed),
            }
            for victim in one.victims
        ],
        "calls": [
            {
                "name": call.name,
                "call": call.call,
                "running": _state(call.running, "calls"),
                "standing": _state(call.standing, "calls"),
                **_share(call.truth),
                "cpu": _share(call.cpu),
                "waits": _share(call.waits),
                "blamed": _rounded(call.blamed),
            }
            for call in one.calls
        ],
    }


def _state(one: State, what: str) -> dict[str, Any]:
    return {what: one.count, "mean_ns": round(one.mean_ns, 1)}


def _share(one: Share) -> dict[str, Any]:
    between = None if one.between is None else [_rounded(end) for end in one.between]
    return {"share": _rounded(one.share), "share_between": between}


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


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
