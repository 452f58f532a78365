# SPDX-License-Identifier: Apache-2.0
"""Chunks of a few records, with the clock and the header that go with them."""

from pathlib import Path
from typing import Any

from biotrail.recorder.log import LogReader, Segment
from biotrail.recorder.log.chunks import find
from biotrail.recorder.log.names import KINDS, NameRecords, records_at
from biotrail.recorder.output.series import Series
from biotrail.recorder.output.sinks import Limit, LogSink, RotatingLog
from biotrail.recorder.output.writer import Job
from biotrail.recorder.schema.records import BY_KIND, TIMESTAMP_BITS, Kind
from tests.support.core_decoder import walk

CLOCK = {"monotonic": 1000, "boottime": 2000, "realtime": 3000, "uncertainty": 1}


HEADER: dict[str, Any] = {"log_id": "f" * 32, "clocks": CLOCK, "devices": [], "schema": []}


def clock(at: int) -> dict[str, int]:
    return {"monotonic": at, "boottime": at + 1000, "realtime": at + 2000, "uncertainty": 1}


def task(at: int, tid: int, name: bytes) -> bytes:
    head = int(Kind.TASK) << TIMESTAMP_BITS | at
    return head.to_bytes(8, "little") + (tid | tid << 32).to_bytes(8, "little") + name.ljust(16)


def queue(at: int) -> bytes:
    head = int(Kind.Q) << TIMESTAMP_BITS | at
    return head.to_bytes(8, "little").ljust(BY_KIND[Kind.Q].size, b"\0")


def name_records(segments: list[Segment]) -> NameRecords:
    return records_at(find(segments, KINDS))


def rotating(directory: Path, max_files: int | None = None) -> RotatingLog:
    series = Series(str(directory / "x.biotrail"), max_files)
    return RotatingLog(series, HEADER, Limit(bytes=1), lambda: [], 1, False)


class PromptWriter:
    """A writer whose thread is so quick that a job has run when it is queued."""

    error = None

    def __init__(self, log: LogSink) -> None:
        self._log = log

    def offer(self, job: Job) -> bool:
        job(self._log)
        return True


def times(path: str, kind: Kind = Kind.Q) -> list[int]:
    """Times of the file's records of that kind, in order."""
    segments = (segment for chunk in LogReader(path).chunks() for segment in chunk.segments)
    return [event.time for one in segments for event in walk(one) if event.kind == kind]
