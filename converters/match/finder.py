# SPDX-License-Identifier: Apache-2.0
"""Which bio or request an event without pointers is about: by range, operation, thread and age.

Every event concerns what is in flight on its device. One candidate: the event is of it. Several: it
is of the oldest, and all are ambiguous from then on. None: an earlier event is missing, and a new
bio or request begins. What is found stands for addresses: the handlers go on as with pointers.
Events of bios come first, then those of requests, then completions.
"""

import cython

from biotrail.converters.match.doubt import (
    assign_tag,
    drop_tag,
    end,
    end_event,
    enter_flushes,
    event_inherits,
    inherit,
    leave_flushes,
    lose,
    merge_flushes,
    merge_tags,
    open_event,
    open_flight,
    open_since,
    pair_flush,
    serve,
    share,
)
from biotrail.converters.match.families import forget_question, link_bios
from biotrail.converters.match.flights import (
    ANYWHERE,
    add_found,
    add_fresh,
    add_guess,
    ending,
    exact,
    find_in,
    free_listed,
    move,
    near_guess,
    new_flight,
    oldest_first,
    overlaps_guess,
    put_in,
    several,
    sharing,
    starting,
    take_out,
)
from biotrail.converters.match.generations import is_passthrough
from biotrail.converters.match.lives import *
from biotrail.converters.match.memory import add_identity, add_member, device_of, entry_of
from biotrail.converters.match.numbers import *
from biotrail.converters.match.state import Machine
from biotrail.recorder.schema.records import NO_SECTOR, NO_TAG


def find(m: Machine) -> bint:
    """Find what the event at hand is about; False: it says nothing without a pointer.

    Sets `bio`, `address` (of the request) and `other`, as pointers would be; `doubt`; what of a D
    or I the request serves besides its head, on `members`. What blktrace has one letter for
    becomes the event that it is: `kind` C a c, M or F an m.
    """
    kind: int64 = m.kind
    sender: Entry
    m.from_sector = 0 if m.sector == NO_SECTOR else m.sector
    m.to_sector = m.from_sector + cython.cast(uint64, m.size >> 9)
    m.op = m.opf & 0xFF
    m.tid = 0
    m.sent = NULL
    m.found = 0
    m.doubt = INTERVAL
    m.bio = m.address = m.other = 0
    m.member_count = 0
    m.is_early = False
    if kind == Q or kind == G or kind == M or kind == F or kind == X or kind == A:
        m.tid = m.high
        if m.senders.count:
            sender = entry_of(m, m.senders, cython.cast(uint64, m.tid) + 1, 0)
            m.sent = cython.cast(Flight, sender.what)
            if m.sent and m.sent.order != sender.number:
                m.sent = NULL
            sender.what = NULL
    if kind == Q:
        find_queued(m)
    elif kind == G:
        find_allocated(m)
    elif kind == START:
        find_started(m)
    elif kind == D:
        find_issued(m)
    elif kind == C:
        find_completed(m)
    elif kind == M or kind == F:
        find_merged(m)
    elif kind == I:
        find_inserted(m)
    elif kind == R:
        find_requeued(m)
    elif kind == RQ_MERGE:
        find_absorbed(m)
    elif kind == BIO_COMPLETE:
        find_ended(m)
    elif kind == A:
        find_remapped(m)
    elif kind == X:
        find_split(m)
    elif kind == RQ_REMAP:
        find_cloned(m)
    else:
        return False
    return m.kind != RQ_MERGE or m.address != 0  # a merge of what is not known


def end_search(m: Machine) -> None:
    """The event was taken in."""
    end_event(m)
    free_listed(m)
    m.doubt = 0


# --- The choice


def choose(m: Machine, start: int64, is_open: bint) -> Flight:
    """Return the first candidate on the pile from a place on, or NULL; the event is of it then.

    Several are ambiguous from now on. is_open: they are not alike, so that the choice decides which
    completion is whose.
    """
    stop: int64
    if m.found == start:
        return NULL
    if several(m, start) and m.on["finder/several-are-ambiguous"]:
        stop = add_fresh(m, start, SHARED)
        share(m, stop, is_open)
        merge_tags(m, stop, DRIVER_TAG)
        merge_tags(m, stop, LIFE_TAG)
        m.found = stop
        if m.from_sector == m.to_sector and not is_flush_request(m):
            merge_flushes(m, start)
    event_inherits(m, m.pile[start])
    return m.pile[start]


def is_flush_request(m: Machine) -> bint:
    """Return whether the event is of a flush request (blk_kick_flush), which has no bio."""
    return m.op == m.flush and m.from_sector == m.to_sector


def set_request(m: Machine, f: Flight) -> None:
    """The event is of a request, and so of its head bio."""
    m.address = f.identity
    m.bio = f.head
    event_inherits(m, f)


def own_thread(m: Machine, start: int64) -> None:
    """Leave on the pile what the event's thread queued, if there is any of it.

    A task submits one bio after the other: what it queued is what it goes on with.
    """
    at: int64
    own: int64 = start
    if not m.on["finder/own-thread"]:
        return
    for at in range(start, m.found):
        if m.pile[at].tid == m.tid:
            m.pile[own] = m.pile[at]
            own += 1
    if own > start:
        m.found = own


# --- Bios


def find_queued(m: Machine) -> None:
    """Q: a new bio, or the one that this thread's last event, an A, sent here.

    submit_bio_noacct queues a remapped bio right after its A; a bio that NVMe multipath sends on
    has no Q below, so the thread's next Q is elsewhere.
    """
    f: Flight = m.sent
    m.records_bios = True
    m.device.queues = True
    if not f or f.place != WAITING or f.device != m.device or not m.on["finder/sent-by-remap"]:
        f = NULL
    elif f.sector != m.from_sector or f.end != m.to_sector or f.op != m.op:
        f = NULL
    if f:
        take_out(m, f)
    else:
        f = new_flight(m, True)
    f.queued = True
    f.flags = m.opf & (m.preflush | m.fua)
    put_in(m, f, WAITING)
    m.bio = f.identity


def find_remapped(m: Machine) -> None:
    """A: a new bio of the device below, or the one that this thread's last event, an A, sent.

    That one goes on from a partition to its disk. Where a device above sent it to the partition,
    the first A names the partition, or (before 5.12) its disk alone with the partition's sector.
    """
    f: Flight = m.sent
    sender: Entry
    from_sector: uint64 = m.w5[m.row]
    from_dev: uint64 = m.w6[m.row] & LOW_32
    if f and f.place == WAITING and goes_on(m, f, from_dev, from_sector):
        take_out(m, f)
        f.device = m.device
        f.sector = m.from_sector
        f.end = m.to_sector
        put_in(m, f, WAITING)
    else:
        f = new_flight(m, True)
        put_in(m, f, WAITING)
        if m.on["finder/sent-on-without-queue"]:
            find_above(m, f, device_of(m, from_dev), from_sector)
    f.from_dev = from_dev
    f.from_part = m.w6[m.row] >> 32
    f.queued = False
    sender = entry_of(m, m.senders, cython.cast(uint64, m.tid) + 1, 0)
    sender.what = f
    sender.number = f.order
    m.bio = f.identity


def goes_on(m: Machine, f: Flight, from_dev: uint64, from_sector: uint64) -> bint:
    """Return whether an A sends on the bio that the thread's last event sent."""
    if f.sector != from_sector or f.queued:
        return False
    if f.from_part == from_dev:
        return True
    # By its disk: the device of both is that, and it is the same range there. What comes from the
    # device above once more is another clone.
    if f.from_part != f.device.dev or f.device != m.device or f.op != m.op:
        return False
    if f.from_dev == from_dev:
        return False
    return f.end - f.sector == m.to_sector - m.from_sector and m.on["finder/clone-of-disk"]


def find_above(m: Machine, f: Flight, upper: Device, from_sector: uint64) -> None:
    """Note the bio that an A sends on, if it is one of this thread's with that very range."""
    start: int64 = m.found
    sector: uint64 = m.from_sector
    end_sector: uint64 = m.to_sector
    m.from_sector = from_sector
    m.to_sector = from_sector + (end_sector - sector)
    exact(m, upper.waiting)
    m.from_sector = sector
    m.to_sector = end_sector
    if m.found > start and not several(m, start):
        if m.pile[start].tid == m.tid and m.pile[start].queued:
            f.above = m.pile[start]
            f.above_order = f.above.order
    m.found = start


def find_split(m: Machine) -> None:
    """X: a new bio, the front piece, of one that begins there, is longer, and keeps the rest."""
    start: int64 = m.found
    at: int64
    longer: int64 = start
    parent: Flight
    front: Flight
    starting(m, m.device.waiting, m.from_sector)
    for at in range(start, m.found):
        if m.pile[at].end > m.to_sector:
            m.pile[longer] = m.pile[at]
            longer += 1
    m.found = longer
    own_thread(m, start)
    parent = choose(m, start, True)
    front = new_flight(m, True)
    m.bio = front.identity
    front.queued = True
    put_in(m, front, WAITING)
    if parent:
        m.other = parent.identity
        front.parent = parent
        front.parent_order = parent.order
        front.began = parent.began
        inherit(front, parent.doubt, parent.exchange)
        front.counts = True
        parent.unserved += 1
        move(m, parent, m.to_sector, parent.end)


def find_waiting(m: Machine) -> int64:
    """Find the waiting bios with the event's range; return where on the pile they begin.

    Not those that merged into a request that could not be found.
    """
    start: int64 = m.found
    at: int64
    free_ones: int64 = start
    exact(m, m.device.waiting)
    for at in range(start, m.found):
        if not m.pile[at].joined:
            m.pile[free_ones] = m.pile[at]
            free_ones += 1
    m.found = free_ones
    own_thread(m, start)
    return start


def claim(m: Machine, start: int64) -> Flight:
    """Return the first of the waiting bios on the pile, which waits no more, else a new one."""
    f: Flight = choose(m, start, False)
    upper: Flight
    if not f:
        f = new_flight(m, True)
        f.queued = True
        return f
    take_out(m, f)
    upper = f.above
    if upper and not f.queued and upper.order == f.above_order and upper.place == WAITING:
        if not m.device.queues:
            return sent_on(m, f, upper)
    return f


def sent_on(m: Machine, f: Flight, upper: Flight) -> Flight:
    """Have a bio that an A sent be the one above, which goes on below without a Q: NVMe multipath.

    Only now this can be told: dm and md queue their clones.
    """
    b: Bio = cython.cast(Bio, f.life)
    u: Bio = cython.cast(Bio, upper.life)
    if not b or not u or b.closed or u.closed or b.born.number != b.told.number:
        return f
    link_bios(u, b)
    forget_question(b)
    b.is_clone = False
    b.sent_on = True
    u.remap = b.remap
    u.told = b.told
    u.told_part = b.told_part
    take_out(m, upper)
    upper.device = m.device
    upper.sector = f.sector
    upper.end = f.end
    upper.from_dev = f.from_dev
    upper.from_part = f.from_part
    inherit(upper, f.doubt, f.exchange)
    return upper


def find_ending(m: Machine) -> int64:
    """Find the waiting bios that a completion may be of; return where on the pile they begin.

    Those with its range; if it has no bytes, then those that end at its sector: bio_advance has
    moved such a bio to its end, where bi_size is 0. The oldest first in each of the two.
    """
    start: int64 = m.found
    at: int64
    rest: int64
    exact(m, m.device.waiting)
    if m.from_sector == m.to_sector and m.on["finder/ends-without-size"]:
        rest = m.found
        ending(m, m.device.waiting, m.from_sector)
        at = rest
        while at < m.found:
            if m.pile[at].sector == m.from_sector:  # it is there already
                m.found -= 1
                m.pile[at] = m.pile[m.found]
            else:
                at += 1
        oldest_first(m, rest)
    return start


def find_ended(m: Machine) -> None:
    """c: the bio that ended.

    Front pieces of it that are in no request leave that in doubt, if the device makes requests:
    their completion is still to come. Some kernels report a c of a request's first bio just before
    its C (nvme_trace_bio_complete).
    """
    f: Flight
    start: int64 = find_ending(m)
    f = choose(m, start, False)
    if f:
        take_out(m, f)
        end(m, f, True)
        if f.unserved > 0 and m.device.takes_requests and m.on["finder/unserved-fronts"]:
            open_event(m)
    else:
        f = early_ended(m)
        if f:
            m.is_early = True
            m.bio = f.head
            event_inherits(m, f)
            return
        f = new_flight(m, True)
    m.bio = f.identity


def early_ended(m: Machine) -> Flight:
    """Return the only issued request whose first bio a c is of, or NULL."""
    start: int64 = m.found
    f: Flight = NULL
    one: Flight
    at: int64
    count: int64 = 0
    if m.from_sector == m.to_sector or m.device.queues or not m.on["finder/early-before-request"]:
        return NULL
    starting(m, m.device.issued, m.from_sector)
    for at in range(start, m.found):
        one = m.pile[at] if m.pile[at].end >= m.to_sector else NULL
        while one and count < 2:
            if one.head:
                f = one
                count += 1
            one = one.younger
    m.found = start
    return f if count == 1 else NULL


# --- Requests: G, s, M, F, m, I, D, R and a

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


def find_allocated(m: Machine) -> Flight:
    """G, or an s without one: the bio that waits with this range, and a new request."""
    f: Flight = claim(m, find_waiting(m))
    r: Flight = begin_request(m)
    r.tid = f.tid
    r.flags = f.flags
    r.head = f.identity
    serve(r, f)
    if f.flushes:
        enter_flushes(f.flushes, r)
        leave_flushes(f)
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
        r = find_allocated(m)
    r.started = True
    move(m, r, r.sector, r.end)
    if scheduler != NO_TAG:
        key = OF_SCHEDULER | scheduler
    elif tag != NO_TAG:
        key = OF_LIFE | tag
    if key and m.device.one_queue and m.on["finder/tags-reused"]:
        give_up_since(m, assign_tag(m, r, key, LIFE_TAG))
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
                find_absorbed(m)
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
    """m: the request with this range; its neighbour on either side absorbs it, and grows."""
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
    move(m, r, r.sector, r.end)
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
        sharing(m, d.waiting, True)
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
    find_in(m, m.device.waiting, 0, ANYWHERE, 0, ANYWHERE)
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
            sharing(m, d.held, True)
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
        start = assign_tag(m, r, OF_DRIVER | queue << 16 | tag, DRIVER_TAG)
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
            move(m, f, f.sector, f.end)
        else:
            m.pile[left] = f
            left += 1
    m.found = left


def doubt_waiting(m: Machine, r: Flight) -> None:
    """Where no allocation is recorded, a D may be of a request of bios that wait in its range."""
    start: int64 = m.found
    if m.device.tells_allocations or not m.on["finder/unseen-allocations"]:
        return
    sharing(m, m.device.waiting, False)
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
        if m.on["finder/parts-blur"] and overlaps_guess(m, m.device.guesses[PARTIALS], PARTIALS):
            open_flight(r)
    r.inserted = False
    drop_tag(r, DRIVER_TAG)
    put_in(m, r, HELD)
    set_request(m, r)


# --- Completions: of data, of a flush sequence, of failures


def find_completed(m: Machine) -> None:
    """C: the request that completed, wholly or in part."""
    start: int64 = m.found
    r: Flight
    if m.from_sector == m.to_sector and not is_flush_request(m):
        find_flush_end(m)
        return
    if not m.bios_end_by_c:
        m.device.takes_requests = True
    find_completing(m)
    if several(m, start) and m.on["finder/lived-through-loss"]:
        pass_over_lost(m, start)
    if m.high != 0 and m.on["finder/fails-before-issue"]:
        find_failing(m, start)
    r = choose(m, start, False)
    if not r:
        find_unknown(m)
        return
    if m.op != m.zone_append:  # its C has another sector than its D
        if m.on["finder/parts-blur"]:
            if overlaps_guess(m, m.device.guesses[PARTIALS], PARTIALS):
                open_flight(r)
            note_partial(m, start)
    set_request(m, r)
    if r.place == HELD:
        take_out(m, r)
    elif m.op == m.zone_append or r.end == m.to_sector:
        end_data(m, r)
    else:
        move(m, r, m.to_sector, r.end)
    end(m, r, r.place != ISSUED)


def note_partial(m: Machine, start: int64) -> None:
    """A C that fits several requests of several ends: which one it shortened is open."""
    at: int64
    for at in range(start + 1, m.found):
        if m.pile[at].end != m.pile[start].end:
            add_guess(m, PARTIALS, start)
            return


def find_completing(m: Machine) -> None:
    """Find the issued requests that a C may be of, the oldest first: not shorter, data not done.

    Of a zone append those of its size: C has the sector that was written, D the zone's.
    """
    start: int64 = m.found
    at: int64
    left: int64 = start
    f: Flight
    d: Device = m.device
    if m.op == m.zone_append:
        find_in(m, d.issued, 0, ANYWHERE, 0, ANYWHERE)
        for at in range(start, m.found):
            f = m.pile[at]
            if f.end - f.sector == m.to_sector - m.from_sector:
                m.pile[left] = f
                left += 1
        m.found = left
        oldest_first(m, start)
        return
    starting(m, d.issued, m.from_sector)
    for at in range(start, m.found):
        f = m.pile[at]
        if f.end >= m.to_sector and not f.data_done:
            m.pile[left] = f
            left += 1
    m.found = left


def pass_over_lost(m: Machine, start: int64) -> None:
    """Leave those on the pile that were issued since records were lost, if there are any.

    The completion of one that was in flight then was likely among these records: a later one of the
    same place is the likelier owner. At first both are in doubt; once it was passed over, no later
    one pays for it.
    """
    divide_rows(m, start)
    at: int64
    left: int64 = start
    stop: int64
    known: bint = True
    f: Flight
    for at in range(start, m.found):
        if m.pile[at].issue_ts > m.lost_at:
            left += 1
        else:
            known = known and m.pile[at].passed
    if left == start or left == m.found:
        return
    if not known:
        open_since(m, start)
    left = start
    stop = m.found
    for at in range(start, stop):
        f = m.pile[at]
        if f.issue_ts > m.lost_at:
            m.pile[left] = f
            left += 1
        else:
            while f and not f.passed:
                add_found(m, f)
                f = f.younger
    for at in range(stop, m.found):
        m.pile[at].passed = True
        move(m, m.pile[at], m.pile[at].sector, m.pile[at].end)
    m.found = left


def divide_rows(m: Machine, start: int64) -> None:
    """Part those of each row on the pile that were issued since records were lost from others."""
    stop: int64 = m.found
    at: int64
    f: Flight
    for at in range(start, stop):
        f = m.pile[at]
        if f.row and f.row.lost_at != m.lost_at:
            f.row.lost_at = m.lost_at
            while f:
                if f.issue_ts <= m.lost_at and not f.lived_through:
                    add_found(m, f)
                f = f.younger
    if m.found > stop:
        for at in range(stop, m.found):
            move(m, m.pile[at], m.pile[at].sector, m.pile[at].end)
        m.found = start
        find_completing(m)


def find_failing(m: Machine, start: int64) -> None:
    """Add the held requests with the range of a failed C, which may have failed before their issue.

    A bio that waits there may have a request that was not recorded: then all are in doubt.
    """
    stop: int64
    exact(m, m.device.held)
    stop = m.found
    sharing(m, m.device.waiting, False)
    if m.found > stop:
        open_since(m, start)
    m.found = stop


def end_data(m: Machine, r: Flight) -> None:
    """A request's data is complete; a flush sequence goes on until its C of no bytes.

    blk_kick_flush lends its driver's tag to the flush request.
    """
    if r.sequence:
        r.data_done = True
        move(m, r, r.sector, r.end)
        drop_tag(r, DRIVER_TAG)
    else:
        take_out(m, r)


def find_unknown(m: Machine) -> None:
    """A C that fits no request: of one from before the log.

    blktrace has one letter for the end of bios and of requests: where no request of the device was
    seen it is of a bio that waits.
    """
    start: int64 = m.found
    b: Flight = NULL
    if m.bios_end_by_c and not m.device.takes_requests and m.on["finder/bios-end-by-c"]:
        find_ending(m)
        b = choose(m, start, False)
    if not b:
        m.address = new_flight(m, False).identity
        return
    take_out(m, b)
    end(m, b, True)
    m.bio = b.identity
    m.kind = BIO_COMPLETE


def find_flush_end(m: Machine) -> None:
    """A C of no bytes ends a flush sequence whose data is done, or what has no data.

    That is in flight since before the newest flush: a flush ends only what was queued when it was
    issued (blk_kick_flush). In doubt where the data of another one may have ended unseen.
    """
    start: int64 = m.found
    stop: int64
    at: int64
    left: int64 = start
    f: Flight
    d: Device = m.device
    rivals: bint
    starting(m, d.issued, m.from_sector)
    for at in range(start, m.found):
        f = m.pile[at]
        if f.data_done or f.end == f.sector:
            m.pile[left] = f
            left += 1
    m.found = left
    exact(m, d.held)
    before_flush(m, left)
    stop = m.found
    unknown_flushes(m)
    if m.on["finder/data-may-have-ended"]:
        left = m.found
        starting(m, d.issued, m.from_sector)
        for at in range(left, m.found):
            f = m.pile[at]
            if f.sequence and not f.data_done and f.end != f.sector:
                m.pile[left] = f
                left += 1
        m.found = left
    rivals = m.found > stop
    if rivals and stop > start:
        open_since(m, start)
    m.found = stop
    f = choose(m, start, False)
    pair_flush(m, start, rivals)
    if not f:
        end_unknown_flush(m)
        return
    set_request(m, f)
    take_out(m, f)
    end(m, f, True)


def before_flush(m: Machine, start: int64) -> None:
    """Leave on the pile what is older than the newest flush that was issued."""
    at: int64
    left: int64 = start
    for at in range(start, m.found):
        if m.pile[at].order < m.device.flush_issued or not m.on["finder/flush-ends-those-before"]:
            m.pile[left] = m.pile[at]
            left += 1
    m.found = left


def unknown_flushes(m: Machine) -> None:
    """Find the waiting bios without data that a C of no bytes may be of.

    Only where no G or s is recorded: else such a C is the first event of its request.
    """
    start: int64 = m.found
    at: int64
    left: int64 = start
    if m.device.tells_allocations:
        return
    exact(m, m.device.waiting)
    for at in range(start, m.found):
        if m.pile[at].flags & m.preflush:
            m.pile[left] = m.pile[at]
            left += 1
    m.found = left
    before_flush(m, start)


def end_unknown_flush(m: Machine) -> None:
    """A C of no bytes that is of no request: of a waiting flush, which gets its request here."""
    start: int64 = m.found
    b: Flight
    unknown_flushes(m)
    b = choose(m, start, False)
    pair_flush(m, start, False)
    if not b:
        find_unknown(m)
        return
    take_out(m, b)
    end(m, b, True)
    m.address = new_flight(m, False).identity
    m.bio = b.identity
