# SPDX-License-Identifier: Apache-2.0
"""Counterexamples to intervals alone that generated histories found, shrunk and named."""

import pytest

from biotrail.converters.events.tables import Certainty
from tests.scenarios.cases_more import REQUEST_BASED
from tests.scenarios.tools import Tables, events_of, tables_of
from tests.support.captures import BASE_NS

CASES = {
    "a request serves no sector twice": (
        # GIVEN two identical reads, of which one is issued, and nothing told when it was allocated
        """
        0 Q 20 D 50 C R 112+8 bio=1 rq=1
        3 Q R 112+8 bio=2
        """,
        # THEN the request serves one of them, and which is ambiguous
        "0-50 ambiguous, 3- ambiguous",
    ),
    "the front of a request ends first": (
        # GIVEN a front merge, and a partial completion that ends the bio in front alone
        """
        0 QGs W 80+8 bio=1 rq=1
        5 QF W 72+8 bio=2
        9 D 50 C W 72+16 bio=2 rq=1 bios=2 bytes=6656
        70 C W 85+3 bio=1 rq=1
        """,
        # THEN the bio behind ends with the rest
        "0-70 interval, 5-50 interval",
    ),
    "two clones of one place are two bios": (
        # GIVEN a thread that sends two fsyncs of one mapped device below, one right behind the
        # other, and a third one when a flush has begun for these
        """
        0 A 3 Q 5 G 254:0 FWS 0+0 bio=1 from=252:0+0
        1 AQ 4 G 254:0 FWS 0+0 bio=2 from=252:0+0
        20 AQG 254:0 FWS 0+0 bio=3 from=252:0+0
        """,
        # THEN which of the three has which request is in doubt for all: the first has had no Q
        "- incomplete, 2- ambiguous, 3- ambiguous, 21- ambiguous",
    ),
    "a flush first ends with the empty completion": (
        # GIVEN a journal commit on a device that does FUA itself
        """
        0 QGs FWFS 0+8 bio=1 rq=1
        10 D 60 C FF 18446744073709551615+0 rq=9
        63 I 66 D 120 C WFS 0+8 bio=1 rq=1
        125 C WFS 0+0 bio=1 rq=1
        """,
        # THEN the last completion ends the bio
        "0-125 interval",
    ),
    "another tasks merge is not sure": (
        # GIVEN two identical reads that the scheduler holds, and a third behind them: it joins
        # one of the two, whoever queued them
        """
        0 QG R 64+8 bio=1 pid=100
        2 I 30 D 50 C R 64+8 bio=1 rq=1
        10 QG R 64+8 bio=2 pid=150
        12 I R 64+8 bio=2 rq=2
        20 QM R 72+8 bio=3 pid=100
        60 D 90 C R 64+16 bio=2 rq=2 chain=2,3
        """,
        # THEN all three are ambiguous
        "0-90 ambiguous, 10-50 ambiguous, 20-90 ambiguous",
    ),
    "what joins the rest of an unknown request is not sure": (
        # GIVEN two reads that begin at one sector: the first to complete may be part of either, and
        # so the rest that is requeued is nobody's; a third read joins that rest
        """
        0 QGs 4 D 30 C R 100+16 bio=1 rq=1 bytes=7168
        5 QGsD 20 C R 100+10 bio=2 rq=2
        31 R R 114+2 bio=1 rq=1
        40 QM R 116+8 bio=3
        42 D 50 C R 114+10 bio=1 rq=1 chain=1,3 bytes=4096
        51 RD 60 C R 122+2 bio=3 rq=1 chain=3
        """,
        # THEN which completion ends the third is not sure either
        "0- ambiguous, 5- ambiguous, 40-50 ambiguous",
    ),
    "what comes into doubt late is marked": (
        # GIVEN two discards in one request, of which the first completes and the rest is requeued;
        # a third joins it without an event, so that its issue fits no request that is known
        """
        0 Q D 152+16 bio=1
        1 Q 52 R D 168+8 bio=2 rq=1
        10 D 50 C D 152+24 bio=1 rq=1 chain=1,2 bytes=8192
        60 Q D 176+8 bio=3
        70 DR 80 D 90 C D 168+16 bio=2 rq=1 chain=2,3
        """,
        # THEN how often the first bio's request was requeued is not sure, though it had ended
        "0-50 ambiguous, 1- ambiguous, 60- ambiguous",
    ),
    "a merge goes to the request that lives": (
        # GIVEN a read whose completion was missed, as the tag that is given again shows, and after
        # it a request that takes a neighbour
        """
        0 QGs R 0+8 bio=1 rq=1
        3 D R 0+8 bio=1 rq=1 tag=7/-1 hctx=0
        10 QGs 70 C R 100+8 bio=2 rq=2
        13 D R 100+8 bio=2 rq=2 tag=7/-1 hctx=0
        20 QGs R 200+8 bio=3 rq=3
        25 QGsm R 208+8 bio=4 rq=4 into=3
        30 D 60 C R 200+16 bio=3 rq=3 tag=8/-1 hctx=0
        """,
        # THEN the neighbour ends with the request that took it, not with the one that is lost
        "0- lost, 10-70 interval, 20-60 interval, 25-60 interval",
    ),
    "the piece of a bio in doubt is in doubt and so is what it joins": (
        # GIVEN two bios that begin at one sector, of which one is split, and its front piece joins
        """
        0 QGs R 0+8 bio=1 rq=1
        3 Q R 8+40 bio=2
        4 Q R 8+32 bio=3
        5 XM R 8+24 bio=4 parent=3
        20 D 60 C R 0+32 bio=1 rq=1 chain=1,4
        """,
        # THEN the request that it joined is in doubt too
        "0-60 ambiguous, 3- ambiguous, 4- ambiguous",
    ),
    "what begins where another may go on is not sure": (
        # GIVEN two requests that begin at one sector, of which one completes in part and is
        # requeued, and a third where its rest begins
        """
        0 QG 6 D 32 C W 8+8 bio=1 rq=1
        2 QG 7 D W 8+16 bio=2 rq=2
        4 QG 8 D 30 C W 16+8 bio=3 rq=3
        20 C W 8+8 bio=2 rq=2
        21 RD 31 C W 16+8 bio=2 rq=2
        """,
        # THEN none of them is sure
        "0-20 ambiguous, 2- ambiguous, 4-30 ambiguous",
    ),
    "discards that wait may be one issue wherever they lie": (
        # GIVEN discards without allocations, of which two, apart, are issued as one, whose sum two
        # others that lie together would have as well
        """
        0 Q D 72+24 bio=1
        1 Q D 96+8 bio=2
        2 Q D 40+8 bio=3
        9 D 40 C D 72+32 bio=1 rq=1 chain=1,3
        """,
        # THEN none of them is sure
        "0-40 ambiguous, 1-40 ambiguous, 2- ambiguous",
    ),
    "a discard may have grown to what another is": (
        # GIVEN two discards that begin at one sector, and the issue of the shorter, which grew
        """
        0 QG D 0+16 bio=1
        2 QG D 0+8 bio=2
        4 Q D 80+8 bio=3
        9 D 40 C D 0+16 bio=2 rq=2 chain=2,3
        """,
        # THEN which of them it is, is not sure
        "0-40 ambiguous, 2- ambiguous, 4- incomplete",
    ),
    "what a task holds back may be no place to merge": (
        # GIVEN a request in the scheduler and one in a task's plug, at the same place, and a bio of
        # that task that joins the first of them: the other differs in what no event tells
        """
        0 QGI W 112+16 bio=1 rq=1
        3 QG W 112+16 bio=2
        5 QF W 104+8 bio=3
        20 D 60 C W 104+24 bio=3 rq=1 chain=3,1
        """,
        # THEN all three are in doubt
        "0- ambiguous, 3-60 ambiguous, 5-60 ambiguous",
    ),
    "doubts stay with the request that they are about": (
        # GIVEN a request whose end was lost: its tag is used again, so its made-up identity is,
        # too, by one of two requests that are later confused
        """
        0 QGD W 80+8 bio=9 rq=9 hctx=0 tag=6/-1
        10 QG R 48+8 bio=1
        12 QG 30 C 14 D R 56+8 bio=2 rq=2 hctx=0 tag=6/-1
        15 QG 31 C 17 D R 48+8 bio=3 rq=3 hctx=0 tag=7/-1
        """,
        # THEN the first is lost, and in no doubt; which of the two waits is not sure
        "0- lost, 10-31 ambiguous, 12-30 interval, 15- ambiguous",
    ),
    "nothing merges into a fua write": (
        # GIVEN two writes that end at one sector, one of them FUA, and a third that merges behind
        """
        0 QGs 20 D 70 C WFS 64+8 bio=1 rq=1
        3 QGs W 56+16 bio=2 rq=2
        6 QM W 72+8 bio=3
        21 D 90 C W 56+24 bio=2 rq=2 bios=2
        """,
        # THEN the merge is certain: REQ_FUA is one of REQ_NOMERGE_FLAGS
        "0-70 interval, 3-90 interval, 6-90 interval",
    ),
}
"""Name → events, and each bio: queue-complete (µs; nothing: not known), certainty."""


def without_pointers(text: str) -> Tables:
    return tables_of(events_of(text), devices=(REQUEST_BASED,), header={"backend": "bcc"})


def us(ns: int) -> str:
    return str((ns - BASE_NS) // 1000) if ns >= 0 else ""


@pytest.mark.parametrize("name", CASES)
def test_intervals(name: str) -> None:
    # GIVEN the events of a case  WHEN their log, which has no pointers, is read
    events, expected = CASES[name]
    bios = without_pointers(events).bios
    # THEN each bio is as expected, and marked where it is in doubt
    rows = zip(bios.queue, bios.complete, bios.certainty, strict=True)
    found = [f"{us(q)}-{us(end)} {Certainty(c).name.lower()}" for q, end, c in rows]
    assert ", ".join(found) == expected


def test_intervals_a_bio_is_issued_after_the_last_merge_that_moved_it() -> None:
    # GIVEN a request that is absorbed, and again what absorbed it, by one that was issued and
    # requeued before
    t = without_pointers(
        """
            0 QGs 6 m R 16+8 bio=1 rq=1 into=2
            3 QGs R 8+8 bio=2 rq=2
            7 QGsD 20 R R 0+8 bio=3 rq=3
            21 m R 8+16 bio=2 rq=2 into=3
            30 D 60 C R 0+24 bio=3 rq=3 chain=3,2,1
            """
    )
    # THEN the bios that it took are issued with its second issue
    assert [(ns - BASE_NS) // 1000 for ns in t.bios.issue] == [30, 30, 10]
