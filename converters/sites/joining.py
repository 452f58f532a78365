# SPDX-License-Identifier: Apache-2.0
"""Which request or bio a followed life is: by its address, at that time.

A followed object's address is that of a request or bio in the block layer's events. An address is
one object's at a time, so a life is the request (bio) of its address whose events overlap it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from biotrail.converters.events.site_tables import Hits as HitTable
from biotrail.converters.events.site_tables import JoinedLives, SiteTables
from biotrail.converters.events.tables import I64, NEVER, U32, U64, Bool, Table
from biotrail.converters.lifecycles.account import FollowedCounts
from biotrail.converters.sites.tables import Following, follows, no_sites
from biotrail.recorder.schema.records import HIT_ENDED, Role

if TYPE_CHECKING:
    from biotrail.converters.lifecycles.result import Owners, Result

GRACE_NS = 1_000_000_000
"""A life is forgotten so long after its last hit: functions return after its end."""
JOINED_TYPES = ("request", "bio")
"""Followed structs whose addresses the block layer's events have."""


@dataclass
class _Lives(Table):
    life: U32
    object: U64
    first: I64
    """Time of the first hit (ns)."""
    last: I64
    """Time of the death; of a life without one, of the last hit, or of the next life's first."""
    ended: Bool
    number: I64
    """Number of its request or bio; NEVER: none so far."""
    several: Bool
    """Whether it overlaps another one, too."""


def _fresh(life: U32, address: U64, first: I64, last: I64) -> _Lives:
    no = np.zeros(len(life), np.bool_)
    return _Lives(life, address, first, last, no, np.full(len(life), NEVER, np.int64), no.copy())


class LifeJoiner:
    """Joins the lives of a log with its requests or bios, window after window, in order."""

    def __init__(
        self, header: Mapping[str, Any], counts: FollowedCounts, by_pointers: bool
    ) -> None:
        """by_pointers: whether events have the kernel's addresses."""
        self.type = Following(header).type if follows(header) else ""
        self.counts = counts
        self.on = by_pointers and self.type in JOINED_TYPES
        """Whether lives are joined: by the kernel's addresses."""
        empty = np.zeros(0, np.int64)
        self._lives = _fresh(np.zeros(0, np.uint32), np.zeros(0, np.uint64), empty, empty)

    def joined(
        self, sites: SiteTables | None, result: "Result", end: int, final: bool
    ) -> SiteTables | None:
        """Return the tables with `joined`: lives of the requests (bios) that ended in the window.

        Each life is in one window. sites: the window's new hits; None: it has none. end: of the
        window (ns). final: no window follows. Returns `sites` itself where the log follows neither
        requests nor bios, or its events have no addresses.
        """
        if not self.on:
            return sites
        if sites is not None and len(sites.hits):
            self._lives = _grown(self._lives, sites.hits)
        found = _matched(self._lives, result.owners[self.type])
        over = np.ones(len(self._lives), np.bool_)
        if not final:
            over = self._lives.last < min(end - GRACE_NS, result.open_since[self.type])
        gone = self._lives.take(over)
        self.counts.lives += len(gone)
        self.counts.joined += int((gone.number != NEVER).sum())
        self.counts.several += int(gone.several.sum())
        self._lives = self._lives.take(~over)
        if sites is None and not len(found):
            return None
        return replace(sites or no_sites(), joined=found)


def _grown(known: _Lives, hits: HitTable) -> _Lives:
    """Return the lives with further hits, sorted by (address, time).

    Returns from functions of lives that are not known any more begin none.
    """
    life, at, of = np.unique(hits.life, return_index=True, return_inverse=True)
    fresh = _fresh(life, hits.object[at], hits.time[at], hits.time[at])
    np.maximum.at(fresh.last, of, hits.time)
    deaths = np.flatnonzero(hits.flags & HIT_ENDED)[::-1]
    fresh.last[of[deaths]], fresh.ended[of[deaths]] = hits.time[deaths], True
    new = hits.role[at] != Role.RETURN
    if len(known):
        order = np.argsort(known.life)
        place = np.searchsorted(known.life, life, sorter=order)
        row = order[np.minimum(place, len(known) - 1)]
        same = known.life[row] == life
        goes_on = same & ~known.ended[row]
        known.last[row[goes_on]] = fresh.last[goes_on]
        known.ended[row[goes_on]] = fresh.ended[goes_on]
        new &= ~same
    fresh = fresh.take(new)
    lives = _Lives.concatenate([known, fresh])
    lives = lives.take(np.lexsort((lives.first, lives.object)))
    # A life without a recorded death is over when its address is another one's.
    again = lives.object[:-1] == lives.object[1:]
    lives.last[:-1][again] = np.minimum(lives.last[:-1], lives.first[1:] - 1)[again]
    return lives


def _matched(lives: _Lives, owners: "Owners") -> JoinedLives:
    """Return the lives that are joined now, by overlap; sets `number` and `several` in `lives`.

    A life that overlaps several is the first one's in time. lives: sorted by (address, time).
    """
    row, owner = _overlaps(lives, owners)
    order = np.lexsort((owners.first[owner], row))
    row, owner = row[order], owner[order]
    number = owners.number[owner]
    first = np.ones(len(row), np.bool_)
    first[1:] = row[1:] != row[:-1]
    taken = first & (lives.number[row] == NEVER)
    lives.number[row[taken]] = number[taken]
    lives.several[row[lives.number[row] != number]] = True
    return JoinedLives(lives.life[row[taken]], number[taken])


def _overlaps(lives: _Lives, owners: "Owners") -> tuple[I64, I64]:
    """Return all pairs (life, owner), as rows, of one address that overlap in time."""
    address, of_life = np.unique(lives.object, return_inverse=True)
    if not len(address) or not len(owners):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    place = np.minimum(np.searchsorted(address, owners.object), len(address) - 1)
    owner = np.flatnonzero(address[place] == owners.object)
    place = place[owner]
    # Times as their ranks, so that (address, time) is one number.
    times, rank = np.unique(
        np.concatenate([lives.first, lives.last, owners.first[owner], owners.last[owner]]),
        return_inverse=True,
    )
    first, last, begin, end = np.split(
        rank.astype(np.int64), np.cumsum([len(lives), len(lives), len(owner)])
    )
    width = len(times)
    low = np.searchsorted(of_life * width + last, place * width + begin, side="left")
    high = np.searchsorted(of_life * width + first, place * width + end, side="right")
    count = np.maximum(high - low, 0)
    step = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(low, count) + step, np.repeat(owner, count)
