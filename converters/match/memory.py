# SPDX-License-Identifier: Apache-2.0
"""Memory: lives in blocks, places by address, small tables by two keys, lists."""

import cython

from biotrail.converters.match.ctypes_of import (
    NULL,
    bint,
    calloc,
    free,
    give_task_up,
    int64,
    memset,
    realloc,
    size_of,
    uint8,
    uint64,
    words,
)
from biotrail.converters.match.doubt import free_endings
from biotrail.converters.match.flights import forget_flight
from biotrail.converters.match.lives import (
    At,
    Bio,
    Device,
    Entry,
    Join,
    Life,
    Link,
    Mention,
    Named,
    Offer,
    Place,
    Pooled,
    Request,
    Step,
)
from biotrail.converters.match.numbers import FOREVER, MENTIONED, NEVER
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
    offer: Offer
    free_links(b.candidates)
    free_endings(cython.cast(Life, b))
    forget_flight(cython.cast(Life, b))
    while b.chains:
        offer = b.chains
        b.chains = offer.next
        free(offer)
    b.closed = True
    free_life(m, cython.cast(Life, b))


def free_request(m: Machine, r: Request) -> None:
    one: Step
    free_links(r.moved)
    forget_joins(r)
    free_endings(cython.cast(Life, r))
    forget_flight(cython.cast(Life, r))
    free_names(r.first_chain)
    while r.first_step:
        one = r.first_step
        r.first_step = one.next
        free_names(one.chain)
        free(one)
    r.closed = True
    free_life(m, cython.cast(Life, r))


def forget_joins(r: Request) -> None:
    join: Join
    while r.joins:
        join = r.joins
        r.joins = join.next
        free(join)
    r.last_join = NULL


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


def free_links(first: Link) -> None:
    link: Link
    while first:
        link = first
        first = link.next
        free(link)


def free_names(first: Named) -> None:
    name: Named
    while first:
        name = first
        first = name.next
        free(name)


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


# --- Places


def place_of(places: Place, mask: uint64, address: uint64) -> Place:
    """Return the place of an address; a new one's address is 0."""
    # Addresses follow each other at even distances, in several arrays at once.
    at: uint64 = ((address * SPREAD_ONE) >> 24) & mask
    while places[at].address != address and places[at].address != 0:
        at = (at + 1) & mask
    return cython.address(places[at])


def bio_place(m: Machine, address: uint64) -> Place:
    found: Place = place_of(m.bios, m.bio_mask, address)
    if found.address == 0:
        if 2 * m.bio_count > cython.cast(int64, m.bio_mask):
            grow_places(m, True)
            found = place_of(m.bios, m.bio_mask, address)
        found.address = address
        found.queued = NEVER
        m.bio_count += 1
    return found


def request_place(m: Machine, address: uint64) -> Place:
    found: Place = place_of(m.requests, m.request_mask, address)
    if found.address == 0:
        if 2 * m.request_count > cython.cast(int64, m.request_mask):
            grow_places(m, False)
            found = place_of(m.requests, m.request_mask, address)
        found.address = address
        m.request_count += 1
    return found


def make_places(m: Machine) -> None:
    m.bios = cython.cast(Place, allocate(FEWEST, size_of(Place)))
    m.requests = cython.cast(Place, allocate(FEWEST, size_of(Place)))
    m.bio_mask = m.request_mask = FEWEST - 1


def oldest_open(m: Machine) -> int64:
    """Return the number of the first event of the oldest life that is not closed; FOREVER: none."""
    found: int64 = FOREVER
    device: Device = m.first_device
    while device:
        if device.first_bio:
            found = min(found, device.first_bio.born.number)
        if device.first_request:
            found = min(found, device.first_request.born.number)
        device = device.next
    return found


def grow_places(m: Machine, of_bios: bint) -> None:
    """Make a table of addresses anew, without those that nothing can ask for; larger if needed."""
    old: Place = m.bios if of_bios else m.requests
    mask: uint64 = m.bio_mask if of_bios else m.request_mask
    # The finder's identities are not used again once nothing lives there.
    since: int64 = FOREVER if m.by_range else oldest_open(m)
    count: int64 = 0
    at: uint64
    for at in range(mask + 1):
        if old[at].address and (old[at].life or old[at].queued > since):
            count += 1
    size: uint64 = mask + 1
    while cython.cast(uint64, 4 * count) > size:
        size *= 2
    new: Place = cython.cast(Place, allocate(size, size_of(Place)))
    place: Place
    for at in range(mask + 1):
        if old[at].address and (old[at].life or old[at].queued > since):
            place = place_of(new, size - 1, old[at].address)
            place[0] = old[at]
            if place.life:
                place.life.place = place
    free(old)
    if of_bios:
        m.bios = new
        m.bio_mask = size - 1
        m.bio_count = count
    else:
        m.requests = new
        m.request_mask = size - 1
        m.request_count = count


# --- Tables by two keys


def make_entries(m: Machine) -> None:
    """Make the tables of clones by their source, and of bios by their first page."""
    m.clones = cython.cast(Entry, allocate(FEWEST, size_of(Entry)))
    m.pages = cython.cast(Entry, allocate(FEWEST, size_of(Entry)))
    m.clone_mask = m.page_mask = FEWEST - 1


def entry_of(entries: Entry, mask: uint64, one: uint64, two: uint64) -> Entry:
    """Return the entry of two keys, of which the first is not 0; a new one's first key is 0."""
    at: uint64 = (one * SPREAD_ONE ^ two * SPREAD_TWO) >> 20
    at &= mask
    while entries[at].one and (entries[at].one != one or entries[at].two != two):
        at = (at + 1) & mask
    return cython.address(entries[at])


def clone_entry(m: Machine, dev: uint64, sector: uint64) -> Entry:
    """Return the entry of clones from a sector of a device."""
    found: Entry = entry_of(m.clones, m.clone_mask, dev + 1, sector)
    if not found.one:
        if 2 * m.clone_count > cython.cast(int64, m.clone_mask):
            m.clones = grown_entries(
                m.clones,
                cython.address(m.clone_mask),
                cython.address(m.clone_count),
                oldest_open(m),
            )
            found = entry_of(m.clones, m.clone_mask, dev + 1, sector)
        found.one = dev + 1
        found.two = sector
        found.number = NEVER
        m.clone_count += 1
    return found


def page_entry(m: Machine, page: uint64) -> Entry:
    found: Entry = entry_of(m.pages, m.page_mask, page, 0)
    if not found.one:
        if 2 * m.page_count > cython.cast(int64, m.page_mask):
            m.pages = grown_entries(
                m.pages, cython.address(m.page_mask), cython.address(m.page_count), FOREVER
            )
            found = entry_of(m.pages, m.page_mask, page, 0)
        found.one = page
        m.page_count += 1
    return found


def grown_entries(
    old: Entry,
    mask: cython.pointer(uint64),
    count: cython.pointer(int64),
    since: int64,
) -> Entry:
    """Return a table anew, of entries with a bio or a number from `since` on; larger if needed."""
    kept: int64 = 0
    at: uint64
    for at in range(mask[0] + 1):
        if old[at].one and (old[at].bio or old[at].number >= since):
            kept += 1
    size: uint64 = mask[0] + 1
    while cython.cast(uint64, 4 * kept) > size:
        size *= 2
    new: Entry = cython.cast(Entry, allocate(size, size_of(Entry)))
    entry: Entry
    for at in range(mask[0] + 1):
        if old[at].one and (old[at].bio or old[at].number >= since):
            entry = entry_of(new, size - 1, old[at].one, old[at].two)
            entry[0] = old[at]
    free(old)
    mask[0] = size - 1
    count[0] = kept
    return new


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
