# SPDX-License-Identifier: Apache-2.0
"""Figures of timed system calls by name and slot of time, for the block bootstrap of `diff`."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.call_figures import (
    CallFigures,
    by_pair,
    coded,
    named,
)
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles

MOST_NAMES = 64
"""Names of calls, with and without I/O, that are kept; calls of later ones are `left_out`."""

Named = tuple[str, bool]
"""(name of a call, whether the calls did I/O)"""


@dataclass
class CallSlots:
    """Figures of one recording's calls, by name and by the slot in which they returned."""

    by_name: dict[Named, dict[int, CallFigures]] = field(default_factory=dict)
    """Name → slot → figures; slots without such a call are absent."""
    left_out: int = 0
    """Calls of names past the first MOST_NAMES."""

    def add(self, window: Lifecycles, context: Context, origin: int, width: int) -> None:
        """Add a window's timed calls, with known entry or not, to the slots in which they returned.

        Calls that returned before `origin` are in slot 0. Once there are MOST_NAMES names, calls of
        further ones are only counted in `left_out`. context: the log's. origin: ns where slot 0
        begins. width: ns of a slot.
        """
        if window.path is None:
            return
        calls = window.path.calls.take(window.path.calls.timed)
        slot = np.maximum(calls.exit - origin, 0) // width
        for code, one, rows in by_pair(coded(calls), slot):
            known = named(code, context)
            if known not in self.by_name and len(self.by_name) >= MOST_NAMES:
                self.left_out += len(rows)
                continue
            slots = self.by_name.setdefault(known, {})
            slots.setdefault(one, CallFigures()).add(calls.take(rows), known[0])

    def widen(self) -> None:
        """Merge slots 2i and 2i + 1 into slot i."""
        for name, slots in self.by_name.items():
            merged: dict[int, CallFigures] = {}
            for slot, figures in slots.items():
                merged.setdefault(slot >> 1, CallFigures()).merge(figures)
            self.by_name[name] = merged

    def add_all(self, other: "CallSlots", offset: int) -> None:
        """Add other slots of the same width behind the first `offset`; `other` is not changed.

        Slot i of `other` becomes slot i + offset, merged by name; MOST_NAMES is not applied.
        `left_out` adds up.
        """
        self.left_out += other.left_out
        for name, slots in other.by_name.items():
            ours = self.by_name.setdefault(name, {})
            for slot, figures in slots.items():
                ours.setdefault(slot + offset, CallFigures()).merge(figures)
