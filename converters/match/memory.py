# SPDX-License-Identifier: Apache-2.0
"""Memory: lives in blocks, places by address, small tables by two keys, lists."""

import cython

from biotrail.converters.match.doubt import free_endings
from biotrail.converters.match.flights import forget_flight
from biotrail.converters.match.lives import *
from biotrail.converters.match.numbers import *
from biotrail.converters.match.state import Machine

BLOCK = 256
"""Lives that are allocated together."""
FEWEST = 1024
SPREAD_ONE = 0x1E3779B97F4A7C15
SPREAD_TWO = 0x42B2AE3D27D4EB4F


def allocate(count: int64, size: int64) -> cython.p_void:
    """Return zeroed memory."""
    found: cython.p_void = calloc(count, size)
    if not found:
        give_task_up()
    return found


def resized(old: cython.p_void, size: int64) -> cython.p_void:
    found: cython.p_void = realloc(old, size)
    if not found:
        give_task_up()
    return found


def add_block(m: Machine, count: int64, size: int64) -> cython.p_void:
    """Return zeroed memory that lasts as long as the machine."""
    if m.block_count & 1023 == 0:
        m.blocks = cython.cast(
            cython.pointer(cython.p_void),
            resized(m.blocks, (m.block_count + 1024) * cython.sizeof(cython.p_void)),
        )
    m.blocks[m.block_count] = allocate(count, size)
    m.block_count += 1
    return m.blocks[m.block_count - 1]


def from_pool(m: Machine, pool: cython.pointer(Pooled), size: int64) -> cython.p_void:
    """Return zeroed memory for one that `into_pool` gives back; larger pools are made in blocks."""
    one: Pooled
    block: cython.pointer(uint8)
    at: int64
    if not pool[0]:
        block = cython.cast(cython.pointer(uint8), add_block(m, BLOCK, size))
        for at in range(BLOCK):
            into_pool(pool, cython.cast(Pooled, cython.address(block[at * size])))
    one = pool[0]
    pool[0] = one.next_free
    memset(one, 0, size)
    return one


def into_pool(pool: cython.pointer(Pooled), one: Pooled) -> None:
    one.next_free = pool[0]
    pool[0] = one


def new_bio(m: Machine) -> Bio:
    b: Bio = cython.cast(Bio, from_pool(m, cython.address(m.free_bios), size_of(Bio)))
    b.is_bio = True
    b.again = NEVER
    b.members = 1
    b.queue.number = b.front.number = b.remap.number = b.got.number = NEVER
    b.start.number = b.joined.number = b.ended.number = b.last_ended.number = NEVER
    b.issue = NEVER
    b.end = NEVER
    return b


def new_request(m: Machine) -> Request:
    r: Request
    r = cython.cast(Request, from_pool(m, cython.address(m.free_requests), size_of(Request)))
    r.again = NEVER
    r.members = 1
    r.start.number = r.insert.number = r.issue.number = r.last_issue.number = NEVER
    r.complete.number = r.last_requeue.number = r.merged.number = NEVER
    r.data_end = r.first_complete = r.requeue = r.implied = r.begun = NEVER
    return r


def free_life(m: Machine, life: Life) -> None:
    """Give back a bio or request that is closed, but not while it is in the queue."""
    one: Mention
    while life.mentions:
        one = life.mentions
        life.mentions = one.next
        into_pool(cython.address(m.free_mentions), cython.cast(Pooled, one))
    life.last_mention = NULL
    if life.is_due:
        return
    if life.is_bio:
        into_pool(cython.address(m.free_bios), cython.cast(Pooled, life))
    else:
        into_pool(cython.address(m.free_requests), cython.cast(Pooled, life))


def free_bio(m: Machine, b: Bio) -> None:
    free_list(cython.cast(Pooled, b.candidates))
    free_list(cython.cast(Pooled, b.chains))
    free_endings(cython.cast(Life, b))
    forget_flight(cython.cast(Life, b))
    b.closed = True
    free_life(m, cython.cast(Life, b))


def free_request(m: Machine, r: Request) -> None:
    one: Step = r.first_step
    while one:
        free_list(cython.cast(Pooled, one.chain))
        one = one.next
    free_list(cython.cast(Pooled, r.first_step))
    free_list(cython.cast(Pooled, r.first_chain))
    free_list(cython.cast(Pooled, r.moved))
    free_list(cython.cast(Pooled, r.joins))
    free_endings(cython.cast(Life, r))
    forget_flight(cython.cast(Life, r))
    r.closed = True
    free_life(m, cython.cast(Life, r))


def mention(m: Machine, life: Life) -> None:
    """Note that the event at hand names a life."""
    m.used[m.row] = 1
    if m.notes_events:
        add_mention(m, life, m.number, (m.kind << 32) | m.dev)


def add_mention(m: Machine, life: Life, number: int64, what: int64) -> None:
    last: Mention = life.last_mention
    if not last or last.count == MENTIONED:
        last = cython.cast(Mention, from_pool(m, cython.address(m.free_mentions), size_of(Mention)))
        if life.last_mention:
            life.last_mention.next = last
        else:
            life.mentions = last
        life.last_mention = last
    last.number[last.count] = number
    last.what[last.count] = what
    last.count += 1


def move_mentions(m: Machine, old: Life, new: Life, since: int64) -> None:
    """Have events from a number on name another life."""
    one: Mention = old.mentions
    at: int64
    left: int64
    while one:
        left = 0
        for at in range(one.count):
            if one.number[at] >= since:
                add_mention(m, new, one.number[at], one.what[at])
            else:
                one.number[left] = one.number[at]
                one.what[left] = one.what[at]
                left += 1
        one.count = left
        one = one.next


def free_list(first: Pooled) -> None:
    one: Pooled
    while first:
        one = first
        first = one.next_free
        free(one)


def forget_joins(r: Request) -> None:
    free_list(cython.cast(Pooled, r.joins))
    r.joins = r.last_join = NULL


def linked(bio: Bio, rest: Link) -> Link:
    """Return a list with one more bio in front."""
    link: Link = cython.cast(Link, allocate(1, size_of(Link)))
    link.bio = bio
    link.next = rest
    return link


# --- What the finder remembers in arrays


def grown(array: cython.p_void, count: int64, room: cython.pointer(int64)) -> cython.p_void:
    """Return an array, of pointers or numbers of 64 bits, with room for one more."""
    if count < room[0]:
        return array
    room[0] = max(64, 2 * room[0])
    return resized(array, room[0] * cython.sizeof(cython.ulonglong))


def add_member(m: Machine, identity: uint64) -> None:
    """Note a bio, besides the head, of the request that the event begins."""
    m.members = cython.cast(
        cython.pointer(uint64), grown(m.members, m.member_count, cython.address(m.member_room))
    )
    m.members[m.member_count] = identity
    m.member_count += 1


def add_identity(m: Machine, identity: uint64) -> None:
    """Note that an identity is free: its request ended, and no completion was recorded."""
    m.given_up = cython.cast(
        cython.pointer(uint64),
        grown(m.given_up, m.given_up_count, cython.address(m.given_up_room)),
    )
    m.given_up[m.given_up_count] = identity
    m.given_up_count += 1


def add_loss(m: Machine, ts: int64) -> None:
    """Note until when records were lost; losses that are still to come stand in order of time."""
    at: int64
    m.losses = cython.cast(
        cython.pointer(int64), grown(m.losses, m.loss_count, cython.address(m.loss_room))
    )
    at = m.loss_count
    m.loss_count += 1
    while at > m.next_loss and m.losses[at - 1] > ts:
        m.losses[at] = m.losses[at - 1]
        at -= 1
    m.losses[at] = ts


# --- Tables by two keys: who lives at an address, and so on


def make_tables(m: Machine) -> None:
    m.bios, m.requests, m.clones = new_table(), new_table(), new_table()
    m.pages, m.senders, m.tags = new_table(), new_table(), new_table()


def new_table() -> Table:
    t: Table = cython.cast(Table, allocate(1, size_of(Table)))
    t.entries = cython.cast(Entry, allocate(FEWEST, size_of(Entry)))
    t.mask = FEWEST - 1
    return t


def free_table(t: Table) -> None:
    if t:
        free(t.entries)
        free(t)


def entry_in(t: Table, one: uint64, two: uint64) -> Entry:
    """Return the entry of two keys, of which the first is not 0; of a new one it is 0."""
    # Addresses follow each other at even distances, in several arrays at once.
    at: uint64 = ((one * SPREAD_ONE ^ two * SPREAD_TWO) >> 24) & t.mask
    while t.entries[at].one and (t.entries[at].one != one or t.entries[at].two != two):
        at = (at + 1) & t.mask
    return cython.address(t.entries[at])


def entry_of(m: Machine, t: Table, one: uint64, two: uint64) -> Entry:
    """Return the entry of two keys, of which the first is not 0; it is made if there is none."""
    found: Entry = entry_in(t, one, two)
    if found.one == 0:
        if 2 * t.count > cython.cast(int64, t.mask):
            grow_table(m, t)
            found = entry_in(t, one, two)
        found.one = one
        found.two = two
        found.number = NEVER
        t.count += 1
    return found


def grow_table(m: Machine, t: Table) -> None:
    """Make a table anew, without entries that nothing can ask for; larger if needed.

    No event before the first one of what is open is asked for.
    """
    since: int64 = FOREVER
    device: Device = m.first_device
    # The finder's identities are not used again once nothing lives there.
    while device and not (m.by_range and t == m.bios):
        if device.first_bio:
            since = min(since, device.first_bio.born.number)
        if device.first_request:
            since = min(since, device.first_request.born.number)
        device = device.next
    old: Entry = t.entries
    room: uint64 = t.mask + 1
    at: uint64
    t.count = 0
    for at in range(room):
        if old[at].one and (old[at].what or old[at].number >= since):
            t.count += 1
    while cython.cast(uint64, 4 * t.count) > t.mask + 1:
        t.mask = 2 * t.mask + 1
    t.entries = cython.cast(Entry, allocate(t.mask + 1, size_of(Entry)))
    for at in range(room):
        if old[at].one and (old[at].what or old[at].number >= since):
            entry_in(t, old[at].one, old[at].two)[0] = old[at]
    free(old)


# --- Devices


def add_device(m: Machine, dev: uint64) -> Device:
    device: Device = cython.cast(Device, allocate(1, size_of(Device)))
    device.dev = dev
    device.requests_since = FOREVER
    device.merged_last = NEVER
    device.disk = NEVER
    device.next = m.first_device
    m.first_device = device
    return device


def make_device(m: Machine, dev: uint64, lower: int64) -> None:
    """Have a device, with room for the disks below it."""
    device: Device = device_of(m, dev)
    if lower > device.lower_count:
        device.lower = cython.cast(
            words, resized(device.lower, lower * cython.sizeof(cython.ulonglong))
        )
    device.lower_count = lower


def device_of(m: Machine, dev: uint64) -> Device:
    device: Device = m.first_device
    while device and device.dev != dev:
        device = device.next
    return device if device else add_device(m, dev)


# --- Notes


def note(m: Machine, at: At, role: int64) -> None:
    """Remember the event at hand."""
    at.number = m.number
    at.ts = m.ts
    at.sector = m.sector
    at.size = m.size
    at.opf = m.opf
    at.dev = m.dev
    at.status = cython.cast(cython.int, m.high)
    at.kind = role


def end_of(at: At) -> uint64:
    """Return the sector behind an event's range."""
    return at.sector + cython.cast(uint64, at.size >> 9)


def time_of(at: At) -> int64:
    """Return the time of an event; NEVER if there was none."""
    return at.ts if at.number >= 0 else NEVER
