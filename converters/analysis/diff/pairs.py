# SPDX-License-Identifier: Apache-2.0
"""Comparison of two recordings' pairs of events: by name, and by value of --by."""

from collections.abc import Iterator

import numpy as np

from biotrail.converters.analysis.diff.figures import PERCENTILES, compare, ratio, times
from biotrail.converters.analysis.diff.side import Named, Side, per_second
from biotrail.converters.analysis.diff.tree import Figure, PairDiff
from biotrail.converters.analysis.distributions.slots import LatencySlots


def pair_diffs(a: Side, b: Side, confidence: float) -> list[PairDiff]:
    """Return the pairs of each name compared, with their rates and latencies.

    In order: by name, those with most time (on the longer side) first; of each name all pairs, then
    each value of --by, those with most time first. A value that one side does not have is compared,
    too; a name that one side does not have is left out. confidence: of the intervals, 0 to 1.
    """
    in_a, in_b = a.recording.slots.pairs.by_name, b.recording.slots.pairs.by_name
    both = {name for name, by in in_a if not by} & {name for name, by in in_b if not by}
    whole: dict[str, int] = {}
    found = []
    for name, by in dict.fromkeys([*in_a, *in_b]):
        if name not in both:
            continue
        slots = in_a.get((name, by), {}), in_b.get((name, by), {})
        most = max(sum(one.sum for one in side.values()) for side in slots)
        counts = [sum(one.count for one in side.values()) for side in slots]
        if not by:
            whole[name] = most
        figures = list(_figures((a, slots[0]), (b, slots[1]), confidence))
        found.append((most, PairDiff(name, by, counts[0], counts[1], figures)))
    found.sort(key=lambda row: (-whole[row[1].pair], row[1].pair, row[1].by != "", -row[0]))
    return [one for _, one in found]


def _figures(
    a: tuple[Side, LatencySlots], b: tuple[Side, LatencySlots], confidence: float
) -> Iterator[Figure]:
    """Yield the rate of pairs, then mean and percentiles of their latency (stage "all").

    a, b: of each side, the latencies by slot; empty: it has none. `of` is "pairs".
    """
    for stage, unit, first, second in (
        (None, "1/s", _rate(*a), _rate(*b)),
        ("all", "ns", _times(*a), _times(*b)),
    ):
        for name in first:
            yield compare(("pairs", stage, name, unit), first[name], second[name], confidence)


def _rate(side: Side, slots: LatencySlots) -> Named:
    """Return "pairs_per_s" of one side; without a value where there are no pairs."""
    count = np.zeros(len(side.seconds), dtype=np.int64)
    for slot, latencies in slots.items():
        count[slot] = latencies.count
    return {"pairs_per_s": per_second(ratio(count, side.seconds, side.drawn), count)}


def _times(side: Side, slots: LatencySlots) -> Named:
    """Return the mean and PERCENTILES of one side's latencies, ns."""
    found = times(slots, len(side.seconds), side.drawn)
    return dict(zip(("mean", *PERCENTILES), found, strict=True))
