# SPDX-License-Identifier: Apache-2.0
"""Two loads at once under `record` with filters, and what must hold of the log."""

import json
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biotrail.converters.events.tables import NEVER
from tests.support import devices
from tests.support.kernel_completions import KernelCompletions
from tests.support.record_command import Log, assert_ended, read, recorder, stop

SECONDS = 120


@dataclass
class Load:
    """A program that waits for a word before it begins, so that its pid is known before."""

    process: subprocess.Popen[str]
    report: Path | None = None
    count: int = 0
    """I/Os, where the program writes no report."""

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def ios(self) -> int:
        """Reads and writes that fio counted; waits for its end."""
        assert self.process.wait(SECONDS) == 0
        if self.report is None:
            return self.count
        text = self.report.read_text()
        jobs = json.loads(text[text.index("{") :])["jobs"]
        return sum(job[way]["total_ios"] for job in jobs for way in ("read", "write"))


@dataclass
class Loads:
    """Starts loads; all are gone when its block is left."""

    directory: Path
    stack: ExitStack
    trace: Callable[..., KernelCompletions]
    """Of the devices whose completions matter."""
    all: list[Load] = field(default_factory=list)
    devs: set[int] = field(default_factory=set)
    """What the loads use, and what a test adds (a device below)."""

    def fio(self, path: str | Path, *, forked: bool = False, **options: object) -> Load:
        """A job: a thread of the process, or a child of it."""
        report = self.directory / f"fio-{len(self.all)}.json"
        self.devs.add(devices.dev_of(path))
        job = {"rw": "randread", "bs": "4k", "size": "2m", **options}
        command = ["fio", "--output-format=json", f"--output={report}"]
        command += devices.fio_arguments(path, **job) + ([] if forked else ["--thread"])
        return self._add(Load(self._waiting(command), report))

    def dd(self, path: str | Path, count: int) -> Load:
        """So many reads of 4 KiB by a single thread."""
        self.devs.add(devices.dev_of(path))
        command = ["dd", f"if={path}", "of=/dev/null", "bs=4k", f"count={count}", "iflag=direct"]
        return self._add(Load(self._waiting([*command, "status=none"]), count=count))

    def _waiting(self, command: list[str]) -> subprocess.Popen[str]:
        shell = ["sh", "-c", 'read word; exec "$@"', "sh", *command]
        process = subprocess.Popen(shell, stdin=subprocess.PIPE, text=True)
        self.stack.callback(process.communicate, timeout=SECONDS)
        self.stack.callback(process.kill)
        return process

    def _add(self, load: Load) -> Load:
        self.all.append(load)
        return load


@contextmanager
def loads(trace: Callable[..., KernelCompletions]) -> Iterator[Loads]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield Loads(directory, stack, trace)


def record_both(
    log: Path, both: Loads, *arguments: str, begin_in: AbstractContextManager[None] | None = None
) -> tuple[Log, str]:
    """Records while all the loads run at once; the log, and what `record` said.

    begin_in: the block in which they are begun; they are waited for behind it.
    """
    truth = both.trace(*both.devs)
    with recorder("-o", log, *arguments, stdout=subprocess.DEVNULL) as process:
        with begin_in or nullcontext():
            for load in both.all:
                load.go()
        for load in both.all:
            load.ios()
        status, said = stop(process, signal.SIGINT)
    assert status == 0, said
    return read(log, truth.unseen_by(log)), said


def on(log: Log, dev: int) -> Any:
    """Bios with data on a device."""
    return log.bios.take((log.bios.dev == dev) & (log.bios.bytes > 0))


def assert_whole(log: Log) -> None:
    """Every bio has its Q and its end, and nothing of it is in doubt."""
    assert (log.bios.queue != NEVER).all()
    assert_ended(log)


def cgroup_of(process: int, directory: Path) -> None:
    """Moves a process into a cgroup."""
    (directory / "cgroup.procs").write_text(str(process))
