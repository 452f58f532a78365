# SPDX-License-Identifier: Apache-2.0
"""Attaching to many functions at once, some of which the kernel refuses."""

import errno
import os
from collections.abc import Sequence

import pytest

from biotrail.recorder.probes.sites import functions
from biotrail.recorder.probes.sites.attaching import Descriptors
from biotrail.recorder.probes.sites.functions import Attached, FunctionSite
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.follow_structs import SITE_BIRTH
from biotrail.recorder.schema.records import Role


def site(index: int) -> FunctionSite:
    return FunctionSite(index, f"function_{index}", "", SITE_BIRTH, 1, 3, 1000 + index, 0)


class FakeLinks:
    """Attaches all but some; descriptors are of /dev/null."""

    def __init__(self, refused: Sequence[int], number: int = errno.EINVAL) -> None:
        self.refused, self.number = set(refused), number
        self.calls = 0

    def __call__(self, part: Sequence[FunctionSite]) -> list[int]:
        self.calls += 1
        if self.refused & {each.index for each in part}:
            raise OSError(self.number, os.strerror(self.number))
        return [os.open("/dev/null", os.O_RDONLY)]


def attach(links: FakeLinks, count: int) -> tuple[Attached, int]:
    """Attach; return what was, and the number of links."""
    attached = Attached()
    with Descriptors() as kept:
        functions._attach_parts([site(i) for i in range(count)], links, kept, attached)
        return attached, len(kept)


def test_all_are_attached_at_once() -> None:
    # GIVEN functions that the kernel takes  THEN there is one link
    links = FakeLinks([])
    attached, number = attach(links, 1000)
    assert (number, links.calls) == (1, 1)
    assert attached.functions == set(range(1000))


def test_refused_functions_are_found_and_the_others_attached() -> None:
    # GIVEN two functions of a thousand that the kernel refuses
    links = FakeLinks([17, 800])
    attached, _ = attach(links, 1000)
    # THEN all others are attached, in few calls, and these are named with the reason
    assert attached.functions == set(range(1000)) - {17, 800}
    assert attached.refused == {"refused: Invalid argument": ["function_17", "function_800"]}
    assert links.calls < 100


def test_a_reason_that_concerns_the_process_ends_it() -> None:
    # GIVEN a kernel that permits nothing  THEN it is asked once, and the message has the reason
    links = FakeLinks([3], errno.EPERM)
    with pytest.raises(ProbeError, match="Operation not permitted"):
        attach(links, 10)
    assert links.calls == 1


def test_nothing_to_attach_is_no_call() -> None:
    links = FakeLinks([])
    assert attach(links, 0) == (Attached(), 0)


def test_a_cookie_has_the_sites_index_role_meaning_and_places() -> None:
    # GIVEN a site  WHEN its cookie is made
    cookie = site(300).cookie(Role.RETURN, 4, 5)
    # THEN each part is where the programs look (bpf/hits.h)
    assert cookie & 0xFFFF == 300
    assert cookie >> 16 & 3 == Role.RETURN
    assert cookie & SITE_BIRTH
    assert cookie >> 32 & 0xFFFF == 4
    assert cookie >> 48 == 5
