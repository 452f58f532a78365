# SPDX-License-Identifier: Apache-2.0
"""Which bio or request an event without pointers is about: by range, operation, thread and age.

Every event concerns what is in flight on its device. One candidate: the event is of it. Several: it
is of the oldest, and all are ambiguous from then on. None: an earlier event is missing, and a new
bio or request begins. What is found stands for addresses: the handlers go on as with pointers.
Here are events of bios; those of requests are in `finder_requests`, completions in `finder_ends`.
"""

import cython

from biotrail.converters.match.ctypes_of import NULL, bint, free, int64, size_of, uint32, uint64
from biotrail.converters.match.doubt import (
    end,
    end_event,
    event_inherits,
    inherit,
    merge_flushes,
    merge_tags,
    open_event,
    share,
)
from biotrail.converters.match.families import forget_question, link_bios
from biotrail.converters.match.finder_ends import find_completed
from biotrail.converters.match.finder_requests import (
    find_absorbed,
    find_allocated,
    find_cloned,
    find_inserted,
    find_issued,
    find_merged,
    find_requeued,
    find_started,
)
from biotrail.converters.match.flights import (
    add_fresh,
    ending,
    exact,
    free_listed,
    move,
    new_flight,
    oldest_first,
    put_in,
    several,
    starting,
    take_out,
)
from biotrail.converters.match.lives import Bio, Device, Flight, Sender
from biotrail.converters.match.memory import allocate, device_of
from biotrail.converters.match.numbers import (
    BIO_COMPLETE,
    INTERVAL,
    LOW_32,
    RQ_MERGE,
    RQ_REMAP,
    SHARED,
    START,
    WAITING,
    A,
    C,
    D,
    F,
    G,
    I,
    M,
    Q,
    R,
    X,
)
from biotrail.converters.match.state import Machine
from biotrail.recorder.schema.records import NO_SECTOR


def find(m: Machine) -> bint:
    """Find what the event at hand is about; False: it says nothing without a pointer.

    Sets `bio`, `address` (of the request) and `other`, as pointers would be; `doubt`; what of a D
    or I the request serves besides its head, on `members`. What blktrace has one letter for
    becomes the event that it is: `kind` C a c, M or F an m.
    """
    kind: int64 = m.kind
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
        if m.sender_count:
            m.sent = take_sent(m)
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
        merge_tags(m, stop, True)
        merge_tags(m, stop, False)
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
    f.from_part = m.w6[m.row] >> 32
    f.queued = False
    send(m, f)
    m.bio = f.identity


def goes_on(m: Machine, f: Flight, from_dev: uint64, from_sector: uint64) -> bint:
    """Return whether an A sends on the bio that the thread's last event sent."""
    if f.sector != from_sector or f.queued:
        return False
    if f.from_part == from_dev:
        return True
    # By its disk: the device of both is that, and it is the same range there.
    if f.from_part != f.device.dev or f.device != m.device or f.op != m.op:
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


# --- Threads and what they sent


def send(m: Machine, f: Flight) -> None:
    """Note that an A, the thread's last event, sent a bio."""
    s: Sender = sender_of(m, m.tid)
    s.bio = f
    s.order = f.order


def take_sent(m: Machine) -> Flight:
    """Return the bio of the thread's last event, if that was an A, else NULL; and forget it."""
    s: Sender = sender_of(m, m.tid)
    f: Flight = s.bio
    s.bio = NULL
    return f if f and f.order == s.order else NULL


def sender_of(m: Machine, tid: uint32) -> Sender:
    """Return what is known of a thread."""
    key: uint64 = cython.cast(uint64, tid) + 1
    at: uint64 = (key * 0x9E3779B97F4A7C15) >> 32
    mask: uint64 = m.sender_room - 1
    old: Sender = m.senders
    size: int64 = m.sender_room
    place: int64
    if 2 * m.sender_count >= m.sender_room:
        m.sender_room = 256 if not size else 4 * size
        m.senders = cython.cast(Sender, allocate(m.sender_room, size_of(Sender)))
        m.sender_count = 0
        for place in range(size):
            if old[place].bio and old[place].bio.order == old[place].order:
                copy_sender(sender_of(m, old[place].tid - 1), cython.address(old[place]))
        free(old)
        mask = m.sender_room - 1
    at &= mask
    while m.senders[at].tid and m.senders[at].tid != key:
        at = (at + 1) & mask
    if not m.senders[at].tid:
        m.senders[at].tid = key
        m.sender_count += 1
    return cython.address(m.senders[at])


def copy_sender(s: Sender, old: Sender) -> None:
    """Keep what is known of a thread."""
    s.bio = old.bio
    s.order = old.order
