# SPDX-License-Identifier: Apache-2.0
"""Runs the command `biotrail` as a user does, and reads what it wrote."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import devices
import numpy as np

from converters.model.account import Account
from converters.model.context import Context
from converters.model.tables import Bios, Requests
from converters.model.trace import Trace

ROOT = Path(__file__).parents[2]
BIOTRAIL = (sys.executable, "-m", "biotrail.main")
SECONDS = 120
STARTING = "starting"
"""What `record` says first."""
BEGUN = "recording"
"""What `record` says once events are being recorded."""


def environment(**others: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **others}


def biotrail(
    *arguments: str | Path, status: int | None = 0, by: tuple[str, ...] = (), **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run to the end; the exit status is checked unless it is None. `by`: what starts it."""
    options = {"env": environment(), "capture_output": True, "text": True, **options}
    done = subprocess.run([*by, *BIOTRAIL, *map(str, arguments)], timeout=SECONDS, **options)
    assert status is None or done.returncode == status, (done.returncode, done.stderr)
    return done


@contextmanager
def recorder(
    *arguments: str | Path, by: tuple[str, ...] = (), **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """`biotrail record` in the background, from when it records; killed if it still runs."""
    command = [*by, *BIOTRAIL, "record", *map(str, arguments)]
    options = {"env": environment(), **options}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        if STARTING in said:
            said = process.stderr.readline()
        assert BEGUN in said, said + process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def stop(process: subprocess.Popen[str], *signals: signal.Signals) -> tuple[int, str]:
    """Send the signals; (exit status, what it said)."""
    for number in signals:
        process.send_signal(number)
    _, said = process.communicate(timeout=SECONDS)
    return process.returncode, said


def wait_for_size(path: Path, size: int) -> None:
    """Until the file has grown to `size`."""
    end = time.monotonic() + SECONDS
    while not path.exists() or path.stat().st_size < size:
        assert time.monotonic() < end, f"{path} does not grow to {size}"
        time.sleep(0.05)


@dataclass
class Log:
    """A log, associated whole."""

    account: Account
    context: Context
    bios: Bios
    requests: Requests
    comms: np.ndarray
    trace: Trace

    def by(self, comm: str) -> Bios:
        """Bios of the tasks of that name."""
        return self.bios.take(self.comms == comm)

    def devices(self) -> set[int]:
        """Devices with events."""
        return {dev for dev, _ in self.account.devices}


def read(path: Path) -> Log:
    trace = Trace(path)
    windows = list(trace.lifecycles())
    bios = Bios.concatenate([w.bios for w in windows])
    requests = Requests.concatenate([w.requests for w in windows])
    names = np.append(windows[-1].tasks.comm, "")
    return Log(trace.account, trace.context, bios, requests, names[bios.task], trace)


def count_events(path: Path) -> int:
    """All events, without association."""
    return sum(len(events) for events, _ in Trace(path).events())


def fio_command(path: str, report: Path, **options: object) -> list[str]:
    """A fio job as a command for `record --`."""
    arguments = devices.fio_arguments(path, **options)
    return ["fio", "--output-format=json", f"--output={report}", *arguments]
