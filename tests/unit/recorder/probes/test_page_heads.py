# SPDX-License-Identifier: Apache-2.0
"""The head of a compound page by a word of its tail (bpf/pages.h), compiled for this machine."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HEADER = Path(__file__).parents[4] / "bpf/pages.h"
X86_64 = 0xFFFFEA0000000000
"""Where struct page's begin (VMEMMAP_START) on x86-64."""
ARM64_64K_42 = 0xFFFFFFFF40000000
"""With 64 KiB pages and 42-bit addresses: all of them are above 0xffffffff00000000."""
ARM64_16K_36 = 0xFFFFFFFFBE000000
PAGE = 64
"""sizeof(struct page)."""

Head = Callable[[int, int, bool], int]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Head:
    """bt_head_by_word(page, word, may_be_mask)."""
    source = tmp_path_factory.mktemp("pages") / "pages.c"
    source.write_text(
        f'#include "{HEADER}"\n'
        "unsigned long long head(unsigned long long page, unsigned long long word, int mask)\n"
        "{ return bt_head_by_word(page, word, mask); }\n"
    )
    built = source.with_suffix(".so")
    subprocess.run(["clang", "-shared", "-fPIC", "-O2", "-o", built, source], check=True)
    function = ctypes.CDLL(str(built)).head
    function.restype = ctypes.c_uint64
    function.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int]
    return lambda page, word, may_be_mask: int(function(page, word, may_be_mask))


@pytest.mark.parametrize("may_be_mask", [False, True])
@pytest.mark.parametrize("begin", [X86_64, ARM64_64K_42, ARM64_16K_36])
def test_a_tail_with_its_heads_address(head: Head, begin: int, may_be_mask: bool) -> None:
    # GIVEN a compound page of eight pages somewhere in the kernel's struct pages
    first = begin + 8 * 1001 * PAGE
    # WHEN a tail's word holds the head's address  THEN that is the head, also above any limit
    assert head(first + 5 * PAGE, first | 1, may_be_mask) == first
    # AND the head, or a page of its own, whose word has another use, is itself
    assert head(first, 0x1234560, may_be_mask) == first


@pytest.mark.parametrize("begin", [X86_64, ARM64_64K_42, ARM64_16K_36])
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
