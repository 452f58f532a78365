# SPDX-License-Identifier: Apache-2.0
"""Write the locations of pairs of events: a region for each pair, at a location for each key."""

from collections import defaultdict
from heapq import heappop, heappush

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.events.tables import U32, Lifecycles
from biotrail.converters.outputs.otf2.archive import Archive
from biotrail.converters.outputs.otf2.attributes import AttributeColumn, attribute
from biotrail.converters.outputs.otf2.handles import Handles, PairPlace
from biotrail.converters.outputs.otf2.records import Column
from biotrail.converters.outputs.otf2.threads import CALL_SHAPES, CallPhase
from biotrail.converters.outputs.otf2.writer import REGION, WRITE_EVENTS, InTurn
from biotrail.converters.sites.pair_names import DrawnPairs, PairNames

PAIR_SHAPES = {key: CALL_SHAPES[key] for key in (int(CallPhase.ENTER), int(CallPhase.LEAVE))}
"""A pair is Enter and Leave, as a call."""


class PairLocations(InTurn):
    """Writes the pairs of a log, window by window, as they end."""

    def __init__(self, archive: Archive, handles: Handles, context: Context) -> None:
        super().__init__(archive)
        self._handles = handles
        self._names = PairNames(context)
        self._drawn = DrawnPairs(
            self._names,
            lambda pair, _rank, key: self._location(pair, key),
            lambda _pair: -1,
            lambda pair, text: handles.pair_region(
                text, self._names.name(pair), self._names.events(pair)
            ),
            archive.string,
        )
        self._shared: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """Per pair a heap of its locations of other keys: (end ns of the last pair, number)."""
        self.pairs = 0
        """Pairs that were written."""

    def add(self, window: Lifecycles) -> None:
        """Write the pairs that ended in a window, the log's next. Raises OutputError."""
        if window.sites is None or not len(window.sites.pairs):
            return
        pairs = window.sites.pairs
        pairs = pairs.take(np.lexsort((pairs.number, pairs.began)))
        self.pairs += len(pairs)
        place, shared = self._drawn.places(pairs)
        # A key's pairs follow each other, so a location has one at a time; those of other keys go
        # to the first shared location that is free.
        for row in np.flatnonzero(shared).tolist():
            began, ended = int(pairs.began[row]), int(pairs.ended[row])
            place[row] = self._free(int(pairs.pair[row]), began, ended)
        regions = self._drawn.names(pairs).astype(np.uint32)
        texts = self._drawn.texts(pairs, shared).astype(np.uint32)
        order = np.argsort(place, kind="stable")
        edges = np.flatnonzero(np.diff(place[order], prepend=-1))
        for begin, end in zip(edges, [*edges[1:], len(order)], strict=True):
            for start in range(int(begin), int(end), WRITE_EVENTS // 2):
                rows = order[start : min(start + WRITE_EVENTS // 2, int(end))]
                self._write(int(place[rows[0]]), pairs.take(rows), regions[rows], texts[rows])

    def _write(self, number: int, pairs: Pairs, regions: U32, texts: U32) -> None:
        """Write pairs of one location, in the order of their begins, behind what it has."""
        time = np.stack([pairs.began, pairs.ended], axis=1).reshape(-1)
        phases = (int(CallPhase.ENTER), int(CallPhase.LEAVE))
        phase = np.tile(np.array(phases, dtype=np.uint8), len(pairs))
        columns: dict[str, Column] = {REGION.name: np.repeat(regions, 2)}
        carried = self._attributes(pairs, texts, phase)
        self._put(number, time, phase, PAIR_SHAPES, columns, carried)

    def _attributes(self, pairs: Pairs, texts: U32, phase: Column) -> list[AttributeColumn]:
        """Return the attributes of all events: the key at Enter, who ended the pair at Leave."""
        leaves = phase == CallPhase.LEAVE
        names, of = np.unique(pairs.comm, return_inverse=True)
        numbers = [self._archive.string(name.decode(errors="replace")) for name in names.tolist()]
        comm = np.array(numbers, dtype=np.uint32)[of.reshape(-1)]
        key = np.repeat(texts, 2)
        return [
            attribute("key", key, ~leaves & (key > 0)),
            attribute("ended by", np.repeat(comm, 2), leaves),
            attribute("ended by tid", np.repeat(pairs.tid, 2), leaves),
            attribute("ended on CPU", np.repeat(pairs.cpu.astype(np.uint32), 2), leaves),
        ]

    def _free(self, pair: int, began: int, ended: int) -> int:
        """Return the number of a location of other keys, which has this pair (ns) from now on.

        The one that has been free for longest; a new one if none is free at `began`.
        """
        lanes = self._shared[pair]
        if lanes and lanes[0][0] <= began:
            _, number = heappop(lanes)
        else:
            number = self._location(pair, f"other keys {len(lanes) + 1}")
        heappush(lanes, (ended, number))
        return number

    def _location(self, pair: int, key: str) -> int:
        return self._handles.pair(PairPlace(self._names.name(pair), key)).number
