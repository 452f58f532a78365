# SPDX-License-Identifier: Apache-2.0
"""Calls that queue several bios: one CALL record, to which the Q of the others refer."""

import io

import numpy as np
import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.events.path import attach_path
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.running_calls import RunningCalls
from biotrail.converters.events.tables import NEVER
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import CALL_REPEAT_NS, Kind
from tests.support.path_logs import FSYNC, PREAD, START, PathLog


def calls_of(data: bytes) -> list[tuple[int, int]]:
    """Call and entry (ns since START; -1: not known) of each bio, in the order of their Q."""
    found: list[tuple[int, int]] = []
    for events, _ in Trace(io.BytesIO(data)).events(window_events=1):
        queued = events.rows(Kind.Q)
        if not len(queued):
            continue
        assert events.path is not None
        for row in events.path[queued]:
            entry = int(row["entry"])
            found.append((int(row["call"]), -1 if entry == NEVER else entry - START))
    return found


def log_of(*turns: tuple[int, int, int | None, int]) -> PathLog:
    """A log of bios: (time, thread, call of its CALL or None, turn); calls begin 5 ns before."""
    log = PathLog()
    for at, tid, call, turn in turns:
        log.bio(at, None, tid, call=call, entry=at - 5, turn=turn)
    return log


def test_all_bios_of_a_call_have_it() -> None:
    # GIVEN two threads whose calls have the same turn, and queue bios in between each other
    log = log_of(
        *((1000, 42, FSYNC, 3), (1001, 43, PREAD, 3)),
        *((1010, 42, None, 3), (1020, 43, None, 3), (1030, 42, None, 3)),
    )
    # WHEN they are read THEN each bio has the call of its thread, as the first bio has it
    fsync, pread = (FSYNC, 995), (PREAD, 996)
    assert calls_of(log.data()) == [fsync, pread, fsync, pread, fsync]


@pytest.mark.parametrize("cuts", [(), (1005,), (1005, 1015)], ids=str)
def test_chunks_and_windows_change_nothing(cuts: tuple[int, ...]) -> None:
    # GIVEN a call whose bios are in several chunks, of which each is a window
    log = log_of((1000, 42, FSYNC, 15), (1010, 42, None, 15), (1020, 42, None, 15))
    # WHEN they are read THEN all have it
    assert calls_of(log.data(cuts)) == [(FSYNC, 995)] * 3


def test_a_call_whose_record_is_lost_is_not_the_one_before() -> None:
    # GIVEN a call with a CALL record, and one of which only bios that refer to it are there
    log = log_of((1000, 42, PREAD, 3), (1010, 42, None, 4), (1020, 42, None, 4))
    # WHEN they are read THEN the second call is not known
    assert calls_of(log.data()) == [(PREAD, 995), (NO_CALL, -1), (NO_CALL, -1)]


def test_a_new_call_ends_the_one_before() -> None:
    # GIVEN a bio of a thread's new call, and one that refers to an older one of the same thread
    log = log_of((1000, 42, PREAD, 3), (1010, 42, FSYNC, 4))
    log.bio(1020, None, call=None, turn=4)
    log.bio(1030, None, call=None, turn=3)
    # WHEN they are read THEN only what refers to the newest has a call
    assert calls_of(log.data())[2:] == [(FSYNC, 1005), (NO_CALL, -1)]


def test_an_old_record_is_no_longer_referred_to() -> None:
    # GIVEN bios just before and when the programs would have written the CALL again
    last = 1000 + CALL_REPEAT_NS
    log = log_of((1000, 42, FSYNC, 3), (last - 1, 42, None, 3), (last, 42, None, 3))
    # WHEN they are read THEN the record is not that of the second, but of an earlier turn
    assert calls_of(log.data()) == [(FSYNC, 995), (FSYNC, 995), (NO_CALL, -1)]


def events_of(log: PathLog) -> Events:
    return Events.join([e for e, _ in Trace(io.BytesIO(log.data())).events()])


def test_no_call_is_taken_from_before_damage() -> None:
    # GIVEN a call, and bios of its turn before and after a part of the log that is damaged, in
    # which fifteen calls of the thread may have begun
    running = RunningCalls()
    log = log_of((1000, 42, PREAD, 3), (1010, 42, None, 3), (1050, 42, None, 3))
    damaged = [{"start": START + 1020, "end": START + 1040}]
    # WHEN they are joined
    events = events_of(log)
    attach_path(events, running, damaged)
    # THEN only what is before the damage has the call
    assert events.path is not None
    assert events.path[events.rows(Kind.Q)]["call"].tolist() == [PREAD, PREAD, NO_CALL]


def test_only_calls_that_bios_may_refer_to_are_kept() -> None:
    # GIVEN calls of many threads, one every microsecond
    running = RunningCalls()
    log = log_of(*((1000 * at, at + 1, PREAD, 1) for at in range(20_000)))
    # WHEN they were joined
    attach_path(events_of(log), running)
    # THEN those of the last CALL_REPEAT_NS are known
    assert len(running._known) == CALL_REPEAT_NS // 1000
    assert np.array_equal(np.unique(running._known["tid"]), np.sort(running._known["tid"]))
