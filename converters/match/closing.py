# SPDX-License-Identifier: Apache-2.0
"""A family that is over: which request served which bio, and who worked for whom.

What events name is known by then; what they leave open (who absorbed whom, whose piece, whose
chain) is decided here, of the candidates that were noted when the question came up.
"""

import cython

from biotrail.converters.match.families import flown, waits_since
from biotrail.converters.match.flights import doubt_of
from biotrail.converters.match.generations import stands_on
from biotrail.converters.match.lives import *
from biotrail.converters.match.memory import allocate, device_of, end_of
from biotrail.converters.match.numbers import *
from biotrail.converters.match.rows import write_family
from biotrail.converters.match.state import Machine


def close_family(m: Machine) -> None:
    """Decide all that is open in the family and write its rows."""
    at: int64
    depth: int64
    b: Bio
    r: Request
    splits: bint = False
    clones: bint = False
    pages: bint = False
    sort_bios(m)
    merges: bint = absorb(m)
    for at in range(m.bios_of):
        b = m.family_bios[at]
        find_facts(b)
        r = b.request
        if m.by_range:
            b.certainty = doubt_of(cython.cast(Life, b))
            if r:
                b.certainty = max(b.certainty, doubt_of(cython.cast(Life, r)))
        # The whole chain of its request leaves it out.
        if r and b.issue < 0 and r.issue.number >= 0 and not r.open_ended:
            b.request = NULL
            b.completion_lost = True
        elif r:
            r.flags |= b.best.opf
        b.root = b
        if b.parent:
            b.root = b.parent
            splits = True
        clones = clones or b.is_clone
        splits = splits or (not b.is_clone and b.candidates != NULL)
        pages = pages or b.above != NULL or b.backing != NULL
    for at in range(m.bios_of if splits else 0):
        b = m.family_bios[at]  # follow X to the bio that was queued; not along circles of damage
        depth = 0
        while b.root.root != b.root and depth < DEEPEST:
            b.root = b.root.root
            depth += 1
        if depth == DEEPEST:
            b.root = b
    for at in range(m.requests_of):
        request_end(m, m.family_requests[at])
    if splits:
        for at in range(m.bios_of):
            b = m.family_bios[at]
            if b.candidates and not b.is_clone:
                decide_split(m, b)
    if merges or m.cut_chains:
        decide_chains(m)
    if clones:
        decide_uppers(m)
    for at in range(m.bios_of - 1, -1, -1):
        b = m.family_bios[at]
        r = b.request
        if r:
            b.sibling = r.first
            r.first = b
            r.bios += 1
    for at in range(m.bios_of):
        b = m.family_bios[at]
        r = b.request
        if not r or not r.finished:
            continue
        b.end = r.complete.number
        b.end_ts = r.complete.ts
        b.status = r.status
        if r.sequence:
            b.good = min(max(b.piece_bytes, 0), r.good)
        elif r.status == 0:
            b.good = max(b.piece_bytes, 0)
    for at in range(m.requests_of):
        r = m.family_requests[at]
        if r.completions > 1 or (r.completions == 1 and not r.finished):
            if r.first and not r.sequence:
                complete_in_parts(m, r)
    for at in range(m.bios_of):
        b = m.family_bios[at]
        if b.again >= 0 and b.end > b.again:  # its address was reused before its request's end
            b.end = NEVER
            b.status = 0
            b.good = 0
            b.completion_lost = True
    if pages:
        find_told_pieces(m)
        for at in range(m.bios_of):
            b = m.family_bios[at]
            if b.above or b.told_piece:
                decide_page(m, b)
    write_family(m)


def sort_bios(m: Machine) -> None:
    """Put the family's bios in the order of their addresses, then of time."""
    bios: cython.pointer(Bio) = m.family_bios
    gap: int64 = 1
    at: int64
    to: int64
    b: Bio
    while gap < m.bios_of // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for at in range(gap, m.bios_of):
            b = bios[at]
            to = at
            while to >= gap and is_after(bios[to - gap], b):
                bios[to] = bios[to - gap]
                to -= gap
            bios[to] = b
        gap //= 3


def is_after(one: Bio, other: Bio) -> bint:
    if one.address != other.address:
        return one.address > other.address
    return one.born.number > other.born.number


# --- Merges of requests


def absorb(m: Machine) -> bint:
    """Find who absorbed each request: the one in whose chain its head bio is at last.

    Return whether there are any merges of requests.
    """
    at: int64
    depth: int64
    b: Bio
    r: Request
    taker: Request
    other: Request
    link: Link
    merges: bint = False
    for at in range(m.requests_of):
        r = m.family_requests[at]
        merges = merges or r.merged.number >= 0 or r.moved != NULL
    if not merges:
        return False
    for at in range(m.requests_of):
        r = m.family_requests[at]
        taker = NULL
        if r.merged.number >= 0:
            if r.merged_bio:
                taker = r.merged_bio.request
        else:
            b = NULL
            link = r.moved
            while link:
                other = link.bio.request
                if other and other != r and (not b or is_after(link.bio, b)):
                    b = link.bio
                    taker = other
                link = link.next
        r.absorbed_by = NULL if taker == r else taker
        if not r.absorbed_by:
            r.absorbed_by = r.taker
    for at in range(m.requests_of):
        r = m.family_requests[at]
        depth = 0
        while r.absorbed_by and r.absorbed_by.absorbed_by and depth < DEEPEST:
            r.absorbed_by = r.absorbed_by.absorbed_by
            depth += 1
    for at in range(m.bios_of):
        b = m.family_bios[at]
        if b.request and b.request.absorbed_by:
            b.request = b.request.absorbed_by
    for at in range(m.requests_of):
        r = m.family_requests[at]
        if r.merged.number < 0:
            continue
        if r.absorbed_by:
            take_in(r.absorbed_by, r)
        else:
            r.device.merged_last = max(r.device.merged_last, r.merged.number)
    return True


def take_in(taker: Request, r: Request) -> None:
    """Add a request to those that another absorbed, by time."""
    before: Request = NULL
    after: Request = taker.first_taken
    while after and after.merged.number < r.merged.number:
        before = after
        after = after.next_taken
    r.next_taken = after
    if before:
        before.next_taken = r
    else:
        taker.first_taken = r


def holds(at: At, sector: uint64) -> bint:
    return at.sector <= sector < end_of(at)


def request_before_merge(b: Bio) -> Request:
    """Return the absorbed request that a bio was in before the m; NULL: none."""
    own: Request = b.early
    taken: Request
    if not own and b.request and (b.got.number >= 0 or b.joined.number >= 0):
        taken = b.request.first_taken
        while taken and not own:
            if taken.merged.number > b.born.number:
                if holds(cython.address(taken.merged), b.piece_begin):
                    own = taken
            taken = taken.next_taken
    return NULL if own == b.request else own


# --- What is known of each


def find_facts(b: Bio) -> None:
    """Find device, range and operation of a bio, and the range of its own request."""
    best: At = cython.address(b.queue)
    piece: At = cython.address(b.joined)
    unsent: bint
    issued: At = issued_alone(b)
    if best.number < 0:
        best = cython.address(b.front)
    if best.number < 0:
        best = cython.address(b.remap)
    if best.number < 0:
        best = cython.address(b.got)
    if best.number < 0:
        best = cython.address(b.joined)
    if best.number < 0:
        best = cython.address(b.start)
    if best.number < 0:
        best = cython.address(b.ended)
    if best.number < 0 and issued:
        best = issued
    b.bytes = best.size if best.number >= 0 else NEVER
    if best.number < 0:
        best = cython.address(b.born)
    b.best = best[0]
    if piece.number < 0:
        piece = cython.address(b.got)
    if piece.number < 0:
        piece = cython.address(b.start)
    unsent = piece.number < 0
    if unsent and issued:
        piece = issued
        unsent = False
    elif unsent and b.remap.number > max(b.queue.number, b.front.number):
        piece = cython.address(b.remap)
    if piece.number < 0:
        piece = cython.address(b.front)
    if piece.number < 0:
        piece = cython.address(b.queue)
    b.piece_bytes = piece.size if piece.number >= 0 else NEVER
    if piece.number < 0:
        piece = cython.address(b.born)
    b.piece = piece[0]
    if unsent and b.first_front and b.piece_bytes >= 0:
        b.piece_bytes = max(b.piece_bytes - b.fronts_size, 0)
        b.shift = cython.cast(uint64, b.fronts_size >> 9)
    b.piece_begin = (b.piece.sector & LOW_63) + b.shift
    b.asks = NEVER


def issued_alone(b: Bio) -> At:
    """Return the first D of a bio that was all of its request, whose range is its own; else NULL.

    NULL also if something came before that D: a part that was completed is left out of it.
    """
    r: Request = b.request
    if not r or not r.first_alone or r.first_head != b.address or r.others > 0:
        return NULL
    if r.issue.number != b.issue or 0 <= r.requeue < b.issue or 0 <= r.first_complete < b.issue:
        return NULL
    return cython.address(r.issue) if r.issue.size > 0 else NULL


def is_piece(b: Bio) -> bint:
    """Return whether a bio was in a request itself, or about to be."""
    return b.request != NULL or b.got.number >= 0 or b.joined.number >= 0


def overlap(one: Bio, other: Bio) -> bint:
    begin: int64 = one.piece_begin
    start: int64 = other.piece_begin
    return begin < start + (other.piece_bytes >> 9) and start < begin + (one.piece_bytes >> 9)


# --- Questions that were left open


def decide_split(m: Machine, b: Bio) -> None:
    """Find the bio that `b` is a front of, where one of those in flight can be."""
    found: Bio = NULL
    count: int64 = 0
    link: Link = b.candidates
    c: Bio
    if b.piece_bytes <= 0:
        return
    while link:
        c = link.bio
        link = link.next
        if flown(c, b.born.ts) or c.bytes <= 0:
            continue
        if c.bytes <= b.piece_bytes and m.on["splits/longer"]:
            continue
        if (c.queue.opf & 0xFF) == m.zone_append and m.on["splits/not-zone-append"]:
            continue
        if is_piece(c) and overlap(c, b) and m.on["splits/not-sent-itself"]:
            continue
        if m.on["splits/not-sent-by-front"] and sent_by_front(m, c, b):
            continue
        sent_behind: bint = is_piece(c) and c.piece_begin >= b.piece_begin + (b.piece_bytes >> 9)
        if b.born.kind == D and m.on["splits/sent-the-rest"] and not sent_behind:
            continue
        found = c
        count += 1
    if count == 1:
        b.root = found.root
        b.certainty = max(b.certainty, INTERVAL)
    elif count > 1:
        b.certainty = AMBIGUOUS


def sent_by_front(m: Machine, c: Bio, b: Bio) -> bint:
    """Return whether a front of a bio that an X names has a sector of another's piece."""
    at: int64
    front: Bio
    for at in range(m.bios_of):
        front = m.family_bios[at]
        if front.root == c and front != c and front.parent and overlap(front, b):
            return True
    return False


def decide_chains(m: Machine) -> None:
    """Find the requests of merged bios that no chain names, where one alone can have them."""
    at: int64
    other: int64
    b: Bio
    r: Request
    offer: Offer
    asked: bint = False
    for at in range(m.bios_of):
        b = m.family_bios[at]
        r = b.request
        if r and r.merged.number >= 0 and not r.absorbed_by:
            b.own = r
            b.request = NULL
            b.asks = r.merged.number
        b.asks = max(b.asks, b.joined.number)
        offer = b.chains
        while offer and offer.at.kind != D:
            offer = offer.next
        if b.request or b.asks < 0 or b.piece_bytes <= 0 or not offer:  # no cut chain may have it
            b.asks = NEVER
        asked = asked or b.asks >= 0
    if not asked:
        return
    for at in range(m.bios_of):
        b = m.family_bios[at]
        if b.asks >= 0:
            decide_chain(m, b)
    for at in range(m.bios_of):
        b = m.family_bios[at]
        if not b.claim:
            continue
        b.request = b.claim
        for other in range(m.bios_of):
            if other != at and m.family_bios[other].claim == b.claim:
                if overlap(m.family_bios[other], b):
                    b.request = NULL
        if not b.request:
            b.certainty = AMBIGUOUS
        elif b.own:
            if not b.own.absorbed_by:
                take_in(b.request, b.own)
            b.own.absorbed_by = b.request


def decide_chain(m: Machine, b: Bio) -> None:
    """Find the request that alone can have a bio, as its `claim`."""
    offer: Offer = b.chains
    found: Request = NULL
    several: bint = False
    while offer:
        if offer.request != found and may_have(m, offer, b):
            several = several or found != NULL
            found = offer.request
        offer = offer.next
    if m.on["chain refusals/request-waits"]:
        if waits_since(b.device) < max(b.asks, b.device.merged_last):
            return
    if several:
        b.certainty = AMBIGUOUS
        return
    if not found:
        return
    if found.issue.number < 0 and m.on["chain refusals/failed-before-issue"]:
        return
    if m.on["chain refusals/place-taken"] and place_taken(m, found, b):
        return
    b.certainty = max(b.certainty, INTERVAL)
    b.claim = found


def place_taken(m: Machine, r: Request, b: Bio) -> bint:
    """Return whether a bio that is known to be of a request has sectors of another's piece."""
    at: int64
    for at in range(m.bios_of):
        if m.family_bios[at].request == r and overlap(m.family_bios[at], b):
            return True
    return False


def may_have(m: Machine, offer: Offer, b: Bio) -> bint:
    """Return whether a request, as of its D or C, has a bio's range and waited at its merge."""
    r: Request = offer.request
    at: At = cython.address(offer.at)
    merge: int64
    if at.kind != D and not (r.issue.number < 0 and r.finished and r.complete.number == at.number):
        return False
    if at.dev != b.best.dev or at.sector > b.piece_begin:
        return False
    if b.piece_begin + cython.cast(uint64, b.piece_bytes >> 9) > end_of(at):
        return False
    merge = b.joined.ts
    if b.own and b.own.merged.number == b.asks:
        merge = b.own.merged.ts
    if merge > at.ts:
        return False
    return r.start.number < 0 or r.born.ts <= merge


def decide_uppers(m: Machine) -> None:
    """Find the bio on the device above of each clone, where one alone in flight can be."""
    at: int64
    count: int64
    b: Bio
    c: Bio
    found: Bio
    link: Link
    for at in range(m.bios_of):
        b = m.family_bios[at]
        if not b.is_clone:
            continue
        found = NULL
        count = 0
        link = b.candidates
        while link:
            c = link.bio
            link = link.next
            if c == b and m.on["upper bios/not-itself"]:
                continue
            if c.root != c and m.on["upper bios/queued-whole"]:
                continue
            if not flown(c, b.asked.ts):
                found = c
                count += 1
        if m.by_range and count > 0:
            found = by_thread(b, found, count)
        elif count != 1:
            found = NULL
        if found and not b.maybe_unrecorded:
            b.upper = found
            b.next_clone = found.first_clone
            found.first_clone = b
    for at in range(m.bios_of):
        c = m.family_bios[at]
        if c.first_clone and c.first_clone.next_clone and c.bytes > 0:
            drop_overlapping(c)


def by_thread(b: Bio, only: Bio, count: int64) -> Bio:
    """Return the bio above of a clone without pointers: of several the one of the A's thread.

    dm and md map a bio in the thread that submits it, or in a worker (dm_submit_bio). One alone
    that is ambiguous, and that another thread queued, is none: the clone's own may be thought to
    have ended by the completion of this one. Thread 0 is an interrupt of anyone's.
    """
    c: Bio
    own: Bio = NULL
    same: int64 = 0
    link: Link = b.candidates
    while link:
        c = link.bio
        link = link.next
        if c.root == c and not flown(c, b.asked.ts) and c.queue.status == b.asked.status:
            own = c
            same += 1
    if same == 1 and (b.asked.status != 0 or count == 1):
        return own
    if count == 1 and only.certainty < AMBIGUOUS:
        return only
    return NULL


def drop_overlapping(c: Bio) -> None:
    """A bio sends no sector to a device twice: clones that say so are of an unknown one, too."""
    one: Bio = c.first_clone
    other: Bio
    end: uint64
    stop: uint64
    while one:
        end = one.source_sector + cython.cast(uint64, one.asked.size >> 9)
        other = c.first_clone
        while other:
            stop = other.source_sector + cython.cast(uint64, other.asked.size >> 9)
            if other != one and other.best.dev == one.best.dev:
                if one.source_sector < stop and other.source_sector < end:
                    one.upper = NULL
            other = other.next_clone
        one = one.next_clone


def find_told_pieces(m: Machine) -> None:
    """Find in which bio of its request each one begins that was queued for a request.

    They come in the order of the file's bytes, so each begins where those before it end; but a hole
    of the file is not read, so one with the first page of a bio of the request begins there.
    """
    at: int64
    sector: uint64
    b: Bio
    before: Bio
    after: Bio
    r: Request
    for at in range(m.bios_of):
        b = m.family_bios[at]
        r = b.backing
        if not r:
            continue
        before = NULL
        after = r.first_lower
        while after and after.queue.number < b.queue.number:
            before = after
            after = after.next_lower
        b.next_lower = after
        if before:
            before.next_lower = b
        else:
            r.first_lower = b
    for at in range(m.requests_of):
        r = m.family_requests[at]
        b = r.first_lower
        before = piece_at(r, 0)
        if not b or not before:
            continue
        sector = before.piece_begin
        while b:
            if b.above:
                before = first_piece_of(m, b.above)
                if before.request == r:
                    sector = before.piece_begin
            b.told_piece = piece_at(r, sector)
            sector += cython.cast(uint64, max(b.bytes, 0) >> 9)
            b = b.next_lower


def piece_at(r: Request, sector: uint64) -> Bio:
    """Return the last bio of a request that begins at a sector or before, else its first one."""
    b: Bio = r.first
    found: Bio = NULL
    first: Bio = NULL
    while b:
        if b.piece_bytes > 0:
            if not first or b.piece_begin < first.piece_begin:
                first = b
            if b.piece_begin <= sector and (not found or b.piece_begin >= found.piece_begin):
                found = b
        b = b.sibling
    return found if found else first


def first_piece_of(m: Machine, c: Bio) -> Bio:
    """Return the piece of a bio with its first sector: a front, or itself."""
    first: Bio = c
    front: Bio
    at: int64
    for at in range(m.bios_of):
        front = m.family_bios[at]
        if front.root == c and front != c and front.piece_begin == c.best.sector:
            first = front
    return first


def decide_page(m: Machine, b: Bio) -> None:
    """Find the upper bio of one that a loop device sent to its backing disk.

    By the request that the recorder tells, else by the page.
    """
    first: Bio = b.told_piece
    last: At
    if not first:
        first = first_piece_of(m, b.above)
    c: Bio = first.root if b.told_piece else b.above
    r: Request = first.request
    if (r == NULL or r.issue.number < 0) and m.on["loops/issued"]:
        return
    if r != NULL and r.issue.number >= b.queue.number and m.on["loops/issued-before"]:
        return
    if 0 <= first.end <= b.queue.number and m.on["loops/not-ended"]:
        return
    if r != NULL and m.on["loops/not-completed-in-part"]:
        last = cython.address(r.last_issue)
        if r.last_requeue.number > last.number:
            last = cython.address(r.last_requeue)
        if 0 <= last.number < b.queue.number:
            if last.sector >= first.piece_begin + cython.cast(uint64, first.piece_bytes >> 9):
                return
        if 0 <= r.again < b.queue.number:
            return
    if ((c.best.opf ^ b.best.opf) & 0xFF) != 0 and m.on["loops/same-operation"]:
        return
    if stands_on(device_of(m, c.best.dev), b.best.dev) or not m.on["loops/directly-below"]:
        b.upper = c


# --- How requests and bios ended; which bios of a request each C of a part ends
#
# blk_update_request goes through the bios in the order of the chain and ends each whose last byte
# completes. Where a cut chain leaves that order open, a bio's place among the sectors tells.


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
    length = r.total if sized.number >= 0 else r.done
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
    p.scattered = (r.born.opf & 0xFF) == m.discard
    p.by_range = m.by_range
    b = r.first
    while b:
        b.end = NEVER
        b.good = 0
        b.status = 0
        b.left = b.piece_bytes
        b.gone = False
        at = p.count  # by sector, then by address and time, as they come
        while at > 0 and p.members[at - 1].piece_begin > b.piece_begin:
            p.members[at] = p.members[at - 1]
            at -= 1
        p.members[at] = b
        p.count += 1
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


def take_step(p: Parts, r: Request, at: At, cut: bint, head: uint64, chain: Named) -> None:
    place: int64
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
            for place in range(p.count):
                take_place(p.members[place], at, p.begin, p.done)
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
        infer_sizes(p, named, at.size)
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


def infer_sizes(p: Parts, named: int64, total: int64) -> None:
    """Infer what is left of bios from the bytes of a D whose whole chain is known.

    The only one of unknown size has what the others leave. Where they have more than the D, a C
    that was not recorded completed the rest of the head.
    """
    at: int64
    known: int64 = 0
    unknown: int64 = 0
    b: Bio = NULL
    for at in range(named if named else p.ordered):
        if p.order[at].left < 0:
            unknown += 1
            b = p.order[at]
        else:
            known += p.order[at].left
    if unknown == 1:
        b.left = max(0, total - known)
        known += b.left
    if named and unknown <= 1 and known > total:
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
