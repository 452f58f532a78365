# SPDX-License-Identifier: Apache-2.0
"""Which requests completed, by ftrace's own event; which completions no BPF program was run for.

A BPF program on `block_rq_complete` is skipped in some interrupts, and nothing counts that: on
virtual machines whose service threads are closed to BPF, every completion in an interrupt that
hits such a thread. ftrace's event is recorded there all the same. A live test that needs every
completion traces it in an instance of its own, sets apart the requests that no program saw
complete, and judges all others as if these did not exist.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import NO_SECTOR, Kind
from tests.support import devices, ftrace_setup


def _service_threads(known: str = "tokio-rt-worker") -> frozenset[str]:
    """Return `known`, and the names of all threads of processes that have such a one."""
    found = {known}
    for tasks in Path("/proc").glob("[0-9]*/task"):
        threads = set()
        with suppress(OSError):  # the process or a thread ended
            threads = {comm.read_text().strip() for comm in tasks.glob("*/comm")}
        found |= threads if known in threads else set()
    return frozenset(found)


SERVICE_THREADS = _service_threads()
"""Names of threads in whose interrupts no BPF program runs."""
SAID: list[str] = []
"""What was set apart, a line each, since the test began; shown in the summary of all tests."""
TRIES = 5
BUFFER_KIB = 16384
MICROSECOND = 1000
Bool = NDArray[np.bool_]
_NEVER = 1 << 62
"""When an empty log begins (ns)."""
_EVENT = "block/block_rq_complete"
_LINE = re.compile(
    r"\s*(?P<task>.+)-\d+\s+\[(?P<cpu>\d+)\]\s+\S+\s+(?P<seconds>\d+)\.(?P<micros>\d{6}): "
    r"block_rq_complete: (?P<major>\d+),(?P<minor>\d+) (?P<rwbs>\S*) \(.*\) "
    r"(?P<sector>\d+) \+ (?P<sectors>\d+) "
)


@dataclass(frozen=True)
class Completion:
    """One `block_rq_complete`.

    time: ns of CLOCK_MONOTONIC; ftrace prints whole microseconds. sector, sectors: of what
    completed; 0 + 0 for a flush. task: whom the interrupt hit, empty where that is not known.
    """

    cpu: int
    time: int
    dev: int
    sector: int
    sectors: int
    task: str = field(default="", compare=False)

    @property
    def what(self) -> tuple[int, int, int, int]:
        """All but the time, by which a completion is found again in another recording."""
        return self.cpu, self.dev, self.sector, self.sectors

    def __str__(self) -> str:
        device = f"{self.dev >> 20}:{self.dev & 0xFFFFF}"
        where = f"{device} {self.sector}+{self.sectors} on CPU {self.cpu}"
        return f"{self.time / 1e9:.6f} {where}, in an interrupt of {self.task}"


@dataclass(frozen=True)
class Unseen:
    """Completions that no BPF program was run for, though ftrace has them."""

    completions: tuple[Completion, ...] = ()

    def __len__(self) -> int:
        return len(self.completions)

    def with_data(self) -> int:
        """Return how many are of data, not of a flush."""
        return sum(one.sectors > 0 for one in self.completions)

    def concerns(self, table: Any, begin: NDArray[np.int64]) -> Bool:
        """Return per bio or request (n,) whether its end is among these completions.

        begin: ns (n,), since when the row was in flight. An end without data is a flush
        sequence's: the request's own sectors are done by then, so its sector is behind them.
        """
        first = np.where(table.sector == NO_SECTOR, 0, table.sector).astype(np.int64)
        behind = first + table.bytes.astype(np.int64) // 512
        found = np.zeros(len(table), dtype=np.bool_)
        for one in self.completions:
            in_flight = (begin <= one.time + MICROSECOND) & (
                (table.complete < 0) | (table.complete + MICROSECOND >= one.time)
            )
            if one.sectors:
                shared = (first < one.sector + one.sectors) & (one.sector < behind)
            else:
                shared = (first <= one.sector) & (one.sector <= behind)
            found |= (table.dev == one.dev) & in_flight & shared
        return found


class KernelCompletions:
    """What ftrace saw complete since this was made."""

    def __init__(self, instance: Path | None, condition: str) -> None:
        """Begin to trace completions that meet `condition` (a filter of ftrace; empty: all).

        instance: a directory of tracefs; None: there is none, and nothing is ever found unseen.
        """
        self._instance = instance
        if instance is not None:
            event = instance / "events" / _EVENT
            (event / "filter").write_text(condition or "0")
            (event / "enable").write_text("1")

    def all(self) -> list[Completion]:
        """Return what has completed until now. AssertionError where ftrace lost some."""
        if self._instance is None:
            return []
        for stats in self._instance.glob("per_cpu/cpu*/stats"):
            lost = re.findall(r"(?:overrun|dropped events): (\d+)", stats.read_text())
            assert not any(map(int, lost)), f"ftrace's buffer is too small: {lost}"
        lines = (self._instance / "trace").read_text(errors="replace").splitlines()
        return [_parsed(line) for line in lines if line and not line.startswith("#")]

    def unseen(self, seen: Iterable[Completion], since: int) -> Unseen:
        """Return the completions after `since` (ns) that are not among those `seen` by a program.

        Only those in interrupts of service threads: what else is missing is a fault. Each is
        noted in SAID, for the summary of all tests.
        """
        missing = [c for c in _without(self.all(), seen) if c.time >= since - MICROSECOND]
        found = tuple(c for c in missing if c.task in SERVICE_THREADS)
        print(f"{len(missing)} completions are ftrace's alone, {len(found)} of them explained")
        SAID.extend(map(str, found))
        return Unseen(found)

    def in_service_threads(self) -> Unseen:
        """Return the completions that no program can have been run for, of a long load."""
        found = tuple(c for c in self.all() if c.task in SERVICE_THREADS)
        SAID.extend(map(str, found))
        return Unseen(found)

    def unseen_by(self, *logs: Path) -> Unseen:
        """Return the completions that no program was run for, of a recording in these files."""
        found = [_of_log(log) for log in logs]
        seen = [one for completions, _ in found for one in completions]
        return self.unseen(seen, min(since for _, since in found))


def _parsed(line: str) -> Completion:
    match = _LINE.match(line)
    assert match is not None, line
    time = (int(match["seconds"]) * 1_000_000 + int(match["micros"])) * MICROSECOND
    dev = int(match["major"]) << 20 | int(match["minor"])
    where = int(match["sector"]), int(match["sectors"])
    return Completion(int(match["cpu"]), time, dev, *where, match["task"].strip())


def _without(whole: list[Completion], seen: Iterable[Completion]) -> list[Completion]:
    """Return what remains of the whole when each one seen has been taken off, nearest in time."""
    left: dict[tuple[int, int, int, int], list[Completion]] = {}
    for one in whole:
        left.setdefault(one.what, []).append(one)
    for one in sorted(seen, key=lambda c: c.time):
        alike = left.get(one.what)
        if alike:
            alike.remove(min(alike, key=lambda c: abs(c.time - one.time)))
    return sorted((c for alike in left.values() for c in alike), key=lambda c: c.time)


def recorded(cpu: int, time: int, dev: int, sector: int, size: int) -> Completion:
    """Return a program's record of a completion as ftrace has it; size: bytes."""
    return Completion(cpu, time, dev, 0 if sector == NO_SECTOR else sector, size // 512)


def _of_log(path: Path) -> tuple[list[Completion], int]:
    """Return a log's completions, and the time of its first event (ns)."""
    found, since = [], None
    for events, _ in Trace(path, own_io=True).events():
        rows = events.rows(Kind.C)
        columns = (events.cpu, events.ts, events.dev, events.sector, events.bytes)
        found += [recorded(*row) for row in zip(*(c[rows].tolist() for c in columns), strict=True)]
        if since is None and len(events):
            since = int(events.ts[0])
    return found, _NEVER if since is None else since


Completions = Callable[..., KernelCompletions]
"""The fixture `completions`."""


@contextmanager
def tracing() -> Iterator[Callable[..., KernelCompletions]]:
    """Yield a function that begins to trace: of these devices (dev_t), with these `tasks` hit.

    Without tracefs nothing is traced, so nothing is set apart and every completion is judged.
    """
    with ExitStack() as stack:
        try:
            instance = stack.enter_context(ftrace_setup.instance(BUFFER_KIB))
        except ftrace_setup.NoTracerError:
            instance = None

        def trace(*devs: int, tasks: Iterable[str] = ()) -> KernelCompletions:
            wanted = [[f"dev == {dev}" for dev in devs], [f'COMM == "{t}"' for t in tasks]]
            either = [f"({' || '.join(group)})" for group in wanted if group]
            return KernelCompletions(instance, " && ".join(either))

        yield trace


def done_again(test: Callable[..., None]) -> Callable[..., None]:
    """Repeat a test that fails where one of its completions was in a service thread's interrupt.

    For tests of a few provoked I/Os, which have nothing to judge without their completions. Only
    completions of loop devices that the test made (`devices.loop`) count. Each try has a
    directory of its own as `tmp_path`; other fixtures stay as they are.
    """

    @functools.wraps(test)
    def repeated(**given: Any) -> None:
        for number in range(1, TRIES + 1):
            fresh = dict(given)
            if "tmp_path" in given:
                fresh["tmp_path"] = given["tmp_path"] / f"try-{number}"
                fresh["tmp_path"].mkdir()
            with tracing() as trace:
                kernel = trace(tasks=SERVICE_THREADS)
                try:
                    return test(**fresh)
                except (Exception, pytest.fail.Exception):
                    hit = [c for c in kernel.all() if c.dev in devices.made]
                    if not hit or number == TRIES:
                        raise
                    SAID.append(f"done again (try {number}): {'; '.join(map(str, hit))}")

    return repeated
