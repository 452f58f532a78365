# SPDX-License-Identifier: Apache-2.0
"""Comparison of what victims waited for in two recordings: parts of the mean of each I/O."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from biotrail.converters.analysis.blame.tree import OTHERS
from biotrail.converters.analysis.diff.figures import Estimate, compare, ratio
from biotrail.converters.analysis.diff.side import Side
from biotrail.converters.analysis.diff.tree import BlameDiff, Figure
from biotrail.converters.analysis.distributions.slots import WHOLE
from biotrail.converters.events.tables import I64

MOST_VICTIMS = 8
MOST_PARTS = 8
"""Parts of a victim's time, on the side where each is longer; the rest is counted."""


def blame_diffs(a: Side, b: Side, confidence: float, *, every: bool = False) -> list[BlameDiff]:
    """Return the victims of both recordings compared, those with most time first.

    Empty unless both were blamed by the same. A culprit that is on one side alone costs nothing on
    the other. every: all victims and parts; else the first MOST_VICTIMS and MOST_PARTS. confidence:
    of the intervals, 0 to 1.
    """
    one, two = a.recording.slots.blame, b.recording.slots.blame
    if not one.by or one.by != two.by:
        return []
    time = {
        victim: max(sum(side.parts(victim).values()) for side in (one, two))
        for victim in one.ios
        if victim in two.ios and victim != OTHERS
    }
    ranked = sorted(time, key=lambda victim: (-time[victim], victim))
    found = []
    for victim in ranked if every else ranked[:MOST_VICTIMS]:
        counts = [sum(side.ios[victim].values()) for side in (one, two)]
        means = [
            {part: ns / max(count, 1) for part, ns in side.parts(victim).items()}
            for side, count in zip((one, two), counts, strict=True)
        ]
        most = {part: max(of.get(part, 0.0) for of in means) for of in means for part in of}
        parts = sorted(most, key=lambda part: (-most[part], part))
        shown = parts if every else parts[:MOST_PARTS]
        figures = list(_figures(a, b, victim, shown, confidence))
        share = time[victim] / max(sum(time.values()), 1)
        left = len(parts) - len(shown)
        found.append(BlameDiff(victim, counts[0], counts[1], share, figures, left))
    return found


def _figures(
    a: Side, b: Side, victim: str, parts: list[str], confidence: float
) -> Iterator[Figure]:
    """Yield the mean of a victim's I/Os, then what each part adds to it."""
    for part in (WHOLE, *parts):
        one, two = _mean(a, victim, part), _mean(b, victim, part)
        yield compare(("blame", part, "mean", "ns"), one, two, confidence)


def _mean(side: Side, victim: str, part: str) -> Estimate:
    ios = _column(side, side.recording.slots.blame.ios[victim])
    return ratio(_ns(side, victim, part), ios, side.drawn)


def _ns(side: Side, victim: str, part: str) -> I64:
    """Return the ns of a part in each slot, (slots,); of WHOLE all parts."""
    waits = side.recording.slots.blame.waits
    if part != WHOLE:
        return _column(side, waits.get((victim, part), Counter()))
    whole = Counter[int]()
    for (name, _), slots in waits.items():
        if name == victim:
            for slot, ns in slots.items():
                whole[slot] += ns
    return _column(side, whole)


def _column(side: Side, values: Counter[int]) -> I64:
    """Return the values of slots as int64 (slots,); 0 for others."""
    column = np.zeros(len(side.seconds), dtype=np.int64)
    for slot, value in values.items():
        column[min(slot, len(column) - 1)] += value
    return column
