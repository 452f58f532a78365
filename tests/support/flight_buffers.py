# SPDX-License-Identifier: Apache-2.0
"""A flight recorder's buffer in a directory, filled by hand: a chunk a second."""

from pathlib import Path
from typing import Any

from biotrail.recorder.log import Segment
from biotrail.recorder.output.flight_buffer import FlightBuffer
from biotrail.recorder.output.series import Series
from biotrail.recorder.output.sinks import Limit
from tests.support.chunks_by_hand import CLOCK, HEADER, clock, queue

SECOND = 1_000_000_000


def kept(directory: Path, most: Limit, max_files: int | None = None) -> FlightBuffer:
    series = Series(str(directory / "dump.biotrail"), max_files)
    return FlightBuffer(series, HEADER, most, lambda: [], 1)


def fill(log: FlightBuffer, seconds: range) -> None:
    """A chunk a second with one Q in its middle."""
    for second in seconds:
        at = second * SECOND
        log.write_chunk([Segment(0, 0, 0, queue(at - SECOND // 2))], clock(at))


def end(**others: Any) -> dict[str, Any]:
    return {"reason": "test", "stopped": CLOCK, **others}
