# SPDX-License-Identifier: Apache-2.0
"""Hits gathered by life, window after window, until each life is over and its stacks are known.

What comes out does not depend on the windows: a life is over some time after its death, by the
hits' own times, and the lives come in the order of their ends.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.site_tables import Hits
from biotrail.converters.events.tables import NEVER
from biotrail.converters.sites.tables import HIT, HitRows, rows_of
from biotrail.converters.sites.trees import Ending
from biotrail.recorder.schema.records import HIT_BORN, HIT_ENDED

GRACE_NS = 1_000_000_000
"""Hits of a life are taken for its own until so long after its death: functions that it died in
return later, and a loss is recorded later than it happened."""
MOST_HITS = 100_000
"""Hits that a life has at most; more are counted."""
MOST_HELD = 2_000_000
"""Hits that wait at most for the ends of their lives, 80 bytes each: then the oldest lives go."""
MOST_WAITING = 500_000
"""Hits of ended lives that wait at most for the note with their stacks."""
_MOST_DONE = 1 << 16
"""Lives whose numbers are remembered, so that later hits of them are counted."""
_FAR = np.iinfo(np.int64).max


@dataclass
class LifeHits:
    """All hits of one life."""

    number: int
    object: int
    rows: HitRows
    """At least one, in order of time."""
    ended: int
    """Time of the death (ns); NEVER: none is recorded."""
    ending: Ending
    left_out: int
    """Hits beyond MOST_HITS."""


@dataclass
class Wanted:
    """Which lives are gathered; by default all."""

    lives: frozenset[int] = frozenset()
    """Their numbers; empty: any."""
    objects: frozenset[int] = frozenset()
    """Addresses; empty: any."""

    def of(self, hits: HitRows) -> HitRows:
        """Return the hits of the wanted lives."""
        if self.lives:
            hits = hits[np.isin(hits["life"], np.array(sorted(self.lives), np.uint32))]
        if self.objects:
            hits = hits[np.isin(hits["object"], np.array(sorted(self.objects), np.uint64))]
        return hits


@dataclass
class Tally:
    """Counts of hits and lives, complete once all windows were gathered."""

    hits: int = 0
    """Wanted hits."""
    lives: int = 0
    """Lives that came out."""
    after_end: int = 0
    """Hits that came more than GRACE_NS after their life's end, and are in no life."""
    left_out: int = 0
    """Hits beyond MOST_HITS of their lives."""
    no_room: int = 0
    """Lives that were closed before their ends were read, for want of room."""


@dataclass
class _Held:
    """A life whose hits are gathered."""

    number: int
    object: int
    parts: list[HitRows] = field(default_factory=list)
    count: int = 0
    left_out: int = 0
    born: int = _FAR
    ended: int = _FAR
    reused: int = _FAR
    """When the next life at the address began."""

    @property
    def closes(self) -> int:
        return self.ended if self.ended != _FAR else self.reused

    def add(self, rows: HitRows) -> None:
        room = MOST_HITS - self.count
        if len(rows) > room:
            self.left_out += len(rows) - room
        if room > 0:
            self.parts.append(rows[:room])
            self.count += min(len(rows), room)
        births = rows["time"][(rows["flags"] & HIT_BORN) != 0]
        self.born = min(self.born, int(births[0]) if len(births) else _FAR)
        deaths = rows["time"][(rows["flags"] & HIT_ENDED) != 0]
        if len(deaths) and self.ended == _FAR and int(deaths[0]) <= _until(self.reused):
            self.ended = int(deaths[0])


@dataclass
class _Address:
    """The open lives of an address, by number, in the order in which their hits came."""

    lives: dict[int, _Held] = field(default_factory=dict)
    newest: int = -1
    """Highest number that came."""
    ordered: bool = True
    """Whether they came by ascending numbers; then `reused` ascends with the number, too."""

    def add(self, held: _Held) -> None:
        """Add a life, and note in it the births of those with higher numbers."""
        self.ordered &= held.number > self.newest
        self.newest = max(self.newest, held.number)
        if not self.ordered:
            later = (other.born for other in self.lives.values() if other.number > held.number)
            held.reused = min(later, default=_FAR)
        self.lives[held.number] = held

    def born(self, number: int, time: int) -> None:
        """Note in all lives with lower numbers that a later one was born at `time` (ns).

        Of lives that came in order the last few are looked at: thousands may wait at an address.
        """
        for other in reversed(self.lives.values()):
            if other.number >= number:
                continue
            if self.ordered and other.reused <= time:
                break
            other.reused = min(other.reused, time)


def _until(closes: int) -> int:
    return closes if closes == _FAR else closes + GRACE_NS


class Gatherer:
    """Gathers the hits of a log, window after window in order, and gives lives out."""

    def __init__(
        self, knows_stacks: Callable[[set[int]], bool] | None = None, wanted: Wanted | None = None
    ) -> None:
        """Start before the first window.

        knows_stacks: says whether the frames of all these stack ids are known; lives wait for
        theirs. None: they do not wait. wanted: which lives are gathered; None: all.
        """
        self.tally = Tally()
        self._knows = knows_stacks
        self._wanted = wanted or Wanted()
        self._open: dict[int, _Held] = {}
        self._by_object: dict[int, _Address] = {}
        """Open lives by address."""
        self._done: OrderedDict[int, None] = OrderedDict()
        self._waiting: deque[LifeHits] = deque()
        self._held = 0
        self._waits = 0

    def add(self, table: Hits | None, end: int) -> None:
        """Add a window's hits, None: it has none; every hit before `end` (ns) was added."""
        rows = np.zeros(0, HIT) if table is None else rows_of(table)
        hits = self._wanted.of(rows)
        self.tally.hits += len(hits)
        if len(hits):
            order = np.argsort(hits["life"], kind="stable")
            hits = hits[order]
            first = np.flatnonzero(np.diff(hits["life"].astype(np.int64), prepend=-1))
            parts = np.split(hits, first[1:])
            for part in parts:
                self._take(part)
        if len(hits) < len(rows):
            self._end_by_others(rows)
        closing = [held for held in self._open.values() if _until(held.closes) < end]
        for held in sorted(closing, key=lambda held: (held.closes, held.number)):
            self._close(held, Ending.DIED if held.ended != _FAR else Ending.REUSED)
        while self._held > MOST_HELD and self._open:
            self.tally.no_room += 1
            self._close(next(iter(self._open.values())), Ending.NO_ROOM)

    def ready(self) -> Iterator[LifeHits]:
        """Yield the lives that are over and whose stacks are known, in the order of their ends."""
        while self._waiting:
            life = self._waiting[0]
            stacks = life.rows["stack"]
            if (
                self._knows is not None
                and self._waits <= MOST_WAITING
                and not self._knows(set(stacks[stacks >= 0].tolist()))
            ):
                return
            self._waiting.popleft()
            self._waits -= len(life.rows)
            yield life

    def rest(self) -> Iterator[LifeHits]:
        """Yield all lives that are left: no window follows."""
        left = sorted(self._open.values(), key=lambda held: (held.closes, held.number))
        for held in left:
            ending = Ending.DIED if held.ended != _FAR else Ending.REUSED
            self._close(held, Ending.LOG_ENDED if held.closes == _FAR else ending)
        while self._waiting:
            yield self._waiting.popleft()
        self._waits = 0

    def _take(self, rows: HitRows) -> None:
        """Add a window's hits of one life; those of a life that was given out are counted."""
        number, address = int(rows["life"][0]), int(rows["object"][0])
        if number in self._done:
            self.tally.after_end += len(rows)
            return
        held = self._open.get(number)
        known = held is not None
        if held is not None:
            beside = self._by_object[held.object]
        else:
            held = self._open[number] = _Held(number, address)
            beside = self._by_object.setdefault(address, _Address())
        count, born = held.count, held.born
        held.add(rows)
        self._held += held.count - count
        if not known:
            beside.add(held)
        if held.born < born:
            beside.born(number, held.born)

    def _end_by_others(self, rows: HitRows) -> None:
        """Note that addresses of open lives were used again by lives that are not wanted."""
        births = rows[(rows["flags"] & HIT_BORN) != 0]
        addresses = np.fromiter(self._by_object, np.uint64, len(self._by_object))
        births = births[np.isin(births["object"], addresses)]
        columns = (births["time"], births["object"], births["life"])
        for time, address, number in zip(*(c.tolist() for c in columns), strict=True):
            self._by_object[address].born(number, time)

    def _close(self, held: _Held, ending: Ending) -> None:
        """Move a life to those that wait to be given out; count hits beyond the grace."""
        del self._open[held.number]
        beside = self._by_object[held.object]
        del beside.lives[held.number]
        if not beside.lives:
            del self._by_object[held.object]
        self._done[held.number] = None
        if len(self._done) > _MOST_DONE:
            self._done.popitem(last=False)
        self._held -= held.count
        rows = np.concatenate([np.zeros(0, HIT), *held.parts])
        # `follow --slower` writes hits when their life is over, after later ones of other lives.
        rows = rows[np.argsort(rows["time"], kind="stable")]
        kept = int(np.searchsorted(rows["time"], _until(held.closes), side="right"))
        self.tally.after_end += len(rows) - kept
        self.tally.left_out += held.left_out
        self.tally.lives += 1
        ended = held.ended if ending == Ending.DIED else NEVER
        life = LifeHits(held.number, held.object, rows[:kept], ended, ending, held.left_out)
        self._waiting.append(life)
        self._waits += kept
