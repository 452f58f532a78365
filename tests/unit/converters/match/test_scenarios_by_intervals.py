# SPDX-License-Identifier: Apache-2.0
"""The scenarios without pointers: what ranges, operations, tasks, age and tags tell."""

import pytest

from biotrail.recorder.probes.programs import EVENT_SETS
from tests.scenarios.intervals import OTHERWISE, SAME, Otherwise
from tests.scenarios.tools import Scenario, bio_lines, describe, events_of, run, tables_of, tidy

ONE_QUEUE = (("254:0", {"name": "vda", "kind": "disk", "queue": {"nr_hw_queues": 1}}),)


def bios(events: str) -> list[str]:
    """The bios of a sequence, associated without pointers, a line each."""
    t = tables_of(events_of(events), devices=ONE_QUEUE, associate="intervals")
    return bio_lines(t, 1000)


def certainty(line: str) -> str:
    return line.split(" | ")[3].split(",", maxsplit=1)[0]


@pytest.mark.parametrize("case", SAME, ids=lambda c: c.slug)
def test_ranges_tell_as_much_as_pointers(case: Scenario) -> None:
    # GIVEN a scenario whose ranges are its own / WHEN its log is read without pointers
    found = describe(run(case, associate="intervals"))
    # THEN its lifecycles are those that pointers give, known by interval
    assert found == tidy(case.then).replace("exact", "interval")


@pytest.mark.parametrize("other", OTHERWISE, ids=lambda o: o.case.slug)
def test_what_ranges_do_not_tell_is_marked(other: Otherwise) -> None:
    # GIVEN a scenario that ranges do not settle / WHEN its log is read without pointers
    found = describe(run(other.case, associate="intervals"))
    # THEN what is told is told, and the rest is ambiguous or incomplete, and never exact
    assert found == tidy(other.then), other.why
    assert "exact" not in found


@pytest.mark.parametrize("case", [*SAME, *(o.case for o in OTHERWISE)], ids=lambda c: c.slug)
def test_with_the_minimal_set_nothing_is_claimed_that_pointers_deny(case: Scenario) -> None:
    # GIVEN a scenario recorded with the minimal set, which tells no allocations
    minimal = EVENT_SETS["minimal"]
    events = [e for e in events_of(case.given) if e["letter"] in minimal]
    exact = tables_of(events, devices=case.devices)
    # WHEN its log is read without pointers
    found = tables_of(events, devices=case.devices, associate="intervals")
    # THEN every bio that is called known has the times that pointers give it
    times = ("queue", "merge", "issue", "complete", "requeues", "status")
    known = {
        tuple(int(getattr(exact.bios, name)[i]) for name in times) for i in range(len(exact.bios))
    }
    for i in range(len(found.bios)):
        if found.bios.certainty[i] == 1:
            assert tuple(int(getattr(found.bios, name)[i]) for name in times) in known


UNSEEN_END = """
    0   Q R 0+8 bio=1
    1   s R 0+8 bio=1 rq=1 tag={first}
    3   D R 0+8 bio=1 rq=1 tag={first} hctx=0
    lost 40  C R 0+8 bio=1 rq=1
    60  Q R 512+8 bio=2
    61  s R 512+8 bio=2 rq=2 tag={between}
    63  D R 512+8 bio=2 rq=2 tag={between} hctx=0
    90  C R 512+8 bio=2 rq=2
    100 Q R 0+8 bio=3
    101 s R 0+8 bio=3 rq=3 tag={last}
    103 D R 0+8 bio=3 rq=3 tag={last} hctx=0
    150 C R 0+8 bio=3 rq=3
"""


def test_a_tag_given_again_ends_a_request_whose_completion_was_not_seen() -> None:
    # GIVEN a read whose C no program saw, and its tag given to another read
    # WHEN a third one of the same range completes
    found = bios(UNSEEN_END.format(first="7/-1", between="7/-1", last="9/-1"))
    # THEN the first one is lost, and the third is not in doubt
    assert [certainty(b) for b in found] == ["lost", "interval", "interval"]
    assert "C50" in found[2]


def test_a_scheduler_tag_given_again_ends_it_too() -> None:
    # GIVEN the same under a scheduler, with driver tags that are not given again
    found = bios(UNSEEN_END.format(first="7/3", between="8/3", last="9/4"))
    # THEN the scheduler's tag tells as much, where there is one hardware queue
    assert [certainty(b) for b in found] == ["lost", "interval", "interval"]


def test_while_its_tag_is_not_given_again_it_may_be_in_flight() -> None:
    # GIVEN the same, where the tag of the first read stays out, or is not told
    for first in ("7/-1", "-1/-1"):
        found = bios(UNSEEN_END.format(first=first, between="8/-1", last="9/-1"))
        # THEN either read may be the one that completes: the oldest is taken, both are marked
        assert [certainty(b) for b in found] == ["ambiguous", "interval", "ambiguous"]


def test_a_flush_goes_by_the_tag_of_the_commit_that_waits_for_it() -> None:
    # GIVEN a journal commit, between whose data and end a flush is issued with its tag
    found = bios(
        """
        0   Q FWFSM 0+8 bio=1
        1   s FWFSM 0+8 bio=1 rq=1 tag=5/-1
        2   D FF 18446744073709551615+0 rq=9 tag=5/-1 hctx=0
        30  C FF 18446744073709551615+0 rq=9
        31  D WSM 0+8 bio=1 rq=1 tag=5/-1 hctx=0
        60  C WSM 0+8 bio=1 rq=1
        61  D FF 18446744073709551615+0 rq=9 tag=5/-1 hctx=0
        90  C FF 18446744073709551615+0 rq=9
        91  C WSM 0+0 bio=1 rq=1
        """
    )
    # THEN the commit has not ended before its flush
    assert found == [
        "b1 vda write 0+8 Q@0 G1 D31 C91 | "
        "Q2G 1, pre-flush 30, D2C 29, post-flush 31 | r1 | interval"
    ]


def test_fsyncs_whose_end_was_not_seen_do_not_blur_later_ones() -> None:
    # GIVEN an fsync whose end no program saw, and whose scheduler tag a read then gets
    found = bios(
        """
        0   Q FWS 0+0 bio=1
        1   s FWS 0+0 bio=1 rq=1 tag=-1/3
        2   D FF 18446744073709551615+0 rq=9 tag=5/3 hctx=0
        30  C FF 18446744073709551615+0 rq=9
        lost 31 C WS 0+0 bio=1 rq=1
        40  Q R 64+8 bio=2
        41  s R 64+8 bio=2 rq=2 tag=-1/3
        42  D R 64+8 bio=2 rq=2 tag=5/3 hctx=0
        50  C R 64+8 bio=2 rq=2
        60  Q FWS 0+0 bio=1
        61  s FWS 0+0 bio=1 rq=1 tag=-1/4
        62  D FF 18446744073709551615+0 rq=9 tag=5/4 hctx=0
        90  C FF 18446744073709551615+0 rq=9
        91  C WS 0+0 bio=1 rq=1
        """
    )
    # THEN it is lost, and the next fsync is not in doubt
    assert [certainty(b) for b in found] == ["lost", "interval", "interval"]
    assert "C31" in found[2]


def test_requests_taken_for_each_other_have_their_tags_together() -> None:
    # GIVEN two identical reads in flight; one completes, and its tag is given to a third
    found = bios(
        """
        0   Q R 0+8 bio=1
        1   s R 0+8 bio=1 rq=1 tag=1/-1
        2   D R 0+8 bio=1 rq=1 tag=1/-1 hctx=0
        3   Q R 0+8 bio=2
        4   s R 0+8 bio=2 rq=2 tag=2/-1
        5   D R 0+8 bio=2 rq=2 tag=2/-1 hctx=0
        40  C R 0+8 bio=2 rq=2
        50  Q R 0+8 bio=3
        51  s R 0+8 bio=3 rq=3 tag=2/-1
        52  D R 0+8 bio=3 rq=3 tag=2/-1 hctx=0
        80  C R 0+8 bio=1 rq=1
        90  C R 0+8 bio=3 rq=3
        """
    )
    # THEN the other one, whichever it is, is still in flight, and the third is in doubt, too
    assert [certainty(b) for b in found] == ["ambiguous"] * 3
