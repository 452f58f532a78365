# SPDX-License-Identifier: Apache-2.0
"""How a recorder ends on a real host: idle times, full disks, readers that go, other users."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.log import LogReader
from tests.support import devices
from tests.support.devices import Fio
from tests.support.file_systems import small_disk
from tests.support.record_command import (
    SECONDS,
    biotrail,
    environment,
    logs_in,
    read,
    recorder,
    stop,
    wait_until,
)

pytestmark = pytest.mark.usefixtures("needs_bpf")

READS: dict[str, Any] = {"rw": "randread", "bs": "4k", "ioengine": "psync"}


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def test_a_dump_of_an_idle_device_is_empty_and_says_its_period(
    tmp_path: Path, loop_device: Any, fio: Fio
) -> None:
    # GIVEN a flight recorder of a second, and I/O that ended before that
    arguments = ("-d", loop_device.name, "-o", tmp_path / "x", "--keep", "1s")
    with recorder(*arguments) as process:
        fio(loop_device.path, number_ios=200, **READS)
        time.sleep(2)
        # WHEN it is asked for a dump
        process.send_signal(signal.SIGUSR1)
        said = next_line(process)
        status, _ = stop(process, signal.SIGINT)
    # THEN that holds none of it
    assert status == 0
    first = logs_in(tmp_path)[0]
    found = read(first)
    assert len(found.by("fio").sector) == 0
    # AND it says so of the last second, unless others have read the device in that
    if len(found.bios.sector) == 0:
        assert LogReader(first).header["kept"]["seconds"] == pytest.approx(1.0)
        assert re.search(r"wrote .*: the last 1\.0 s, no event in them", said), said
        assert "the last 1 s" in biotrail("info", first).stdout
    # AND what reads logs takes it
    biotrail("convert", first)


def test_rotation_under_sudo_follows_no_link(tmp_path: Path) -> None:
    # GIVEN a rotating recording by root for a user who may move its directory
    ours, closed, moved = (tmp_path / name for name in ("ours", "closed", "moved"))
    ours.mkdir()
    closed.mkdir(mode=0o700)
    os.chown(ours, 4321, 4321)
    env = environment(SUDO_UID="4321", SUDO_GID="4321")
    arguments = ("-o", ours / "x", "--rotate", "300ms", "--max-files", "2")
    with recorder(*arguments, env=env) as process:
        wait_until(lambda: bool(logs_in(ours)), "no file is begun")
        first = logs_in(ours)[0].name
        # WHEN the user puts a link to a closed directory in its place
        ours.rename(moved)
        ours.symlink_to(closed)
        with (tmp_path / "load").open("wb") as load:
            deadline = time.monotonic() + SECONDS
            while (moved / first).exists():
                assert time.monotonic() < deadline, "the first file is not deleted"
                load.write(b"x")
                load.flush()
                os.fsync(load.fileno())
                time.sleep(0.02)
        status, said = stop(process, signal.SIGINT)
    # THEN files go on where the directory is now, the user's, and old ones are deleted there
    assert status == 0, said
    assert list(closed.iterdir()) == []
    left = sorted(moved.iterdir())
    assert 1 <= len(left) <= 2
    assert {(path.stat().st_uid, path.suffix) for path in left} == {(4321, ".biotrail")}
    # AND the closing words lead there
    assert f"convert {left[0]}" in said


def test_a_removed_directory_keeps_no_file(tmp_path: Path) -> None:
    # GIVEN a rotating recording
    ours = tmp_path / "ours"
    ours.mkdir()
    with recorder("-o", ours / "x", "--rotate", "1h") as process:
        # WHEN its directory is removed, and there is I/O for a next file
        shutil.rmtree(ours)
        subprocess.run(["sync", tmp_path], check=True, timeout=SECONDS)
        with (tmp_path / "load").open("wb") as load:
            deadline = time.monotonic() + SECONDS
            while process.poll() is None and time.monotonic() < deadline:
                load.write(b"x")
                load.flush()
                os.fsync(load.fileno())
                time.sleep(0.02)
        _, said = process.communicate(timeout=SECONDS)
    # THEN it says that no file is left, and names no hidden one
    assert process.returncode == 1
    assert re.search(r"no file kept.*, \d+ removed or moved away by others", said), said
    assert "directory does not exist" in said
    assert ".part" not in said
    assert "next:" not in said


def test_a_full_disk_tells_events_time_and_the_commands_status(
    tmp_path: Path, loop_device: Any, fio: Fio
) -> None:
    # GIVEN a disk that is too small for the log of a command, which fails
    fio_words = " ".join(devices.fio_arguments(loop_device.path, number_ios=9000, **READS))
    with small_disk(tmp_path / "small", "200k") as disk:
        log = disk / "x.biotrail"
        script = f"fio --output=/dev/null {fio_words}; sleep 1; exit 7"
        # WHEN it is recorded
        command = ("sh", "-c", script)
        options = ("-d", loop_device.name, "--level", "0", "-o", log)
        done = biotrail("record", *options, "--", *command, status=1)
        # THEN the closing words have events, bytes, until when, and the command's status
        said = done.stderr
        assert re.search(
            r"B of records could not be written, about [\d,]+ events: "
            r"(nothing was written|what was recorded until [\d-]{10} [\d:]{8}\.\d{3}Z \()",
            said,
        ), said
        assert "biotrail: sh ended with exit status 7" in said
        assert "No space left" in said
        # AND what is there reads
        assert LogReader(log).interrupted


def test_a_last_dump_on_a_full_disk_is_told_once(
    tmp_path: Path, loop_device: Any, fio: Fio
) -> None:
    # GIVEN a flight recorder whose disk has become full
    with small_disk(tmp_path / "small", "1M") as disk:
        (disk / "ballast").write_bytes(bytes((1 << 20) - 16384))
        arguments = ("-d", loop_device.name, "-o", disk / "x", "--keep", "8M", "--level", "0")
        with recorder(*arguments) as process:
            fio(loop_device.path, number_ios=3000, **READS)
            # WHEN it ends
            status, said = stop(process, signal.SIGINT)
    # THEN it says so once, with how much is missing
    assert status == 1
    assert said.count("No space left") == 1
    assert re.search(
        r"(about [\d,]+|none) of its .* events? \(the last .* s\) (are not|is) in it", said
    )
    assert ".part" not in said


def test_nonsense_from_sudo_is_passed_over(tmp_path: Path) -> None:
    # GIVEN a SUDO_UID that is no user's WHEN something is recorded
    log = tmp_path / "x.biotrail"
    env = environment(SUDO_UID="nobody", SUDO_GID="1")
    done = biotrail("record", "-o", log, "--", "true", env=env)
    # THEN there is a whole log, and no traceback
    assert "Traceback" not in done.stderr
    assert not LogReader(log).interrupted


def test_nobody_who_reads_what_it_says_is_no_reason_to_end(tmp_path: Path) -> None:
    # GIVEN a recorder of a command that waits for its standard input to end
    log = tmp_path / "x.biotrail"
    with recorder("-o", log, "--", "cat", stdin=subprocess.PIPE) as process:
        # WHEN nobody reads the recorder's standard error any more, and it goes on to its end
        assert process.stderr is not None
        process.stderr.close()
        process.stderr = None
        time.sleep(1)
        process.communicate(timeout=SECONDS)
    # THEN the log has its end, and the status is the command's
    assert process.returncode == 0
    assert not LogReader(log).interrupted
