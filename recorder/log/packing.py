# SPDX-License-Identifier: Apache-2.0
"""Chunks compressed before they have a place in a file: a flight recorder keeps them so."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import zstandard

from biotrail.recorder.log import frames as log_frames
from biotrail.recorder.log import names
from biotrail.recorder.log.chunks import Segment, encode_chunk, first_time, may_hold, split
from biotrail.recorder.log.frames import Codec

_WINDOW_LOG = (log_frames.MAX_CHUNK_DATA - 1).bit_length()
_HASH_LOG = 16  # 256 KiB of table: stays in a core's second-level cache
# zstd's fast strategy by steps of five bytes rather than two, and with matches of six or more:
# in columns of 8-byte words most matches are long.
_FAST_LEVEL = 1
_FAST = {"target_length": 4, "min_match": 6}


class Packed(NamedTuple):
    """A CHUNK frame's payload as stored, and what its frame header says of it."""

    first_ns: int
    last_ns: int
    stored: bytes
    codec: Codec
    raw: int
    """Bytes of the payload when decompressed."""
    records: int
    """Bytes of records in it."""
    clock: dict[str, Any]
    names: dict[int, bytes]
    """Records in it that a note is to repeat, by kind."""


class Packer:
    """Encodes and compresses payloads; one thread may use it at a time."""

    def __init__(self, level: int) -> None:
        """`level` is zstd's, 0 stores without compression."""
        self._compressor = _compressor(level) if level else None

    def compress(self, payload: bytes) -> tuple[bytes, Codec]:
        """The payload as a frame stores it."""
        if self._compressor is None or not payload:
            return payload, Codec.NONE
        stored = self._compressor.compress(payload)
        if len(payload) > log_frames.most_raw(len(stored)):  # no reader would believe it
            return payload, Codec.NONE
        return stored, Codec.ZSTD

    def chunks(self, segments: Sequence[Segment], clock: dict[str, Any]) -> list[Packed]:
        """What one drain gave, with the clock as read after it.

        More than 8 MiB of records become several chunks, cut between records.
        """
        last = int(clock["monotonic"])
        found = []
        for group in split([s for s in segments if len(s.data)]):
            payload = encode_chunk(group, clock, columns=self._compressor is not None)
            records = sum(len(s.data) for s in group)
            first = first_time(group, last)
            told = names.for_notes([group[index] for index in may_hold(payload, names.NOTED)])
            stored = self.compress(payload)
            found.append(Packed(first, last, *stored, len(payload), records, clock, told))
        return found


def _compressor(level: int) -> zstandard.ZstdCompressor:
    """zstd whose window holds a whole chunk, so that every column can match any other."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level,
        source_size=log_frames.MAX_CHUNK_DATA,
        window_log=_WINDOW_LOG,
        hash_log=_HASH_LOG,
        **(_FAST if level == _FAST_LEVEL else {}),
    )
    return zstandard.ZstdCompressor(compression_params=parameters)
