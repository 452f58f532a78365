# SPDX-License-Identifier: Apache-2.0
"""Followed objects: their functions, programs and kept hits, beside the block layer's events."""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.host.memory_limit import Room
from biotrail.recorder.log import LogReader, Segment
from biotrail.recorder.probes.backend import ProgramInfo
from biotrail.recorder.probes.rings.barriers import Barrier
from biotrail.recorder.probes.sites import attaching, follow
from biotrail.recorder.probes.sites.attaching import Way
from biotrail.recorder.probes.sites.base import (
    SITE_ENTRY,
    SITE_LEVEL,
    SiteRing,
    ring_bytes,
)
from biotrail.recorder.probes.sites.follow import (
    FollowProbes,
    JoinedProbes,
    follow_beside,
)
from biotrail.recorder.probes.sites.follow_options import PART, FollowOptions
from biotrail.recorder.schema import follow_structs
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.follow_structs import KEPT_HITS, SITE_BIRTH, SITE_DEATH, LifeState
from biotrail.recorder.schema.records import BY_KIND, Kind, Role
from biotrail.recorder.session.session import record
from biotrail.recorder.sites.following import FollowPlan, PlannedSite
from biotrail.recorder.sites.types import Taking
from tests.support.fake_probes import FakeProbes, options
from tests.support.site_logs import FOLLOW

# Hits of candidates that were kept in the kernel, and lives that end as nothing more comes.

HIT = BY_KIND[Kind.HIT].dtype
SLOTS = 4
SECOND = 1_000_000_000


class FakeMaps:
    """The kernel's maps: objects by address, and free slots."""

    def __init__(self) -> None:
        self.objects: dict[int, int] = {}
        self.freed: list[int] = []

    def put(self, name: str, key: Any, value: Any) -> None:
        assert (name, key) == ("bt_free_lives", None)
        self.freed.append(value.value)

    def get(self, name: str, key: Any, value: Any) -> bool:
        value.value = self.objects.get(key.value, 0)
        return key.value in self.objects

    def remove(self, name: str, key: Any) -> None:
        del self.objects[key.value]


@pytest.fixture
def maps() -> FakeMaps:
    return FakeMaps()


def followed(maps: Any, slower_ns: int = 0, *, has_deaths: bool = True) -> FollowProbes:
    choice = FollowOptions("request", at_once=SLOTS, slower_ns=slower_ns)
    end = Taking("blk_end", "", "function", 0, 1, 0, 0)
    plan = FollowPlan("request", "multi", (PlannedSite(0, end, "multi", SITE_DEATH * has_deaths),))
    made = FollowProbes(plan, Way("multi"), choice, Filters())
    made._object = maps
    made._lives = np.zeros(SLOTS, follow._LIFE)
    made._hits = np.zeros(SLOTS * KEPT_HITS, SITE_ENTRY)
    return made


def keep(made: FollowProbes, slot: int, place: int, life: int, time: int) -> None:
    """Put a hit where the programs put it."""
    hit = np.zeros(1, HIT)
    hit["head"], hit["life"] = time, life
    entry = np.zeros(1, SITE_ENTRY)
    entry["cpu"] = 1
    raw = entry.view(np.uint8)
    raw[8:] = hit.view(np.uint8)
    made._hits[slot * KEPT_HITS + place] = entry[0]


def test_hits_of_a_long_life_are_taken_once_and_its_slot_is_free(maps: FakeMaps) -> None:
    # GIVEN a long life that has ended, whose slot holds hits of a former life too
    made = followed(maps, slower_ns=1)
    for place, life in ((0, 7), (1, 7), (2, 6), (KEPT_HITS - 1, 7)):
        keep(made, 2, place, life, 100 + place)
    made._lives[2] = (0, 0, 0, 2, 0, 0, 7, LifeState.KEPT)
    # WHEN kept hits are taken
    taken = made.take_kept()
    # THEN they are the life's own, and the slot is free for the next
    assert taken["head"].tolist() == [100, 101, 100 + KEPT_HITS - 1]
    assert maps.freed == [2]
    assert made._lives["state"][2] == LifeState.TAKEN
    # AND they are taken once
    assert len(made.take_kept()) == 0


@pytest.mark.parametrize("slower_ns", [0, SECOND])
def test_a_life_without_hits_after_its_last_site_is_forgotten(
    maps: FakeMaps, slower_ns: int
) -> None:
    # GIVEN two lives that passed a last site, one of them just now, and one that did not
    made = followed(maps, slower_ns)
    now = 100 * SECOND
    maps.objects = {0x1000: 0, 0x2000: 1, 0x3000: 2}
    old, new = now - SECOND, now - 1
    made._lives[0] = (0x1000, old, old, 0, 0, old, 1, LifeState.OPEN)
    made._lives[1] = (0x2000, new, new, 0, 0, new, 2, LifeState.OPEN)
    made._lives[2] = (0x3000, old, old, 0, 0, 0, 3, LifeState.OPEN)
    # WHEN time passes
    made.forget_idle(now)
    # THEN the one with nothing after it is over, and too quick for --slower
    assert maps.objects == {0x2000: 1, 0x3000: 2}
    assert (maps.freed, made.idle) == ([0], 1)
    assert made._lives["state"][0] == LifeState.DROPPED


def test_idle_lives_are_kept_if_long_and_left_alone_if_another_s(maps: FakeMaps) -> None:
    # GIVEN a life of two seconds up to its newest hit
    made = followed(maps, slower_ns=SECOND)
    maps.objects = {0x1000: 0}
    made._lives[0] = (0x1000, SECOND, 3 * SECOND, 1, 0, 3 * SECOND, 1, LifeState.OPEN)
    keep(made, 0, 0, 1, 5)
    # WHEN it is idle
    made.forget_idle(100 * SECOND)
    # THEN its hits are written
    assert len(made.take_kept()) == 1
    # GIVEN a slot whose object is followed in another slot
    made = followed(maps)
    maps.freed.clear()
    maps.objects = {0x1000: 3}
    made._lives[0] = (0x1000, 1, 1, 0, 0, 1, 1, LifeState.OPEN)
    made.forget_idle(100 * SECOND)
    # THEN nothing is forgotten
    assert maps.objects == {0x1000: 3}
    assert maps.freed == []
    # GIVEN a type of which no deaths are seen
    made = followed(maps, has_deaths=False)
    maps.objects = {0x1000: 0}
    made._lives[0] = (0x1000, SECOND, SECOND, 0, 0, 0, 1, LifeState.OPEN)
    made.forget_idle(2 * SECOND)
    assert made.idle == 0
    made.forget_idle(4 * SECOND)
    assert made.idle == 1


# Attaching to many functions at once, some of which the kernel refuses.


def site(index: int) -> PlannedSite:
    taking = Taking(f"function_{index}", "", "function", 1, 3, 4, 0)
    return PlannedSite(index, taking, "multi", SITE_BIRTH, 1000 + index)


class FakeLinks:
    """Attaches all but some; descriptors are of /dev/null."""

    def __init__(self, refused: Sequence[int] = (), number: int = errno.EINVAL) -> None:
        self.refused, self.number = set(refused), number
        self.calls = 0

    def __call__(self, program: int, places: Sequence[int], *_: object, returns: bool) -> int:
        self.calls += 1
        if self.refused & {place - 1000 for place in places}:
            raise OSError(self.number, os.strerror(self.number))
        return os.open("/dev/null", os.O_RDONLY)


def test_functions_are_attached_at_once_but_for_those_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def attach(links: FakeLinks, count: int) -> FollowProbes:
        programs = {"entry": 7, "return": 8}
        monkeypatch.setattr(attaching, "functions", links)
        monkeypatch.setattr(follow.Template, "of", Mock())
        monkeypatch.setattr(FollowProbes, "_load_for", lambda self, role, *_: programs[role])
        made = followed(Mock())
        with made._links:
            made._attach_many(Mock(), [site(i) for i in range(count)])
        return made

    # GIVEN functions that the kernel takes  THEN there is one link of returns, one of entries
    links = FakeLinks()
    assert attach(links, 1000).functions == set(range(1000))
    assert links.calls == 2
    # AND for none there is no call
    links = FakeLinks()
    assert (attach(links, 0).functions, links.calls) == (set(), 0)
    # GIVEN two functions of a thousand that the kernel refuses
    links = FakeLinks([17, 800])
    attached = attach(links, 1000)
    # THEN all others are attached, in few calls, and these are named with the reason
    assert attached.functions == set(range(1000)) - {17, 800}
    assert attached.refused == {"refused: Invalid argument": ["function_17", "function_800"]}
    assert links.calls < 150
    # GIVEN a kernel that permits nothing  THEN it is asked once, and the message has the reason
    links = FakeLinks([3], errno.EPERM)
    with pytest.raises(ProbeError, match="Operation not permitted"):
        attach(links, 10)
    assert links.calls == 1


def test_a_cookie_has_the_sites_index_role_meaning_and_places() -> None:
    # GIVEN a site  WHEN its cookie is made
    cookie = follow.cookie(site(300), Role.RETURN, 5)
    # THEN each part is where the programs look (bpf/hits.h)
    assert cookie & 0xFFFF == 300
    assert cookie >> 16 & 3 == Role.RETURN
    assert cookie & SITE_BIRTH
    assert cookie >> 32 & 0xFFFF == 4
    assert cookie >> 48 == 5
    # GIVEN what the programs are loaded with  THEN it is as large as the section
    assert ctypes.sizeof(follow_structs.FOLLOW.ctype) % 8 == 0
    assert follow._LIFE.itemsize == 56


# Followed objects beside the block layer's events: two backends as one.


def both(refusal: Exception | None = None) -> tuple[JoinedProbes, FakeProbes, Mock]:
    """Both; what follows has no kernel, and gives one HIT a poll."""
    block = FakeProbes()
    lost = np.zeros((2, 3, 256), np.uint64)
    lost[0, 0, Kind.HIT] = 4
    stacks = [{"site": {7: np.array([1, 2], np.uint64)}}]
    lives = Mock(
        **{
            "fill.return_value": 0.75,
            "lost.return_value": lost,
            "runs.return_value": 11,
            "programs.return_value": [ProgramInfo("typed x", "H", "x", True, "", 5, 500, 0)],
            "backend_facts.return_value": {"backend": "core", "sites": {"follow": FOLLOW}},
            "end_facts.return_value": {"sites": {"follow": {"born": 3, "ended": 2}}},
            "fresh_stacks.side_effect": chain(stacks, repeat({"site": {}})),
            "short_of_memory.return_value": "",
            "given": 0,
        }
    )

    def drain() -> list[Segment]:
        if "follow detach" in block.calls:
            return []
        row = np.zeros(1, HIT)
        row["head"] = int(Kind.HIT) << 56 | 1_000 + lives.given
        lives.given += 1
        return [Segment(0, 3, (lives.given - 1) * HIT.itemsize, row.tobytes())]

    lives.drain.side_effect = drain
    for name in ("open", "attach", "detach", "close"):
        note = partial(block.calls.append, f"follow {name}")
        getattr(lives, name).side_effect = note
    lives.open.side_effect = refusal or lives.open.side_effect
    return JoinedProbes(block, lives), block, lives


def test_both_are_recorded_into_one_log(tmp_path: Any) -> None:
    # GIVEN both  WHEN a recording of a moment is made
    probes, block, lives = both()
    summary = record(options(tmp_path / "log", duration=0.1), probes=probes)
    # THEN the lives begin last and end first
    order = [call for call in block.calls if call != "last"]
    assert order == [
        *("open", "follow open", "attach", "follow attach"),
        *("follow detach", "detach", "follow close", "close"),
    ]
    # AND the log has the records of both, what is followed, and what became of it
    reader = LogReader(tmp_path / "log")
    found = b"".join(bytes(s.data) for chunk in reader.chunks() for s in chunk.segments)
    assert len(found) == block.given * block.size + lives.given * HIT.itemsize
    assert reader.header["sites"] == {"follow": FOLLOW}
    assert "hit" in str(reader.header["schema"])
    assert reader.end is not None
    assert reader.end["sites"] == {"follow": {"born": 3, "ended": 2}}
    assert next(note for name, note in reader.notes if name == "stacks")["site"].keys() == {"7"}
    assert summary.followed == {"born": 3, "ended": 2}
    # AND losses of both
    assert summary.lost[Kind.HIT] == 4
    # GIVEN both  THEN rings are as full as the fuller, and programs that follow are a part
    probes, block, _ = both()
    block.lost_records[1, 2, Kind.Q] = 2
    assert probes.fill() == 0.75
    lost = probes.lost()
    assert (lost[1, 2, Kind.Q], lost[0, 0, Kind.HIT]) == (2, 4)
    assert {program.part for program in probes.programs()} == {"", PART}
    assert probes.path_runs().by_part == {PART: 11}
    assert probes.runs() == block.runs()
    assert (probes.backend, probes.site_stacks) == ("core", True)


def test_what_cannot_be_followed_leaves_nothing() -> None:
    # GIVEN a kernel that refuses what follows  WHEN opened
    probes, block, _ = both(ProbeError("no ring"))
    with pytest.raises(ProbeError, match="no ring"):
        probes.open()
    # THEN the other is closed
    assert block.calls == ["open", "close"]
    # GIVEN the backend of kernels without types  THEN one message says that it will not do
    block = FakeProbes()
    block.backend = "bcc"
    with pytest.raises(ProbeError, match="--follow needs the core backend"):
        follow_beside(block, FollowOptions("request"), Filters(), [])


def test_a_partitions_whole_disk_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a partition and a disk, and filters
    asked: list[tuple[str, str, int]] = []

    def plan(struct: str, way: str, functions: int) -> tuple[FollowPlan, Way]:
        asked.append((struct, way, functions))
        return FollowPlan(struct, "typed", ()), Way("typed", "")

    monkeypatch.setattr(follow, "planned", plan)
    wish = FollowOptions("request", 7, way="typed", max_functions=5)
    # WHEN requests are to be followed
    made = follow_beside(FakeProbes(), wish, Filters(pids=(3,)), [(8, 9), (8, 0), (7, 0)])
    # THEN objects, which name disks alone, are chosen by these, and by the same tasks
    probes: FollowProbes = made._follow
    assert asked == [("request", "typed", 5)]
    assert list(probes.devices) == [(8, 0), (7, 0)]
    assert probes.filters.pids == (3,)
    assert (probes.options.every, probes.options.at_once) == (7, 1000)


# Draining the sites' ring, over buffers that play the kernel's part.

SIZE = 4096
PAGE = 4096
ENTRY = 80
BUSY, DISCARDED = 1 << 31, 1 << 30


class Kernel:
    """Writes entries as bpf_ringbuf_reserve() and bpf_ringbuf_submit() do."""

    def __init__(self, at: int = 0):
        self.consumer = bytearray(struct.pack("<Q", at).ljust(PAGE, b"\0"))
        self.produced = bytearray(struct.pack("<Q", at).ljust(PAGE + 2 * SIZE, b"\0"))
        self.head = at
        self.ring = SiteRing(SITE_ENTRY, self.consumer, self.produced, SIZE, Barrier(), PAGE)

    def write(self, position, data):
        """Both mappings are of the same memory."""
        for offset, value in enumerate(data, position):
            for at in (offset % SIZE, offset % SIZE + SIZE):
                self.produced[PAGE + at] = value

    def reserve(self, cpu, time, mark=0):
        at = self.head
        record = struct.pack("<QQ", time | Kind.PAIR << 56, mark).ljust(64, b"\0")
        self.write(at, struct.pack("<IIII", 72 | BUSY, 0, cpu, 0) + record)
        self.head += ENTRY
        struct.pack_into("<Q", self.produced, 0, self.head)
        return at

    def submit(self, at, length=72):
        self.write(at, struct.pack("<I", length))

    def put(self, cpu, time, mark=0):
        self.submit(self.reserve(cpu, time, mark))

    def drained(self):
        """The marks of each segment's records."""
        return [
            [mark for _, mark, *_ in struct.iter_unpack("<8Q", segment.data)]
            for segment in self.ring.drain()
        ]


def test_records_come_by_cpu_then_time():
    # GIVEN entries of two CPUs, one of which an interrupt wrote while another was being written
    kernel = Kernel()
    for cpu, time, mark in ((1, 30, 1), (0, 50, 2), (1, 20, 3), (0, 40, 4)):
        kernel.put(cpu, time, mark)
    # WHEN they are drained  THEN each CPU has a segment with its records by time
    assert kernel.drained() == [[4, 2], [3, 1]]
    # AND the space is free, and there is nothing more
    assert struct.unpack_from("<Q", kernel.consumer)[0] == 4 * ENTRY
    assert (kernel.ring.fill(), kernel.ring.drain()) == (0, [])
    # GIVEN a CPU that was drained before WHEN it writes again THEN its position goes on
    kernel = Kernel()
    kernel.put(5, 1)
    kernel.ring.drain()
    kernel.put(5, 2)
    kernel.put(5, 3)
    (segment,) = kernel.ring.drain()
    assert (segment.cpu, segment.level) == (5, SITE_LEVEL)
    assert (segment.position, len(segment.data)) == (64, 128)
    # GIVEN a ring that is read from shortly before its end
    kernel = Kernel(at=SIZE * 7 - 24)
    for mark in range(5):
        kernel.put(0, mark + 1, mark)
    # WHEN it is drained THEN all records are whole
    assert kernel.drained() == [[0, 1, 2, 3, 4]]


def test_entries_that_are_being_written_or_given_back():
    # GIVEN a busy entry between two complete ones
    kernel = Kernel()
    kernel.put(0, 1, 1)
    busy = kernel.reserve(0, 2, 2)
    kernel.put(1, 3, 3)
    # WHEN it is drained THEN only the first is taken
    assert kernel.drained() == [[1]]
    assert kernel.ring.fill() == 2 * ENTRY / SIZE
    # WHEN the entry is complete THEN the rest is taken
    kernel.submit(busy)
    assert kernel.drained() == [[2], [3]]
    # GIVEN an entry that its program gave back WHEN it is drained THEN it is no record
    kernel.submit(kernel.reserve(0, 1, 1), 72 | DISCARDED)
    kernel.put(0, 2, 2)
    assert kernel.drained() == [[2]]
    kernel.submit(kernel.reserve(0, 3, 3), 72 | DISCARDED)
    assert kernel.drained() == []
    # GIVEN an entry of another program WHEN it is drained THEN one message says so
    kernel.submit(kernel.reserve(0, 1), 64)
    with pytest.raises(ProbeError, match="something else"):
        kernel.ring.drain()


@pytest.mark.parametrize(
    ("wanted", "size"), [(None, 16 << 20), (70_000, 1 << 17), (1 << 20, 1 << 20)]
)
def test_sizes_are_powers_of_two(wanted, size):
    # GIVEN a wanted size WHEN the ring's is chosen THEN it is a power of two, at least as large
    assert ring_bytes(wanted) == size
    # AND below the least it is refused
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
    # GIVEN a ring of 16 MiB, and so many bytes left below the limit WHEN it is made to fit
    # THEN it is halved until 32 MiB stay, or it is as small as it can be
    assert ring_bytes(None, None if room is None else Room(room, "")) == size
