# SPDX-License-Identifier: Apache-2.0
"""Upper bios below loop devices, by the request that the recorder tells of a lower bio."""

from biotrail.converters.events.tables import NEVER
from tests.scenarios.cases_more import LOOP, REQUEST_BASED
from tests.scenarios.tools import events_of, tables_of


def uppers(text: str) -> dict[int, int]:
    """Sector of each lower bio → sector of its upper bio, NEVER where there is none."""
    t = tables_of(events_of(text), devices=(LOOP, REQUEST_BASED))
    sector = {number: int(s) for number, s in zip(t.bios.number, t.bios.sector, strict=True)}
    lower = t.bios.dev == 254 << 20
    return {
        int(t.bios.sector[row]): sector.get(t.bios.parent[row], NEVER) for row in lower.nonzero()[0]
    }


SPLIT = """
    0  Q 7:1 W 0+32 bio=1 page=4000
    1  X 7:1 W 0+16 bio=2 parent=1
    2  G 7:1 W 0+16 bio=2
    3  s 7:1 W 0+16 bio=2 rq=1
    4  D 7:1 W 0+16 bio=2 rq=1
    5  G 7:1 W 16+16 bio=1
    6  s 7:1 W 16+16 bio=1 rq=2
    7  D 7:1 W 16+16 bio=1 rq=2
    20 Q 254:0 W 7000+16 bio=3 page=4000 {0}
    21 Q 254:0 W 9000+8 bio=4 page=4080 {1}
    22 Q 254:0 W 9100+8 bio=5 page=40c0 {1}
    60 C 7:1 W 0+16 bio=2 rq=1
    61 C 7:1 W 16+16 bio=1 rq=2
"""


def test_all_lower_bios_of_a_split_one_are_its() -> None:
    # GIVEN a write that was split in two, of which the second's part of the file is in two pieces
    # WHEN the requests of the lower bios are told THEN all of them are the upper bio's
    told = SPLIT.format("backing=1", "backing=2")
    assert uppers(told) == {7000: 0, 9000: 0, 9100: 0}
    # AND without, as in a log of before, the one with its first page
    assert uppers(SPLIT.format("", "")) == {7000: 0, 9000: NEVER, 9100: NEVER}


MERGED = """
    0  Q 7:1 R 0+8 bio=1 page=4000
    1  G 7:1 R 0+8 bio=1
    2  s 7:1 R 0+8 bio=1 rq=1
    3  Q 7:1 R 8+16 bio=2 page=5000
    4  M 7:1 R 8+16 bio=2 rq=1
    5  Q 7:1 R 24+8 bio=3 page=6000
    6  M 7:1 R 24+8 bio=3 rq=1
    7  D 7:1 R 0+32 bio=1 rq=1 chain=1,2,3
{}
    60 C 7:1 R 0+32 bio=1 rq=1
"""


def test_lower_bios_of_a_merged_request_are_of_where_they_begin() -> None:
    # GIVEN three reads in one request WHEN its file is read in other pieces
    lower = """
        20 Q 254:0 R 7000+12 bio=4 page=4000 backing=1
        21 Q 254:0 R 8000+4 bio=5 page=5040 backing=1
        22 Q 254:0 R 9000+16 bio=6 page=5080 backing=1
    """
    # THEN each piece is of the read in which it begins
    assert uppers(MERGED.format(lower)) == {7000: 0, 8000: 8, 9000: 8}


def test_a_first_page_tells_where_a_hole_ends() -> None:
    # GIVEN three reads in one request WHEN the second's part of the file is a hole, of which no bio
    # is read
    lower = """
        20 Q 254:0 R 7000+8 bio=4 page=4000 backing=1
        21 Q 254:0 R 9000+8 bio=6 page=6000 backing=1
    """
    # THEN what comes behind is of the third
    assert uppers(MERGED.format(lower)) == {7000: 0, 9000: 24}


def test_a_request_that_has_ended_is_not_that_of_a_later_bio() -> None:
    # GIVEN a request's address that is told of a bio after the request has ended
    text = MERGED.format("") + "70 Q 254:0 R 7000+8 bio=4 page=7000 backing=1"
    # WHEN the log is read THEN the bio has no parent, as its own request was not recorded
    assert uppers(text) == {7000: NEVER}
