# SPDX-License-Identifier: Apache-2.0
"""Sums of blame over a recording that goes on, which never go down."""

from collections import Counter

from biotrail.converters.analysis.blame.online import Online, Waits
from biotrail.converters.analysis.blame.tree import OTHERS
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles

MOST_VICTIMS = 64
"""Victims that are kept apart, the first ones; further ones are OTHERS."""
MOST_PAIRS = 256
"""Pairs of victim and culprit likewise; a victim's further culprits are OTHERS."""


class BlameTotals:
    """Adds up windows; memory is bounded by the pairs that are kept apart.

    A victim may wait for less than nothing: beside a culprit I/O may be faster than without. What
    is below zero is carried forward, so a sum is the most that it ever was.
    """

    def __init__(self, context: Context, by: str) -> None:
        self._online = Online(context, by)
        self.waited: Counter[str] = Counter()
        """Victim → Q2C of its I/Os, ns."""
        self.untold: Counter[str] = Counter()
        """Victim → that of I/Os of which it cannot be told who slowed them."""
        self.behind: Counter[tuple[str, str]] = Counter()
        """(victim, culprit) → ns."""
        self._rest: Counter[tuple[str, str]] = Counter()
        """(victim, culprit) → ns, 0 or less, that is carried forward."""

    def add(self, window: Lifecycles) -> None:
        """Add what has settled with the next window."""
        self.add_waits(self._online.add(window).waits)

    def finish(self) -> None:
        """Add what is left, after the last window."""
        self.add_waits(self._online.finish().waits)

    def add_waits(self, waits: Waits) -> None:
        """Add sums of a stretch of time."""
        for name, row in waits.rows.items():
            kept = name in self.waited or len(self.waited) < MOST_VICTIMS
            victim = name if kept else OTHERS
            self.waited[victim] += row.wait_ns
            self.untold[victim] += row.untold
            for culprit, ns in row.behind.items():
                self._add((victim, culprit), ns)

    def _add(self, pair: tuple[str, str], ns: int) -> None:
        kept = pair in self.behind or len(self.behind) < MOST_PAIRS
        pair = pair if kept else (pair[0], OTHERS)
        rest = self._rest[pair] + ns
        self.behind[pair] += max(rest, 0)
        self._rest[pair] = min(rest, 0)
