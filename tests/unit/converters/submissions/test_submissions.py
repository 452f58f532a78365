# SPDX-License-Identifier: Apache-2.0
"""io_uring's and aio's submissions: joined to bios and completions, and in every output."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import biotrail
from biotrail.converters.events.events import Events
from biotrail.converters.events.submission_tables import Joined, Runner, Submissions
from biotrail.converters.events.tables import NEVER
from biotrail.converters.outputs.perfetto.convert import convert_parts
from biotrail.converters.outputs.perfetto.names import (
    ARGUMENTS,
    BIO,
    CALL,
    SUBMISSION,
    Detail,
)
from biotrail.converters.pipeline import Trace
from biotrail.converters.submissions.arrow import SUBMISSION_SCHEMA
from biotrail.converters.submissions.names import operation_name
from tests.support.both_ways import differences, windows_of
from tests.support.cli_runner import Cli
from tests.support.perfetto_check import read
from tests.support.perfetto_make import traced
from tests.support.stack_logs import START
from tests.support.submission_logs import (
    AIO,
    FIXED,
    IO_URING_ENTER,
    LATE,
    SQPOLL,
    WORKER,
    WRITES,
    WRITEV,
    SubmissionLog,
    submissions_of,
)

REQ, OTHER = 0xFF00, 0xFE00
TIMES = ("submitted", "queued", "ended", "completed", "reaped")


def rows_of(log: SubmissionLog, **how: object) -> Submissions:
    return submissions_of(io.BytesIO(log.data(**how)))[0]  # type: ignore[arg-type]


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


@pytest.mark.parametrize("cut", [1050, 1150, 5000, 5300, 5600, 5900, 6000, 6500])
def test_windows_do_not_change_submissions(cut: int) -> None:
    # GIVEN a log read in windows with a border anywhere in a request, and a later one without
    log = sample()
    log.ring_bio(7000, 7500, OTHER, 6900)
    # WHEN it is read THEN the rows are the same
    data = log.data(cuts=[cut])
    whole, parts = (windows_of(io.BytesIO(data), events) for events in (1_000_000, 1))
    assert differences(whole, parts) == []
    assert len(rows_of(log)) == 2


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


# Submissions in tables, reports, Perfetto traces, and of chosen I/O.

IOCB = 0xFD00


def two_bios() -> SubmissionLog:
    """A read that its thread reaps, a write by a worker that fails, an iocb, an unknown bio."""
    log = SubmissionLog()
    log.task(42, b"fio", pid=40)
    log.task(44, b"db", pid=44)
    log.task(51, b"iou-wrk-42", pid=40)
    log.ring_bio(1100, 5000, REQ, 1000, entry=900)
    log.ring_bio(1200, 4000, OTHER, 1150, by=51, runner=WORKER, opcode=WRITEV, flags=4, length=0)
    log.completes(5500, OTHER, 1150, result=-5)
    log.completes(5600, REQ, 1000)
    log.enters(900, 6000)
    log.ring_bio(7100, 7500, IOCB, 7100, 44, entry=7000, flags=AIO | LATE)
    log.bio(8000, 8100, call=426, entry=7900)
    return log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return two_bios().write(tmp_path / "x.biotrail")


def test_operations_have_the_kernels_names() -> None:
    # GIVEN numbers of io_uring's operations WHEN they are named
    names = [operation_name(n << 2) for n in (0, 2, 22, 46, 61, 62, 200)]
    # THEN they have those of IORING_OP_*; aio has its own
    assert names == ["nop", "writev", "read", "uring_cmd", "writev_fixed", "pipe", "op 200"]
    assert operation_name(3) == "aio write"


def test_the_table_has_names_for_numbers(path: Path) -> None:
    # GIVEN a log WHEN its submissions are read in a program
    table = biotrail.open(path).submissions
    # THEN each has its operation, mode, process, times and result; unknown ones are null
    assert table.schema.equals(SUBMISSION_SCHEMA)
    rows = table.to_pylist()
    names = ("operation", "interface", "mode", "comm", "pid", "fd", "length", "result", "error")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("read", "io_uring", "inline", "fio", 40, 5, 4096, 4096, None),
        ("writev", "io_uring", "worker", "iou-wrk-42", 40, 5, None, -5, "EIO"),
        ("aio read", "aio", "inline", "db", 44, None, None, None, None),
    ]
    steps = ("submit_ns", "queue_ns", "end_ns", "complete_ns", "reap_ns")
    assert [rows[0][name] - START for name in steps] == [1000, 1100, 5000, 5600, 6000]
    assert [rows[2][name] for name in steps[3:]] == [None, None]


def test_submissions_are_exported_and_printed(cli: Cli, path: Path, tmp_path: Path) -> None:
    # GIVEN a log WHEN its submissions are exported THEN the table has a row for each
    export = ("export", "--what", "submissions")
    chosen = {(): ["read", "writev", "aio read"], ("--comm", "db"): ["aio read"]}
    for choice, operations in chosen.items():
        # AND a choice of I/O chooses them by their bios
        done = cli(*export, "--format", "csv", "-o", "-", *choice, path)
        rows = csv.DictReader(io.StringIO(done.out))
        assert [row["operation"] for row in rows] == operations
    # WHEN its report is printed THEN it has the table, and what it lacks
    text = " ".join(cli("report", path).out.split())
    assert "io_uring and aio, from submission to completion" in text
    assert "1 bio of their calls without a known request" in text
    # AND --csv has a line for the whole time and each step
    lines = list(csv.DictReader(io.StringIO(cli("report", "--csv", path).out)))
    mine = [(line["call"], line["stage"]) for line in lines if line["section"] == "submissions"]
    assert ("read", "all") in mine
    assert ("read", "C to complete") in mine
    # GIVEN a log without submissions WHEN they are exported THEN it says how to have them
    log = SubmissionLog()
    log.bio(1000, 2000)
    without = log.write(tmp_path / "without.biotrail", (), ["call"])
    done = cli(*export, "-o", tmp_path / "x.csv", without)
    assert "submissions were not recorded" in done.out + done.err


def test_the_report_has_steps_by_operation(cli: Cli, path: Path) -> None:
    # GIVEN a log WHEN its report is asked for
    found = cli.json("report", path)
    # THEN each operation has its counts, modes and errors
    names = ("operation", "count", "modes", "completed", "failed", "errors", "bios", "bytes")
    assert [tuple(one[name] for name in names) for one in found["submissions"]] == [
        ("aio read", 1, {"inline": 1}, 0, 0, {}, 1, 4096),
        ("writev", 1, {"worker": 1}, 1, 1, {"EIO": 1}, 1, 4096),
        ("read", 1, {"inline": 1}, 1, 0, {}, 1, 4096),
    ]
    # AND its time from submission to completion, in steps that add up to it
    reads = found["submissions"][2]
    assert reads["time"]["sum_ns"] == 4600
    assert [(step["step"], step["sum_ns"]) for step in reads["steps"]] == [
        ("submit to Q", 100),
        ("Q to C", 3900),
        ("C to complete", 600),
        ("complete to reaped", 400),
    ]
    # AND the bio whose request is not known is counted
    assert found["submissions_unknown"] == 1


def test_submissions_are_slices_below_their_process() -> None:
    # GIVEN two requests in flight at once, and an iocb WHEN they are converted
    trace = traced(two_bios().data())
    slices = {one.name: one for one in trace.slices(SUBMISSION)}
    # THEN each has its times: without a completion, up to the end of its bio
    assert {name: (one.start - START, one.end - START) for name, one in slices.items()} == {
        "read": (1000, 5600),
        "writev": (1150, 5500),
        "aio read": (7000, 7500),
    }
    # AND those that overlap have lanes of their own, below their process
    tracks = {name: trace.tracks[one.track].descriptor for name, one in slices.items()}
    assert tracks["read"].uuid != tracks["writev"].uuid
    process = {name: trace.tracks[one.parent_uuid].descriptor for name, one in tracks.items()}
    assert {name: one.process.pid for name, one in process.items()} == {
        "read": 40,
        "writev": 40,
        "aio read": 44,
    }
    assert process["aio read"].process.process_name == "db"
    # AND arguments; what is not known is left out
    assert slices["read"].args == {
        "number": 3,  # three names come before its Q
        "user_data": REQ + 1,
        "tid": 42,
        "fd": 5,
        "offset": 8192,
        "bytes": 4096,
        "queued_bios": 1,
        "mode": "inline",
        "joined": "iocb",
        "result": 4096,
        "submit_to_queue_ns": 100,
        "queue_to_end_ns": 3900,
        "end_to_complete_ns": 600,
        "complete_to_reap_ns": 400,
    }
    assert slices["writev"].args["error"] == "EIO"
    assert {"result", "end_to_complete_ns", "fd"}.isdisjoint(slices["aio read"].args)
    known = {argument.name for argument in ARGUMENTS[SUBMISSION]}
    assert known >= {name for one in slices.values() for name in one.args}
    # AND the bios name them
    bios = sorted(trace.slices(BIO), key=lambda one: one.start)
    numbers = {one.args["number"] for one in slices.values()}
    assert {bio.args.get("submission") for bio in bios} == {*numbers, None}


@pytest.mark.parametrize("detail", [Detail.FULL, Detail.STANDARD, Detail.STAGES])
def test_the_slowest_submissions_have_arguments(detail: Detail) -> None:
    # GIVEN more requests than have all arguments, the first the slowest, and a fast failed one
    log = SubmissionLog()
    log.task(42, b"fio", pid=40)
    for n in range(1100):
        begin, took = 20_000 * n + 1000, 10_000 - n
        log.ring_bio(begin + 10, begin + took - 10, REQ, begin)
        log.completes(begin + took, REQ, begin, result=-5 if n == 1099 else 4096)
    # WHEN they are drawn in one window
    slices = sorted(traced(log.data(), detail=detail).slices(SUBMISSION), key=lambda one: one.start)
    told = [n for n, one in enumerate(slices) if "user_data" in one.args]
    # THEN the 500 slowest have theirs, and those that failed, as many as these, apart
    expected = {Detail.FULL: [*range(1100)], Detail.STANDARD: [*range(500), 1099]}
    assert told == expected.get(detail, [])
    assert [n for n, one in enumerate(slices) if one.args.get("error") == "EIO"] == told[-1:]


def test_calls_and_submissions_are_in_one_part_of_a_trace() -> None:
    # GIVEN a log whose trace is written in parts that hold a window each, with a bio in flight
    log = SubmissionLog()
    log.task(42, b"fio", pid=40)
    second = 1_000_000_000
    for n in range(4):
        at = 3 * n * second
        log.ring_bio(at + 1100, at + 4 * second, REQ + 256 * n, at + 1000, entry=at + 900)
        log.completes(at + 4 * second + 600, REQ + 256 * n, at + 1000)
        log.enters(at + 900, at + 9000)
    source = Trace(io.BytesIO(log.data(cuts=[(3 * n + 2) * second for n in range(5)])))
    parts: list[io.BytesIO] = []

    def opened(_: int) -> io.BytesIO:
        parts.append(io.BytesIO())
        return parts[-1]

    convert_parts(source.lifecycles(1), source.context, opened, 1)
    # WHEN all parts are read THEN each call and submission is in one of them
    traces = [read(part.getvalue()) for part in parts]
    assert len(traces) > 2
    for category in (CALL, SUBMISSION):
        starts = [one.start for trace in traces for one in trace.slices(category)]
        assert len(starts) == len(set(starts)) == 4, category
