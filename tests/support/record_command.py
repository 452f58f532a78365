# SPDX-License-Identifier: Apache-2.0
"""Runs the command `biotrail` as a user does, and reads what it wrote."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.cli.main import main
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, Bios, Certainty, Requests
from biotrail.converters.lifecycles.account import Account
from biotrail.converters.pipeline import Trace
from tests.support import devices
from tests.support.kernel_completions import Unseen
from tests.support.paths import ROOT

BIOTRAIL = (sys.executable, "-m", "biotrail.cli.main")
READING = {"blame", "convert", "export", "info", "report", "slow", "stacks", "verify"}
SECONDS = 120
ENDLESS_SECONDS = 10**6
BEGUN = "recording"
"""What `record` says once events are being recorded."""


def environment(**others: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **others}


def biotrail(
    *arguments: str | Path, status: int | None = 0, by: tuple[str, ...] = (), **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run to the end; the exit status is checked unless it is None. `by`: what starts it.

    Commands that only read logs run in this process, unless something else is to start them.
    """
    if not by and not options and arguments[0] in READING:
        done = _here(*map(str, arguments))
    else:
        options = {"env": environment(), "capture_output": True, "text": True, **options}
        done = subprocess.run([*by, *BIOTRAIL, *map(str, arguments)], timeout=SECONDS, **options)
    assert status is None or done.returncode == status, (done.returncode, done.stderr)
    return done


def in_json(*arguments: str | Path, **options: Any) -> Any:
    """Run a command with --json; what it prints."""
    return json.loads(biotrail(arguments[0], "--json", *arguments[1:], **options).stdout)


def exported(what: str, *arguments: str | Path) -> list[dict[str, Any]]:
    """Rows of a table of `export`."""
    words = ("--what", what, "--format", "jsonl", "-o", "-")
    return [json.loads(row) for row in biotrail("export", *words, *arguments).stdout.splitlines()]


def in_memory_of(limit: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command of biotrail in a cgroup with so many bytes of memory, v1 or v2."""
    for root, name in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"biotrail-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / name).exists():
                (group / name).write_text(str(limit))
                join = f'echo $$ > {group}/cgroup.procs; exec "$@"'
                return biotrail(*arguments, by=("sh", "-c", join, "sh"), status=None)
        finally:
            remove_cgroup(group)
    pytest.skip("needs a memory cgroup")


def _here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run in this process, which has imported what the command needs."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(list(arguments))
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]
    assert isinstance(ended.value.code, int)
    return subprocess.CompletedProcess(arguments, ended.value.code, *said)


@contextmanager
def recorder(
    *arguments: str | Path, by: tuple[str, ...] = (), **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """`biotrail record` in the background, from when it records; killed if it still runs."""
    command = [*by, *BIOTRAIL, "record", *map(str, arguments)]
    options = {"env": environment(), **options}
    options = {"stderr": subprocess.PIPE, "text": True, **options}
    with started(command, **options) as process:
        assert process.stderr is not None
        said = [process.stderr.readline()]
        while BEGUN not in said[-1]:
            assert said[-1], "".join(said)
            said.append(process.stderr.readline())
        yield process


@contextmanager
def recorded(*arguments: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """`biotrail record` while the block runs; then it is interrupted, and ends well."""
    with recorder(*arguments, **options) as process:
        yield process
        status, said = stop(process, signal.SIGINT)
    assert status == 0, said


@contextmanager
def started(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A program in the background; killed if it still runs, and waited for, at the end."""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)


@contextmanager
def busy(path: str) -> Iterator[subprocess.Popen[Any]]:
    """fio that reads a device at random until the block ends, however long that takes."""
    job = {"rw": "randread", "bs": "4k", "ioengine": "psync", "time_based": True}
    arguments = devices.fio_arguments(path, runtime=ENDLESS_SECONDS, **job)
    # A thread of fio's process, where SIGKILL leaves no child behind.
    with started(["fio", "--output=/dev/null", "--thread", *arguments]) as process:
        yield process
        assert process.poll() is None, "fio ended by itself"


def stop(process: subprocess.Popen[str], *signals: signal.Signals) -> tuple[int, str]:
    """Send the signals; (exit status, what it said)."""
    for number in signals:
        process.send_signal(number)
    _, said = process.communicate(timeout=SECONDS)
    return process.returncode, said


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Wait for a fact; AssertionError saying `what` instead where it does not come."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def remove_cgroup(directory: Path) -> None:
    """Once its last process has gone: one that has ended may be in it for a moment more."""

    def removed() -> bool:
        with suppress(OSError):
            directory.rmdir()
        return not directory.exists()

    wait_until(removed, f"{directory} is not given back")


def wait_for_size(path: Path, size: int) -> None:
    """Until the file has grown to `size`."""
    wait_until(
        lambda: path.exists() and path.stat().st_size >= size, f"{path} does not grow to {size}"
    )


def logs_in(directory: Path) -> list[Path]:
    """The files of a rotated recording, or the dumps of a flight recorder."""
    return sorted(directory.glob("*.biotrail"))


def children(pid: int) -> list[int]:
    """Processes that a process's threads started, and that still run or were not waited for."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def wait_until_gone(pid: int) -> None:
    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    wait_until(gone, f"process {pid} stays")


@dataclass
class Log:
    """A log, associated whole."""

    account: Account
    context: Context
    bios: Bios
    requests: Requests
    comms: np.ndarray
    trace: Trace
    unseen: Unseen
    """Completions that no program was run for, where the test traced them."""

    def by(self, comm: str) -> Bios:
        """Bios of the tasks of that name."""
        return self.bios.take(self.comms == comm)

    def devices(self) -> set[int]:
        """Devices with events."""
        return {dev for dev, _ in self.account.devices}


def read(path: Path, unseen: Unseen | None = None) -> Log:
    trace = Trace(path)
    windows = list(trace.lifecycles())
    bios = Bios.concatenate([w.bios for w in windows])
    requests = Requests.concatenate([w.requests for w in windows])
    names = np.append(windows[-1].tasks.comm, "")
    comms, unseen = names[bios.task], unseen or Unseen()
    return Log(trace.account, trace.context, bios, requests, comms, trace, unseen)


def assert_ended(log: Log) -> None:
    """Every bio and request has its end and is known exactly, but for what no program saw end."""
    bios, requests = log.bios, log.requests
    for table, begin in ((bios, bios.queue), (requests, requests.start)):
        apart = log.unseen.concerns(table, begin)
        open_ones = table.take(apart & (table.complete == NEVER))
        assert set(open_ones.certainty.tolist()) <= {Certainty.LOST, Certainty.INCOMPLETE}
        judged = table.take(~apart)
        assert (judged.complete[_not_absorbed(judged)] != NEVER).all()
    doubtful = bios.take(~log.unseen.concerns(bios, bios.queue))
    doubtful = doubtful.take(doubtful.certainty != Certainty.EXACT)
    assert len(doubtful) == 0, np.unique(doubtful.certainty)


def _not_absorbed(table: Bios | Requests) -> Any:
    if isinstance(table, Requests):
        return table.absorbed_by == NEVER
    return np.ones(len(table), dtype=np.bool_)


def count_events(path: Path) -> int:
    """All events, without association."""
    return sum(len(events) for events, _ in Trace(path).events())


def fio_command(path: str, report: Path, **options: object) -> list[str]:
    """A fio job as a command for `record --`."""
    arguments = devices.fio_arguments(path, **options)
    return ["fio", "--output-format=json", f"--output={report}", *arguments]
