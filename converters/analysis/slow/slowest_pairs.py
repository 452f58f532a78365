# SPDX-License-Identifier: Apache-2.0
"""The slowest pairs of events of a log, in one pass."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.sites.pair_names import PairNames


@dataclass(frozen=True)
class SlowPair:
    """A pair of events. Times in ns of CLOCK_MONOTONIC."""

    pair: str
    by: str
    """Value of --by as text; "" without."""
    key: str
    began_ns: int
    ended_ns: int
    tid: int
    """Thread of the second event; `comm` its name, `cpu` where it ran."""
    comm: str
    cpu: int
    number: int

    @property
    def latency_ns(self) -> int:
        return self.ended_ns - self.began_ns


@dataclass
class SlowestPairs:
    context: Context
    top: int
    over_ns: int = 0
    """Only pairs that took at least this long are taken; they are counted in `slower`."""
    count: int = 0
    slower: int = 0
    _kept: list[Pairs] = field(default_factory=list)

    def add(self, window: Lifecycles) -> None:
        if window.sites is None or not len(window.sites.pairs):
            return
        pairs = window.sites.pairs
        self.count += len(pairs)
        pairs = pairs.take(pairs.latency >= self.over_ns)
        self.slower += len(pairs)
        both = Pairs.concatenate([*self._kept, pairs])
        self._kept = [both.take(np.argsort(-both.latency, kind="stable")[: self.top])]

    def found(self) -> list[SlowPair]:
        """Equal ones in the order of the log."""
        names, found = PairNames(self.context), []
        for rows in self._kept:
            for at in range(len(rows)):
                pair = int(rows.pair[at])
                one = SlowPair(
                    pair=names.name(pair),
                    by=names.by(pair, int(rows.by[at])),
                    key=names.key(pair, int(rows.key0[at]), int(rows.key1[at])),
                    began_ns=int(rows.began[at]),
                    ended_ns=int(rows.ended[at]),
                    tid=int(rows.tid[at]),
                    comm=rows.comm[at].decode(errors="replace"),
                    cpu=int(rows.cpu[at]),
                    number=int(rows.number[at]),
                )
                found.append(one)
        return found
