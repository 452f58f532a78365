# SPDX-License-Identifier: Apache-2.0
"""Which OTF2 events a bio or request has, and that windows do not change them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.events.tables import NEVER
from biotrail.converters.outputs.otf2.events import (
    BLOCKING,
    LONG_NS,
    TRUNCATED,
    UNISSUED,
    EventArray,
    Phase,
    Queue,
    WrittenBegins,
    finished_events,
)
from biotrail.converters.outputs.otf2.operations import bio_operations, request_operations
from tests.support.otf2_archives import VDA, bios, requests


def short(events: EventArray) -> list[tuple[str, int, int]]:
    """(phase, time, flags) in order of time."""
    rows = events[np.lexsort((events["phase"], events["number"], events["time"]))]
    return [(Phase(int(row["phase"])).name, int(row["time"]), int(row["flags"])) for row in rows]


def events_of_bio(**row: int) -> list[tuple[str, int, int]]:
    events, moved = finished_events(bio_operations(bios(row)), 1000, WrittenBegins.none())
    assert moved == 0
    return short(events)


def test_a_bio_begins_is_issued_and_completes() -> None:
    # GIVEN a bio with all its times / WHEN turned into events
    found = events_of_bio(number=7, queue=10, getrq=12, insert=13, issue=20, complete=90)
    # THEN these are queue, issue and completion
    assert found == [("BEGIN", 10, 0), ("ISSUED", 20, 0), ("COMPLETE", 90, 0)]


def test_a_bio_without_issue_is_blocking() -> None:
    # GIVEN a bio of a bio-based device / WHEN turned into events
    found = events_of_bio(queue=10, complete=90)
    # THEN it begins and completes, with nothing between
    assert found == [("BEGIN", 10, BLOCKING), ("COMPLETE", 90, UNISSUED)]


def test_a_bio_cut_off_is_cancelled_at_the_end() -> None:
    # GIVEN a bio in the device when the trace ends / WHEN turned into events
    found = events_of_bio(queue=10, issue=20)
    # THEN its cancellation is at the end and says that it was not seen
    assert found == [("BEGIN", 10, 0), ("ISSUED", 20, 0), ("CANCELLED", 1000, TRUNCATED)]


def test_a_bio_cut_off_before_its_issue_has_a_truncated_one() -> None:
    # GIVEN a bio queued when the trace ends / WHEN turned into events
    found = events_of_bio(queue=10, getrq=15)
    # THEN the issue that OTF2 demands is marked as not seen
    assert found == [
        ("BEGIN", 10, 0),
        ("ISSUED", 1000, TRUNCATED),
        ("CANCELLED", 1000, TRUNCATED | UNISSUED),
    ]


def test_a_bio_whose_queueing_was_not_seen_begins_with_what_was() -> None:
    # GIVEN a bio under way when the trace began / WHEN turned into events
    found = events_of_bio(issue=20, complete=90)
    # THEN it begins at the first time known, marked
    assert found == [("BEGIN", 20, TRUNCATED), ("ISSUED", 20, 0), ("COMPLETE", 90, 0)]


def test_numbers_may_be_as_large_as_they_come() -> None:
    # GIVEN bios whose beginning is not in the log, which have numbers of their own
    large = 2**62 + 4097
    ops = bio_operations(bios({"number": large, "issue": 20, "complete": 90}))
    # WHEN turned into events / THEN each has the number
    events, _ = finished_events(ops, 1000, WrittenBegins.none())
    assert set(events["number"].tolist()) == {large}


def test_a_bio_of_which_nothing_was_seen_is_kept() -> None:
    # GIVEN a bio without any time / WHEN turned into events
    found = events_of_bio(number=3)
    # THEN it is there, all of it marked
    assert found == [
        ("BEGIN", 1000, TRUNCATED),
        ("ISSUED", 1000, TRUNCATED),
        ("CANCELLED", 1000, TRUNCATED | UNISSUED),
    ]


def test_an_absorbed_request_names_the_one_that_took_its_bios() -> None:
    # GIVEN a request that was merged into another
    ops = request_operations(requests({"number": 5, "start": 10, "insert": 14, "absorbed_by": 2}))
    # WHEN turned into events
    events, _ = finished_events(ops, 1000, WrittenBegins.none())
    # THEN it is cancelled at its last time, not at the trace's end
    assert short(events) == [
        ("BEGIN", 10, 0),
        ("ISSUED", 14, TRUNCATED),
        ("CANCELLED", 14, UNISSUED),
    ]
    assert events["detail"][events["phase"] == Phase.CANCELLED].tolist() == [3]


def test_times_that_contradict_are_moved_and_counted() -> None:
    # GIVEN an issue before the queueing / WHEN turned into events
    ops = bio_operations(bios({"queue": 10, "issue": 5, "complete": 90}))
    events, moved = finished_events(ops, 1000, WrittenBegins.none())
    # THEN OTF2's order holds, and the change is counted
    assert short(events) == [("BEGIN", 10, 0), ("ISSUED", 10, 0), ("COMPLETE", 90, 0)]
    assert moved == 1


def test_a_bio_sent_to_a_partition_addresses_it() -> None:
    # GIVEN bios with and without a partition / WHEN made operations
    ops = bio_operations(bios({"part": 77}, {"part": 0}, {"part": VDA}))
    # THEN the partition is addressed where there is one, the disk elsewhere
    assert ops.dev.tolist() == [77, VDA, VDA]


def test_events_wait_for_what_began_earlier() -> None:
    # GIVEN a queue with a bio that ended, and an older one still open
    queue = Queue()
    queue.finish(bio_operations(bios({"number": 1, "queue": 10, "issue": 11, "complete": 20})), 50)
    older = bio_operations(bios({"number": 0, "queue": 5, "issue": 6}))
    # WHEN released
    first = queue.release(50, older)
    # THEN nothing goes before the older one has
    assert len(first) == 0
    queue.finish(bio_operations(bios({"number": 0, "queue": 5, "issue": 6, "complete": 60})), 70)
    assert [row[1] for row in short(queue.release(70, bio_operations(bios())))] == [
        5,
        6,
        10,
        11,
        20,
        60,
    ]
    assert queue.moved == 0


def test_a_full_queue_begins_what_has_long_been_open() -> None:
    # GIVEN a queue that may hold nothing back, and three bios open for longer than a second
    queue = Queue(hold_events=0)
    end = 2 * LONG_NS
    queue.finish(bio_operations(bios({"number": 5, "queue": 50, "issue": 60, "complete": 70})), end)
    still = [
        {"number": 0, "queue": 5, "issue": 6},
        {"number": 1, "queue": 7},
        {"number": 2, "queue": 8},
    ]
    # WHEN released
    first = queue.release(end, bio_operations(bios(*still)))
    # THEN their begins go, and all that they held back
    assert [row[:2] for row in short(first)] == [
        ("BEGIN", 5),
        ("ISSUED", 6),
        ("BEGIN", 7),
        ("BEGIN", 8),
        ("BEGIN", 50),
        ("ISSUED", 60),
        ("COMPLETE", 70),
    ]
    # WHEN they end
    ended = [
        {"number": 0, "queue": 5, "issue": 6, "complete": end + 1},
        {"number": 1, "queue": 7, "issue": end + 2, "complete": end + 3},
        {"number": 2, "queue": 8, "complete": end + 4},
    ]
    queue.finish(bio_operations(bios(*ended)), end + 9)
    # THEN only what was missing follows; an issue that never was is marked
    assert short(queue.drain()) == [
        ("COMPLETE", end + 1, 0),
        ("ISSUED", end + 2, 0),
        ("COMPLETE", end + 3, 0),
        ("ISSUED", end + 4, TRUNCATED),
        ("COMPLETE", end + 4, UNISSUED),
    ]
    assert (queue.held, queue.moved) == (0, 0)


def test_an_event_that_comes_too_late_is_moved_and_counted() -> None:
    # GIVEN a queue that has written up to 90
    queue = Queue()
    queue.finish(bio_operations(bios({"number": 1, "queue": 80, "complete": 90})), 100)
    queue.release(100, bio_operations(bios()))
    # WHEN something older comes that nothing announced
    queue.finish(bio_operations(bios({"number": 0, "queue": 10, "complete": 95})), 200)
    # THEN it is kept, at the earliest time that OTF2 permits, and counted
    assert [row[:2] for row in short(queue.drain())] == [("BEGIN", 90), ("COMPLETE", 95)]
    assert queue.moved == 1


times = st.integers(0, 60)


@st.composite
def random_bios(draw: st.DrawFn) -> list[dict[str, int]]:
    """Bios with some of their times, in an order that makes sense."""
    rows = []
    for number in range(draw(st.integers(0, 12))):
        queue = draw(times)
        issue = queue + draw(times) if draw(st.booleans()) else NEVER
        ended = draw(st.integers(0, 9)) > 0
        complete = max(queue, issue) + draw(times) if ended else NEVER
        rows.append({"number": number, "queue": queue, "issue": issue, "complete": complete})
    return rows


def in_windows(rows: list[dict[str, int]], cuts: list[int], queue: Queue) -> EventArray:
    """What a queue writes when each window gives what ended in it, and says what is open."""
    written, left = [], rows
    for end in sorted(set(cuts)):
        ended = [row for row in left if NEVER < row["complete"] < end]
        left = [row for row in left if row not in ended]
        seen = [
            {key: value if value < end or key == "number" else NEVER for key, value in row.items()}
            for row in left
            if row["queue"] < end
        ]
        queue.finish(bio_operations(bios(*ended)), end)
        written.append(queue.release(end, bio_operations(bios(*seen))))
    queue.finish(bio_operations(bios(*left)), LAST_NS)
    return np.concatenate([*written, queue.drain()])


LAST_NS = 100 * LONG_NS


@settings(max_examples=200, deadline=None)
@given(random_bios(), st.lists(st.integers(1, 180), max_size=6))
def test_windows_do_not_change_what_is_written(rows: list[dict[str, int]], cuts: list[int]) -> None:
    # GIVEN bios, and any cut of their time into windows
    queue, whole = Queue(), Queue()
    # WHEN they come window by window
    written = in_windows(rows, cuts, queue)
    # THEN the events are those of one window, in the same order
    whole.finish(bio_operations(bios(*rows)), LAST_NS)
    assert np.array_equal(written, whole.drain())
    assert queue.moved == 0


@settings(max_examples=200, deadline=None)
@given(random_bios(), st.lists(st.integers(1, 180), max_size=6))
def test_a_full_queue_changes_no_time_and_keeps_the_order(
    rows: list[dict[str, int]], cuts: list[int]
) -> None:
    # GIVEN bios that last for seconds, and a queue that may hold nothing back
    unit = LONG_NS // 20
    slow = [{k: v * unit if v > 0 and k != "number" else v for k, v in r.items()} for r in rows]
    queue = Queue(hold_events=0)
    # WHEN they come window by window
    written = in_windows(slow, [cut * unit for cut in cuts], queue)
    # THEN times rise, none was moved, and every bio has its own
    assert np.all(np.diff(written["time"]) >= 0)
    assert queue.moved == 0
    for row in slow:
        own = short(written[written["number"] == row["number"]])
        unissued = UNISSUED if row["issue"] == NEVER else 0
        last = ("COMPLETE", row["complete"], unissued)
        cut = ("CANCELLED", LAST_NS, TRUNCATED | unissued)
        assert own[0][:2] == ("BEGIN", row["queue"])
        assert own[-1] == (last if row["complete"] != NEVER else cut)
        assert (len(own) == 2) == bool(own[0][2] & BLOCKING)
        if row["issue"] != NEVER:
            assert own[1] == ("ISSUED", row["issue"], 0)
