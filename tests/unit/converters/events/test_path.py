# SPDX-License-Identifier: Apache-2.0
"""Records of the path beside the block layer, joined to their Q or C."""

import io
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.events.path import full_time
from biotrail.converters.events.path_column import NO_CALL, NO_PATH
from biotrail.converters.events.tables import NEVER
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.schema.records import PATH_PARTS, TIMESTAMP_BITS, Kind, schema
from tests.support.path_logs import NEVER_AGO, PREAD, WRITE, PathLog
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


def test_events_without_the_path_have_none() -> None:
    # GIVEN a log without such records WHEN it is read THEN nothing is added to its events
    assert events_of([queued(START, 1)]).path is None


def test_a_q_has_its_call_and_who_dirtied_its_page() -> None:
    # GIVEN a bio with a call and a dirtying task, and one without
    log = PathLog()
    log.bio(1000, None, entry=400, opf=WRITE, dirtied=(700, 811, b"postgres"))
    log.bio(2000, None, call=None)
    # WHEN they are read
    events = Events.join([e for e, _ in Trace(io.BytesIO(log.data())).events()])
    first, second = (int(row) for row in events.rows(Kind.Q))
    assert events.path is not None
    path = events.path[[first]][0]
    # THEN the Q has the call's number and times, and the task with the time it dirtied the page
    assert (path["call"], path["entry"], path["foreign"]) == (PREAD, START + 400, 0)
    assert (path["dirtied"], path["tid"], path["pid"]) == (START + 300, 811, 811)
    assert path["comm"] == b"postgres"
    # AND the other Q and all other events have nothing
    others = np.delete(np.arange(len(events)), first)
    assert second in others
    assert (events.path[others] == NO_PATH).all()


def test_arguments_are_kept_as_they_were_in_registers() -> None:
    # GIVEN a call with arguments that use all 64 bits WHEN it is read
    args = {f"arg{n}": (1 << 64) - 1 - n for n in range(4)}
    events = events_of([queued(START, 7), call(START, 7, foreign=1, **args)])
    assert events.path is not None
    (row,) = events.rows(Kind.Q)
    # THEN the Q has them all
    assert events.path[[row]]["args"][0].tolist() == list(args.values())
    assert events.path[[row]]["foreign"][0] == 1


def test_records_of_other_cpus_come_between() -> None:
    # GIVEN two CPUs that queue bios in the same nanosecond, each with several records, and a third
    # with ten Q of its own then
    one = [queued(START, 1), record_at(Kind.STACK, START, bio=1), call(START, 1, number=17)]
    two = [queued(START, 2), record_at(Kind.FILE, START, bio=2), call(START, 2, number=18)]
    three = [queued(START, bio) for bio in range(10, 20)]
    # WHEN they are read, in any order of the CPUs
    for cpus in ([one, two, three], [three, two, one], [two, three, one]):
        events = events_of(*cpus)
        assert events.path is not None
        rows = events.rows(Kind.Q)
        calls = dict(zip(events.raw[rows, 1].tolist(), events.path[rows]["call"], strict=True))
        # THEN each bio has its own call, and the others have none
        assert (calls.pop(1), calls.pop(2)) == (17, 18)
        assert set(calls.values()) == {NO_CALL}


def test_a_reused_address_has_the_call_of_its_time() -> None:
    # GIVEN a bio's address that is used again, by another call and then by none
    records = [queued(START, 1), call(START, 1, number=17)]
    records += [queued(START + 5, 1), call(START + 5, 1, number=18), queued(START + 9, 1)]
    # WHEN they are read THEN each use has its own
    events = events_of(records)
    assert events.path is not None
    assert events.path[events.rows(Kind.Q)]["call"].tolist() == [17, 18, NO_CALL]


def test_a_record_whose_q_is_lost_is_left_out() -> None:
    # GIVEN a call without its Q, after another bio's WHEN they are read
    events = events_of([queued(START, 2), call(START, 3), interrupt(START + 1, 9, hard=1)])
    # THEN no event has it
    assert events.path is not None
    assert (events.path[np.arange(len(events))] == NO_PATH).all()


def test_a_completion_has_its_interrupt() -> None:
    # GIVEN a completion in a softirq, one in an interrupt, one in a task
    records = [completed(START + 100, 1)]
    records += [interrupt(START + 100, 1, hard=40, raised=30, soft=10, irq=44, context=1)]
    records += [completed(START + 200, 2), interrupt(START + 200, 2, hard=7, irq=45, context=2)]
    records += [completed(START + 300, 3), interrupt(START + 300, 3)]
    # WHEN they are read
    events = events_of(records)
    assert events.path is not None
    path = events.path[events.rows(Kind.C)]
    # THEN each has the times that it has, and where it ran
    assert path["hard"].tolist() == [START + 60, START + 193, NEVER]
    assert path["raised"].tolist() == [START + 70, NEVER, NEVER]
    assert path["soft"].tolist() == [START + 90, NEVER, NEVER]
    assert path["irq"].tolist() == [44, 45, 0]
    assert path["context"].tolist() == [1, 2, 0]


def test_interrupts_of_cpus_that_complete_at_once() -> None:
    # GIVEN completions on two CPUs in the same nanosecond, with other records between
    one = [completed(START, 1), interrupt(START, 1, context=1, soft=5)]
    two = [queued(START, 8), completed(START, 2), interrupt(START, 2, context=2, hard=6)]
    # WHEN they are read, in either order THEN each completion has its own
    for cpus in ([one, two], [two, one]):
        events = events_of(*cpus)
        assert events.path is not None
        rows = events.rows(Kind.C)
        contexts = dict(
            zip(events.raw[rows, 1].tolist(), events.path[rows]["context"], strict=True)
        )
        assert contexts == {1: 1, 2: 2}


@pytest.mark.parametrize("after", [10, 10**9 - 1])
def test_times_have_all_their_bits(after: int) -> None:
    # GIVEN a call that began before the low 56 bits of the clock passed 0, and a bio after that
    entry = (BORDER - 600) & ((1 << TIMESTAMP_BITS) - 1)
    records = [queued(BORDER + after, 1), call(BORDER + after, 1, entry=entry)]
    # WHEN it is read
    events = events_of(records, end=BORDER + 10**9)
    # THEN the entry has the upper bits of its own time
    assert events.path is not None
    (row,) = events.rows(Kind.Q)
    assert events.ts[row] == BORDER + after
    assert events.path[[row]]["entry"][0] == BORDER - 600


def test_a_time_that_is_not_known_is_never() -> None:
    # GIVEN events at known times WHEN the low bits of earlier times are completed
    events = events_of([queued(START, 1), queued(START + 50, 2)])
    rows = events.rows(Kind.Q)
    low = np.array([0, START + 20], dtype=np.uint64)
    # THEN 0 is no time
    assert full_time(events, rows, low).tolist() == [NEVER, START + 20]
    # and neither is one that lies before the clock began, as the 56 bits of a damaged record may
    low = np.array([(1 << TIMESTAMP_BITS) - 16, START + 20], dtype=np.uint64)
    assert full_time(events, rows, low).tolist() == [NEVER, START + 20]
