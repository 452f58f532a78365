# SPDX-License-Identifier: Apache-2.0
"""Draining the sites' ring, over buffers that play the kernel's part."""

import struct

import pytest

from biotrail.recorder.host.memory_limit import Room
from biotrail.recorder.probes.rings.barriers import NoBarrier
from biotrail.recorder.probes.sites.ring import SITE_LEVEL, SiteRing, fitting, ring_bytes
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import Kind

SIZE = 4096
PAGE = 4096
ENTRY = 80
BUSY, DISCARDED = 1 << 31, 1 << 30


class Kernel:
    """Writes entries as bpf_ringbuf_reserve() and bpf_ringbuf_submit() do."""

    def __init__(self, at: int = 0):
        self.consumer = bytearray(struct.pack("<Q", at).ljust(PAGE, b"\0"))
        self.produced = bytearray(PAGE + 2 * SIZE)
        self.head = at
        self.publish()
        self.ring = SiteRing(self.consumer, self.produced, SIZE, NoBarrier(), PAGE)

    def publish(self):
        struct.pack_into("<Q", self.produced, 0, self.head)

    def byte(self, position, value):
        """Both mappings are of the same memory."""
        for at in (position % SIZE, position % SIZE + SIZE):
            self.produced[PAGE + at] = value

    def reserve(self, cpu, time, mark=0, size=72):
        at = self.head
        record = struct.pack("<QQ", time | Kind.PAIR << 56, mark).ljust(64, b"\0")
        entry = struct.pack("<IIII", size | BUSY, 0, cpu, 0) + record
        for offset, value in enumerate(entry):
            self.byte(at + offset, value)
        self.head += ENTRY
        self.publish()
        return at

    def submit(self, at, flag=0):
        for offset, value in enumerate(struct.pack("<I", 72 | flag)):
            self.byte(at + offset, value)

    def put(self, cpu, time, mark=0):
        self.submit(self.reserve(cpu, time, mark))

    def tail(self):
        return struct.unpack_from("<Q", self.consumer)[0]


def marks(segment):
    return [
        struct.unpack_from("<Q", segment.data, at + 8)[0] for at in range(0, len(segment.data), 64)
    ]


def test_records_come_by_cpu_then_time():
    # GIVEN entries of two CPUs, one of which an interrupt wrote while another was being written
    kernel = Kernel()
    for cpu, time, mark in ((1, 30, 1), (0, 50, 2), (1, 20, 3), (0, 40, 4)):
        kernel.put(cpu, time, mark)
    # WHEN they are drained
    segments = kernel.ring.drain()
    # THEN each CPU has a segment with its records by time, and the space is free
    assert [(s.cpu, s.level, s.position, marks(s)) for s in segments] == [
        (0, SITE_LEVEL, 0, [4, 2]),
        (1, SITE_LEVEL, 0, [3, 1]),
    ]
    assert kernel.tail() == 4 * ENTRY
    assert kernel.ring.fill() == 0
    # AND there is nothing more
    assert kernel.ring.drain() == []


def test_positions_go_on():
    # GIVEN a CPU that was drained before WHEN it writes again THEN its position goes on
    kernel = Kernel()
    kernel.put(5, 1)
    kernel.ring.drain()
    kernel.put(5, 2)
    kernel.put(5, 3)
    (segment,) = kernel.ring.drain()
    assert (segment.position, len(segment.data)) == (64, 128)


def test_a_record_that_is_being_written_holds_back_those_behind_it():
    # GIVEN a busy entry between two complete ones
    kernel = Kernel()
    kernel.put(0, 1, 1)
    busy = kernel.reserve(0, 2, 2)
    kernel.put(1, 3, 3)
    # WHEN it is drained THEN only the first is taken
    assert [marks(s) for s in kernel.ring.drain()] == [[1]]
    assert kernel.ring.fill() == 2 * ENTRY / SIZE
    # WHEN the entry is complete THEN the rest is taken
    kernel.submit(busy)
    assert [marks(s) for s in kernel.ring.drain()] == [[2], [3]]


def test_entries_wrap_around():
    # GIVEN a ring that is read from shortly before its end
    kernel = Kernel(at=SIZE * 7 - 24)
    for mark in range(5):
        kernel.put(0, mark + 1, mark)
    # WHEN it is drained THEN all records are whole
    assert [marks(s) for s in kernel.ring.drain()] == [[0, 1, 2, 3, 4]]


def test_discarded_entries_are_skipped():
    # GIVEN an entry that its program gave back WHEN it is drained THEN it is no record
    kernel = Kernel()
    kernel.submit(kernel.reserve(0, 1, 1), DISCARDED)
    kernel.put(0, 2, 2)
    assert [marks(s) for s in kernel.ring.drain()] == [[2]]
    kernel.submit(kernel.reserve(0, 3, 3), DISCARDED)
    assert kernel.ring.drain() == []


def test_an_entry_of_another_size_is_refused():
    # GIVEN an entry of another program WHEN it is drained THEN one message says so
    kernel = Kernel()
    at = kernel.reserve(0, 1)
    for offset, value in enumerate(struct.pack("<I", 64)):
        kernel.byte(at + offset, value)
    with pytest.raises(ProbeError, match="something else"):
        kernel.ring.drain()


@pytest.mark.parametrize(
    ("wanted", "size"), [(None, 16 << 20), (70_000, 1 << 17), (1 << 20, 1 << 20)]
)
def test_sizes_are_powers_of_two(wanted, size):
    # GIVEN a wanted size WHEN the ring's is chosen THEN it is a power of two, at least as large
    assert ring_bytes(wanted) == size


def test_too_small_a_ring_is_refused():
    # GIVEN a size below the least WHEN it is asked for THEN the message says what can be
    with pytest.raises(ProbeError, match="choose between"):
        ring_bytes(4096)


@pytest.mark.parametrize(
    ("room", "size"),
    [
        (None, 16 << 20),
        (48 << 20, 16 << 20),
        ((48 << 20) - 1, 8 << 20),
        (33 << 20, 1 << 20),
        (0, 64 << 10),
        (-(1 << 20), 64 << 10),
    ],
)
def test_the_ring_leaves_the_recorder_room_below_a_memory_limit(room, size):
    # GIVEN a ring of 16 MiB, and so many bytes left below the limit
    # WHEN it is made to fit
    # THEN it is halved until 32 MiB stay, or it is as small as it can be
    assert fitting(16 << 20, None if room is None else Room(room, "")) == size
