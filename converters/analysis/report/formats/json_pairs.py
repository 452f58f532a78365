# SPDX-License-Identifier: Apache-2.0
"""Pairs of events of a report as JSON, and the summaries that all parts share."""

from collections.abc import Sequence
from typing import Any

from biotrail.converters.analysis.report.tree.figures import Summary
from biotrail.converters.analysis.report.tree.pairs import PairInterval, PairReport


def summary(values: Summary, unit: str) -> dict[str, Any]:
    """Return a summary of values as a dict: count, sum, mean, min, p50, p90, p99, p99_9 and max.

    unit: "ns", "bytes", or "" for plain numbers; appended to each key but count (`p99_ns`). The
    mean is rounded to 3 decimals. Without values all but count and sum are None.
    """
    end = f"_{unit}" if unit else ""
    figures = {
        "mean": round(values.mean, 3),
        "min": values.min,
        "p50": values.p50,
        "p90": values.p90,
        "p99": values.p99,
        "p99_9": values.p99_9,
        "max": values.max,
    }
    known = {f"{name}{end}": value if values.count else None for name, value in figures.items()}
    return {"count": values.count, f"sum{end}": values.sum, **known}


def doubtful_key(every: Summary | None) -> dict[str, Any]:
    """Return the key `with_doubtful` of latencies of which some are in doubt; empty for None.

    every: of all of them, those in doubt in.
    """
    if every is None:
        return {}
    figures = summary(every, "ns")
    return {"with_doubtful": {key: figures[key] for key in ("count", "mean_ns", "p99_ns")}}


def pairs(reports: Sequence[PairReport]) -> list[dict[str, Any]]:
    """Return pairs of events for json.dumps."""
    return [_pair(one) for one in reports]


def interval_pair(one: PairInterval) -> dict[str, Any]:
    """Return the pairs of one declaration in one interval as a dict for json.dumps."""
    return {"name": one.name, "time": summary(one.time, "ns")}


def _pair(one: PairReport) -> dict[str, Any]:
    """Return a pair of events as a dict for json.dumps."""
    return {
        "name": one.name,
        "begin": one.begin,
        "end": one.end,
        "keys": one.keys,
        "by": one.by,
        "time": summary(one.time, "ns"),
        "groups": [
            {"text": group.text, "value": group.value, "time": summary(group.time, "ns")}
            for group in one.groups
        ],
        "groups_left_out": one.groups_left_out,
        "slowest_keys": [
            {
                "text": key.text,
                "values": key.values,
                "count": key.count,
                "sum_ns": key.sum,
                "max_ns": key.max,
            }
            for key in one.slowest_keys
        ],
        "keys_known": one.keys_known,
        "keys_left_out": one.keys_left_out,
        "unpaired": one.unpaired,
    }
