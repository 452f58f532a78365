# SPDX-License-Identifier: Apache-2.0
"""Slices of pairs of events, on a track for each key below a group for each pair."""

import numpy as np

from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.outputs.perfetto.columns import Slices
from biotrail.converters.outputs.perfetto.names import PAIR, Drawing
from biotrail.converters.outputs.perfetto.tree import PairTrack
from biotrail.converters.sites.pair_names import MOST_KEYS, DrawnPairs, PairNames

OTHERS = "other keys"
"""Name of the track of keys that have none of their own."""
_TRACK_BITS = 16


class PairMaker:
    def __init__(self, drawing: Drawing, tracks: dict[int, PairTrack]) -> None:
        """tracks: per `Slices.group` of a pair its track; filled here."""
        self._strings, self._tracks = drawing.strings, tracks
        self._declared = PairNames(drawing.context)
        names = drawing.names
        self._drawn = DrawnPairs(
            self._declared,
            self._track,
            lambda pair: self._track(pair, MOST_KEYS, OTHERS),
            lambda _, text: names.id(text),
            drawing.strings.id,
        )

    def pairs(self, pairs: Pairs) -> Slices:
        """Return a slice per pair that ended in the window, in the order of (start, number).

        Named by the value of --by, else by the pair's name. `group` is a key's track. Adds tracks
        to `tracks`.
        """
        if not len(pairs):
            return Slices.none(PAIR)
        pairs = pairs.take(np.lexsort((pairs.number, pairs.began)))
        group, shared = self._drawn.places(pairs)
        names = self._drawn.names(pairs).astype(np.uint64)
        slices = Slices.of_rows(PAIR, group, pairs.began, pairs.ended, names)
        slices.uint("number", pairs.number)
        slices.uint("tid", pairs.tid)
        slices.uint("cpu", pairs.cpu)
        slices.text("process", self._strings.of_bytes(pairs.comm))
        if shared.any():
            slices.uint("key0", pairs.key0, shared)
            slices.uint("key1", pairs.key1, shared)
            slices.text("key", self._drawn.texts(pairs, shared).astype(np.uint64))
        return slices

    def _track(self, pair: int, rank: int, key: str) -> int:
        code = pair << _TRACK_BITS | rank
        track = PairTrack(pair, self._declared.name(pair), key, rank)
        self._tracks.setdefault(code, track)
        return code
