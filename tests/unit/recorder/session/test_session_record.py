# SPDX-License-Identifier: Apache-2.0
"""A whole recording over made-up probes: what reaches the log, and how it ends."""

import os
import resource
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from biotrail.recorder.log import LogReader
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.schema.errors import OutputError, ProbeError, TraceError
from biotrail.recorder.schema.records import Kind
from biotrail.recorder.session import session
from biotrail.recorder.session.child import Child
from biotrail.recorder.session.opening import Opened, Prepared
from biotrail.recorder.session.session import RecordOptions, Status, Summary, record
from tests.support.fake_probes import FakeProbes, options


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
    assert (summary.events, summary.raw_bytes) == (probes.given, len(data))
    reader = LogReader(path)
    assert not reader.interrupted
    assert reader.end is not None
    assert reader.end["reason"] == "duration"
    # AND it says when the probes began to go, before its last reading of the clocks
    assert reader.end["stopped"]["monotonic"] <= reader.end["clocks"]["monotonic"]


def test_the_header_says_how_it_was_recorded(tmp_path: Path) -> None:
    # GIVEN a recording
    path = tmp_path / "log"
    record(options(path, duration=0.01), probes=FakeProbes())
    # WHEN its header is read
    header = LogReader(path).header
    # THEN it has the facts of the contract, and only what belongs to the event set is missing
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


def test_a_signal_ends_the_recording_well(tmp_path: Path) -> None:
    # GIVEN a recording without an end
    path = tmp_path / "log"
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    # WHEN Ctrl-C comes
    summary = record(options(path), probes=FakeProbes())
    # THEN the log is complete
    assert summary.reason == "interrupted"
    assert not LogReader(path).interrupted


def test_the_commands_end_is_the_recordings(tmp_path: Path) -> None:
    # GIVEN a command that fails
    path = tmp_path / "log"
    command = [sys.executable, "-c", "raise SystemExit(7)"]
    # WHEN it is recorded
    summary = record(options(path, command=command), probes=FakeProbes())
    # THEN its status is told and the log is complete
    assert (summary.reason, summary.command_status) == ("command ended", 7)
    assert not LogReader(path).interrupted


def test_a_command_ends_if_the_recording_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a command that goes on, and a failure after its start
    started = list[Child]()

    open_it = session.open_recording

    def note_child(prepared: Prepared, stack: ExitStack, undo: ExitStack) -> Opened:
        assert prepared.child is not None
        started.append(prepared.child)
        return open_it(prepared, stack, undo)

    def refuse(_options: RecordOptions, _probes: object) -> None:
        raise ProbeError("rights cannot be given up")

    monkeypatch.setattr(session, "open_recording", note_child)
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


def test_a_command_outlives_the_duration(tmp_path: Path) -> None:
    # GIVEN a command that takes longer than the recording shall
    proof = tmp_path / "proof"
    code = f"import time; time.sleep(1); open({str(proof)!r}, 'w')"
    seen: list[Status] = []
    # WHEN the duration is over
    summary = record(
        options(tmp_path / "log", command=[sys.executable, "-c", code], duration=0.05),
        seen.append,
        FakeProbes(),
    )
    # THEN the command was waited for, and the user told
    assert (summary.reason, summary.command_status) == ("duration", 0)
    assert proof.exists()
    assert any("waiting" in status.note for status in seen)


def test_a_recording_that_cannot_begin_leaves_no_file(tmp_path: Path) -> None:
    # GIVEN probes that cannot be attached
    probes, path = FakeProbes(), tmp_path / "log"

    def refuse() -> None:
        raise ProbeError("not here")

    probes.attach = refuse  # type: ignore[method-assign]
    # WHEN a recording is asked for THEN it fails, all is closed and no file is there
    with pytest.raises(ProbeError, match="not here"):
        record(options(path, duration=1), probes=probes)
    assert probes.calls == ["open", "close"]
    assert not path.exists()


@pytest.mark.parametrize("failing", ["attach", "command", "after its start"])
def test_an_older_log_stays_until_recording_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    # GIVEN a log that --force may replace, and a recording that cannot begin: its programs do not
    # attach, its command is no program, or the recorder keeps a right that it may not have
    def refuse(*_arguments: object) -> None:
        raise ProbeError("not here")

    path, probes, command = tmp_path / "log", FakeProbes(), ["true"]
    path.write_bytes(b"old")
    if failing == "attach":
        probes.attach = refuse  # type: ignore[method-assign]
    elif failing == "command":
        (tmp_path / "text").touch(mode=0o755)
        command = [str(tmp_path / "text")]
    else:
        monkeypatch.setattr(session, "reduce", refuse)
    some = options(path, force=True, command=command, give_up_rights=failing == "after its start")
    # WHEN it is asked for  THEN the older log is there, and no other file
    with pytest.raises(TraceError):
        record(some, probes=probes)
    assert path.read_bytes() == b"old"
    assert set(os.listdir(tmp_path)) <= {"log", "text"}
    # AND a recording that can begin replaces it
    monkeypatch.undo()
    record(options(path, force=True, duration=0.05), probes=FakeProbes())
    assert not LogReader(path).interrupted
    assert set(os.listdir(tmp_path)) <= {"log", "text"}


@pytest.mark.parametrize(
    "limits", [{}, {"rotate": Limit(bytes=1 << 20)}, {"keep": Limit(seconds=60)}]
)
def test_a_recording_that_fails_before_its_first_poll_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Limit]
) -> None:
    # GIVEN a log that is open, and a look at the host that fails before anything is polled
    def refuse(*_arguments: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("biotrail.recorder.session.running.ChangeNotes", refuse)
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
    assert kept == summary.raw_bytes
