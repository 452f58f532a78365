# SPDX-License-Identifier: Apache-2.0
"""A whole recording over made-up probes: what reaches the log, and how it ends."""

import glob
import os
import resource
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.log import LogReader, LogWriter
from biotrail.recorder.notes.stacks import StackWatch
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.schema.errors import OutputError, ProbeError, ReaderGoneError, TraceError
from biotrail.recorder.schema.records import Kind
from biotrail.recorder.session import session
from biotrail.recorder.session.child import Child
from biotrail.recorder.session.opening import Opened
from biotrail.recorder.session.session import RecordOptions, Status, Summary, record
from biotrail.recorder.session.session_types import Moment
from biotrail.text.record import closing as record_closing
from tests.support.cli_runner import Cli
from tests.support.fake_probes import FakeProbes, options
from tests.support.fake_recorder import Recorder, recorder, summary

__all__ = ["recorder"]


def records_in(path: Path) -> list[bytes]:
    return [bytes(s.data) for chunk in LogReader(path).chunks() for s in chunk.segments]


def test_all_that_was_drained_is_in_the_log(tmp_path: Path) -> None:
    # GIVEN probes that give records, before and after they are detached
    probes, path = FakeProbes(), tmp_path / "log"
    # WHEN a recording of a moment is made
    summary = record(options(path, duration=0.1), probes=probes)
    # THEN it is complete, in order, and the counts agree
    assert probes.calls == ["open", "attach", "detach", "last", "close"]
    data = b"".join(records_in(path))
    assert len(data) == probes.given * probes.size
    assert (summary.reason, summary.error) == ("duration", None)
    assert summary.events == probes.given
    reader = LogReader(path)
    assert not reader.interrupted
    assert reader.end is not None
    assert reader.end["reason"] == "duration"
    # AND it says when the probes began to go, before its last reading of the clocks
    assert reader.end["stopped"]["monotonic"] <= reader.end["clocks"]["monotonic"]
    # AND its header has the facts of the contract, and only what is of the event set is missing
    header = reader.header
    assert {"log_id", "host", "kernel", "clocks", "devices", "schema", "versions"} <= set(header)
    assert header["kernel"]["op_enum"] == {"READ": 0}
    assert header["events"] == {
        "set": "lifecycle",
        "letters": ["Q"],
        "missing": [
            {"letter": "s", "tracepoint": "block_io_start", "reason": "this kernel has none"}
        ],
    }
    assert header["rings"] == {"levels": 3, "bytes": [65536, 8192, 8192]}
    assert header["command"] == ["biotrail"]
    assert header["created_by"] == "test 1"


def test_losses_are_in_the_log_and_in_the_summary(tmp_path: Path) -> None:
    # GIVEN probes that lose and skip something while recording
    probes, path = FakeProbes(), tmp_path / "log"

    def lose() -> None:
        probes.lost_records[1, 0, Kind.D] = 5
        probes.misses = 2

    probes.at_drain = lose
    # WHEN the recording ends
    summary = record(options(path, duration=0.05), probes=probes)
    # THEN both are told, with their windows
    assert summary.lost == {int(Kind.D): 5}
    assert summary.skipped == {"Q": 2}
    found = {(w["cpu"], w["kind"], w["count"]) for w in LogReader(path).losses}
    assert found == {(1, int(Kind.D), 5), (-1, int(Kind.Q), 2)}


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGINT, "interrupted"), (signal.SIGQUIT, "quit")]
)
def test_a_signal_ends_the_recording_well(
    tmp_path: Path, number: signal.Signals, reason: str
) -> None:
    # GIVEN a recording without an end
    path = tmp_path / "log"
    threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
    # WHEN Ctrl-C or Ctrl-\\ comes
    summary = record(options(path), probes=FakeProbes())
    # THEN the log is complete
    assert summary.reason == reason
    assert not LogReader(path).interrupted


def test_a_commands_end_is_the_recordings_and_its_signals_are_as_they_were(tmp_path: Path) -> None:
    # GIVEN a command that fails, and commands that send SIGQUIT and SIGUSR2 to themselves
    kill = "import os, signal; os.kill(os.getpid(), signal.{})"
    ends = {"raise SystemExit(7)": 7} | {
        kill.format(name): 128 + getattr(signal, name) for name in ("SIGQUIT", "SIGUSR2")
    }
    for number, (code, status) in enumerate(ends.items()):
        path = tmp_path / str(number)
        # WHEN it is recorded
        summary = record(options(path, command=[sys.executable, "-c", code]), probes=FakeProbes())
        # THEN its status is told, as it would be without a recorder, and the log is complete
        assert (summary.reason, summary.command_status) == ("command ended", status)
        assert not LogReader(path).interrupted


def test_a_command_ends_if_the_recording_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a command that goes on, and a failure after its start
    started = list[Child]()

    open_it = session.Opened

    def note_child(*arguments: Any) -> Opened:
        opened = open_it(*arguments)
        assert opened.child is not None
        started.append(opened.child)
        return opened

    def refuse(_options: RecordOptions, _probes: object) -> None:
        raise ProbeError("rights cannot be given up")

    monkeypatch.setattr(session, "Opened", note_child)
    monkeypatch.setattr(session, "reduce", refuse)
    some = options(
        tmp_path / "log",
        command=[sys.executable, "-c", "import time; time.sleep(60)"],
        give_up_rights=True,
    )
    # WHEN it is recorded
    with pytest.raises(ProbeError, match="rights cannot be given up"):
        record(some, probes=FakeProbes())
    # THEN the command was ended, and no file is left
    assert started[0].wait(30)
    assert started[0].status == 128 + signal.SIGTERM
    assert not (tmp_path / "log").exists()


def test_a_command_outlives_the_duration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a command that takes longer than the recording shall
    proof = tmp_path / "proof"
    code = f"import time; time.sleep(1); open({str(proof)!r}, 'w')"
    seen: list[Status] = []
    # WHEN the duration is over
    some = options(tmp_path / "log", command=[sys.executable, "-c", code], duration=0.05)
    summary = record(some, seen.append, FakeProbes())
    # THEN the command was waited for, and the user told
    assert (summary.reason, summary.command_status) == ("duration", 0)
    assert proof.exists()
    assert any("waiting" in status.note for status in seen)
    # GIVEN such a command, and SIGTERM right after the duration
    waits = Child.wait
    seconds: list[float] = []

    def wait(child: Child, most: float) -> bool:
        if not seconds:
            os.kill(os.getpid(), signal.SIGTERM)
        seconds.append(most)
        return waits(child, most)

    monkeypatch.setattr(Child, "wait", wait)
    command = [sys.executable, "-c", "import time; time.sleep(5)"]
    # WHEN it is recorded THEN the command gets the signal
    result = record(options(tmp_path / "x", command=command, duration=0.01), probes=FakeProbes())
    assert seconds[0] == 0.5
    assert (result.reason, result.command_status) == ("duration", 128 + signal.SIGTERM)


@pytest.mark.parametrize("failing", ["attach", "command"])
def test_an_older_log_stays_until_recording_has_begun(tmp_path: Path, failing: str) -> None:
    # GIVEN a log that --force may replace, and a recording that cannot begin: its programs do not
    # attach, or its command is no program
    def refuse(*_arguments: object) -> None:
        raise ProbeError("not here")

    path, probes, command = tmp_path / "log", FakeProbes(), ["true"]
    path.write_bytes(b"old")
    if failing == "attach":
        probes.attach = refuse  # type: ignore[method-assign]
    else:
        (tmp_path / "text").touch(mode=0o755)
        command = [str(tmp_path / "text")]
    # WHEN it is asked for  THEN all is closed, the older log is there, and no other file
    with pytest.raises(TraceError, match="not here" if failing == "attach" else "cannot start"):
        record(options(path, force=True, command=command), probes=probes)
    assert failing != "attach" or probes.calls == ["open", "close"]
    assert path.read_bytes() == b"old"
    assert set(os.listdir(tmp_path)) <= {"log", "text"}
    # AND a recording that can begin replaces it
    record(options(path, force=True, duration=0.05), probes=FakeProbes())
    assert not LogReader(path).interrupted
    assert set(os.listdir(tmp_path)) <= {"log", "text"}


def test_standard_output_has_nothing_before_the_command_runs(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    # GIVEN a command that is no program, and one that is
    (tmp_path / "text").touch(mode=0o755)
    # WHEN a recording to standard output is asked for / THEN of the first one there is no byte
    with pytest.raises(TraceError, match="cannot start"):
        record(options(None, command=[str(tmp_path / "text")]), probes=FakeProbes())
    assert capfdbinary.readouterr().out == b""
    # THEN of the second one there is a whole log
    record(options(None, command=["true"]), probes=FakeProbes())
    (tmp_path / "log").write_bytes(capfdbinary.readouterr().out)
    assert not LogReader(tmp_path / "log").interrupted


@pytest.mark.parametrize(
    "limits", [{}, {"rotate": Limit(bytes=1 << 20)}, {"keep": Limit(seconds=60)}]
)
def test_a_recording_that_fails_before_its_first_poll_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Limit]
) -> None:
    # GIVEN a log that is open, and a look at the host that fails before anything is polled
    def refuse(*_arguments: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("biotrail.recorder.session.running.DeviceWatch", refuse)
    probes, threads = FakeProbes(), threading.active_count()
    # WHEN a recording is asked for
    with pytest.raises(OSError, match="Too many open files"):
        record(options(tmp_path / "log", duration=1, **limits), probes=probes)
    # THEN all is closed, no file is there and no thread is left
    assert probes.calls == ["open", "attach", "close"]
    assert os.listdir(tmp_path) == []
    assert threading.active_count() == threads


def test_options_are_checked_before_anything_is_loaded(tmp_path: Path) -> None:
    # GIVEN an output that exists, a command that does not, a device that does not
    probes = FakeProbes()
    path = tmp_path / "log"
    path.write_bytes(b"old")
    bad = [
        (options(path, duration=1), "already exists"),
        (options(tmp_path / "x", command=["no-such-program"]), "no-such-program"),
        (options(tmp_path / "x", devices=["no-such-device"]), "no-such-device"),
    ]
    # WHEN a recording is asked for THEN each is told, and no probe was loaded
    for wrong, message in bad:
        with pytest.raises(TraceError, match=message):
            record(wrong, probes=probes)
    assert "open" not in probes.calls
    assert os.listdir(tmp_path) == ["log"]


def test_a_failing_output_ends_the_recording_and_keeps_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a limit on the size of files, as a full disk would be one
    path = tmp_path / "log"
    monkeypatch.setattr("biotrail.recorder.session.intake.CHUNK_NS", 1)
    record(options(tmp_path / "short", level=0, duration=0.001), probes=FakeProbes())
    limit = (tmp_path / "short").stat().st_size + 10_000
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
    try:
        # WHEN the log outgrows it
        summary: Summary = record(options(path, level=0, duration=60), probes=FakeProbes())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    # THEN recording stopped, said why, counted what it could not keep, and the rest reads back
    assert summary.reason == "output failed"
    assert isinstance(summary.error, OutputError)
    assert summary.unwritten_bytes > 0
    reader = LogReader(path)
    kept = sum(len(s.data) for chunk in reader.chunks() for s in chunk.segments)
    assert reader.interrupted
    assert kept == summary.events * FakeProbes().size


# How a recording ends: what is kept, what it says of it, and with which status.


def fail_in_chunk(monkeypatch: pytest.MonkeyPatch, number: int, error: Callable[[], Any]) -> None:
    """Have the log's chunk of that number (from 0) fail."""
    write = LogWriter.write_chunk

    def writing(self: LogWriter, *chunk: Any) -> int:
        if self.chunks == number:
            raise error()
        return write(self, *chunk)

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


def test_failed_outputs_are_told_with_what_is_not_written(
    cli: Cli, recorder: Recorder, tmp_path: Path
) -> None:
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
    # GIVEN a pipe whose reader went away WHEN the recording ends THEN its status is SIGPIPE's
    recorder.result = summary(error=ReaderGoneError("standard output: Broken pipe"))
    done = cli("record", "-o", "x")
    assert done.status == 141
    assert done.err.endswith("biotrail: error: standard output: Broken pipe\n")
    # GIVEN a log that is written to a pipe that nobody reads
    reading, writing = os.pipe()
    os.close(reading)
    # WHEN it is begun THEN the error is of that kind
    with os.fdopen(writing, "wb", buffering=0) as stream, pytest.raises(ReaderGoneError):
        LogWriter(stream, {"clocks": {}})


@pytest.mark.parametrize(
    "error", [lambda: OSError(28, "No space left on device"), MemoryError, ZeroDivisionError]
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_an_error_leaves_is_counted_up_to_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]
) -> None:
    # GIVEN a log whose fourth chunk cannot be written, for want of room or memory, or for a bug
    fail_in_chunk(monkeypatch, 3, error)
    probes = FakeProbes()
    # WHEN it is recorded
    result = record(options(tmp_path / "x", duration=60), probes=probes)
    # THEN recording stops with an error, and what was written reads
    assert result.reason == "output failed"
    assert isinstance(result.error, OutputError)
    assert LogReader(tmp_path / "x").interrupted
    # AND every event is either in the log or counted, and the time up to which it goes is told
    if isinstance(error(), OSError):
        assert result.events + result.unwritten_events == probes.given
        assert result.unwritten_bytes == result.unwritten_events * probes.size
        last = list(LogReader(tmp_path / "x").chunks())[-1]
        assert result.written_until is not None
        assert result.written_until.realtime == last.clock["realtime"]


@pytest.mark.parametrize("keep", [None, Limit(seconds=60)])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ProbeError("the rings cannot be read"), "the rings cannot be read"),
        (MemoryError(), "there was not enough memory"),
    ],
)
def test_a_fault_of_the_recorder_still_ends_the_log(
    tmp_path: Path, keep: Limit | None, fault: Exception, said: str
) -> None:
    # GIVEN probes that fail after a while, or have no memory for what they read
    probes = FakeProbes()

    def fall_over() -> None:
        if probes.given == 5:
            raise fault

    probes.at_drain = fall_over
    # WHEN it is recorded, to a log or to memory
    result = record(options(tmp_path / "x", duration=60, keep=keep), probes=probes)
    # THEN the error is told, and what was recorded before is in a log with an end
    assert str(result.error).startswith(said)
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
    def fail(_watch: StackWatch) -> None:
        raise error

    monkeypatch.setattr(StackWatch, "changes", fail)
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
