# SPDX-License-Identifier: Apache-2.0
"""Pairs of events of a report as lines of CSV."""

from collections.abc import Iterator
from typing import Any

from biotrail.converters.analysis.figures import Summary, summary
from biotrail.converters.analysis.report.tree.pairs import PairReport
from biotrail.converters.analysis.report.tree.tree import Report

Line = dict[str, Any]
"""Column → value; absent columns are empty."""


def pair_lines(report: Report) -> Iterator[Line]:
    """Yield the lines of each pair: section `pairs`, then `pair groups` and `pair keys`.

    Groups are the values of --by, in the column `by`; keys, in the column `key`, are those with the
    most time, and have no percentiles. `share` is of the time of all pairs of that declaration,
    `ios` the number of pairs.
    """
    for pair in report.pairs:
        yield {"section": "pairs", **_line(pair.name, pair.time, pair.time, report.span_ns)}
        for group in pair.groups:
            line = _line(pair.name, group.time, pair.time, report.span_ns)
            yield {"section": "pair groups", **line, "by": group.text}
        yield from _key_lines(pair, report.span_ns)


def interval_pair_lines(report: Report) -> Iterator[Line]:
    """Yield the lines of pairs in intervals, section `pair intervals`; without `share`."""
    for interval in report.intervals:
        span = interval.end_ns - interval.begin_ns
        times = {"begin_ns": interval.begin_ns, "end_ns": interval.end_ns}
        for pair in interval.pairs:
            line = _line(pair.name, pair.time, pair.time, span)
            yield {"section": "pair intervals", **line, **times}


def _line(name: str, time: Summary, whole: Summary, span: int) -> Line:
    """Return a line on pairs with this name. whole: of all of them. span: ns, for the rate."""
    return {
        "pair": name,
        "of": "pairs",
        "stage": "all",
        "share": round(time.sum / max(whole.sum, 1), 6),
        **summary(time),
        "ios": time.count,
        "ios_per_s": _rate(time.count, span),
    }


def _key_lines(pair: PairReport, span: int) -> Iterator[Line]:
    """Yield a line for each key of a pair that the report has."""
    for key in pair.slowest_keys:
        yield {
            "section": "pair keys",
            "pair": pair.name,
            "key": key.text,
            "of": "pairs",
            "stage": "all",
            "share": round(key.sum_ns / max(pair.time.sum, 1), 6),
            "count": key.count,
            "sum_ns": key.sum_ns,
            "mean_ns": round(key.sum_ns / max(key.count, 1), 3),
            "max_ns": key.max_ns,
            "ios": key.count,
            "ios_per_s": _rate(key.count, span),
        }


def _rate(count: int, span: int) -> float:
    return round(count * 1e9 / max(span, 1), 3)
