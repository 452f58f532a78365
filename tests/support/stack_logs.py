# SPDX-License-Identifier: Apache-2.0
"""Made-up logs with call stacks."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.schema.records import BY_KIND, TIMESTAMP_BITS, Kind, schema

START = 5_000_000_000_000
DEV = 254 << 20
TRACING: list[list[Any]] = [
    ["bpf_prog_dd617eafd8d47a82_bt_queue", "bpf", 10],
    ["bpf_trace_run1", "", 20],
    ["__traceiter_block_bio_queue", "", 30],
]
"""What stands before the block layer's first function in every stack."""
READ: list[list[Any]] = [
    *TRACING,
    ["submit_bio_noacct_nocheck", "", 557],
    ["ext4_mpage_readpages", "ext4", 40],
    ["do_syscall_64", "", 113],
]
HEADER = {
    "log_id": "7" * 32,
    "backend": "core",
    "clocks": {"monotonic": START, "boottime": START, "realtime": START, "uncertainty": 1},
    "devices": [{"dev": DEV, "name": "vda"}],
    "schema": schema(),
    "stacks": {"user": True},
}


def clock(at: int) -> dict[str, int]:
    return {"monotonic": at, "boottime": at, "realtime": at, "uncertainty": 1}


def record(kind: Kind, at: int, **values: Any) -> bytes:
    row = np.zeros(1, BY_KIND[kind].dtype)
    row["head"] = int(kind) << TIMESTAMP_BITS | at
    for name, value in values.items():
        row[name] = value
    return row.tobytes()


def queued(at: int, bio: int, bytes: int = 4096, tid: int = 42, opf: int = 0) -> bytes:
    place = {"sector": 8 * bio, "dev": DEV, "part": DEV}
    return record(Kind.Q, at, bio=bio, bytes=bytes, opf=opf, tid=tid, **place)


def stack(at: int, bio: int, kernel: int, user: int = -1) -> bytes:
    return record(Kind.STACK, at, bio=bio, kernel=kernel, user=user)


def ended(at: int, bio: int) -> bytes:
    return record(Kind.BIO_COMPLETE, at, bio=bio, sector=8 * bio, dev=DEV)


def task(at: int, tid: int, comm: bytes) -> bytes:
    return record(Kind.TASK, at, tid=tid, tgid=tid, comm=comm)


def bio(
    number: int, latency: int, kernel: int, user: int = -1, *, bytes: int = 4096, tid: int = 42
) -> list[bytes]:
    """Its Q, its stack and its end; a millisecond after the bio before."""
    at, address = START + number * 1_000_000, number + 1
    return [
        queued(at, address, bytes, tid),
        stack(at, address, kernel, user),
        ended(at + latency, address),
    ]


def log(
    records: list[bytes], notes: list[dict[str, Any]], name: str = "stacks", **header: Any
) -> bytes:
    """A log of the records, behind notes of that name. header: a value None takes its key away."""
    stream = io.BytesIO()
    wanted = {key: value for key, value in {**HEADER, **header}.items() if value is not None}
    writer = LogWriter(stream, wanted, level=1)
    end = START + 10**9
    for note in notes:
        writer.write_note(name, note)
    writer.write_chunk([Segment(0, 0, 0, b"".join(records))], clock(end))
    writer.close({"clocks": clock(end)})
    return stream.getvalue()


def write(path: Path, records: list[bytes], notes: list[dict[str, Any]], **header: Any) -> Path:
    path.write_bytes(log(records, notes, **header))
    return path
