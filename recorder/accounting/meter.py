# SPDX-License-Identifier: Apache-2.0
"""Estimates how many events a chunk holds from a few blocks, as counting all costs too much.

Each block of 4096 bytes of a ring begins with a record. Eight blocks, spread evenly over a chunk,
give its events per byte; a chunk of at most eight blocks' size is counted exactly. Of a record
only the kind is read.
"""

import struct
from collections.abc import Iterator, Sequence

import numpy as np

from biotrail.recorder.log import Segment
from biotrail.recorder.log.columns import counts_of
from biotrail.recorder.schema.records import BLOCK_BYTES, RECORDS, TIMESTAMP_BITS, Kind

SAMPLES = 8
"""Blocks that are counted of a chunk; a chunk of at most so many blocks is counted exactly."""
_HEAD = struct.Struct("<Q")
_SIZES = {int(r.kind): r.size for r in RECORDS if r.kind != Kind.PAD}
"""Size of a record in bytes by kind. Padding and unknown kinds end a block, so have none."""
_NAMES = {Kind.TASK, Kind.CGROUP, Kind.FILE_NAME}
_ADDED = {Kind.CHAIN, Kind.STACK, Kind.FILE, Kind.HELD, Kind.BEHALF, Kind.BACKING}
_ADDED_BY_PATH = {
    *(Kind.CALL, Kind.DIRTIED, Kind.SUBMISSION),  # to Q
    *(Kind.INTERRUPT, Kind.DRIVER),  # to C
    *(Kind.WAIT_STACK, Kind.WAIT_CALL, Kind.CALL_FILE),  # to a wait; to a return or a wait
}
_NO_EVENTS = frozenset(_NAMES | _ADDED | _ADDED_BY_PATH)
"""Kinds of records that only add to an event's record, so are no events."""
_OF_PATH = frozenset(r.kind for r in RECORDS if r.part) - _NO_EVENTS
"""Kinds of records that are events beside the block layer, written by programs of their own."""
_IS_EVENT = np.array([kind in _SIZES and kind not in _NO_EVENTS for kind in range(256)])
_IS_OF_PATH = np.array([kind in _OF_PATH for kind in range(256)])


class Meter:
    """Sums of events and bytes over chunks."""

    def __init__(self) -> None:
        self.events = 0.0
        """Number of events, estimated unless `exact`."""
        self.path_events = 0.0
        """How many of them are events of the path beside the block layer, such as calls."""
        self.exact = True
        """Whether every block of all chunks was counted."""
        self.bytes = 0
        """Size of the chunks' records."""

    def add(self, segments: Sequence[Segment]) -> None:
        """Add the events and bytes, padding included, of one chunk's segments to the sums."""
        total = sum(len(segment.data) for segment in segments)
        self.bytes += total
        scale = 1.0
        if total <= SAMPLES * BLOCK_BYTES:
            blocks = []
            for segment in segments:
                start, length = 0, len(segment.data)
                while start < length:
                    end = start + BLOCK_BYTES - (segment.position + start) % BLOCK_BYTES
                    blocks.append((segment.data, start, min(end, length)))
                    start = end
        else:
            self.exact = False
            blocks = list(_spread(segments, total))
            scale = total / sum(end - start for _, start, end in blocks)
        for block in blocks:
            events, of_path = _count(*block)
            self.events += events * scale
            self.path_events += of_path * scale


def _spread(
    segments: Sequence[Segment], total: int
) -> Iterator[tuple[bytes | memoryview, int, int]]:
    """Yield SAMPLES different blocks (data, start, end) evenly spread; `total`: bytes of all."""
    picks = iter([(2 * i + 1) * total // (2 * SAMPLES) for i in range(SAMPLES)])
    pick, base = next(picks), 0
    for segment in segments:
        while pick < base + len(segment.data):
            offset = pick - base
            start = max(0, offset - (segment.position + offset) % BLOCK_BYTES)
            end = start + BLOCK_BYTES - (segment.position + start) % BLOCK_BYTES
            yield segment.data, start, min(end, len(segment.data))
            pick = next(picks, total)
        base += len(segment.data)


def _count(data: bytes | memoryview, start: int, end: int) -> tuple[int, int]:
    """Return (events, of these of the path) up to padding or an unknown kind."""
    # A segment's position is a multiple of 8, and no part of it crosses a block.
    counts = counts_of(memoryview(data)[start:end], 0)
    if counts is not None:
        return int(counts[_IS_EVENT].sum()), int(counts[_IS_OF_PATH].sum())
    events = of_path = 0
    while start < end:
        kind = _HEAD.unpack_from(data, start)[0] >> TIMESTAMP_BITS
        size = _SIZES.get(kind)
        if size is None:
            break
        events += kind not in _NO_EVENTS
        of_path += kind in _OF_PATH
        start += size
    return events, of_path
