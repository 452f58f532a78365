# SPDX-License-Identifier: Apache-2.0
"""Figures of pairs of events by interval of time."""

import numpy as np

from biotrail.converters.analysis.distributions.series import LINGER_NS
from biotrail.converters.analysis.distributions.sketch import Distribution, add_grouped
from biotrail.converters.analysis.figures import Summary
from biotrail.converters.events.distinct import distinct
from biotrail.converters.events.site_tables import Pairs

Place = tuple[int, int]
"""(interval, index of the declared pair)."""


class PairSeries:
    """Latencies by the interval in which pairs ended, and by declared pair."""

    def __init__(self, interval: int) -> None:
        """Start without pairs. interval: ns of each."""
        self._interval = interval
        self._open: dict[Place, Distribution] = {}
        self._edge = 0
        self.closed: dict[Place, Summary] = {}
        """Summaries of intervals that ended LINGER_NS ago; after `finish` of all."""
        self.left_out = 0
        """Pairs that came after their interval was closed."""

    def add(self, pairs: Pairs, begin: int, now: int) -> None:
        """Add a window's pairs, then close old intervals.

        begin: ns where the first interval begins. now: end of the window, ns.
        """
        place = np.maximum(pairs.ended - begin, 0) // self._interval
        late = place < self._edge
        self.left_out += int(late.sum())
        pairs, place = pairs.take(~late), place[~late]
        rows, of = distinct(place, pairs.pair)
        into = [self._open.setdefault((row[0], row[1]), Distribution()) for row in rows]
        add_grouped(of, pairs.latency, into)
        self._close(max((now - LINGER_NS - begin) // self._interval, 0))

    def finish(self) -> None:
        """Close all intervals; to be called after the last window."""
        self._close(1 << 62)

    def _close(self, edge: int) -> None:
        """Summarize the open intervals before number `edge`: a distribution is large."""
        for place in [one for one in self._open if one[0] < edge]:
            self.closed[place] = Summary.of(self._open.pop(place))
        self._edge = max(self._edge, edge)
