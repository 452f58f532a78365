# SPDX-License-Identifier: Apache-2.0
"""Small logs in a directory to be shipped, each with an id and host of its own."""

from pathlib import Path
from typing import BinaryIO

from biotrail.recorder.log import LogReader, LogWriter
from tests.support.log_samples import HEADER, PERIOD, START, chunk_segments, clock

DAY = "2001-09-09"
"""The UTC date of `START` by the logs' clocks."""
EVENTS = 12
"""Events of a log of three chunks."""


def log_id(number: int) -> str:
    """An id for a log, whose first digits differ from those of other logs."""
    return f"{number:08x}" * 4


def begin_log(stream: BinaryIO, number: int, host: str = "db7") -> LogWriter:
    """Write a log's header and three chunks, as a recorder that goes on."""
    facts = {"log_id": log_id(number), "clocks": clock(START), "host": {"name": host}}
    writer = LogWriter(stream, {**HEADER, **facts}, level=1)
    for chunk in range(3):
        writer.write_chunk(chunk_segments(chunk), clock(START + (chunk + 1) * PERIOD))
    return writer


def write_log(path: Path, number: int, *, end: bool = True, host: str = "db7") -> Path:
    """Write a whole log or, without `end`, one whose recorder was killed."""
    with path.open("wb") as stream:
        writer = begin_log(stream, number, host)
        if end:
            writer.close({"clocks": clock(START + 4 * PERIOD)})
    return path


def damage(path: Path) -> None:
    """Change a byte in the payload of a log's second chunk."""
    with LogReader(path) as reader:
        offset = [chunk.offset for chunk in reader.chunks()][2] - 9
    with path.open("r+b") as stream:
        stream.seek(offset)
        byte = stream.read(1)
        stream.seek(offset)
        stream.write(bytes([byte[0] ^ 0xFF]))


def archive_name(number: int, stem: str, host: str = "db7") -> str:
    """The name that a shipped log's archive has at its destination."""
    return f"events/host={host}/date={DAY}/{stem}-{log_id(number)[:12]}.parquet"
