# SPDX-License-Identifier: Apache-2.0
"""System calls by number, held against the C headers of the machine where they are there."""

import re
from pathlib import Path

import pytest

from biotrail.recorder.schema.syscalls import (
    IDLE_CALLS,
    PAGE_FAULT,
    REAPING_CALLS,
    call_name,
    numbers,
)

_MOST = 600
HEADERS = {
    "x86_64": ("x86_64-linux-gnu/asm/unistd_64.h", r"#define __NR_(\w+) (\d+)$"),
    "aarch64": ("asm-generic/unistd.h", r"#define __NR(?:3264)?_(\w+) (\d+)$"),
}
OTHER_NAMES = {"fstatat": "newfstatat", "umount2": "umount2"}
"""Names in the generic header's __NR3264_ macros that 64-bit machines have under another name."""


def names(machine: str) -> dict[int, str]:
    known = ((number, call_name(number, machine)) for number in range(_MOST))
    return {number: name for number, name in known if not name.startswith("syscall ")}


def test_calls_have_their_names() -> None:
    # GIVEN numbers of two machines THEN each has the name that it has there
    known = ["read", "write", "pread64", "pwrite64", "fsync", "io_submit", "io_uring_enter"]
    assert [call_name(n, "x86_64") for n in (0, 1, 17, 18, 74, 209, 426)] == known
    assert [call_name(n, "aarch64") for n in (63, 64, 67, 68, 82, 2, 426)] == known
    # AND a page fault is named on every machine
    assert call_name(PAGE_FAULT, "x86_64") == call_name(PAGE_FAULT, "sparc") == "page fault"
    # GIVEN a number of no call, a call of a newer kernel, a machine without a table
    # THEN the number itself is said, and no call is told apart there
    assert call_name(400, "x86_64") == "syscall 400"
    assert call_name(9999, "aarch64") == "syscall 9999"
    assert call_name(0, "s390x") == call_name(0, "") == "syscall 0"
    assert numbers(IDLE_CALLS, "s390x") == []
    # GIVEN the calls that idle and those that reap THEN x86-64 has each, and none is both
    assert set(names("x86_64").values()) >= IDLE_CALLS | REAPING_CALLS
    assert not IDLE_CALLS & REAPING_CALLS


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_those_of_the_c_headers(machine: str) -> None:
    # GIVEN the C header with the machine's numbers
    place, pattern = HEADERS[machine]
    header = Path("/usr/include") / place
    if not header.exists():
        pytest.skip(f"needs {header} (linux-libc-dev)")
    found = re.findall(pattern, header.read_text(), re.MULTILINE)
    expected = {int(number): OTHER_NAMES.get(name, name) for name, number in found}
    expected = {number: name for number, name in expected.items() if name != "syscalls"}  # a count
    # WHEN it is compared with the table THEN every number that both have has the same name
    known = names(machine)
    both = known.keys() & expected.keys()
    assert len(both) > 250
    assert {n: known[n] for n in both} == {n: expected[n] for n in both}


@pytest.mark.parametrize("machine", HEADERS)
def test_a_name_has_one_number(machine: str) -> None:
    # GIVEN a machine's table THEN no name is there twice
    known = names(machine)
    assert len(set(known.values())) == len(known)
    # AND numbers() gives those of the names, in order
    assert numbers(REAPING_CALLS, machine) == sorted(
        number for number, name in known.items() if name in REAPING_CALLS
    )
