# SPDX-License-Identifier: Apache-2.0
"""Which OTF2 events bios, requests, calls and pairs have, and that windows do not change them."""

import io
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biotrail.converters.events.tables import NEVER
from biotrail.converters.outputs.otf2.convert import Otf2Summary, convert
from biotrail.converters.outputs.otf2.events import (
    BLOCKING,
    LONG_NS,
    TRUNCATED,
    UNISSUED,
    EventArray,
    Phase,
    Queue,
    WrittenBegins,
    bio_operations,
    finished_events,
    request_operations,
)
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from biotrail.converters.sites import pair_names
from tests.support import captures
from tests.support.otf2_archives import (
    VDA,
    Call,
    assert_as_the_library,
    bios,
    calls,
    otf2_print,
    requests,
)
from tests.support.path_logs import FSYNC, PREAD, PathLog
from tests.support.site_logs import SiteLog
from tests.support.stack_logs import START


def short(events: EventArray) -> list[tuple[str, int, int]]:
    """(phase, time, flags) in order of time."""
    rows = events[np.lexsort((events["phase"], events["number"], events["time"]))]
    return [(Phase(int(row["phase"])).name, int(row["time"]), int(row["flags"])) for row in rows]


@pytest.mark.parametrize(
    ("row", "events"),
    [
        # With all its times: queue, issue and completion.
        (
            {"number": 7, "queue": 10, "getrq": 12, "insert": 13, "issue": 20, "complete": 90},
            [("BEGIN", 10, 0), ("ISSUED", 20, 0), ("COMPLETE", 90, 0)],
        ),
        # Of a bio-based device: nothing between.
        ({"queue": 10, "complete": 90}, [("BEGIN", 10, BLOCKING), ("COMPLETE", 90, UNISSUED)]),
        # In the device when the trace ends: the end is marked as not seen.
        (
            {"queue": 10, "issue": 20},
            [("BEGIN", 10, 0), ("ISSUED", 20, 0), ("CANCELLED", 1000, TRUNCATED)],
        ),
        # Queued when it ends: the issue that OTF2 demands is marked, too.
        (
            {"queue": 10, "getrq": 15},
            [
                ("BEGIN", 10, 0),
                ("ISSUED", 1000, TRUNCATED),
                ("CANCELLED", 1000, TRUNCATED | UNISSUED),
            ],
        ),
        # Under way when the trace began: it begins at the first time known.
        (
            {"issue": 20, "complete": 90},
            [("BEGIN", 20, TRUNCATED), ("ISSUED", 20, 0), ("COMPLETE", 90, 0)],
        ),
        # Without any time: all of it is marked.
        (
            {"number": 3},
            [
                ("BEGIN", 1000, TRUNCATED),
                ("ISSUED", 1000, TRUNCATED),
                ("CANCELLED", 1000, TRUNCATED | UNISSUED),
            ],
        ),
    ],
)
def test_events_of_a_bio(row: dict[str, int], events: list[tuple[str, int, int]]) -> None:
    # GIVEN a bio with some of its times / WHEN turned into events / THEN these are in OTF2's order
    found, moved = finished_events(bio_operations(bios(row)), 1000, WrittenBegins())
    assert (short(found), moved) == (events, 0)


def test_operations_devices_absorbed_requests_and_odd_times() -> None:
    # GIVEN bios whose beginning is not in the log, which have numbers of their own
    large = 2**62 + 4097
    ops = bio_operations(bios({"number": large, "issue": 20, "complete": 90}))
    # WHEN turned into events / THEN each has the number
    events, _ = finished_events(ops, 1000, WrittenBegins())
    assert set(events["number"].tolist()) == {large}
    # GIVEN bios with and without a partition / WHEN made operations
    ops = bio_operations(bios({"part": 77}, {"part": 0}, {"part": VDA}))
    # THEN the partition is addressed where there is one, the disk elsewhere
    assert ops.dev.tolist() == [77, VDA, VDA]
    # GIVEN a request that was merged into another
    ops = request_operations(requests({"number": 5, "start": 10, "insert": 14, "absorbed_by": 2}))
    # WHEN turned into events / THEN it is cancelled at its last time, not at the trace's end
    events, _ = finished_events(ops, 1000, WrittenBegins())
    assert short(events) == [
        ("BEGIN", 10, 0),
        ("ISSUED", 14, TRUNCATED),
        ("CANCELLED", 14, UNISSUED),
    ]
    assert events["detail"][events["phase"] == Phase.CANCELLED].tolist() == [3]
    # GIVEN an issue before the queueing / WHEN turned into events
    ops = bio_operations(bios({"queue": 10, "issue": 5, "complete": 90}))
    events, moved = finished_events(ops, 1000, WrittenBegins())
    # THEN OTF2's order holds, and the change is counted
    assert short(events) == [("BEGIN", 10, 0), ("ISSUED", 10, 0), ("COMPLETE", 90, 0)]
    assert moved == 1


def test_events_wait_for_what_began_earlier() -> None:
    # GIVEN a queue with a bio that ended, and an older one still open
    queue = Queue()
    queue.finish(bio_operations(bios({"number": 1, "queue": 10, "issue": 11, "complete": 20})), 50)
    older = bio_operations(bios({"number": 0, "queue": 5, "issue": 6}))
    # WHEN released / THEN nothing goes before the older one has
    first = queue.release(50, older)
    assert len(first) == 0
    queue.finish(bio_operations(bios({"number": 0, "queue": 5, "issue": 6, "complete": 60})), 70)
    released = short(queue.release(70, bio_operations(bios())))
    assert [row[1] for row in released] == [5, 6, 10, 11, 20, 60]
    assert queue.moved == 0
    # GIVEN a queue that has written up to 90
    queue = Queue()
    queue.finish(bio_operations(bios({"number": 1, "queue": 80, "complete": 90})), 100)
    queue.release(100, bio_operations(bios()))
    # WHEN something older comes that nothing announced
    queue.finish(bio_operations(bios({"number": 0, "queue": 10, "complete": 95})), 200)
    # THEN it is kept, at the earliest time that OTF2 permits, and counted
    assert [row[:2] for row in short(queue.take())] == [("BEGIN", 90), ("COMPLETE", 95)]
    assert queue.moved == 1


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
    # WHEN released / THEN their begins go, and all that they held back
    first = queue.release(end, bio_operations(bios(*still)))
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
    assert short(queue.take()) == [
        ("COMPLETE", end + 1, 0),
        ("ISSUED", end + 2, 0),
        ("COMPLETE", end + 3, 0),
        ("ISSUED", end + 4, TRUNCATED),
        ("COMPLETE", end + 4, UNISSUED),
    ]
    assert (queue.held, queue.moved) == (0, 0)


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
    return np.concatenate([*written, queue.take()])


LAST_NS = 100 * LONG_NS


@settings(max_examples=200, deadline=None)
@given(random_bios(), st.lists(st.integers(1, 180), max_size=6))
def test_windows_do_not_change_what_is_written(rows: list[dict[str, int]], cuts: list[int]) -> None:
    # GIVEN bios, and any cut of their time into windows
    queue, whole = Queue(), Queue()
    # WHEN they come window by window / THEN the events are those of one window, in the same order
    written = in_windows(rows, cuts, queue)
    whole.finish(bio_operations(bios(*rows)), LAST_NS)
    assert np.array_equal(written, whole.take())
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
    # WHEN they come window by window / THEN times rise, none was moved, and every bio has its own
    written = in_windows(slow, [cut * unit for cut in cuts], queue)
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


# System calls in OTF2 archives: regions of their threads, and I/O operations in them.

otf2 = pytest.importorskip("otf2")


READV = 19


def archive(
    data: bytes | Path, directory: Path, window_events: int = 250_000
) -> tuple[Otf2Summary, Path]:
    """An archive, and what otf2-print has no complaint about."""
    source = Trace(io.BytesIO(data) if isinstance(data, bytes) else data)
    summary = convert(source.lifecycles(window_events), source.context, directory)
    otf2_print(summary.anchor)
    return summary, summary.anchor


def test_what_calls_ask_for_and_return(tmp_path: Path) -> None:
    # GIVEN a short write, a failed read, a read into several buffers, an fsync, and an ioctl
    log = PathLog()
    log.returns(0, 10, number=18, result=100, fd=4, length=4096)
    log.returns(20, 30, number=PREAD, result=-28, fd=4, length=4096)
    log.returns(40, 50, number=READV, result=12_288, fd=4, length=3)
    log.returns(60, 70, number=FSYNC, result=0, fd=4, length=77)
    log.returns(80, 90, number=16, result=7, fd=4, length=99)
    log.returns(100, 110, number=3, result=1, fd=4, foreign=True)
    # WHEN they are converted
    summary, anchor = archive(log.data(), tmp_path / "a")
    # THEN bytes are those of reads and writes; what is no operation says what it returned
    ((_, found),) = calls(anchor).items()
    fd = "fd 4 of process 42"
    assert [(call.name, call.operation, call.told) for call in found] == [
        ("pwrite64", (fd, "write", 4096, 100), {}),
        ("pread64", (fd, "read", 4096, 0), {"error": "ENOSPC"}),
        ("readv", (fd, "read", 12_288, 12_288), {}),
        ("fsync", (fd, "flush", 0, 0), {}),
        ("ioctl", None, {"result": 7}),
        ("32-bit syscall 3", None, {"result": 1}),
    ]
    assert (summary.calls, summary.call_operations) == (6, 4)
    assert_as_the_library(anchor, tmp_path / "b")


def test_times_that_go_back_are_moved_and_counted(tmp_path: Path) -> None:
    # GIVEN two calls of a thread that overlap, as no kernel records them
    log = PathLog()
    log.returns(100, 900)
    log.returns(500, 1500)
    # WHEN they are converted THEN OTF2's order is kept, and it is said
    summary, anchor = archive(log.data(), tmp_path / "a")
    ((_, found),) = calls(anchor).items()
    times = [(call.begin - START, call.end - START) for call in found]
    assert times == [(100, 900), (900, 1500)]
    assert summary.moved == 2


def test_a_log_without_the_path_has_no_trace_of_it(tmp_path: Path) -> None:
    # GIVEN a log without the path WHEN it is converted
    log = captures.write_log(tmp_path / "a.biotrail", captures.load("plugged-merge-loop"))
    _, anchor = archive(log, tmp_path / "a")
    # THEN nothing is defined that only calls need
    with otf2.reader.open(str(anchor)) as trace:
        assert len(trace.definitions.regions) == 0
        assert {one.identification for one in trace.definitions.io_paradigms} == {
            "block_bio",
            "block_rq",
        }
        assert "fd" not in {attribute.name for attribute in trace.definitions.attributes}
    assert calls(anchor) == {}


# Pairs of events in OTF2 archives: a region for each, at a location for each key.

BLOCK = 4
WORK = 2


def archived(log: SiteLog, directory: Path, window: int = WINDOW_EVENTS) -> Otf2Summary:
    trace = Trace(BytesIO(log.data()))
    return convert(trace.lifecycles(window, small=True), trace.context, directory)


def spans(found: list[Call]) -> list[tuple[str, int, int]]:
    """(region, begin, end) of each, ns since START."""
    return [(one.name, one.begin - START, one.end - START) for one in found]


def sample() -> SiteLog:
    log = SiteLog()
    log.pair(100, 300, BLOCK, 0, by=BLOCK, comm=b"ksoftirqd/0", tid=13)
    log.pair(150, 400, BLOCK, 1, by=BLOCK, cpu=1)
    log.pair(300, 310, BLOCK, 0, by=BLOCK)
    log.pair(120, 900, 0xFFFF888000000000, pair=WORK)
    return log


def test_each_key_has_a_location_with_its_pairs(tmp_path: Path) -> None:
    # GIVEN pairs of several keys, of which those of one key follow each other
    # WHEN they are converted / THEN each key has a location, with a region for each pair
    summary = archived(sample(), tmp_path / "otf2")
    found = calls(summary.anchor)
    assert {name: spans(mine) for name, mine in found.items()} == {
        "vec=BLOCK, @cpu=0": [("BLOCK", 100, 300), ("BLOCK", 300, 310)],
        "vec=BLOCK, @cpu=1": [("BLOCK", 150, 400)],
        "work=0xffff888000000000": [("workqueue", 120, 900)],
    }
    # AND its end says who ended it
    first = found["vec=BLOCK, @cpu=0"][0]
    assert first.told == {"ended by": "ksoftirqd/0", "ended by tid": 13, "ended on CPU": 0}
    assert (summary.pairs, summary.moved) == (4, 0)
    assert (summary.first_ns, summary.last_ns) == (START + 100, START + 900)
    # AND otf2-print warns of nothing
    printed = otf2_print(summary.anchor)
    assert "softirq: irq:softirq_entry to irq:softirq_exit" in printed
    # AND the library writes the same events in the same bytes
    assert_as_the_library(summary.anchor, tmp_path / "again")
    # AND the same is in an archive of small windows
    for window in (1, 2, 3):
        parts = archived(sample(), tmp_path / f"parts{window}", window)
        assert calls(parts.anchor) == found


def test_further_keys_share_locations_without_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN room for one key, and pairs of others of which two overlap
    monkeypatch.setattr(pair_names, "MOST_KEYS", 1)
    log = SiteLog()
    log.pair(0, 10, 0x10, pair=WORK)
    log.pair(20, 60, 0x20, pair=WORK)
    log.pair(30, 50, 0x30, pair=WORK)
    log.pair(60, 70, 0x40, pair=WORK)
    # WHEN they are converted
    found = calls(archived(log, tmp_path / "otf2").anchor)
    # THEN those that overlap are at different locations, and each says its key
    assert {name: [one.asked.get("key") for one in mine] for name, mine in found.items()} == {
        "work=0x10": [None],
        "other keys 1": ["work=0x20"],
        "other keys 2": ["work=0x30", "work=0x40"],
    }
    assert spans(found["other keys 2"]) == [("workqueue", 30, 50), ("workqueue", 60, 70)]


def test_a_log_of_pairs_and_calls_has_both(tmp_path: Path) -> None:
    # GIVEN a call, and a pair whose value of --by is called as the call's own region
    log = SiteLog()
    log.pairs[0]["names"]["by"]["7"] = "read"
    log.returns(500, 900, number=0, result=0)
    log.pair(600, 700, 7, 0, by=7)
    # WHEN they are converted / THEN both are regions, each at its own location
    summary = archived(log, tmp_path / "otf2")
    names = {name: spans(mine) for name, mine in calls(summary.anchor).items()}
    assert ("read", 600, 700) in names["vec=7, @cpu=0"]
    assert (summary.calls, summary.pairs) == (1, 1)
    assert len(names) == 2
