# SPDX-License-Identifier: Apache-2.0
"""Between which times bios and requests ended, where their completions may be others' as well."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.identity.association import Association
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.tables import I64, NEVER, Bool, Certainty


@dataclass(frozen=True)
class Bounds:
    """Between which times each of n bios or requests ended; columns (n,).

    first, last: ns; one time where the completion is certainly its own; NEVER: it has not ended. A
    last of OPEN: not bounded. shared: whether the completion may be another one's. pending: whether
    a later event may say more.
    """

    first: I64
    last: I64
    shared: Bool
    pending: Bool

    def add_later(self, row: I64, parts: "Bounds") -> None:
        """Let each `row` (m,) end no sooner than the part at the same place of `parts` (m,)."""
        np.maximum.at(self.first, row, parts.first)
        np.maximum.at(self.last, row, parts.last)
        self.shared[row[parts.shared]] = True
        self.pending[row[parts.pending]] = True


def ends_between(a: Association, end: I64) -> Bounds:
    """Return the bounds of what the events `end` (n,) ended; -1: it has not ended."""
    first = take_or(a.events.ts, end, NEVER)
    last, bounds = first.copy(), a.events.bounds
    shared, pending = np.zeros(len(end), np.bool_), np.zeros(len(end), np.bool_)
    if a.events.doubt is not None:
        shared = take_or(a.events.doubt, end, 0) == Certainty.AMBIGUOUS
        numbers = a.events.number[end[shared]]
        pending[shared] = bounds.are_pending(numbers)
        first[shared], last[shared] = bounds.of(numbers)
    return Bounds(first, last, shared, pending)
