# SPDX-License-Identifier: Apache-2.0
"""Write the locations of pairs of events: a region for each pair, at a location for each key."""

from collections import Counter, defaultdict
from heapq import heappop, heappush

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.events.tables import I64, NEVER, U32, Bool, Lifecycles
from biotrail.converters.outputs.otf2.archive import Archive
from biotrail.converters.outputs.otf2.attributes import AttributeColumn, attribute
from biotrail.converters.outputs.otf2.handles import Handles, PairPlace
from biotrail.converters.outputs.otf2.records import Column, encode
from biotrail.converters.outputs.otf2.threads import CALL_SHAPES, CallPhase, in_order
from biotrail.converters.outputs.otf2.writer import REGION, WRITE_EVENTS, stamped
from biotrail.converters.sites.pair_names import PairNames

MOST_KEYS = 256
"""Keys of a pair with a location of their own, the first that occur; further ones share some."""
MOST_TEXTS = 1_000
"""Values of --by that have a region of their own, and further keys that are attributes as text:
each text is a definition."""
PAIR_SHAPES = {key: CALL_SHAPES[key] for key in (int(CallPhase.ENTER), int(CallPhase.LEAVE))}
"""A pair is Enter and Leave, as a call."""


class PairLocations:
    """Writes the pairs of a log, window by window, as they end."""

    def __init__(self, archive: Archive, handles: Handles, context: Context) -> None:
        """Write into `archive`; nothing is written yet.

        handles: numbers locations and regions. context: the log's, whose header declares the pairs.
        """
        self._archive = archive
        self._handles = handles
        self._names = PairNames(context)
        self._keys: dict[tuple[int, int, int], int] = {}
        """Number of the location of each (pair, key0, key1) that has one."""
        self._keys_of: Counter[int] = Counter()
        """How many keys of a pair have one."""
        self._shared: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """Per pair a heap of its locations of other keys: (end ns of the last pair, number)."""
        self._regions: dict[tuple[int, int], int] = {}
        """Number of the region of (pair, value of --by)."""
        self._texts: dict[tuple[int, ...], int] = {}
        """Number of a key's text, of other keys."""
        self._last: dict[int, int] = {}
        """Per location: time (ns) of its newest event."""
        self.pairs = 0
        """Pairs that were written."""
        self.moved = 0
        """Times that were moved to keep OTF2's order."""
        self.first_ns = NEVER
        """Time (ns) of the earliest event."""
        self.last_ns = NEVER

    def add(self, window: Lifecycles) -> None:
        """Write the pairs that ended in a window, the log's next.

        Creates locations and regions in `handles`. Changes the class's counts. Raises OutputError
        where writing fails.
        """
        if window.sites is None or not len(window.sites.pairs):
            return
        pairs = window.sites.pairs
        pairs = pairs.take(np.lexsort((pairs.number, pairs.began)))
        self.pairs += len(pairs)
        place, shared = self._places(pairs)
        regions, texts = self._regions_of(pairs), self._key_texts(pairs, shared)
        order = np.argsort(place, kind="stable")
        edges = np.flatnonzero(np.diff(place[order], prepend=-1))
        for begin, end in zip(edges, [*edges[1:], len(order)], strict=True):
            for start in range(int(begin), int(end), WRITE_EVENTS // 2):
                rows = order[start : min(start + WRITE_EVENTS // 2, int(end))]
                self._write(int(place[rows[0]]), pairs.take(rows), regions[rows], texts[rows])

    def _write(self, number: int, pairs: Pairs, regions: U32, texts: U32) -> None:
        """Write pairs of one location, in the order of their begins, behind what it has."""
        file = self._archive.event_file(number)
        given = np.stack([pairs.began, pairs.ended], axis=1).reshape(-1)
        time, moved = in_order(given, self._last.get(number, 0))
        self.moved += moved
        self._last[number] = int(time[-1])
        self.last_ns = max(self.last_ns, int(time[-1]))
        first = int(time[0])
        self.first_ns = first if self.first_ns == NEVER else min(first, self.first_ns)
        phases = (int(CallPhase.ENTER), int(CallPhase.LEAVE))
        phase = np.tile(np.array(phases, dtype=np.uint8), len(pairs))
        columns: dict[str, Column] = {REGION.name: np.repeat(regions, 2)}
        carried = self._attributes(pairs, texts, phase)
        records = encode(time, stamped(time, file), phase, PAIR_SHAPES, columns, carried)
        self._archive.write(file, records)

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

    def _places(self, pairs: Pairs) -> tuple[I64, Bool]:
        """Return per pair the number of its location, and whether that is of other keys: (n,) each.

        pairs: in the order of their begins. A key's pairs follow each other, so a location has one
        at a time; those of other keys go to the first shared location that is free.
        """
        keys, of = distinct(pairs.pair, pairs.key0, pairs.key1)
        own = np.array([self._own(*key) for key in keys], np.int64)[of]
        shared = own < 0
        for row in np.flatnonzero(shared).tolist():
            began, ended = int(pairs.began[row]), int(pairs.ended[row])
            own[row] = self._free(int(pairs.pair[row]), began, ended)
        return own, shared

    def _own(self, pair: int, key0: int, key1: int) -> int:
        """Return the number of a key's location, a new one if it is new; -1: it shares one."""
        key = (pair, key0, key1)
        if key not in self._keys:
            if self._keys_of[pair] >= MOST_KEYS:
                return -1
            self._keys_of[pair] += 1
            place = PairPlace(self._names.name(pair), self._names.key(*key))
            self._keys[key] = self._handles.pair(place).number
        return self._keys[key]

    def _free(self, pair: int, began: int, ended: int) -> int:
        """Return the number of a location of other keys, which has this pair (ns) from now on.

        The one that has been free for longest; a new one if none is free at `began`.
        """
        lanes = self._shared[pair]
        if lanes and lanes[0][0] <= began:
            _, number = heappop(lanes)
        else:
            place = PairPlace(self._names.name(pair), f"other keys {len(lanes) + 1}")
            number = self._handles.pair(place).number
        heappush(lanes, (ended, number))
        return number

    def _regions_of(self, pairs: Pairs) -> U32:
        """Return per pair the number of its region (n,): of its value of --by, or of its name.

        Past MOST_TEXTS values it is the name, too.
        """
        found, of = distinct(pairs.pair, pairs.by)
        return np.array([self._region(pair, value) for pair, value in found], np.uint32)[of]

    def _region(self, pair: int, value: int) -> int:
        known = self._regions.get((pair, value))
        if known is not None:
            return known
        room = len(self._regions) < MOST_TEXTS
        text = self._names.by(pair, value) if room else ""
        number = self._handles.pair_region(
            text or self._names.name(pair), self._names.name(pair), self._names.events(pair)
        )
        if room:
            self._regions[pair, value] = number
        return number

    def _key_texts(self, pairs: Pairs, shared: Bool) -> U32:
        """Return per pair the number of its key as text (n,); 0: it has a location of its own."""
        texts = np.zeros(len(pairs), dtype=np.uint32)
        rows = np.flatnonzero(shared)
        keys, of = distinct(pairs.pair[rows], pairs.key0[rows], pairs.key1[rows])
        for key in keys:
            if key not in self._texts and len(self._texts) < MOST_TEXTS:
                self._texts[key] = self._archive.string(self._names.key(*key))
        found = np.array([self._texts.get(key, 0) for key in keys], np.uint32)
        texts[rows] = found[of] if len(rows) else found
        return texts
