# SPDX-License-Identifier: Apache-2.0
"""A chunk of a log as `Events`: the records of its rings' blocks, found and sorted by time."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from biotrail.converters.events import decoding_loops as loops
from biotrail.converters.events.events import (
    RAW_WORDS,
    Events,
    kind_table,
)
from biotrail.converters.events.tables import I64
from biotrail.recorder.log import Chunk
from biotrail.recorder.schema.records import BY_KIND, RECORDS, Kind, sizes

_PAD = int(Kind.PAD)
_KNOWN = kind_table(r.kind for r in RECORDS)


class Decoder:
    """Decoder of chunks, by the record sizes of the log's own schema (None: this reader's).

    unknown: records of kinds that the log's schema has but this reader does not know, by kind.
    unreadable_bytes: bytes skipped up to the next block because no record of the schema begins
    there. Both count over all chunks decoded.
    """

    def __init__(self, schema: Sequence[dict[str, Any]] | None = None) -> None:
        """schema: the header's; kinds that it does not list have this reader's sizes."""
        self.unknown: Counter[int] = Counter()
        self.unreadable_bytes = 0
        self._words = sizes().astype(np.int64) // 8
        self._absent_fields: list[tuple[int, int, np.uint64]] = []
        """(kind, word, mask of bits to keep) per field that the schema does not list."""
        for entry in schema or ():
            kind, listed = int(entry["kind"]), {f["name"] for f in entry.get("fields", ())}
            self._words[kind] = int(entry["size"]) // 8
            if kind not in set(Kind) or not listed:
                continue
            fields: dict[str, Any] = dict(BY_KIND[Kind(kind)].dtype.fields or {})
            for name, (dtype, offset) in fields.items():
                if name not in listed and dtype.itemsize < 8:
                    bits = ((1 << dtype.itemsize * 8) - 1) << offset % 8 * 8
                    mask = np.uint64(~bits & (1 << 64) - 1)
                    self._absent_fields.append((kind, offset // 8, mask))
        self._words[_PAD] = 0
        self._shorter = {
            int(r.kind): int(self._words[r.kind])
            for r in RECORDS
            if r.kind != _PAD and self._words[r.kind] * 8 < r.size
        }

    def decode(self, chunk: Chunk) -> Events:
        """Return all records of a chunk, sorted by time, then in the order of the segments.

        Their `number` is 0. Records of kinds in the log's schema that this reader does not know are
        counted by kind and left out. Bytes that no record of the schema begins at, up to the end of
        their ring block, and a segment's last incomplete word count as unreadable; what follows a
        PAD in its block is skipped, uncounted. Fields that the log's schema lacks are 0. Times are
        the 64-bit ones nearest to the chunk's clock; those before the clock began, in damaged logs
        alone, are 0.
        """
        # The recorder writes whole words; a partial word occurs in damaged or fuzzed logs only.
        self.unreadable_bytes += sum(len(s.data) % 8 for s in chunk.segments)
        segments = [s for s in chunk.segments if len(s.data) >= 8]
        if not segments:
            return Events.empty()
        whole = [s.data[: len(s.data) // 8 * 8] for s in segments]
        words: I64 = np.frombuffer(b"".join([*whole, bytes(8 * RAW_WORDS)]), "<i8")
        found, times = np.empty((2, len(words)), np.int64)
        cpus = np.empty(len(words), np.uint16)
        unknown, known = np.zeros(256, np.int64), _KNOWN.view(np.uint8)
        bounds, base = [0], 0
        now = int(chunk.clock["monotonic"])
        for segment in segments:
            length = len(segment.data) // 8
            count, bad = loops.find_records(
                words[base : base + length],
                segment.position // 8,
                self._words,
                known,
                now,
                base,
                found,
                times,
                bounds[-1],
                unknown,
            )
            cpus[bounds[-1] : count] = segment.cpu
            bounds.append(count)
            base += length
            self.unreadable_bytes += bad * 8
        count = bounds[-1]
        found, times, cpus = found[:count], np.maximum(times[:count], 0), cpus[:count]
        if all(loops.is_sorted(times[first:last]) for first, last in pairwise(bounds)):
            order = np.empty(count, np.int64)
            loops.merge(times, np.array(bounds[:-1]), np.array(bounds[1:]), order)
        else:
            order = np.argsort(times, kind="stable")  # a damaged or foreign log
        at, ts = np.empty((2, count), np.int64)
        cpu = np.empty(count, np.uint16)
        loops.sort(found, order, cpus, times, at, cpu, ts)
        events = Events(ts, cpu, np.zeros(count, np.int64), (words, at))
        # Fields that the log's schema lacks would show what follows a shorter record, or padding.
        for kind, size in self._shorter.items():
            events.raw[events.rows(kind), size:] = 0
        for kind, word, mask in self._absent_fields:
            events.raw[events.rows(kind), word] &= mask
        for kind in np.flatnonzero(unknown).tolist():
            self.unknown[kind] += int(unknown[kind])
        return events
