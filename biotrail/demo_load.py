# SPDX-License-Identifier: Apache-2.0
"""The I/O of `biotrail demo`: several processes, each with a name and a way of its own.

Run as a program with a directory: starts all of them there and waits. Standard library only.
"""

import mmap
import os
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

BLOCK = 4096
MEBIBYTE = 1 << 20
FILE_BYTES = 16 * MEBIBYTE
RANDOM_READS = 400
JOURNAL_ENTRIES = 40
STRIPE = 256 * 1024
_RW = os.O_RDWR | os.O_CREAT


def _fill(path: Path, size: int) -> int:
    """A file with its blocks on the disk; returns its descriptor."""
    descriptor = os.open(path, _RW, 0o600)
    for offset in range(0, size, MEBIBYTE):
        os.pwrite(descriptor, os.urandom(MEBIBYTE), offset)
    os.fsync(descriptor)
    return descriptor


def _direct(path: Path) -> tuple[int, bool]:
    """A descriptor past the page cache, and whether it is one: not every file system can."""
    with suppress(OSError):
        return os.open(path, os.O_RDWR | os.O_DIRECT), True
    return os.open(path, os.O_RDWR), False


def direct_reads(directory: Path) -> None:
    """Random 4 KiB reads past the page cache, as a database does."""
    path = directory / "table"
    os.close(_fill(path, FILE_BYTES))
    descriptor, _ = _direct(path)
    page = mmap.mmap(-1, BLOCK)  # O_DIRECT wants aligned memory
    places = random.Random(1)
    for _ in range(RANDOM_READS):
        os.preadv(descriptor, [page], places.randrange(FILE_BYTES // BLOCK) * BLOCK)
    os.close(descriptor)


def direct_writes(directory: Path) -> None:
    """Sequential writes past the page cache, as a backup does."""
    path = directory / "backup"
    os.close(_fill(path, MEBIBYTE))
    descriptor, _ = _direct(path)
    stripe = mmap.mmap(-1, STRIPE)
    for offset in range(0, FILE_BYTES, STRIPE):
        os.pwritev(descriptor, [stripe], offset)
    os.close(descriptor)


def buffered_writes(directory: Path) -> None:
    """Writes to the page cache that a sync brings to the disk, as a copy does."""
    descriptor = _fill(directory / "copy", FILE_BYTES)
    for offset in range(0, FILE_BYTES, 5 * BLOCK):
        os.pwrite(descriptor, b"x" * BLOCK, offset)
    os.fsync(descriptor)
    os.close(descriptor)


def buffered_reads(directory: Path) -> None:
    """A file read from front to back, with the kernel's readahead."""
    descriptor = _fill(directory / "movie", FILE_BYTES)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    for offset in range(0, FILE_BYTES, 64 * 1024):
        os.pread(descriptor, 64 * 1024, offset)
    os.close(descriptor)


def journal(directory: Path) -> None:
    """Small entries, each with its own fsync: writes, flushes and the file system's journal."""
    descriptor = os.open(directory / "journal", _RW | os.O_APPEND, 0o600)
    for number in range(JOURNAL_ENTRIES):
        os.write(descriptor, f"entry {number}\n".encode() * 20)
        os.fsync(descriptor)
    os.close(descriptor)


LOADS: dict[str, Callable[[Path], None]] = {
    "demo-database": direct_reads,
    "demo-backup": direct_writes,
    "demo-copy": buffered_writes,
    "demo-player": buffered_reads,
    "demo-journal": journal,
}
"""By process name (at most 15 characters, the kernel's limit)."""


def run_one(name: str, directory: Path) -> None:
    """One load under its own name."""
    Path("/proc/self/comm").write_text(name)
    LOADS[name](directory)


def run_all(directory: Path) -> int:
    """All loads at once, a process each; the number that failed."""
    processes = [
        subprocess.Popen([sys.executable, "-S", __file__, str(directory), name]) for name in LOADS
    ]
    return sum(process.wait() != 0 for process in processes)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    if len(sys.argv) > 2:
        run_one(sys.argv[2], where)
    else:
        sys.exit(run_all(where))
