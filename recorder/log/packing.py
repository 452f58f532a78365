# SPDX-License-Identifier: Apache-2.0
"""Compresses chunks before they have a place in a file, as a flight recorder keeps them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import zstandard

from biotrail.recorder.log import frames, names
from biotrail.recorder.log.chunks import Segment, encode_chunk, first_time, runs, split
from biotrail.recorder.log.frames import Codec
from biotrail.recorder.log.names import NameRecords

_WINDOW_LOG = (frames.MAX_CHUNK_DATA - 1).bit_length()
_HASH_LOG = 16  # a table of 256 KiB, which fits a core's second-level cache
# At level 1, zstd's fast strategy steps by five bytes instead of two and looks for matches of six
# bytes or more: in columns of 8-byte words most matches are long.
_FAST_LEVEL = 1
_FAST = {"target_length": 4, "min_match": 6}


class Packed(NamedTuple):
    """A CHUNK frame's payload as stored, with what its frame header and later notes need."""

    first_ns: int
    last_ns: int
    """CLOCK_MONOTONIC: every record has first_ns <= time <= last_ns."""
    stored: bytes | memoryview
    codec: Codec
    raw: int
    """Bytes of the payload when decompressed."""
    records: int
    """Bytes of records in the payload, as in the rings."""
    clock: dict[str, Any]
    """Clock reading after the drain, ns by CLOCK_KEYS name."""
    names: NameRecords
    """The chunk's name records."""


class Packer:
    """Encodes and compresses payloads. Not thread-safe."""

    def __init__(self, level: int) -> None:
        """Set zstd's `level`; 0 stores without compression, and records as in the ring."""
        self._compressor: zstandard.ZstdCompressor | None = None
        if level:
            # A window holds a whole chunk: each column can match any other.
            parameters = zstandard.ZstdCompressionParameters.from_level(
                level,
                source_size=frames.MAX_CHUNK_DATA,
                window_log=_WINDOW_LOG,
                hash_log=_HASH_LOG,
                **(_FAST if level == _FAST_LEVEL else {}),
            )
            self._compressor = zstandard.ZstdCompressor(compression_params=parameters)

    def compress(self, payload: bytes | memoryview) -> tuple[bytes | memoryview, Codec]:
        """Return the payload as a frame stores it, and its codec: NONE, not compressed."""
        if self._compressor is None or not payload:
            return payload, Codec.NONE
        stored = self._compressor.compress(payload)
        if len(payload) > frames.most_raw(len(stored)):  # a reader would refuse it
            return payload, Codec.NONE
        return stored, Codec.ZSTD

    def chunks(self, segments: Sequence[Segment], clock: dict[str, Any]) -> list[Packed]:
        """Return the segments of one or more drains of the rings as compressed chunks, in order.

        Segments that follow each other in their ring become one (`chunks.runs`). `clock`: reading
        after the drain, ns by CLOCK_KEYS name. More than 8 MiB of records become several chunks,
        cut between records; without any record there is one empty chunk.
        """
        last = int(clock["monotonic"])
        packed = []
        for group in split([s for s in segments if len(s.data)]):
            rings = runs(group)
            payload, found = encode_chunk(
                rings, clock, columns=self._compressor is not None, sought=names.KINDS
            )
            records = sum(len(s.data) for s in group)
            first = first_time(group, last)
            named = names.records_at(found)
            stored = self.compress(payload)
            packed.append(Packed(first, last, *stored, len(payload), records, clock, named))
        return packed
