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
    """Name of the declared pair."""
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
    """Index of the record among the log's events."""

    @property
    def latency_ns(self) -> int:
        return self.ended_ns - self.began_ns


@dataclass
class SlowestPairs:
    """The slowest pairs so far. `add` takes `Trace.lifecycles`' windows in order."""

    context: Context
    top: int
    """How many are kept at most."""
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
        names = PairNames(self.context)
        rows = self._kept[0] if self._kept else None
        return [] if rows is None else [_row(rows, at, names) for at in range(len(rows))]


def _row(rows: Pairs, at: int, names: PairNames) -> SlowPair:
    pair = int(rows.pair[at])
    return SlowPair(
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
