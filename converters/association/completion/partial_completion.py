# SPDX-License-Identifier: Apache-2.0
"""Requests that complete in parts: which of their bios each C ends.

C's bytes are consumed by the request's bios in order. Where the order is not known for all of
them, the place of a bio among the request's sectors tells whether a C went beyond it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.identity.association import Association
from biotrail.converters.events.tables import I32, I64, SECTOR_BYTES, Bool, Certainty
from biotrail.recorder.schema.records import D_FLAG_CHAIN_CUT, Kind


@dataclass
class BioEnds:
    """Per bio generation that was a piece. end: event of its C, -1 none yet."""

    end: I64
    status: I32
    good: I64


@dataclass
class Parts:
    """Per request generation: partly: it completed in parts, and is no flush sequence.

    mixed: its last issue served bios, too, that a filter left out. scattered: its bios may lie
    anywhere. finished: nothing more is to come; then end is its last C, and status the worst
    that any said.
    """

    partly: Bool
    mixed: Bool
    scattered: Bool
    finished: Bool
    end: I64
    status: I32


def consume_parts(a: Association, parts: Parts, result: BioEnds) -> None:
    """Lets the bios of these requests end one after the other."""
    bios = np.flatnonzero(a.request >= 0)
    bios = bios[parts.partly[a.request[bios]]]
    if not len(bios):
        return
    chains = _chains(a, parts.partly)
    bios = bios[np.lexsort((a.facts.piece_sector[bios], a.request[bios]))]
    request = a.request[bios]
    cuts = np.flatnonzero(np.append(True, request[1:] != request[:-1]))
    for group, r in zip(np.split(bios, cuts[1:]), request[cuts].tolist(), strict=True):
        result.end[group], result.good[group], result.status[group] = -1, 0, 0
        if parts.mixed[r]:
            _consume_by_place(a, r, group, result)
        else:
            _Consumer(a, chains, group, result, bool(parts.scattered[r])).consume(r)
        rest = group[result.end[group] < 0]
        if parts.finished[r] and len(rest):
            # Sizes of several bios are unknown: all that is certain is when the last one ended.
            result.end[rest], result.status[rest] = parts.end[r], parts.status[r]
            a.certainty[rest] = np.maximum(a.certainty[rest], Certainty.AMBIGUOUS)


def _rows_of(a: Association, request: int) -> Iterator[tuple[int, int]]:
    """(event, kind) of a request, in order of time."""
    rows = slice(a.requests.start[request], a.requests.ends[request])
    events, kinds = a.requests.row_event[rows], a.requests.row_role[rows]
    return zip(events.tolist(), kinds.tolist(), strict=True)


def _consume_by_place(a: Association, request: int, bios: I64, result: BioEnds) -> None:
    """Where a filter left out bios of the request, the sectors of the others tell who is done."""
    begin, done = None, 0
    for event, kind in _rows_of(a, request):
        if kind == Kind.D:
            begin, done = int(a.events.sector[event]), 0
        elif kind == Kind.C and begin is not None:
            _take_by_place(a, event, begin, done, bios, result)
            done += int(a.events.bytes[event])


def _take_by_place(
    a: Association, event: int, begin: int, before: int, bios: I64, result: BioEnds
) -> I64:
    """One C of a request that was issued at sector `begin`, `before` bytes of it through by then.

    Returns the bytes that each bio took.
    """
    size = np.maximum(a.facts.piece_bytes[bios], 0)
    place = (a.facts.piece_sector[bios].astype(np.int64) - begin) * SECTOR_BYTES
    status, done = int(a.events.status[event]), before + int(a.events.bytes[event])
    took = np.clip(np.minimum(done, place + size) - np.maximum(before, place), 0, size)
    open_ = result.end[bios] < 0
    took[~open_] = 0
    result.good[bios] += took if status == 0 else 0
    touched = bios[took > 0]
    result.status[touched] = np.where(status, status, result.status[touched])
    result.end[bios[open_ & (place + size <= done)]] = event
    return np.asarray(took, dtype=np.int64)


def _chains(a: Association, partly: Bool) -> dict[int, list[int]]:
    """Bios by the issue that names them, in the chain's order, for the requests in the mask."""
    rows = np.flatnonzero((a.bios.row_role == Kind.D) & (a.row_request >= 0))
    rows = rows[partly[a.row_request[rows]]]
    rows = rows[np.argsort(a.bios.row_slot[rows], kind="stable")]
    chains: dict[int, list[int]] = {}
    for event, bio in zip(
        a.bios.row_event[rows].tolist(), a.bios.row_gen[rows].tolist(), strict=True
    ):
        chains.setdefault(event, []).append(bio)
    return chains


class _Consumer:
    """The bios of one request, which take the bytes of its C in the order of its last issue."""

    def __init__(
        self,
        a: Association,
        chains: dict[int, list[int]],
        bios: I64,
        result: BioEnds,
        scattered: bool,
    ) -> None:
        self._a, self._chains, self._result, self._scattered = a, chains, result, scattered
        self._left = dict(zip(bios.tolist(), a.facts.piece_bytes[bios].tolist(), strict=True))
        """Bytes of bios that have not ended; negative: not known."""
        self._order = list(self._left)
        self._issued = False
        self._placed: list[int] = []
        """Bios behind a gap in the chain of the last issue."""
        self._begin, self._done = 0, 0
        """Sector of that issue, and bytes completed since."""

    def consume(self, request: int) -> None:
        """Goes through the request's issues and completions."""
        for event, kind in _rows_of(self._a, request):
            if kind == Kind.D:
                self._issue(event)
            elif kind == Kind.C:
                self._complete(event)
                self._done += int(self._a.events.bytes[event])

    def _born(self, bios: list[int], event: int) -> list[int]:
        return [bio for bio in bios if self._a.bios.birth[bio] < event]

    def _issue(self, event: int) -> None:
        a, total = self._a, int(self._a.events.bytes[event])
        self._issued = True
        self._begin, self._done = int(a.events.sector[event]), 0
        named = [bio for bio in self._chains.get(event, ()) if bio in self._left]
        here = self._born(list(self._left), event)
        self._order = named + [bio for bio in here if bio not in named]
        self._placed = []
        if _is_cut(a, event) and self._scattered:
            self._order = named
        elif _is_cut(a, event):
            self._place(event, named, total)
        else:
            self._tell_unknown(named or self._order, total)
            self._tell_unseen(named, total)

    def _place(self, event: int, named: list[int], total: int) -> None:
        """After a cut chain: who lies behind the gap, and is in doubt."""
        a = self._a
        # What lies elsewhere comes to the request later.
        unnamed = _lying_in(a, event, self._order[len(named) :])
        if a.events.doubt is None:
            # One that had a request of its own came with that, and which it was, nothing tells.
            own = a.bios.first(Kind.G)[unnamed] >= 0
            doubt = np.where(own, np.uint8(Certainty.AMBIGUOUS), np.uint8(Certainty.INTERVAL))
            a.certainty[unnamed] = np.maximum(a.certainty[unnamed], doubt)
        self._order = named + unnamed
        self._placed = self._behind_a_gap(named, total)
        self._order = [bio for bio in self._order if bio not in self._placed]
        a.certainty[self._placed] = np.maximum(a.certainty[self._placed], Certainty.AMBIGUOUS)

    def _behind_a_gap(self, named: list[int], total: int) -> list[int]:
        """Bios that a cut chain leaves out, where others that are not known lie among them."""
        known = sum(max(self._left[bio], 0) for bio in self._order)
        return [bio for bio in self._order if bio not in named] if named and known < total else []

    def _tell_unknown(self, bios: list[int], total: int) -> None:
        """The size of the only bio whose own was not seen is what the others leave of the issue."""
        sizes = {bio: self._left[bio] for bio in bios}
        unknown = [bio for bio, size in sizes.items() if size < 0]
        if len(unknown) == 1:
            known = sum(size for size in sizes.values() if size >= 0)
            self._left[unknown[0]] = max(0, total - known)

    def _tell_unseen(self, named: list[int], total: int) -> None:
        """What the issue is short of its bios is what a C before it, not seen, had of the first."""
        known = sum(self._left[bio] for bio in named)
        if named and known > total and all(self._left[bio] >= 0 for bio in named):
            self._left[named[0]] = max(0, self._left[named[0]] - (known - total))
            self._a.certainty[named[0]] = Certainty.LOST

    def _complete(self, event: int) -> None:
        """Takes the bytes of one C from the bios in order; keeps those that are not done."""
        here = self._born(self._order, event)
        if not self._issued:
            self._complete_unissued(event, _lying_in(self._a, event, here))
            return
        self._order = self._take_in_order(event, here)
        placed = [bio for bio in self._placed if self._left.get(bio, -1) > 0]
        if placed:
            self._end_by_place(event, placed, self._begin, self._done)

    def _complete_unissued(self, event: int, here: list[int]) -> None:
        """Where no issue was seen, the sectors of the C tell how far it went."""
        there = np.array(here, dtype=np.int64)[_overlap(self._a, event, here)].tolist()
        if there and not self._scattered:
            self._end_by_place(event, there, int(self._a.events.sector[event]), 0)
        else:
            self._take_in_order(event, here)
        self._order = [bio for bio in self._order if bio in self._left]

    def _take_in_order(self, event: int, order: list[int]) -> list[int]:
        events, result, left = self._a.events, self._result, self._left
        rest, status = int(events.bytes[event]), int(events.status[event])
        for place, bio in enumerate(order):
            took = min(rest, left[bio])
            if left[bio] < 0 or (rest == 0 and left[bio] > 0):
                return order[place:]
            rest -= took
            left[bio] -= took
            result.good[bio] += took if status == 0 else 0
            result.status[bio] = status or result.status[bio]
            if left[bio] > 0:
                return order[place:]
            result.end[bio] = event
            del left[bio]
        return []

    def _end_by_place(self, event: int, bios: list[int], begin: int, before: int) -> None:
        """Takes bytes by place; bios that are through are done."""
        rows = np.array(bios, dtype=np.int64)
        took = _take_by_place(self._a, event, begin, before, rows, self._result)
        for bio, size in zip(bios, took.tolist(), strict=True):
            self._left[bio] -= size
            if self._result.end[bio] >= 0:
                del self._left[bio]


def _lying_in(a: Association, event: int, bios: list[int]) -> list[int]:
    """Where no issue says what the request held, its sectors tell: others come later.

    A zone append tells its place only when it ends, and then all of it does.
    """
    size = a.facts.piece_bytes[bios]
    inside = _overlap(a, event, bios) | (size < 0) | (size == int(a.events.bytes[event]))
    return [b for b, lies in zip(bios, inside.tolist(), strict=True) if lies]


def _overlap(a: Association, event: int, bios: list[int]) -> Bool:
    """Which bios have a sector of those that an event tells."""
    begin = int(a.events.sector[event])
    end = begin + int(a.events.bytes[event]) // SECTOR_BYTES
    at = a.facts.piece_sector[bios].astype(np.int64)
    return np.asarray((at < end) & (at + a.facts.piece_bytes[bios] // SECTOR_BYTES > begin))


def _is_cut(a: Association, issue: int) -> bool:
    flags = a.events.field(Kind.D, "flags", np.array([issue]))
    return bool(int(flags[0]) & D_FLAG_CHAIN_CUT)
