# SPDX-License-Identifier: Apache-2.0
"""Partial completions: which bios of a request each C ends.

blk_update_request advances through the request's bios in chain order and ends each one whose last
byte completes (bio_advance, bio_endio). Where that order is not known for all of a request's bios,
a bio's place among the request's sectors tells whether a C went past it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.identity.association import Association
from biotrail.converters.events.array_steps import is_first_of_run, ranges_overlap
from biotrail.converters.events.tables import I32, I64, SECTOR_BYTES, U8, Bool, Certainty
from biotrail.recorder.schema.records import D_FLAG_CHAIN_CUT, Kind


@dataclass(frozen=True)
class BioEnds:
    """How each bio generation's own piece ended; arrays by bio generation.

    end: event of the C that completed it, or -1: none recorded.
    status: blk_status_t of the last C that failed bytes of it, or 0.
    good: bytes completed without error.
    """

    end: I64
    status: I32
    good: I64


@dataclass(frozen=True)
class Parts:
    """What `complete_in_parts` needs to know of requests; arrays by request generation.

    partly: whether it completed in parts, and is no flush sequence.
    mixed: whether its last D served also bios that the recording's filters left out.
    scattered: whether the ranges of its bios need not touch (discard).
    finished: whether no more C is to come; then end is its last C.
    end: event of the last C, or -1.
    status: blk_status_t of its last failing C, or 0.
    """

    partly: Bool
    mixed: Bool
    scattered: Bool
    finished: Bool
    end: I64
    status: I32


@dataclass(frozen=True)
class _Shares:
    """Which bytes of which bio completed, filled in C by C; columns (b,) by bio generation.

    end, status, good: as in `BioEnds`. certainty: of the bio's request (Certainty).
    """

    end: I64
    status: I32
    good: I64
    certainty: U8

    def doubt(self, bios: I64 | list[int], certainty: Certainty | U8) -> None:
        """Raise `certainty` of these bios to at least the given one, or ones (per bio)."""
        self.certainty[bios] = np.maximum(self.certainty[bios], certainty)


def complete_in_parts(a: Association, parts: Parts, whole: BioEnds) -> tuple[BioEnds, U8]:
    """Assign each C of the requests in `parts.partly` to the bios whose last byte it completes.

    Bios complete in the order of the last D, those of `parts.mixed` by their sectors. whole: ends
    of all bios, as if no request had completed in parts. Returned are a copy of `whole` in which
    the bios of these requests have their own end (-1: not complete yet), status and good bytes, and
    a copy of the certainty of all bios (b,), raised where a bio's part is in doubt. Bios of a
    finished request that no C ended get its last C and its status, and are at least AMBIGUOUS.
    """
    bios = np.flatnonzero(a.request >= 0)
    bios = bios[parts.partly[a.request[bios]]]
    if not len(bios):
        return whole, a.certainty
    shares = _Shares(whole.end.copy(), whole.status.copy(), whole.good.copy(), a.certainty.copy())
    chains = _chains(a, parts.partly)
    bios = bios[np.lexsort((a.facts.piece_sector[bios], a.request[bios]))]
    request = a.request[bios]
    cuts = np.flatnonzero(is_first_of_run(request))
    for group, r in zip(np.split(bios, cuts[1:]), request[cuts].tolist(), strict=True):
        shares.end[group], shares.good[group], shares.status[group] = -1, 0, 0
        if parts.mixed[r]:
            _complete_by_place(a, r, group, shares)
        else:
            _InOrder(a, chains, group, shares, bool(parts.scattered[r])).complete(r)
        rest = group[shares.end[group] < 0]
        if parts.finished[r] and len(rest):
            # Their sizes are not known: all that is certain is when the last of them ended.
            shares.end[rest], shares.status[rest] = parts.end[r], parts.status[r]
            shares.doubt(rest, Certainty.AMBIGUOUS)
    return BioEnds(shares.end, shares.status, shares.good), shares.certainty


def _rows_of(a: Association, request: int) -> Iterator[tuple[int, int]]:
    """Yield (event, kind) of each row of a request, in time order."""
    rows = slice(a.requests.start[request], a.requests.ends[request])
    events, kinds = a.requests.row_event[rows], a.requests.row_role[rows]
    return zip(events.tolist(), kinds.tolist(), strict=True)


def _complete_by_place(a: Association, request: int, bios: I64, shares: _Shares) -> None:
    """Complete the bios of a request by their sectors, as filters left out its other bios.

    request: request generation. bios: its bio generations. A C covers the bytes behind those of the
    C before it, counted from the sector of the last D; C before the first recorded D complete
    nothing. Changes end, good and status in `shares`.
    """
    begin, done = None, 0
    for event, kind in _rows_of(a, request):
        if kind == Kind.D:
            begin, done = int(a.events.sector[event]), 0
        elif kind == Kind.C and begin is not None:
            _take_by_place(a, event, begin, done, bios, shares)
            done += int(a.events.bytes[event])


def _take_by_place(
    a: Association, event: int, begin: int, before: int, bios: I64, shares: _Shares
) -> I64:
    """Complete bios by the part of the request that one C covers; return the bytes of each (int64).

    event: the C. begin: sector of the request's last D (without one, of the C). before: bytes
    completed since then; the C covers the next ones. bios: (k,) bio generations; those that have
    ended get nothing, nor do those of unknown size, which no C ends so. Changes in `shares`: `end`
    of bios whose last byte is covered, or lies before; `good`, or with an error `status`, of those
    that get bytes.
    """
    known = a.facts.piece_bytes[bios] >= 0
    size = np.maximum(a.facts.piece_bytes[bios], 0)
    # Byte offset of each bio in the request.
    place = (a.facts.piece_sector[bios].astype(np.int64) - begin) * SECTOR_BYTES
    status, done = int(a.events.status[event]), before + int(a.events.bytes[event])
    took = np.clip(np.minimum(done, place + size) - np.maximum(before, place), 0, size)
    open_ = shares.end[bios] < 0
    took[~open_] = 0
    shares.good[bios] += took if status == 0 else 0
    touched = bios[took > 0]
    shares.status[touched] = np.where(status, status, shares.status[touched])
    shares.end[bios[open_ & known & (place + size <= done)]] = event
    return np.asarray(took, dtype=np.int64)


def _chains(a: Association, partly: Bool) -> dict[int, list[int]]:
    """Return the bio generations that each D names, by event of the D: its head, then its chain.

    Of a cut chain, the recorded part. A D without known bios has no entry. partly: mask (q,) of the
    requests whose D are wanted.
    """
    rows = np.flatnonzero((a.bios.row_role == Kind.D) & (a.row_request >= 0))
    rows = rows[partly[a.row_request[rows]]]
    rows = rows[np.argsort(a.bios.row_slot[rows], kind="stable")]
    chains: dict[int, list[int]] = {}
    for event, bio in zip(
        a.bios.row_event[rows].tolist(), a.bios.row_gen[rows].tolist(), strict=True
    ):
        chains.setdefault(event, []).append(bio)
    return chains


class _InOrder:
    """The bios of one request, completed by its C in the order of its last D.

    What completes is written to `shares`.
    """

    def __init__(
        self,
        a: Association,
        chains: dict[int, list[int]],
        bios: I64,
        shares: _Shares,
        scattered: bool,
    ) -> None:
        """Begin with all bios incomplete, in the order of `bios`.

        chains: bio generations by event of the D that names them. bios: generations of the
        request's bios, by sector. scattered: whether their ranges need not touch (discard).
        """
        self._a, self._chains, self._shares, self._scattered = a, chains, shares, scattered
        self._left = dict(zip(bios.tolist(), a.facts.piece_bytes[bios].tolist(), strict=True))
        """Bytes not completed yet of each bio that has not ended; negative: size not known."""
        self._order = list(self._left)
        self._issued = False
        self._placed: list[int] = []
        """Bios behind a gap in the last D's cut chain: completed by place, not in order."""
        self._begin, self._done = 0, 0
        """Sector of the last D, and bytes completed since."""

    def complete(self, request: int) -> None:
        """Follow the D and C of this request generation in time order, and complete its bios.

        Changes `shares`: end, good and status of bios that complete; certainty of those whose part
        is in doubt.
        """
        for event, kind in _rows_of(self._a, request):
            if kind == Kind.D:
                self._issue(event)
            elif kind == Kind.C:
                self._complete(event)
                self._done += int(self._a.events.bytes[event])

    def _born(self, bios: list[int], event: int) -> list[int]:
        """Return those of the bios whose first event is before this one."""
        return [bio for bio in bios if self._a.bios.birth[bio] < event]

    def _issue(self, event: int) -> None:
        """Take in a D: set the order in which later C complete the bios.

        That is this D's chain, then all other bios that began before it, without those that ended.
        Where the chain was cut: the chain alone for a discard, else as `_place` says. Otherwise an
        unknown size is inferred (`_infer_size`), and the head shortened if the D is smaller than
        its chain (`_infer_lost_part`). Sets `_order`, `_placed`, `_issued`, `_begin` and `_done`,
        which counts bytes from this D on; may change `_left`, and the certainty in `shares`.
        """
        a, total = self._a, int(self._a.events.bytes[event])
        self._issued = True
        self._begin, self._done = int(a.events.sector[event]), 0
        # A damaged log can name a bio twice.
        named = [bio for bio in dict.fromkeys(self._chains.get(event, ())) if bio in self._left]
        here = self._born(list(self._left), event)
        self._order = self._chain_order(named, here)
        self._placed = []
        if _is_cut(a, event) and self._scattered:
            self._order = named
        elif _is_cut(a, event):
            self._place(event, named, total)
        else:
            self._infer_size(named or self._order, total)
            self._infer_lost_part(named, total)

    def _chain_order(self, named: list[int], here: list[int]) -> list[int]:
        """Return the order in which C complete bios: a D's chain (`named`), then others `here`."""
        return named + [bio for bio in here if bio not in named]

    def _place(self, event: int, named: list[int], total: int) -> None:
        """Set `_order` and `_placed` for a D with a cut chain, and mark bios that it does not name.

        named: bios that the chain names, in its order. total: bytes of the D. Unnamed bios that can
        be in the D (`_lying_in`) come behind the named ones or, behind a gap, go to `_placed`; the
        others wait for the next D. Those that can be in it become at least INTERVAL, with a G
        AMBIGUOUS (both only where the log has pointers); those in `_placed` always AMBIGUOUS.
        """
        a = self._a
        # A bio outside the D's range merges later, after a requeue.
        unnamed = _lying_in(a, event, self._order[len(named) :])
        if a.events.doubt is None:
            # A bio with a G came by a merge of requests (m), and which m it was is not recorded.
            own = a.bios.first(Kind.G)[unnamed] >= 0
            doubt = np.where(own, np.uint8(Certainty.AMBIGUOUS), np.uint8(Certainty.INTERVAL))
            self._shares.doubt(unnamed, doubt)
        self._order = named + unnamed
        self._placed = self._behind_a_gap(named, total)
        self._order = [bio for bio in self._order if bio not in self._placed]
        self._shares.doubt(self._placed, Certainty.AMBIGUOUS)

    def _behind_a_gap(self, named: list[int], total: int) -> list[int]:
        """Return the bios that a cut chain does not name, if bytes of the D are missing.

        named: bios that the chain names. total: bytes of the D. Empty if the chain names none, or
        if the known sizes of the bios in `_order` reach `total`. Otherwise bios that are not known
        lie among the unnamed ones of `_order`, so that the place of these is not known either.
        """
        known_bytes = sum(max(self._left[bio], 0) for bio in self._order)
        return (
            [bio for bio in self._order if bio not in named]
            if named and known_bytes < total
            else []
        )

    def _infer_size(self, bios: list[int], total: int) -> None:
        """Set in `_left` the size of the only bio without one: `total` less the other bios' bytes.

        bios: bios of a D. total: bytes of the D. The size is at least 0. Does nothing if none, or
        several, lack a size.
        """
        sizes = {bio: self._left[bio] for bio in bios}
        unknown = [bio for bio, size in sizes.items() if size < 0]
        if len(unknown) == 1:
            known_bytes = sum(size for size in sizes.values() if size >= 0)
            self._left[unknown[0]] = max(0, total - known_bytes)

    def _infer_lost_part(self, named: list[int], total: int) -> None:
        """Shorten the head bio, and mark it LOST, if the D has fewer bytes than its bios.

        named: bios that the D names, the head first. total: bytes of the D. Changes `_left` of the
        head, to 0 at least. The difference was completed by a C that was not recorded, before a
        requeue. Does nothing if the D names none, or the size of one of them is not known.
        """
        known_bytes = sum(self._left[bio] for bio in named)
        if named and known_bytes > total and all(self._left[bio] >= 0 for bio in named):
            self._left[named[0]] = max(0, self._left[named[0]] - (known_bytes - total))
            self._shares.certainty[named[0]] = Certainty.LOST

    def _complete(self, event: int) -> None:
        """Complete bios by one C: in the order of the last D, those in `_placed` by their sectors.

        event: the C. Before any D: as `_complete_unissued` says. Bios that began after the C are
        left out until the next D, and so are those in `_placed` without bytes left, or of unknown
        size.
        """
        here = self._born(self._order, event)
        if not self._issued:
            self._complete_unissued(event, _lying_in(self._a, event, here))
            return
        self._order = self._take_in_order(event, here)
        placed = [bio for bio in self._placed if self._left.get(bio, -1) > 0]
        if placed:
            self._end_by_place(event, placed, self._begin, self._done)

    def _complete_unissued(self, event: int, here: list[int]) -> None:
        """Complete bios by a C before any recorded D: by sectors, or discards in order.

        event: the C. here: bios that can be in the request by then, by sector. Only those that
        share a sector with the C complete; if none does, all of them in order. Changes `shares`
        and `_left`, and removes completed bios from `_order`.
        """
        there = np.array(here, dtype=np.int64)[_overlap(self._a, event, here)].tolist()
        if there and not self._scattered:
            self._end_by_place(event, there, int(self._a.events.sector[event]), 0)
        else:
            self._take_in_order(event, here)
        self._order = [bio for bio in self._order if bio in self._left]

    def _take_in_order(self, event: int, order: list[int]) -> list[int]:
        """Complete bios by the bytes of one C in this order, and return the bios that are left.

        event: the C. Stops at the first bio that is not complete, or whose size is not known; bios
        without bytes left end as well. Bytes of the C beyond the last bio are ignored. Changes
        `_left` and, in `shares`, `end`, and `good` or with an error `status`.
        """
        events, shares, left = self._a.events, self._shares, self._left
        rest, status = int(events.bytes[event]), int(events.status[event])
        for place, bio in enumerate(order):
            took = min(rest, left[bio])
            if left[bio] < 0 or (rest == 0 and left[bio] > 0):
                return order[place:]
            rest -= took
            left[bio] -= took
            shares.good[bio] += took if status == 0 else 0
            shares.status[bio] = status or shares.status[bio]
            if left[bio] > 0:
                return order[place:]
            shares.end[bio] = event
            del left[bio]
        return []

    def _end_by_place(self, event: int, bios: list[int], begin: int, before: int) -> None:
        """Complete bios by their sectors in the part of the request that one C covers.

        event: the C. begin: sector of the request's last D. before: bytes completed since then.
        bios: generations. Takes what they got from `_left`, and bios that have ended out of it;
        changes `_shares`.
        """
        rows = np.array(bios, dtype=np.int64)
        took = _take_by_place(self._a, event, begin, before, rows, self._shares)
        for bio, size in zip(bios, took.tolist(), strict=True):
            self._left[bio] -= size
            if self._shares.end[bio] >= 0:
                del self._left[bio]


def _lying_in(a: Association, event: int, bios: list[int]) -> list[int]:
    """Return the bios that can be in the request at this event (a D or C), in their order.

    The others merge into it later. Returned are bios that overlap the event's range, bios of
    unknown size and, whatever the operation, bios of exactly the event's length: a zone append gets
    its sector at completion alone.
    """
    size = a.facts.piece_bytes[bios]
    inside = _overlap(a, event, bios) | (size < 0) | (size == int(a.events.bytes[event]))
    return [b for b, lies in zip(bios, inside.tolist(), strict=True) if lies]


def _overlap(a: Association, event: int, bios: list[int]) -> Bool:
    """Return, per bio, whether its piece shares a sector with the event's range.

    The piece is what went to the bio's own request. One of no bytes does if it lies inside, not at
    the begin or end of the range; likewise for an event of no bytes. Of unknown size the result is
    meaningless.
    """
    begin = int(a.events.sector[event])
    end = begin + int(a.events.bytes[event]) // SECTOR_BYTES
    piece_begin = a.facts.piece_sector[bios].astype(np.int64)
    piece_end = piece_begin + a.facts.piece_bytes[bios] // SECTOR_BYTES
    return np.asarray(ranges_overlap(piece_begin, piece_end, begin, end), dtype=np.bool_)


def _is_cut(a: Association, issue: int) -> bool:
    """Return whether the chain of this D event is longer than its CHAIN records."""
    flags = a.events.field(Kind.D, "flags", np.array([issue]))
    return bool(int(flags[0]) & D_FLAG_CHAIN_CUT)
