# SPDX-License-Identifier: Apache-2.0
"""Questions that no event answers: asked now, of what is in flight; answered when all is over."""

import cython

from biotrail.converters.match.ctypes_of import bint, int64, size_of, uint64
from biotrail.converters.match.families import link_bios, link_request
from biotrail.converters.match.generations import is_partition
from biotrail.converters.match.indexes import bios_over, pieces_in
from biotrail.converters.match.lives import Bio, Device, Entry, Link, Offer, Request
from biotrail.converters.match.memory import (
    allocate,
    device_of,
    linked,
    note,
    page_entry,
)
from biotrail.converters.match.numbers import (
    LOW_32,
    A,
)
from biotrail.converters.match.state import Machine


def flown(b: Bio, ts: int64) -> bint:
    """Return whether a bio is known to have ended before a time.

    A bio's address is free after bio_endio alone (bio_put).
    """
    ended: bint = b.last_ended.number >= 0
    if b.again >= 0 and b.again_ts <= ts:
        return True
    last: int64 = b.told.ts
    if b.request and b.request.complete.number >= 0:
        ended = True
        last = max(last, b.request.told.ts)
    return ended and last < ts


def ask_for_split(m: Machine, b: Bio) -> None:
    """Note of which larger bios a bio that begins with G, s, M or F can be a front."""
    if m.size == 0:
        return
    at: int64
    bios_over(m, m.device, m.sector, m.end)
    for at in range(m.asked):
        if m.asked_bios[at] != b:
            add_candidate(m, b, m.asked_bios[at], m.on["splits/same-operation"])


def ask_for_upper(m: Machine, b: Bio) -> None:
    """Note of which bios on the device that its A names a clone can be."""
    from_sector: uint64 = m.w5[m.row]
    from_dev: uint64 = m.w6[m.row] & LOW_32
    part: uint64 = m.w6[m.row] >> 32
    stop: uint64 = from_sector + cython.cast(uint64, m.size >> 9)
    if from_dev == part or is_partition(m, from_dev, m.dev):
        return
    upper: Device = device_of(m, from_dev)
    if upper.parity and from_sector == 0 and m.size <= 4096:
        return
    b.is_clone = True
    note(m, cython.address(b.asked), A)
    b.source = upper
    b.source_sector = from_sector
    b.later_clone = upper.first_clone
    if b.later_clone:
        b.later_clone.earlier_clone = b
    upper.first_clone = b
    at: int64
    bios_over(m, upper, from_sector, stop)
    for at in range(m.asked):
        if m.asked_bios[at] != b:
            add_candidate(m, b, m.asked_bios[at], m.on["upper bios/same-operation"])


def add_candidate(m: Machine, b: Bio, c: Bio, same_operation: bint) -> None:
    """Note a candidate if it has the operation and may be in flight still."""
    if same_operation and ((c.queue.opf ^ m.opf) & 0xFF) != 0:
        return
    if flown(c, m.ts):
        return
    b.candidates = linked(c, b.candidates)
    link_bios(b, c)


def show_unrecorded(m: Machine) -> None:
    """A c of a bio of which nothing else was recorded: clones in flight may be its own."""
    b: Bio = m.device.first_clone
    begin: uint64
    stop: uint64
    while b:
        begin = b.source_sector
        stop = begin + cython.cast(uint64, b.asked.size >> 9)
        if ((b.asked.opf ^ m.opf) & 0xFF) == 0 and has_upper(b, m.ts):
            if b.asked.size == 0:
                if m.sector == 0 and m.size == 0:
                    b.maybe_unrecorded = True
            elif m.size == 0:
                if m.sector == stop:
                    b.maybe_unrecorded = True
            elif m.sector <= begin and m.end >= stop:
                b.maybe_unrecorded = True
        b = b.later_clone


def has_upper(b: Bio, ts: int64) -> bint:
    """Return whether a bio that a clone may be of is in flight still."""
    link: Link = b.candidates
    while link:
        if not flown(link.bio, ts):
            return True
        link = link.next
    return False


def offer_chain(m: Machine, r: Request) -> None:
    """Note which merged bios a request may have whose chain was cut, or that fails unissued."""
    b: Bio
    offer: Offer
    at: int64
    pieces_in(m, m.device, m.sector, m.end)
    for at in range(m.asked):
        b = m.asked_bios[at]
        if b.request:
            if b.request.merged.number < 0:
                continue
        elif b.joined.number < 0:
            continue
        if b.told.dev != m.dev:
            continue
        if ((b.told.opf ^ m.opf) & 0xFF) != 0 and m.on["chains/same-operation"]:
            continue
        offer = cython.cast(Offer, allocate(1, size_of(Offer)))
        offer.request = r
        offer.at = r.told
        offer.next = b.chains
        b.chains = offer
        link_request(b, r)


def find_page(m: Machine, b: Bio) -> None:
    """Note the bio above whose first page a bio on a loop device's backing disk carries."""
    if b.page == 0 or not m.has_stacks:
        return
    entry: Entry = page_entry(m, b.page)
    if entry.bio:
        b.above = entry.bio
        link_bios(b, b.above)
    if m.device.has_below:
        if entry.bio:
            entry.bio.in_pages = False
        entry.bio = b
        b.in_pages = True
