# SPDX-License-Identifier: Apache-2.0
"""Lives of followed objects, read window after window: gathered hits, until the life is over.

What comes out does not depend on the windows: a life is over some time after its death, by the
hits' own times, and the lives come in the order of their ends.
"""

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.site_tables import Hits
from biotrail.converters.events.tables import NEVER, Lifecycles
from biotrail.converters.sites.building import Builder
from biotrail.converters.sites.tables import HIT, Following, HitRows, rows_of
from biotrail.converters.sites.trees import Ending, Life, Path, path_of
from biotrail.recorder.schema.records import HIT_BORN, HIT_ENDED, Kind

GRACE_NS = 1_000_000_000
"""Hits of a life are taken for its own until so long after its death: functions that it died in
return later, and a loss is recorded later than it happened."""
MOST_HITS = 100_000
"""Hits that a life has at most; more are counted."""
MOST_HELD = 2_000_000
"""Hits that wait at most for the ends of their lives, 80 bytes each: then the oldest lives go."""
_MOST_WAITING = 500_000
"""Hits of ended lives that wait at most for the note with their stacks."""
_MOST_DONE = 1 << 16
"""Lives whose numbers are remembered, so that later hits of them are counted."""
_MOST_LOSSES = 10_000
"""Loss windows that are kept: lives are long over when so many have followed."""
_FAR = np.iinfo(np.int64).max


@dataclass
class Tally:
    """Counts of hits and lives, complete once all windows were read."""

    hits: int = 0
    """Wanted hits."""
    lives: int = 0
    """Lives that came out."""
    after_end: int = 0
    """Hits that came more than GRACE_NS after their life's end, and are in no life."""
    left_out: int = 0
    """Hits beyond MOST_HITS of their lives."""
    closed_for_room: int = 0
    """Lives that were closed before their ends were read, for want of room."""


@dataclass
class _Held:
    """A life whose hits are gathered. reused: when the next life at the address began (ns).

    parts: hits; once it is closed, and `ending` set, all in one, in order of time.
    """

    number: int
    object: int
    parts: list[HitRows] = field(default_factory=list)
    count: int = 0
    left_out: int = 0
    born: int = _FAR
    ended: int = _FAR
    reused: int = _FAR
    ending: Ending = Ending.LOG_ENDED

    @property
    def died(self) -> bool:
        """Whether its death is recorded; one long after the address was used again is no death."""
        return self.ended != _FAR and self.ended <= _until(self.reused)

    @property
    def closes(self) -> int:
        return self.ended if self.died else self.reused

    def add(self, rows: HitRows) -> None:
        room = MOST_HITS - self.count
        self.left_out += max(len(rows) - room, 0)
        if room > 0:
            self.parts.append(rows[:room])
            self.count += min(len(rows), room)
        births = rows["time"][(rows["flags"] & HIT_BORN) != 0]
        self.born = min(self.born, int(births[0]) if len(births) else _FAR)
        deaths = rows["time"][(rows["flags"] & HIT_ENDED) != 0]
        if len(deaths) and self.ended == _FAR:
            self.ended = int(deaths[0])


def _until(closes: int) -> int:
    return closes if closes == _FAR else closes + GRACE_NS


@dataclass
class _Address:
    """The open lives of an address, by number, in the order in which their hits came.

    newest: highest number that came. ordered: whether they came by ascending numbers; then `reused`
    ascends with the number, too.
    """

    lives: dict[int, _Held] = field(default_factory=dict)
    newest: int = -1
    ordered: bool = True

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


class LifeReader:
    """Makes trees of the hits of a log, window after window in order."""

    def __init__(
        self, context: Context, lives: Collection[int] = (), objects: Collection[int] = ()
    ) -> None:
        """context: the log's, whose stacks grow while it is read: lives wait for theirs.

        lives, objects: the numbers and addresses of those that are read; empty: any.
        """
        self.following = Following(context.header)
        self.tally = Tally()
        self._context = context
        self._lives, self._objects = lives, objects
        self._losses: list[tuple[int, int]] = []
        """(start, end) in ns of each loss of hits, or of records of unknown kinds."""
        self._paths: dict[int, Path] = {}
        self._numbers: dict[int, int] = {}
        """Life → request or bio, of lives that are not given out yet."""
        self._open: dict[int, _Held] = {}
        self._by_object: dict[int, _Address] = {}
        """Open lives by address."""
        self._done: OrderedDict[int, None] = OrderedDict()
        self._waiting: deque[_Held] = deque()
        self._held = 0
        self._waits = 0

    def add(self, window: Lifecycles) -> None:
        loss = window.loss
        lost = np.flatnonzero((loss.kind == Kind.HIT) | (loss.kind == 0))
        times = zip(loss.start[lost].tolist(), loss.end[lost].tolist(), strict=True)
        self._losses = [*self._losses, *times][-_MOST_LOSSES:]
        joined = None if window.sites is None else window.sites.joined
        if joined is not None:
            self._numbers.update(zip(joined.life.tolist(), joined.number.tolist(), strict=True))
        if window.sites is not None:
            self._gather(window.sites.hits)
        closing = [held for held in self._open.values() if _until(held.closes) < window.end]
        for held in sorted(closing, key=lambda held: (held.closes, held.number)):
            self._close(held, Ending.DIED if held.died else Ending.REUSED)
        while self._held > MOST_HELD and self._open:
            self.tally.closed_for_room += 1
            self._close(next(iter(self._open.values())), Ending.NO_ROOM)

    def ready(self) -> Iterator[Life]:
        """Yield the lives that are over, in the order of their ends; each once."""
        known = self._context.site_stacks.keys()
        while self._waiting:
            stacks = self._waiting[0].parts[0]["stack"]
            if self._waits <= _MOST_WAITING and not set(stacks[stacks >= 0].tolist()) <= known:
                return
            held = self._waiting.popleft()
            self._waits -= len(held.parts[0])
            yield self._life(held)

    def rest(self) -> Iterator[Life]:
        """Yield all other lives, after the last window."""
        for held in sorted(self._open.values(), key=lambda held: (held.closes, held.number)):
            ending = Ending.DIED if held.died else Ending.REUSED
            self._close(held, Ending.LOG_ENDED if held.closes == _FAR else ending)
        while self._waiting:
            yield self._life(self._waiting.popleft())
        self._waits = 0

    def read(self, windows: Iterable[Lifecycles]) -> Iterator[Life]:
        """Yield the lives of all of a log's windows, in the order of their ends."""
        for window in windows:
            self.add(window)
            yield from self.ready()
        yield from self.rest()

    def _gather(self, table: Hits) -> None:
        hits = rows = rows_of(table)
        if self._lives:
            hits = hits[np.isin(hits["life"], np.array(sorted(self._lives), np.uint32))]
        if self._objects:
            hits = hits[np.isin(hits["object"], np.array(sorted(self._objects), np.uint64))]
        self.tally.hits += len(hits)
        if len(hits):
            hits = hits[np.argsort(hits["life"], kind="stable")]
            first = np.flatnonzero(np.diff(hits["life"].astype(np.int64), prepend=-1))
            for part in np.split(hits, first[1:]):
                self._take(part)
        if len(hits) == len(rows):
            return
        # Addresses of open lives are used again by lives that are not wanted.
        births = rows[(rows["flags"] & HIT_BORN) != 0]
        addresses = np.fromiter(self._by_object, np.uint64, len(self._by_object))
        births = births[np.isin(births["object"], addresses)]
        columns = (births[name].tolist() for name in ("time", "object", "life"))
        for time, address, number in zip(*columns, strict=True):
            self._by_object[address].born(number, time)

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
        held.ending, held.parts = ending, [rows[:kept]]
        self._waiting.append(held)
        self._waits += kept

    def _life(self, held: _Held) -> Life:
        rows, number = held.parts[0], held.number
        first, last = int(rows["time"][0]), int(rows["time"][-1])
        life = Life(
            number,
            held.object,
            rows,
            first,
            last,
            ended=held.ended if held.ending == Ending.DIED else NEVER,
            ending=held.ending,
            left_out=held.left_out,
            lost=any(start <= last and end >= first for start, end in self._losses),
            io=self._numbers.pop(number, NEVER),
        )
        Builder(life, self.following, self._path).build()
        return life

    def _path(self, stack: int) -> Path | None:
        found = self._paths.get(stack)
        if found is None and (frames := self._context.site_stacks.get(stack)) is not None:
            found = self._paths[stack] = path_of(frames)
        return found
