# SPDX-License-Identifier: Apache-2.0
"""The machine's state: the event at hand, who lives where, and rows that are written."""

from typing import Any

import cython
import numpy as np

from biotrail.converters.match.bios import (
    bio_here,
    on_backing,
    on_bio_complete,
    on_join,
    on_queue,
    on_remap,
    on_split,
)
from biotrail.converters.match.doubt import free_tags
from biotrail.converters.match.families import close_rest, settle, show_open
from biotrail.converters.match.finder import end_search, find
from biotrail.converters.match.flights import free_device
from biotrail.converters.match.lives import *
from biotrail.converters.match.memory import (
    add_loss,
    device_of,
    free_table,
    new_table,
    resized,
)
from biotrail.converters.match.numbers import *
from biotrail.converters.match.requests import (
    on_chain,
    on_clone,
    on_complete,
    on_done,
    on_issue,
    on_request,
    on_requeue_or_error,
)

BATCH = 1024
"""Events between two looks at what is over."""
TAKE = 0
SETTLE = 1
CLOSE = 2
SHOW_OPEN = 3
LOSE = 4
MAKE_DEVICE = 5
MAKE_TABLES = 6
"""Tasks of `attempt`: the parts of the machine's methods that allocate."""


@cython.cclass
class Machine:
    """Takes the events of a log in order of time; gives the rows of families that are over."""

    # The event at hand.
    w0: words
    w1: words
    w2: words
    w3: words
    w4: words
    w5: words
    w6: words
    w7: words
    cpus: cython.pointer(uint16)
    stacks: cython.pointer(int64)
    files: cython.pointer(int32)
    used: cython.pointer(uint8)  # per event, whether it names a bio or request
    row: int64
    number: int64
    ts: int64
    kind: int64
    address: uint64  # of the request, in request events
    bio: uint64  # bio, or head of the request's chain
    sector: uint64
    size: int64
    end: uint64  # sector behind its range
    opf: uint32
    dev: uint32
    high: uint32  # upper half of the word with dev: tid, tags or status
    device: Device
    # Who lives where.
    bios: Table  # by address: the bio, and the number of the last Q, A, X or G there
    requests: Table  # by address
    clones: Table  # by source device + 1 and sector: the last A from there
    pages: Table  # by first page: the bio above a loop device's file
    first_device: Device
    free_bios: Pooled
    free_requests: Pooled
    free_mentions: Pooled
    blocks: cython.pointer(cython.p_void)
    block_count: int64
    first_due: Life
    last_due: Life
    settle_ns: int64  # how long late events may come
    cut_chains: bint
    # The log's facts.
    on: cython.uchar[128]
    zone_append: int64
    discard: int64
    write: int64
    flush: int64
    passthrough: uint64  # a bit for each such operation
    by_path: uint32
    preflush: uint32
    fua: uint32
    counts_losses: bint
    has_stacks: bint  # some device stands on another
    notes_events: bint  # which events name which life is kept, too
    tells_events: bint  # … and told of all, not of the recording's own alone
    tells_lives: bint  # whose each address was, and when
    # What questions are about.
    asked_bios: cython.pointer(Bio)
    asked: int64
    asked_room: int64
    free_spots: Pooled
    # What the finder has, in logs without pointers.
    by_range: bint
    bios_end_by_c: bint
    records_bios: bint
    from_sector: uint64  # of the event; a flush request's is 0
    to_sector: uint64
    op: int64
    tid: uint32
    other: uint64  # who was split, or absorbs
    doubt: int64  # of the event, as a certainty
    exchange: Exchange
    ending: Ending
    is_early: bint
    sent: Flight
    members: cython.pointer(uint64)
    member_count: int64
    member_room: int64
    pile: cython.pointer(Flight)
    found: int64
    found_room: int64
    orders: int64  # of ranges so far
    listed: Flight
    free_flights: Pooled
    given_up: cython.pointer(uint64)
    given_up_count: int64
    given_up_room: int64
    senders: Table  # by tid + 1: the bio of its last event, if that was an A, as of that `order`
    tags: Table  # by device + 1 and key
    losses: cython.pointer(int64)  # ends of losses that are still to come, in order
    loss_count: int64
    loss_room: int64
    next_loss: int64
    lost_at: int64
    pair_count: int64
    pair_same: int64
    pair_most: int64
    pair_spans: int64[64]
    # Rows.
    rows_of: cython.p_void[7]  # by table
    row_size: int64[7]
    room: int64[7]
    made: int64[7]
    dtypes: object
    bound: int64[6]
    stage_of: int64[5]
    # The family that is being closed, in order.
    family_bios: cython.pointer(Bio)
    family_requests: cython.pointer(Request)
    family_room: int64
    bios_of: int64
    requests_of: int64
    round: int64  # of showing what is open
    saved: cython.p_void  # the family as it was
    saved_room: int64
    ran_out: bint  # of memory: a task was given up halfway, and nothing more can be asked

    def __cinit__(self, facts: Any) -> None:
        """facts: what the log's header says, by name; see `tables.Matcher`."""
        at: int64
        mask: bytes = facts["mask"]
        for at in range(len(mask)):
            self.on[at] = mask[at]
        self.zone_append = facts["zone_append"]
        self.discard = facts["discard"]
        self.write = facts["write"]
        self.flush = facts["flush"]
        self.passthrough = facts["passthrough"]
        self.by_path = facts["by_path"]
        self.preflush = facts["preflush"]
        self.fua = facts["fua"]
        self.counts_losses = facts["counts_losses"]
        self.notes_events = facts["notes_events"]
        self.tells_events = facts["tells_events"]
        self.tells_lives = facts["tells_lives"]
        self.by_range = facts["by_intervals"]
        self.bios_end_by_c = facts["bios_end_by_c"]
        self.records_bios = facts["records_bios"]
        self.lost_at = NEVER
        attempt(self, MAKE_TABLES, 0, 0)
        self.device = NULL
        self.dtypes = facts["dtypes"]
        for at in range(TABLES):
            self.row_size[at] = self.dtypes[at].itemsize

    def __dealloc__(self) -> None:
        """Give all memory back; of a task that was given up, only what stands in no list."""
        at: int64
        device: Device
        while self.first_device and not self.ran_out:
            device = self.first_device
            self.first_device = device.next
            free_device(device)
        if not self.ran_out:
            free_tags(self)
        free(self.members)
        free(self.given_up)
        free(self.losses)
        free(self.pile)
        free(self.asked_bios)
        for at in range(self.block_count):
            free(self.blocks[at])
        free(self.blocks)
        free_table(self.bios)
        free_table(self.requests)
        free_table(self.clones)
        free_table(self.pages)
        free_table(self.senders)
        free_table(self.tags)
        for at in range(TABLES):
            free(self.rows_of[at])
        free(self.family_bios)
        free(self.family_requests)
        free(self.saved)

    def know(self, devices: Any) -> None:
        """Take in what is known of devices, by dev_t.

        (disks directly below it; a partition's disk and first sector, NEVER if there is none;
        whether it is an md array with parity; whether it makes requests; whether it has one
        hardware queue).
        """
        device: Device
        at: int64
        for dev, (lower, disk, start, parity, makes_requests, one_queue) in devices.items():
            attempt(self, MAKE_DEVICE, dev, len(lower))
            device = device_of(self, dev)
            for at in range(device.lower_count):
                device.lower[at] = lower[at]
            device.disk = disk
            device.start = start
            self.has_stacks = self.has_stacks or device.lower_count > 0
            device.parity = parity
            device.one_queue = one_queue
            if makes_requests:
                device.requests_since = NEVER

    def take(self, events: Any, settle_ns: int64) -> Any:
        """Take in events that are later than all before, and write the rows of what is over.

        Return per event, as uint8, whether it names a bio or request. events: `Events`, whose
        `number` ascends by 1. settle_ns: how long a family that is over waits for late events.
        """
        words: Any = events.raw.T
        if words.strides[1] != words.itemsize:
            words = np.ascontiguousarray(words)
        raw: cython.ulonglong[:, :] = words
        named: Any = np.zeros(len(events), np.uint8)
        used: cython.uchar[::1] = named
        cpu: cython.ushort[::1] = np.ascontiguousarray(events.cpu)
        stack: cython.longlong[::1]
        file: cython.int[::1]
        count: int64 = raw.shape[1]
        self.settle_ns = settle_ns
        if count == 0:
            return named
        self.number = events.number[0]
        self.used = cython.address(used[0])
        self.w0 = cython.address(raw[0, 0])
        self.w1 = cython.address(raw[1, 0])
        self.w2 = cython.address(raw[2, 0])
        self.w3 = cython.address(raw[3, 0])
        self.w4 = cython.address(raw[4, 0])
        self.w5 = cython.address(raw[5, 0])
        self.w6 = cython.address(raw[6, 0])
        self.w7 = cython.address(raw[7, 0])
        self.cpus = cython.address(cpu[0])
        self.stacks = NULL
        self.files = NULL
        if events.stack is not None:
            stack = np.ascontiguousarray(events.stack)
            self.stacks = cython.address(stack[0])
        if events.file is not None:
            file = np.ascontiguousarray(events.file)
            self.files = cython.address(file[0])
        attempt(self, TAKE, count, settle_ns)
        self.used = NULL
        return named

    def lose(self, ends: Any) -> None:
        """Take in until when records were lost (ns), of losses not told before."""
        for ts in ends:
            attempt(self, LOSE, ts, 0)

    def pairing(self) -> tuple[int, int, int, list[int]]:
        """Return how many flushes could have ended by several completions.

        And of these in groups that ended at one time; the longest time between the first and
        the last of a group (ns); how many by the bit length of that time.
        """
        spans = [self.pair_spans[at] for at in range(64)]
        return self.pair_count, self.pair_same, self.pair_most, spans

    def settle(self, before: int64) -> None:
        """Write the rows of families that were over before a time (ns)."""
        attempt(self, SETTLE, before, 0)

    def close(self) -> None:
        """Write the rows of all that is left: the log is over."""
        attempt(self, CLOSE, 0, 0)

    def show_open(self) -> None:
        """Write rows of bios and requests that are not closed, as far as they are known."""
        attempt(self, SHOW_OPEN, 0, 0)

    def open_since(self, of_bios: bint) -> int:
        """Return when the first bio, or request, began that is not closed (ns); -1: none is."""
        device: Device = self.first_device
        found: int64 = NEVER
        life: Life
        while device:
            life = cython.cast(Life, device.first_request)
            if of_bios:
                life = cython.cast(Life, device.first_bio)
            while life:
                if found < 0 or life.born.ts < found:
                    found = life.born.ts
                life = life.later
            device = device.next
        return found

    def device_counts(self) -> dict[tuple[int, int], int]:
        """Return the number of events since the last call, by disk (dev_t) and kind."""
        counts: dict[tuple[int, int], int] = {}
        device: Device = self.first_device
        kind: int64
        while device:
            for kind in range(32):
                if device.counts[kind]:
                    counts[device.dev, kind] = device.counts[kind]
                    device.counts[kind] = 0
            device = device.next
        return counts

    def rows(self, table: int64) -> Any:
        """Return a table's rows since the last call: an array in its dtype."""
        size: int64 = self.made[table] * self.row_size[table]
        found: Any = np.empty(size, np.uint8)
        view: cython.uchar[::1]
        if size:
            view = found
            memcpy(cython.address(view[0]), self.rows_of[table], size)
        self.made[table] = 0
        return found.view(self.dtypes[table])


@cython.cfunc
@cython.exceptval(-1)
def attempt(m: Machine, task: int64, one: int64, other: int64) -> cython.int:
    """Do a task; raise MemoryError if there is not enough memory for it.

    MAKE_DEVICE: have a device, with room for so many disks below it.
    """
    device: Device
    # What is between has no objects of Python's, so nothing is lost when it is left at once.
    if m.ran_out or begin_task():
        m.ran_out = True
        raise MemoryError
    if task == TAKE:
        take_rows(m, one, other)
    elif task == SETTLE:
        settle(m, one, True)
    elif task == CLOSE:
        close_rest(m)
    elif task == SHOW_OPEN:
        show_open(m)
    elif task == LOSE:
        add_loss(m, one)
    elif task == MAKE_DEVICE:
        device = device_of(m, one)
        if other > device.lower_count:
            device.lower = cython.cast(
                words, resized(device.lower, other * cython.sizeof(cython.ulonglong))
            )
        device.lower_count = other
    else:
        m.bios, m.requests, m.clones = new_table(), new_table(), new_table()
        m.pages, m.senders, m.tags = new_table(), new_table(), new_table()
    return 0


@cython.cfunc
# --- The event at hand, and the handler of its kind


def take_rows(m: Machine, count: int64, settle_ns: int64) -> None:
    """Take in a window's events, of which the first one's number is at hand."""
    first: int64 = m.number
    row: int64
    for row in range(count):
        m.row = row
        m.number = first + row
        step(m)
        if row % BATCH == BATCH - 1:  # what is over leaves the caches' lines to others
            settle(m, m.ts - settle_ns, False)


def step(m: Machine) -> None:
    word: uint64 = m.w0[m.row]
    kind: int64 = word >> 56
    m.kind = kind
    m.ts = word & TIME_BITS
    if kind == Q or (G <= kind <= BIO_COMPLETE):
        m.bio = m.w1[m.row]
        read_range(m, m.w2[m.row], m.w3[m.row], m.w4[m.row])
    elif (START <= kind <= E and kind != CHAIN) or kind == RQ_REMAP:
        m.address = m.w1[m.row]
        m.bio = m.w2[m.row]
        read_range(m, m.w3[m.row], m.w4[m.row], m.w5[m.row])
    elif kind == P or kind == U:
        to_device(m, m.w1[m.row] & LOW_32)
        return
    elif kind == DONE:
        to_device(m, m.w2[m.row] & LOW_32)
    elif kind != CHAIN and kind != BACKING:
        return
    if m.by_range:
        if kind == CHAIN or kind == E or kind == DONE or kind == BACKING:
            return  # without a pointer it says nothing
        while m.next_loss < m.loss_count and m.losses[m.next_loss] <= m.ts:
            m.lost_at = max(m.lost_at, m.losses[m.next_loss])
            m.next_loss += 1
        if find(m):
            handle(m)
        end_search(m)
    elif kind == CHAIN:
        on_chain(m)
    elif kind == DONE:
        on_done(m)
    elif kind == BACKING:
        on_backing(m)
    elif START <= kind <= E or kind == RQ_REMAP:
        if m.address != 0:
            handle(m)
        elif m.bio != 0 and kind != R and kind != E:
            bio_here(m, m.bio, kind, NULL, 0)
    elif m.bio != 0 or kind == M or kind == F or kind == X:
        handle(m)


def handle(m: Machine) -> None:
    kind: int64 = m.kind
    if kind == Q:
        on_queue(m)
    elif kind == D:
        on_issue(m)
    elif kind == C:
        on_complete(m)
    elif kind == G or kind == M or kind == F:
        on_join(m)
    elif kind == A:
        on_remap(m)
    elif kind == BIO_COMPLETE:
        on_bio_complete(m)
    elif kind == X:
        on_split(m)
    elif kind == RQ_REMAP:
        on_clone(m)
    elif kind == R or kind == E:
        on_requeue_or_error(m)
    else:
        on_request(m)


def read_range(m: Machine, sector: uint64, size_and_opf: uint64, dev_and_more: uint64) -> None:
    m.sector = sector
    m.size = size_and_opf & LOW_32
    m.opf = size_and_opf >> 32
    m.high = dev_and_more >> 32
    m.end = sector + cython.cast(uint64, m.size >> 9)
    to_device(m, dev_and_more & LOW_32)


def to_device(m: Machine, dev: uint64) -> None:
    m.dev = dev
    if not m.device or m.device.dev != dev:
        m.device = device_of(m, dev)
    m.device.counts[m.kind] += 1
