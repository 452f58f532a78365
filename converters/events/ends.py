# SPDX-License-Identifier: Apache-2.0
"""Between which times I/O ended whose own completion is not known for sure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.tables import I64, Bool

SHARE = 10
"""A latency is in doubt where its bounds differ by more than this part (a tenth) of the lower."""
OPEN = np.int64(1 << 62)
"""ns: later than any time; the end is not bounded."""


@dataclass
class EndBounds:
    """Of completions that could be of several I/Os, by `Events.number`: when its I/O ended.

    known: first and last time (ns) at which the I/O that the completion was given to may have
    ended. pending: those of which a later event may still say it. What is in neither is not
    bounded.
    """

    known: dict[int, tuple[int, int]] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)

    def of(self, numbers: I64) -> tuple[I64, I64]:
        """Return the first and the last end (ns), int64 (n,) each; OPEN: not bounded."""
        open_ = int(OPEN)
        found = [self.known.get(number, (open_, open_)) for number in numbers.tolist()]
        table = np.array(found, dtype=np.int64).reshape(len(found), 2)
        return table[:, 0], table[:, 1]

    def are_pending(self, numbers: I64) -> Bool:
        """Return of which numbers (n,) the bounds are still to come."""
        return np.isin(numbers, np.array(sorted(self.pending), dtype=np.int64))

    def forget(self, numbers: Iterable[int]) -> None:
        """Drop what is known of events that no later window needs."""
        for number in numbers:
            self.known.pop(number, None)
