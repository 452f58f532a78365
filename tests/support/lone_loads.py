# SPDX-License-Identifier: Apache-2.0
"""Loads whose threads wait for I/O: run as a program with the name of one and its arguments.

Each names its thread as its role is called.
"""

import ctypes
import mmap
import os
import random
import sys
import threading
import time
from pathlib import Path

PAGE = 4096
TICKS = 100
"""Clock ticks of delay that `faults` collects, each of 10 ms: so many are exact to a per cent."""
SECONDS = 5.0
PR_SET_NAME = 15


def name_thread(name: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def blkio_ticks() -> int:
    """How long the calling thread waited for block I/O, as delay accounting has it."""
    return int(Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()[39])


def faults(path: str) -> None:
    """Touch pages of a mapped file that are not in the cache; print the ticks that this waited."""
    name_thread("faults")
    random.seed(1)
    file = os.open(path, os.O_RDONLY)
    size = os.fstat(file).st_size
    end = time.monotonic() + 60
    while blkio_ticks() < TICKS and time.monotonic() < end:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(file, size, prot=mmap.PROT_READ) as pages:
            pages.madvise(mmap.MADV_RANDOM)
            for at in random.sample(range(0, size, PAGE), min(2000, size // PAGE)):
                pages[at]
    print(blkio_ticks())


def mixed(path: str) -> None:
    """Write, sync and read directly, one call after the other."""
    name_thread("mixed")
    file, memory = os.open(path, os.O_RDWR), mmap.mmap(-1, PAGE)
    direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
    for at in range(200):
        os.pwrite(file, b"x" * PAGE, at * PAGE)
        os.fsync(file)
        os.preadv(direct, [memory], at * PAGE)


def storm(path: str) -> None:
    """Sync a file now and then, while other processes make system calls without end."""
    call, parent, others = ctypes.CDLL(None).getppid, os.getpid(), []
    for _ in range(2):
        others.append(os.fork())
        while not others[-1] and call() == parent:
            pass
        if not others[-1]:
            os._exit(0)
    name_thread("syncer")
    file, synced = os.open(path, os.O_RDWR), 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        os.pwrite(file, b"x" * PAGE, 0)
        os.fsync(file)
        synced += 1
        time.sleep(0.05)
    for other in others:
        os.kill(other, 9)
        os.waitpid(other, 0)
    print(synced)


if __name__ == "__main__":
    assert threading.active_count() == 1
    {"faults": faults, "mixed": mixed, "storm": storm}[sys.argv[1]](sys.argv[2])
