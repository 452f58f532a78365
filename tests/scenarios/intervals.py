# SPDX-License-Identifier: Apache-2.0
"""What the scenarios become without pointers, where that is not the same as with them."""

from dataclasses import dataclass

from tests.scenarios import cases, cases_more, stacks, variants
from tests.scenarios.tools import Scenario


@dataclass(frozen=True)
class Otherwise:
    """A scenario that ranges do not settle as pointers do."""

    case: Scenario
    why: str
    then: str


OTHERWISE = [
    Otherwise(
        cases.SHARED_FLUSHES,
        "Two fsyncs wait for one flush, and both end at once: which end is whose is not said.",
        """
        b1 vda write 0+0 Q@0 G1 C81 | flush 81 | r1 | interval
        b2 vda write 0+0 Q@10 G1 C151 | flush 151 | r3 | ambiguous
        b3 vda write 0+0 Q@20 G1 C142 | flush 142 | r4 | ambiguous
        r1 vda write 0+0 s@2 C79 | flush 79 | b1 | interval
        r2 vda flush none+0 s@3 D0 C77 | G2D 0, D2C 77 | - | interval, flush
        r3 vda write 0+0 s@12 C149 | flush 149 | b2 | ambiguous
        r4 vda write 0+0 s@22 C140 | flush 140 | b3 | ambiguous
        r5 vda flush none+0 s@83 D0 C77 | G2D 0, D2C 77 | - | interval, flush
        """,
    ),
    Otherwise(
        cases_more.IDENTICAL_READS,
        "Both are in flight with one range: either end fits either. The oldest is taken.",
        """
        b1 vda read 64+8 Q@0 G1 D6 C50 | Q2G 1, G2D 5, D2C 44 | r1 | ambiguous
        b2 vda read 64+8 Q@3 G1 D4 C77 | Q2G 1, G2D 3, D2C 73 | r2 | ambiguous
        r1 vda read 64+8 s@2 D4 C48 | G2D 4, D2C 44 | b1 | ambiguous
        r2 vda read 64+8 s@5 D2 C75 | G2D 2, D2C 73 | b2 | ambiguous
        """,
    ),
    Otherwise(
        cases_more.LOOP_BY_PAGE,
        "A page's address is a pointer, too: nothing else links the two devices.",
        """
        b1 loop1 write 0+8 Q@0 G1 D4 C95 | Q2G 1, G2D 3, D2C 91 | r1 | interval
        b2 vda write 7000+8 Q@20 G2 I4 D6 C60 | Q2G 2, G2I 2, I2D 2, D2C 54 | r2 | interval
        r1 loop1 write 0+8 s@2 D2 C93 | G2D 2, D2C 91 | b1 | interval
        r2 vda write 7000+8 s@23 I1 D3 C57 | G2I 1, I2D 2, D2C 54 | b2 | interval
        """,
    ),
    Otherwise(
        cases_more.MULTI_RANGE_DISCARD,
        "The issue's bytes are a sum, and its range is nobody's: only the chain tells who joined.",
        """
        b1 vda discard 0+8 Q@0 G1 | Q2G 1 | r1 | ambiguous
        b2 vda discard 100+8 Q@5 | - | - | ambiguous
        b3 vda discard 200+16 Q@9 | - | - | ambiguous
        r1 vda discard 0+8 s@2 | - | b1 | incomplete
        r2 vda discard 0+32 s@20 D0 C70 | G2D 0, D2C 70 | - | ambiguous
        """,
    ),
    Otherwise(
        cases_more.COMPLETION_LOST,
        "No tag is told, so nothing says that the first read is over.",
        """
        b1 vda read 0+8 Q@0 G1 D3 | Q2G 1, G2D 2 | r1 | incomplete
        b2 vda read 512+8 Q@60 G1 D3 C39 | Q2G 1, G2D 2, D2C 36 | r2 | interval
        r1 vda read 0+8 s@2 D1 | G2D 1 | b1 | incomplete
        r2 vda read 512+8 s@62 D1 C37 | G2D 1, D2C 36 | b2 | interval
        """,
    ),
    Otherwise(
        cases_more.BEGINS_IN_FLIGHT,
        "An issue of a range where nobody waits; without its bios, whose it was stays open.",
        """
        r1 vda read 8+8 s@10 D0 C50 | G2D 0, D2C 50 | - | ambiguous
        r2 vda read 0+8 s@50 C0 | unknown 0 | - | incomplete
        """,
    ),
    Otherwise(
        variants.DM_SPLIT,
        "An X of all that is left is no split by range, so what is left is in doubt.",
        """
        b1 home read 0+2048 Q@0 C71 | bio-based 71 | - | ambiguous
        b2 vda read 5000+1024 Q@4 G1 D3 C56 | Q2G 1, G2D 2, D2C 53 | r1 | interval, parent b1
        b3 vda read 6024+1024 Q@11 G1 D3 C59 | Q2G 1, G2D 2, D2C 56 | r2 | interval, parent b1
        b4 home read 1024+0 Q? | - | - | incomplete
        r1 vda read 5000+1024 s@6 D1 C54 | G2D 1, D2C 53 | b2 | interval
        r2 vda read 6024+1024 s@13 D1 C57 | G2D 1, D2C 56 | b3 | interval
        """,
    ),
    Otherwise(
        variants.DM_IDENTICAL,
        "Both wait with one range: either c fits either.",
        """
        b1 home read 100+8 Q@0 C30 | bio-based 30 | - | ambiguous
        b2 home read 100+8 Q@1 C74 | bio-based 74 | - | ambiguous
        b3 vda read 2148+8 Q@4 G1 D4 C66 | Q2G 1, G2D 3, D2C 62 | r1 | interval
        r1 vda read 2148+8 s@6 D2 C64 | G2D 2, D2C 62 | b3 | interval
        """,
    ),
    Otherwise(
        stacks.DM_ON_PARTITION,
        "The loop's lower bio is linked by a page's address alone.",
        """
        b1 part read 0+8 Q@0 C75 | bio-based 75 | - | interval
        b2 md9 read 2064+8 Q@4 C68 | bio-based 68 | - | interval, parent b1, on md9p1
        b3 loop1 read 4112+8 Q@7 G1 D3 C63 | Q2G 1, G2D 2, D2C 60 | r1 | interval, parent b2
        b4 vda read 9000+8 Q@20 G1 D3 C40 | Q2G 1, G2D 2, D2C 37 | r2 | interval
        r1 loop1 read 4112+8 s@9 D1 C61 | G2D 1, D2C 60 | b3 | interval
        r2 vda read 9000+8 s@22 D1 C38 | G2D 1, D2C 37 | b4 | interval
        """,
    ),
    Otherwise(
        stacks.SAME_ON_TWO_PATHS,
        "Both are in flight with one range above: either end fits either.",
        """
        b1 mpath read 100+8 Q@0 G1 D4 C66 | Q2G 1, G2D 3, D2C 62 | r1 | ambiguous
        b2 mpath read 100+8 Q@10 G1 D4 C66 | Q2G 1, G2D 3, D2C 62 | r3 | ambiguous
        r1 mpath read 100+8 s@2 D2 C64 | G2D 2, D2C 62 | b1 | ambiguous
        r2 vda read 100+8 s@6 D2 C54 | G2D 2, D2C 52 | - | interval, parent r1
        r3 mpath read 100+8 s@12 D2 C64 | G2D 2, D2C 62 | b2 | ambiguous
        r4 vdb read 100+8 s@16 D2 C54 | G2D 2, D2C 52 | - | interval, parent r3
        """,
    ),
    Otherwise(
        stacks.SAME_AT_ONCE,
        "Both are in flight with one range above: either end fits either.",
        """
        b1 mpath read 100+8 Q@0 G1 D4 C66 | Q2G 1, G2D 3, D2C 62 | r1 | ambiguous
        b2 mpath read 100+8 Q@5 G1 D3 C71 | Q2G 1, G2D 2, D2C 68 | r2 | ambiguous
        r1 mpath read 100+8 s@2 D2 C64 | G2D 2, D2C 62 | b1 | ambiguous
        r2 mpath read 100+8 s@7 D1 C69 | G2D 1, D2C 68 | b2 | ambiguous
        r3 vda read 100+8 s@9 D1 C51 | G2D 1, D2C 50 | - | interval
        r4 vdb read 100+8 s@11 D1 C59 | G2D 1, D2C 58 | - | interval
        """,
    ),
    Otherwise(
        stacks.NVME_SPLIT,
        "A without a Q: below, a bio begins that was not queued there; above, none ends.",
        """
        b1 nvme0n1 write 0+16 Q@0 | - | - | incomplete
        b2 nvme0c0n1 write 0+16 Q? G@5 D@8 C@64 | G2D 3, D2C 56 | r1[0+8] r2[8+8] | incomplete, fragments 2, parent b1
        r1 nvme0c0n1 write 0+8 s@4 D3 C56 | G2D 3, D2C 53 | b2 | interval
        r2 nvme0c0n1 write 8+8 s@6 D2 C58 | G2D 2, D2C 56 | b2 | interval
        """,
    ),
]

_OTHER = {o.case.slug for o in OTHERWISE}
SAME = [
    case
    for case in (
        *cases.CASES,
        *cases_more.CASES,
        *variants.CASES,
        *stacks.CASES,
    )
    if case.slug not in _OTHER
]
"""Scenarios that come out the same, by interval instead of exact."""
