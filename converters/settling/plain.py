# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""One pass over a window's events that finds the plain lives of bios and requests.

Compiled by Cython where a compiler was there at installation; the same file runs uncompiled, for
tests. A life is plain if its events are those of the ordinary course, each where it is due and
with the values that the ones before make certain: Q, fronts of X, G or s, M or F, I, D with its
whole chain, one good C. On a device without requests they are Q and c, with the A of the bio's
clones in between. Nothing here decides what odd events mean: the families of all other lives go to
the column model (`converters.association`), which is the authority. No state is kept between
windows.

Numbers and addresses are int64 here: the bits are those of the records' unsigned words.
"""

import cython

COMPILED = cython.compiled
"""Whether this runs compiled; uncompiled it takes microseconds for an event."""

LOW_32 = cython.declare(cython.longlong, 0xFFFFFFFF)
LOW_40 = cython.declare(cython.longlong, 0xFFFFFFFFFF)
TIME_MASK = cython.declare(cython.longlong, 0xFFFFFFFFFFFFFF)
LOW_63 = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
TOP_BIT = cython.declare(cython.longlong, ~LOW_63)  # written out, C has no such literal

# The kinds of recorder.schema.records.Kind that are looked at.
_Q = cython.declare(cython.int, 1)
_G = cython.declare(cython.int, 2)
_M = cython.declare(cython.int, 3)
_F = cython.declare(cython.int, 4)
_X = cython.declare(cython.int, 5)
_A = cython.declare(cython.int, 6)
_BIO_COMPLETE = cython.declare(cython.int, 7)
_START = cython.declare(cython.int, 8)
_I = cython.declare(cython.int, 9)
_D = cython.declare(cython.int, 12)
_CHAIN = cython.declare(cython.int, 13)
_C = cython.declare(cython.int, 14)
_DONE = cython.declare(cython.int, 16)
_RQ_REMAP = cython.declare(cython.int, 19)

# How far a life has come, in this order.
REMAPPED = cython.declare(cython.longlong, -1)
QUEUED = cython.declare(cython.longlong, 0)
GOT = cython.declare(cython.longlong, 1)
JOINED = cython.declare(cython.longlong, 2)
STARTED = cython.declare(cython.longlong, 3)
ISSUED = cython.declare(cython.longlong, 4)
DATA_DONE = cython.declare(cython.longlong, 5)  # of a flush sequence: its end is to come
ENDED = cython.declare(cython.longlong, 6)

# Why a life is not settled. HELD: it is plain and over, but so near the window's end that the next
# window has to see its family again. NEEDED: the column model needs it to judge others, as the one
# that follows an odd life at its address; it makes its own family NEEDED, but not its successor.
HELD = cython.declare(cython.longlong, 1)
NEEDED = cython.declare(cython.longlong, 2)
ODD = cython.declare(cython.longlong, 3)

# The stages of converters.events.tables.Stage that plain I/O has.
_Q2G = cython.declare(cython.longlong, 0)
_G2I = cython.declare(cython.longlong, 1)
_I2D = cython.declare(cython.longlong, 2)
_G2D = cython.declare(cython.longlong, 3)
_D2C = cython.declare(cython.longlong, 4)
_Q2M = cython.declare(cython.longlong, 5)
_M2D = cython.declare(cython.longlong, 6)
_PRE_FLUSH = cython.declare(cython.longlong, 8)
_POST_FLUSH = cython.declare(cython.longlong, 9)
_FLUSH = cython.declare(cython.longlong, 10)
_BIO_BASED = cython.declare(cython.longlong, 11)
_Q2D = cython.declare(cython.longlong, 14)
_M2I = cython.declare(cython.longlong, 15)

# Bounds of what is looked through for one event. Beyond them the column model gets all remaps.
MOST_FLYING = cython.declare(cython.longlong, 1024)
MOST_UNKNOWN = cython.declare(cython.longlong, 256)
MOST_ROWS = cython.declare(cython.longlong, 64)

Bio = cython.struct(
    address=cython.longlong,
    remap=cython.longlong,  # row of the first A before Q, from a partition or a device above; -1
    sent=cython.longlong,  # row of the last A before Q; -1
    queue=cython.longlong,  # row of Q; -1: none, as of a front that X split off
    got=cython.longlong,  # row of G, else of s; -1
    joined=cython.longlong,  # row of M or F; -1
    request=cython.longlong,  # index of its request; -1
    state=cython.longlong,
    doubt=cython.longlong,  # 0: plain so far; HELD; NEEDED; ODD
    successor=cython.longlong,  # the next life at the address; -1
    root=cython.longlong,  # the bio that it was split from; itself
    sector=cython.longlong,  # of what is left after splits
    left=cython.longlong,  # bytes left after splits
    sibling=cython.longlong,  # another bio of its request; -1
    opf=cython.longlong,
    dev=cython.longlong,
    pieces=cython.longlong,  # completed pieces, less those split off: at last 1 more than 0
    final=cython.longlong,  # the piece that completed last; -1
    fragments=cython.longlong,
    requests=cython.longlong,  # requests of the fragments
    ended=cython.longlong,  # row of its own c; -1
    clone=cython.longlong,  # whether an A from a device above began it
    upper=cython.longlong,  # the bio above whose clone it is; -1
    branch=cython.longlong,  # device of its own first clone; -1
    reach=cython.longlong,  # sector (its own device's) behind all of its clones' sources
)
Request = cython.struct(
    address=cython.longlong,
    start=cython.longlong,  # row of s; -1. The next three likewise
    insert=cython.longlong,
    issue=cython.longlong,
    complete=cython.longlong,
    head=cython.longlong,  # the bio that it was allocated for; -1
    state=cython.longlong,
    doubt=cython.longlong,
    successor=cython.longlong,
    first=cython.longlong,  # one of its bios, which has the next as `sibling`; -1
    bios=cython.longlong,
    sector=cython.longlong,  # [sector, end) as last told, in sectors
    end=cython.longlong,
    last=cython.longlong,  # row of its last event
    lowest=cython.longlong,  # its bio with the lowest address; -1
    named=cython.longlong,  # address of the bio that its last event names
    sequence=cython.longlong,  # whether blk-flush.c runs it, with data
    flush=cython.longlong,  # whether it is blk-flush.c's own request, without bios
    data_end=cython.longlong,  # row of the C of its data, in a sequence; -1
    dev=cython.longlong,
)


@cython.cclass
class Lives:
    """The lives of bios and requests in one window. Tables are made by the caller (settler.py)."""

    tables = cython.declare(object, visibility="readonly")
    raw: cython.longlong[:, ::1]
    bios: Bio[::1]
    requests: Request[::1]
    bio_keys: cython.longlong[::1]
    bio_values: cython.int[::1]
    request_keys: cython.longlong[::1]
    request_values: cython.int[::1]
    owner: cython.int[::1]
    devices: cython.longlong[:, ::1]
    flying: cython.longlong[::1]
    unknown: cython.longlong[::1]
    partitions: cython.longlong[:, ::1]
    bio_mask: cython.longlong
    request_mask: cython.longlong
    bio_addresses: cython.longlong
    request_addresses: cython.longlong
    bio_count: cython.longlong
    request_count: cython.longlong
    last_dev: cython.longlong
    last_dev_doubt: cython.longlong
    last_dev_source: cython.longlong
    flying_count: cython.longlong
    unknown_count: cython.longlong
    crowded: cython.longlong
    preflush: cython.longlong
    fua: cython.longlong
    write: cython.longlong
    flush: cython.longlong
    has_start: cython.longlong
    has_got: cython.longlong
    last_place: cython.longlong
    stages: cython.longlong[:, ::1]
    stage_count: cython.longlong

    def __init__(self, raw, work, devices, partitions, facts):
        """Begin with no lives.

        raw: (8, n), the window's records. work: tables as `settler.Work` makes them, zeroed keys.
        devices: (3, n), dev_t whose I/O may be plain, whether each sends clones in this window, and
        whether it stands on others. partitions: (2, n), dev_t of partitions of these, and of their
        disks. facts: `settler.Facts`.
        """
        self.raw = raw
        self.tables = work
        self.bios = work.bios
        self.requests = work.requests
        self.bio_keys = work.bio_keys
        self.bio_values = work.bio_values
        self.request_keys = work.request_keys
        self.request_values = work.request_values
        self.owner = work.owner
        self.devices = devices
        self.flying = work.flying
        self.unknown = work.unknown
        self.partitions = partitions
        self.bio_mask = len(work.bio_keys) - 1
        self.request_mask = len(work.request_keys) - 1
        self.bio_addresses = 0
        self.request_addresses = 0
        self.bio_count = 0
        self.request_count = 0
        self.last_dev = -1
        self.last_dev_doubt = ODD
        self.last_dev_source = 0
        self.flying_count = 0
        self.unknown_count = 0
        self.crowded = 0
        self.preflush = facts.preflush
        self.fua = facts.fua
        self.write = facts.write
        self.flush = facts.flush
        self.has_start = facts.has_start
        self.has_got = facts.has_got
        self.last_place = 0
        self.stage_count = 0

    def counts(self):
        """Return the numbers of lives of bios and of requests, plain or not."""
        return self.bio_count, self.request_count

    def walk(self):
        """Go through all events; return False if a table of addresses is too small.

        Then nothing is of use, and larger tables are needed. Each event gets its owner: the index
        of a bio, -2 less the index of a request, or -1.
        """
        row: cython.longlong = 0
        kind: cython.longlong
        total: cython.longlong = self.raw.shape[1]
        while row < total:
            if self.bio_addresses * 2 > self.bio_mask:
                return False
            if self.request_addresses * 2 > self.request_mask:
                return False
            kind = (self.raw[0, row] >> 56) & 0xFF
            self.owner[row] = -1
            if kind == _Q:
                self.queue(row)
            elif kind == _D:
                row = self.issue(row)
            elif kind == _C:
                self.complete(row)
            elif kind == _START or kind == _I:
                self.begin(row, kind)
            elif kind == _M or kind == _F or kind == _G:
                self.join(row, kind)
            elif kind == _X:
                self.split(row)
            elif kind == _A:
                self.remap(row)
            elif kind == _BIO_COMPLETE:
                self.end_bio(row)
            elif kind == _DONE:
                self.done(row)
            elif kind < _DONE or kind == _RQ_REMAP:
                self.odd(row, kind)
            row += 1
        return True

    # --- Lives by address

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def bio_at(self, address: cython.longlong) -> cython.longlong:
        """Return the place of a bio's address in the table; it is new if the key there is 0."""
        at: cython.longlong = ((address >> 6) ^ (address >> 13) ^ (address >> 21)) & self.bio_mask
        while self.bio_keys[at] != address and self.bio_keys[at] != 0:
            at = (at + 1) & self.bio_mask
        return at

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def request_at(self, address: cython.longlong) -> cython.longlong:
        """Return the place of a request's address in the table, as `bio_at`."""
        at: cython.longlong
        at = ((address >> 6) ^ (address >> 13) ^ (address >> 21)) & self.request_mask
        while self.request_keys[at] != address and self.request_keys[at] != 0:
            at = (at + 1) & self.request_mask
        return at

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def new_bio(
        self, at: cython.longlong, address: cython.longlong, doubt: cython.longlong
    ) -> cython.longlong:
        """Add a life at an address, whose place is `at`, after the one before; return its index."""
        new: cython.longlong = self.bio_count
        if self.bio_keys[at] == 0:
            self.bio_keys[at] = address
            self.bio_addresses += 1
        else:
            self.bios[self.bio_values[at]].successor = new
        self.bio_values[at] = new
        self.bio_count = new + 1
        self.bios[new].address = address
        self.bios[new].remap = -1
        self.bios[new].sent = -1
        self.bios[new].queue = -1
        self.bios[new].got = -1
        self.bios[new].joined = -1
        self.bios[new].request = -1
        self.bios[new].state = QUEUED
        self.bios[new].doubt = doubt
        self.bios[new].successor = -1
        self.bios[new].root = new
        self.bios[new].sector = 0
        self.bios[new].left = 0
        self.bios[new].sibling = -1
        self.bios[new].opf = 0
        self.bios[new].dev = 0
        self.bios[new].pieces = 0
        self.bios[new].final = -1
        self.bios[new].fragments = 0
        self.bios[new].requests = 0
        self.bios[new].ended = -1
        self.bios[new].clone = 0
        self.bios[new].upper = -1
        self.bios[new].branch = -1
        self.bios[new].reach = 0
        return new

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def new_request(
        self, at: cython.longlong, address: cython.longlong, doubt: cython.longlong
    ) -> cython.longlong:
        """Add a life of a request, as `new_bio`."""
        new: cython.longlong = self.request_count
        if self.request_keys[at] == 0:
            self.request_keys[at] = address
            self.request_addresses += 1
        else:
            self.requests[self.request_values[at]].successor = new
        self.request_values[at] = new
        self.request_count = new + 1
        self.requests[new].address = address
        self.requests[new].start = -1
        self.requests[new].insert = -1
        self.requests[new].issue = -1
        self.requests[new].complete = -1
        self.requests[new].head = -1
        self.requests[new].state = QUEUED
        self.requests[new].doubt = doubt
        self.requests[new].successor = -1
        self.requests[new].first = -1
        self.requests[new].bios = 0
        self.requests[new].sector = 0
        self.requests[new].end = 0
        self.requests[new].last = -1
        self.requests[new].lowest = -1
        self.requests[new].named = 0
        self.requests[new].sequence = 0
        self.requests[new].flush = 0
        self.requests[new].data_end = -1
        self.requests[new].dev = 0
        return new

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def running_bio(self, address: cython.longlong) -> cython.longlong:
        """Return the life of a bio that an event names; an odd new one where none is running."""
        at: cython.longlong = self.bio_at(address)
        if self.bio_keys[at] != 0:
            if self.bios[self.bio_values[at]].state != ENDED:
                return self.bio_values[at]
            if self.bios[self.bio_values[at]].doubt == 0:
                self.bios[self.bio_values[at]].doubt = NEEDED
        return self.new_bio(at, address, ODD)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def running_request(self, address: cython.longlong) -> cython.longlong:
        """Return the life of a request that an event names, as `running_bio`."""
        at: cython.longlong = self.request_at(address)
        if self.request_keys[at] != 0:
            if self.requests[self.request_values[at]].state != ENDED:
                return self.request_values[at]
            if self.requests[self.request_values[at]].doubt == 0:
                self.requests[self.request_values[at]].doubt = NEEDED
        return self.new_request(at, address, ODD)

    # --- Events of bios

    @cython.cfunc
    @cython.exceptval(check=False)
    def doubt_of_device(self, dev: cython.longlong) -> cython.longlong:
        """Return 0 if I/O of the device may be plain, else ODD; the last answer is kept."""
        i: cython.longlong
        if dev != self.last_dev:
            self.last_dev = dev
            self.last_dev_doubt = ODD
            self.last_dev_source = 0
            for i in range(self.devices.shape[1]):
                if self.devices[0, i] == dev:
                    self.last_dev_doubt = 0
                    self.last_dev_source = self.devices[1, i]
        return self.last_dev_doubt

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_source(self, dev: cython.longlong) -> cython.longlong:
        """Return whether I/O of the device may be plain and it sends clones in this window."""
        self.doubt_of_device(dev)
        return self.last_dev_source

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def begin_bio(
        self, address: cython.longlong, doubt: cython.longlong, row: cython.longlong
    ) -> cython.longlong:
        """Add the life of a bio that Q or X begins; a life that still runs there is odd."""
        at: cython.longlong = self.bio_at(address)
        if self.bio_keys[at] != 0 and self.bios[self.bio_values[at]].state != ENDED:
            self.bios[self.bio_values[at]].doubt = ODD
        new: cython.longlong = self.new_bio(at, address, doubt)
        self.bios[new].sector = self.raw[2, row]
        self.bios[new].left = self.raw[3, row] & LOW_32
        self.bios[new].opf = (self.raw[3, row] >> 32) & LOW_32
        self.bios[new].dev = self.raw[4, row] & LOW_32
        self.owner[row] = new
        return new

    @cython.cfunc
    @cython.exceptval(check=False)
    def queue(self, row: cython.longlong) -> cython.void:
        """Q: a life begins. Not plain: no data and no PREFLUSH, own I/O, other devices."""
        opf: cython.longlong = (self.raw[3, row] >> 32) & LOW_32
        doubt: cython.longlong = self.doubt_of_device(self.raw[4, row] & LOW_32)
        bio: cython.longlong
        at: cython.longlong
        if self.raw[3, row] & LOW_32 == 0 and opf & self.preflush == 0:
            doubt = ODD
        elif opf & 0xFF == self.flush or (self.raw[5, row] >> 56) & 1 != 0:
            doubt = ODD
        at = self.bio_at(self.raw[1, row])
        if self.bio_keys[at] != 0 and self.is_remapped(self.bio_values[at], row):
            bio = self.bio_values[at]
            self.bios[bio].state = QUEUED
            if doubt != 0:
                self.bios[bio].doubt = ODD
            self.owner[row] = bio
        else:
            bio = self.begin_bio(self.raw[1, row], doubt, row)
        self.bios[bio].queue = row
        if self.is_source(self.raw[4, row] & LOW_32):
            self.enter(bio, row)

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_remapped(self, bio: cython.longlong, row: cython.longlong) -> cython.longlong:
        """Return whether Q at `row` is of a bio that was just sent to this disk.

        By the same thread, with the same range, operation and disk.
        """
        remap: cython.longlong = self.bios[bio].sent
        return (
            self.bios[bio].state == REMAPPED
            and self.raw[2, row] == self.raw[2, remap]
            and self.raw[3, row] == self.raw[3, remap]
            and self.raw[4, row] == self.raw[4, remap]
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def remap(self, row: cython.longlong) -> cython.void:
        """A: from a partition to its disk, or of a clone from the device above; others are odd.

        Before Q a life begins, but where a clone sent to a partition goes on to the disk.
        """
        at: cython.longlong = self.bio_at(self.raw[1, row])
        source: cython.longlong = self.raw[6, row] & LOW_32
        bio: cython.longlong = -1
        clone: cython.longlong = 0
        if not self.is_partition(source, self.raw[4, row] & LOW_32):
            if source == self.raw[6, row] >> 32 & LOW_32 or not self.is_source(source):
                self.odd(row, _A)
                return
            clone = 1
        if self.bio_keys[at] != 0 and self.bios[self.bio_values[at]].state != ENDED:
            bio = self.bio_values[at]
        if bio < 0:
            bio = self.begin_bio(self.raw[1, row], 0, row)
            self.bios[bio].state = REMAPPED
            self.bios[bio].remap = row
            self.bios[bio].sent = row
            self.bios[bio].clone = clone
        elif clone == 0 and self.goes_on(bio, row):
            self.bios[bio].sent = row
            self.bios[bio].sector = self.raw[2, row]
            self.owner[row] = bio
        else:
            self.odd(row, _A)
        if clone:
            self.find_upper(bio, row)

    @cython.cfunc
    @cython.exceptval(check=False)
    def goes_on(self, bio: cython.longlong, row: cython.longlong) -> cython.longlong:
        """Return whether A at `row` sends a clone from the partition it was sent to on to the disk.

        The first A names that partition, or before 5.12 the disk alone. Not so where another bio
        was sent from the same place in between, which is needed then.
        """
        first: cython.longlong = self.bios[bio].sent
        part: cython.longlong = self.raw[6, first] >> 32 & LOW_32
        between: cython.longlong = row - 1
        alone: cython.longlong = True
        if self.bios[bio].state != REMAPPED or self.bios[bio].clone == 0:
            return False
        while between > first:
            if row - between > MOST_ROWS:
                self.crowded = 1
                break
            if (
                (self.raw[0, between] >> 56) & 0xFF == _A
                and self.raw[5, between] == self.raw[5, row]
                and (self.raw[6, between] ^ self.raw[6, row]) & LOW_32 == 0
            ):
                self.need(self.owner[between])
                alone = False
            between -= 1
        return (
            alone
            and first == self.bios[bio].remap
            and (part == self.raw[6, row] & LOW_32 or part == self.raw[4, row] & LOW_32)
            and self.raw[5, row] == self.raw[2, first]
            and self.raw[3, row] == self.raw[3, first]
            and self.raw[4, row] == self.raw[4, first]
        )

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def at_once(self, one: cython.longlong, other: cython.longlong) -> cython.longlong:
        """Return whether the events of two rows have the same time."""
        return (self.raw[0, one] ^ self.raw[0, other]) & TIME_MASK == 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def enter(self, bio: cython.longlong, row: cython.longlong) -> cython.void:
        """Make the bio that Q at `row` queued one that clones may be of.

        It is one since its first event: clones that were sent since, or at the same time, need it.
        """
        begin: cython.longlong = row
        before: cython.longlong = row - 1
        dev: cython.longlong = self.raw[4, row] & LOW_32
        if self.bios[bio].remap >= 0:
            begin = self.bios[bio].remap
        while before >= 0 and (before > begin or self.at_once(before, begin)):
            if row - before > MOST_ROWS:
                self.crowded = 1
                break
            if (
                (self.raw[0, before] >> 56) & 0xFF == _A
                and self.raw[6, before] & LOW_32 == dev
                and self.has_source(bio, before)
            ):
                self.need(bio)
                self.need(self.owner[before])
            before -= 1
        if self.flying_count == MOST_FLYING:
            self.crowded = 1
        else:
            self.flying[self.flying_count] = bio
            self.flying_count += 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def need(self, bio: cython.longlong) -> cython.void:
        """Make a life NEEDED that is plain so far."""
        if bio >= 0 and self.bios[bio].doubt < NEEDED:
            self.bios[bio].doubt = NEEDED

    @cython.cfunc
    @cython.exceptval(check=False)
    def find_upper(self, bio: cython.longlong, row: cython.longlong) -> cython.void:
        """Link a clone to the bio above that A at `row` names by device and sectors.

        Only one bio in flight there may have any of these sectors; of a clone without data (a
        flush), only one may be without data. Else all of them are needed, and so is a clone with
        data of which no upper bio is known.
        """
        dev: cython.longlong = self.raw[6, row] & LOW_32
        upper: cython.longlong = -1
        other: cython.longlong
        i: cython.longlong = 0
        if self.crowded:
            return
        while i < self.flying_count:
            other = self.flying[i]
            if self.bios[other].ended >= 0 and not self.at_once(self.bios[other].ended, row):
                self.flying_count -= 1
                self.flying[i] = self.flying[self.flying_count]
                continue
            i += 1
            if other == bio or self.bios[other].dev != dev or not self.has_source(other, row):
                continue
            if upper >= 0:
                self.need(upper)
                self.need(other)
                self.need(bio)
            upper = other
        if upper >= 0 and self.bios[bio].remap == row and self.is_clone_of(bio, upper, row):
            self.bios[bio].upper = upper
        elif upper >= 0 or self.raw[3, row] & LOW_32 != 0:
            self.need(bio)
            self.need(upper)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def has_source(self, bio: cython.longlong, row: cython.longlong) -> cython.longlong:
        """Return whether a queued bio has some of the sectors that A at `row` comes from.

        Where A has no data, whether the bio has none.
        """
        queue: cython.longlong = self.bios[bio].queue
        size: cython.longlong = self.raw[3, row] & LOW_32
        own: cython.longlong = self.raw[3, queue] & LOW_32
        if size == 0 or own == 0:
            return size == own
        return self.raw[5, row] < self.raw[2, queue] + (own >> 9) and self.raw[2, queue] < self.raw[
            5, row
        ] + (size >> 9)

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_clone_of(
        self, bio: cython.longlong, upper: cython.longlong, row: cython.longlong
    ) -> cython.longlong:
        """Return whether A at `row` fits the only bio above that it can be of, and keep its range.

        It has to lie within that bio, behind the clones that were sent before; but the second may
        also go to another device (a mirror).
        """
        queue: cython.longlong = self.bios[upper].queue
        lower: cython.longlong = self.raw[4, row] & LOW_32
        sector: cython.longlong = self.raw[5, row]
        end: cython.longlong = sector + ((self.raw[3, row] & LOW_32) >> 9)
        opf: cython.longlong = (self.raw[3, row] >> 32) & LOW_32
        if (self.bios[upper].opf ^ opf) & 0xFF != 0 or self.bios[upper].root != upper:
            return False
        if end == sector:
            return True
        if sector < self.raw[2, queue] or end > self.raw[2, queue] + (
            (self.raw[3, queue] & LOW_32) >> 9
        ):
            return False
        if self.bios[upper].branch < 0:
            self.bios[upper].branch = lower
        elif sector < self.bios[upper].reach:
            if self.bios[upper].branch < 1 or self.bios[upper].branch == lower:
                return False
            self.bios[upper].branch = 0  # a third one over the same sectors is not plain
        if end > self.bios[upper].reach:
            self.bios[upper].reach = end
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def end_bio(self, row: cython.longlong) -> cython.void:
        """c: a bio that was in no request ends. One that failed, or was split, is not plain.

        A failed one without clones, as a try of NOWAIT, is over all the same: what follows at its
        address may be plain. A c of which no bio is known may end one that clones were sent of.
        """
        at: cython.longlong = self.bio_at(self.raw[1, row])
        opf: cython.longlong = (self.raw[3, row] >> 32) & LOW_32
        bio: cython.longlong = -1
        if self.bio_keys[at] != 0:
            bio = self.bio_values[at]
        if (
            bio >= 0
            and self.bios[bio].state == QUEUED
            and self.bios[bio].root == bio
            and self.bios[bio].pieces == 0
            and self.bios[bio].request < 0
            and self.bios[bio].dev == self.raw[4, row] & LOW_32
            and (self.bios[bio].opf ^ opf) & 0xFF == 0
            and (self.raw[4, row] >> 32 == 0 or not self.is_source(self.bios[bio].dev))
        ):
            self.bios[bio].state = ENDED
            self.bios[bio].ended = row
            self.bios[bio].pieces = 1
            self.owner[row] = bio
            if self.raw[4, row] >> 32 != 0:
                self.need(bio)
            return
        self.odd(row, _BIO_COMPLETE)
        if self.unknown_count == MOST_UNKNOWN:
            self.crowded = 1
        else:
            self.unknown[self.unknown_count] = row
            self.unknown_count += 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_partition(self, partition: cython.longlong, disk: cython.longlong) -> cython.longlong:
        """Return whether `partition` is one of `disk` (dev_t), whose I/O may be plain."""
        i: cython.longlong
        for i in range(self.partitions.shape[1]):
            if self.partitions[0, i] == partition:
                return self.partitions[1, i] == disk
        return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def split(self, row: cython.longlong) -> cython.void:
        """X: the front of a whole bio becomes a bio of its own. Fronts of fronts are not plain."""
        size: cython.longlong = self.raw[3, row] & LOW_32
        opf: cython.longlong = (self.raw[3, row] >> 32) & LOW_32
        sector: cython.longlong = self.raw[2, row]
        doubt: cython.longlong = 0
        parent: cython.longlong = self.raw[5, row]
        root: cython.longlong = -1
        at: cython.longlong
        if parent == 0 or self.raw[6, row] == sector & LOW_32:
            doubt = ODD
        else:
            at = self.bio_at(parent)
            if self.bio_keys[at] == 0:
                doubt = ODD
            else:
                root = self.bio_values[at]
                if (
                    self.bios[root].state != QUEUED
                    or self.bios[root].sector != sector
                    or self.bios[root].left <= size
                    or (self.bios[root].opf ^ opf) & 0xFF != 0
                    or self.bios[root].dev != self.raw[4, row] & LOW_32
                    or self.bios[root].doubt == ODD
                    or size == 0
                    or self.bios[root].root != root
                ):
                    doubt = ODD
                    self.bios[root].doubt = ODD
        new: cython.longlong = self.begin_bio(self.raw[1, row], doubt, row)
        if root >= 0:
            self.bios[new].root = root
            self.bios[root].sector = sector + (size >> 9)
            self.bios[root].left -= size
            self.bios[root].pieces -= 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def join(self, row: cython.longlong, kind: cython.longlong) -> cython.void:
        """G: a request is allocated for the bio. M, F: the bio joins a request, known at D."""
        bio: cython.longlong = self.running_bio(self.raw[1, row])
        size: cython.longlong = self.raw[3, row] & LOW_32
        opf: cython.longlong = (self.raw[3, row] >> 32) & LOW_32
        if (
            self.bios[bio].state != QUEUED
            or self.bios[bio].sector != self.raw[2, row]
            or self.bios[bio].left != size
            or (self.bios[bio].opf ^ opf) & 0xFF != 0
            or self.bios[bio].dev != self.raw[4, row] & LOW_32
        ):
            self.bios[bio].doubt = ODD
        if kind == _G:
            self.bios[bio].got = row
            if self.bios[bio].state < GOT:
                self.bios[bio].state = GOT
        else:
            if self.raw[5, row] != 0:  # it names its request, as kernels before 5.14 do
                self.bios[bio].request = self.running_request(self.raw[5, row])
            self.bios[bio].joined = row
            if self.bios[bio].state < JOINED:
                self.bios[bio].state = JOINED
        self.owner[row] = bio

    # --- Events of requests

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def tell(self, request: cython.longlong, row: cython.longlong) -> cython.void:
        """Keep the range and the bio that an event of the request tells."""
        self.requests[request].sector = self.raw[3, row]
        self.requests[request].end = self.raw[3, row] + ((self.raw[4, row] & LOW_32) >> 9)
        self.requests[request].named = self.raw[2, row]
        self.requests[request].dev = self.raw[5, row] & LOW_32

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def shrinks(self, request: cython.longlong, row: cython.longlong) -> cython.longlong:
        """Return whether an event tells a range that is not the one before, perhaps grown.

        At the same first sector the first bio has to be the same.
        """
        sector: cython.longlong = self.raw[3, row]
        if sector > self.requests[request].sector:
            return True
        if sector + ((self.raw[4, row] & LOW_32) >> 9) < self.requests[request].end:
            return True
        return (
            sector == self.requests[request].sector
            and self.raw[2, row] != self.requests[request].named
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def begin(self, row: cython.longlong, kind: cython.longlong) -> cython.void:
        """s begins a request, and I where the kernel has no s; later I are of a running one."""
        address: cython.longlong = self.raw[1, row]
        at: cython.longlong = self.request_at(address)
        running: cython.longlong = self.request_keys[at]
        request: cython.longlong
        doubt: cython.longlong
        if running != 0 and self.requests[self.request_values[at]].state == ENDED:
            running = 0
        if kind == _START or running == 0:
            if self.request_keys[at] != 0:
                request = self.request_values[at]
                if self.requests[request].state != ENDED:
                    self.requests[request].doubt = ODD
                elif kind == _I and self.has_start and self.requests[request].doubt == 0:
                    self.requests[request].doubt = NEEDED
            request = self.new_request(at, address, 0)
            doubt = self.take_head(request, row, kind)
        else:
            request = self.request_values[at]
            doubt = self.doubt_of_insert(request, row)
        if kind == _START:
            self.requests[request].start = row
        elif self.requests[request].insert < 0:
            self.requests[request].insert = row
        if self.requests[request].state < ISSUED:
            self.requests[request].state = STARTED
        self.tell(request, row)
        self.requests[request].last = row
        if doubt != 0:
            self.requests[request].doubt = ODD
            self.doubt_named(self.raw[2, row])
        self.owner[row] = -2 - request

    @cython.cfunc
    @cython.exceptval(check=False)
    def doubt_named(self, address: cython.longlong) -> cython.void:
        """Make the newest life of a bio odd that an odd event of a request names, if there is."""
        at: cython.longlong
        if address != 0:
            at = self.bio_at(address)
            if self.bio_keys[at] != 0:
                self.bios[self.bio_values[at]].doubt = ODD

    @cython.cfunc
    @cython.exceptval(check=False)
    def doubt_of_insert(self, request: cython.longlong, row: cython.longlong) -> cython.longlong:
        """Return ODD if an I of a running request is not its only one, or does not fit; else 0."""
        opf: cython.longlong = (self.raw[4, row] >> 32) & LOW_32
        head: cython.longlong = self.requests[request].head
        if self.requests[request].state >= ISSUED or self.requests[request].insert >= 0:
            return ODD
        if self.raw[4, row] & LOW_32 == 0 or self.shrinks(request, row):
            return ODD
        if head >= 0 and (
            (self.bios[head].opf ^ opf) & 0xFF != 0
            or self.bios[head].dev != self.raw[5, row] & LOW_32
        ):
            return ODD
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_head(
        self, request: cython.longlong, row: cython.longlong, kind: cython.longlong
    ) -> cython.longlong:
        """Give a new request the bio that its first event names; return ODD if that does not fit.

        By s the bio gets its request; by I, on a kernel without s, it has had its G.
        """
        doubt: cython.longlong = ODD if kind == _I and self.has_start else 0
        opf: cython.longlong = (self.raw[4, row] >> 32) & LOW_32
        bio: cython.longlong
        if self.raw[2, row] == 0:
            return ODD
        bio = self.running_bio(self.raw[2, row])
        if kind == _I and self.bios[bio].state == JOINED:
            doubt = ODD
        if (
            self.bios[bio].state > GOT
            or self.bios[bio].state < QUEUED  # sent to its disk, but its Q was not recorded
            or self.bios[bio].doubt == ODD
            or (self.bios[bio].opf ^ opf) & 0xFF != 0
            or self.bios[bio].dev != self.raw[5, row] & LOW_32
        ):
            doubt = ODD
        if kind == _START and (
            self.bios[bio].sector != self.raw[3, row]
            or self.bios[bio].left != self.raw[4, row] & LOW_32
        ):
            doubt = ODD
        if self.bios[bio].request >= 0:
            doubt = ODD
            self.requests[self.bios[bio].request].doubt = ODD
        if self.bios[bio].got < 0:
            if kind == _START:
                self.bios[bio].got = row
            else:
                doubt = ODD
        self.bios[bio].state = STARTED
        self.bios[bio].request = request
        self.requests[request].head = bio
        if doubt != 0:
            self.bios[bio].doubt = ODD
        return doubt

    @cython.cfunc
    @cython.exceptval(check=False)
    def issue(self, row: cython.longlong) -> cython.longlong:
        """D, with the CHAIN records behind it: the request's bios. Returns the last one's row."""
        address: cython.longlong = self.raw[1, row]
        size: cython.longlong = self.raw[4, row] & LOW_32
        count: cython.longlong = (self.raw[6, row] >> 32) & 0xFFFF
        flush: cython.longlong = self.is_flush(row)
        request: cython.longlong = self.issued_request(address, flush)
        self.requests[request].flush = flush
        doubt: cython.longlong = self.doubt_before_issue(request, row)
        self.owner[row] = -2 - request
        self.requests[request].issue = row
        self.requests[request].state = ISSUED
        self.tell(request, row)
        slot: cython.longlong = 2
        here: cython.longlong = row
        named: cython.longlong = 0
        total: cython.longlong = 0
        bio: cython.longlong
        while True:
            if self.raw[slot, here] != 0:
                if (self.raw[slot, here] >> 62) & 3 == 1:  # bios that the filters left out
                    doubt = ODD
                else:
                    named += 1
                    bio = self.running_bio(self.raw[slot, here])
                    doubt = self.doubt_of_issue(request, bio, row, doubt)
                    self.take_issued(request, bio, doubt)
                    total += self.bios[bio].left
            if here != row and slot != 7:
                slot += 1
            elif self.is_chain(here + 1, row):
                here += 1
                self.owner[here] = -2 - request
                slot = 2
            else:
                break
        if named != count or total != size:
            doubt = ODD
        if self.requests[request].sequence and count != 1:  # nothing merges into one
            doubt = ODD
        bio = self.requests[request].head
        if bio >= 0 and self.bios[bio].state != ISSUED:
            doubt = ODD
        if doubt != 0:
            self.requests[request].doubt = ODD
        self.requests[request].last = here
        return here

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def doubt_before_issue(self, request: cython.longlong, row: cython.longlong) -> cython.longlong:
        """Return ODD if a request's D is not due, or is without data or a whole chain; else 0."""
        flush: cython.longlong = self.requests[request].flush
        if self.requests[request].state == QUEUED:  # its first event
            if self.has_start and not flush:
                return ODD
        elif self.requests[request].state >= ISSUED or self.shrinks(request, row):
            return ODD
        if (self.raw[6, row] >> 56) & 1 != 0:  # a chain that was cut
            return ODD
        return ODD if self.raw[4, row] & LOW_32 == 0 and not flush else 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_flush(self, row: cython.longlong) -> cython.longlong:
        """Return whether D is of a flush that blk-flush.c makes: no bio, no sector, no bytes."""
        return (
            self.raw[2, row] == 0
            and self.raw[3, row] == -1
            and self.raw[4, row] & LOW_32 == 0
            and (self.raw[4, row] >> 32) & 0xFF == self.flush
            and self.doubt_of_device(self.raw[5, row] & LOW_32) == 0
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def issued_request(self, address: cython.longlong, flush: cython.longlong) -> cython.longlong:
        """Return the life of the request that is issued; a new one where none is running.

        One request serves each flush of a queue, so a flush that ended is over by its next D.
        """
        at: cython.longlong = self.request_at(address)
        before: cython.longlong
        if self.request_keys[at] != 0:
            before = self.request_values[at]
            if self.requests[before].state != ENDED:
                return before
            if flush and self.requests[before].flush:
                return self.new_request(at, address, 0)
            if (self.has_start or flush) and self.requests[before].doubt == 0:
                self.requests[before].doubt = NEEDED
        return self.new_request(at, address, 0)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def is_chain(self, row: cython.longlong, issue: cython.longlong) -> cython.longlong:
        """Return whether a row is a CHAIN of the D at `issue`: its request, its time."""
        return (
            row < self.raw.shape[1]
            and (self.raw[0, row] >> 56) & 0xFF == _CHAIN
            and self.raw[1, row] == self.raw[1, issue]
            and (self.raw[0, row] ^ self.raw[0, issue]) & TIME_MASK == 0
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def doubt_of_issue(
        self,
        request: cython.longlong,
        bio: cython.longlong,
        row: cython.longlong,
        doubt: cython.longlong,
    ) -> cython.longlong:
        """Return ODD if a bio does not fit the D at `row` that names it, else `doubt`."""
        opf: cython.longlong = (self.raw[4, row] >> 32) & LOW_32
        end: cython.longlong = self.requests[request].end
        if self.bios[bio].state == GOT:
            # Where no start is told: the bio that the request was allocated for.
            if self.requests[request].head >= 0 and self.requests[request].head != bio:
                doubt = ODD
            self.requests[request].head = bio
        if self.bios[bio].state == GOT or self.bios[bio].state == JOINED:
            if self.bios[bio].request >= 0 and self.bios[bio].request != request:
                doubt = ODD
        elif self.bios[bio].state == QUEUED and self.has_got == 0:
            if self.bios[bio].request >= 0:
                doubt = ODD
        elif self.bios[bio].state != STARTED or self.bios[bio].request != request:
            doubt = ODD
        if self.bios[bio].doubt == ODD or (self.bios[bio].opf ^ opf) & 0xFF != 0:
            doubt = ODD
        if self.bios[bio].dev != self.raw[5, row] & LOW_32:
            doubt = ODD
        if self.bios[bio].opf & self.preflush != 0 or (
            self.bios[bio].opf & self.fua != 0 and opf & self.fua == 0
        ):
            self.requests[request].sequence = 1
        if self.bios[bio].left == 0:
            doubt = ODD
        if self.bios[bio].sector < self.requests[request].sector:
            doubt = ODD
        if self.bios[bio].sector + (self.bios[bio].left >> 9) > end:
            doubt = ODD
        return doubt

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_issued(
        self, request: cython.longlong, bio: cython.longlong, doubt: cython.longlong
    ) -> cython.void:
        """Add a bio to the request that is issued with it; with another's, both are odd."""
        lowest: cython.longlong = self.requests[request].lowest
        address: cython.longlong = self.bios[bio].address ^ TOP_BIT  # compares as unsigned
        if self.bios[bio].request >= 0 and self.bios[bio].request != request:
            self.requests[self.bios[bio].request].doubt = ODD
        else:
            if self.bios[bio].state != ISSUED:
                self.bios[bio].sibling = self.requests[request].first
                self.requests[request].first = bio
                self.requests[request].bios += 1
                if lowest < 0 or address < self.bios[lowest].address ^ TOP_BIT:
                    self.requests[request].lowest = bio
            self.bios[bio].request = request
        self.bios[bio].state = ISSUED
        if doubt != 0:
            self.bios[bio].doubt = ODD

    @cython.cfunc
    @cython.exceptval(check=False)
    def complete(self, row: cython.longlong) -> cython.void:
        """C: the request ends, and with it its bios, if all was completed without error."""
        request: cython.longlong = self.completed_request(row)
        issue: cython.longlong = self.requests[request].issue
        self.owner[row] = -2 - request
        self.requests[request].last = row
        if self.raw[4, row] & LOW_32 == 0 and not self.requests[request].flush:
            if not self.ends_sequence(request, row):
                self.requests[request].doubt = ODD
                self.doubt_completed(self.raw[2, row])
                return
        elif (
            self.requests[request].state != ISSUED
            or self.raw[2, row] != self.raw[2, issue]
            or self.raw[3, row] != self.raw[3, issue]
            or (self.raw[4, row] ^ self.raw[4, issue]) & LOW_40 != 0
            or self.raw[5, row] >> 32 != 0
            or (self.raw[5, row] ^ self.raw[5, issue]) & LOW_32 != 0
        ):
            self.requests[request].doubt = ODD
            self.doubt_completed(self.raw[2, row])
            return
        elif self.requests[request].sequence:
            self.requests[request].data_end = row
            self.requests[request].state = DATA_DONE
            return
        self.requests[request].complete = row
        self.requests[request].state = ENDED
        bio: cython.longlong = self.requests[request].first
        root: cython.longlong
        final: cython.longlong
        while bio >= 0:
            self.bios[bio].state = ENDED
            root = self.bios[bio].root
            final = self.bios[root].final
            self.bios[root].pieces += 1
            self.bios[root].fragments += 1
            if final < 0 or self.bios[final].request != request:
                self.bios[root].requests += 1
                self.bios[root].final = bio
            elif bio > final:
                self.bios[root].final = bio
            bio = self.bios[bio].sibling

    @cython.cfunc
    @cython.exceptval(check=False)
    def completed_request(self, row: cython.longlong) -> cython.longlong:
        """Return the life of the request that C names, as `running_request`.

        On a kernel without s the only event of a bare flush's request is its C, which begins it.
        """
        at: cython.longlong
        bio: cython.longlong
        request: cython.longlong
        if self.has_start == 0 and self.raw[4, row] & LOW_32 == 0 and self.raw[2, row] != 0:
            at = self.request_at(self.raw[1, row])
            bio = self.bio_at(self.raw[2, row])
            if self.bio_keys[bio] != 0 and (
                self.request_keys[at] == 0 or self.requests[self.request_values[at]].state == ENDED
            ):
                bio = self.bio_values[bio]
                if (
                    self.bios[bio].state == GOT
                    and self.bios[bio].left == 0
                    and self.bios[bio].request < 0
                    and self.bios[bio].doubt != ODD
                    and (self.bios[bio].opf ^ (self.raw[4, row] >> 32)) & 0xFF == 0
                    and self.bios[bio].dev == self.raw[5, row] & LOW_32
                ):
                    request = self.new_request(at, self.raw[1, row], 0)
                    self.requests[request].head = bio
                    self.requests[request].state = STARTED
                    self.bios[bio].state = STARTED
                    self.bios[bio].request = request
                    self.tell(request, row)
                    return request
        return self.running_request(self.raw[1, row])

    @cython.cfunc
    @cython.exceptval(check=False)
    def ends_sequence(self, request: cython.longlong, row: cython.longlong) -> cython.longlong:
        """Return whether a C of no bytes is the end of a flush sequence, or of a bare flush.

        The second has no D: a flush request is issued for it, and for others. Its bio is given to
        it here, as D would.
        """
        bio: cython.longlong = self.requests[request].head
        if (
            self.raw[2, row] == 0
            or self.raw[2, row] != self.requests[request].named
            or self.raw[5, row] >> 32 != 0
            or self.raw[5, row] & LOW_32 != self.requests[request].dev
        ):
            return False
        if self.requests[request].state == DATA_DONE:
            return True
        if (
            self.requests[request].state != STARTED
            or self.requests[request].insert >= 0
            or self.requests[request].sector != self.requests[request].end
            or bio < 0
            or self.bios[bio].state != STARTED
            or self.bios[bio].request != request
            or self.bios[bio].left != 0
            or self.bios[bio].opf & self.preflush == 0
            or self.bios[bio].opf & 0xFF != self.write
        ):
            return False
        self.requests[request].first = bio
        self.requests[request].lowest = bio
        self.requests[request].bios = 1
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def doubt_completed(self, address: cython.longlong) -> cython.void:
        """Make the newest life of a bio odd that an odd C names; a new one where there is none."""
        at: cython.longlong
        if address != 0:
            at = self.bio_at(address)
            if self.bio_keys[at] == 0:
                self.new_bio(at, address, ODD)
            self.bios[self.bio_values[at]].doubt = ODD

    @cython.cfunc
    @cython.exceptval(check=False)
    def done(self, row: cython.longlong) -> cython.void:
        """d: the account of the request is closed; it may come after the end of its life."""
        at: cython.longlong = self.request_at(self.raw[1, row])
        if self.request_keys[at] == 0:
            self.new_request(at, self.raw[1, row], ODD)
            self.requests[self.request_values[at]].state = ENDED
        self.requests[self.request_values[at]].last = row
        self.owner[row] = -2 - self.request_values[at]

    @cython.cfunc
    @cython.exceptval(check=False)
    def odd(self, row: cython.longlong, kind: cython.longlong) -> cython.void:
        """A, c, R, m, E, a, and a CHAIN without its D: what they name is not plain."""
        bio: cython.longlong = 0
        request: cython.longlong = 0
        if kind == _A or kind == _BIO_COMPLETE:
            bio = self.raw[1, row]
        else:
            request = self.raw[1, row]
            bio = 0 if kind == _CHAIN else self.raw[2, row]
        if bio != 0:
            bio = self.running_bio(bio)
            self.bios[bio].doubt = ODD
            self.owner[row] = bio
        if request != 0:
            request = self.running_request(request)
            self.requests[request].doubt = ODD
            self.requests[request].last = row
            self.owner[row] = -2 - request

    # --- Families

    def hand_over(
        self,
        rows: cython.longlong[::1],
        again: cython.longlong[::1],
        numbers: cython.const[cython.longlong][::1],
    ):
        """Make the lives odd that these events began, unless they ended before `again`.

        again: numbers of later events, which used the bios' addresses again. numbers: of the
        events.
        """
        i: cython.longlong
        of: cython.longlong
        end: cython.longlong
        for i in range(rows.shape[0]):
            of = self.owner[rows[i]]
            if of >= 0:
                end = self.bios[of].ended
                if self.bios[of].request >= 0:
                    end = self.requests[self.bios[of].request].complete
                if end < 0 or numbers[end] > again[i]:
                    self.bios[of].doubt = ODD
            elif of < -1:
                self.requests[-2 - of].doubt = ODD

    def families(
        self, times: cython.longlong[::1], settled: cython.longlong, holds: cython.longlong
    ):
        """Give the doubts of each life to its family.

        A family: bios that were split from each other, those of one request, and clones with the
        bio above. Lives that did not end are needed again; those that had an event at `settled`
        (ns) or later are held back, or with `holds` 0 needed, too. times: ns, of the events.
        """
        self.doubt_unended(times, settled, HELD if holds else NEEDED)
        self.doubt_clones()
        self.spread()
        self.doubt_successors()
        self.doubt_held(times, settled)
        self.spread()

    def count_of(self, doubt: cython.longlong):
        """Return the numbers of lives with this doubt: (bios and pieces, requests)."""
        i: cython.longlong
        bios: cython.longlong = 0
        requests: cython.longlong = 0
        for i in range(self.bio_count):
            if self.bios[i].doubt == doubt:
                bios += 1
        for i in range(self.request_count):
            if self.requests[i].doubt == doubt:
                requests += 1
        return bios, requests

    @cython.cfunc
    @cython.exceptval(check=False)
    def doubt_unended(
        self, times: cython.longlong[::1], settled: cython.longlong, late: cython.longlong
    ) -> cython.void:
        """Make lives NEEDED that are not over, or of which a piece is missing.

        late: HELD or NEEDED, for those that are over, but not before `settled`.
        """
        i: cython.longlong
        last: cython.longlong
        for i in range(self.request_count):
            last = self.requests[i].last
            if (
                self.requests[i].state != ENDED
                or (self.requests[i].first < 0 and not self.requests[i].flush)
            ) and self.requests[i].doubt == 0:
                self.requests[i].doubt = NEEDED
            if self.requests[i].doubt == 0 and last >= 0 and times[last] >= settled:
                self.requests[i].doubt = late
        for i in range(self.bio_count):
            if self.bios[i].doubt == 0 and (
                self.bios[i].state != ENDED or (self.bios[i].root == i and self.bios[i].pieces < 1)
            ):
                self.bios[i].doubt = NEEDED
            last = self.bios[i].ended
            if self.bios[i].doubt == 0 and last >= 0 and times[last] >= settled:
                self.bios[i].doubt = late

    @cython.cfunc
    @cython.exceptval(check=False)
    def doubt_clones(self) -> cython.void:
        """Make clones NEEDED whose upper bio is not sure, and requests of devices that stack.

        A bio of which only c is known may be the upper one of all clones before it that it covers.
        """
        i: cython.longlong
        j: cython.longlong
        for i in range(self.bio_count):
            if self.bios[i].doubt >= NEEDED or self.bios[i].clone == 0:
                continue
            for j in range(self.unknown_count):
                if self.may_have_sent(self.unknown[j], self.bios[i].remap):
                    self.bios[i].doubt = NEEDED
        for i in range(self.request_count):
            if self.requests[i].doubt < NEEDED and self.stands_on_others(self.requests[i].dev):
                self.requests[i].doubt = NEEDED
        if self.crowded:
            for i in range(self.bio_count):
                if self.bios[i].remap >= 0 or self.is_source(self.bios[i].dev):
                    self.need(i)

    @cython.cfunc
    @cython.exceptval(check=False)
    def may_have_sent(self, end: cython.longlong, remap: cython.longlong) -> cython.longlong:
        """Return whether the bio of which only c (row `end`) is known may be above a clone's A."""
        size: cython.longlong = self.raw[3, end] & LOW_32
        source: cython.longlong = self.raw[3, remap] & LOW_32
        if (self.raw[4, end] ^ self.raw[6, remap]) & LOW_32 != 0:
            return False
        if end < remap and not self.at_once(end, remap):
            return False
        if size == 0 or source == 0:
            return True
        return self.raw[2, end] < self.raw[5, remap] + (source >> 9) and self.raw[
            5, remap
        ] < self.raw[2, end] + (size >> 9)

    @cython.cfunc
    @cython.exceptval(check=False)
    def stands_on_others(self, dev: cython.longlong) -> cython.longlong:
        """Return whether a device is stacked; its requests, if it has any, are the model's."""
        at: cython.longlong = self.device_index(dev)
        return self.devices[0, at] == dev and self.devices[2, at] != 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def doubt_successors(self) -> cython.void:
        """Make lives NEEDED that follow, at its address, one that is odd or lacks a piece's end.

        They tell that it is over.
        """
        i: cython.longlong
        after: cython.longlong
        for i in range(self.bio_count):
            after = self.bios[i].successor
            if after < 0 or self.bios[after].doubt >= NEEDED:
                continue
            if self.bios[i].doubt == ODD or (self.bios[i].root == i and self.bios[i].pieces < 1):
                self.bios[after].doubt = NEEDED
        for i in range(self.request_count):
            after = self.requests[i].successor
            if self.requests[i].doubt == ODD and after >= 0 and self.requests[after].doubt < NEEDED:
                self.requests[after].doubt = NEEDED

    @cython.cfunc
    @cython.exceptval(check=False)
    def doubt_held(self, times: cython.longlong[::1], settled: cython.longlong) -> cython.void:
        """Make lives NEEDED whose family is held, but which were over before `settled` themselves.

        Only where their address was used again: the next window may not have the life that did so,
        and what the model knows of that (`ReusedAddresses`) is of its own events.
        """
        i: cython.longlong
        end: cython.longlong
        for i in range(self.bio_count):
            if self.bios[i].doubt != HELD or self.bios[i].successor < 0:
                continue
            end = self.bios[i].ended
            if self.bios[i].request >= 0:
                end = self.requests[self.bios[i].request].complete
            if times[end] < settled:
                self.bios[i].doubt = NEEDED
        for i in range(self.request_count):
            if self.requests[i].doubt == HELD and self.requests[i].successor >= 0:
                if times[self.requests[i].last] < settled:
                    self.requests[i].doubt = NEEDED

    @cython.cfunc
    @cython.exceptval(check=False)
    def spread(self) -> cython.void:
        """Give each life the greatest doubt of its family, in rounds until nothing changes."""
        i: cython.longlong
        request: cython.longlong
        root: cython.longlong
        upper: cython.longlong
        most: cython.longlong
        changed: cython.longlong = 1
        while changed:
            changed = 0
            for i in range(self.bio_count):
                most = self.bios[i].doubt
                request = self.bios[i].request
                root = self.bios[i].root
                if request >= 0 and self.requests[request].doubt > most:
                    most = self.requests[request].doubt
                if self.bios[root].doubt > most:
                    most = self.bios[root].doubt
                upper = self.bios[i].upper
                if upper >= 0 and self.bios[upper].doubt > most:
                    most = self.bios[upper].doubt
                if most == 0:
                    continue
                if self.bios[i].doubt != most:
                    self.bios[i].doubt = most
                    changed = 1
                if request >= 0 and self.requests[request].doubt != most:
                    self.requests[request].doubt = most
                    changed = 1
                if self.bios[root].doubt != most:
                    self.bios[root].doubt = most
                    changed = 1
                if upper >= 0 and self.bios[upper].doubt != most:
                    self.bios[upper].doubt = most
                    changed = 1

    def rest(
        self,
        counts: cython.longlong[:, ::1],
        rows: cython.longlong[::1],
        held: cython.longlong[::1],
    ):
        """Fill `rows` with those of events that are not of plain lives, `held` with those held.

        Returns how many each are. counts: (devices + 1, 256) zeros, gets the numbers of all other
        events by device (in the order of the devices whose I/O may be plain) and kind.
        """
        row: cython.longlong
        of: cython.longlong
        left: cython.longlong = 0
        waiting: cython.longlong = 0
        doubt: cython.longlong
        dev: cython.longlong
        for row in range(self.raw.shape[1]):
            of = self.owner[row]
            doubt = ODD
            dev = -1
            if of < -1:
                doubt = self.requests[-2 - of].doubt
                dev = self.requests[-2 - of].dev
            elif of >= 0:
                doubt = self.bios[of].doubt
                dev = self.bios[of].dev
            if doubt == 0:
                counts[self.device_index(dev), (self.raw[0, row] >> 56) & 0xFF] += 1
            elif doubt == HELD:
                held[waiting] = row
                waiting += 1
            else:
                rows[left] = row
                left += 1
        return left, waiting

    @cython.cfunc
    @cython.exceptval(check=False)
    def device_index(self, dev: cython.longlong) -> cython.longlong:
        """Return the place of a device among those whose I/O may be plain."""
        i: cython.longlong
        if self.devices[0, self.last_place] != dev:
            for i in range(self.devices.shape[1]):
                if self.devices[0, i] == dev:
                    self.last_place = i
                    break
        return self.last_place

    # --- Rows

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def first_row(self, request: cython.longlong) -> cython.longlong:
        """Return the row of the first event of a plain request."""
        if self.requests[request].start >= 0:
            return self.requests[request].start
        if self.requests[request].insert >= 0:
            return self.requests[request].insert
        if self.requests[request].issue >= 0:
            return self.requests[request].issue
        return self.requests[request].complete

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def last_stages(
        self,
        request: cython.longlong,
        number: cython.longlong,
        issue: cython.longlong,
        end: cython.longlong,
        data: cython.longlong,
    ) -> cython.void:
        """Add D2C and, behind it, the flush after the data. issue, end, data: ns, of the data's C.

        data: `end` where the request is of no flush sequence.
        """
        self.stage(number, _D2C, issue, data)
        if self.requests[request].sequence and data != end:
            self.stage(number, _POST_FLUSH, data, end)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def first_row_of_bio(self, bio: cython.longlong) -> cython.longlong:
        """Return the row of the first event of a plain whole bio."""
        if self.bios[bio].remap >= 0:
            return self.bios[bio].remap
        return self.bios[bio].queue

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def top(self, bio: cython.longlong) -> cython.longlong:
        """Return the uppermost bio that a piece or clone is of."""
        bio = self.bios[bio].root
        while self.bios[bio].upper >= 0:
            bio = self.bios[bio].upper
        return bio

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def stage(
        self,
        owner: cython.longlong,
        stage: cython.longlong,
        start: cython.longlong,
        end: cython.longlong,
    ) -> cython.void:
        """Add a stage."""
        at: cython.longlong = self.stage_count
        self.stage_count = at + 1
        self.stages[0, at] = owner
        self.stages[1, at] = stage
        self.stages[2, at] = start
        self.stages[3, at] = end

    def bio_rows(
        self,
        times: cython.const[cython.longlong][::1],
        numbers: cython.const[cython.longlong][::1],
        out: cython.longlong[:, ::1],
        stages: cython.longlong[:, ::1],
        doubt: cython.longlong,
    ):
        """Fill `out` and `stages` with whole bios, by number; return how many of each.

        times, numbers: of the events. out: `settler.BIO_COLUMNS`. stages: owner, stage, start, end;
        a bio has five at most. doubt: 0, of those that are settled, or HELD.
        """
        i: cython.longlong
        at: cython.longlong = 0
        final: cython.longlong
        request: cython.longlong
        number: cython.longlong
        queue: cython.longlong
        joined: cython.longlong
        insert: cython.longlong
        issue: cython.longlong
        end: cython.longlong
        data: cython.longlong
        held: cython.longlong
        self.stages = stages
        self.stage_count = 0
        for i in range(self.bio_count):
            if self.bios[i].doubt != doubt or self.bios[i].root != i:
                continue
            number = numbers[self.first_row_of_bio(i)]
            queue = times[self.bios[i].queue]
            out[0, at] = self.bios[i].queue
            out[1, at] = number
            out[2, at] = queue
            out[3, at] = -1
            out[4, at] = -1
            out[9, at] = self.bios[i].fragments
            out[10, at] = self.bios[i].requests
            out[11, at] = self.bios[i].dev
            out[12, at] = -1
            if self.bios[i].upper >= 0:
                out[12, at] = numbers[self.first_row_of_bio(self.bios[i].upper)]
            out[13, at] = numbers[self.first_row_of_bio(self.top(i))]
            if self.bios[i].ended >= 0:
                end = times[self.bios[i].ended]
                self.stage(number, _BIO_BASED, queue, end)
                out[5, at] = -1
                out[6, at] = -1
                out[7, at] = end
                out[8, at] = -1
                at += 1
                continue
            final = self.bios[i].final
            request = self.bios[final].request
            end = times[self.requests[request].complete]
            insert = -1
            issue = -1
            data = end
            held = self.bios[i].opf & self.preflush
            if self.requests[request].issue >= 0:
                issue = times[self.requests[request].issue]
            if self.requests[request].sequence:
                data = times[self.requests[request].data_end]
            if self.requests[request].insert >= 0:
                insert = times[self.requests[request].insert]
            if issue < 0:
                insert = -1
                out[3, at] = times[self.bios[final].got]
                self.stage(number, _FLUSH, queue, end)
            elif self.bios[final].joined >= 0:
                joined = times[self.bios[final].joined]
                out[4, at] = joined
                self.stage(number, _Q2M, queue, joined)
                if 0 <= insert < joined:  # the request was in the scheduler before
                    insert = -1
                    self.stage(number, _I2D, joined, issue)
                elif 0 <= insert <= issue:
                    self.stage(number, _M2I, joined, insert)
                    self.stage(number, _I2D, insert, issue)
                else:
                    insert = -1
                    self.stage(number, _M2D, joined, issue)
            elif self.bios[final].got < 0:  # neither G nor s is recorded
                insert = -1
                self.stage(number, _Q2D, queue, issue)
            else:
                joined = times[self.bios[final].got]
                out[3, at] = joined
                self.stage(number, _Q2G, queue, joined)
                if insert < joined or insert > issue:
                    insert = -1
                if insert >= 0:
                    self.stage(number, _PRE_FLUSH if held else _G2I, joined, insert)
                    self.stage(number, _I2D, insert, issue)
                else:
                    self.stage(number, _PRE_FLUSH if held else _G2D, joined, issue)
            if issue >= 0:
                self.last_stages(request, number, issue, end, data)
            out[5, at] = insert
            out[6, at] = issue
            out[7, at] = end
            out[8, at] = numbers[self.first_row(request)]
            at += 1
        return at, self.stage_count

    def request_rows(
        self,
        times: cython.const[cython.longlong][::1],
        numbers: cython.const[cython.longlong][::1],
        out: cython.longlong[:, ::1],
        stages: cython.longlong[:, ::1],
        doubt: cython.longlong,
    ):
        """Fill `out` and `stages` with requests, by number; return how many of each.

        out: `settler.REQUEST_COLUMNS`. stages: as of bios; a request has four at most. doubt: as
        of bios.
        """
        i: cython.longlong
        at: cython.longlong = 0
        head: cython.longlong
        first: cython.longlong
        number: cython.longlong
        start: cython.longlong
        insert: cython.longlong
        issue: cython.longlong
        end: cython.longlong
        data: cython.longlong
        held: cython.longlong
        self.stages = stages
        self.stage_count = 0
        for i in range(self.request_count):
            if self.requests[i].doubt != doubt:
                continue
            first = self.first_row(i)
            number = numbers[first]
            head = self.requests[i].head
            if self.requests[i].start < 0 and head >= 0 and self.bios[head].got >= 0:
                first = self.bios[head].got
            start = times[first]
            end = times[self.requests[i].complete]
            insert = -1
            issue = -1
            data = end
            held = self.requests[i].sequence
            if held:
                data = times[self.requests[i].data_end]
            if self.requests[i].insert >= 0:
                insert = times[self.requests[i].insert]
            if self.requests[i].issue < 0:
                self.stage(number, _FLUSH, start, end)
            else:
                issue = times[self.requests[i].issue]
                if insert >= 0 and insert <= issue:
                    self.stage(number, _PRE_FLUSH if held else _G2I, start, insert)
                    self.stage(number, _I2D, insert, issue)
                else:
                    self.stage(number, _G2D, start, issue)
                self.last_stages(i, number, issue, end, data)
            out[0, at] = self.requests[i].issue if issue >= 0 else self.first_row(i)
            out[1, at] = number
            out[2, at] = start
            out[3, at] = insert
            out[4, at] = issue
            out[5, at] = end
            out[6, at] = number
            if self.requests[i].lowest >= 0:
                first = self.top(self.requests[i].lowest)
                out[6, at] = numbers[self.first_row_of_bio(first)]
            out[7, at] = self.requests[i].bios
            out[8, at] = self.requests[i].complete
            out[9, at] = self.requests[i].flush
            out[10, at] = self.requests[i].issue >= 0
            at += 1
        return at, self.stage_count

    def edge_rows(self, numbers: cython.const[cython.longlong][::1], out: cython.longlong[:, ::1]):
        """Fill `out` with bio, request, sector and bytes of each piece of plain bios.

        Returns how many they are: bios that ended by c have none.
        """
        i: cython.longlong
        at: cython.longlong = 0
        for i in range(self.bio_count):
            if self.bios[i].doubt == 0 and self.bios[i].request >= 0:
                out[0, at] = numbers[self.first_row_of_bio(self.bios[i].root)]
                out[1, at] = numbers[self.first_row(self.bios[i].request)]
                out[2, at] = self.bios[i].sector
                out[3, at] = self.bios[i].left
                at += 1
        return at
