# SPDX-License-Identifier: Apache-2.0
"""Waits of known reasons: `python wait_loads.py DIRECTORY` on a mounted file system.

Each role is a process of its own, whose name tells its waits apart: `syncer` waits for the
journal's commit, `pages` and `others` read one page at once, `direct` reads with O_DIRECT, `writer`
is throttled. Imports nothing of the project: it also runs in virtual machines.
"""

import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path

FSYNCS, READS = 8, 12
PAGE = 4096
DIRTY_BYTES = 1 << 20
"""Dirty bytes of the whole system from which writers are throttled."""
WRITTEN = 24 << 20
DIRTY_LIMIT = Path("/proc/sys/vm/dirty_bytes")
DIRTY_RATIO = Path("/proc/sys/vm/dirty_ratio")


def as_process(name: str, role: Callable[[], None]) -> int:
    """Fork a process of this name that plays a role; return its id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            Path("/proc/self/comm").write_text(name)
            role()
            status = 0
        finally:
            os._exit(status)
    return pid


def ended(*pids: int) -> None:
    for pid in pids:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            raise SystemExit(f"a role ended with {status}")


def drop_caches() -> None:
    Path("/proc/sys/vm/drop_caches").write_text("3")


def sync_often(directory: Path) -> None:
    """Write a block and wait for it, FSYNCS times: each extends the file, so a commit follows."""
    fd = os.open(directory / "synced", os.O_CREAT | os.O_WRONLY)
    for block in range(FSYNCS):
        os.pwrite(fd, b"s" * PAGE, block * PAGE)
        os.fsync(fd)


def read_pages(directory: Path, turn: int, other: int) -> None:
    """Read the file's pages in step with another process, as its random readers do."""
    fd = os.open(directory / "read", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    for block in range(READS):
        os.write(other, b".")
        os.read(turn, 1)
        os.pread(fd, PAGE, block * 64 * PAGE)


def read_directly(directory: Path) -> None:
    """Read without the page cache."""
    fd = os.open(directory / "read", os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, PAGE)
    for block in range(READS):
        os.preadv(fd, [buffer], block * PAGE)


def write_much(directory: Path) -> None:
    """Dirty more than the limit."""
    fd = os.open(directory / "written", os.O_CREAT | os.O_WRONLY)
    for _ in range(WRITTEN >> 16):
        os.write(fd, bytes(1 << 16))


def throttled(directory: Path) -> None:
    """Write with little dirty memory allowed; set the limit back."""
    limit, ratio = DIRTY_LIMIT.read_text(), DIRTY_RATIO.read_text()
    DIRTY_LIMIT.write_text(str(DIRTY_BYTES))
    try:
        ended(as_process("writer", lambda: write_much(directory)))
    finally:
        # Of both, the one that is not in force is 0, and setting one of them sets the other to 0.
        if int(limit):
            DIRTY_LIMIT.write_text(limit)
        else:
            DIRTY_RATIO.write_text(ratio)


def main(directory: Path) -> None:
    """Play all roles, one after the other."""
    with (directory / "read").open("wb") as file:
        file.write(os.urandom(READS * 64 * PAGE))
        os.fsync(file.fileno())
    ended(as_process("syncer", lambda: sync_often(directory)))
    drop_caches()
    (one_in, one_out), (two_in, two_out) = os.pipe(), os.pipe()
    ended(
        as_process("pages", lambda: read_pages(directory, one_in, two_out)),
        as_process("others", lambda: read_pages(directory, two_in, one_out)),
    )
    ended(as_process("direct", lambda: read_directly(directory)))
    throttled(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
