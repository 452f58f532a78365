# SPDX-License-Identifier: Apache-2.0
"""How many events a chunk holds, estimated from a few blocks: counting all would cost too much.

Rings are made of blocks that begin with a record. A handful of blocks, spread evenly over a
chunk, gives the mean record size; a small chunk is counted whole. Nothing but a record's kind
is looked at.
"""

import struct
from collections.abc import Iterator, Sequence

from biotrail.recorder.log import Segment
from biotrail.recorder.schema.records import BLOCK_BYTES, RECORDS, TIMESTAMP_BITS, Kind

SAMPLES = 8
"""Blocks looked at per chunk."""
_HEAD = struct.Struct("<Q")
_SIZES = {int(r.kind): r.size for r in RECORDS if r.kind != Kind.PAD}
_NO_EVENTS = frozenset({int(Kind.CHAIN), int(Kind.TASK), int(Kind.CGROUP)})


class Meter:
    """Adds up the events of chunks."""

    def __init__(self) -> None:
        self.events = 0.0
        self.exact = True
        """Whether every block was counted."""
        self.bytes = 0
        """Of the chunks' records."""

    def add(self, segments: Sequence[Segment]) -> None:
        """Count, or estimate, the events of one chunk."""
        total = sum(len(segment.data) for segment in segments)
        self.bytes += total
        if total <= SAMPLES * BLOCK_BYTES:
            self.events += sum(_count(*block) for s in segments for block in _blocks(s))
            return
        self.exact = False
        seen, counted = 0, 0
        for data, start, end in _spread(segments, total):
            counted += _count(data, start, end)
            seen += end - start
        self.events += total * counted / seen


def _blocks(segment: Segment) -> Iterator[tuple[bytes | memoryview, int, int]]:
    start = 0
    while start < len(segment.data):
        end = start + BLOCK_BYTES - (segment.position + start) % BLOCK_BYTES
        yield segment.data, start, min(end, len(segment.data))
        start = end


def _spread(
    segments: Sequence[Segment], total: int
) -> Iterator[tuple[bytes | memoryview, int, int]]:
    """SAMPLES blocks (data, start, end) at even distances through all segments."""
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


def _count(data: bytes | memoryview, start: int, end: int) -> int:
    """Events from `start`, where a record begins, to `end` or the block's padding."""
    events = 0
    while start < end:
        kind = _HEAD.unpack_from(data, start)[0] >> TIMESTAMP_BITS
        size = _SIZES.get(kind)
        if size is None:
            break
        events += kind not in _NO_EVENTS
        start += size
    return events
