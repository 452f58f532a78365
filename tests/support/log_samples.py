# SPDX-License-Identifier: Apache-2.0
"""Small logs for tests, and what stands in them."""

import io
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from biotrail.recorder.log import Chunk, LogReader, LogWriter, Segment
from biotrail.recorder.schema.records import BLOCK_BYTES, BY_KIND, TIMESTAMP_BITS, Kind

START = 5_000_000_000_000
PERIOD = 1_000_000
HEADER = {"log_id": "5" * 32, "clocks": {"monotonic": START}, "devices": [{"dev": 1}]}
LOSSES = [{"start": START, "end": START + 9, "cpu": 0, "level": 0, "kind": 14, "count": 3}]
NOTE = ("devices", {"devices": [{"dev": 2, "name": "loop0"}]})


def clock(monotonic: int) -> dict[str, int]:
    """A clock reading at `monotonic` ns."""
    return {
        "monotonic": monotonic,
        "boottime": monotonic + 7,
        "realtime": monotonic + 10**18,
        "uncertainty": 40,
    }


def record(kind: Kind, time: int, fill: int = 0) -> bytes:
    """A record of `kind` at `time` ns whose other words count up from `fill`."""
    words = [fill + i for i in range(BY_KIND[kind].size // 8 - 1)]
    head = kind << TIMESTAMP_BITS | (time & ((1 << TIMESTAMP_BITS) - 1))
    return struct.pack(f"<{1 + len(words)}Q", head, *words)


def ring(records: Sequence[bytes], position: int = 0) -> bytes:
    """Bytes of a ring from `position` on that hold the records, with PADs as the kernel sets."""
    out = bytearray()
    for one in records:
        room = BLOCK_BYTES - (position + len(out)) % BLOCK_BYTES
        if len(one) > room:
            out += struct.pack("<Q", Kind.PAD << TIMESTAMP_BITS) + bytes(room - 8)
        out += one
    return bytes(out)


@dataclass
class Sample:
    """A log's bytes, and where each write began and ended in them (file offsets)."""

    data: bytes
    chunks: list[tuple[int, int]] = field(default_factory=list)
    frames: dict[str, tuple[int, int]] = field(default_factory=dict)


def chunk_segments(number: int) -> list[Segment]:
    """Two rings' records of the period that ends at START + (number + 1) * PERIOD."""
    begin = START + number * PERIOD
    kinds = (Kind.Q, Kind.START, Kind.D)
    submit = [record(k, begin + 10 + i, 100 * number + i) for i, k in enumerate(kinds)]
    complete = [record(Kind.C, begin + 500, number)]
    return [
        Segment(0, 0, number * 168, b"".join(submit)),
        Segment(1, 1, number * 48, b"".join(complete)),
    ]


def sample(chunks: int = 3, *, end: bool = True, level: int = 1) -> Sample:
    """A log of that many chunks, with a loss frame and a note behind the first."""
    stream = io.BytesIO()
    made = Sample(b"")
    writer = LogWriter(stream, HEADER, level=level)
    made.frames["header"] = (0, writer.size)
    for number in range(chunks):
        before = writer.size
        writer.write_chunk(chunk_segments(number), clock(START + (number + 1) * PERIOD))
        made.chunks.append((before, writer.size))
        if number == 0:
            before = writer.size
            writer.write_loss(LOSSES)
            made.frames["loss"] = (before, writer.size)
            before = writer.size
            writer.write_note(*NOTE)
            made.frames["note"] = (before, writer.size)
    if end:
        before = writer.size
        writer.close({"clocks": clock(START + (chunks + 1) * PERIOD)})
        made.frames["end"] = (before, writer.size)
    made.data = stream.getvalue()
    return made


def content(chunk: Chunk) -> tuple[Any, ...]:
    """All that a chunk says, comparable."""
    segments = [(s.cpu, s.level, s.position, bytes(s.data)) for s in chunk.segments]
    return chunk.first_ns, chunk.last_ns, tuple(chunk.clock.items()), tuple(segments)


def read(data: bytes) -> tuple[LogReader, list[tuple[Any, ...]]]:
    """A reader over the bytes of a file, and the contents of all chunks."""
    reader = LogReader(io.BytesIO(data))
    return reader, [content(chunk) for chunk in reader.chunks()]


@contextmanager
def pipe_of(data: bytes) -> Iterator[BinaryIO]:
    """The reading end of a pipe into which `data` is written."""
    out, into = os.pipe()

    def feed() -> None:
        with open(into, "wb") as stream:
            try:
                stream.write(data)
            except BrokenPipeError:
                return

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        with open(out, "rb") as stream:
            yield stream
    finally:
        thread.join()


def read_pipe(data: bytes) -> tuple[LogReader, list[tuple[Any, ...]]]:
    """A reader over a pipe, exhausted, and the contents of all chunks."""
    with pipe_of(data) as stream:
        reader = LogReader(stream)
        return reader, [content(chunk) for chunk in reader.chunks()]
