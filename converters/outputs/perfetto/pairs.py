# SPDX-License-Identifier: Apache-2.0
"""Slices of pairs of events, on a track for each key below a group for each pair."""

from collections import Counter

import numpy as np

from biotrail.converters.events.distinct import distinct
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.outputs.perfetto.columns import Slices
from biotrail.converters.outputs.perfetto.names import PAIR, Drawing
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


class PairMaker:
    """Makes slices of the pairs of each window."""

    def __init__(self, drawing: Drawing, tracks: dict[int, PairTrack]) -> None:
        """tracks: per `Slices.group` of a pair its track; filled here."""
        self._names, self._strings, self._tracks = drawing.names, drawing.strings, tracks
        self._declared = PairNames(drawing.context)
        self._codes: dict[tuple[int, ...], int] = {}
        """Group by (pair, key0, key1)."""
        self._tracks_of = Counter[int]()
        """Number of tracks by pair, without that of other keys."""
        self._texts: dict[tuple[int, ...], int] = {}
        """Id of the text of a key, by (pair, key0, key1)."""
        self._named: dict[tuple[int, ...], int] = {}
        """Id of the name of a value of --by, by (pair, value)."""

    def pairs(self, pairs: Pairs) -> Slices:
        """Return a slice per pair that ended in the window, in the order of (start, number).

        Named by the value of --by, else by the pair's name. `group` is a key's track. Adds tracks
        to `tracks`.
        """
        if not len(pairs):
            return Slices.none(PAIR)
        pairs = pairs.take(np.lexsort((pairs.number, pairs.began)))
        keys, of_key = distinct(pairs.pair, pairs.key0, pairs.key1)
        group = np.array([self._code(*key) for key in keys], np.int64)[of_key]
        found, of = distinct(pairs.pair, pairs.by)
        names = np.array([self._name(*one) for one in found], np.uint64)[of]
        slices = Slices.of_rows(PAIR, group, pairs.began, pairs.ended, names)
        slices.uint("number", pairs.number)
        slices.uint("tid", pairs.tid)
        slices.uint("cpu", pairs.cpu)
        slices.text("process", self._strings.of_bytes(pairs.comm))
        shared = group & (1 << _TRACK_BITS) - 1 == _OTHERS
        if shared.any():
            slices.uint("key0", pairs.key0, shared)
            slices.uint("key1", pairs.key1, shared)
            rows = np.flatnonzero(shared)
            keys, of = distinct(pairs.pair[rows], pairs.key0[rows], pairs.key1[rows])
            for key in keys:
                if key not in self._texts and len(self._texts) < MOST_TEXTS:
                    self._texts[key] = self._strings.id(self._declared.key(*key))
            texts = np.zeros(len(pairs), np.uint64)
            texts[rows] = np.array([self._texts.get(key, 0) for key in keys], np.uint64)[of]
            slices.text("key", texts)
        return slices

    def _code(self, pair: int, key0: int, key1: int) -> int:
        """Return the number of a key's track, a new one if it is new and there is room."""
        code = self._codes.get((pair, key0, key1))
        if code is not None:
            return code
        name, rank = self._declared.name(pair), self._tracks_of[pair]
        if rank >= MOST_TRACKS:
            code = pair << _TRACK_BITS | _OTHERS
            self._tracks.setdefault(code, PairTrack(pair, name, OTHERS, _OTHERS))
            return code
        code = pair << _TRACK_BITS | rank
        self._tracks[code] = PairTrack(pair, name, self._declared.key(pair, key0, key1), rank)
        self._tracks_of[pair] += 1
        self._codes[pair, key0, key1] = code
        return code

    def _name(self, pair: int, value: int) -> int:
        """Return the id of a name of slices: the value of --by, past MOST_TEXTS the pair's name."""
        known = self._named.get((pair, value))
        if known is not None:
            return known
        text = self._declared.by(pair, value) if len(self._named) < MOST_TEXTS else ""
        found = self._names.id(text or self._declared.name(pair))
        if len(self._named) < MOST_TEXTS:
            self._named[pair, value] = found
        return found
