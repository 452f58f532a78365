# SPDX-License-Identifier: Apache-2.0
"""Draining rings, over a buffer that plays the kernel's part."""

import errno
import os
import platform
from pathlib import Path

import numpy as np
import pytest

from biotrail.recorder.accounting.loss import LossCounters
from biotrail.recorder.probes.kernel.libbpf import BpfObject
from biotrail.recorder.probes.programs import object_path
from biotrail.recorder.probes.rings import barriers, head_stores
from biotrail.recorder.probes.rings.barriers import Barrier, machine_barrier, weak_barrier
from biotrail.recorder.probes.rings.entries import EntryRing
from biotrail.recorder.probes.rings.head_stores import with_exchanges
from biotrail.recorder.probes.rings.ring import LEVELS, Rings, RingSizes
from biotrail.recorder.probes.rings.waker import Waker
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import Kind

SIZES = RingSizes(ring_bytes=32 << 10, upper_bytes=4096)
CPUS = 3


class Barriers:
    """Notes what was asked for."""

    def __init__(self):
        self.calls = []

    def acquire(self):
        self.calls.append("acquire")

    def release(self):
        self.calls.append("release")


class Kernel:
    """Writes words into rings as the programs do: data first, the head last."""

    def __init__(self, sizes=SIZES, cpus=CPUS):
        self.sizes = sizes
        self.buffer = bytearray(sizes.area_bytes * cpus)
        self.barriers = Barriers()
        self.heads = {}
        self.rings = Rings(self.buffer, cpus, sizes, self.barriers)

    def put(self, cpu, level, words):
        base = cpu * self.sizes.area_bytes
        ring = base + self.sizes.offset(level)
        head = self.heads.get((cpu, level), 0)
        for word in words:
            at = ring + head % self.sizes.by_level[level]
            self.buffer[at : at + 8] = int(word).to_bytes(8, "little")
            head += 8
        self.publish(cpu, level, head)

    def publish(self, cpu, level, head):
        self.heads[cpu, level] = head
        at = cpu * self.sizes.area_bytes + 8 + 8 * level
        self.buffer[at : at + 8] = head.to_bytes(8, "little")

    def tail(self, cpu, level):
        at = cpu * self.sizes.area_bytes + 2112 + 64 * level
        return int.from_bytes(self.buffer[at : at + 8], "little")

    def count(self, offset, value, cpu=0):
        at = cpu * self.sizes.area_bytes + offset
        self.buffer[at : at + 8] = value.to_bytes(8, "little")


def words(segment):
    return np.frombuffer(segment.data, "<u8").tolist()


def test_each_ring_gives_one_segment_and_its_place_back():
    # GIVEN rings nobody wrote to
    kernel = Kernel()
    # WHEN they are drained THEN there is nothing, and no barrier was paid
    assert kernel.rings.drain() == []
    assert kernel.barriers.calls == []
    assert kernel.rings.fill() == 0.0
    # GIVEN words on two CPUs and two levels
    kernel.put(0, 0, [1, 2, 3])
    kernel.put(2, 1, [4])
    kernel.put(2, 0, [5, 6])
    # WHEN they are drained
    segments = kernel.rings.drain()
    # THEN each ring is one segment, by CPU and level
    found = [(s.cpu, s.level, s.position, words(s)) for s in segments]
    assert found == [(0, 0, 0, [1, 2, 3]), (2, 0, 0, [5, 6]), (2, 1, 0, [4])]
    # AND the tails follow the heads, each after its copy
    assert (kernel.tail(0, 0), kernel.tail(2, 0), kernel.tail(2, 1)) == (24, 16, 8)
    assert kernel.barriers.calls == ["acquire", "release", "release", "release"]
    assert kernel.rings.drain() == []
    # GIVEN a ring that was drained before
    kernel.put(1, 0, [1, 2])
    kernel.rings.drain()
    # WHEN more is written and drained
    kernel.put(1, 0, [3])
    (segment,) = kernel.rings.drain()
    # THEN the segment begins where the last ended
    assert (segment.position, words(segment)) == (16, [3])


def test_a_wrap_a_full_ring_and_a_pad_are_one_contiguous_segment():
    # GIVEN a ring that is drained three quarters through
    kernel = Kernel()
    quarter = SIZES.upper_bytes // 32
    kernel.put(0, 2, range(3 * quarter))
    kernel.rings.drain()
    # WHEN more is written than fits before its end
    kernel.put(0, 2, range(1000, 1000 + 2 * quarter))
    (segment,) = kernel.rings.drain()
    # THEN both parts are joined in order
    assert segment.position == 3 * quarter * 8
    assert words(segment) == list(range(1000, 1000 + 2 * quarter))
    # GIVEN a ring filled to the last byte
    kernel = Kernel()
    count = SIZES.upper_bytes // 8
    kernel.put(0, 1, range(count))
    assert kernel.rings.fill() == 1.0
    # WHEN it is drained
    (segment,) = kernel.rings.drain()
    # THEN all of it is there, and the ring is empty again
    assert words(segment) == list(range(count))
    assert kernel.rings.fill() == 0.0
    # AND again when it is filled from a place in its middle
    kernel.put(0, 1, [7])
    kernel.rings.drain()
    kernel.put(0, 1, range(count))
    (segment,) = kernel.rings.drain()
    assert words(segment) == list(range(count))
    # GIVEN a record, a pad, and the next block's record
    kernel = Kernel()
    kernel.put(0, 0, [1] * 511)
    kernel.put(0, 0, [int(Kind.PAD) << 56])
    kernel.publish(0, 0, 4096)
    kernel.put(0, 0, [2])
    # WHEN they are drained
    (segment,) = kernel.rings.drain()
    # THEN positions stay true: the next record lies at the block's start
    assert len(segment.data) == 4096 + 8
    assert words(segment)[512] == 2


def test_fill_damage_and_the_end_of_rings():
    # GIVEN a half full small ring and a little in a large one
    kernel = Kernel()
    kernel.put(0, 0, [1])
    kernel.put(1, 1, [0] * (SIZES.upper_bytes // 16))
    # WHEN the fill is asked for THEN the small one counts
    assert kernel.rings.fill() == 0.5
    # GIVEN a head further ahead than its ring is long
    kernel = Kernel()
    kernel.publish(1, 0, SIZES.ring_bytes + 8)
    # WHEN it is drained THEN the message names the ring
    with pytest.raises(ProbeError, match="CPU 1 level 0"):
        kernel.rings.drain()
    # GIVEN rings over a buffer
    kernel = Kernel()
    # WHEN they are closed
    kernel.rings.close()
    # THEN nothing holds the buffer any more
    kernel.buffer.clear()


def test_losses_by_cpu_level_and_kind():
    # GIVEN counters as the kernel lays them out
    kernel = Kernel()
    kernel.count(64 + 8 * Kind.Q, 5, cpu=1)
    kernel.count(64 + 8 * (64 + Kind.C), 7, cpu=2)
    kernel.count(64 + 8 * (2 * 64 + Kind.D), 9)
    kernel.count(64 + 8 * 3 * 64 + 8 * Kind.CHAIN, 3, cpu=1)
    # WHEN they are read
    lost, deep = kernel.rings.lost(), kernel.rings.too_deep()
    # THEN each stands in its place
    assert lost.shape == (CPUS, LEVELS, 256)
    assert deep.shape == (CPUS, 256)
    assert (lost[1, 0, Kind.Q], lost[2, 1, Kind.C], lost[0, 2, Kind.D]) == (5, 7, 9)
    assert lost.sum() == 21
    assert deep[1, Kind.CHAIN] == deep.sum() == 3
    # GIVEN counters that were sampled
    kernel = Kernel()
    loss = LossCounters(start_ns=100)
    kernel.count(64 + 8 * Kind.Q, 5, cpu=1)
    loss.sample_rings(kernel.rings.lost(), kernel.rings.too_deep(), 200)
    seen = kernel.rings.lost()
    # WHEN nothing is lost THEN the array is the same, which nobody can write: no window
    assert kernel.rings.lost() is seen
    assert not seen.flags.writeable
    assert loss.sample_rings(kernel.rings.lost(), kernel.rings.too_deep(), 300) == []
    # WHEN something is THEN the window begins at the last sample, though that had the same array
    kernel.count(64 + 8 * Kind.Q, 6, cpu=1)
    [window] = loss.sample_rings(kernel.rings.lost(), kernel.rings.too_deep(), 400)
    assert (window["start"], window["end"], window["count"]) == (300, 400, 1)
    assert seen[1, 0, Kind.Q] == 5


@pytest.mark.parametrize("cpus", [1, 2, 8, 64, 256, 1024, 8192])
def test_default_sizes_are_bounded(cpus):
    # GIVEN a number of CPUs WHEN sizes are chosen
    sizes = RingSizes.choose(cpus)
    # THEN they are powers of two, of whole blocks, and within the limit where that is possible
    for size in sizes.by_level:
        assert size & (size - 1) == 0
        assert size % 4096 == 0
    assert sizes.upper_bytes == sizes.ring_bytes // 8
    assert sizes.ring_bytes <= 16 << 20
    assert cpus * sizes.area_bytes <= 256 << 20 or sizes.ring_bytes == 64 << 10


def test_a_size_asked_for_is_rounded_up_or_refused():
    # GIVEN a size that is no power of two WHEN it is asked for
    # THEN the next one is taken, whatever the number of CPUs
    assert RingSizes.choose(64, 3 << 20).ring_bytes == 4 << 20
    assert RingSizes.choose(1, 64 << 10) == RingSizes(64 << 10, 8 << 10)
    # WHEN one is asked for that cannot be THEN the message says what can
    for size in (0, 4096, 1 << 30):
        with pytest.raises(ProbeError, match="choose between"):
            RingSizes.choose(1, size)


@pytest.mark.parametrize("ordered", [True, False])
def test_the_kernel_offers_the_barriers_of_other_machines(ordered):
    # GIVEN a barrier that arm64 needs
    barrier = weak_barrier(ordered)
    # WHEN it is used THEN the system call is accepted
    assert barrier.acquire() in (0, None)
    assert barrier.release() == 0


# Stores of ring heads are made exchanges: all of them, and nothing else.

SELF_MOVE = 0x22BF  # r2 = r2
STORE = 0x127B  # *(u64 *)(r2 + 0) = r1
XCHG = 0xE1000012DB  # r1 = xchg_64(r2 + 0, r1)
OTHERS = (
    [0x227B, STORE],  # no move
    [0x21BF, STORE],  # a move from r2 to r1
    [0x33BF, STORE],  # r3 = r3
    [SELF_MOVE, STORE | 8 << 16],  # at an offset
    [SELF_MOVE, 0x1263],  # of 32 bits
    [SELF_MOVE | 1 << 32, STORE],  # with an immediate
    [STORE, SELF_MOVE],
    [SELF_MOVE],
    [],
)

MARKED = {"bt_queue", "bt_queue_q", "bt_issue_p", "bt_complete", "bt_sys_exit", "bt_jbd_end"}
UNMARKED = {"bt_fork", "bt_nvme_setup", "bt_scsi_start"}


def code(*words: int) -> bytes:
    return np.array(words, "<u8").tobytes()


def test_marked_stores_alone_are_exchanges() -> None:
    # GIVEN a program with two marked stores, among others
    before = code(0xB7, SELF_MOVE, STORE, STORE, 0x77BF, 0x877B, 0x95)
    # WHEN it is rewritten
    after = with_exchanges(before)
    # THEN these are exchanges of the same operands, and nothing else has changed
    assert after == code(0xB7, SELF_MOVE, XCHG, STORE, 0x77BF, 0xE1000087DB, 0x95)
    # AND a program with a store that is not marked is as before
    for words in OTHERS:
        assert with_exchanges(code(*words)) == code(*words)


def marks(code: bytes) -> int:
    """How many stores of these instructions are made exchanges."""
    before, after = (np.frombuffer(words, "<u8") for words in (code, with_exchanges(code)))
    return int((before != after).sum())


def test_every_program_that_writes_records_is_marked() -> None:
    # GIVEN the installed object
    bpf = BpfObject(object_path())
    counts: list[int] = []

    def count(code: bytes) -> bytes:
        counts.append(marks(code))
        return with_exchanges(code)

    try:
        # WHEN all its programs are rewritten
        bpf.rewrite(count)
        named = {name: marks(bpf.instructions(name)) for name in ("bt_queue", "bt_fork")}
    finally:
        bpf.close()
    # THEN it had no marks but theirs: functions of their own, which programs call, publish nothing
    path = object_path()
    raw = path.read_bytes()
    assert sum(counts) == marks(raw[: len(raw) // 8 * 8])
    # AND as many programs as have records publish; none is left that does it by a store
    assert sum(number > 0 for number in counts) > 50
    assert named == {"bt_queue": 0, "bt_fork": 0}


def test_helpers_of_drivers_publish_nothing() -> None:
    # GIVEN the installed object
    bpf = BpfObject(object_path())
    try:
        found = {name: marks(bpf.instructions(name)) for name in MARKED | UNMARKED}
    finally:
        bpf.close()
    # THEN programs of events have marks, and those that keep steps for others' records have none
    assert {name for name, number in found.items() if number} == MARKED


def test_memory_that_cannot_be_mapped_is_said() -> None:
    # GIVEN a file that has no memory  WHEN rings are mapped  THEN the message says what and why
    reason = os.strerror(errno.ENODEV)
    with Path("/dev/null").open("r+b") as file:
        with pytest.raises(ProbeError, match=f"^the rings .* bytes. .* mapped: {reason}; choose s"):
            Rings.map(file.fileno(), CPUS, SIZES, Barrier())
        with pytest.raises(ProbeError, match=f"^the ring .8192 .* mapped: {reason}; choose a"):
            EntryRing.map(file.fileno(), 8192, np.dtype([("cpu", "<u4")]))


@pytest.mark.parametrize("ordered", [False, True])
def test_barriers_by_machine(ordered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN machines, whose number of membarrier(2) is this machine's
    number = barriers._MEMBARRIER[platform.machine()]
    monkeypatch.setitem(barriers._MEMBARRIER, "aarch64", number)
    # WHEN barriers are chosen for programs with or without exchanges  THEN x86-64 has none
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert machine_barrier(ordered) == Barrier()
    # AND elsewhere both are a full barrier of this CPU, or the first is one of all CPUs
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    found = machine_barrier(ordered)
    assert found.release.args == (number, barriers._GLOBAL_EXPEDITED, 0, 0)
    assert (found.acquire is found.release) == ordered


def test_exchanges_are_not_wanted_on_x86(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN x86-64, where no store passes another one
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    # WHEN programs are loaded  THEN they stay as they are, and nothing is tried
    monkeypatch.setattr(head_stores, "exchanges_offered", lambda: pytest.fail("was tried"))
    assert not head_stores.ordered_heads()


# What has the programs wake the recorder: the flag, and the ring that it polls.


class Watching:
    """Tells what the flag was when the full barrier came."""

    def __init__(self, asleep: bytearray) -> None:
        self._asleep = asleep
        self.seen: list[int] = []

    def release(self) -> None:
        self.seen.append(self._asleep[0])


def test_the_flag_is_set_behind_what_was_told_and_before_the_barrier() -> None:
    # GIVEN a ring in which two wake-ups were told, which nobody has taken
    asleep, consumer, produced = bytearray(8), bytearray(8), bytearray(b"\x20".ljust(8, b"\0"))
    barrier = Watching(asleep)
    waker = Waker(asleep, consumer, produced, 7, barrier)
    # WHEN it is armed
    waker.arm()
    # THEN they are taken, so that they do not wake once more, and the flag precedes the barrier
    assert consumer == produced
    assert barrier.seen == [1]
    assert waker.descriptor == 7
    # WHEN the recorder is awake THEN the flag is down
    waker.disarm()
    assert asleep == bytes(8)
    waker.close()
