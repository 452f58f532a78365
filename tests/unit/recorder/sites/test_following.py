# SPDX-License-Identifier: Apache-2.0
"""What is attached for a type, and what each site means for a life."""

from pathlib import Path

import pytest

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.schema.follow_structs import SITE_BIRTH, SITE_DEATH, SITE_LAST, SITE_NEW
from biotrail.recorder.sites import following
from biotrail.recorder.sites.declarations import TYPED, ObjectType
from biotrail.recorder.sites.following import FollowPlan, KernelFunctions, PlannedSite, plan
from biotrail.recorder.sites.types import Taking
from tests.support.crafted_kernel import Crafted, crafted

LISTED = ("blk_start", "blk_end", "blk_hidden", "blk_behind", "drv_queue [drv]")


@pytest.fixture(scope="module")
def made() -> Crafted:
    return crafted()


def kernel(*names: str) -> KernelFunctions:
    """A kernel that has these functions, all of which may be traced."""
    symbols = {name: [0x1000] * names.count(name) for name in names}
    return KernelFunctions(symbols, frozenset(), frozenset(names), frozenset())


def planned(made: Crafted, declared: ObjectType, way: str = "session") -> FollowPlan:
    return plan(made.table, declared, way, kernel(*LISTED), 100)


def by_name(found: FollowPlan) -> dict[str, PlannedSite]:
    return {site.taking.name: site for site in found.sites}


def test_functions_and_tracepoints_are_sites_and_others_are_named(made: Crafted) -> None:
    # GIVEN a kernel that lists some of the functions that take a request
    found = planned(made, ObjectType("request"))
    # THEN these are sites, before the tracepoints, and the others are named with the reason
    assert [site.taking.name for site in found.functions] == [
        *("blk_behind", "blk_end", "blk_hidden", "blk_start", "drv_queue")
    ]
    assert {(site.way, site.address) for site in found.functions} == {("session", 0x1000)}
    assert {site.way for site in found.tracepoints} == {TYPED}
    assert sum(map(len, found.unseen.values())) == 3
    # AND a site's index is that in the header
    assert [site["name"] for site in found.facts()["sites"]] == [
        site.taking.shown for site in found.sites
    ]
    # GIVEN a plan  WHEN the kernel refuses a function
    found = planned(made, ObjectType("request")).without({"refused: busy": ["blk_end"]})
    # THEN it is among the unseen, and still has its site
    assert found.unseen["refused: busy"] == ["blk_end"]
    assert "blk_end" in by_name(found)
    assert found.facts()["unseen"]["refused: busy"] == 1


def test_a_declaration_gives_sites_their_meaning(made: Crafted) -> None:
    # GIVEN births by a function and a tracepoint, one of them always of a new object, and an end
    declared = ObjectType(
        "request",
        births=("blk_start", "rq:rq_issue", "not_there"),
        new=("rq:rq_issue",),
        deaths=("blk_end",),
        last=("rq:rq_merge",),
    )
    found = by_name(planned(made, declared))
    # THEN sites have them, a tracepoint whatever its system
    assert found["blk_start"].meaning == SITE_BIRTH
    assert found["rq_issue"].meaning == SITE_BIRTH | SITE_NEW
    assert found["blk_end"].meaning == SITE_DEATH
    assert found["rq_merge"].meaning == SITE_LAST
    assert found["blk_hidden"].meaning == 0


def test_births_deaths_and_sectors_are_found_where_the_struct_has_them(made: Crafted) -> None:
    # GIVEN a function and a tracepoint that each come once in a life, the tracepoint later
    declared = ObjectType("request", births=("blk_start",), new=("blk_start", "rq:rq_issue"))
    # WHEN functions are attached  THEN the function begins a life, and the tracepoint is in it
    found = by_name(planned(made, declared))
    assert found["blk_start"].meaning == SITE_BIRTH | SITE_NEW
    assert found["rq_issue"].meaning == 0
    # AND with tracepoints alone the tracepoint begins it
    found = by_name(planned(made, declared, TYPED))
    assert found["rq_issue"].meaning == SITE_BIRTH | SITE_NEW
    # GIVEN a death in a function, and two sites after which only that comes
    declared = ObjectType(
        "request", births=("rq:rq_issue",), deaths=("blk_end",), last=("rq:rq_merge", "rq:rq_issue")
    )
    # WHEN tracepoints alone are attached
    found = by_name(planned(made, declared, TYPED))
    # THEN the first that is there stands for the death
    assert {name for name, site in found.items() if site.meaning & SITE_DEATH} == {"rq_merge"}
    # GIVEN a type whose births this kernel does not have, and one without declaration
    for declared in (ObjectType("request", births=("nowhere",)), ObjectType("request")):
        # THEN every site is a birth
        assert all(site.meaning & SITE_BIRTH for site in planned(made, declared).sites)
    # GIVEN alternatives for kernels whose structs differ
    declared = ObjectType("request", detail=("no_such", "__sector"), device=("nothing",))
    found = planned(made, declared)
    # THEN the member that is there is compiled, and where none is there is no value
    assert found.detail.text == "__sector"
    assert not found.device.at


def test_what_cannot_be_followed_is_refused(made: Crafted) -> None:
    with pytest.raises(SiteError, match=r"5 functions take a struct request, more than"):
        plan(made.table, ObjectType("request"), "session", kernel(*LISTED), 4)
    # GIVEN a struct that nothing takes, and one that functions alone take
    # THEN the message says which it is
    with pytest.raises(SiteError, match="no function or typed tracepoint takes a struct gendisk"):
        plan(made.table, ObjectType("gendisk"), "session", kernel(), 4)
    with pytest.raises(SiteError, match="lets no functions be"):
        plan(made.table, ObjectType("pair_of_words"), TYPED, None, 4)


# Functions that cannot be attached, each with its reason.

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
    return KernelFunctions.read(tmp_path, tmp_path / "blacklist", tmp_path / "kallsyms")


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
    # GIVEN the kernel's lists  THEN a function may be attached, or has its reason
    good, unseen = lists.attachable([given])
    assert (good, unseen) == (([], {reason: [given.name]}) if reason else ([given], {}))


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
    lists = KernelFunctions.read(tmp_path, tmp_path / "blacklist", tmp_path / "kallsyms")
    # THEN each is named, and functions are taken for attachable
    assert len(lists.unread) == 3
    anything = taking("anything")
    assert lists.attachable([anything]) == ([anything], {})
