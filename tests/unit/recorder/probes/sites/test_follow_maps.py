# SPDX-License-Identifier: Apache-2.0
"""Hits of candidates that were kept in the kernel, and lives that end as nothing more comes."""

import ctypes
from typing import Any

import numpy as np
import pytest

from biotrail.recorder.probes.sites import follow_maps
from biotrail.recorder.probes.sites.follow_maps import Choice, FollowMaps
from biotrail.recorder.probes.sites.ring import SITE_ENTRY
from biotrail.recorder.schema.follow_structs import KEPT_HITS, LifeState
from biotrail.recorder.schema.records import BY_KIND, Kind

HIT = BY_KIND[Kind.HIT].dtype
SLOTS = 4
SECOND = 1_000_000_000


class FakeLibrary:
    """The kernel's maps: objects by address, and free slots."""

    def __init__(self) -> None:
        self.objects: dict[int, int] = {}
        self.freed: list[int] = []

    def call(self, doing: str, name: str, *arguments: Any) -> int:
        assert name == "bpf_map_update_elem"
        self.freed.append(arguments[2]._obj.value)
        return 0

    def get(self, name: str) -> Any:
        return {"bpf_map_lookup_elem": self._find, "bpf_map_delete_elem": self._delete}[name]

    def _find(self, fd: int, key: Any, value: Any) -> int:
        if key._obj.value not in self.objects:
            return -1
        value._obj.value = self.objects[key._obj.value]
        return 0

    def _delete(self, fd: int, key: Any) -> int:
        del self.objects[key._obj.value]
        return 0


class FakeObject:
    def set_map_size(self, name: str, value_size: int, entries: int) -> None:
        pass

    def value_size(self, name: str) -> int:
        return 64

    def map_fd(self, name: str) -> int:
        return 3


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    fake = FakeLibrary()
    monkeypatch.setattr(follow_maps, "load_library", lambda: fake)
    return fake


def maps(slower_ns: int = 0, *, has_deaths: bool = True) -> FollowMaps:
    choice = Choice(at_once=SLOTS, slower_ns=slower_ns)
    made = FollowMaps(FakeObject(), choice, returns=True, has_deaths=has_deaths)  # type: ignore[arg-type]
    made._lives = np.zeros(SLOTS, follow_maps._LIFE)
    made._hits = np.zeros(SLOTS * KEPT_HITS, SITE_ENTRY)
    return made


def keep(made: FollowMaps, slot: int, place: int, life: int, time: int) -> None:
    """Put a hit where the programs put it."""
    hit = np.zeros(1, HIT)
    hit["head"], hit["life"] = time, life
    entry = np.zeros(1, SITE_ENTRY)
    entry["cpu"] = 1
    raw = entry.view(np.uint8)
    raw[8:] = hit.view(np.uint8)
    made._hits[slot * KEPT_HITS + place] = entry[0]


def test_hits_of_a_long_life_are_taken_once_and_its_slot_is_free(library: FakeLibrary) -> None:
    # GIVEN a long life that has ended, whose slot holds hits of a former life too
    made = maps(slower_ns=1)
    for place, life in ((0, 7), (1, 7), (2, 6), (KEPT_HITS - 1, 7)):
        keep(made, 2, place, life, 100 + place)
    made._lives[2] = (0, 0, 0, 2, 0, 0, 7, LifeState.KEPT)
    # WHEN kept hits are taken
    taken = made.take_kept()
    # THEN they are the life's own, and the slot is free for the next
    assert taken["head"].tolist() == [100, 101, 100 + KEPT_HITS - 1]
    assert library.freed == [2]
    assert made._lives["state"][2] == LifeState.TAKEN
    # AND they are taken once
    assert len(made.take_kept()) == 0


@pytest.mark.parametrize("slower_ns", [0, SECOND])
def test_a_life_without_hits_after_its_last_site_is_forgotten(
    library: FakeLibrary, slower_ns: int
) -> None:
    # GIVEN two lives that passed a last site, one of them just now, and one that did not
    made = maps(slower_ns)
    now = 100 * SECOND
    library.objects = {0x1000: 0, 0x2000: 1, 0x3000: 2}
    old, new = now - SECOND, now - 1
    made._lives[0] = (0x1000, old, old, 0, 0, old, 1, LifeState.OPEN)
    made._lives[1] = (0x2000, new, new, 0, 0, new, 2, LifeState.OPEN)
    made._lives[2] = (0x3000, old, old, 0, 0, 0, 3, LifeState.OPEN)
    # WHEN time passes
    made.forget_idle(now)
    # THEN the one with nothing after it is over, and too quick for --slower
    assert library.objects == {0x2000: 1, 0x3000: 2}
    assert (library.freed, made.idle) == ([0], 1)
    assert made._lives["state"][0] == LifeState.DROPPED


def test_an_idle_life_that_was_long_is_kept(library: FakeLibrary) -> None:
    # GIVEN a life of two seconds up to its newest hit
    made = maps(slower_ns=SECOND)
    library.objects = {0x1000: 0}
    made._lives[0] = (0x1000, SECOND, 3 * SECOND, 1, 0, 3 * SECOND, 1, LifeState.OPEN)
    keep(made, 0, 0, 1, 5)
    # WHEN it is idle
    made.forget_idle(100 * SECOND)
    # THEN its hits are written
    assert len(made.take_kept()) == 1


def test_an_address_that_is_another_lifes_by_now_is_left_alone(library: FakeLibrary) -> None:
    # GIVEN a slot whose object is followed in another slot
    made = maps()
    library.objects = {0x1000: 3}
    made._lives[0] = (0x1000, 1, 1, 0, 0, 1, 1, LifeState.OPEN)
    made.forget_idle(100 * SECOND)
    # THEN nothing is forgotten
    assert library.objects == {0x1000: 3}
    assert library.freed == []


def test_a_type_without_deaths_ends_when_idle(library: FakeLibrary) -> None:
    made = maps(has_deaths=False)
    library.objects = {0x1000: 0}
    made._lives[0] = (0x1000, SECOND, SECOND, 0, 0, 0, 1, LifeState.OPEN)
    made.forget_idle(2 * SECOND)
    assert made.idle == 0
    made.forget_idle(4 * SECOND)
    assert made.idle == 1


def test_constants_have_the_structs_size() -> None:
    # GIVEN what the programs are loaded with  THEN it is as large as the section
    assert ctypes.sizeof(follow_maps.FollowStruct) % 8 == 0
    assert follow_maps._LIFE.itemsize == 56
