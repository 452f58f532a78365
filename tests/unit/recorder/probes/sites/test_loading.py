# SPDX-License-Identifier: Apache-2.0
"""Clones of a template: its instructions with another constant, or another call."""

import struct

from biotrail.recorder.probes.sites.attaching import COOKIE, Template


class FakeObject:
    """A BPF object with one loaded program."""

    def __init__(self, code: bytes) -> None:
        self.code = code

    def instructions(self, name: str) -> bytes:
        return self.code


def immediate(register: int, value: int) -> bytes:
    """BPF_LD_IMM64: two instructions with the halves of a constant."""
    return struct.pack("<BBhI", 0x18, register, 0, value & 0xFFFFFFFF) + struct.pack(
        "<BBhI", 0, 0, 0, value >> 32
    )


def call(number: int, source: int = 0) -> bytes:
    return struct.pack("<BBhi", 0x85, source << 4, 0, number)


EXIT = struct.pack("<BBhi", 0x95, 0, 0, 0)


def template(code: bytes) -> Template:
    return Template.of(FakeObject(code), "hit")  # type: ignore[arg-type]


def test_a_clone_differs_in_its_cookie_alone() -> None:
    # GIVEN a program that loads the cookie twice, and another constant
    code = immediate(1, COOKIE) + immediate(2, 0x1122) + call(14) + immediate(3, COOKIE) + EXIT
    # WHEN it is cloned with a cookie of 64 bits
    clone = template(code).with_cookie(0xFFFFFFFF80000001)
    # THEN both loads have the new constant, and all else is as it was
    changed = immediate(1, 0xFFFFFFFF80000001), immediate(3, 0xFFFFFFFF80000001)
    assert clone == changed[0] + immediate(2, 0x1122) + call(14) + changed[1] + EXIT


def test_a_program_without_a_cookie_is_cloned_as_it_is() -> None:
    assert template(call(14) + EXIT).with_cookie(7) == call(14) + EXIT


def test_calls_of_a_helper_become_calls_of_a_kernel_function() -> None:
    # GIVEN a program that calls helper 173, helper 14, and a function of its own at distance 173
    code = call(173) + call(14) + call(173, source=1) + EXIT
    # WHEN helper 173 stands for the kernel function 98765
    changed = template(code).calling(173, 98765).code
    # THEN only that call has changed
    assert changed == call(98765, source=2) + call(14) + call(173, source=1) + EXIT
