# SPDX-License-Identifier: Apache-2.0
"""Events of bios: Q, G, M, F, X, A and c."""

import cython

from biotrail.converters.match.doubt import add_ending
from biotrail.converters.match.families import (
    ask_for_split,
    ask_for_upper,
    find_page,
    join_list,
    link_bios,
    link_request,
    may_be_over,
    show_unrecorded,
    superseded,
)
from biotrail.converters.match.flights import attach, index_piece, index_queue
from biotrail.converters.match.generations import begins_bio, note_clone
from biotrail.converters.match.lives import *
from biotrail.converters.match.memory import (
    allocate,
    entry_of,
    linked,
    mention,
    new_bio,
    note,
)
from biotrail.converters.match.numbers import *
from biotrail.converters.match.requests import is_alone, never_queued, request_here
from biotrail.converters.match.state import Machine


def bio_here(m: Machine, address: uint64, role: int64, request: Request, slot: int64) -> Bio:
    """Return the bio that the event mentions as `role`, in the request that it names."""
    place: Entry = entry_of(m, m.bios, address, 0)
    old: Bio = cython.cast(Bio, place.what)
    b: Bio = old
    begins: bint = not old
    if old:
        if role == BIO_COMPLETE:  # of NVMe multipath, it comes just before the C of the request
            inside: bint = m.sector == old.told.sector and 0 < m.size <= old.told.size
            early: bint = old.told.kind == D and m.dev == old.told.dev and inside
            if m.is_early or (early and (m.opf & old.told.opf & m.by_path) != 0):
                role = EARLY_COMPLETE
        begins = begins_bio(m, old, role, request, slot)
    if begins:
        b = new_bio(m)
        b.address = address
        note(m, cython.address(b.born), role)
        b.slot = slot
        b.next = cython.cast(Life, b)
        if old:
            superseded(m, cython.cast(Life, old))
        place.what = b
        join_list(m, cython.cast(Life, b))
        if m.by_range:
            attach(m, cython.cast(Life, b), cython.cast(Life, old))
        if role == G or role == START or role == M or role == F:
            ask_for_split(m, b)
        elif role == D and slot == 0 and is_alone(m):
            ask_for_split(m, b)
        elif role == A and not old:
            note_clone(m)
    elif role == D and request and b.among and b.among != request:
        b.among.moved = linked(b, b.among.moved)  # maybe by an m that was lost
    if request:
        if b.among != request:
            link_request(b, request)
        if role == D or b.issue < 0:
            b.request = request
        if not b.early and b.issue < 0 and role != D and role != C:
            if role != I or request.issue.number < 0:
                b.early = request
    b.among = request
    b.doubt = max(b.doubt, m.doubt)
    note(m, cython.address(b.told), role)
    mention(m, cython.cast(Life, b))
    return b


def queued_now(m: Machine, address: uint64) -> None:
    """Note that the bio of an address is queued: no request that began before can have it."""
    entry_of(m, m.bios, address, 0).number = m.number


def on_queue(m: Machine) -> None:
    """Q: a bio enters the block layer, or goes on to a device below."""
    b: Bio = bio_here(m, m.bio, Q, NULL, 0)
    word: uint64 = m.w5[m.row]
    queued_now(m, m.bio)
    b.told_part = word & LOW_32
    if b.queue.number >= 0:
        return
    note(m, cython.address(b.queue), Q)
    b.part = word & LOW_32
    b.ioprio = (word >> 32) & 0xFFFF
    b.hint = (word >> 48) & 0xFF
    b.flags = word >> 56
    b.tid = m.high
    b.cgroup = m.w6[m.row]
    b.page = 0 if m.by_range else m.w7[m.row]
    b.cpu = m.cpus[m.row]
    b.stack = m.stacks[m.row] if m.stacks else NEVER
    b.file = m.files[m.row] if m.files else -1
    if b.device.is_indexed:
        index_queue(m, b)
    find_page(m, b)


def on_backing(m: Machine) -> None:
    """B: the bio of the Q before was queued for a request of a loop device."""
    b: Bio = cython.cast(Bio, entry_of(m, m.bios, m.w1[m.row], 0).what)
    r: Request = cython.cast(Request, entry_of(m, m.requests, m.w2[m.row], 0).what)
    if b and r and b.told.kind == Q and b.told.ts == m.ts:
        b.backing = r
        link_request(b, r)


def on_join(m: Machine) -> None:
    """G: a request is allocated for a bio. M, F: it joins the end, or the start, of one."""
    role: int64 = m.kind
    r: Request = NULL
    old: Request
    join: Join
    if not m.by_range:  # kernels up to 5.10 say which, but not of G
        m.address = 0 if role == G else m.w5[m.row]
    if m.address != 0 and role == G:
        r = request_here(m)
        if never_queued(m, r):
            return
    elif m.address != 0:
        join = cython.cast(Join, allocate(1, size_of(Join)))
        join.before.number = NEVER
        old = cython.cast(Request, entry_of(m, m.requests, m.address, 0).what)
        if old:
            if old.told.kind in (START, I, R, M, F, G):
                join.before = old.told
        r = request_here(m)
        if r.told.number == r.born.number:
            join.before.number = NEVER
        note(m, cython.address(join.at), role)
        if r.last_join:
            r.last_join.next = join
        else:
            r.joins = join
        r.last_join = join
        if never_queued(m, r):
            return
    if m.bio == 0:
        return
    b: Bio = bio_here(m, m.bio, role, r, 0)
    if role == G:
        queued_now(m, m.bio)
        if b.got.number < 0:
            note(m, cython.address(b.got), G)
        return
    note(m, cython.address(b.joined), role)
    if b.device.is_indexed:
        index_piece(m, b)
    if r:
        r.last_join.bio = b


def on_split(m: Machine) -> None:
    """X: a front piece, a bio of its own, is split off. dm reports what is left instead."""
    parent: uint64 = m.other if m.by_range else m.w5[m.row]
    if m.w6[m.row] == m.sector & LOW_32 and m.bio != 0:
        bio_here(m, m.bio, REST, NULL, 0)
        queued_now(m, m.bio)
        return
    if m.bio == 0:
        if parent:
            bio_here(m, parent, PARENT, NULL, 0)
        return
    front: Bio = bio_here(m, m.bio, X, NULL, 0)
    queued_now(m, m.bio)
    note(m, cython.address(front.front), X)
    if parent:
        b: Bio = bio_here(m, parent, PARENT, NULL, 0)
        front.parent = b
        if not b.first_front:
            b.first_front = front
        b.fronts_size += m.size
        link_bios(b, front)


def on_remap(m: Machine) -> None:
    """A: a bio goes from a partition to its disk, or a clone of one to a device below."""
    b: Bio = bio_here(m, m.bio, A, NULL, 0)
    queued_now(m, m.bio)
    note(m, cython.address(b.remap), A)
    b.told_part = m.w6[m.row] >> 32
    if b.born.number == m.number:
        ask_for_upper(m, b)


def on_bio_complete(m: Machine) -> None:
    """c: a bio ends without a request: on a bio-based device, or by an early failure."""
    b: Bio = bio_here(m, m.bio, BIO_COMPLETE, NULL, 0)
    if b.told.kind == EARLY_COMPLETE:
        return
    if b.ended.number < 0:
        note(m, cython.address(b.ended), BIO_COMPLETE)
    note(m, cython.address(b.last_ended), BIO_COMPLETE)
    if b.born.number == m.number:
        show_unrecorded(m)
    if m.doubt >= AMBIGUOUS:
        add_ending(m, cython.cast(Life, b))
    may_be_over(m, cython.cast(Life, b))
