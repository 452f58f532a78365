# SPDX-License-Identifier: Apache-2.0
"""`biotrail record` as a user meets it: outputs, stops, crashes, several at once."""

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader
from tests.support.devices import Fio, MakeLoop
from tests.support.record_command import (
    BIOTRAIL,
    SECONDS,
    biotrail,
    busy,
    count_events,
    environment,
    in_json,
    read,
    recorder,
    started,
    stop,
    wait_for_size,
    wait_until,
)

pytestmark = pytest.mark.usefixtures("needs_bpf")


@pytest.fixture
def load(loop_device: Any, fio: Fio) -> Iterator[Any]:
    """A loop device that fio reads all the time."""
    with busy(loop_device.path):
        yield loop_device


def test_a_killed_recorder_leaves_a_log_that_reads_and_converts(tmp_path: Path, load: Any) -> None:
    # GIVEN a recorder at work that has written for a while
    log = tmp_path / "killed.biotrail"
    with recorder("-d", load.name, "-o", log) as process:
        wait_for_size(log, 100_000)
        # The first chunk may still be under way when the file has this size.
        wait_until(lambda: any(True for _ in LogReader(log).chunks()), "no whole chunk is there")
        # WHEN it is killed
        process.kill()
        process.wait(SECONDS)
    # THEN the log says so, reads to its last whole chunk, and converts
    facts = in_json("info", log)
    assert facts["interrupted"]
    assert facts["account"]["events"] > 1000
    assert facts["account"]["unreadable_bytes"] == 0
    biotrail("convert", log)
    assert (tmp_path / "killed.pftrace").stat().st_size > 1000
    # AND nothing of the recorder is left in the kernel: the next one records
    biotrail("record", "-d", load.name, "--duration", "0.2", "-o", tmp_path / "next.biotrail")
    assert count_events(tmp_path / "next.biotrail") > 0


@pytest.mark.parametrize(
    ("signals", "reason"),
    [
        ([signal.SIGTERM], "terminated"),
        ([signal.SIGQUIT], "quit"),
        ([signal.SIGUSR2, signal.SIGTERM], "terminated"),  # SIGUSR2 is no end here
        ([signal.SIGHUP], "hung up"),
        ([signal.SIGINT, signal.SIGINT, signal.SIGINT], "interrupted"),
    ],
)
def test_signals_end_the_log_well(
    tmp_path: Path, load: Any, signals: list[signal.Signals], reason: str
) -> None:
    # GIVEN a recorder at work
    log = tmp_path / "log"
    with recorder("-d", load.name, "-o", log) as process:
        wait_for_size(log, 20_000)
        # WHEN it is told to end, even more than once
        status, said = stop(process, *signals)
    # THEN the log is complete, and says why it ended
    reader = LogReader(log)
    assert (status, reader.interrupted, reader.problems) == (0, False, []), said
    assert reader.end is not None
    assert reader.end["reason"] == reason
    assert "next: biotrail convert" in said


def test_a_log_can_be_streamed_and_converted_on_the_way(tmp_path: Path, load: Any) -> None:
    # GIVEN a recorder that writes to a pipe
    trace = tmp_path / "trace.pftrace"
    command = [*BIOTRAIL, "record", "-q", "-d", load.name, "-o", "-", "--duration", "1"]
    with started(command, env=environment(), stdout=subprocess.PIPE) as record:
        # WHEN the other end converts it
        done = biotrail("convert", "-", "-o", trace, stdin=record.stdout)
        # THEN both end well, and the trace holds all of the stream
        assert record.wait(SECONDS) == 0
    for complaint in ("interrupted", "damaged", "lost while recording", "could not be read"):
        assert complaint not in done.stdout
    assert trace.stat().st_size > 1000


def test_a_commands_output_is_kept_out_of_a_streamed_log(tmp_path: Path) -> None:
    # GIVEN a log on standard output WHEN a command that prints is recorded
    done = biotrail("record", "-q", "-o", "-", "--", "echo", "hello", text=False)
    # THEN the log is whole, and the command's words are on standard error
    assert b"hello" in done.stderr
    (tmp_path / "log").write_bytes(done.stdout)
    reader = LogReader(tmp_path / "log")
    assert (reader.interrupted, reader.problems) == (False, [])


def test_a_reader_that_goes_away_ends_the_recording(load: Any) -> None:
    # GIVEN a recorder that streams to a reader which takes little and leaves
    command = [*BIOTRAIL, "record", "-d", load.name, "-o", "-"]
    pipe = subprocess.PIPE
    with started(command, env=environment(), stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        process.stdout.read(1000)
        # WHEN it is gone THEN it says so and ends as by SIGPIPE, without a traceback
        process.stdout.close()
        process.stdout = None
        _, said = process.communicate(timeout=SECONDS)
        assert process.returncode == 141
    assert b"standard output: cannot be written" in said
    assert b"Broken pipe" in said
    assert b"Traceback" not in said


def test_a_log_is_private_and_belongs_to_the_caller_of_sudo(tmp_path: Path) -> None:
    # GIVEN root under sudo, and no name for the log
    env = environment(SUDO_UID="1234", SUDO_GID="2345")
    # WHEN something is recorded
    biotrail("record", "--duration", "0.1", env=env, cwd=tmp_path)
    # THEN the log has a telling name, and only that user may read it
    (log,) = tmp_path.iterdir()
    assert log.match(f"biotrail-{os.uname().nodename}-*.biotrail")
    found = log.stat()
    assert (found.st_uid, found.st_gid) == (1234, 2345)
    assert stat.S_IMODE(found.st_mode) == 0o600


def test_a_duration_and_a_status(tmp_path: Path) -> None:
    # GIVEN a duration WHEN it is over THEN the recorder ends with 0
    done = biotrail("record", "--duration", "300ms", "-o", tmp_path / "a")
    assert "(duration)" in done.stderr
    # GIVEN a command WHEN it is killed THEN its status is the recorder's, as a shell has it
    biotrail("record", "-o", tmp_path / "c", "--", "sh", "-c", "kill -9 $$", status=137)
    # GIVEN no such command WHEN it is to be recorded THEN it fails and leaves no log
    biotrail("record", "-o", tmp_path / "d", "--", "no-such-program", status=1)
    assert not (tmp_path / "d").exists()


def test_ctrl_c_reaches_the_command_and_keeps_the_log(tmp_path: Path) -> None:
    # GIVEN a command that would run for long
    log = tmp_path / "log"
    with recorder("-o", log, "--", "sleep", "1000") as process:
        # WHEN the recorder is interrupted, and the command by nobody
        status, _ = stop(process, signal.SIGINT)
    # THEN the command was asked to end, and the log is complete
    assert status == 128 + signal.SIGTERM
    assert not LogReader(log).interrupted


def test_devices_and_cgroups_that_are_learned_while_recording(
    tmp_path: Path, make_loop: MakeLoop, fio: Fio
) -> None:
    # GIVEN a recorder at work
    log = tmp_path / "log"
    with recorder("-o", log) as process:
        # WHEN a device appears and is used
        late = make_loop()
        fio(late.path, rw="randread", bs="4k", size="1m")
        # THEN the log tells of it before it ends
        wait_until(lambda: late.dev in devices_in(log), "the device is not in the log")
        stop(process, signal.SIGINT)
    # AND the log tells what it is
    found = read(log)
    entries = found.context.devices
    assert entries[late.dev]["name"] == late.name
    assert entries[late.dev]["loop"]["file"] == str(late.backing)
    # AND every cgroup that was charged is known by its path
    bios = found.by("fio")
    charged = {int(number) for number in bios.cgroup[bios.dev == late.dev] if number}
    assert charged <= set(found.context.cgroups)


def devices_in(log: Path) -> set[int]:
    """Devices that the log's notes tell of, as far as it is written."""
    trace = Trace(log)
    list(trace.events())
    return set(trace.context.devices)
