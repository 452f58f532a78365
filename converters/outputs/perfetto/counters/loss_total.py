# SPDX-License-Identifier: Apache-2.0
"""The counter of lost records."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.tables import I64
from biotrail.converters.outputs.counters import LEVEL_BIN, Samples

_LOSS_BINS = 1 << 16
"""Most bins of a LossTotal."""


@dataclass
class LossTotal:
    """Running total of lost records, from loss windows in any order.

    Memory is bounded: when there are too many bins, they become twice as wide.
    """

    _bin: int = LEVEL_BIN
    """Length of a bin, ns."""
    _lost: dict[int, int] = field(default_factory=dict)
    """Per bin number: records lost in it."""

    def add(self, end: I64, count: I64) -> None:
        """Add loss windows, the times in which a ring was full, to the records lost per bin.

        end (ns), count: per loss window its end, and how many records it lost; -1 (unknown) and 0
        add nothing. All count in the bin of `end`. Changes `_lost`; while it has more than 65,536
        bins, bins become twice as wide (`_bin`).
        """
        for at, lost in zip(end.tolist(), count.tolist(), strict=True):
            if lost > 0:
                key = at // self._bin
                self._lost[key] = self._lost.get(key, 0) + lost
        while len(self._lost) > _LOSS_BINS:
            self._bin *= 2
            wider: dict[int, int] = {}
            for key, lost in self._lost.items():
                wider[key // 2] = wider.get(key // 2, 0) + lost
            self._lost = wider

    @property
    def some(self) -> bool:
        """Whether any counted record was lost."""
        return bool(self._lost)

    def samples(self, at: int) -> Samples:
        """Return the whole counter as (times in ns, records lost so far), sorted by time.

        A zero at `at` (ns, the trace's begin), then a sample at the end of each bin in which a loss
        window ends: when within that window a record was lost is not known. Samples before `at` are
        moved to it, behind the zero.
        """
        keys = np.array(sorted(self._lost), dtype=np.int64)
        steps = np.array([self._lost[k] for k in keys.tolist()], dtype=np.int64)
        times = np.concatenate([[at], np.maximum((keys + 1) * self._bin, at)])
        return times, np.concatenate([[0.0], np.cumsum(steps).astype(float)])
