# SPDX-License-Identifier: Apache-2.0
"""Records of the path beside the block layer, joined to their Q or C."""

import io
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.events.path import RunningCalls, attach_path, full_time
from biotrail.converters.events.path_column import NO_CALL, NO_PATH, PathColumn, unknown
from biotrail.converters.events.tables import NEVER
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.schema.records import (
    CALL_REPEAT_NS,
    PATH_PARTS,
    TIMESTAMP_BITS,
    Kind,
    schema,
)
from tests.support.path_logs import FSYNC, NEVER_AGO, PREAD, PathLog
from tests.support.path_logs import START as LOG_START
from tests.support.stack_logs import DEV, HEADER, clock, record

START = 5_000_000_000_000
BORDER = 3 << TIMESTAMP_BITS
"""CLOCK_MONOTONIC whose low 56 bits are 0."""


def events_of(*cpus: list[bytes], end: int = START + 10**9) -> Events:
    """The events of one chunk with the records of each CPU, in the order of their arrival."""
    stream = io.BytesIO()
    clocks = {"clocks": {**HEADER["clocks"], "monotonic": end - 10**9}}
    writer = LogWriter(stream, {**HEADER, **clocks, "schema": schema(PATH_PARTS)}, level=1)
    segments = [Segment(cpu, 0, 0, b"".join(records)) for cpu, records in enumerate(cpus)]
    writer.write_chunk(segments, clock(end))
    writer.close({"clocks": clock(end)})
    stream.seek(0)
    return Events.join([events for events, _ in Trace(stream).events()])


def record_at(kind: Kind, time: int, **values: Any) -> bytes:
    """A record at `time` (ns of CLOCK_MONOTONIC), of which the head has the low 56 bits."""
    return record(kind, time & ((1 << TIMESTAMP_BITS) - 1), **values)


def queued(at: int, bio: int) -> bytes:
    return record_at(Kind.Q, at, bio=bio, sector=8 * bio, bytes=4096, dev=DEV, part=DEV, tid=42)


def call(at: int, bio: int, number: int = PREAD, entry: int = 0, **values: Any) -> bytes:
    return record_at(Kind.CALL, at, bio=bio, number=number, entry=entry, **values)


def completed(at: int, rq: int) -> bytes:
    return record_at(Kind.C, at, rq=rq, sector=8, bytes=4096, dev=DEV)


def interrupt(at: int, rq: int, **values: int) -> bytes:
    ago = dict.fromkeys(("hard", "raised", "soft"), NEVER_AGO)
    return record_at(Kind.INTERRUPT, at, rq=rq, **{**ago, **values})


def test_rows_without_the_path_know_nothing() -> None:
    # GIVEN a log without such records WHEN it is read THEN nothing is added to its events
    assert events_of([queued(START, 1)]).path is None
    # GIVEN rows of which nothing is known  THEN each is NO_PATH, and can be written
    rows = unknown(3)
    assert (rows == NO_PATH).all()
    rows["call"][1] = 5
    assert rows["call"].tolist() == [NO_CALL, 5, NO_CALL]
    # GIVEN events none of which has a row  THEN nothing is known of them
    assert calls_of(column(NO_CALL, NO_CALL)) == [NO_CALL, NO_CALL]
    # GIVEN five events, three of which have a row  WHEN some are taken
    found = column(7, NO_CALL, 8, 9, NO_CALL)
    # THEN each has its own row, and the table is shared
    assert calls_of(found.take(np.array([4, 3, 0]))) == [NO_CALL, 9, 7]
    assert calls_of(found.take(slice(1, 4))) == [NO_CALL, 8, 9]
    assert found.take(slice(1, 4)).rows is found.rows
    # GIVEN a part of a column, a part without one, and a whole column
    part = column(7, NO_CALL, 8, 9, NO_CALL).take(np.array([3, 1]))
    # WHEN they are joined / THEN all have their rows, and the table has no others
    found = PathColumn.joined([part, None, column(5, 6)], [2, 2, 2])
    assert found is not None
    assert calls_of(found) == [9, NO_CALL, NO_CALL, NO_CALL, 5, 6]
    assert found.rows["call"].tolist() == [9, 5, 6]


def path_of(kind: Kind, *cpus: list[bytes], **how: int) -> tuple[list[int], np.ndarray]:
    """Of each event of a kind: its bio or request, and what is known of its path."""
    events = events_of(*cpus, **how)
    assert events.path is not None
    rows = events.rows(kind)
    return events.raw[rows, 1].tolist(), events.path[rows]


def test_records_of_other_cpus_come_between() -> None:
    # GIVEN two CPUs that queue bios in the same nanosecond, each with several records, and a third
    # with ten Q of its own then
    one = [queued(START, 1), record_at(Kind.STACK, START, bio=1), call(START, 1, number=17)]
    two = [queued(START, 2), record_at(Kind.FILE, START, bio=2), call(START, 2, number=18)]
    three = [queued(START, bio) for bio in range(10, 20)]
    # WHEN they are read, in any order of the CPUs
    for cpus in ([one, two, three], [three, two, one], [two, three, one]):
        bios, path = path_of(Kind.Q, *cpus)
        calls = dict(zip(bios, path["call"], strict=True))
        # THEN each bio has its own call, and the others have none
        assert (calls.pop(1), calls.pop(2)) == (17, 18)
        assert set(calls.values()) == {NO_CALL}


def test_a_completion_has_its_interrupt() -> None:
    # GIVEN a completion in a softirq, one in an interrupt, one in a task
    records = [completed(START + 100, 1)]
    records += [interrupt(START + 100, 1, hard=40, raised=30, soft=10, irq=44, context=1)]
    records += [completed(START + 200, 2), interrupt(START + 200, 2, hard=7, irq=45, context=2)]
    records += [completed(START + 300, 3), interrupt(START + 300, 3)]
    # WHEN they are read THEN each has the times that it has, and where it ran
    _, path = path_of(Kind.C, records)
    assert path["hard"].tolist() == [START + 60, START + 193, NEVER]
    assert path["raised"].tolist() == [START + 70, NEVER, NEVER]
    assert path["soft"].tolist() == [START + 90, NEVER, NEVER]
    assert path["irq"].tolist() == [44, 45, 0]
    assert path["context"].tolist() == [1, 2, 0]
    # GIVEN completions on two CPUs in the same nanosecond, with other records between
    one = [completed(START, 1), interrupt(START, 1, context=1, soft=5)]
    two = [queued(START, 8), completed(START, 2), interrupt(START, 2, context=2, hard=6)]
    # WHEN they are read, in either order THEN each completion has its own
    for cpus in ([one, two], [two, one]):
        requests, path = path_of(Kind.C, *cpus)
        assert dict(zip(requests, path["context"], strict=True)) == {1: 1, 2: 2}


@pytest.mark.parametrize("after", [10, 10**9 - 1])
def test_times_have_all_their_bits(after: int) -> None:
    # GIVEN a call that began before the low 56 bits of the clock passed 0, and a bio after that
    entry = (BORDER - 600) & ((1 << TIMESTAMP_BITS) - 1)
    records = [queued(BORDER + after, 1), call(BORDER + after, 1, entry=entry)]
    # WHEN it is read THEN the entry has the upper bits of its own time
    _, (path,) = path_of(Kind.Q, records, end=BORDER + 10**9)
    assert path["entry"] == BORDER - 600
    events = events_of(records, end=BORDER + 10**9)
    assert events.ts[events.rows(Kind.Q)].tolist() == [BORDER + after]


def test_a_records_call_is_that_of_its_time() -> None:
    # GIVEN a bio's address that is used again, by another call and then by none
    records = [queued(START, 1), call(START, 1, number=17)]
    records += [queued(START + 5, 1), call(START + 5, 1, number=18), queued(START + 9, 1)]
    # WHEN they are read THEN each use has its own
    events = events_of(records)
    assert events.path is not None
    assert events.path[events.rows(Kind.Q)]["call"].tolist() == [17, 18, NO_CALL]
    # GIVEN a call without its Q, after another bio's WHEN they are read
    events = events_of([queued(START, 2), call(START, 3), interrupt(START + 1, 9, hard=1)])
    # THEN no event has it
    assert events.path is not None
    assert (events.path[np.arange(len(events))] == NO_PATH).all()
    # GIVEN events at known times WHEN the low bits of earlier times are completed
    events = events_of([queued(START, 1), queued(START + 50, 2)])
    rows = events.rows(Kind.Q)
    low = np.array([0, START + 20], dtype=np.uint64)
    # THEN 0 is no time
    assert full_time(events, rows, low).tolist() == [NEVER, START + 20]
    # and neither is one that lies before the clock began, as the 56 bits of a damaged record may
    low = np.array([(1 << TIMESTAMP_BITS) - 16, START + 20], dtype=np.uint64)
    assert full_time(events, rows, low).tolist() == [NEVER, START + 20]


# The column of the path: rows of a table by index, however events are taken and joined.


def column(*calls: int) -> PathColumn:
    """A column of events of which some (calls other than NO_CALL) have a row."""
    known = [call for call in calls if call != NO_CALL]
    rows = unknown(len(known))
    rows["call"] = known
    at = np.cumsum(np.array(calls) != NO_CALL) - 1
    return PathColumn(np.where(np.array(calls) != NO_CALL, at, -1).astype(np.int32), rows)


def calls_of(found: PathColumn) -> list[int]:
    return found[np.arange(len(found))]["call"].tolist()


# Which Q a record belongs to, where there are fewer events than are looked at.


@pytest.mark.parametrize(
    "kind", [Kind.STACK, Kind.FILE, Kind.CALL, Kind.DIRTIED, Kind.INTERRUPT, Kind.SUBMISSION]
)
def test_a_record_alone_in_its_log(kind: Kind) -> None:
    # GIVEN a log whose only event is a record that should follow another
    log = PathLog()
    log.add(kind, 5)
    # WHEN it is read  THEN there is no bio, and no error
    windows = list(Trace(io.BytesIO(log.data())).lifecycles())
    assert sum(len(window.bios) for window in windows) == 0


# Calls that queue several bios: one CALL record, to which the Q of the others refer.


def calls_in_order(data: bytes) -> list[tuple[int, int]]:
    """Call and entry (ns since START; -1: not known) of each bio, in the order of their Q."""
    found: list[tuple[int, int]] = []
    for events, _ in Trace(io.BytesIO(data)).events(window_events=1):
        queued = events.rows(Kind.Q)
        if not len(queued):
            continue
        assert events.path is not None
        for row in events.path[queued]:
            entry = int(row["entry"])
            found.append((int(row["call"]), -1 if entry == NEVER else entry - LOG_START))
    return found


def log_of(*turns: tuple[int, int, int | None, int]) -> PathLog:
    """A log of bios: (time, thread, call of its CALL or None, turn); calls begin 5 ns before."""
    log = PathLog()
    for at, tid, call, turn in turns:
        log.bio(at, None, tid, call=call, entry=at - 5, turn=turn)
    return log


def test_bios_refer_to_the_call_that_was_under_way() -> None:
    # GIVEN two threads whose calls have the same turn, and queue bios in between each other
    log = log_of(
        *((1000, 42, FSYNC, 3), (1001, 43, PREAD, 3)),
        *((1010, 42, None, 3), (1020, 43, None, 3), (1030, 42, None, 3)),
    )
    # WHEN they are read THEN each bio has the call of its thread, as the first bio has it
    fsync, pread = (FSYNC, 995), (PREAD, 996)
    assert calls_in_order(log.data()) == [fsync, pread, fsync, pread, fsync]
    # GIVEN a call with a CALL record, and one of which only bios that refer to it are there
    log = log_of((1000, 42, PREAD, 3), (1010, 42, None, 4), (1020, 42, None, 4))
    # WHEN they are read THEN the second call is not known
    assert calls_in_order(log.data()) == [(PREAD, 995), (NO_CALL, -1), (NO_CALL, -1)]
    # GIVEN a bio of a thread's new call, and one that refers to an older one of the same thread
    log = log_of((1000, 42, PREAD, 3), (1010, 42, FSYNC, 4))
    log.bio(1020, None, call=None, turn=4)
    log.bio(1030, None, call=None, turn=3)
    # WHEN they are read THEN only what refers to the newest has a call
    assert calls_in_order(log.data())[2:] == [(FSYNC, 1005), (NO_CALL, -1)]
    # GIVEN bios just before and when the programs would have written the CALL again
    last = 1000 + CALL_REPEAT_NS
    log = log_of((1000, 42, FSYNC, 3), (last - 1, 42, None, 3), (last, 42, None, 3))
    # WHEN they are read THEN the record is not that of the second, but of an earlier turn
    assert calls_in_order(log.data()) == [(FSYNC, 995), (FSYNC, 995), (NO_CALL, -1)]
    # GIVEN calls of many threads, one every microsecond
    running = RunningCalls()
    log = log_of(*((1000 * at, at + 1, PREAD, 1) for at in range(20_000)))
    # WHEN they were joined / THEN those of the last CALL_REPEAT_NS are known
    attach_path(decoded(log), running)
    assert len(running.known) == CALL_REPEAT_NS // 1000
    assert np.array_equal(np.unique(running.known["tid"]), np.sort(running.known["tid"]))


@pytest.mark.parametrize("cuts", [(), (1005,), (1005, 1015)], ids=str)
def test_chunks_and_windows_change_nothing(cuts: tuple[int, ...]) -> None:
    # GIVEN a call whose bios are in several chunks, of which each is a window
    log = log_of((1000, 42, FSYNC, 15), (1010, 42, None, 15), (1020, 42, None, 15))
    # WHEN they are read THEN all have it
    assert calls_in_order(log.data(cuts)) == [(FSYNC, 995)] * 3


def decoded(log: PathLog) -> Events:
    return Events.join([e for e, _ in Trace(io.BytesIO(log.data())).events()])


def test_no_call_is_taken_from_before_damage() -> None:
    # GIVEN a call, and bios of its turn before and after a part of the log that is damaged, in
    # which fifteen calls of the thread may have begun
    running = RunningCalls()
    log = log_of((1000, 42, PREAD, 3), (1010, 42, None, 3), (1050, 42, None, 3))
    damaged = [{"start": LOG_START + 1020, "end": LOG_START + 1040}]
    # WHEN they are joined / THEN only what is before the damage has the call
    events = decoded(log)
    attach_path(events, running, damaged)
    assert events.path is not None
    assert events.path[events.rows(Kind.Q)]["call"].tolist() == [PREAD, PREAD, NO_CALL]
