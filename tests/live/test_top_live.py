# SPDX-License-Identifier: Apache-2.0
"""biotrail top on a live device: nothing is counted twice or left out, and nothing stays behind."""

import json
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import devices
from tests.support.devices import LoopDevice
from tests.support.kernel_completions import done_again
from tests.support.record_command import (
    BIOTRAIL,
    SECONDS,
    biotrail,
    environment,
    started,
    wait_until,
)

pytestmark = pytest.mark.usefixtures("needs_bpf")

WRITES = 200


@contextmanager
def top(*arguments: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    command = [*BIOTRAIL, "top", *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with started(command, env=environment(), text=True, **options) as process:
        yield process


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def write(path: str) -> None:
    """WRITES direct writes of 4 KiB."""
    size = f"bs=4096 count={WRITES}".split()
    devices.run("dd", "if=/dev/zero", f"of={path}", *size, "oflag=direct", "conv=notrunc")


@done_again
def test_what_is_shown_is_what_the_log_has(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN top on a device, beside a log
    log = tmp_path / "a.biotrail"
    with top("--json", "-d", loop_device.path, "-o", log) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        # WHEN there is a known load, and Ctrl-C
        write(loop_device.path)
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said
    told = [json.loads(line) for line in (*lines, *rest.splitlines())]
    # THEN the snapshots have together what the log has, and that is the load
    assert [t["last"] for t in told] == [False] * (len(told) - 1) + [True]
    report = json.loads(biotrail("report", "--json", log).stdout)
    for name in ("ios", "bytes", "ended", "failed", "unfinished"):
        assert sum(t["now"]["total"][name] for t in told) == report["total"][name], name
    latency = sum(t["now"]["total"]["latency"]["sum_ns"] for t in told)
    assert latency == report["total"]["latency"]["sum_ns"]
    found = [o for t in told for o in t["now"]["operations"] if o["operation"] == "write"]
    assert sum(o["ios"] for o in found) >= WRITES
    dd = [p for t in told for p in t["now"]["processes"] if p["process"] == "dd"]
    assert sum(p["bytes"] for p in dd) >= WRITES * 4096
    # AND the log is whole, and nobody else's
    assert report["loss"]["interrupted"] is False
    assert log.stat().st_mode & 0o777 == 0o600
    # AND another top does not write over it
    done = biotrail("top", "-d", loop_device.path, "-o", log, status=1)
    assert "already exists" in done.stderr


def test_slowest_calls_are_those_of_the_log(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN top with the path on a device, beside a log
    log = tmp_path / "a.biotrail"
    with top("--json", "--path", "--call-budget=0", "-d", loop_device.path, "-o", log) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        # WHEN a program writes to it with a call for each block, and Ctrl-C
        write(loop_device.path)
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said
    told = [json.loads(line) for line in (*lines, *rest.splitlines())]
    # THEN the snapshots have together the calls that the log has
    report = json.loads(biotrail("report", "--json", log).stdout)
    for call in report["calls"]:
        mine = [
            one
            for snapshot in told
            for one in snapshot["now"]["calls"]
            if (one["call"], one["io"]) == (call["call"], call["io"])
        ]
        assert sum(one["count"] for one in mine) == call["count"], call["call"]
        assert sum(one["time"]["sum_ns"] for one in mine) == call["time"]["sum_ns"]
    writes = [c for c in report["calls"] if (c["call"], c["io"]) == ("write", True)]
    assert sum(one["count"] for one in writes) >= WRITES
    # AND the slowest of all are those that `slow --calls` finds
    found = json.loads(biotrail("slow", "--calls", "--json", "-n", "10", log).stdout)["calls"]
    slowest = [(one["call"], one["duration_ns"]) for one in told[-1]["slowest_calls"]]
    assert slowest == [(one["call"]["call"], one["call"]["duration_ns"]) for one in found]


def test_count_and_plain_text(loop_device: LoopDevice) -> None:
    # GIVEN no terminal WHEN two snapshots are asked for THEN there are two in plain text
    done = biotrail("top", "-d", loop_device.path, "--count", "2")
    assert done.stdout.count("biotrail top:") == 2 and "\x1b" not in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_nothing_stays_behind(loop_device: LoopDevice, number: signal.Signals) -> None:
    # GIVEN top, and the recorder that it started
    with top("--json", "-d", loop_device.path) as process:
        assert process.stdout is not None and process.stdout.readline()
        (recorder,) = children(process.pid)
        # WHEN top is ended in any way
        process.send_signal(number)
        process.communicate(timeout=SECONDS)
        # THEN the recorder, and with it its programs, has ended too
        wait_until(lambda: gone(recorder), "the recorder stays")
    assert process.returncode == (-9 if number == signal.SIGKILL else 0)


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    # GIVEN a name of no device WHEN watched THEN one message, status 1, and no file
    log = tmp_path / "a.biotrail"
    done = biotrail("top", "-d", "nosuchdevice", "-o", log, status=1)
    assert "nosuchdevice" in done.stderr and "Traceback" not in done.stderr
    assert not log.exists()


def test_q_ends_it_and_the_terminal_is_as_before(loop_device: LoopDevice) -> None:
    # GIVEN top on a terminal
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (40, 120))
    try:
        with top("-d", loop_device.path, stdin=its, stdout=its) as process:
            os.close(its)
            said = b""
            while b"in flight" not in said and b"biotrail top:" not in said:
                said += os.read(ours, 4096)
            assert b"\x1b[?1049h" in said
            # WHEN q is pressed
            os.write(ours, b"q")
            while b"\x1b[?1049l" not in said:  # THEN the screen is given back
                said += os.read(ours, 4096)
            assert process.wait(SECONDS) == 0
    finally:
        os.close(ours)
