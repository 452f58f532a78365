# SPDX-License-Identifier: Apache-2.0
"""Headers of the programs compiled for this machine: dirty slots and the heads of pages."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.c_library import Function, library

# Slots of the table of who dirtied folios (bpf/dirty_slots.h), compiled for this machine.

HEADER = Path(__file__).parents[4] / "bpf/dirty_slots.h"
VMEMMAP = 0xFFFFEA0000000000
"""Where struct page's begin (VMEMMAP_START) on x86-64."""
INODE = 0xFFFF888104563A78
PAGE, LINE = 64, 64
"""sizeof(struct page); bytes of a cache line."""
SHIFT = 64 - 11
"""Of a table as the recorder makes it: 2^11 regions of 512 slots in each half, 16 MiB."""
HALF = 512 << 11
SOURCE = f"""
typedef unsigned int __u32;
typedef unsigned long long __u64;
#include "{HEADER}"
__u32 place(__u64 folio, int second, __u64 shift) {{ return bt_dirty_place(folio, second, shift); }}
__u64 tag(__u64 folio, __u64 inode) {{ return bt_dirty_tag(folio, inode); }}
int has_tag(__u64 slot, __u64 tag) {{ return bt_has_tag(slot, tag); }}
__u64 age(__u64 slot, __u64 time) {{ return bt_dirty_age(slot, time); }}
int takes_second(__u64 first, __u64 second, __u64 tag, __u64 time)
{{ return bt_takes_second(first, second, tag, time); }}
__u64 word(__u64 tag, __u64 time, __u64 writer) {{ return bt_dirty_word(tag, time, writer); }}
"""


@pytest.fixture(scope="module")
def slots(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    u64 = ctypes.c_uint64
    functions: dict[str, Function] = {
        "place": (ctypes.c_uint32, (u64, ctypes.c_int, u64)),
        "tag": (u64, (u64, u64)),
        "has_tag": (ctypes.c_int, (u64, u64)),
        "age": (u64, (u64, u64)),
        "takes_second": (ctypes.c_int, (u64, u64, u64, u64)),
        "word": (u64, (u64, u64, u64)),
    }
    return library(tmp_path_factory.mktemp("slots"), SOURCE, functions)


def _folio(number: int) -> int:
    return VMEMMAP + number * PAGE


@pytest.mark.parametrize("second", [0, 1])
def test_neighbouring_folios_share_cache_lines(slots: ctypes.CDLL, second: int) -> None:
    # GIVEN the 512 folios of an aligned 2 MiB of memory  WHEN each has its slot
    places = [slots.place(_folio(512 * 1001 + i), second, SHIFT) for i in range(512)]
    # THEN no two have the same, and eight of them share a cache line, all in the same half
    assert len(set(places)) == 512
    assert len({place * 8 // LINE for place in places}) == 64
    assert {place // HALF for place in places} == {second}
    # GIVEN folios in order  WHEN eight of them, aligned, have their slots
    for first in range(512 * 77, 512 * 79, 8):
        lines = {slots.place(_folio(first + i), 0, SHIFT) * 8 // LINE for i in range(8)}
        # THEN a writer in order touches one line for them
        assert len(lines) == 1


def test_folios_that_share_a_first_slot_have_different_second_ones(slots: ctypes.CDLL) -> None:
    # GIVEN the folios of 64 GiB of memory, one of each 2 MiB, that have one first slot
    mine = slots.place(_folio(0), 0, SHIFT)
    others = [
        512 * region + i
        for region in range(1, 1 << 15)
        for i in (((mine ^ slots.place(_folio(512 * region), 0, SHIFT)) & 511),)
        if slots.place(_folio(512 * region + i), 0, SHIFT) == mine
    ]
    assert len(others) > 8
    # WHEN each has its second slot  THEN these are hardly ever the same
    seconds = {slots.place(_folio(number), 1, SHIFT) for number in others}
    assert len(seconds) > len(others) / 2


def test_a_slot_holds_tag_time_and_writer(slots: ctypes.CDLL) -> None:
    # GIVEN the slot of a folio that the writer 32,767 dirtied in a tick beyond 24 bits
    tag, time = slots.tag(_folio(5), INODE), (3 << 24) + 77
    slot = slots.word(tag, time, 32767)
    # WHEN it is read  THEN each is there: the tag, the writer, and the time by its age
    assert slots.has_tag(slot, tag)
    assert slot & 0x7FFF == 32767
    assert slots.age(slot, time) == 0
    assert slots.age(slot, time + 12345) == 12345
    # AND the folio as a page of another inode, and another folio, have other tags
    assert not slots.has_tag(slot, slots.tag(_folio(5), INODE + 1024))
    assert not slots.has_tag(slot, slots.tag(_folio(6), INODE))
    # AND a free slot is nobody's, whatever the tag
    assert not slots.has_tag(0, 0)


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [(100, None, True), (100, 90, True), (90, 100, False), (100, 100, False)],
)
def test_the_older_of_two_slots_is_taken(
    slots: ctypes.CDLL, first: int, second: int | None, taken: bool
) -> None:
    # GIVEN slots that others wrote in these ticks, or a free second one  WHEN a folio needs one
    mine, other = slots.tag(_folio(1), INODE), slots.tag(_folio(2), INODE)
    words = [0 if time is None else slots.word(other, time, 1) for time in (first, second)]
    # THEN it takes the free or the older one, of two of a tick the first
    assert bool(slots.takes_second(*words, mine, 200)) == taken
    # GIVEN a folio in its second slot, and another one's older slot in the first
    words = slots.word(other, 10, 1), slots.word(mine, 20, 2)
    # WHEN it becomes dirty again  THEN it keeps the second, so that no old writer stays in it
    assert slots.takes_second(*words, mine, 30)


# The head of a compound page by a word of its tail (bpf/pages.h), compiled for this machine.

PAGES_HEADER = Path(__file__).parents[4] / "bpf/pages.h"
ARM64_64K_42 = 0xFFFFFFFF40000000
"""With 64 KiB pages and 42-bit addresses: all of them are above 0xffffffff00000000."""
ARM64_16K_36 = 0xFFFFFFFFBE000000

Head = Callable[[int, int, bool], int]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Head:
    """bt_head_by_word(page, word, may_be_mask)."""
    source = (
        f'#include "{PAGES_HEADER}"\n'
        "unsigned long long head(unsigned long long page, unsigned long long word, int mask)\n"
        "{ return bt_head_by_word(page, word, mask); }\n"
    )
    u64 = ctypes.c_uint64
    functions: dict[str, Function] = {"head": (u64, (u64, u64, ctypes.c_int))}
    found = library(tmp_path_factory.mktemp("pages"), source, functions)
    return lambda page, word, may_be_mask: int(found.head(page, word, may_be_mask))


@pytest.mark.parametrize("may_be_mask", [False, True])
@pytest.mark.parametrize("begin", [VMEMMAP, ARM64_64K_42, ARM64_16K_36])
def test_a_tail_with_its_heads_address(head: Head, begin: int, may_be_mask: bool) -> None:
    # GIVEN a compound page of eight pages somewhere in the kernel's struct pages
    first = begin + 8 * 1001 * PAGE
    # WHEN a tail's word holds the head's address  THEN that is the head, also above any limit
    assert head(first + 5 * PAGE, first | 1, may_be_mask) == first
    # AND the head, or a page of its own, whose word has another use, is itself
    assert head(first, 0x1234560, may_be_mask) == first


@pytest.mark.parametrize("begin", [VMEMMAP, ARM64_64K_42, ARM64_16K_36])
@pytest.mark.parametrize("order", [1, 3, 9, 18])
def test_a_tail_with_a_mask(head: Head, begin: int, order: int) -> None:
    # GIVEN a kernel with compound_info, and a compound page that is aligned to its size
    size = PAGE << order
    first = (begin + size - 1) & -size & (1 << 64) - 1
    mask = ((1 << 64) - size) | 1
    # WHEN the word of its last tail is a mask  THEN it makes the head of it
    assert head(first + size - PAGE, mask, True) == first


def test_no_mask_without_compound_info(head: Head) -> None:
    # GIVEN a kernel with compound_head, and a head whose address looks like a mask
    first = 0xFFFFFFFF80000000
    # WHEN its tail's word is read  THEN it is the head's address all the same
    assert head(first + PAGE, first | 1, False) == first
