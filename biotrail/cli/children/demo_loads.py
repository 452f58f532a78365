# SPDX-License-Identifier: Apache-2.0
"""The loads of `biotrail demo`: several processes, each with its own name and pattern of I/O.

Each load prepares its files with as little I/O as possible and then waits until all are released,
so that a recording begins with the loads. `held` runs this file as a program for each load, with
the directory and the load's name as arguments. Uses the standard library only.
"""

import mmap
import os
import random
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BLOCK = 4096
MEBIBYTE = 1 << 20
FILE_BYTES = 16 * MEBIBYTE
RANDOM_READS = 400
JOURNAL_ENTRIES = 40
STRIPE = 256 * 1024
READY = "ready"
_RW = os.O_RDWR | os.O_CREAT
_GO, _DONE = "go", "done"
"""Named pipes in the loads' directory.

Opening and closing _GO for writing releases all loads. A read of _DONE ends when all have ended.
"""
PATIENCE = 60
"""Seconds that a load may take to exit once it failed to start, or the recording is over."""

Start = Callable[[], None]
"""A function that a load calls when it is prepared; returns when the load is released."""


def _fill(path: Path, size: int, start: Start) -> int:
    """Write a file of random data, call `start`, sync the file; return its open descriptor."""
    descriptor = os.open(path, _RW, 0o600)
    for offset in range(0, size, MEBIBYTE):
        os.pwrite(descriptor, os.urandom(MEBIBYTE), offset)
    start()
    os.fsync(descriptor)
    return descriptor


def _direct(path: Path, size: int, start: Start) -> int:
    """Make a file by `_fill`; open it with O_DIRECT, or without where that is not supported."""
    os.close(_fill(path, size, start))
    with suppress(OSError):
        return os.open(path, os.O_RDWR | os.O_DIRECT)
    return os.open(path, os.O_RDWR)


def direct_reads(directory: Path, start: Start) -> None:
    """Read random 4 KiB blocks past the page cache, as a database does."""
    descriptor = _direct(directory / "table", FILE_BYTES, start)
    page = mmap.mmap(-1, BLOCK)  # O_DIRECT wants aligned memory
    places = random.Random(1)
    for _ in range(RANDOM_READS):
        os.preadv(descriptor, [page], places.randrange(FILE_BYTES // BLOCK) * BLOCK)
    os.close(descriptor)


def direct_writes(directory: Path, start: Start) -> None:
    """Write sequentially past the page cache, as a backup does."""
    descriptor = _direct(directory / "backup", MEBIBYTE, start)
    stripe = mmap.mmap(-1, STRIPE)
    for offset in range(0, FILE_BYTES, STRIPE):
        os.pwritev(descriptor, [stripe], offset)
    os.close(descriptor)


def buffered_writes(directory: Path, start: Start) -> None:
    """Write to the page cache, then sync, as a copy does."""
    descriptor = _fill(directory / "copy", FILE_BYTES, start)
    for offset in range(0, FILE_BYTES, 5 * BLOCK):
        os.pwrite(descriptor, b"x" * BLOCK, offset)
    os.fsync(descriptor)
    os.close(descriptor)


def buffered_reads(directory: Path, start: Start) -> None:
    """Read a file from front to back, with the kernel's readahead."""
    descriptor = _fill(directory / "movie", FILE_BYTES, start)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    for offset in range(0, FILE_BYTES, 64 * 1024):
        os.pread(descriptor, 64 * 1024, offset)
    os.close(descriptor)


def journal(directory: Path, start: Start) -> None:
    """Append small entries, each with an fsync: writes, flushes, the file system's journal."""
    descriptor = os.open(directory / "journal", _RW | os.O_APPEND, 0o600)
    start()
    for number in range(JOURNAL_ENTRIES):
        os.write(descriptor, f"entry {number}\n".encode() * 20)
        os.fsync(descriptor)
    os.close(descriptor)


LOADS: dict[str, Callable[[Path, Start], None]] = {
    "demo-database": direct_reads,
    "demo-backup": direct_writes,
    "demo-copy": buffered_writes,
    "demo-player": buffered_reads,
    "demo-journal": journal,
}
"""Process name (at most 15 characters, the kernel's limit for comm) → load."""


def run_one(name: str, directory: Path) -> None:
    """Rename this process to the load's name, prepare, print READY, and run once _GO was opened."""
    Path("/proc/self/comm").write_text(name)
    gate = os.open(directory / _GO, os.O_RDONLY | os.O_NONBLOCK)
    # O_RDWR: opening a FIFO for writing only would block until it has a reader.
    done = os.open(directory / _DONE, os.O_RDWR)

    def start() -> None:
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        waiting = select.poll()
        waiting.register(gate, 0)  # POLLHUP alone: the writer has opened and closed the FIFO
        waiting.poll()

    LOADS[name](directory, start)
    os.close(done)


@contextmanager
def held(directory: Path) -> Iterator[tuple[list[str], list[subprocess.Popen[str]]]]:
    """Yield a command that releases all loads and waits for them, and the loads' processes."""
    pipes = [str(directory / name) for name in (_GO, _DONE)]
    for name in (_GO, _DONE):
        os.mkfifo(directory / name, 0o600)
    processes: list[subprocess.Popen[str]] = []
    try:
        for name in LOADS:
            command = [sys.executable, "-S", __file__, str(directory), name]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != READY:
                raise OSError(f"a load did not start (status {process.wait(PATIENCE)})")
        yield ["/bin/sh", "-c", ': > "$1" && cat "$2"', "demo", *pipes], processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE)
            if process.stdout is not None:
                process.stdout.close()


if __name__ == "__main__":
    run_one(sys.argv[2], Path(sys.argv[1]))
