# SPDX-License-Identifier: Apache-2.0
"""The upper bio of each bio that a loop device with direct I/O sent to its backing device."""

import numpy as np

from biotrail.converters.association.completion.completion import RequestEnds
from biotrail.converters.association.completion.partial_completion import BioEnds
from biotrail.converters.association.identity.association import Association, Findings
from biotrail.converters.association.ranges.conditions import LOOP_CONDITIONS, LoopCandidates
from biotrail.converters.association.rules import all_mark
from biotrail.converters.events.array_steps import is_first_of_run, latest_marked, take_or
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, SECTOR_BYTES, Bool
from biotrail.recorder.schema.records import Kind


def loop_parents(a: Association, ends: RequestEnds, pieces: BioEnds, context: Context) -> Findings:
    """Find `upper` of the bios that a loop device with direct I/O sent to its backing device.

    The recorder tells the request that a bio was queued for (BACKING); its bios are upper ones.
    Other bios are linked by their first page: lo_rw_aio submits the upper bio's pages, so the upper
    one is the last with that page that was queued on a device with others below it. Either has to
    hold LOOP_CONDITIONS. Buffered loops share no pages: no link. pieces: end of each bio's own
    piece.
    """
    below = {dev: _backing(context, dev) for dev in np.unique(a.facts.dev).tolist()}
    if not any(below.values()) or not len(a.requests):
        return Findings()
    lower, upper = _same_page(a, [dev for dev, disks in below.items() if disks])
    first = _first_pieces(a)[upper]
    told, piece = _told(a, lower, first)
    by_page = ~np.isin(lower, told)
    lower = np.concatenate([lower[by_page], told])
    first = np.concatenate([first[by_page], piece])
    upper = np.concatenate([upper[by_page], a.root[piece]])
    request, asked = a.request[first], a.queued[lower]
    candidates = LoopCandidates(
        a,
        upper,
        lower,
        request,
        take_or(ends.issue, request, -1),
        pieces.end[first],
        _completed_before(a, first, asked),
        asked,
        _stands_on(a, upper, lower, below),
    )
    linked = all_mark(LOOP_CONDITIONS, candidates, len(lower))
    upper_of_bio = a.upper.copy()
    upper_of_bio[lower[linked]] = upper[linked]
    return Findings(upper=upper_of_bio)


def _told(a: Association, paged: I64, first: I64) -> tuple[I64, I64]:
    """Return (lower, piece), bio generations (k,): bios with a request, and that one's piece.

    A request's lower bios come in the order of its file's bytes, so each begins where those before
    it end. That fails over holes of the file that is read, which no bio reads, so a bio with the
    first page of a piece (`first`, of each of `paged`) of the request begins there.
    """
    queued = a.queued
    if a.events.path is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    lower = np.flatnonzero(queued >= 0)
    address = a.events.path[queued[lower]]["backing"]
    lower, address = lower[address != 0], address[address != 0]
    request = a.requests.at(address, queued[lower])
    lower, request = lower[request >= 0], request[request >= 0]
    order = np.lexsort((queued[lower], request))
    lower, request = lower[order], request[order]
    new = is_first_of_run(request)
    begin = _begins(a)
    # Sectors up to each bio, counted from where the last one whose place is known began.
    size = a.facts.bytes[lower].astype(np.int64) // SECTOR_BYTES
    before = np.cumsum(size) - size
    page = np.full(len(a.bios), -1)
    page[paged] = first
    page = page[lower]
    page[take_or(a.request, page, -1) != request] = -1
    start = np.where(page >= 0, begin[page], _request_begins(a, begin)[request])
    anchor = latest_marked(new | (page >= 0))
    sector = start[anchor] + before - before[anchor]
    piece = _piece_at(a, begin, request, sector)
    return lower[piece >= 0], piece[piece >= 0]


def _begins(a: Association) -> I64:
    """Return the first sector of each bio's own piece (b,)."""
    return a.facts.piece_sector.astype(np.int64)


def _request_begins(a: Association, begin: I64) -> I64:
    """Return the first sector of each request's bios (q,)."""
    found = np.full(len(a.requests), np.iinfo(np.int64).max)
    served = np.flatnonzero((a.request >= 0) & (a.facts.piece_bytes > 0))
    np.minimum.at(found, a.request[served], begin[served])
    return found


def _piece_at(a: Association, begin: I64, request: I64, sector: I64) -> I64:
    """Return, per request (k,), which of its bios' pieces has the sector, or -1: it has no bios.

    The last one that begins there or before, or else the first one.
    """
    served = np.flatnonzero((a.request >= 0) & (a.facts.piece_bytes > 0))
    served = served[np.lexsort((begin[served], a.request[served]))]
    if not len(served):
        return np.full(len(request), -1, np.int64)
    low = np.searchsorted(a.request[served], request)
    high = np.searchsorted(a.request[served], request, side="right")
    # Both are in order of request, then sector: one search in the two as pairs.
    ranks = np.lexsort(
        (
            np.append(np.zeros(len(served), np.int8), np.ones(len(sector), np.int8)),
            np.append(begin[served], sector),
            np.append(a.request[served], request),
        )
    )
    is_piece = ranks < len(served)
    upto = np.cumsum(is_piece)
    place = np.empty(len(sector), np.int64)
    place[ranks[~is_piece] - len(served)] = upto[~is_piece] - 1
    place = np.clip(place, low, np.maximum(high - 1, low))
    return np.where(high > low, served[np.minimum(place, len(served) - 1)], -1)


def _same_page(a: Association, stacked: list[int]) -> tuple[I64, I64]:
    """Return (lower, upper), bio generations (k,): bios whose first page a bio before them had.

    upper: the last bio with that page whose Q came before and whose device is in `stacked` (dev_t).
    Bios without a recorded page are left out.
    """
    queued = a.queued
    bio = np.flatnonzero(queued >= 0)
    page = a.events.field(Kind.Q, "page", queued[bio])
    bio, page = bio[page != 0], page[page != 0]
    order = np.lexsort((queued[bio], page))
    bio, page = bio[order], page[order]
    first_row = latest_marked(is_first_of_run(page))
    is_stacked = np.isin(a.facts.dev[bio], stacked)
    latest_row = np.append(-1, latest_marked(is_stacked)[:-1])[: len(bio)]
    row = np.flatnonzero(latest_row >= first_row)
    return bio[row], bio[latest_row[row]]


def _stands_on(a: Association, upper: I64, lower: I64, below: dict[int, set[int]]) -> Bool:
    """Return, per pair of bios (k,), whether the upper device stands directly on the lower one.

    below: disks below each device, by dev_t.
    """
    devices = zip(a.facts.dev[upper].tolist(), a.facts.dev[lower].tolist(), strict=True)
    return np.array([low in below[up] for up, low in devices], dtype=np.bool_)


def _completed_before(a: Association, bios: I64, asked: I64) -> Bool:
    """Return, per bio (k,), whether its request is known to have completed it before `asked`.

    bios: (k,) bio generations with a request; without one the result is meaningless. asked: (k,)
    events. Shown by the request's last R or D, if it is before `asked` and begins behind the bio's
    piece (the bio's part was completed, by a C that was not recorded), or by a new generation at
    the request's address before `asked`.
    """
    request = np.maximum(a.request[bios], 0)
    last, again = a.requests.last(Kind.R, Kind.D)[request], a.requests.again[request]
    end = a.facts.piece_sector[bios].astype(np.int64) + a.facts.piece_bytes[bios] // SECTOR_BYTES
    behind = a.events.sector[np.maximum(last, 0)].astype(np.int64) >= end
    over = (again >= 0) & (again < a.events.number[asked])
    return np.asarray(((last >= 0) & (last < asked) & behind) | over)


def _first_pieces(a: Association) -> I64:
    """Return, per bio (b,), the piece (bio generation) with its first sector, and first page.

    That is a front piece that begins where the bio does, else the bio itself.
    """
    first = np.arange(len(a.bios))
    fronts = np.flatnonzero(a.root != first)
    starts = a.facts.piece_sector[fronts] == a.facts.sector[a.root[fronts]]
    first[a.root[fronts[starts]]] = fronts[starts]
    return first


def _backing(context: Context, dev: int) -> set[int]:
    """Return the disks (dev_t) that a device stands on directly; empty for a plain disk."""
    return {context.disk_of(d) for d in context.lower_devices(dev)}
