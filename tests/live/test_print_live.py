# SPDX-License-Identifier: Apache-2.0
"""record --print on a live device: each I/O a line, a kept log as ever, and nothing stays behind.

A line is printed for each bio that was queued, also where no program was run for its
completion: counts hold against fio's own whatever the kernel skips.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.pipeline import Trace
from tests.support.devices import Fio, LoopDevice
from tests.support.record_command import (
    BEGUN,
    BIOTRAIL,
    SECONDS,
    biotrail,
    children,
    environment,
    wait_until_gone,
)

pytestmark = pytest.mark.usefixtures("needs_bpf")

IOS = 2000


def _heed_signals() -> None:
    """Whoever runs the tests may ignore them (nohup, a shell's background job)."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def printer(*arguments: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """`record --print` in the background, from when it records; killed if it still runs."""
    command = [*BIOTRAIL, "record", "--print", *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    process = subprocess.Popen(
        command,
        env=environment(),
        text=True,
        preexec_fn=_heed_signals,  # noqa: PLW1509 - no thread runs
        **options,
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert BEGUN in said, said + process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def load(fio: Fio, device: LoopDevice, rw: str = "randwrite") -> int:
    """IOS direct I/Os by fio; how many it says it did."""
    options = {"bs": "4k", "direct": 1, "iodepth": 16, "ioengine": "libaio", "number_ios": IOS}
    [job] = fio(device.path, rw=rw, size="16m", **options)["jobs"]
    return int(job["read"]["total_ios"]) + int(job["write"]["total_ios"])


def of_fio(lines: list[str]) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if row.get("comm") == "fio"]


@pytest.mark.parametrize("keep", [False, True], ids=["no-log", "log"])
def test_every_io_is_printed(loop_device: LoopDevice, fio: Fio, tmp_path: Path, keep: bool) -> None:
    # GIVEN a printer, with a log or without
    log = tmp_path / "a.biotrail"
    options = ["-o", log] if keep else []
    with printer("--json", "-d", loop_device.path, *options) as process:
        # WHEN fio does I/O, and the printer is ended
        done = load(fio, loop_device)
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=SECONDS)
    # THEN each of fio's I/Os was printed, or is said to be skipped
    assert process.returncode == 0, said
    rows = [json.loads(line) for line in out.splitlines()]
    skipped = sum(row["skipped"]["ios"] for row in rows if "skipped" in row)
    printed = [row for row in rows if row.get("comm") == "fio"]
    assert len(printed) == done if not skipped else len(printed) + skipped >= done
    assert {(row["operation"], row["bytes"]) for row in printed} == {("write", 4096)}
    # AND with a latency, where its completion was seen
    assert all(r["latency_ns"] > 0 for r in printed if r["latency_ns"] is not None)
    assert any(row["latency_ns"] is not None for row in printed)
    # AND a log is there with -o alone, whole, and with all of them
    assert log.exists() == keep
    if keep:
        biotrail("verify", log)
        queued = sum(len(window.bios) for window in Trace(log).lifecycles())
        assert queued >= done


def test_a_reader_that_ends_ends_it_quietly(loop_device: LoopDevice, fio: Fio) -> None:
    # GIVEN a printer to a pipe, of which the head was read
    with printer("-d", loop_device.path) as process:
        assert process.stdout is not None and process.stderr is not None
        load(fio, loop_device)
        head = [process.stdout.readline() for _ in range(3)]
        (recorder,) = children(process.pid)
        # WHEN the reader ends, and nothing more happens on the device
        process.stdout.close()
        # THEN it ends as what is sent SIGPIPE does, says nothing of it, and leaves no recorder
        assert process.wait(SECONDS) == 141
        wait_until_gone(recorder)
        assert process.stderr.read() == ""
    assert head[0].split()[:2] == ["TIME(s)", "COMM"]
    assert head[1].split()[1] == "fio"


def test_who_reads_too_slowly_keeps_no_recording_waiting(
    loop_device: LoopDevice, fio: Fio, tmp_path: Path
) -> None:
    # GIVEN a printer whose output nobody takes, and a log
    log = tmp_path / "a.biotrail"
    with printer("--json", "-d", loop_device.path, "-o", log) as process:
        # WHEN there is more I/O than a pipe has room for lines
        done = load(fio, loop_device)
        process.send_signal(signal.SIGTERM)
        # THEN the log gets its end all the same, before a line is read
        (recorder,) = children(process.pid)
        wait_until_gone(recorder)
        with_end = Trace(log)
        bios = sum(int((w.bios.tid > 0).sum()) for w in with_end.lifecycles())
        assert not with_end.reader.interrupted
        assert bios >= done
        # AND what is then read is whole
        out, _ = process.communicate(timeout=SECONDS)
        assert len(of_fio(out.splitlines())) == done or "skipped" in out


def test_the_command_s_status_is_its_own(loop_device: LoopDevice) -> None:
    # GIVEN a command WHEN it ends with a status of its own
    command = ["sh", "-c", "echo told; exit 7"]
    done = biotrail("record", "--print", "-q", "-d", loop_device.path, "--", *command, status=7)
    # THEN that is ours, and what the command prints is not among the lines
    assert "told" in done.stderr and "told" not in done.stdout


def test_an_older_log_stays_if_the_command_cannot_be_started(
    loop_device: LoopDevice, tmp_path: Path
) -> None:
    # GIVEN a log that may be replaced, and a command that is executable and no program
    log, command = tmp_path / "a.biotrail", tmp_path / "text"
    log.write_bytes(b"old")
    command.touch(mode=0o755)
    # WHEN its I/O is to be printed / THEN one message, status 1, and the log is as it was
    asked = ["record", "--print", "-d", loop_device.path, "-f", "-o", log, "--", command]
    done = biotrail(*asked, status=1)
    assert done.stderr.count("cannot start") == 1 and done.stdout == ""
    assert log.read_bytes() == b"old"
    assert sorted(tmp_path.iterdir()) == [log, command]
