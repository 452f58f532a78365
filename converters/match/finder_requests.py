# SPDX-License-Identifier: Apache-2.0
"""Which request an event is about where it has no pointers: G, s, M, F, m, I, D, R and a."""

from biotrail.converters.match.ctypes_of import NULL, bint, int64, uint64
from biotrail.converters.match.doubt import (
    assign_tag,
    drop_tag,
    event_inherits,
    flush_serves,
    inherit,
    lose,
    open_event,
    open_flight,
    open_since,
    serve,
)
from biotrail.converters.match.finder import (
    choose,
    claim,
    find_waiting,
    is_flush_request,
    set_request,
)
from biotrail.converters.match.flights import (
    add_found,
    add_guess,
    all_of,
    ending,
    exact,
    move,
    near_guess,
    new_flight,
    oldest_first,
    overlaps_guess,
    put_back,
    put_in,
    several,
    sharing,
    starting,
    take_out,
    within,
)
from biotrail.converters.match.generations import is_passthrough
from biotrail.converters.match.lives import Device, Flight
from biotrail.converters.match.memory import add_identity, add_member
from biotrail.converters.match.numbers import (
    GUESSES,
    HELD,
    ISSUED,
    PARTIALS,
    RQ_MERGE,
    WAITING,
    F,
    M,
)
from biotrail.converters.match.state import Machine
from biotrail.recorder.schema.records import NO_TAG

OF_DRIVER = 1 << 40
OF_SCHEDULER = 2 << 40
OF_LIFE = 3 << 40


def begin_request(m: Machine) -> Flight:
    """Return a new request of a G, s or a, at an identity that was given up, if there is one.

    So an identity is used again as an address is: the handlers take the earlier one for lost. Only
    these events begin a new request behind any other.
    """
    f: Flight = new_flight(m, False)
    if m.given_up_count:
        m.given_up_count -= 1
        f.identity = m.given_up[m.given_up_count]
    return f


def give_up_since(m: Machine, start: int64) -> None:
    """Requests on the pile ended, and no completion was recorded."""
    at: int64
    for at in range(start, m.found):
        take_out(m, m.pile[at])
        add_identity(m, m.pile[at].identity)
        lose(m.pile[at])
    m.found = start


def find_allocated(m: Machine) -> None:
    """G: the bio that waits with this range, and a new request."""
    allocated(m)


def allocated(m: Machine) -> Flight:
    """Return the new request of a G, or of an s without one."""
    f: Flight = claim(m, find_waiting(m))
    r: Flight = begin_request(m)
    r.tid = f.tid
    r.flags = f.flags
    r.head = f.identity
    serve(r, f)
    flush_serves(r, f)
    m.bio = f.identity
    m.address = r.identity
    m.device.takes_requests = True
    m.device.tells_allocations = True
    put_in(m, r, HELD)
    return r


def find_started(m: Machine) -> None:
    """s: the request with this range that has not started yet; if none, as G."""
    start: int64 = m.found
    at: int64
    fresh: int64 = start
    r: Flight
    tag: uint64 = m.high & NO_TAG
    scheduler: uint64 = m.high >> 16
    key: uint64 = 0
    exact(m, m.device.held)
    for at in range(start, m.found):
        if not m.pile[at].started:
            m.pile[fresh] = m.pile[at]
            fresh += 1
    m.found = fresh
    r = choose(m, start, False)
    if not r:
        r = allocated(m)
    r.started = True
    put_back(m, r)
    if scheduler != NO_TAG:
        key = OF_SCHEDULER | scheduler
    elif tag != NO_TAG:
        key = OF_LIFE | tag
    if key and m.device.one_queue and m.on["finder/tags-reused"]:
        give_up_since(m, assign_tag(m, r, key, False))
    m.address = r.identity
    m.bio = r.head


def find_cloned(m: Machine) -> None:
    """A new request, the clone of one of the dm device above."""
    r: Flight = begin_request(m)
    put_in(m, r, HELD)
    set_request(m, r)


def may_merge(m: Machine, start: int64, but: Flight) -> None:
    """Leave those requests on the pile that can grow: not with a flush (REQ_NOMERGE_FLAGS)."""
    at: int64
    left: int64 = start
    f: Flight
    for at in range(start, m.found):
        f = m.pile[at]
        if f == but:
            f = but.younger
        if f and (not f.flags & (m.preflush | m.fua) or not m.on["finder/flushes-merge-not"]):
            m.pile[left] = f
            left += 1
    m.found = left


def plugged_first(m: Machine, start: int64) -> None:
    """Sort takers: what the thread holds back first (blk_attempt_plug_merge), then by age."""
    at: int64
    to: int64
    r: Flight
    if not m.on["finder/own-plug"]:
        return
    for at in range(start + 1, m.found):
        r = m.pile[at]
        to = at
        while to > start and is_plugged(m, r) and not is_plugged(m, m.pile[to - 1]):
            m.pile[to] = m.pile[to - 1]
            to -= 1
        m.pile[to] = r


def is_plugged(m: Machine, r: Flight) -> bint:
    """Return whether the event's thread may hold a request in its plug."""
    return r.tid == m.tid and not r.inserted


def find_merged(m: Machine) -> None:
    """M, F: the bio, and the held request that ends, or begins, where it does; that one grows.

    Where no bio waits there, but a request does, it is one: blktrace writes m so.
    """
    start: int64 = find_waiting(m)
    bio: Flight
    taker: Flight
    if m.found == start and m.on["finder/merges-named-as-joins"]:
        exact(m, m.device.held)
        if m.found > start:
            m.found = start
            find_takers(m)
            if m.found > start:
                m.found = start
                find_absorption(m)
                return
    bio = claim(m, start)
    m.found = start
    find_takers(m)
    plugged_first(m, start)
    m.bio = bio.identity
    taker = choose_taker(m, start)
    if not taker:
        bio.joined = True
        put_in(m, bio, WAITING)
        return
    serve(taker, bio)
    m.address = taker.identity
    doubt_unseen_takers(m, taker)
    inherit(taker, m.doubt, m.exchange)
    if m.from_sector < taker.sector:
        taker.head = bio.identity
    widen(m, taker, m.from_sector, m.to_sector)


def find_takers(m: Machine) -> None:
    """Find the held requests that an M or F may be into, by age."""
    start: int64 = m.found
    if m.kind == M:
        ending(m, m.device.held, m.from_sector)
        oldest_first(m, start)
    else:
        starting(m, m.device.held, m.to_sector)
    may_merge(m, start, NULL)


def choose_taker(m: Machine, start: int64) -> Flight:
    """Return the first of those that a merge may be into, or NULL; of several it is a guess."""
    if several(m, start):
        add_guess(m, GUESSES, start)
    return choose(m, start, True)


def doubt_unseen_takers(m: Machine, taker: Flight) -> None:
    """A merge may be into a request of a bio beside it, whose G and s were not recorded."""
    start: int64 = m.found
    if m.device.tells_allocations or not m.on["finder/unseen-takers"]:
        return
    ending(m, m.device.waiting, m.from_sector)
    starting(m, m.device.waiting, m.to_sector)
    if m.found > start:
        open_since(m, start)
        open_flight(taker)
        open_event(m)
    m.found = start


def find_absorbed(m: Machine) -> None:
    """The request with this range is absorbed by its neighbour on either side, which grows."""
    find_absorption(m)


def find_absorption(m: Machine) -> None:
    """Find the absorbed request, and who takes it; the event is an m."""
    start: int64 = m.found
    takers: int64
    merged: Flight
    taker: Flight
    d: Device = m.device
    side: int64 = m.kind
    m.kind = RQ_MERGE
    exact(m, d.held)
    merged = choose(m, start, False)
    if not merged:
        return
    takers = m.found
    if side != F:
        ending(m, d.held, m.from_sector)
    if side != M:
        starting(m, d.held, m.to_sector)
    may_merge(m, takers, merged)
    oldest_first(m, takers)
    taker = choose_taker(m, takers)
    if m.on["finder/guesses-blur"] and near_guess(m):
        open_event(m)
    take_out(m, merged)
    m.address = merged.identity
    m.bio = merged.head
    if not taker:
        lose(merged)
        return
    m.other = taker.identity
    serve(taker, merged)
    inherit(taker, m.doubt, m.exchange)
    if merged.sector < taker.sector:
        taker.head = merged.head
    widen(m, taker, merged.sector, merged.end)


def widen(m: Machine, r: Flight, sector: uint64, end: uint64) -> None:
    """A request has taken in what lies beside it."""
    if m.on["finder/merges-widen"]:
        move(m, r, min(r.sector, sector), max(r.end, end))


def doubt_range(m: Machine, r: Flight) -> None:
    """An earlier choice near a request may have made its range wrong."""
    if m.on["finder/guesses-blur"] and near_guess(m):
        open_flight(r)


def find_inserted(m: Machine) -> None:
    """I: the held request with this range, one that is not inserted if there is any."""
    start: int64 = m.found
    at: int64
    left: int64 = start
    r: Flight
    exact(m, m.device.held)
    for at in range(start, m.found):
        if not m.pile[at].inserted:
            m.pile[left] = m.pile[at]
            left += 1
    if left > start:
        m.found = left
    r = choose(m, start, False)
    if not r:
        r = unseen_request(m)
        put_in(m, r, HELD)
    doubt_range(m, r)
    r.inserted = True
    put_back(m, r)
    set_request(m, r)


def unseen_request(m: Machine) -> Flight:
    """Return a new request, whose G and s were not recorded, of the bios in the event's range.

    Each begins where the one before ends; of several without bytes it is the oldest. All there are
    in doubt if these do not cover the range exactly, though bios are recorded, if others lie in it,
    or an earlier guess; and with discards that may have grown to it or be in it, unseen.
    """
    r: Flight = new_flight(m, False)
    start: int64 = m.found
    stop: int64
    at: int64
    reached: uint64 = m.from_sector
    last: Flight = NULL
    b: Flight
    taken: int64 = 0
    others: bint = False
    doubtful: bint
    d: Device = m.device
    d.takes_requests = True
    if m.from_sector == m.to_sector:
        exact(m, d.waiting)
    else:
        within(m, d.waiting)
    stop = m.found
    for at in range(start, stop):
        b = m.pile[at]
        b.counts_here = b.sector == reached and not (last and last.end == b.end)
        if b.counts_here:
            last = b
            reached = b.end
            taken += 1
        others = others or not b.counts_here or b.younger != NULL
    shorter_discards(m)
    if taken != 1 or reached != m.to_sector:
        smaller_discards(m, start, stop)
    doubtful = m.found > stop or others
    doubtful = doubtful or (reached != m.to_sector and m.records_bios)
    if not doubtful and m.on["finder/guesses-blur"]:
        doubtful = near_guess(m)
    if doubtful:
        open_flight(r)
        open_since(m, start)
    m.found = stop
    if others:
        for at in range(start, stop):
            b = m.pile[at]
            if b.counts_here:
                b = b.younger
            if b:
                add_found(m, b)
        add_guess(m, GUESSES, stop)
        m.found = stop
    for at in range(start, stop):
        b = m.pile[at]
        if b.counts_here:
            take_out(m, b)
            serve(r, b)
            if r.head:
                add_member(m, b.identity)
            else:
                r.head = b.identity
            event_inherits(m, b)
            r.flags |= b.flags
    m.found = start
    return r


def shorter_discards(m: Machine) -> None:
    """Find held discards that begin with the event and are shorter: others may have joined one.

    No event reports that.
    """
    start: int64 = m.found
    at: int64
    left: int64 = start
    if m.op != m.discard or not m.on["finder/discards-that-grew"]:
        return
    starting(m, m.device.held, m.from_sector)
    for at in range(start, m.found):
        if m.pile[at].end < m.to_sector:
            m.pile[left] = m.pile[at]
            left += 1
    m.found = left


def smaller_discards(m: Machine, start: int64, stop: int64) -> None:
    """Find waiting discards, of any sector, that are shorter than the event, but not those before.

    Several may be one request of several ranges, which reports the first sector and the total.
    """
    first: int64 = m.found
    at: int64
    inside: int64
    left: int64 = first
    f: Flight
    if m.op != m.discard or not m.on["finder/discards-from-anywhere"]:
        return
    all_of(m, m.device.waiting)
    for at in range(first, m.found):
        f = m.pile[at]
        if f.sector >= m.from_sector and f.end <= m.to_sector and f.end > f.sector:
            continue
        for inside in range(start, stop):
            if m.pile[inside] == f:
                break
        else:
            if f.end - f.sector < m.to_sector - m.from_sector:
                m.pile[left] = f
                left += 1
    m.found = left


def find_issued(m: Machine) -> None:
    """D: the held request with this range; or, where bios are not recorded, one within it.

    A flush request or a command is a new request without bios. Without G and s in the recording it
    may be of bios that wait there. Without a candidate it is made of these.
    """
    start: int64 = m.found
    r: Flight = NULL
    d: Device = m.device
    kept: uint64 = m.opf & m.fua
    tag: uint64 = m.high & NO_TAG
    queue: uint64 = m.w6[m.row] & NO_TAG
    if is_flush_request(m):
        r = new_flight(m, False)
        d.flush_issued = r.order
        d.takes_requests = True
    elif is_passthrough(m, m.opf):
        r = new_flight(m, False)
        d.takes_requests = True
    else:
        exact(m, d.held)
        if m.found == start and not m.records_bios:
            within(m, d.held)
            oldest_first(m, start)
        r = choose(m, start, False)
        m.found = start
        if r:
            doubt_waiting(m, r)
            shorter_discards(m)
            if m.found > start:
                open_since(m, start)
                open_flight(r)
                m.found = start
            doubt_range(m, r)
            take_out(m, r)
            r.sector = m.from_sector
            r.end = m.to_sector
        else:
            r = unseen_request(m)
    set_request(m, r)
    # blk_insert_flush clears REQ_FUA where it emulates FUA by a flush after the data. A flush
    # before is a request of its own on every device.
    r.sequence = (r.flags & m.preflush) != 0
    if m.on["finder/fua-is-a-sequence"]:
        r.sequence = r.sequence or (r.flags & m.fua & ~kept) != 0
    r.issue_ts = m.ts
    put_in(m, r, ISSUED)
    if m.to_sector > m.from_sector:
        d.issued_sector = m.from_sector
        d.issued_end = m.to_sector
    if tag != NO_TAG and queue != NO_TAG and m.on["finder/tags-reused"]:
        start = assign_tag(m, r, OF_DRIVER | queue << 16 | tag, True)
        if m.on["finder/sequence-outlives-tag"]:
            keep_sequences(m, start)
        give_up_since(m, start)


def keep_sequences(m: Machine, start: int64) -> None:
    """Take flush sequences from the pile: their data is done, and they wait for a flush still.

    It may have their tag (blk_kick_flush lends it), or one of its own.
    """
    at: int64
    left: int64 = start
    f: Flight
    for at in range(start, m.found):
        f = m.pile[at]
        if f.sequence:
            f.data_done = True
            put_back(m, f)
        else:
            m.pile[left] = f
            left += 1
    m.found = left


def doubt_waiting(m: Machine, r: Flight) -> None:
    """Where no allocation is recorded, a D may be of a request of bios that wait in its range."""
    start: int64 = m.found
    if m.device.tells_allocations or not m.on["finder/unseen-allocations"]:
        return
    sharing(m, m.device.waiting)
    if m.found > start:
        open_since(m, start)
        open_flight(r)
    m.found = start


def find_requeued(m: Machine) -> None:
    """R: the issued request with this range, which is held again, without its driver's tag.

    Without one it may be the remainder of any request: all that is merged with it later is open.
    """
    start: int64 = m.found
    r: Flight
    exact(m, m.device.issued)
    r = choose(m, start, False)
    if not r:
        r = new_flight(m, False)
        open_flight(r)
    else:
        take_out(m, r)
        if m.on["finder/parts-blur"] and overlaps_guess(m, m.device.partials, PARTIALS):
            open_flight(r)
    r.inserted = False
    drop_tag(r, True)
    put_in(m, r, HELD)
    set_request(m, r)
