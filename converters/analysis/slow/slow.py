# SPDX-License-Identifier: Apache-2.0
"""The slowest I/Os of a log with their events, requests and related bios.

Memory depends on how many I/Os are kept. One pass finds the slowest I/Os and copies their events:
the window that has an I/O among its `bios` also has all events of that I/O, the bios that share a
request with it, and its parents and children. The other I/Os of the device at that time need a
second pass: `surroundings`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from biotrail.converters.analysis.choosing.choosing import Choice, failed_nowait
from biotrail.converters.analysis.slow.io_details import (
    IO,
    RequestFacts,
    io_at,
    requests_of,
    row_of,
)
from biotrail.converters.analysis.slow.surroundings import Surroundings
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.events.tables import (
    NEVER,
    NO_CPU,
    STAGE_NAMES,
    Lifecycles,
    Stage,
    known_id,
)
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.lifecycles.operations import operations
from biotrail.converters.lifecycles.result import Histories, Result
from biotrail.converters.lifecycles.windows import HANGS_NS, under_way
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.pair_names import PairNames
from biotrail.converters.sites.tables import Following
from biotrail.converters.sites.trees import Life
from biotrail.recorder.schema.records import BY_KIND, NO_SECTOR, NO_TAG, Kind

if TYPE_CHECKING:  # imported where a guest is asked for
    from biotrail.converters.analysis.guests.figures import Side


@dataclass
class Counts:
    ios: int = 0
    """Chosen I/Os without tries; of whole families only the topmost bios."""
    matching: int = 0
    """I/Os of these that are as slow as wanted (and failed, if only failed ones are wanted)."""
    under_way: int = 0
    """I/Os of these that were in flight when the log ended."""
    without_latency: int = 0
    """I/Os of these whose duration is not known, because Q or C is not in the log."""
    doubtful: int = 0
    """I/Os of these whose duration is in doubt (`Bios.doubtful`); none of them matches."""
    held: int = 0
    """I/Os of these that a cgroup's limit held before their Q, which is no part of a duration."""
    tries: int = 0


MOST_LIVES = 20
"""Lives of an I/O that are listed; a bio of a stacked device may have many requests."""


@dataclass
class FollowedLife:
    life: int
    """Its number, as `biotrail tree --life` takes it."""
    number: int
    """Number of the request or, where bios are followed, of the bio."""


def followed_lives(
    window: Lifecycles, kind: str, bios: Sequence[int], requests: Sequence[int]
) -> list[FollowedLife]:
    """Return the lives of an I/O by number, MOST_LIVES at most. bios: also those that serve it."""
    found = None if window.sites is None else window.sites.joined
    if found is None or not len(found):
        return []
    wanted = np.array(bios, np.int64)
    if kind == "request":
        edges = window.edges
        served = edges.request[np.isin(edges.bio, wanted)]
        wanted = np.concatenate([served, np.array(requests, np.int64)])
    rows = np.flatnonzero(np.isin(found.number, wanted))
    rows = rows[np.argsort(found.life[rows])][:MOST_LIVES]
    pairs = zip(found.life[rows].tolist(), found.number[rows].tolist(), strict=True)
    return [FollowedLife(life, number) for life, number in pairs]


MOST_EVENTS = 1000
"""Events kept of one I/O: a discard of a whole disk has thousands of pieces."""
MOST_MATES = 64
MOST_CHILDREN = 64
MOST_PARENTS = 64
_WITH_TASK = frozenset({Kind.Q, Kind.G, Kind.M, Kind.F, Kind.X, Kind.A})
_WITH_TAG = frozenset({Kind.START, Kind.I, Kind.R, Kind.RQ_MERGE, Kind.D})


@dataclass
class Step:
    offset_ns: int
    letter: str
    name: str
    """Name of the event's record kind."""
    cpu: int | None
    tid: int | None
    """Thread in which the event happened; None: not recorded for this kind."""
    comm: str | None
    request: int | None
    """Number of the event's request; None: an event of the bio, or of a piece of the bio."""
    device: str
    sector: int | None
    bytes: int
    tag: int | None
    """Tag in the event's record; None: no tag, or none recorded for this kind."""
    bios: int | None
    status: str | None
    """Status with which the bio or request ended; only of C, E and c."""


@dataclass
class SlowIO:
    io: IO
    begin_ns: int
    """CLOCK_MONOTONIC: time of Q; if not recorded, of the first event; 0 without any event."""
    events: list[Step]
    """All events in time order; of more than MOST_EVENTS the first and the last ones."""
    events_left_out: int
    requests: list[RequestFacts]
    """Requests that served the bio, by number."""
    mates: list[IO]
    mates_left_out: int
    parents: list[IO]
    """The parent (the upper device's bio), then the parent's parent, and so on."""
    children: list[IO]
    """Bios on lower devices that serve this one, at any depth, in the order of their Q."""
    children_left_out: int
    surroundings: Surroundings | None = None
    """None unless a second pass filled it in."""
    followed: list[FollowedLife] = field(default_factory=list)
    """Followed lives of its requests, or of its bios, also on lower devices."""
    side: "Side | None" = None
    """Of a guest's I/O, where its request's time went on the host; None: not known, no guest."""

    def rank(self, by_size: bool = False) -> tuple[bool, int]:
        """Return what I/Os are sorted by: those that hang first, the slowest, or the largest."""
        if by_size:
            return False, -self.io.bytes
        hangs = self.io.under_way and self.io.waited_ns >= HANGS_NS
        return not hangs, -self.io.waited_ns

    @property
    def below(self) -> tuple[int, int] | None:
        """ns from D (else Q) to the first child's Q, and to the last child's C; None: not known."""
        ends = [c.queue_ns + c.waited_ns for c in self.children if c.queue_ns is not None]
        known = all(c.latency_ns is not None for c in self.children) and self.io.latency_ns
        if not known or not ends or len(ends) < len(self.children) or self.children_left_out:
            return None
        first = min(c.queue_ns for c in self.children if c.queue_ns is not None)
        before = first - self.begin_ns - (self.io.issue_ns or 0)
        return (before, max(ends) - first) if before >= 0 else None


OF_EACH = 5
MOST_EACH = 24
"""Pairs of device and operation of which the slowest I/Os are kept; later pairs have none."""
_OP_BITS = 16


@dataclass(frozen=True)
class Wanted:
    top: int = 20
    """How many at most; 0: none, matching I/Os are only counted."""
    over: int = 0
    failed: bool = False
    every_call: bool = False
    """Of calls: also those that neither queued a bio nor waited for I/O."""


@dataclass
class Slowest:
    """Finds the slowest I/Os of a choice. Pass `watch` to `Trace.lifecycles(on_window=...)`.

    of_each: also the OF_EACH slowest of each device and operation, whatever `wanted` and
    `whole_families` say; `add_each` behind the last window puts them into `found`.
    """

    trace: Trace
    choice: Choice
    wanted: Wanted
    whole_families: bool = True
    """Whether bios that serve an upper device's bio are only shown as that bio's children."""
    of_each: bool = False
    counts: Counts = field(default_factory=Counts)
    found: list[SlowIO] = field(default_factory=list)
    """The slowest I/Os so far, at most `wanted.top`, the slowest first."""
    devices: set[int] = field(default_factory=set)
    lives: dict[int, Life] | None = None
    """The followed lives of `found`, by number; None unless a further pass filled it in."""
    _each: dict[tuple[int, str], list[SlowIO]] = field(default_factory=dict)
    _end: int = NEVER
    """Latest time known of the log, ns: in the last window, the log's end. Only that window has
    bios that are under way."""

    def watch(self, result: Result, window: Lifecycles) -> None:
        """Count the window's I/Os, and keep in `found` those that are among the slowest.

        A duration that is not known is 0 with `wanted.failed`; one in doubt never matches. Among
        equals those with the least numbers are kept.
        """
        bios, context = window.bios, self.trace.context
        self._end = log_end(self.trace)
        self.devices.update(np.unique(bios.dev).tolist())
        every = self.choice.mask(bios, window.tasks)
        tried = failed_nowait(context, bios)
        chosen = every & (bios.parent == NEVER) if self.whole_families else every
        self.counts.tries += int((chosen & tried).sum())
        chosen = chosen & ~tried
        # From Q to C or, for bios in flight when the log ends, to its end.
        going_on = under_way(bios)
        known = (bios.queue != NEVER) & ((bios.complete != NEVER) | going_on)
        waited = np.where(known, np.where(going_on, self._end, bios.complete) - bios.queue, 0)
        self.counts.ios += int(chosen.sum())
        self.counts.under_way += int((chosen & going_on).sum())
        self.counts.without_latency += int((chosen & ~known).sum())
        if window.path is not None:
            self.counts.held += int(np.isin(bios.number[chosen], window.path.held.number).sum())
        self.counts.doubtful += int((chosen & known & bios.doubtful).sum())
        wanted = chosen & ~(known & bios.doubtful) & (waited >= self.wanted.over)
        wanted &= bios.status != 0 if self.wanted.failed else known
        self.counts.matching += int(wanted.sum())
        hangs = going_on & (waited >= HANGS_NS)
        kept = [(self.found, np.flatnonzero(wanted), self.wanted.top)]
        if self.of_each:
            codes, names = operations(context, bios.opf, bios.bytes)
            pairs = bios.dev.astype(np.int64) << _OP_BITS | codes
            sure = np.flatnonzero(every & ~tried & known & ~bios.doubtful)
            for pair in np.unique(pairs[every]).tolist():
                name = (pair >> _OP_BITS, names[pair & ((1 << _OP_BITS) - 1)])
                if name in self._each or len(self._each) < MOST_EACH:
                    found = self._each.setdefault(name, [])
                    kept.append((found, sure[pairs[sure] == pair], OF_EACH))
        for found, some, most in kept:
            least = found[-1].io.waited_ns if found and len(found) == most else 0
            rows = some[hangs[some] | (waited[some] >= least)]
            rows = rows[np.lexsort((bios.number[rows], -waited[rows], ~hangs[rows]))][:most]
            if len(rows):
                steps, events = result.histories(bios.number[rows])
                found += [self._slow_io(window, steps, events, row) for row in rows.tolist()]
                found.sort(key=lambda slow: (*slow.rank(), slow.io.number))
                del found[most:]

    def add_each(self) -> int:
        """Put the slowest of each device and operation behind `found`; return how many it had.

        The slowest of each come first, then the second of each, so that the least slow are at the
        end, where a page leaves out what does not fit.
        """
        whole, known = len(self.found), {slow.io.number for slow in self.found}
        for place in range(OF_EACH):
            for found in self._each.values():
                self.found += [s for s in found[place : place + 1] if s.io.number not in known]
        return whole

    def _slow_io(self, window: Lifecycles, steps: Histories, events: Events, row: int) -> SlowIO:
        """steps, events: as `Result.histories` returns them, of this bio, and maybe of others."""
        context, edges = self.trace.context, window.edges
        io = io_at(context, window, row, self._end)
        first, stop = np.searchsorted(steps.bio, [io.number, io.number + 1]).tolist()
        own_steps = steps.take(np.arange(first, stop))
        origin = io.queue_ns
        if origin is None:
            origin = int(events.ts[own_steps.event[0]]) if len(own_steps) else 0
        numbers = np.unique(own_steps.request[own_steps.request != NEVER]).tolist()
        beside = np.isin(edges.request, numbers) & (edges.bio != io.number)
        mates = [
            at
            for number in np.unique(edges.bio[beside]).tolist()
            if (at := row_of(window.bios.number, number)) >= 0
        ]
        # The parent, its parent, …; then bios on lower devices that work for it, at any depth.
        bios, above = window.bios, row
        parents: list[int] = []
        while (upper := int(bios.parent[above])) != NEVER and len(parents) < MOST_PARENTS:
            above = row_of(bios.number, upper)
            if above < 0:
                break
            parents.append(above)
        children: list[int] = []
        level = np.array([io.number])
        while len(level):
            below = np.flatnonzero(np.isin(bios.parent, level))
            below = below[~np.isin(below, children)]
            children += below.tolist()
            level = bios.number[below]
        children.sort()
        family = [io.number, *window.bios.number[children].tolist()]
        shown = own_steps
        if len(own_steps) > MOST_EVENTS:
            half = MOST_EVENTS // 2
            shown = own_steps.take(np.r_[0:half, len(own_steps) - half : len(own_steps)])
        listed = _steps(self.trace.tasks, window, context, events, shown)
        for step in listed:
            step.offset_ns -= origin
        completed = [one.offset_ns for one in listed if one.letter == "C" and one.bytes]
        sequence = not {"PREFLUSH", "FUA"}.isdisjoint(io.flags.split("|"))
        if io.under_way and sequence and io.stages and completed:
            last = io.stages[-1]
            if last.start_ns >= max(completed):  # the log left it in the second flush
                io.stages[-1] = replace(last, stage=STAGE_NAMES[Stage.POST_FLUSH])

        def ios(rows: list[int]) -> list[IO]:
            return [io_at(context, window, row, self._end) for row in rows]

        return SlowIO(
            io=io,
            begin_ns=origin,
            events=listed,
            events_left_out=len(own_steps) - len(shown),
            requests=requests_of(context, window.requests, numbers, origin),
            mates=ios(mates[:MOST_MATES]),
            mates_left_out=max(len(mates) - MOST_MATES, 0),
            parents=ios(parents),
            children=ios(children[:MOST_CHILDREN]),
            children_left_out=max(len(children) - MOST_CHILDREN, 0),
            followed=followed_lives(window, Following(context.header).type, family, numbers),
        )


def log_end(trace: Trace) -> int:
    """The time of the last clock reading or event read so far, whichever is later, ns."""
    readings = [int(reading["monotonic"]) for reading in trace.context.clocks]
    return max([trace.account.last_ns, *readings])


def _steps(
    tasks: TaskNames, window: Lifecycles, context: Context, events: Events, shown: Histories
) -> list[Step]:
    """offset_ns is CLOCK_MONOTONIC; the caller has to subtract the time of Q."""
    found = []
    for event, request in zip(shown.event.tolist(), shown.request.tolist(), strict=True):
        kind = Kind(int(events.kind[event]))
        record = BY_KIND[kind]
        fields = events.fields(kind, np.array([event]))
        values: dict[str, Any] = {one: fields[one].tolist()[0] for one in fields.dtype.names or ()}
        tag = values["tag"] if kind in _WITH_TAG else NO_TAG
        sector = values.get("sector", NO_SECTOR)
        step = Step(
            offset_ns=int(events.ts[event]),
            letter=record.letter,
            name=record.name,
            cpu=None if events.cpu[event] == NO_CPU else int(events.cpu[event]),
            tid=(int(values["tid"]) or None) if kind in _WITH_TASK else None,
            comm=None,
            request=None if request == NEVER else request,
            device=context.device_name(int(values["dev"])),
            sector=None if sector == NO_SECTOR else sector,
            bytes=int(values.get("bytes", 0)),
            tag=None if tag == NO_TAG else int(tag),
            bios=int(values["nr_bios"]) if kind == Kind.D else None,
            status=context.status_name(int(values["status"])) if "status" in values else None,
        )
        found.append(step)
    tid = np.array([step.tid or 0 for step in found], dtype=np.uint32)
    rows = tasks.rows(tid, events.ts[shown.event])
    for step, row in zip(found, rows.tolist(), strict=True):
        step.comm = str(window.tasks.comm[row]) if step.tid and row >= 0 else None
        step.tid = None if step.tid is None else known_id(step.tid)
    return found


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
