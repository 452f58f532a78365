# SPDX-License-Identifier: Apache-2.0
"""A small log with all parts of the path: calls, waits, interrupts, dirtied pages, files."""

from pathlib import Path

from biotrail.recorder.schema.syscalls import PAGE_FAULT
from tests.support.file_logs import MOUNTS
from tests.support.path_logs import (
    FSYNC,
    IO_GETEVENTS,
    IO_SUBMIT,
    NEVER_AGO,
    PWRITE,
    WRITE,
    PathLog,
)

US = 1000
SOFTIRQ = {"hard": 9 * US, "raised": 8 * US, "soft": 3 * US, "irq": 27, "context": 1}
INTERRUPT = {"hard": 2 * US, "irq": 28, "context": 2}
BY_ANOTHER_CPU = {"raised": 4 * US, "soft": 1 * US, "context": 1}
TASK = {"context": 0}
DATA, WAL = 10, 11
"""Inodes."""
READER, WRITER, AIO, KWORKER, POSTGRES = 42, 43, 51, 7, 811
"""Threads; the first two are of process 40."""


def _reads(log: PathLog) -> None:
    """A read that waits for its bio, one that fails, one of two bios, and a page fault."""
    log.request(12 * US, 80 * US, tid=READER, entry=10 * US, file=DATA, **SOFTIRQ)
    log.waits(10 * US, 13 * US, 81 * US, 90 * US, READER, context=1)
    log.returns(
        10 * US, 92 * US, READER, blocked=68 * US, runnable=9 * US, queued=1, waits=1, fd=3,
        length=4096,
    )  # fmt: skip
    log.returns(100 * US, 101 * US, READER, result=-5, fd=3, length=4096)
    for at, end in ((112, 170), (114, 180)):
        log.request(at * US, end * US, tid=READER, entry=110 * US, file=DATA, **INTERRUPT)
    log.waits(110 * US, 115 * US, 181 * US, 182 * US, READER, context=2)
    log.returns(
        110 * US, 184 * US, READER, result=8192, blocked=66 * US, runnable=1 * US, queued=2,
        waits=1, fd=3, length=8192,
    )  # fmt: skip
    log.request(200 * US, 240 * US, tid=READER, call=PAGE_FAULT, file=DATA, **TASK)


def _writes(log: PathLog) -> None:
    """A write into the page cache that was throttled, and an fsync that a worker ends."""
    log.waits(20 * US, 21 * US, 70 * US, 75 * US, WRITER, state=1)
    log.returns(
        20 * US, 76 * US, WRITER, number=PWRITE, blocked=49 * US, runnable=5 * US, waits=1, fd=5,
        length=4096,
    )  # fmt: skip
    write = {"opf": WRITE, "call": FSYNC, "file": WAL, "tid": WRITER, "entry": 120 * US}
    log.request(122 * US, 190 * US, **write, **SOFTIRQ)
    log.waits(120 * US, 123 * US, 230 * US, 260 * US, WRITER)
    log.waits(120 * US, 262 * US, 290 * US, 290 * US, WRITER)
    log.returns(
        120 * US, 300 * US, WRITER, number=FSYNC, result=0, blocked=135 * US, runnable=30 * US,
        queued=1, waits=2, fd=5,
    )  # fmt: skip


def _others(log: PathLog) -> None:
    """Asynchronous reads and their reaping, and write-back of what another process dirtied."""
    for at, end in ((32, 150), (33, 155)):
        entry = {"entry": 30 * US, "call": IO_SUBMIT, "tid": AIO}
        log.request(at * US, end * US, **entry, **BY_ANOTHER_CPU)
    log.returns(30 * US, 35 * US, AIO, number=IO_SUBMIT, result=2, queued=2)
    log.waits(40 * US, 41 * US, 157 * US, 160 * US, AIO, state=1, context=1)
    log.returns(
        40 * US, 165 * US, AIO, number=IO_GETEVENTS, result=2, blocked=116 * US, runnable=3 * US,
        waits=1,
    )  # fmt: skip
    dirtied = (5_000 * US, POSTGRES, b"postgres")
    log.request(210 * US, 280 * US, tid=KWORKER, opf=WRITE, file=DATA, dirtied=dirtied, **SOFTIRQ)
    late = {**SOFTIRQ, "hard": 11 * US, "raised": NEVER_AGO, "soft": 5 * US}
    log.request(211 * US, 282 * US, tid=KWORKER, opf=WRITE, file=WAL, **late)


def sample() -> PathLog:
    """The log's records."""
    log = PathLog()
    log.task(READER, b"fio", pid=40)
    log.task(WRITER, b"fio-log", pid=40)
    log.task(40, b"fio-main")
    log.task(AIO, b"aio")
    log.task(KWORKER, b"kworker/u8:2")
    log.name(DATA, b"base", b"data")
    log.name(WAL, b"wal")
    _reads(log)
    _writes(log)
    _others(log)
    return log


def write(path: Path) -> Path:
    """The log as a file."""
    path.write_bytes(sample().data(notes={"mounts": MOUNTS}, files={}))
    return path
