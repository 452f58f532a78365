# SPDX-License-Identifier: Apache-2.0
"""How a recording ends: what is kept, what it says of it, and with which status."""

import glob
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biotrail.cli import record as module
from biotrail.recorder.log import LogReader, LogWriter, Segment
from biotrail.recorder.notes.stacks import StackWatch
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.schema.errors import OutputError, ProbeError, ReaderGoneError
from biotrail.recorder.session.child import Child
from biotrail.recorder.session.session import record
from biotrail.recorder.session.session_types import Moment
from biotrail.text.record import closing as record_closing
from tests.support.cli_runner import Cli
from tests.support.fake_probes import FakeProbes, options
from tests.support.fake_recorder import Recorder, summary


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    monkeypatch.chdir(tmp_path)
    fake = Recorder(summary())
    monkeypatch.setattr(module, "record", fake)
    return fake


def fail_in_chunk(monkeypatch: pytest.MonkeyPatch, number: int, error: Callable[[], Any]) -> None:
    """Have the log's chunk of that number (from 0) fail."""
    write = LogWriter.write_chunk

    def writing(self: LogWriter, segments: list[Segment], clock: dict[str, int]) -> int:
        if self.chunks == number:
            raise error()
        return write(self, segments, clock)

    monkeypatch.setattr(LogWriter, "write_chunk", writing)
    monkeypatch.setattr("biotrail.recorder.session.intake.CHUNK_NS", 1)


def test_starting_is_said_before_anything_is_loaded(cli: Cli, recorder: Recorder) -> None:
    # GIVEN a recording WHEN it begins THEN that is said before it records, but not when quiet
    said = cli("record", "-o", "x").err.splitlines()
    assert said[:2] == ["biotrail: starting", "biotrail: recording all devices until Ctrl-C to x"]
    assert cli("record", "-q", "-o", "x").err == ""


@pytest.mark.parametrize(
    ("number", "foreign", "expected"),
    [
        (2, 0, "{0} {1}"),
        (5, 0, "'my dir/x-'*.biotrail"),
        (5, 1, "'my dir/x-20261107T1015'*.biotrail"),
        (5, 2, "{0} {1} {2} {3} {4}"),
    ],
)
def test_next_names_a_whole_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, foreign: int, expected: str
) -> None:
    # GIVEN a rotated recording's files, and others of earlier runs beside them
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my dir").mkdir()
    files = [f"my dir/x-20261107T1015{n}0Z-00000{n}.biotrail" for n in range(number)]
    others = ["my dir/x-20251107T101500Z-000001.biotrail", "my dir/x-20261107T101559Z-1.biotrail"]
    for path in [*files, *others[:foreign]]:
        Path(path).touch()
    # WHEN they are named as arguments
    text = record_closing.as_arguments(files)
    # THEN a shell makes these files of it, in their order, and no other
    assert text == expected.format(*map(shlex.quote, files))
    done = subprocess.run(["sh", "-c", f"ls {text}"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == files


def test_the_closing_words_name_a_rotated_recordings_files(cli: Cli, recorder: Recorder) -> None:
    # GIVEN a rotated recording of five files, of which others have removed two
    files = [f"x-2026110{n}T101500Z-00000{n}.biotrail" for n in (3, 4, 5)]
    for path in files:
        Path(path).write_bytes(b"x" * 100)
    recorder.result = summary(files=files, files_gone=2)
    # WHEN it ends THEN it says which are there, and how to go on with all of them
    said = cli("record", "--rotate", "1M", "-o", "x").err.splitlines()
    assert said[-2:] == [
        f"biotrail: 3 files kept (300 B), 2 removed or moved away by others: {files[0]} to "
        f"{files[2]}",
        f"biotrail: next: biotrail convert {' '.join(files)}",
    ]
    # AND where none is there it says so
    recorder.result = summary(files=[], files_gone=1, error=OutputError("no directory"))
    said = cli("record", "--rotate", "1M", "-o", "x").err.splitlines()
    assert "biotrail: no file kept, 1 removed or moved away by others" in said
    assert said[-1] == "biotrail: error: no directory"


def test_what_is_not_written_is_told_with_events_and_time(cli: Cli, recorder: Recorder) -> None:
    # GIVEN a disk that became full while a command ran, which failed for another reason
    recorder.result = summary(
        reason="output failed",
        error=OutputError("disk full"),
        unwritten_bytes=2 << 20,
        unwritten_events=40_000,
        written_until=Moment(12.34, 1_762_510_530_120_382_000),
        command_status=7,
    )
    # WHEN the recording ends
    done = cli("record", "--", "make")
    # THEN the status is the recorder's, and the command's is told
    assert done.status == 1
    assert done.err.splitlines()[-3:] == [
        "biotrail: 2.0 MiB of records could not be written, about 40,000 events: what was recorded "
        "until 2025-11-07 10:15:30.120Z (12.3 s after the beginning) is there",
        "biotrail: make ended with exit status 7",
        "biotrail: error: disk full",
    ]


def test_a_reader_that_went_away_ends_as_dump_does(cli: Cli, recorder: Recorder) -> None:
    # GIVEN a pipe whose reader went away WHEN the recording ends THEN its status is SIGPIPE's
    recorder.result = summary(error=ReaderGoneError("standard output: Broken pipe"))
    done = cli("record", "-o", "x")
    assert done.status == 141
    assert done.err.endswith("biotrail: error: standard output: Broken pipe\n")


def test_a_broken_pipe_is_known_as_one(tmp_path: Path) -> None:
    # GIVEN a log that is written to a pipe that nobody reads
    reading, writing = os.pipe()
    os.close(reading)
    # WHEN it is begun THEN the error is of that kind
    with os.fdopen(writing, "wb", buffering=0) as stream, pytest.raises(ReaderGoneError):
        LogWriter(stream, {"clocks": {}})


def test_what_an_error_leaves_is_counted_up_to_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a log whose fourth chunk cannot be written
    fail_in_chunk(monkeypatch, 3, lambda: OSError(28, "No space left on device"))
    probes = FakeProbes()
    # WHEN it is recorded
    result = record(options(tmp_path / "x", duration=60), probes=probes)
    # THEN every event is either in the log or counted, and the time up to which it goes is told
    assert isinstance(result.error, OutputError)
    assert result.events + result.unwritten_events == probes.given
    assert result.unwritten_bytes == result.unwritten_events * probes.size
    last = list(LogReader(tmp_path / "x").chunks())[-1]
    assert result.written_until is not None
    assert result.written_until.realtime == last.clock["realtime"]


@pytest.mark.parametrize("error", [MemoryError, ZeroDivisionError])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_the_writer_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    # GIVEN a writer that runs out of memory, or has a bug
    fail_in_chunk(monkeypatch, 2, error)
    # WHEN it is recorded
    result = record(options(tmp_path / "x", duration=60), probes=FakeProbes())
    # THEN recording stops with an error, and what was written reads
    assert result.reason == "output failed"
    assert isinstance(result.error, OutputError)
    assert LogReader(tmp_path / "x").interrupted


@pytest.mark.parametrize("keep", [None, Limit(seconds=60)])
def test_a_fault_of_the_recorder_still_ends_the_log(tmp_path: Path, keep: Limit | None) -> None:
    # GIVEN probes that fail after a while
    probes = FakeProbes()

    def fall_over() -> None:
        if probes.given == 5:
            raise ProbeError("the rings cannot be read")

    probes.at_drain = fall_over
    # WHEN it is recorded, to a log or to memory
    result = record(options(tmp_path / "x", duration=60, keep=keep), probes=probes)
    # THEN the error is told, and what was recorded before is in a log with an end
    assert str(result.error) == "the rings cannot be read"
    assert result.events == 5
    (path,) = result.files or [str(tmp_path / "x")]
    reader = LogReader(path)
    assert not reader.interrupted
    assert sum(len(s.data) for c in reader.chunks() for s in c.segments) == 5 * probes.size


@pytest.mark.parametrize("error", [OSError(5, "no look"), MemoryError(), ZeroDivisionError()])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failed_last_job_costs_no_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    # GIVEN a flight recorder that fails when it looks for new stacks at its end
    def fail(_log: object) -> None:
        raise error

    monkeypatch.setattr(StackWatch, "jobs", lambda *_: [fail])
    probes = FakeProbes()
    # WHEN it is recorded
    some = options(tmp_path / "x", duration=0.05, keep=Limit(seconds=60))
    result = record(some, probes=probes)
    # THEN the error is told, and what was recorded is in a dump with an end
    assert isinstance(result.error, OutputError)
    reader = LogReader(result.files[0])
    assert not reader.interrupted
    assert sum(len(s.data) for c in reader.chunks() for s in c.segments) == (
        probes.given * probes.size
    )


def test_sigquit_ends_the_recording_well(tmp_path: Path) -> None:
    # GIVEN a recording without an end
    path = tmp_path / "log"
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGQUIT)).start()
    # WHEN SIGQUIT comes (Ctrl-\)
    result = record(options(path), probes=FakeProbes())
    # THEN the log is complete
    assert result.reason == "quit"
    assert not LogReader(path).interrupted


def test_sigusr2_dumps_as_sigusr1_does_and_ends_nothing(tmp_path: Path) -> None:
    # GIVEN a flight recorder, and a recorder of one log
    for keep in (Limit(seconds=60), None):
        probes = FakeProbes()

        def ask(probes: FakeProbes = probes) -> None:
            if probes.given == 5:
                os.kill(os.getpid(), signal.SIGUSR2)
            elif probes.given == 30:
                os.kill(os.getpid(), signal.SIGINT)

        probes.at_drain = ask
        # WHEN SIGUSR2 comes
        some = options(tmp_path / f"x{keep is None}", keep=keep)
        result = record(some, probes=probes)
        # THEN the flight recorder writes a dump that says so, and both go on to their end
        assert result.reason == "interrupted"
        if keep is not None:
            kept = [LogReader(path).header["kept"]["reason"] for path in result.files]
            assert kept == ["asked for (SIGUSR2)", "interrupted"]


def test_a_command_gets_its_signals_as_they_were(tmp_path: Path) -> None:
    # GIVEN a command that sends SIGQUIT and SIGUSR2 to itself
    code = "import os, signal, sys; os.kill(os.getpid(), getattr(signal, sys.argv[1]))"
    for name in ("SIGQUIT", "SIGUSR2"):
        command = [sys.executable, "-c", code, name]
        # WHEN it is recorded THEN they end it, as they would without a recorder
        result = record(options(tmp_path / name, command=command), probes=FakeProbes())
        assert result.command_status == 128 + getattr(signal, name)


def test_a_signal_ends_a_command_that_is_just_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a command that outlives the duration, and SIGTERM right after that
    waits = Child.wait
    seconds: list[float] = []

    def wait(child: Child, most: float) -> bool:
        if not seconds:
            os.kill(os.getpid(), signal.SIGTERM)
        seconds.append(most)
        return waits(child, most)

    monkeypatch.setattr(Child, "wait", wait)
    command = [sys.executable, "-c", "import time; time.sleep(5)"]
    # WHEN it is recorded
    result = record(options(tmp_path / "x", command=command, duration=0.01), probes=FakeProbes())
    # THEN the command gets the signal
    assert seconds[0] == 0.5
    assert (result.reason, result.command_status) == ("duration", 128 + signal.SIGTERM)


def test_a_closed_terminal_is_no_reason_to_end_badly(
    cli: Cli, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a standard error that takes nothing
    def refuse(*_arguments: Any, **_options: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("biotrail.cli.record.click.echo", refuse)
    # WHEN something is recorded THEN that is no error
    assert cli("record", "-o", "x").status == 0
    assert glob.glob("x") == ["x"]
