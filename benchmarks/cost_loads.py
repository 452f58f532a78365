# SPDX-License-Identifier: Apache-2.0
"""The loads of `record_cost.py`: fio on one core, its progress read from outside."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.devices import fio_arguments, loop

UNIT = 4096
"""Bytes of one unit of work."""
_WORKER_CPUS = Path("/sys/devices/virtual/workqueue/cpumask")
LONGEST = 24 * 3600
SETTLE_SECONDS = 60


class SkippedError(Exception):
    """This cannot be measured here; says why."""


@dataclass(frozen=True)
class Load:
    """What fio does. buffered: progress is the bytes of its calls, not the device's."""

    name: str
    options: dict[str, object]
    buffered: bool = False
    system_disk: bool = False


_RANDOM = {"rw": "randread", "bs": "4k", "ioengine": "io_uring", "norandommap": True}
_BATCHES = {"iodepth_batch_submit": 16, "iodepth_batch_complete_min": 16}
"""Without batches, fio and the loop device's threads hand each I/O to each other: how often they
switch then depends on the least delay, and switches are what is measured."""
_CALLS = {"bs": "16k", "ioengine": "psync", "direct": False, "norandommap": True}
_FILE_MIX = {**_CALLS, "rw": "randrw", "rwmixread": 60, "fsync": 40, "size": "1g"}
"""As `sysbench fileio` with rndrw of one file of 1 GiB: three reads to two writes, and an fsync
every 100 operations, which is every 40 writes."""
_CACHED_READS = {**_CALLS, "rw": "randread", "bs": "4k", "size": "64m", "pre_read": True}
"""Calls of about a microsecond that do no I/O: the hardest case for timed calls."""
LOADS = (
    Load("ram-qd32", {**_RANDOM, **_BATCHES, "iodepth": 32}),
    Load("ram-single", {**_RANDOM, "iodepth": 32}),
    Load("ram-qd1", {**_RANDOM, "iodepth": 1}),
    Load(
        "ram-write",
        {"rw": "write", "bs": "4k", "ioengine": "psync", "direct": False, "fdatasync": 1024},
        buffered=True,
    ),
    Load("disk-qd32", {**_RANDOM, "iodepth": 32}, system_disk=True),
    Load("file-mix", _FILE_MIX, buffered=True, system_disk=True),
    Load("cached-reads", _CACHED_READS, buffered=True, system_disk=True),
)


class Running:
    """A load that runs. device: the kernel's name of the disk that it goes to."""

    def __init__(self, process: "subprocess.Popen[bytes]", device: str, buffered: bool) -> None:
        self.device = device
        self._process = process
        self._buffered = buffered

    def work(self) -> float:
        if self._process.poll() is not None:
            raise RuntimeError(f"fio ended early, with status {self._process.returncode}")
        if self._buffered:
            lines = Path(f"/proc/{self._process.pid}/io").read_text().splitlines()
            counts = {name: int(value) for name, value in (one.split(": ") for one in lines)}
            return (counts["rchar"] + counts["wchar"]) / UNIT
        fields = Path(f"/sys/block/{self.device}/stat").read_text().split()
        return (int(fields[2]) + int(fields[6])) * 512 / UNIT  # sectors read and written

    def cpu_ns(self) -> int:
        return cpu_ns(self._process.pid)


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process that still run; 0 where it is gone."""
    total = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    except OSError:
        return total
    return total


@contextmanager
def running(load: Load, cpu: int) -> Iterator[Running]:
    """The load on `cpu`, past its beginning; ended, and its device gone, afterwards.

    Raises SkippedError where the machine has no place for it.
    """
    if load.system_disk:
        with tempfile.TemporaryDirectory() as directory:
            device = disk_below(Path(directory))
            path = str(Path(directory) / "load")
            with _fio(load, path, cpu) as process:
                yield Running(process, device, load.buffered)
        return
    with (
        loop(size=256 << 20) as ram,
        _without_scheduler(ram.name),
        _workers_on(cpu),
        _fio(load, ram.path, cpu) as fio,
    ):
        yield Running(fio, ram.name, load.buffered)


@contextmanager
def _without_scheduler(device: str) -> Iterator[None]:
    """Whoever used the loop device before may have left it one, which has more events per I/O."""
    path = Path(f"/sys/block/{device}/queue/scheduler")
    chosen = path.read_text().partition("[")[2].partition("]")[0]
    path.write_text("none")
    try:
        yield
    finally:
        path.write_text(chosen or "none")


@contextmanager
def _workers_on(cpu: int) -> Iterator[None]:
    """The loop device's kernel threads, on the core of the load: one core is saturated, not all.

    Otherwise they take what the tools under test need. Concerns all unbound work queues of the
    machine while the load runs; left as it is where the kernel does not offer it.
    """
    try:
        before = _WORKER_CPUS.read_text()
        _WORKER_CPUS.write_text(f"{1 << cpu:x}")
    except OSError:
        yield
        return
    try:
        yield
    finally:
        _WORKER_CPUS.write_text(before)


def disk_below(directory: Path) -> str:
    """Kernel name of the disk that holds a directory."""
    dev = directory.stat().st_dev
    node = Path(f"/sys/dev/block/{os.major(dev)}:{os.minor(dev)}")
    if not node.exists():
        raise SkippedError(f"{directory} is on no block device: set TMPDIR to a place that is")
    node = node.resolve()
    return node.parent.name if (node / "partition").exists() else node.name


@contextmanager
def _fio(load: Load, path: str, cpu: int) -> "Iterator[subprocess.Popen[bytes]]":
    # A thread, not a process: its CPU time and its I/O are then those of the pid we know.
    timed = {"time_based": True, "runtime": LONGEST, "thread": True, "size": "256m"}
    options = {**timed, **load.options}
    command = ["taskset", "-c", str(cpu), "fio", "--output=/dev/null"]
    process = subprocess.Popen(
        [*command, *fio_arguments(path, **options)], stdin=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + SETTLE_SECONDS
        while len(list(Path(f"/proc/{process.pid}/task").iterdir())) < 2:  # it lays out its file
            if time.monotonic() > end:
                raise RuntimeError("fio did not begin its work")
            time.sleep(0.05)
        time.sleep(1)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
