# SPDX-License-Identifier: Apache-2.0
"""Latencies of pairs of events by name and slot of time, for the block bootstrap of `diff`."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.sketch import Distribution, add_grouped
from biotrail.converters.events.distinct import distinct
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.events.tables import I64, Lifecycles
from biotrail.converters.sites.pair_names import PairNames

MOST_NAMES = 64
"""Values of --by, of all pairs together, that are kept; pairs of later ones are `left_out`."""

Slots = dict[int, Distribution]
"""Slot → latencies (ns) of the pairs that ended in it; empty slots are absent."""
Named = tuple[str, str]
"""(name of the declared pair, value of --by as text; "": all pairs of that name)"""


@dataclass
class PairSlots:
    """Latencies of one recording's pairs by declaration, by value of --by, and by slot."""

    by_name: dict[Named, Slots] = field(default_factory=dict)
    """Name → slots; empty until `name`."""
    left_out: int = 0
    """Pairs of values of --by past the first MOST_NAMES; they are among all of their name."""
    _whole: dict[int, Slots] = field(default_factory=dict)
    """Index of the declared pair → slots."""
    _groups: dict[tuple[int, int], Slots] = field(default_factory=dict)
    """(index of the declared pair, value of --by) → slots."""

    def add(self, window: Lifecycles, names: PairNames, origin: int, width: int) -> None:
        """Add a window's pairs to the slots in which they ended; slot 0 if before `origin`.

        names: the log's. origin: ns where slot 0 begins. width: ns of a slot.
        """
        if window.sites is None or not len(window.sites.pairs):
            return
        pairs = window.sites.pairs
        slot = np.maximum(pairs.ended - origin, 0) // width
        rows, of = distinct(pairs.pair, slot)
        into = [self._whole.setdefault(p, {}).setdefault(s, Distribution()) for p, s in rows]
        add_grouped(of, pairs.latency, into)
        numbers = np.unique(pairs.pair)
        told = numbers[[names.has_by(number) for number in numbers.tolist()]]
        chosen = np.isin(pairs.pair, told)
        self._add_groups(pairs.take(chosen), slot[chosen])

    def _add_groups(self, pairs: Pairs, slot: I64) -> None:
        """Add pairs by their value of --by. slot: (n,), of each pair."""
        rows, of = distinct(pairs.pair, pairs.by)
        for pair, value in rows:
            if (pair, value) not in self._groups and len(self._groups) < MOST_NAMES:
                self._groups[pair, value] = {}
        known = np.array([(p, v) in self._groups for p, v in rows], dtype=np.bool_)[of]
        self.left_out += int((~known).sum())
        pairs, slot = pairs.take(known), slot[known]
        cells, of = distinct(pairs.pair, pairs.by, slot)
        into = [self._groups[p, v].setdefault(s, Distribution()) for p, v, s in cells]
        add_grouped(of, pairs.latency, into)

    def widen(self) -> None:
        """Merge slots 2i and 2i + 1 into slot i."""
        for held in (self._whole, self._groups, self.by_name):
            for slots in held.values():
                found = sorted(slots.items())
                slots.clear()
                for slot, times in found:
                    slots.setdefault(slot >> 1, Distribution()).merge(times)

    def name(self, names: PairNames) -> None:
        """Fill `by_name`; to be called once, after the last window.

        names: as the log's END has them: functions' names are known only then. Values that are
        shown alike are one.
        """
        for number, slots in sorted(self._whole.items()):
            self._merge((names.name(number), ""), slots, 0)
        for (number, value), slots in self._groups.items():
            self._merge((names.name(number), names.by(number, value)), slots, 0)
        self._whole, self._groups = {}, {}

    def add_all(self, other: "PairSlots", offset: int) -> None:
        """Add the named slots of another recording, of the same width, behind the first `offset`.

        `other` is not changed. `left_out` adds up; MOST_NAMES is not applied.
        """
        self.left_out += other.left_out
        for name, slots in other.by_name.items():
            self._merge(name, slots, offset)

    def _merge(self, name: Named, slots: Slots, offset: int) -> None:
        """Add slots to those of `name`: slot i to slot i + offset."""
        ours = self.by_name.setdefault(name, {})
        for slot, times in slots.items():
            ours.setdefault(slot + offset, Distribution()).merge(times)
