# SPDX-License-Identifier: Apache-2.0
"""Requests of io_uring and aio, joined from their bios, completions and calls."""

import io
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.events.submission_tables import Joined, Runner, Submissions
from biotrail.converters.events.tables import NEVER
from biotrail.converters.pipeline import Trace
from tests.support.stack_logs import START
from tests.support.submission_logs import (
    AIO,
    FIXED,
    IO_URING_ENTER,
    LATE,
    SQPOLL,
    WORKER,
    WRITES,
    SubmissionLog,
    submissions_of,
)

REQ, OTHER = 0xFF00, 0xFE00
TIMES = ("submitted", "queued", "ended", "completed", "reaped")


def rows_of(log: SubmissionLog, size: int = 1_000_000, **how: object) -> Submissions:
    return submissions_of(io.BytesIO(log.data(**how)), size)[0]  # type: ignore[arg-type]


def times(rows: Submissions) -> list[tuple[int | None, ...]]:
    """Each row's times since START; None: not known."""
    columns = [getattr(rows, name).tolist() for name in TIMES]
    known = [[None if at == NEVER else at - START for at in one] for one in columns]
    return list(zip(*known, strict=True))


def sample() -> SubmissionLog:
    """A request of one bio, which the call that submitted it reaps."""
    log = SubmissionLog()
    log.task(42, b"fio", pid=40)
    log.ring_bio(1100, 5000, REQ, 1000, entry=900, flags=FIXED)
    log.completes(5600, REQ, 1000, setup=1)
    log.enters(900, 6000)
    return log


def test_bios_of_one_request_are_one_row() -> None:
    # GIVEN a log with calls and without submissions WHEN it is read THEN there is no row
    log = SubmissionLog()
    log.bio(1000, 2000, call=IO_URING_ENTER, entry=900)
    rows, paths = submissions_of(io.BytesIO(log.data()))
    assert len(rows) == 0
    assert paths.submission.tolist() == [-1]
    # GIVEN a request of three bios that end in another order WHEN it is read
    log = SubmissionLog()
    for at, end in ((1100, 5000), (1200, 3000), (1300, 4000)):
        log.ring_bio(at, end, REQ, 1000)
    log.completes(5600, REQ, 1000, result=12288)
    rows, paths = submissions_of(io.BytesIO(log.data()))
    # THEN it is numbered by its first bio, begins with that and ends with the last
    assert times(rows) == [(1000, 1100, 5000, 5600, None)]
    assert (rows.bios[0], rows.bytes[0], rows.result[0]) == (3, 12288, 12288)
    assert rows.number[0] == paths.number.min()
    assert set(paths.submission.tolist()) == {rows.number[0]}


def test_a_submission_has_what_its_records_say() -> None:
    # GIVEN a request of one bio WHEN it is read
    rows, paths = submissions_of(io.BytesIO(sample().data()))
    # THEN its row has times from the submission to the return that reaps it
    assert times(rows) == [(1000, 1100, 5000, 5600, 6000)]
    assert (rows.req[0], rows.user_data[0], rows.ring[0]) == (REQ, REQ + 1, 0x7000)
    assert (rows.opcode[0], rows.fd[0], bool(rows.fixed[0])) == (22, 5, True)
    assert (rows.offset[0], rows.length[0], rows.result[0], rows.setup[0]) == (8192, 4096, 4096, 1)
    assert (rows.bios[0], rows.bytes[0], rows.tid[0]) == (1, 4096, 42)
    assert (rows.runner[0], rows.joined[0]) == (Runner.INLINE, Joined.IOCB)
    # AND the bio has its number
    assert paths.submission.tolist() == rows.number.tolist() == paths.number.tolist()


def test_an_address_that_is_used_again_is_another_request() -> None:
    # GIVEN requests at one address, one after the other, of which one completes without a record
    log = SubmissionLog()
    for n in range(3):
        at = 10_000 * n
        log.ring_bio(at + 100, at + 5000, REQ, at + 1, user_data=n)
        if n != 1:
            log.completes(at + 6000, REQ, at + 1, result=n)
    # WHEN they are read THEN each has its own row, and its own completion or none
    rows = rows_of(log)
    assert rows.user_data.tolist() == [0, 1, 2]
    assert [one[3] for one in times(rows)] == [6000, None, 26_000]
    assert rows.result.tolist() == [0, 0, 2]


def test_a_thousand_in_flight_are_kept_apart() -> None:
    # GIVEN a thousand requests of one thread, all in flight at once, that end in another order
    log = SubmissionLog()
    order = np.random.default_rng(1).permutation(1000).tolist()
    for n in range(1000):
        log.ring_bio(1000 + n, 10_000 + order[n], REQ + 256 * n, 900 + n, user_data=n)
        log.completes(20_000 + order[n], REQ + 256 * n, 900 + n, result=n)
    # WHEN they are read THEN each bio has its own request, with its times and its result
    rows = rows_of(log)
    assert rows.user_data.tolist() == rows.result.tolist() == list(range(1000))
    assert [one[:4] for one in times(rows)] == [
        (900 + n, 1000 + n, 10_000 + order[n], 20_000 + order[n]) for n in range(1000)
    ]


@pytest.mark.parametrize("cut", [1050, 1150, 5000, 5300, 5600, 5900, 6000, 6500])
def test_windows_do_not_change_submissions(cut: int) -> None:
    # GIVEN a log read in windows with a border anywhere in a request, and a later one without
    log = sample()
    log.ring_bio(7000, 7500, OTHER, 6900)
    whole, parts = rows_of(log), rows_of(log, size=1, cuts=[cut])
    # WHEN it is read THEN the rows are the same
    for field in fields(Submissions):
        assert np.array_equal(getattr(whole, field.name), getattr(parts, field.name)), field.name


def test_an_empty_window_before_the_last_one_does_not_end_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # GIVEN a log whose window before the last has neither events nor length, as a reader may give
    whole, events = rows_of(sample()), Trace.events

    def with_another(trace: Trace, *given: Any, **how: Any) -> Iterator[tuple[Events, int]]:
        for window in events(trace, *given, **how):
            yield window
        yield Events.empty(), window[1]

    # WHEN it is read while a bio is in flight THEN its request has all that completed it
    monkeypatch.setattr(Trace, "events", with_another)
    assert times(rows_of(sample())) == times(whole)


@pytest.mark.parametrize(
    ("what", "calls", "submitted", "ended", "how"),
    [
        ("the call begins after the completion", [(900, 1500), (7000, 8000)], 1000, 5000, {}),
        ("another thread's call is around it", [(4000, 9000, 43)], 1000, 5000, {}),
        ("the call returns a second later", [(900, 1_000_006_000)], 1000, 5000, {}),
        ("submitted before the recording", [], None, 5000, {}),
        ("in flight at the end of the log", [], 1000, None, {}),
        ("calls are not timed", [], 1000, 5000, {"parts": ["uring"]}),
    ],
)
def test_what_was_not_seen_has_no_time(
    what: str,
    calls: list[tuple[int, ...]],
    submitted: int | None,
    ended: int | None,
    how: dict[str, list[str]],
) -> None:
    # GIVEN a request whose submission, end or reaping is not in the log
    log = SubmissionLog()
    late = {} if submitted else {"flags": LATE}
    log.ring_bio(1100, ended, REQ, submitted or 1100, entry=900, **late)
    for call in calls:
        log.enters(*call)
    if ended:
        log.completes(5600, REQ, submitted or 1100)
    # WHEN it is read THEN that is not known, and nothing is made up
    completed = 5600 if ended else None
    assert times(rows_of(log, **how)) == [(submitted, 1100, ended, completed, None)], what


def test_who_submitted_what_another_runs() -> None:
    # GIVEN a request that io_uring's polling thread submitted, and a thread that waits
    log = SubmissionLog()
    log.task(42, b"fio", pid=40)
    log.task(50, b"iou-sqp-42", pid=40)
    log.ring_bio(1100, 5000, REQ, 1000, 50, runner=SQPOLL)
    log.completes(5600, REQ, 1000, tid=50)
    log.enters(2000, 6000)
    # WHEN it is read THEN that thread's call reaps it
    rows = rows_of(log)
    assert times(rows) == [(1000, 1100, 5000, 5600, 6000)]
    assert rows.runner.tolist() == [Runner.SQPOLL]
    # GIVEN a request that a worker of io_uring ran WHEN it is read
    log = SubmissionLog()
    log.task(42, b"fio", pid=40)
    log.task(51, b"iou-wrk-42", pid=40)
    log.ring_bio(1100, 5000, REQ, 1000, 42, by=51, runner=WORKER, joined=1)
    log.completes(5600, REQ, 1000, tid=51)
    log.enters(900, 6000)
    # THEN it is the submitter's, whose call reaps it
    rows, paths = submissions_of(io.BytesIO(log.data()))
    assert times(rows) == [(1000, 1100, 5000, 5600, 6000)]
    assert (rows.tid[0], rows.runner[0], rows.joined[0]) == (42, Runner.WORKER, Joined.WORKER)
    # AND its bio has a request without a call
    assert paths.submission.tolist() == rows.number.tolist()
    # GIVEN an iocb of aio, queued by io_submit, and the io_getevents that waited for it
    log = SubmissionLog()
    log.ring_bio(1100, 5000, REQ, 1100, entry=700, flags=AIO | LATE | WRITES)
    log.completes(5600, REQ, 1100)
    log.enters(2000, 6000, number=208)
    # WHEN it is read THEN the entry of io_submit is its submission, and nothing is made up
    rows = rows_of(log)
    assert times(rows) == [(700, 1100, 5000, 5600, 6000)]
    assert (rows.aio[0], rows.writes[0], rows.fd[0], rows.length[0]) == (True, True, -1, 0)
