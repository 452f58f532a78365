# SPDX-License-Identifier: Apache-2.0
"""Counterexamples that generated histories found, shrunk and named, so that they stay right."""

from biotrail.converters.events.tables import NEVER, Certainty
from tests.scenarios.cases_more import DM, LOOP, REQUEST_BASED
from tests.scenarios.tools import events_of, tables_of
from tests.support.captures import BASE_NS

NVME = ("259:8", {"name": "nvme0n1", "kind": "disk", "stacked_on": [254 << 20]})


def test_a_bio_that_is_sent_on_is_not_the_child_of_its_twin() -> None:
    # GIVEN two identical reads of a multipath disk, which sends the very bios on
    events = events_of(
        """
        0  Q 259:8 R 40+8 bio=1
        2  A 254:0 R 4136+8 bio=1 from=259:8+40
        3  G 254:0 R 4136+8 bio=1
        4  s 254:0 R 4136+8 bio=1 rq=1
        5  D 254:0 R 4136+8 bio=1 rq=1
        10 Q 259:8 R 40+8 bio=2
        12 A 254:0 R 4136+8 bio=2 from=259:8+40
        13 G 254:0 R 4136+8 bio=2
        14 s 254:0 R 4136+8 bio=2 rq=2
        15 D 254:0 R 4136+8 bio=2 rq=2
        60 C 254:0 R 4136+8 bio=1 rq=1
        70 C 254:0 R 4136+8 bio=2 rq=2
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(NVME, REQUEST_BASED))
    # THEN neither is the other's parent
    assert t.bios.parent.tolist() == [NEVER, NEVER]
    assert t.bios.certainty.tolist() == [0, 0]


def test_a_flush_sent_to_a_lower_disk_has_its_parent() -> None:
    # GIVEN an fsync of a mapped device, while a write that covers sector 0 is in flight there
    events = events_of(
        """
        0  Q 252:0 W 0+8 bio=1
        1  A 254:0 W 2048+8 bio=2 from=252:0+0
        2  Q 254:0 W 2048+8 bio=2
        10 Q 252:0 FWS 0+0 bio=3
        11 A 254:0 FWS 0+0 bio=4 from=252:0+0
        12 Q 254:0 FWS 0+0 bio=4
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(DM, REQUEST_BASED))
    # THEN the flush below belongs to the flush above, and not to the write
    upper, clone, fsync, flush = t.bios.number.tolist()
    assert t.bios.parent.tolist() == [NEVER, upper, NEVER, fsync]
    assert len({upper, clone, fsync, flush}) == 4


def test_a_clone_has_a_parent_of_its_own_operation() -> None:
    # GIVEN a read and a write of one place of a mapped device, at once
    events = events_of(
        """
        0  Q 252:0 R 100+8 bio=1
        1  Q 252:0 W 100+8 bio=2
        3  A 254:0 W 2148+8 bio=3 from=252:0+100
        4  Q 254:0 W 2148+8 bio=3
        5  A 254:0 R 2148+8 bio=4 from=252:0+100
        6  Q 254:0 R 2148+8 bio=4
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(DM, REQUEST_BASED))
    # THEN each clone has the bio of its operation as parent
    read, write, *_ = t.bios.number.tolist()
    assert t.bios.parent.tolist() == [NEVER, NEVER, write, read]


def test_a_bio_that_is_sent_on_is_served_where_it_went() -> None:
    # GIVEN a multipath disk's read, of which only remap and issue are recorded
    events = events_of(
        """
        0  Q 259:8 R 0+8 bio=1
        2  A 254:0 R 4096+8 bio=1 from=259:8+0
        5  D 254:0 R 4096+8 bio=1 rq=1
        50 C 254:0 R 4096+8 bio=1 rq=1
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(NVME, REQUEST_BASED))
    # THEN the request serves sectors of the lower disk
    assert t.bios.sector.tolist() == [0]
    assert t.edges.sector.tolist() == [4096]


def test_the_next_flush_is_not_the_requeue_of_one_whose_end_was_missed() -> None:
    # GIVEN a flush request used again, after a completion that no program saw
    events = events_of(
        """
        0   D FF 18446744073709551615+0 rq=1
        90  D FF 18446744073709551615+0 rq=1
        150 C FF 18446744073709551615+0 rq=1
        """
    )
    # WHEN the log is read
    t = tables_of(events)
    # THEN the second has its own times, and the first none
    assert [(ns - BASE_NS) // 1000 if ns >= 0 else NEVER for ns in t.requests.complete] == [
        NEVER,
        150,
    ]
    assert t.requests.certainty.tolist() == [Certainty.LOST, Certainty.EXACT]


def test_another_operation_is_another_request() -> None:
    # GIVEN an fsync whose completion was missed, then a command that has its memory
    events = events_of(
        """
        0  Q FWS 0+0 bio=1
        1  G FWS 0+0 bio=1
        2  s FWS 0+0 bio=1 rq=1
        40 D N 0+1 bio=1 rq=1
        90 C N 0+1 bio=1 rq=1
        """
    )
    # WHEN the log is read
    t = tables_of(events)
    # THEN the command is no issue of the fsync
    assert t.bios.issue.tolist()[0] == NEVER
    assert t.requests.kind.tolist() == [0, 2]


def test_without_start_a_request_begins_with_its_own_bio() -> None:
    # GIVEN a kernel without s, and a request that takes an older one behind it
    events = events_of(
        """
        0  Q R 8+8 bio=1
        1  G R 8+8 bio=1
        10 Q R 0+8 bio=2
        11 G R 0+8 bio=2
        13 I R 0+8 bio=2 rq=2
        14 m R 8+8 bio=1 rq=1
        20 D R 0+16 bio=2 rq=2 chain=2,1
        90 C R 0+16 bio=2 rq=2
        """
    )
    # WHEN the log is read
    t = tables_of(events)
    # THEN it began when it was allocated for its own bio, and the other bio has no insert
    start = dict(zip(t.requests.sector.tolist(), t.requests.start.tolist(), strict=True))
    assert (start[0] - BASE_NS) // 1000 == 11
    assert t.bios.insert.tolist()[0] == NEVER


def test_a_fragment_that_is_issued_is_the_parent_below_a_loop_device() -> None:
    # GIVEN a split read of a loop device, whose first piece alone was issued
    events = events_of(
        """
        0  Q 7:1 R 0+16 bio=1 page=4000
        1  X 7:1 R 0+8 bio=2 parent=1
        2  G 7:1 R 0+8 bio=2
        3  s 7:1 R 0+8 bio=2 rq=1
        4  D 7:1 R 0+8 bio=2 rq=1
        5  G 7:1 R 8+8 bio=1
        6  s 7:1 R 8+8 bio=1 rq=2
        20 Q 254:0 R 7000+8 bio=3 page=4000
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(LOOP, REQUEST_BASED))
    # THEN the read of the backing disk belongs to it
    upper, lower = t.bios.number.tolist()
    assert t.bios.parent.tolist() == [NEVER, upper]
    assert lower > upper


def test_a_clone_in_the_memory_of_a_bio_whose_end_was_missed_is_a_clone() -> None:
    # GIVEN a mapped device's bio whose completion was missed, and the clone of the next one,
    # which has its memory and begins within its sectors, but ends beyond them
    events = events_of(
        """
        0  Q 252:0 W 40+100 bio=1
        50 Q 252:0 W 104+130 bio=2
        51 A 254:0 W 30024+130 bio=1 from=252:0+104
        52 Q 254:0 W 30024+130 bio=1
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(DM, REQUEST_BASED))
    # THEN it is a bio of its own, made for the second
    _, upper, clone = t.bios.number.tolist()
    assert t.bios.parent.tolist() == [NEVER, NEVER, upper]
    assert clone > upper


def test_what_an_absorbed_request_held_may_wait_in_a_younger_one() -> None:
    # GIVEN a read in a request that a younger one took, which is not issued when the log ends,
    # and the issue of a third whose chain was cut and whose sectors cover it
    events = events_of(
        """
        0  Q R 0+8 bio=2
        1  G R 0+8 bio=2
        2  s R 0+8 bio=2 rq=2
        3  Q R 88+8 bio=1
        4  M R 88+8 bio=1
        10 Q R 72+8 bio=3
        11 G R 72+8 bio=3
        12 s R 72+8 bio=3 rq=3
        13 m R 80+16 bio=9 rq=1
        20 D R 0+96 bio=2 rq=2 chain=2 bios=1 flags=1
        60 C R 0+96 bio=2 rq=2
        """
    )
    # WHEN the log is read
    t = tables_of(events)
    # THEN nothing is said of its issue
    assert t.bios.sector.tolist()[1] == 88
    assert t.bios.issue.tolist()[1] == NEVER


def test_a_request_has_what_merged_into_it_when_it_is_inserted() -> None:
    # GIVEN an old kernel, where M names the request and s is missing: a merge into a request
    # whose end was missed, and then its memory, inserted as another
    events = events_of(
        """
        0  Q R 904+8 bio=1
        1  G R 904+8 bio=1
        2  Q R 912+8 bio=2
        3  M R 912+8 bio=2 rq=1
        40 Q R 216+64 bio=3
        41 G R 216+64 bio=3
        42 I R 216+64 bio=3 rq=1
        50 D R 216+64 bio=3 rq=1 chain=3
        90 C R 216+64 bio=3 rq=1
        """
    )
    # WHEN the log is read
    t = tables_of(events)
    # THEN the other is a request of its own, and serves the third bio alone
    assert t.bios.certainty.tolist()[2] == Certainty.EXACT
    assert t.requests.sector.tolist() == [912, 216]
    assert t.requests.bios.tolist()[1] == 1


def test_what_a_cut_chain_leaves_out_has_no_known_place_in_parts() -> None:
    # GIVEN three discards of one request whose chain was cut after the first; it completes in
    # two parts, and the second names one of those that were left out
    events = events_of(
        """
        0  Q D 104+8 bio=1
        1  G D 104+8 bio=1
        2  s D 104+8 bio=1 rq=1
        3  Q D 24+16 bio=2
        4  Q D 88+8 bio=3
        20 D D 104+32 bio=1 rq=1 chain=1 bios=1 flags=1
        50 C D 104+32 bio=1 rq=1 bytes=13824
        60 C D 131+5 bio=3 rq=1
        """
    )
    # WHEN the log is read
    t = tables_of(events)
    # THEN when that one ended is not sure
    assert t.bios.certainty.tolist()[0] == Certainty.EXACT
    assert t.bios.certainty.tolist()[2] >= Certainty.AMBIGUOUS


def test_a_bio_that_is_queued_elsewhere_than_it_was_sent_is_another() -> None:
    # GIVEN a bio that a multipath disk sends on, whose end was missed, and then its memory
    events = events_of(
        """
        0  Q 259:8 W 640+8 bio=1
        2  A 254:0 W 4736+8 bio=1 from=259:8+640
        40 Q 254:0 W 576+8 bio=1
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(NVME, REQUEST_BASED))
    # THEN the second has its own queue time
    assert [(ns - BASE_NS) // 1000 for ns in t.bios.queue] == [0, 40]


def test_an_insert_of_another_head_bio_at_the_sector_is_another_request() -> None:
    # GIVEN an old kernel without s, and a request whose merge into another was missed; its
    # memory is inserted again, as a larger request that begins at the same sector
    events = events_of(
        """
        0  Q R 592+8 bio=1
        1  G R 592+8 bio=1
        2  I R 592+8 bio=1 rq=1
        10 Q R 592+8 bio=2
        11 G R 592+8 bio=2
        12 Q R 600+8 bio=3
        13 M R 600+8 bio=3
        14 I R 592+16 bio=2 rq=1
        20 D R 592+16 bio=2 rq=1 chain=2,3
        60 C R 592+16 bio=2 rq=1
        """
    )
    # WHEN the log is read
    t = tables_of(events)
    # THEN the second request has its own insert
    assert [(ns - BASE_NS) // 1000 for ns in t.requests.insert] == [2, 14]


def test_two_clones_of_one_place_are_not_both_of_the_bio_that_is_known() -> None:
    # GIVEN a mapped device's bio, and two clones of one place on one disk: another bio was in
    # flight there when the log began
    events = events_of(
        """
        0  Q 252:0 W 96+130 bio=1
        1  A 254:0 W 5144+16 bio=2 from=252:0+144
        2  Q 254:0 W 5144+16 bio=2
        10 A 254:0 W 5144+16 bio=3 from=252:0+144
        11 Q 254:0 W 5144+16 bio=3
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(DM, REQUEST_BASED))
    # THEN no parent is claimed
    assert t.bios.parent.tolist() == [NEVER] * 3
