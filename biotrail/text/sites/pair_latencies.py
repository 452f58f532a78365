# SPDX-License-Identifier: Apache-2.0
"""Latencies of pairs as text and JSON. Imports only what recording needs."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from biotrail.recorder.probes.sites.latencies import BOUNDS, Latencies
from biotrail.recorder.probes.sites.pair_facts import by_value, shown
from biotrail.recorder.probes.sites.pairs import PairCounts
from biotrail.recorder.sites.resolving import ResolvedPair
from biotrail.text import units
from biotrail.text.bars import Bars

SHARES = (0.5, 0.9, 0.99, 0.999)
NAMES = ("p50", "p90", "p99", "p99.9")
_NOTES = {
    "open": ("begin without an end so far", "begins without an end so far"),
    "no_begin": ("end without a begin", "ends without a begin"),
    "overwritten": (
        "begin replaced by another with the same key",
        "begins replaced by another with the same key",
    ),
    "full": (
        "begin LOST as too many were open: use a larger --max-open",
        "begins LOST as too many were open: use a larger --max-open",
    ),
    "bad_begin": ("begin with an unreadable field", "begins with an unreadable field"),
    "bad_end": ("end with an unreadable field", "ends with an unreadable field"),
    "left_begin": (
        "begin left out by filters or conditions",
        "begins left out by filters or conditions",
    ),
    "left_end": (
        "pair left out by a condition on its end",
        "pairs left out by a condition on their end",
    ),
}
_LEFT_ENDS = (
    "end whose begin was left out, or not seen",
    "ends whose begin was left out, or not seen",
)


def histogram(found: Latencies) -> Iterator[str]:
    """Yield a histogram in ns by powers of two, then its figures; nothing of no latencies.

    As bcc's print_log2_hist prints it with strip_leading_zero.
    """
    counts = found.octaves()
    used = np.flatnonzero(counts)
    if not len(used):
        return
    bars = Bars(int(counts.max()), (1 << int(used[-1]) + 1) - 1)
    yield bars.heading("nsecs")
    for octave in range(int(used[0]), int(used[-1]) + 1):
        low, high = (1 << octave if octave else 0), (1 << octave + 1) - 1
        yield bars.row(low, high, int(counts[octave]))
    yield figures(found)


def figures(found: Latencies) -> str:
    """Return a line with the count, the mean, percentiles and the maximum."""
    values = [*zip(NAMES, found.percentiles(SHARES), strict=True), ("max", float(found.max))]
    parts = [f"{name} {units.duration(value)}" for name, value in values]
    mean = units.duration(found.mean)
    return f"{units.plural(found.count, 'pair')}, mean {mean}, {', '.join(parts)}"


def title(pair: ResolvedPair, value: str = "") -> str:
    """Return the line above a pair's histogram. value: of --by; "": there is none."""
    name = pair.pair.name
    return f"{name}, {pair.by} = {value}" if value else name


def lines(
    pair: ResolvedPair, rest: Latencies, by: dict[int, Latencies], names: dict[int, str]
) -> Iterator[str]:
    """Yield a pair's histograms, that of the most pairs last; nothing where there are no pairs.

    rest: latencies without --by, or of values beyond those that have a histogram of their own.
    names: of functions by address.
    """
    if rest.count:
        yield ""
        yield title(pair, "(all others)" if pair.by else "")
        yield from histogram(rest)
    for value, found in sorted(by.items(), key=lambda item: item[1].count):
        if found.count:
            yield ""
            yield title(pair, shown(by_value(pair), value, names))
            yield from histogram(found)


def count_lines(pair: ResolvedPair, total: Latencies, counts: PairCounts) -> Iterator[str]:
    """Yield what became of a pair's events: a line, without the counts that are 0."""
    notes = dict(_NOTES)
    if counts.left_begin:  # the ends of these are among those without a begin
        notes["no_begin"] = _LEFT_ENDS
    parts = [
        f"{units.count(number)} {notes[name][number != 1]}"
        for name, number in counts.account().items()
        if number
    ]
    pairs = units.plural(total.count, "pair")
    yield f"{pair.pair.name}: {pairs}" + "".join(f"; {part}" for part in parts)


def as_json(
    pair: ResolvedPair, rest: Latencies, by: dict[int, Latencies], names: dict[int, str]
) -> list[dict[str, Any]]:
    """Return a pair's latencies: an object for each value of --by, and for the rest."""
    found = [
        {"by": value, "by_text": shown(by_value(pair), value, names), **_figures_json(one)}
        for value, one in sorted(by.items())
        if one.count
    ]
    if rest.count or not pair.by:
        found.append({"by": None, "by_text": "others" if pair.by else "", **_figures_json(rest)})
    return found


def _figures_json(found: Latencies) -> dict[str, Any]:
    percentiles = zip(NAMES, found.percentiles(SHARES), strict=True)
    used = np.flatnonzero(found.slots).tolist()
    return {
        "count": found.count,
        "sum_ns": found.sum,
        "mean_ns": round(found.mean, 1),
        **{f"{name}_ns": round(value) for name, value in percentiles},
        "max_ns": found.max,
        "histogram": [
            {
                "from_ns": int(BOUNDS[slot]),
                "below_ns": int(BOUNDS[slot + 1]),
                "count": int(found.slots[slot]),
            }
            for slot in used
        ],
    }
