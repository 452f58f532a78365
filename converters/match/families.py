# SPDX-License-Identifier: Apache-2.0
"""Families: what events link; when all of one is over; taking it out of all that events ask."""

import cython

from biotrail.converters.match.closing import close_family
from biotrail.converters.match.doubt import drop_use
from biotrail.converters.match.flights import bios_over, pieces_in, unindex
from biotrail.converters.match.generations import stands_on
from biotrail.converters.match.lives import *
from biotrail.converters.match.memory import (
    allocate,
    device_of,
    entry_in,
    entry_of,
    free_list,
    into_pool,
    linked,
    note,
    pool_life,
    resized,
)
from biotrail.converters.match.numbers import *
from biotrail.converters.match.state import Machine

OVER = 0
LATER = 1
"""It may be over without a further event of its own."""
OPEN = 2


def family_of(life: Life) -> Life:
    """Return the one that a family is known by."""
    while life.found_by:
        if life.found_by.found_by:
            life.found_by = life.found_by.found_by
        life = life.found_by
    return life


def link(one: Life, other: Life) -> None:
    one = family_of(one)
    other = family_of(other)
    if one == other:
        return
    if one.members < other.members:
        one, other = other, one
    other.found_by = one
    one.members += other.members
    one.over = max(one.over, other.over)
    one.next, other.next = other.next, one.next


def link_bios(one: Bio, other: Bio) -> None:
    link(cython.cast(Life, one), cython.cast(Life, other))


def link_request(one: Bio, other: Request) -> None:
    link(cython.cast(Life, one), cython.cast(Life, other))


def may_be_over(m: Machine, life: Life) -> None:
    """Have a family looked at when late events can't come any more: some of it ended."""
    family_of(life).over = m.ts
    look_at(m, life)


def superseded(m: Machine, life: Life) -> None:
    """Have the family of a life looked at whose address begins another one."""
    life.again = m.number
    life.again_ts = m.ts
    look_at(m, life)


def look_at(m: Machine, life: Life) -> None:
    life = family_of(life)
    if not life.is_due:
        queue_due(m, life)


def queue_due(m: Machine, life: Life) -> None:
    life.is_due = True
    life.due_since = m.ts
    life.due_next = NULL
    if m.last_due:
        m.last_due.due_next = life
    else:
        m.first_due = life
    m.last_due = life


def settle(m: Machine, before: int64, all_due: bint) -> None:
    """Close families that were over before a time (ns).

    Those that are not yet wait on. all_due: look at all of the queue; otherwise only at those that
    came into it before that time, of which few wait on.
    """
    life: Life
    last: Life = m.last_due
    state: int64
    while m.first_due and last:
        life = m.first_due
        if not all_due and life.due_since >= before:
            break
        m.first_due = life.due_next
        if not m.first_due:
            m.last_due = NULL
        if life == last:
            last = NULL
        life.is_due = False
        if life.closed:  # with its family, known by another one of it
            pool_life(m, life)
            continue
        life = family_of(life)
        if life.is_due:
            continue
        if life.over >= before:
            queue_due(m, life)
            continue
        state = over_before(m, life, before)
        if state == OVER:
            close_lives(m, life)
        elif state == LATER:
            queue_due(m, life)


def over_before(m: Machine, first: Life, before: int64) -> int64:
    """Return whether all of a family has ended, or is known never to show its end."""
    life: Life = first
    found: int64 = OVER
    state: int64
    e: Ending
    while True:
        if life.is_bio:
            state = bio_over(m, cython.cast(Bio, life))
        else:
            state = request_over(cython.cast(Request, life))
            if state == OPEN and unanswered(cython.cast(Request, life), before):
                state = OVER
        if state == OPEN:
            return OPEN
        e = life.endings  # later events may say when a completion of it ended its I/O
        while e and not (e.state == PENDING and m.ts <= e.deadline):
            e = e.next
        if e:
            state = LATER
        if state == LATER or life.told.ts >= before:
            found = LATER
        life = life.next
        if life == first:
            return found


def request_over(r: Request) -> int64:
    if r.again >= 0 or r.merged.number >= 0:
        return OVER
    if r.complete.number >= 0 and (r.begun < 0 or r.since_begun >= r.begun):
        return OVER
    return OPEN


def unanswered(r: Request, before: int64) -> bint:
    """Return whether the addresses of all bios of a request were reused before a time (ns).

    Then its C was lost. A piece's address may be reused long before that of the bio it was split
    from.
    """
    first: Life = cython.cast(Life, r)
    life: Life = first.next
    b: Bio
    upper: Bio
    found: bint = False
    if r.complete.number >= 0:
        return False
    while life != first:
        if life.is_bio:
            b = cython.cast(Bio, life)
            if b.request == r:
                if b.again < 0 or b.again_ts >= before:
                    return False
                upper = b.parent
                while upper and upper.last_ended.number < 0:
                    if upper.again < 0 or upper.again_ts >= before:
                        return False
                    upper = upper.parent
                found = True
        life = life.next
    return found


def bio_over(m: Machine, b: Bio) -> int64:
    """Return whether a bio has ended; in a flush sequence it has when its last C is empty."""
    r: Request = b.request
    merged: int64
    if b.last_ended.number >= 0 or b.sent_on:
        return OVER
    while r and r.merged.number >= 0 and r.taker:  # D names the head alone, without pointers
        r = r.taker
    if b.again >= 0:
        # A request that waits since before its merge may turn out to have it.
        if b.joined.number >= 0 or (r and r.merged.number >= 0):
            merged = max(b.device.merged_last, b.request.merged.number if b.request else NEVER)
            if b.issue < 0 and waits_since(b.device) < max(b.joined.number, merged):
                return LATER
        return OVER
    if not r or r.merged.number >= 0:
        return OPEN  # which request it is in, a D has yet to tell
    if b.issue < 0 and r.issue.number >= 0 and not r.open_ended:
        return OPEN  # its request's whole chain leaves it out: it has ended, by when is to be seen
    if r.again >= 0 and r.complete.number < 0 and (b.first_front or b.candidates):
        return OPEN  # likewise
    flags: uint32 = b.born.opf & (m.preflush | m.fua)
    if b.queue.number < 0 and b.front.number < 0 and b.remap.number < 0:
        # Its flags are not known: blk-flush.c may still end it by a C of no bytes.
        if r.again < 0 and r.complete.size > 0 and (b.born.opf & 0xFF) == m.write:
            return OPEN
    if flags == 0 or r.again >= 0 or r.complete.number < 0 or r.begun == 0:
        return OVER
    if r.begun < 0 and m.by_range:
        return OVER  # nothing has its address again, which would end it
    if r.complete.size == 0 or (r.status != 0 and r.issue.number < 0):
        return OVER
    if flags & m.preflush:
        return OPEN
    if r.issue.number >= 0:
        return OVER if (r.issue.opf & m.fua) != 0 else OPEN
    return OVER if (r.complete.opf & m.fua) != 0 else OPEN


def waits_since(device: Device) -> int64:
    """Return since when a request with data waits for its D; NEVER: from before the log."""
    # A request that has been issued, or was over, never waits again.
    r: Request = cython.cast(Request, device.first_startless)
    while r and not (r.start.number < 0 and is_waiting(r)):
        device.first_startless = r.later
        r = cython.cast(Request, r.later)
    if device.first_startless:
        return NEVER
    while device.first_waiting and not is_waiting(cython.cast(Request, device.first_waiting)):
        device.first_waiting = device.first_waiting.later
    return device.first_waiting.born.number if device.first_waiting else FOREVER


def is_waiting(r: Request) -> bint:
    if r.issue.number >= 0 or r.complete.number >= 0 or r.again >= 0 or r.merged.number >= 0:
        return False
    return r.born.size > 0


# --- Closing


def gather_family(m: Machine, first: Life) -> None:
    """Have the bios and requests of a family at hand."""
    life: Life = first
    m.bios_of = m.requests_of = 0
    while True:
        if max(m.bios_of, m.requests_of) >= m.family_room:
            m.family_room = max(64, 2 * m.family_room)
            m.family_bios = cython.cast(
                cython.pointer(Bio),
                resized(m.family_bios, m.family_room * cython.sizeof(cython.p_void)),
            )
            m.family_requests = cython.cast(
                cython.pointer(Request),
                resized(m.family_requests, m.family_room * cython.sizeof(cython.p_void)),
            )
        if life.is_bio:
            m.family_bios[m.bios_of] = cython.cast(Bio, life)
            m.bios_of += 1
        else:
            m.family_requests[m.requests_of] = cython.cast(Request, life)
            m.requests_of += 1
        life.shown = m.round
        life = life.next
        if life == first:
            break


def close_lives(m: Machine, first: Life) -> None:
    gather_family(m, first)
    close_family(m)
    forget_family(m)


def show_open(m: Machine) -> None:
    """Write rows of all that is not closed, by families, and leave these as they are."""
    device: Device = m.first_device
    life: Life
    at: int64
    m.round += 1
    while device:
        for at in range(2):
            life = cython.cast(Life, device.first_request)
            if at == 0:
                life = cython.cast(Life, device.first_bio)
            while life:
                if life.shown != m.round:
                    show_family(m, life)
                life = life.later
        device = device.next


def show_family(m: Machine, first: Life) -> None:
    """Write rows of a family, which goes on: closing changes its members and their devices."""
    at: int64
    b: Bio
    r: Request
    gather_family(m, first)
    size: int64 = m.bios_of * size_of(Bio) + m.requests_of * size_of(Request)
    if size > m.saved_room:
        m.saved_room = 2 * size
        m.saved = resized(m.saved, m.saved_room)
    bios: Bio = cython.cast(Bio, m.saved)
    requests: Request = cython.cast(Request, cython.address(bios[m.bios_of]))
    for at in range(m.bios_of):
        m.family_bios[at].itself = m.family_bios[at]
        bios[at] = m.family_bios[at][0]
    for at in range(m.requests_of):
        r = m.family_requests[at]
        requests[at] = r[0]
        r.device.was_merged_last = r.device.merged_last
    close_family(m)
    for at in range(m.bios_of):  # closing sorted them
        b = bios[at].itself
        b[0] = bios[at]
    for at in range(m.requests_of):
        r = m.family_requests[at]
        r[0] = requests[at]
        r.device.merged_last = r.device.was_merged_last


def forget_family(m: Machine) -> None:
    """Take the family out of all that new events are held to, and give its memory back."""
    at: int64
    b: Bio
    r: Request
    entry: Entry
    one: Step
    for at in range(m.bios_of):
        b = m.family_bios[at]
        if b.again < 0:
            entry_in(m.bios, b.address, 0).what = NULL
        forget_question(b)
        if b.in_pages:
            entry = entry_in(m.pages, b.page, 0)
            if entry.what == b:
                entry.what = NULL
        free_list(cython.cast(Pooled, b.candidates))
        free_list(cython.cast(Pooled, b.chains))
        close_life(m, cython.cast(Life, b))
    for at in range(m.requests_of):
        r = m.family_requests[at]
        if r.again < 0:
            entry_in(m.requests, r.address, 0).what = NULL
        one = r.first_step
        while one:
            free_list(cython.cast(Pooled, one.chain))
            one = one.next
        free_list(cython.cast(Pooled, r.first_step))
        free_list(cython.cast(Pooled, r.first_chain))
        free_list(cython.cast(Pooled, r.moved))
        free_list(cython.cast(Pooled, r.joins))
        close_life(m, cython.cast(Life, r))


def close_life(m: Machine, life: Life) -> None:
    """Take a bio or request from its device, and give it back if it is not in the queue."""
    one: Mention
    leave_list(m, life)
    life.closed = True
    while life.endings:
        e: Ending = life.endings
        life.endings = e.next
        drop_use(e)
    if life.flight:  # what ranges have of it stays, alone
        life.flight.life = NULL
        life.flight = NULL
    while life.mentions:
        one = life.mentions
        life.mentions = one.next
        into_pool(cython.address(m.free_mentions), cython.cast(Pooled, one))
    life.last_mention = NULL
    if not life.is_due:
        pool_life(m, life)


def forget_question(b: Bio) -> None:
    """Take a clone out of the list of its source device."""
    if not b.source:
        return
    if b.earlier_clone:
        b.earlier_clone.later_clone = b.later_clone
    else:
        b.source.first_clone = b.later_clone
    if b.later_clone:
        b.later_clone.earlier_clone = b.earlier_clone
    b.source = NULL


def join_list(m: Machine, life: Life) -> None:
    life.device = m.device
    if life.is_bio:
        m.device.bios += 1
        life.earlier = cython.cast(Life, m.device.last_bio)
        m.device.last_bio = cython.cast(Bio, life)
        if not life.earlier:
            m.device.first_bio = cython.cast(Bio, life)
    else:
        life.earlier = cython.cast(Life, m.device.last_request)
        m.device.last_request = cython.cast(Request, life)
        if not m.device.first_waiting:
            m.device.first_waiting = life
        if not m.device.first_startless:
            m.device.first_startless = life
        if not life.earlier:
            m.device.first_request = cython.cast(Request, life)
    if life.earlier:
        life.earlier.later = life


def leave_list(m: Machine, life: Life) -> None:
    if life.is_bio:
        life.device.bios -= 1
        if life.device.is_indexed:
            unindex(m, cython.cast(Bio, life))
    else:
        if life.device.first_waiting == life:
            life.device.first_waiting = life.later
        if life.device.first_startless == life:
            life.device.first_startless = life.later
    if life.earlier:
        life.earlier.later = life.later
    elif life.is_bio:
        life.device.first_bio = cython.cast(Bio, life.later)
    else:
        life.device.first_request = cython.cast(Request, life.later)
    if life.later:
        life.later.earlier = life.earlier
    elif life.is_bio:
        life.device.last_bio = cython.cast(Bio, life.earlier)
    else:
        life.device.last_request = cython.cast(Request, life.earlier)


def close_rest(m: Machine) -> None:
    """Write the rows of all that is left, family by family: nothing more is to come."""
    device: Device = m.first_device
    m.first_due = m.last_due = NULL
    while device:
        while device.first_bio:
            close_lives(m, cython.cast(Life, device.first_bio))
        while device.first_request:
            close_lives(m, cython.cast(Life, device.first_request))
        device = device.next


# --- Questions that no event answers: asked now, of what is in flight; answered when all is over


def flown(b: Bio, ts: int64) -> bint:
    """Return whether a bio is known to have ended before a time.

    A bio's address is free after bio_endio alone (bio_put).
    """
    ended: bint = b.last_ended.number >= 0
    if b.again >= 0 and b.again_ts <= ts:
        return True
    last: int64 = b.told.ts
    if b.request and b.request.complete.number >= 0:
        if not b.request.in_driver:  # else it was a part
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
    if from_dev == part:
        return
    upper: Device = device_of(m, from_dev)
    if upper.disk == m.dev:
        return
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
    rest: Link
    while b:
        rest = b.candidates
        while rest and flown(rest.bio, m.ts):
            rest = rest.next
        begin = b.source_sector
        stop = begin + cython.cast(uint64, b.asked.size >> 9)
        if ((b.asked.opf ^ m.opf) & 0xFF) == 0 and rest:
            if b.asked.size == 0:
                if m.sector == 0 and m.size == 0:
                    b.maybe_unrecorded = True
            elif m.size == 0:
                if m.sector == stop:
                    b.maybe_unrecorded = True
            elif m.sector <= begin and m.end >= stop:
                b.maybe_unrecorded = True
        b = b.later_clone


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
        if b.again >= 0 and m.on["chains/address-reused"]:
            continue
        offer = cython.cast(Offer, allocate(1, size_of(Offer)))
        offer.request = r
        offer.at = r.told
        offer.next = b.chains
        b.chains = offer
        link_request(b, r)


def page_is_free(above: Bio, ts: int64) -> bint:
    """Return whether a bio's first page is known to be in no I/O of its own at a time."""
    piece: Bio = above
    at: At
    if above.again >= 0 or above.last_ended.number >= 0:
        return True
    while piece.first_front:
        piece = piece.first_front
    at = cython.address(piece.front)
    if at.number < 0:
        at = cython.address(piece.got)
    if at.number < 0:
        at = cython.address(piece.start)
    if at.number < 0:
        at = cython.address(piece.joined)
    # The X of a front that begins before it may not have been recorded.
    return (at.number < 0 or at.sector == above.queue.sector) and flown(piece, ts)


def find_page(m: Machine, b: Bio) -> None:
    """Note the bio above whose first page a bio on a loop device's backing disk carries."""
    if b.page == 0 or not m.has_stacks:
        return
    entry: Entry = entry_of(m, m.pages, b.page, 0)
    above: Bio = cython.cast(Bio, entry.what)
    # Pages are used again: linked by that alone, all bios that had one would be one family, which
    # never ends.
    if above and not (page_is_free(above, m.ts) and m.on["loops/in-flight"]):
        if stands_on(above.device, m.device.dev) or not m.on["loops/directly-below"]:
            b.above = above
            link_bios(b, above)
    if m.device.lower_count:
        if above:
            above.in_pages = False
        entry.what = b
        b.in_pages = True
