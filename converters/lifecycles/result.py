# SPDX-License-Identifier: Apache-2.0
"""One window of a log: its tables, and what can be asked of the events behind them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from biotrail.converters.events.array_steps import spread
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import (
    FAR,
    I64,
    NEVER,
    U64,
    Bios,
    Bool,
    Edges,
    Requests,
    Stages,
    Table,
)
from biotrail.recorder.schema.records import Kind

if TYPE_CHECKING:
    from biotrail.converters.events.path_tables import PathTables
    from biotrail.converters.events.site_tables import SiteTables
    from biotrail.converters.lifecycles.account import Account


FIRST_UNRECORDED = 1 << 62
"""Numbers from here on are of bios whose beginning is not in the log."""


@dataclass
class Mentions(Table):
    """Events, by their numbers, and the bios and requests that each names: a row for each."""

    event: I64
    what: I64
    """kind << 32 | dev_t; NEVER: no event, but a request that had the bio `event`."""
    is_bio: Bool
    number: I64
    """`Bios.number`, or `Requests.number`."""
    own: Bool
    """Whether it is the recording's own I/O."""


@dataclass
class Histories(Table):
    """One row per (bio, event), sorted by bio, then by time."""

    bio: I64
    """`Bios.number` of the chosen bio."""
    request: I64
    """`Requests.number` of the event's request; NEVER: the event is of the bio alone."""
    event: I64
    """Index of the event in the events that come with the table."""


@dataclass
class Owners(Table):
    """Requests or bios (and pieces of bios) by their addresses, from first to last event."""

    object: U64
    first: I64
    """ns; `last` likewise."""
    last: I64
    number: I64
    """`Requests.number`, or `Bios.number` of the whole bio."""


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
class Result:
    """The tables of one window, sorted by `number`, but edges in any order.

    `open_bios` and `open_requests` are the rows of what goes on in the next window, `bios` and
    `requests` all others. Of light logs nothing is asked: what follows the counts is empty.
    """

    bios: Bios
    requests: Requests
    edges: Edges
    open_bios: Bios
    open_requests: Requests
    bio_stages: Stages
    """Stages of `bios`, in the order of its rows."""
    request_stages: Stages
    """Stages of `requests`, in the order of its rows."""
    path: "PathTables | None" = None
    """As `Lifecycles.path`."""
    sites: "SiteTables | None" = None
    """As `Lifecycles.sites`; set by the pipeline."""

    span: tuple[int, int]
    """Times of the first and the last new event that is counted; NEVER: there is none."""
    counts: I64
    """These events by kind and whether they name a bio or request: (256, 2)."""
    device_counts: dict[tuple[int, int], int]
    """These events by disk (dev_t) and kind."""
    first_counted: int = FAR
    """Number of the log's first event that is counted."""
    mentions: Mentions = field(default_factory=Mentions.none)
    open_mentions: Mentions = field(default_factory=Mentions.none)
    """As `mentions`, of what goes on."""
    behind: Behind = field(default_factory=lambda: Behind(Events.empty(), Events.empty()))
    owners: dict[str, Owners] = field(
        default_factory=lambda: {"bio": Owners.none(), "request": Owners.none()}
    )
    """The requests ("request"), or bios and pieces of bios ("bio"), that ended, by address."""
    open_since: dict[str, int] = field(default_factory=lambda: {"bio": FAR, "request": FAR})
    """When the first request, or bio, began that goes on (ns); FAR without any."""

    def count_events(self, account: "Account", own_io: bool) -> None:
        """Add the window's new events to the account; own ones when it is known that they are.

        own_io: whether those of the recording's own I/O count as all others.
        """
        if self.span[0] != NEVER:
            account.add_counts(self.counts, self.device_counts, *self.span)
        if not own_io:
            rows = _of_own_alone(self.mentions)
            rows = rows[self.mentions.event[rows] >= self.first_counted]
            kinds = np.bincount(self.mentions.what[rows] >> 32).tolist()
            account.move_to_own({kind: n for kind, n in enumerate(kinds) if n})

    def own_numbers(self) -> tuple[I64, I64]:
        """Return numbers of events: of own I/O alone, and those of which that is still open.

        Open it is of all in flight with what is the recording's own.
        """
        ended, flying = self.mentions, self.open_mentions
        own = [of.event[_of_own_alone(of)] for of in (ended, flying)]
        return np.concatenate(own), np.unique(flying.event[flying.what != NEVER])

    def histories(self, bios: I64) -> tuple[Histories, Events]:
        """Return all events of the given bios, of their pieces and of their requests.

        With the events that `Histories.event` indexes. bios: values of `Bios.number`; those that
        did not end in the window have no rows. An event that names both bio and request is listed
        once, with the request. Trace.lifecycles was given `on_window`. Empty of a light log.
        """
        of = self.mentions
        event, number, is_bio = of.event, of.number, of.is_bio
        named = (of.what != NEVER) & (of.what >> 32 != Kind.CHAIN)
        own = np.flatnonzero(named & is_bio & np.isin(number, bios))
        by_request = np.flatnonzero(named & ~is_bio)
        # Requests that had one: an event names both, or it is known that they did.
        at = by_request[np.argsort(event[by_request], kind="stable")]
        place = np.minimum(np.searchsorted(event[at], event[own]), max(len(at) - 1, 0))
        both = own[event[at[place]] == event[own]] if len(at) else own[:0]
        same = at[np.searchsorted(event[at], event[both])]
        had = np.flatnonzero((of.what == NEVER) & np.isin(event, bios))
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
        found = Histories(
            np.concatenate([np.repeat(bio, count), number[own]]),
            np.concatenate([np.repeat(request, count), np.full(len(own), NEVER, np.int64)]),
            np.concatenate([event[order[spread(first, count)]], event[own]]),
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


def _of_own_alone(mentions: Mentions) -> I64:
    """Return a row of each event that names bios and requests of the recording's own alone."""
    event, own = mentions.event, mentions.own
    rows = np.flatnonzero(mentions.what != NEVER)
    if not own.any():
        return rows[:0]
    order = rows[np.argsort(event[rows], kind="stable")]
    first = np.flatnonzero(np.diff(event[order], prepend=-1))
    return np.asarray(order[first[np.minimum.reduceat(own[order], first)]], np.int64)
