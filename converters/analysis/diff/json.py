# SPDX-License-Identifier: Apache-2.0
"""A comparison as JSON: stable and versioned. docs/diff.md lists the keys."""

from typing import Any

from biotrail.converters.analysis.diff.tree import (
    FORMAT,
    BlameDiff,
    CallDiff,
    DeviceDiff,
    Diff,
    Figure,
    PairDiff,
    SideReport,
)
from biotrail.converters.analysis.report.formats.json_pairs import doubtful_key
from biotrail.converters.analysis.report.tree.figures import Summary


def as_dict(diff: Diff) -> dict[str, Any]:
    """Return the comparison as dicts and lists for json.dumps, with the keys of docs/diff.md.

    Its lists `only_a` and `only_b` are not copied.
    """
    return {
        "format": FORMAT,
        "confidence": diff.confidence,
        "draws": diff.draws,
        "seed": diff.seed,
        "a": _side(diff.a),
        "b": _side(diff.b),
        "equal": diff.equal,
        "by_runs": diff.by_runs,
        "one_after_other": diff.one_after_other,
        "unlike_options": [
            {"option": name, "a": a, "b": b} for name, (a, b) in diff.unlike_options.items()
        ],
        "compared": diff.compared,
        "differing": diff.differing,
        "tested": diff.tested,
        "changed": diff.changed,
        "only_a": diff.only_a,
        "only_b": diff.only_b,
        "devices": [_device(device) for device in diff.devices],
        "calls": [_call(call) for call in diff.calls],
        "pairs": [_pair(pair) for pair in diff.pairs],
        "blame_by": diff.blame_by,
        "blame": [_blame(one) for one in diff.blame],
    }


def _side(side: SideReport) -> dict[str, Any]:
    """Return the facts about one side of the comparison as a dict for json.dumps.

    Keys: id, runs, options, host, kernel, begin (UTC text or None), span_ns, block_ns and blocks
    (of its draws), lost_records, left_out, calls_ns (time in which calls were timed),
    calls_left_out, pairs_left_out.
    """
    return {
        "id": side.log_id,
        "runs": side.runs,
        "options": [{"option": name, "values": one} for name, one in side.options.items()],
        "host": side.host,
        "kernel": side.kernel,
        "begin": side.begin,
        "span_ns": side.span_ns,
        "block_ns": side.block_ns,
        "blocks": side.blocks,
        "lost_records": side.lost_records,
        "left_out": side.left_out,
        "calls_ns": side.calls_ns,
        "calls_left_out": side.calls_left_out,
        "pairs_left_out": side.pairs_left_out,
    }


def _device(device: DeviceDiff) -> dict[str, Any]:
    """Return a compared device as a dict for json.dumps.

    Keys: device_a, device_b (names), figures (a dict each), and operations: the name of each,
    ios_a, ios_b, figures, and how many bios are in no figure of times, as theirs is in doubt.
    """
    return {
        "device_a": device.device_a,
        "device_b": device.device_b,
        "figures": [figure(found) for found in device.figures],
        "operations": [
            {
                "operation": one.operation,
                "ios_a": one.ios_a,
                "ios_b": one.ios_b,
                "figures": [figure(found) for found in one.figures],
                "doubtful_a": one.doubtful_a,
                "doubtful_b": one.doubtful_b,
                **_named(one.with_doubtful_a, "_a"),
                **_named(one.with_doubtful_b, "_b"),
            }
            for one in device.operations
        ],
    }


def _named(every: Summary | None, side: str) -> dict[str, Any]:
    """Return the key `with_doubtful_a` or `with_doubtful_b`; empty where none is in doubt."""
    return {key + side: figures for key, figures in doubtful_key(every).items()}


def _call(call: CallDiff) -> dict[str, Any]:
    """Return the compared calls of a name as a dict: call, io, count_a, count_b, figures."""
    return {**vars(call), "figures": [figure(found) for found in call.figures]}


def _pair(pair: PairDiff) -> dict[str, Any]:
    """Return compared pairs of events as a dict: pair, by, count_a, count_b, figures."""
    return {**vars(pair), "figures": [figure(found) for found in pair.figures]}


def _blame(one: BlameDiff) -> dict[str, Any]:
    """Return a compared victim as a dict: victim, ios_a, ios_b, share, left_out, figures."""
    return {
        **vars(one),
        "share": round(one.share, 6),
        "figures": [figure(found) for found in one.figures],
    }


def figure(one: Figure) -> dict[str, Any]:
    """Return a compared figure as a dict: the fields of Figure, rounded to 6 decimals.

    `p` has 6 digits instead, as small ones tell most.
    """
    rounded = {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in vars(one).items()
    }
    return {**rounded, "p": None if one.p is None else float(f"{one.p:.6g}")}
