# SPDX-License-Identifier: Apache-2.0
"""blktrace's records made and taken apart by hand, so that tests do not lean on the reader."""

import io
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from biotrail.converters.inputs.blktrace.source import BlktraceSource
from tests.support import paths

DATA = paths.DATA / "blktrace"
STREAM = DATA / "stream.bin"
MAGIC = 0x65617407
MAGIC_2 = 0x65617408
READ, WRITE, FLUSH, SYNC, QUEUE, REQUEUE, ISSUE, COMPLETE, FS, PC, NOTIFY = (
    1 << 16 + bit for bit in range(11)
)
ZONE_APPEND, ZONE_RESET = 1 << 32, 1 << 33
CGROUP = 1 << 8
Q = 1 | QUEUE
G = 4 | QUEUE
D = 7 | ISSUE | FS
C = 8 | COMPLETE | FS
PROCESS, TIMESTAMP, MESSAGE = 0 | NOTIFY, 1 | NOTIFY, 2 | NOTIFY
SDA = 8 << 20


def record(
    action: int,
    time: int,
    sector: int = 0,
    size: int = 0,
    *,
    sequence: int = 0,
    pid: int = 42,
    device: int = SDA,
    cpu: int = 0,
    error: int = 0,
    pdu: bytes = b"",
    order: str = "<",
    magic: int = MAGIC,
) -> bytes:
    """One `struct blk_io_trace`, or blk_io_trace2 by its magic, and its payload."""
    old = magic == MAGIC
    form = f"{order}IIQQI" + ("IIIIhH" if old else "IQIIhH12x")
    who = (action, pid) if old else (pid, action)
    place = (magic, sequence, time, sector, size)
    return struct.pack(form, *place, *who, device, cpu, error, len(pdu)) + pdu


record_2 = partial(record, magic=MAGIC_2)


def records(data: bytes) -> Iterator[bytes]:
    """Each whole little-endian record of version 1."""
    at = 0
    while at < len(data):
        size = 48 + struct.unpack_from("<H", data, at + 46)[0]
        yield data[at : at + size]
        at += size


def split(stream: bytes, directory: Path) -> list[Path]:
    """Writes a stream of the ftrace tracer as blktrace would, and gives the sets' prefixes.

    One set of files for each device, a file for each CPU, its records numbered but for notes.
    """
    files: dict[tuple[int, int], list[bytes]] = {}
    numbers: dict[tuple[int, int], int] = {}
    for one in records(stream):
        action, _, device, cpu = struct.unpack_from("<IIII", one, 28)
        counted = not action & NOTIFY
        numbers[device, cpu] = numbers.get((device, cpu), 0) + counted
        number = numbers[device, cpu] if counted else 0
        files.setdefault((device, cpu), []).append(one[:4] + struct.pack("<I", number) + one[8:])
    for (device, cpu), parts in files.items():
        name = f"{device >> 20}_{device & 0xFFFFF}.blktrace.{cpu}"
        (directory / name).write_bytes(b"".join(parts))
        # As blktrace has it: blkparse looks no further than the first CPU without a file.
        for lower in range(cpu):
            (directory / f"{name.rsplit('.', 1)[0]}.{lower}").touch()
    return sorted({directory / f"{device >> 20}_{device & 0xFFFFF}" for device, _ in files})


def stream(*parts: bytes) -> BlktraceSource:
    """A source that reads these records."""
    return BlktraceSource(io.BytesIO(b"".join(parts)))


def write_set(directory: Path, name: str, files: dict[int, bytes]) -> Path:
    """Writes a set of files by CPU, and gives its prefix."""
    for cpu, data in files.items():
        (directory / f"{name}.blktrace.{cpu}").write_bytes(data)
    return directory / name
