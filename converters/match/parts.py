# SPDX-License-Identifier: Apache-2.0
"""How requests and bios ended; which bios of a request each C of a part ends.

blk_update_request goes through the bios in the order of the chain and ends each whose last byte
completes. Where a cut chain leaves that order open, a bio's place among the sectors tells.
"""

import cython

from biotrail.converters.match.ctypes_of import NULL, bint, free, int64, uint64
from biotrail.converters.match.lives import At, Bio, Named, Request, Step
from biotrail.converters.match.memory import allocate
from biotrail.converters.match.numbers import (
    AMBIGUOUS,
    INTERVAL,
    LOST,
    LOW_63,
    NEVER,
    C,
    D,
)
from biotrail.converters.match.state import Machine


def request_end(m: Machine, r: Request) -> None:
    """Find how a request ended: by all its bytes, or as a flush sequence."""
    issued: At = cython.address(r.issue)
    sized: At = cython.address(r.issue)
    length: int64
    needed: int64
    completed: bint
    empty: bint
    if issued.number < 0:
        issued = cython.address(r.complete)
        sized = cython.address(r.start)
    if sized.number < 0:
        sized = cython.address(r.insert)
    r.total = sized.size if sized.number >= 0 else NEVER
    length = r.total
    if sized.number < 0:
        length = issued.size if issued.number >= 0 else 0
    r.sequence = length > 0 and (
        (r.flags & m.preflush) != 0
        or ((r.flags & m.fua) != 0 and issued.number >= 0 and not issued.opf & m.fua)
    )
    needed = r.last_issue.size if r.last_issue.number >= 0 else r.total
    completed = r.complete.number >= 0 and r.since_issue >= needed
    empty = r.complete.number >= 0 and r.complete.size == 0
    r.finished = m.on["request ends/bytes-completed"] and completed and not r.sequence
    if completed and r.sequence:
        if empty and m.on["request ends/flush-sequence-ended"]:
            r.finished = True
        if r.status != 0 and r.issue.number < 0 and m.on["request ends/flush-sequence-failed"]:
            r.finished = True


def bio_end(b: Bio) -> None:
    """End a bio with its request, if that is finished."""
    r: Request = b.request
    size: int64 = max(b.piece_bytes, 0)
    if not r or not r.finished:
        return
    b.end = r.complete.number
    b.end_ts = r.complete.ts
    b.status = r.status
    if r.sequence:
        b.good = min(size, r.good)
    elif r.status == 0:
        b.good = size


@cython.cclass
class Parts:
    """A request that completes in parts, and its bios; it lives as long as `complete_in_parts`."""

    members: cython.pointer(Bio)
    count: int64
    order: cython.pointer(Bio)  # bios in the order in which C complete them
    ordered: int64
    placed: cython.pointer(Bio)  # those behind a gap in a cut chain: by their sectors
    placed_count: int64
    issued: bint
    scattered: bint
    begin: uint64
    done: int64
    by_range: bint


def complete_in_parts(m: Machine, r: Request) -> None:
    """Follow the D and C of a request, and end its bios."""
    p: Parts = Parts.__new__(Parts)
    at: int64
    b: Bio
    one: Step
    p.members = cython.cast(cython.pointer(Bio), allocate(3 * r.bios, cython.sizeof(cython.p_void)))
    p.order = p.members + r.bios
    p.placed = p.order + r.bios
    p.count = 0
    p.scattered = (r.born.opf & 0xFF) == m.discard
    p.issued = False
    p.placed_count = 0
    p.begin = 0
    p.done = 0
    p.by_range = m.by_range
    b = r.first
    while b:
        b.end = NEVER
        b.good = 0
        b.status = 0
        b.left = b.piece_bytes
        b.gone = False
        insert_member(p, b)
        b = b.sibling
    p.ordered = p.count
    for at in range(p.count):
        p.order[at] = p.members[at]
    one = r.first_step
    if not one:
        if r.issue.number >= 0:
            take_step(p, r, cython.address(r.issue), r.first_cut, r.first_head, r.first_chain)
        if r.complete.number >= 0:
            take_step(p, r, cython.address(r.complete), False, 0, NULL)
    while one:
        take_step(p, r, cython.address(one.at), one.cut, one.head, one.chain)
        one = one.next
    for at in range(p.count if r.finished else 0):
        b = p.members[at]
        if b.end < 0:  # all that is certain is when the last of them ended
            b.end = r.complete.number
            b.end_ts = r.complete.ts
            b.status = r.status
            b.certainty = max(b.certainty, AMBIGUOUS)
    free(p.members)


def insert_member(p: Parts, b: Bio) -> None:
    """Add a bio to the members: by sector, then by address and time, as they come."""
    at: int64 = p.count
    while at > 0 and p.members[at - 1].piece_begin > b.piece_begin:
        p.members[at] = p.members[at - 1]
        at -= 1
    p.members[at] = b
    p.count += 1


def take_step(p: Parts, r: Request, at: At, cut: bint, head: uint64, chain: Named) -> None:
    """Go on by a D or C."""
    if at.kind == D:
        if r.others > 0:
            p.issued = True
            p.begin = at.sector & LOW_63
            p.done = 0
        else:
            take_issue(p, at, cut, head, chain)
    elif at.kind == C:
        if r.others == 0:
            take_part(p, at)
        elif p.issued:  # filters left out others: those that were recorded by their sectors
            take_by_place(p, at, p.members, p.count, p.begin, p.done)
        p.done += at.size


def take_issue(p: Parts, at: At, cut: bint, head: uint64, chain: Named) -> None:
    """A D sets the order: its chain, then all others that began before it."""
    place: int64
    named: int64
    b: Bio
    known: int64
    p.issued = True
    p.begin = at.sector & LOW_63
    p.done = 0
    p.placed_count = 0
    p.ordered = 0
    for place in range(p.count):
        p.members[place].named = False
    add_named(p, head, at.number)
    while chain:
        add_named(p, chain.address, at.number)
        chain = chain.next
    named = p.ordered
    for place in range(p.count):
        b = p.members[place]
        if b.gone or b.named or b.born.number >= at.number:
            continue
        if cut and (p.scattered or not lies_in(b, at)):
            continue
        if cut and not p.by_range:
            b.certainty = max(b.certainty, AMBIGUOUS if b.got.number >= 0 else INTERVAL)
        p.order[p.ordered] = b
        p.ordered += 1
    if not cut:
        infer_size(p, named if named else p.ordered, at.size)
        infer_lost_part(p, named, at.size)
    elif named and not p.scattered:
        known = 0
        for place in range(p.ordered):
            known += max(p.order[place].left, 0)
        if known < at.size:
            for place in range(named, p.ordered):
                b = p.order[place]
                b.certainty = max(b.certainty, AMBIGUOUS)
                p.placed[p.placed_count] = b
                p.placed_count += 1
            p.ordered = named


def add_named(p: Parts, address: uint64, number: int64) -> None:
    """Add the bio of an address that a D names to the order, if it has not ended."""
    at: int64
    b: Bio
    if address == 0:
        return
    for at in range(p.count):
        b = p.members[at]
        if b.address != address or b.gone or b.named or b.born.number > number:
            continue
        if 0 <= b.again <= number:
            continue
        b.named = True
        p.order[p.ordered] = b
        p.ordered += 1


def infer_size(p: Parts, count: int64, total: int64) -> None:
    """The only bio of unknown size, of the first in order, has what the others leave."""
    at: int64
    known: int64 = 0
    unknown: int64 = 0
    b: Bio = NULL
    for at in range(count):
        if p.order[at].left < 0:
            unknown += 1
            b = p.order[at]
        else:
            known += p.order[at].left
    if unknown == 1:
        b.left = max(0, total - known)


def infer_lost_part(p: Parts, named: int64, total: int64) -> None:
    """A D shorter than its bios: a C that was not recorded completed the rest of the head."""
    at: int64
    known: int64 = 0
    for at in range(named):
        if p.order[at].left < 0:
            return
        known += p.order[at].left
    if named and known > total:
        p.order[0].left = max(0, p.order[0].left - (known - total))
        p.order[0].certainty = LOST


def take_part(p: Parts, at: At) -> None:
    """A C completes bios in the order of the last D; before any D, by their sectors."""
    place: int64
    count: int64 = 0
    there: int64 = 0
    b: Bio
    for place in range(p.ordered):
        b = p.order[place]
        b.named = b.born.number < at.number and (p.issued or lies_in(b, at))
        if b.named:
            count += 1
            there += overlaps(b, at)
    if not p.issued and there and not p.scattered:
        for place in range(p.ordered):
            b = p.order[place]
            if b.named and overlaps(b, at):
                take_place(b, at, at.sector & LOW_63, 0)
    else:
        take_in_order(p, at)
    count = 0
    for place in range(p.ordered):
        b = p.order[place]
        if not b.gone and (b.named or not p.issued):
            p.order[count] = b
            count += 1
    p.ordered = count
    if p.issued:
        for place in range(p.placed_count):
            b = p.placed[place]
            if not b.gone and b.left > 0:
                take_place(b, at, p.begin, p.done)


def take_in_order(p: Parts, at: At) -> None:
    """Complete those in order that are named, one after the other, by the bytes of a C."""
    rest: int64 = at.size
    took: int64
    place: int64
    b: Bio
    for place in range(p.ordered):
        b = p.order[place]
        if not b.named:
            continue
        if b.left < 0 or (rest == 0 and b.left > 0):
            return
        took = min(rest, b.left)
        rest -= took
        b.left -= took
        if at.status == 0:
            b.good += took
        else:
            b.status = at.status
        if b.left > 0:
            return
        b.end = at.number
        b.end_ts = at.ts
        b.gone = True


def take_by_place(
    p: Parts, at: At, bios: cython.pointer(Bio), count: int64, begin: uint64, before: int64
) -> None:
    """Complete bios by their sectors."""
    place: int64
    for place in range(count):
        take_place(bios[place], at, begin, before)


def take_place(b: Bio, at: At, begin: uint64, before: int64) -> None:
    """Complete a bio by its sectors in what one C covers of the request.

    begin: sector of the D. before: bytes that were completed since.
    """
    length: int64 = max(b.piece_bytes, 0)
    place: int64 = cython.cast(int64, b.piece_begin - begin) * 512
    done: int64 = before + at.size
    took: int64 = max(0, min(length, min(done, place + length) - max(before, place)))
    if b.end >= 0:
        took = 0
    if took and at.status != 0:
        b.status = at.status
    else:
        b.good += took
    if b.end < 0 and b.piece_bytes >= 0 and place + length <= done:
        b.end = at.number
        b.end_ts = at.ts
    b.left -= took
    b.gone = b.end >= 0


def overlaps(b: Bio, at: At) -> bint:
    """Return whether a bio's piece shares a sector with an event's range."""
    begin: uint64 = at.sector & LOW_63
    if begin >= b.piece_begin + cython.cast(uint64, b.piece_bytes >> 9):
        return False
    return b.piece_begin < begin + cython.cast(uint64, at.size >> 9)


def lies_in(b: Bio, at: At) -> bint:
    """Return whether a bio can be in the request at an event with this range."""
    return b.piece_bytes < 0 or b.piece_bytes == at.size or overlaps(b, at)
