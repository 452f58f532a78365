# SPDX-License-Identifier: Apache-2.0
"""Bios of a device by their sectors, so that a question does not look at all that are in flight.

While few are, the list of the device serves. The trees are made when a question meets many, and
kept until few are left.
"""

import cython

from biotrail.converters.match.ctypes_of import NULL, abort, int64, realloc, size_of, uint64
from biotrail.converters.match.flights import SPREAD, with_range, without_range
from biotrail.converters.match.lives import At, Bio, Device, Life, Range, Spot
from biotrail.converters.match.memory import BLOCK, add_block, end_of
from biotrail.converters.match.state import Machine

MANY = 64
FEW = 16


def new_spot(m: Machine, b: Bio, sector: uint64, end: uint64) -> Spot:
    """Return a place for a bio in a tree."""
    s: Spot = m.free_spots
    at: int64
    if not s:
        s = cython.cast(Spot, add_block(m, BLOCK, size_of(Spot)))
        for at in range(BLOCK):
            s[at].left = cython.cast(Range, m.free_spots)
            m.free_spots = cython.address(s[at])
        s = m.free_spots
    m.free_spots = cython.cast(Spot, s.left)
    m.spots += 1
    s.bio = b
    s.sector = sector
    s.end = end
    s.order = m.spots
    s.weight = cython.cast(uint64, m.spots) * SPREAD
    return s


def free_spot(m: Machine, s: Spot) -> None:
    """Give a place back."""
    s.left = cython.cast(Range, m.free_spots)
    m.free_spots = s


def index_queue(m: Machine, b: Bio) -> None:
    """Add a bio to its device's tree by Q."""
    d: Device = b.device
    if b.spot or b.queue.number < 0 or b.queue.dev != d.dev:
        return
    b.spot = new_spot(m, b, b.queue.sector, end_of(cython.address(b.queue)))
    if b.queue.size == 0:
        d.empty = with_range(d.empty, cython.cast(Range, b.spot))
    else:
        d.over = with_range(d.over, cython.cast(Range, b.spot))


def index_piece(m: Machine, b: Bio) -> None:
    """Give a bio its place in its device's tree by pieces."""
    d: Device = b.device
    at: At = piece_of(b)
    if b.piece_spot:
        d.pieces = without_range(d.pieces, cython.cast(Range, b.piece_spot))
        free_spot(m, b.piece_spot)
        b.piece_spot = NULL
    if at:
        b.piece_spot = new_spot(m, b, at.sector, end_of(at))
        d.pieces = with_range(d.pieces, cython.cast(Range, b.piece_spot))


def piece_of(b: Bio) -> At:
    """Return the event that tells the range that goes to a bio's own request; NULL: none so far.

    A request's m has all that it had, and names one bio of it.
    """
    if b.request and b.request.merged.number >= 0 and b.request.merged_bio == b:
        return cython.address(b.request.merged)
    if b.joined.number >= 0:
        return cython.address(b.joined)
    if b.got.number >= 0:
        return cython.address(b.got)
    if b.start.number >= 0:
        return cython.address(b.start)
    if b.remap.number > max(b.queue.number, b.front.number):
        return cython.address(b.remap)
    if b.front.number >= 0:
        return cython.address(b.front)
    if b.queue.number >= 0:
        return cython.address(b.queue)
    return NULL


def index_device(m: Machine, d: Device) -> None:
    """Make the trees of a device."""
    life: Life = cython.cast(Life, d.first_bio)
    b: Bio
    d.is_indexed = True
    while life:
        b = cython.cast(Bio, life)
        life = life.later
        index_queue(m, b)
        if b.request or b.joined.number >= 0:
            index_piece(m, b)


def unindex(m: Machine, b: Bio) -> None:
    """Take a bio out of its device's trees; few others left need none."""
    d: Device = b.device
    life: Life
    if b.spot:
        if b.queue.size == 0:
            d.empty = without_range(d.empty, cython.cast(Range, b.spot))
        else:
            d.over = without_range(d.over, cython.cast(Range, b.spot))
        free_spot(m, b.spot)
        b.spot = NULL
    if b.piece_spot:
        d.pieces = without_range(d.pieces, cython.cast(Range, b.piece_spot))
        free_spot(m, b.piece_spot)
        b.piece_spot = NULL
    if d.is_indexed and d.bios < FEW:
        d.is_indexed = False
        life = cython.cast(Life, d.first_bio)
        while life:
            unindex(m, cython.cast(Bio, life))
            life = life.later


def add_asked(m: Machine, b: Bio) -> None:
    """Note a bio that a question is about."""
    if m.asked == m.asked_room:
        m.asked_room = max(64, 2 * m.asked_room)
        m.asked_bios = cython.cast(
            cython.pointer(Bio), realloc(m.asked_bios, m.asked_room * cython.sizeof(cython.p_void))
        )
        if not m.asked_bios:
            abort()
    m.asked_bios[m.asked] = b
    m.asked += 1


def bios_over(m: Machine, d: Device, sector: uint64, end: uint64) -> None:
    """Find a device's bios whose Q covers a range; for one of no bytes, those without bytes."""
    life: Life = cython.cast(Life, d.first_bio)
    b: Bio
    m.asked = 0
    if d.bios > MANY and not d.is_indexed:
        index_device(m, d)
    if d.is_indexed:
        if sector == end:
            all_spots(m, d.empty)
        else:
            covering(m, d.over, sector, end)
        return
    while life:
        b = cython.cast(Bio, life)
        life = life.later
        if b.queue.number < 0 or b.queue.dev != d.dev:
            continue
        if sector == end:
            if b.queue.size == 0:
                add_asked(m, b)
        elif b.queue.sector <= sector and end_of(cython.address(b.queue)) >= end:
            if b.queue.size > 0:
                add_asked(m, b)


def pieces_in(m: Machine, d: Device, sector: uint64, end: uint64) -> None:
    """Find a device's bios whose piece shares a sector with a range, of those that have a request.

    Or that merged into one.
    """
    life: Life = cython.cast(Life, d.first_bio)
    b: Bio
    at: At
    m.asked = 0
    if d.bios > MANY and not d.is_indexed:
        index_device(m, d)
    if d.is_indexed:
        touching(m, d.pieces, sector, end)
        return
    while life:
        b = cython.cast(Bio, life)
        life = life.later
        if not b.request and b.joined.number < 0:
            continue
        at = piece_of(b)
        if at and at.sector < end and end_of(at) > sector:
            add_asked(m, b)


def all_spots(m: Machine, t: Range) -> None:
    """Find all bios of a tree."""
    if t:
        all_spots(m, t.left)
        add_asked(m, cython.cast(Spot, t).bio)
        all_spots(m, t.right)


def covering(m: Machine, t: Range, sector: uint64, end: uint64) -> None:
    """Find the bios of a tree whose range covers another one."""
    if not t or t.highest < end:
        return
    covering(m, t.left, sector, end)
    if t.sector <= sector:
        if t.end >= end:
            add_asked(m, cython.cast(Spot, t).bio)
        covering(m, t.right, sector, end)


def touching(m: Machine, t: Range, sector: uint64, end: uint64) -> None:
    """Find the bios of a tree whose range shares a sector with another one."""
    if not t or t.highest <= sector:
        return
    touching(m, t.left, sector, end)
    if t.sector < end:
        if t.end > sector:
            add_asked(m, cython.cast(Spot, t).bio)
        touching(m, t.right, sector, end)
