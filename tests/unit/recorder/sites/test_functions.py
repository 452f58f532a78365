# SPDX-License-Identifier: Apache-2.0
"""Functions that cannot be attached, each with its reason."""

from pathlib import Path

import pytest

from biotrail.recorder.sites import following
from biotrail.recorder.sites.following import KernelFunctions
from biotrail.recorder.sites.types import Taking

KALLSYMS = """ffffffff81000000 T good
ffffffff81000010 t twice
ffffffff81000020 t twice
ffffffff81000030 t copied.isra.0
ffffffff81000040 T both
ffffffff81000050 t both.constprop.0
ffffffff81000060 T hidden
ffffffff81000070 T forbidden
ffffffff81000080 T far
ffffffff81000090 D good_data
ffffffffc0000000 t queue\t[drv]
ffffffffc0000010 t twice\t[drv]
"""


def taking(name: str, slot: int = 0, module: str = "") -> Taking:
    return Taking(name, module, "function", slot, slot + 1, slot, 1)


@pytest.fixture
def lists(tmp_path: Path) -> KernelFunctions:
    (tmp_path / "kallsyms").write_text(KALLSYMS)
    (tmp_path / "available_filter_functions").write_text(
        "good\ntwice\ncopied.isra.0\nboth\nforbidden\nfar\nqueue [drv]\ntwice [drv]\n"
    )
    (tmp_path / "blacklist").write_text("0xffffffff81000070-0xffffffff81000080\tforbidden\n")
    return KernelFunctions.read(tmp_path, tmp_path / "kallsyms", tmp_path / "blacklist")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (taking("good"), ""),
        (taking("both"), ""),
        (taking("queue", module="drv"), ""),
        (taking("twice", module="drv"), ""),
        (taking("twice"), following.AMBIGUOUS),
        (taking("copied"), following.SUFFIX),
        (taking("nowhere"), following.INLINED),
        (taking("queue"), following.INLINED),
        (taking("hidden"), following.NOTRACE),
        (taking("forbidden"), following.BLACKLISTED),
        (taking("far", slot=6), following.STACK),
        (taking("far", slot=-1), following.STACK),
    ],
)
def test_each_function_has_its_reason(lists: KernelFunctions, given: Taking, reason: str) -> None:
    # GIVEN the kernel's lists  THEN a function may be attached, or the reason is one of the list
    assert lists.refusal(given) == reason
    assert not reason or reason in following.REASONS


def test_all_functions_are_attachable_or_counted(lists: KernelFunctions) -> None:
    # GIVEN functions of a type, one of them described twice
    given = [taking("good"), taking("far"), taking("far"), taking("nowhere"), taking("copied")]
    # WHEN they are sorted out
    good, unseen = lists.attachable(given)
    # THEN none is missing from both
    assert [t.name for t in good] == ["good"]
    assert unseen == {
        following.AMBIGUOUS: ["far", "far"],
        following.INLINED: ["nowhere"],
        following.SUFFIX: ["copied"],
    }


def test_lists_that_cannot_be_read_are_said_and_refuse_nothing(tmp_path: Path) -> None:
    # GIVEN a kernel that has none of the lists
    lists = KernelFunctions.read(tmp_path, tmp_path / "kallsyms", tmp_path / "blacklist")
    # THEN each is named, and functions are taken for attachable
    assert len(lists.unread) == 3
    assert lists.refusal(taking("anything")) == ""
