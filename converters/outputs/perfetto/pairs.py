# SPDX-License-Identifier: Apache-2.0
"""Slices of pairs of events, on a track for each key below a group for each pair."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.events.tables import I64
from biotrail.converters.outputs.perfetto.columns import Slices
from biotrail.converters.outputs.perfetto.names import PAIR, Interned
from biotrail.converters.outputs.perfetto.tree import PairTrack
from biotrail.converters.sites.pair_names import PairNames

MOST_TRACKS = 256
"""Keys of a pair with a track of their own, the first that occur; further ones share one."""
OTHERS = "other keys"
"""Name of that track."""
MOST_TEXTS = 1_000
"""Values of --by that name slices, and further keys that are arguments as text: each text is
written anew for each track."""
_OTHERS = MOST_TRACKS
_TRACK_BITS = 16


@dataclass
class PairMaker:
    """Makes slices of the pairs of each window."""

    context: Context
    names: Interned
    """Event names."""
    strings: Interned
    """Values of text arguments."""
    tracks: dict[int, PairTrack]
    """Per `Slices.group` of a pair: its track; filled here."""
    _declared: PairNames = field(init=False)
    _codes: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Group by (pair, key0, key1)."""
    _tracks_of: Counter[int] = field(default_factory=Counter)
    """Number of tracks by pair, without that of other keys."""
    _texts: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Id of the text of a key, by (pair, key0, key1)."""
    _named: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Id of the name of a value of --by, by (pair, value)."""

    def __post_init__(self) -> None:
        """Take the declared pairs from the log's header."""
        self._declared = PairNames(self.context)

    def pairs(self, pairs: Pairs) -> Slices:
        """Return a slice per pair that ended in the window, in the order of (start, number).

        Named by the value of --by, else by the pair's name. `group` is a key's track. Adds tracks
        to `tracks`.
        """
        if not len(pairs):
            return Slices.none(PAIR)
        pairs = pairs.take(np.lexsort((pairs.number, pairs.began)))
        slices = Slices(
            PAIR,
            number=pairs.number,
            group=self._groups(pairs),
            start=pairs.began,
            end=pairs.ended,
            name=self._names(pairs),
            family=None,
            rows=np.arange(len(pairs)),
        )
        self._arguments(slices, pairs)
        return slices

    def _groups(self, pairs: Pairs) -> I64:
        keys, of = distinct(pairs.pair, pairs.key0, pairs.key1)
        codes = [self._code(*key) for key in keys]
        return np.array(codes, np.int64)[of]

    def _code(self, pair: int, key0: int, key1: int) -> int:
        """Return the number of a key's track, a new one if it is new and there is room."""
        code = self._codes.get((pair, key0, key1))
        if code is not None:
            return code
        name, rank = self._declared.name(pair), self._tracks_of[pair]
        if rank >= MOST_TRACKS:
            code = pair << _TRACK_BITS | _OTHERS
            self.tracks.setdefault(code, PairTrack(pair, name, OTHERS, _OTHERS))
            return code
        code = pair << _TRACK_BITS | rank
        self.tracks[code] = PairTrack(pair, name, self._declared.key(pair, key0, key1), rank)
        self._tracks_of[pair] += 1
        self._codes[pair, key0, key1] = code
        return code

    def _names(self, pairs: Pairs) -> np.ndarray:
        found, of = distinct(pairs.pair, pairs.by)
        ids = np.array([self._name(pair, value) for pair, value in found], np.uint64)
        return ids[of]

    def _name(self, pair: int, value: int) -> int:
        """Return the id of a name of slices: the value of --by, past MOST_TEXTS the pair's name."""
        known = self._named.get((pair, value))
        if known is not None:
            return known
        text = self._declared.by(pair, value) if len(self._named) < MOST_TEXTS else ""
        found = self.names.id(text or self._declared.name(pair))
        if len(self._named) < MOST_TEXTS:
            self._named[pair, value] = found
        return found

    def _arguments(self, slices: Slices, pairs: Pairs) -> None:
        slices.uint("number", pairs.number)
        slices.uint("tid", pairs.tid)
        slices.uint("cpu", pairs.cpu)
        comms, of = np.unique(pairs.comm, return_inverse=True)
        ids = [self.strings.id(comm.decode(errors="replace")) for comm in comms.tolist()]
        slices.text("process", np.array(ids, np.uint64)[of.reshape(-1)])
        shared = slices.group & (1 << _TRACK_BITS) - 1 == _OTHERS
        if shared.any():
            slices.uint("key0", pairs.key0, shared)
            slices.uint("key1", pairs.key1, shared)
            slices.text("key", self._keys(pairs, shared))

    def _keys(self, pairs: Pairs, shared: np.ndarray) -> np.ndarray:
        """Return per row the id of its key as text, for the first MOST_TEXTS such keys; else 0.

        shared: rows that are drawn among other keys.
        """
        rows = np.flatnonzero(shared)
        keys, of = distinct(pairs.pair[rows], pairs.key0[rows], pairs.key1[rows])
        for key in keys:
            if key not in self._texts and len(self._texts) < MOST_TEXTS:
                self._texts[key] = self.strings.id(self._declared.key(*key))
        found = np.zeros(len(pairs), np.uint64)
        found[rows] = np.array([self._texts.get(key, 0) for key in keys], np.uint64)[of]
        return found
