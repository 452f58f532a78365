# SPDX-License-Identifier: Apache-2.0
"""Events of requests: s, I, m, D and its CHAIN, C, d, R, E and a."""

import cython

from biotrail.converters.match.bios import bio_here
from biotrail.converters.match.doubt import add_ending
from biotrail.converters.match.families import (
    ended_before,
    join_list,
    link,
    look_at,
    may_be_over,
    offer_chain,
    superseded,
)
from biotrail.converters.match.flights import attach, index_piece
from biotrail.converters.match.generations import begins_request, is_discard, is_passthrough
from biotrail.converters.match.lives import *
from biotrail.converters.match.memory import (
    add_mention,
    allocate,
    device_of,
    end_of,
    entry_of,
    forget_joins,
    mention,
    move_mentions,
    new_request,
    note,
)
from biotrail.converters.match.numbers import *
from biotrail.converters.match.state import Machine


def request_here(m: Machine) -> Request:
    """Return the request that the event is of; NULL of an E on an unknown one."""
    kind: int64 = m.kind
    place: Entry = entry_of(m, m.requests, m.address, 0)
    r: Request = cython.cast(Request, place.what)
    if r and r.joins and (kind == I or kind == D or kind == RQ_MERGE):
        r = divided(m, r, place)
    if kind == E:
        r = commented_on(m, place)
        if not r:
            return NULL
    elif not r:
        r = request_begins(m, place)
    elif begins_request(m, r):
        superseded(m, cython.cast(Life, r))
        r = request_begins(m, place)
    note(m, cython.address(r.told), kind)
    r.told_bio = m.bio
    r.doubt = max(r.doubt, m.doubt)
    mention(m, cython.cast(Life, r))
    if kind != M and kind != F:
        forget_joins(r)
    return r


def commented_on(m: Machine, place: Entry) -> Request:
    """Return the request that an E or d is about; NULL: none that is known.

    They come with its end or soon behind it: what ended longer ago than late events come may be
    closed, or may not, which shall make no difference.
    """
    r: Request = cython.cast(Request, place.what)
    if r and ended_before(r, m.ts - m.settle_ns):
        return NULL
    return r


def request_begins(m: Machine, place: Entry) -> Request:
    """Return a new request at an address."""
    r: Request = new_request(m)
    r.address = m.address
    note(m, cython.address(r.born), m.kind)
    r.next = cython.cast(Life, r)
    if m.device.requests_since == FOREVER:
        m.device.requests_since = m.number
    join_list(m, cython.cast(Life, r))
    if m.by_range:
        attach(m, cython.cast(Life, r), cython.cast(Life, place.what))
    place.what = r
    return r


def divided(m: Machine, r: Request, place: Entry) -> Request:
    """Return the request that an I, D or m is of, divided where an M or F joined a later one.

    Joined-beside: bios that joined lie in the event's range, what was there before does not; so
    one request ended and another began, in records that were lost. Only now this can be told.
    """
    join: Join = r.joins
    rest: Join
    previous: Join = NULL
    later: Request
    if is_discard(m) or not m.on["requests/joined-beside"]:
        return r
    while join:
        if inside(m, cython.address(join.at)) and join.before.number >= 0:
            if not inside(m, cython.address(join.before)):
                later = new_request(m)
                later.address = r.address
                later.born = join.at
                later.next = cython.cast(Life, later)
                place.what = later
                join_list(m, cython.cast(Life, later))
                link(cython.cast(Life, r), cython.cast(Life, later))
                later.told = r.told
                later.told_bio = r.told_bio
                move_mentions(m, cython.cast(Life, r), cython.cast(Life, later), join.at.number)
                later.joins = join
                later.last_join = r.last_join
                rest = join
                while rest:
                    if rest.bio:
                        joins_later(rest.bio, r, later)
                    rest = rest.next
                r.last_join = previous
                if previous:
                    previous.next = NULL
                else:
                    r.joins = NULL
                forget_joins(r)
                r.again = join.at.number
                r.again_ts = join.at.ts
                look_at(m, cython.cast(Life, r))
                r = later
                previous = NULL
        previous = join
        join = join.next
    return r


def inside(m: Machine, at: At) -> bint:
    """Return whether an event's range lies in that of the event at hand."""
    return at.sector >= m.sector and end_of(at) <= m.end


def joins_later(b: Bio, old: Request, later: Request) -> None:
    """Have a bio in the later request."""
    if b.request == old:
        b.request = later
    if b.early == old:
        b.early = later
    if b.among == old:
        b.among = later


def never_queued(m: Machine, r: Request) -> bint:
    """Return whether the bios of a request were never queued: passthrough, clones of requests."""
    return r.is_clone or is_passthrough(m, m.opf)


def on_request(m: Machine) -> None:
    """s: a request starts. I: it is inserted. m: another one, not named, absorbs it."""
    kind: int64 = m.kind
    r: Request = request_here(m)
    b: Bio
    at: int64
    if kind == RQ_MERGE:
        if r.merged.number < 0:
            note(m, cython.address(r.merged), kind)
        if m.by_range and m.other != 0:
            r.taker = cython.cast(Request, entry_of(m, m.requests, m.other, 0).what)
            if r.taker:
                link(cython.cast(Life, r), cython.cast(Life, r.taker))
    else:
        if kind == START and r.start.number < 0:
            note(m, cython.address(r.start), kind)
        elif kind == I and r.insert.number < 0:
            note(m, cython.address(r.insert), kind)
        if r.issue.number < 0:
            r.begun = m.size
            r.since_begun = 0
    if m.bio == 0 or never_queued(m, r):
        return
    b = bio_here(m, m.bio, kind, r, 0)
    if kind == START and b.start.number < 0:
        note(m, cython.address(b.start), kind)
    elif kind == RQ_MERGE:
        r.merged_bio = b
    if b.device.is_indexed:
        index_piece(m, b)
    if m.by_range:
        for at in range(m.member_count):
            bio_here(m, m.members[at], kind, r, at + 1)


def on_issue(m: Machine) -> None:
    """D: a request goes to the driver; the bios behind its head are in the CHAIN behind it."""
    r: Request = request_here(m)
    word: uint64 = m.w6[m.row]
    cut: bint = (word >> 56) & 1 != 0
    at: int64
    add_step(m, r, cut)
    if r.issue.number < 0:
        note(m, cython.address(r.issue), D)
        r.first_cut = cut
        r.first_alone = is_alone(m)
        r.first_head = m.bio
        r.sched_tag = (m.high >> 16) & 0xFFFF
        r.hctx = word & 0xFFFF
    note(m, cython.address(r.last_issue), D)
    r.tag = m.high & 0xFFFF
    r.last_cut = cut
    r.others = 0
    r.begun = m.size
    r.since_begun = r.since_issue = 0
    r.requeued = False
    r.in_driver = True
    r.open_ended = r.open_ended or cut or m.bio == 0 or m.by_range
    if m.bio != 0 and not never_queued(m, r):
        in_chain(m, r, m.bio, 0)
    if m.by_range:
        for at in range(m.member_count):
            add_name(r, m.members[at])
            in_chain(m, r, m.members[at], at + 1)
    if cut:
        m.cut_chains = True
        offer_chain(m, r)


def is_alone(m: Machine) -> bint:
    """Return whether the D at hand has one bio, whose range is its own then."""
    word: uint64 = m.w6[m.row]
    return (word >> 32) & 0xFFFF == 1 and (word >> 56) & 1 == 0 and not m.by_range


def on_chain(m: Machine) -> None:
    """CHAIN: the bios behind the head of a D, which has the same time and request."""
    r: Request = cython.cast(Request, entry_of(m, m.requests, m.w1[m.row], 0).what)
    slot: int64
    word: int64
    b: Bio
    if not r or r.told.kind != D or r.told.ts != m.ts:
        return
    slot = 1 + (m.number - r.told.number - 1) * 6
    of_chain: int64 = m.number
    m.used[m.row] = 1
    if m.notes_events:
        add_mention(m, cython.cast(Life, r), of_chain, CHAIN << 32)
    # The event at hand is the D.
    m.number = r.told.number
    m.address = m.w1[m.row]
    m.kind = D
    m.sector = r.told.sector
    m.size = r.told.size
    m.end = end_of(cython.address(r.told))
    m.opf = r.told.opf
    m.dev = r.told.dev
    m.high = r.told.status
    if not m.device or m.device.dev != m.dev:
        m.device = device_of(m, m.dev)
    for word in range(2, 8):
        bio: uint64
        if word == 2:
            bio = m.w2[m.row]
        elif word == 3:
            bio = m.w3[m.row]
        elif word == 4:
            bio = m.w4[m.row]
        elif word == 5:
            bio = m.w5[m.row]
        elif word == 6:
            bio = m.w6[m.row]
        else:
            bio = m.w7[m.row]
        if bio != 0 and bio >> 62 == 1:
            r.others += bio & LOW_32
        elif bio != 0:
            m.bio = bio
            add_name(r, bio)
            if not never_queued(m, r):
                b = in_chain(m, r, bio, slot + word - 2)
                if m.notes_events:
                    add_mention(m, cython.cast(Life, b), of_chain, CHAIN << 32)


def in_chain(m: Machine, r: Request, address: uint64, slot: int64) -> Bio:
    """Return a bio in the chain of a D: the D says whose it is."""
    b: Bio = bio_here(m, address, D, r, slot)
    if b.issue < 0:
        b.issue = m.number
        b.issue_ts = m.ts
    return b


def add_name(r: Request, address: uint64) -> None:
    name: Named = cython.cast(Named, allocate(1, size_of(Named)))
    name.address = address
    if r.last_step:
        if r.last_step.last:
            r.last_step.last.next = name
        else:
            r.last_step.chain = name
        r.last_step.last = name
    else:
        if r.last_named:
            r.last_named.next = name
        else:
            r.first_chain = name
        r.last_named = name


def add_step(m: Machine, r: Request, cut: bint) -> None:
    """Note a D, C or R, if it is more than the one D or C of the ordinary course."""
    if not r.first_step:
        if m.kind == D and r.issue.number < 0 and r.completions == 0:
            return
        if m.kind == C and r.completions == 0:
            return
        if r.issue.number >= 0:
            new_step(r, cython.address(r.issue), r.first_cut, r.first_head)
            r.last_step.chain = r.first_chain
            r.last_step.last = r.last_named
            r.first_chain = r.last_named = NULL
        if r.completions > 0:
            new_step(r, cython.address(r.complete), False, 0)
    new_step(r, cython.address(r.told), cut, m.bio)


def new_step(r: Request, at: At, cut: bint, head: uint64) -> None:
    one: Step = cython.cast(Step, allocate(1, size_of(Step)))
    one.at = at[0]
    one.cut = cut
    one.head = head
    if r.last_step:
        r.last_step.next = one
    else:
        r.first_step = one
    r.last_step = one


def on_complete(m: Machine) -> None:
    """C: bytes of a request are completed."""
    r: Request = request_here(m)
    add_step(m, r, False)
    note(m, cython.address(r.complete), C)
    r.complete_bio = m.bio
    if r.first_complete < 0:
        r.first_complete = m.number
    if m.size > 0:
        r.data_end = m.number
        r.data_end_ts = m.ts
        if m.high == 0 and r.requeued and r.implied < 0:
            r.implied = m.number
    r.completions += 1
    r.done += m.size
    r.since_issue += m.size
    r.since_begun += m.size
    if m.high != 0:
        r.status = r.complete.status
    else:
        r.good += m.size
    r.in_driver = False
    if m.bio != 0 and not never_queued(m, r):
        bio_here(m, m.bio, C, r, 0)
    if r.issue.number < 0 and m.size > 0:
        offer_chain(m, r)
    if m.doubt >= AMBIGUOUS:
        add_ending(m, cython.cast(Life, r))
    may_be_over(m, cython.cast(Life, r))


def on_done(m: Machine) -> None:
    """d: a request is no longer accounted; it says nothing else."""
    r: Request = commented_on(m, entry_of(m, m.requests, m.w1[m.row], 0))
    if r:
        r.told.number = m.number
        r.told.ts = m.ts
        r.told.kind = DONE
        mention(m, cython.cast(Life, r))
        forget_joins(r)


def on_requeue_or_error(m: Machine) -> None:
    """R: the driver returns a request. E: a completion failed; its C came before."""
    r: Request = request_here(m)
    if not r or m.kind == E:
        return
    add_step(m, r, False)
    note(m, cython.address(r.last_requeue), R)
    if r.requeue < 0:
        r.requeue = m.number
    r.requeues += 1
    r.requeued = True
    r.in_driver = False


def on_clone(m: Machine) -> None:
    """a: request-based dm hands a request, by a clone, to a device below."""
    r: Request = request_here(m)
    from_dev: uint64 = m.high
    from_sector: uint64 = m.w6[m.row]
    upper: Device = device_of(m, from_dev)
    life: Life = cython.cast(Life, upper.first_request)
    u: Request
    found: Request = NULL
    count: int64 = 0
    r.is_clone = True
    while life:
        u = cython.cast(Request, life)
        life = life.later
        if not u.in_driver or u.again >= 0 or u.last_issue.sector != from_sector:
            continue
        if u.last_issue.size == m.size and ((u.last_issue.opf ^ m.opf) & 0xFF) == 0:
            if u.last_issue.dev == from_dev:
                link(cython.cast(Life, r), cython.cast(Life, u))
                found = u
                count += 1
    if count == 1:
        r.above = found
        found.in_driver = False
