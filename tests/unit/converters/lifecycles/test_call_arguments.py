# SPDX-License-Identifier: Apache-2.0
"""Arguments of calls: which is the descriptor, the offset, the length, and what is not known."""

import numpy as np
import pytest

from biotrail.converters.lifecycles.call_arguments import CURRENT, PLACES, What, argument
from biotrail.recorder.schema.syscalls import PAGE_FAULT, numbers

X86 = "x86_64"


def given(
    name: str, args: list[int], what: What, *, foreign: bool = False, machine: str = X86
) -> int | None:
    (number,) = numbers(frozenset({name}), machine)
    values, known = argument(
        np.array([args], dtype=np.uint64),
        np.array([number], dtype=np.int32),
        np.array([foreign]),
        machine,
        what,
    )
    return int(values[0]) if known[0] else None


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("pread64", [3, 99, 4096, 8192], (3, 8192, 4096)),
        ("write", [4, 99, 512, 0], (4, None, 512)),
        ("preadv2", [5, 99, 2, 16384], (5, 16384, None)),
        ("preadv2", [5, 99, 2, CURRENT], (5, None, None)),
        ("fsync", [6, 1, 2, 3], (6, None, None)),
        ("sync_file_range", [7, 1 << 40, 4096, 2], (7, 1 << 40, 4096)),
        ("fallocate", [8, 0, 1 << 33, 1 << 34], (8, 1 << 33, 1 << 34)),
        ("sendfile", [1, 9, 99, 1000], (9, None, 1000)),
        ("fsync", [2**64 - 1, 0, 0, 0], (-1, None, None)),
        ("sync", [1, 2, 3, 4], (None, None, None)),
        ("io_submit", [1, 2, 3, 4], (None, None, None)),
    ],
)
@pytest.mark.parametrize("machine", [X86, "aarch64"])
def test_arguments_by_name(
    name: str, args: list[int], expected: tuple[int | None, ...], machine: str
) -> None:
    # GIVEN a call  WHEN its arguments are asked for  THEN they are those that it has
    kinds: tuple[What, ...] = ("fd", "offset", "length")
    assert tuple(given(name, args, what, machine=machine) for what in kinds) == expected


def test_calls_of_which_nothing_is_known() -> None:
    # GIVEN a 32-bit program's call and a page fault  WHEN asked  THEN nothing is known
    assert given("pread64", [3, 0, 1, 2], "fd", foreign=True) is None
    number, foreign = np.array([PAGE_FAULT], dtype=np.int32), np.array([False])
    assert not argument(np.ones((1, 4), np.uint64), number, foreign, X86, "fd")[1].any()
    # AND an argument beyond those that are recorded is not
    two, pread = np.ones((1, 2), np.uint64), np.array([17], dtype=np.int32)
    assert not argument(two, pread, foreign, X86, "offset")[1].any()


def test_every_name_is_a_call() -> None:
    # GIVEN the table  THEN each name is a call of x86-64
    assert len(numbers(frozenset(PLACES), X86)) == len(PLACES)
