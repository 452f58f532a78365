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
    in_json,
    started,
)

pytestmark = pytest.mark.usefixtures("needs_bpf")

WRITES = 200


@contextmanager
def top(*arguments: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    command = [*BIOTRAIL, "top", *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with started(command, env=environment(), text=True, **options) as process:
        yield process


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
    report = in_json("report", log)
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
    report = in_json("report", log)
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
    found = in_json("slow", "--calls", "-n", "10", log)["calls"]
    slowest = [(one["call"], one["duration_ns"]) for one in told[-1]["slowest_calls"]]
    assert slowest == [(one["call"]["call"], one["call"]["duration_ns"]) for one in found]


def test_count_and_plain_text(loop_device: LoopDevice) -> None:
    # GIVEN no terminal WHEN two snapshots are asked for THEN there are two in plain text
    done = biotrail("top", "-d", loop_device.path, "--count", "2")
    assert done.stdout.count("biotrail top:") == 2 and "\x1b" not in done.stdout


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
