# SPDX-License-Identifier: Apache-2.0
"""Counterexamples that generated histories found, of addresses that live again; shrunk, named."""

import pytest

from biotrail.converters.events.tables import NEVER, Certainty
from tests.scenarios.cases_more import REQUEST_BASED
from tests.scenarios.tools import events_of, tables_of
from tests.support.captures import BASE_NS


def test_a_bio_is_not_of_a_request_that_lies_elsewhere_than_it_was_merged() -> None:
    # GIVEN a merged bio whose issue and end were lost, and its memory in a later request
    events = events_of(
        """
        0  Q W 80+8 bio=1
        1  M W 80+8 bio=1
        40 D W 680+40 bio=2 rq=1 chain=2,1
        60 C W 680+40 bio=2 rq=1
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED,))
    # THEN the first life of the address is in no request
    assert t.bios.queue[0] == BASE_NS
    assert t.bios.number[0] not in t.edges.bio


def test_a_bio_is_not_of_a_request_of_another_operation_or_place() -> None:
    # GIVEN a bio whose end was lost, and a request for its memory, elsewhere
    events = events_of(
        """
        0  Q W 112+8 bio=1
        40 G W 64+40 bio=1
        41 s W 64+40 bio=1 rq=1
        42 D W 64+40 bio=1 rq=1
        60 C W 64+40 bio=1 rq=1
        70 Q R 8+8 bio=2
        80 G D 8+8 bio=2
        81 s D 8+8 bio=2 rq=2
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED,))
    # THEN the queued bios were given no request
    queued = t.bios.number[t.bios.queue >= 0]
    assert len(queued) == 2
    assert not set(queued.tolist()) & set(t.edges.bio.tolist())


def test_a_completion_for_a_bio_queued_since_is_not_of_a_requeued_request() -> None:
    # GIVEN a requeued read whose end was lost, and its memory, which ends an fsync unissued
    events = events_of(
        """
        0  Q R 16+8 bio=1
        1  D R 16+8 bio=1 rq=1
        2  R R 16+8 bio=1 rq=1
        80 Q FWS 0+0 bio=2
        90 C FWS 0+0 bio=2 rq=1
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED,))
    # THEN the fsync has a request of its own
    assert t.requests.issue.tolist() == [BASE_NS + 1000, NEVER]
    assert t.bios.request.tolist()[0] != t.bios.request.tolist()[1]


def test_what_another_bio_carries_out_is_not_sent_on_itself() -> None:
    # GIVEN a flush above that a clone carries out, its end lost, and its memory as the clone of
    # the next flush
    events = events_of(
        """
        0  Q 9:0 FWS 0+0 bio=5
        1  A 254:0 FWS 0+0 bio=7 from=9:0+0
        2  Q 254:0 FWS 0+0 bio=7
        5  C 254:0 WS 0+0 bio=7 rq=1
        10 Q 9:0 FWS 0+0 bio=4
        11 A 254:0 FWS 0+0 bio=5 from=9:0+0
        12 Q 254:0 FWS 0+0 bio=5
        20 C 254:0 WS 0+0 bio=5 rq=1
        21 c 9:0 FWS 0+0 bio=4
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED,))
    # THEN they are two bios above, and two below
    assert [(ns - BASE_NS) // 1000 for ns in t.bios.queue] == [0, 2, 10, 12]
    assert t.bios.parent.tolist()[1] == t.bios.number.tolist()[0]


def test_a_completion_before_the_issue_that_is_known_ends_what_lies_there_alone() -> None:
    # GIVEN a request whose issue was lost, completed in part and requeued, and a bio queued
    # before that which came to it later, with a request whose allocation was lost
    events = events_of(
        """
        0  Q W 48+8 bio=1
        20 C W 0+32 bio=3 rq=1
        21 R W 32+8 bio=4 rq=1
        22 Q W 40+8 bio=2
        23 F W 40+8 bio=2
        24 m W 40+16 bio=2 rq=2
        30 D W 32+24 bio=4 rq=1 chain=4,2,1
        60 C W 32+24 bio=4 rq=1
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED,))
    # THEN both ended with the rest
    queued = t.bios.queue >= 0
    assert [(ns - BASE_NS) // 1000 for ns in t.bios.complete[queued]] == [60, 60]


def test_what_joins_far_from_the_request_joins_another() -> None:
    # GIVEN merges that name their request, one before its end was lost, one after its memory lives
    # again elsewhere; the second request is told whole when it is issued
    events = events_of(
        """
        0  Q W 656+8 bio=1
        1  F W 656+8 bio=1 rq=5
        50 Q W 4144+8 bio=2
        51 G W 4144+8 bio=2
        52 Q W 4152+8 bio=3
        53 M W 4152+8 bio=3 rq=5
        54 D W 4144+16 bio=2 rq=5 chain=2,3
        90 C W 4144+16 bio=2 rq=5
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED,))
    # THEN the request that was issued began with the merge into it
    assert t.bios.request.tolist() == [1, 5, 5]
    assert t.bios.complete.tolist() == [NEVER, BASE_NS + 90_000, BASE_NS + 90_000]


def test_a_bio_behind_a_gap_in_the_chain_ends_by_its_place() -> None:
    # GIVEN two like requests of twelve neighbours whose chains were cut, so that of each place
    # behind the seventh nobody knows which bio is whose; one completes in part, into the ninth,
    # which the requeue then names
    places = range(12)
    lines = []
    for place in places:
        letter = "M" if place else "G"
        for bio in (100 + place, 200 + place):
            lines += [f"{len(lines)} Q W {8 * place}+8 bio={bio}"]
            lines += [f"{len(lines)} {letter} W {8 * place}+8 bio={bio}"]
    for rq in (100, 200):
        chain = ",".join(str(rq + place) for place in range(7))
        lines += [f"{rq} D W 0+96 bio={rq} rq={rq} chain={chain} bios=7 flags=1"]
    rest = ",".join(str(100 + place) for place in range(8, 12))
    lines += [
        "300 C W 0+96 bio=200 rq=200",
        "310 C W 0+67 bio=100 rq=100",
        "320 R W 67+29 bio=108 rq=100",
        f"330 D W 67+29 bio=108 rq=100 chain={rest}",
    ]
    # WHEN the log is read
    t = tables_of(events_of("\n".join(lines)), devices=(REQUEST_BASED,))
    # THEN the ninth has not ended with the part that goes into it
    mine = t.bios.request == t.bios.request[0]
    ended = t.bios.complete[mine] >= 0
    assert t.bios.sector[mine].tolist() == [8 * place for place in places if place != 7]
    assert ended.tolist() == [True] * 7 + [False] * 4


def test_a_bio_on_a_partition_is_the_one_on_the_disk_though_its_remap_was_lost() -> None:
    # GIVEN a write that an old kernel queues on the partition and again on the disk; A was lost
    events = events_of(
        """
        0  Q 254:2 W 88+8 bio=1
        3  Q 254:0 W 4184+8 bio=1
        4  G 254:0 W 4184+8 bio=1
        5  D 254:0 W 4184+8 bio=1 rq=1
        60 C 254:0 W 4184+8 bio=1 rq=1
        """
    )
    part = ("254:2", {"name": "vda2", "kind": "partition", "disk": 254 << 20, "start": 4096})
    loss = {"start": BASE_NS + 1000, "end": BASE_NS + 2000, "cpu": 0, "level": 0, "kind": 0}
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED, part), losses=[loss | {"count": 1}])
    # THEN there is one bio, with its end; that something was lost is said
    assert t.bios.queue.tolist() == [BASE_NS]
    assert t.bios.complete.tolist() == [BASE_NS + 60_000]
    assert t.bios.certainty.tolist() == [Certainty.LOST]


def test_a_mirrored_bio_whose_memory_is_used_below_is_not_sent_on() -> None:
    # GIVEN a mirror's write with its clone, whose end was lost; its memory is used again below
    events = events_of(
        """
        0  Q 9:0 W 800+8 bio=1
        1  A 254:0 W 5800+8 bio=2 from=9:0+800
        2  Q 254:0 W 5800+8 bio=2
        3  G 254:0 W 5800+8 bio=2
        4  D 254:0 W 5800+8 bio=2 rq=2
        60 C 254:0 W 5800+8 bio=2 rq=2
        90 Q 254:0 W 2152+8 bio=1
        """
    )
    mirror = ("9:0", {"name": "md0", "kind": "md", "stacked_on": [254 << 20]})
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED, mirror))
    # THEN it is another bio
    assert [(ns - BASE_NS) // 1000 for ns in t.bios.queue] == [0, 2, 90]


def test_a_bio_that_joined_behind_others_and_is_at_the_head_had_an_issue() -> None:
    # GIVEN a cut chain, and a failed completion that names the bio which joined last: the ends
    # of those before it were lost
    lines = []
    for place in range(8):
        letter = "M" if place else "G"
        lines += [f"{len(lines)} Q W {8 * place}+8 bio={place + 1}"]
        lines += [f"{len(lines)} {letter} W {8 * place}+8 bio={place + 1}"]
        lines += [] if place else [f"{len(lines)} s W 0+8 bio=1 rq=1"]
    lines += [
        "40 D W 0+64 bio=1 rq=1 chain=1,2,3,4,5,6,7 bios=7 flags=1",
        "50 C W 0+3 bio=1 rq=1",
        "51 R W 3+61 bio=1 rq=1",
        "60 D W 3+61 bio=1 rq=1 chain=1,2,3,4,5,6,7 bios=7 flags=1",
        "90 C W 56+8 bio=8 rq=1 status=10",
    ]
    # WHEN the log is read
    t = tables_of(events_of("\n".join(lines)), devices=(REQUEST_BASED,))
    # THEN what is told of it does not count as whole
    assert t.bios.complete[7] == BASE_NS + 90_000
    assert t.bios.certainty[7] == Certainty.LOST


@pytest.mark.parametrize("end", ["900 c 9:0 W 88+0 bio=7", "900 c 9:0 W 80+8 bio=7"])
def test_a_clone_of_a_bio_from_before_the_log_has_no_parent(end: str) -> None:
    # GIVEN a mirror's write, and the clone of another to the same place, of which only the end is
    # in the log, with its range or with what is left of that
    events = events_of(
        f"""
        0   Q 9:0 W 80+8 bio=1
        1   A 254:0 W 5080+8 bio=2 from=9:0+80
        2   Q 254:0 W 5080+8 bio=2
        3   G 254:0 W 5080+8 bio=2
        4   D 254:0 W 5080+8 bio=2 rq=2
        60  C 254:0 W 5080+8 bio=2 rq=2
        {end}
        """
    )
    mirror = ("9:0", {"name": "md0", "kind": "md", "stacked_on": [254 << 20]})
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED, mirror))
    # THEN it is not said which of them the clone is of
    clone = t.bios.queue == BASE_NS + 2000
    assert t.bios.parent[clone].tolist() == [NEVER]


def test_a_split_bio_whose_piece_was_lost_goes_on_until_its_own_address_lives_again() -> None:
    # GIVEN a bio in two requests, of which the first one's end was lost, and its piece's memory in
    # use again long before the bio's own
    events = events_of(
        """
        0   Q W 0+1024 bio=1
        1   X W 0+512 bio=2 parent=1 new=512
        2   s W 0+512 bio=2 rq=1
        3   s W 512+512 bio=1 rq=2
        4   D W 0+512 bio=2 rq=1
        5   D W 512+512 bio=1 rq=2
        20  C W 512+512 bio=1 rq=2
        40000 Q W 4096+8 bio=2
        40001 s W 4096+8 bio=2 rq=3
        40002 D W 4096+8 bio=2 rq=3
        40060 C W 4096+8 bio=2 rq=3
        90000 Q R 96+8 bio=7
        200000 Q W 8192+8 bio=1
        """
    )
    # WHEN the log is read, in one window or in several
    for window in (1 << 20, 8):
        t = tables_of(events, window_events=window, devices=(REQUEST_BASED,))
        # THEN the bio was gone when its own address lived again
        assert t.bios.gone[0] == BASE_NS + 200_000_000
        assert t.bios.certainty[0] == Certainty.LOST
