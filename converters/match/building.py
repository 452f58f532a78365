# SPDX-License-Identifier: Apache-2.0
"""A log's windows by the machine: their tables, and what is asked of the events behind them.

The machine carries lives from window to window. Events go on only where something is asked of them
when their life is over: the records of the path beside a Q or C, and those of chosen bios.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.events import Events
from biotrail.converters.events.path import ROWS
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tables import I64, NEVER
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.lifecycles.account import Account, kind_counts
from biotrail.converters.lifecycles.result import FIRST_UNRECORDED, Histories, Owners, Result
from biotrail.converters.match.tables import Matcher, Rows
from biotrail.recorder.schema.records import Kind

if TYPE_CHECKING:
    from biotrail.converters.events.path_tables import PathTables

LATE = int(np.iinfo(np.int64).max)


@dataclass
class Behind:
    """Events of a window and those kept of earlier ones, by their numbers."""

    kept: Events
    """Sorted by number."""
    fresh: Events
    """Their numbers ascend by 1."""

    def at(self, numbers: I64) -> Events:
        """Return the events of these numbers, each once, sorted by number; others have none."""
        numbers = names_of(numbers)
        fresh, kept = self.fresh, self.kept
        first = int(fresh.number[0]) if len(fresh) else 0
        here = numbers[(numbers >= first) & (numbers < first + len(fresh))]
        found = fresh.take(here - first)
        if not len(kept):
            return found
        earlier = kept.take(np.isin(kept.number, numbers))
        found = Events.join([earlier, found])
        if (found.number[1:] < found.number[:-1]).any():  # some came late
            found = found.take(np.argsort(found.number))
        return found


@dataclass(kw_only=True)
class Matched(Result):
    """One window by the machine."""

    span: tuple[int, int]
    """Times of the first and the last event that is counted; NEVER: there is none."""
    first_counted: int
    """Number of the log's first event that is counted."""
    counts: I64
    """Events by kind and whether they name a bio or request: (256, 2)."""
    device_counts: dict[tuple[int, int], int]
    """Events by disk (dev_t) and kind."""
    mentions: dict[str, Any]
    open_mentions: dict[str, Any]
    """As `mentions`, of what goes on."""
    lives: dict[str, Any]
    behind: Behind
    open_bios_since: int
    """When the first bio began that goes on (ns); NEVER. Likewise the next."""
    open_requests_since: int

    def count_events(self, account: Account, begin: int, own_io: bool) -> None:
        """Add the window's new events; own ones when it is known that they are."""
        if self.span[0] != NEVER:
            account.add_counts(self.counts, self.device_counts, *self.span)
        if not own_io:
            rows = _of_own_alone(self.mentions)
            rows = rows[self.mentions["event"][rows] >= self.first_counted]
            kinds = np.bincount(self.mentions["what"][rows] >> 32).tolist()
            account.move_to_own({kind: n for kind, n in enumerate(kinds) if n})

    def own_numbers(self) -> tuple[I64, I64]:
        """As `Result.own_numbers`; open it is of all in flight with what is the recording's own."""
        ended, flying = self.mentions, self.open_mentions
        own = [of["event"][_of_own_alone(of)] for of in (ended, flying)]
        return np.concatenate(own), np.unique(flying["event"][flying["what"] != NEVER])

    def owners(self, kind: str) -> Owners:
        rows = self.lives["is_bio"] == (kind == "bio")
        return Owners(*(self.lives[n][rows] for n in ("object", "first", "last", "number")))

    def open_since(self, kind: str) -> int:
        since = self.open_bios_since if kind == "bio" else self.open_requests_since
        return LATE if since == NEVER else since

    def histories(self, bios: I64) -> tuple[Histories, Events]:
        """As `Result.histories`; Trace.lifecycles was given `on_window`."""
        of = self.mentions
        event, number, is_bio = of["event"], of["number"], of["is_bio"]
        named = (of["what"] != NEVER) & (of["what"] >> 32 != Kind.CHAIN)
        own = np.flatnonzero(named & is_bio & np.isin(number, bios))
        by_request = np.flatnonzero(named & ~is_bio)
        # Requests that had one: an event names both, or it is known that they did.
        at = by_request[np.argsort(event[by_request], kind="stable")]
        place = np.minimum(np.searchsorted(event[at], event[own]), max(len(at) - 1, 0))
        both = own[event[at[place]] == event[own]] if len(at) else own[:0]
        same = at[np.searchsorted(event[at], event[both])]
        had = np.flatnonzero((of["what"] == NEVER) & np.isin(event, bios))
        pairs = np.stack(
            [
                np.concatenate([number[both], event[had]]),
                np.concatenate([number[same], number[had]]),
            ]
        )
        bio, request = np.unique(pairs, axis=1)
        order = by_request[np.argsort(number[by_request], kind="stable")]
        first = np.searchsorted(number[order], request)
        count = np.searchsorted(number[order], request, side="right") - first
        rows = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
        found = Histories(
            np.concatenate([np.repeat(bio, count), number[own]]),
            np.concatenate([np.repeat(request, count), np.full(len(own), NEVER, np.int64)]),
            np.concatenate([event[order[rows]], event[own]]),
        )
        events = self.behind.at(found.event)
        order = np.argsort(events.ts, kind="stable")
        events = events.take(order)
        # An event that names bio and request is listed once, as the request's, which come first.
        by_number = np.argsort(events.number)
        found.event = by_number[np.searchsorted(events.number, found.event, sorter=by_number)]
        found = found.take(np.lexsort((np.arange(len(found)), found.event, found.bio)))
        new = np.ones(len(found), np.bool_)
        new[1:] = (found.bio[1:] != found.bio[:-1]) | (found.event[1:] != found.event[:-1])
        return found.take(new), events


class MatchingBuilder:
    """Builder of one log's tables, window after window, in order."""

    def __init__(
        self,
        context: Context,
        tasks: TaskNames,
        stacks: StackNames,
        *,
        begin: int,
        by_intervals: bool,
        tells_events: bool,
    ) -> None:
        """tasks, stacks, by_intervals: as for `Matcher`.

        begin: time (ns) before which events are not counted. tells_events: whether
        `Matched.histories` will be asked.
        """
        self.matcher = Matcher(
            context, tasks, stacks, by_intervals=by_intervals, tells_events=tells_events
        )
        self._tasks = tasks
        self._begin = begin
        self._tells_events = tells_events
        self._first_counted = LATE
        self._records_path = bool(context.path_parts)
        self._kept = Events.empty()

    def build(self, fresh: Events, *, settle_ns: int, before: int | None) -> Matched:
        """Take in a window's new events; return the tables of what was over before a time (ns).

        None: no window follows, and all that is open is closed. settle_ns: as for `Matcher.take`.
        """
        cut = int(np.searchsorted(fresh.ts, self._begin))
        counted = fresh
        if cut:
            self.matcher.take(fresh.take(slice(None, cut)), settle_ns)
            self.matcher.device_counts()
            counted = fresh.take(slice(cut, None))
        if len(counted):
            self._first_counted = min(self._first_counted, int(counted.number[0]))
        used = self.matcher.take(counted, settle_ns)
        rows, still = self.matcher.rows(before), self.matcher.open_rows()
        behind = Behind(self._kept, fresh)
        path = self._path(fresh, behind, rows, still)
        # Kept are the events of what is open of which something will be asked.
        asked = [np.zeros(0, np.int64)]
        if self._records_path or path is not None:
            asked.append(_asked(still))
        if self._tells_events:
            asked.append(still.mentions["event"][still.mentions["what"] != NEVER])
        self._kept = behind.at(np.concatenate(asked))
        return Matched(
            bios=rows.bios,
            requests=rows.requests,
            edges=rows.edges,
            open_bios=still.bios,
            open_requests=still.requests,
            bio_stages=rows.bio_stages,
            request_stages=rows.request_stages,
            path=path,
            span=(int(counted.ts[0]), int(counted.ts[-1])) if len(counted) else (NEVER, NEVER),
            first_counted=self._first_counted,
            counts=kind_counts(counted, used),
            device_counts=self.matcher.device_counts(),
            mentions=rows.mentions,
            open_mentions=still.mentions,
            lives=rows.lives,
            behind=behind,
            open_bios_since=self.matcher.open_since("bio"),
            open_requests_since=self.matcher.open_since("request"),
        )

    def _path(self, fresh: Events, behind: Behind, rows: Rows, still: Rows) -> "PathTables | None":
        """Return the window's tables of the path; sets `whom` of its bios. None: it has none."""
        if fresh.path is None and self._kept.path is None and not len(fresh.rows(*ROWS)):
            return None
        from biotrail.converters.lifecycles import path as of_path
        from biotrail.converters.lifecycles.path import bio_requests

        path = of_path.rows_of_path(fresh, self._tasks) or of_path.no_tables(self._tasks)
        asked = [_asked(rows), _asked(still)]
        events = behind.at(np.concatenate(asked))
        if events.path is None:
            return path
        ended, flying = _places(events, rows.queued_at), _places(events, still.queued_at)
        rows.bios.whom[:] = of_path.waiter_rows(events, ended, rows.bios.queue, self._tasks)
        still.bios.whom[:] = of_path.waiter_rows(events, flying, still.bios.queue, self._tasks)
        number, request = rows.bios.number, rows.requests.number
        completed = _places(events, rows.completed_at)
        return replace(
            path,
            bios=of_path.bio_paths(events, number, ended),
            interrupts=of_path.interrupts(events, request, completed),
            steps=of_path.driver_steps(events, request, completed, rows.requests.start),
            open_bios=of_path.bio_paths(events, still.bios.number, flying),
            bio_requests=bio_requests(events, (number, ended), (still.bios.number, flying)),
            held=of_path.held_bios(events, self._tasks, number, ended),
            open_held=of_path.held_bios(events, self._tasks, still.bios.number, flying),
        )


def _asked(rows: Rows) -> I64:
    """Return the numbers of the events that tables of the path are made of: A, Q and last C."""
    first = rows.bios.number[rows.bios.number < FIRST_UNRECORDED]
    return np.concatenate([first, rows.queued_at, rows.completed_at])


def _places(events: Events, numbers: I64) -> I64:
    """Return the row of each event, by number; -1: it is not there. events: sorted by number."""
    if not len(events):
        return np.full(len(numbers), -1, np.int64)
    at = np.minimum(np.searchsorted(events.number, numbers), len(events) - 1)
    return np.where(events.number[at] == numbers, at, -1)


def _of_own_alone(mentions: dict[str, Any]) -> I64:
    """Return a row of each event that names bios and requests of the recording's own alone."""
    event, own = mentions["event"], mentions["own"]
    rows = np.flatnonzero(mentions["what"] != NEVER)
    if not own.any():
        return rows[:0]
    order = rows[np.argsort(event[rows], kind="stable")]
    first = np.flatnonzero(np.diff(event[order], prepend=-1))
    return np.asarray(order[first[np.minimum.reduceat(own[order], first)]], np.int64)
