# SPDX-License-Identifier: Apache-2.0
"""Write a log's events to a Parquet file, from which all that the log yields can be made again."""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biotrail.converters.events.arrow import KIND, SCHEMA, TIME, events_by_kind
from biotrail.converters.events.events import Events
from biotrail.converters.inputs.log import Part, Source
from biotrail.converters.inputs.parquet.account import (
    BLOCK_BYTES,
    MAX_CHUNKS,
    Account,
    Metadata,
    chunk_row,
    pack,
)
from biotrail.recorder.log import Facts
from biotrail.recorder.schema.errors import ConversionError
from biotrail.recorder.schema.records import BY_KIND, Kind

LEVEL = 3
"""zstd's default level here."""

GROUP_EVENTS = 1 << 17
"""Fewest events of a row group but the last; chunks are not cut. zstd finds more repetitions in a
larger group."""

_TIMES_LEVEL = 1
"""zstd's level for times, unless one above the default is asked for."""

_PAGE = 1 << 30
"""Page size (bytes, rows) so large that a column of a row group is one page, which zstd compresses
at once."""

_DICTIONARIES = [KIND, "bio", "rq", "opf", "bytes", "tid"]
"""Columns that repeat few values: also addresses, as the kernel reuses memory."""

_BATCH = 1 << 16
"""Rows that Parquet encodes at once."""
_AHEAD = 2
"""Most row groups in the queue, with the one being written, which bounds the memory."""


@dataclass
class Summary:
    """What was archived. kinds: number of events by letter."""

    events: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


def write(
    source: Source,
    out: BinaryIO,
    *,
    level: int = LEVEL,
    created_by: str = "biotrail",
    log: str = "",
    on_progress: Callable[[int], None] | None = None,
) -> Summary:
    """Write all events of a log to a Parquet file, with its header, notes and losses as metadata.

    level: zstd's, 1 to 22. on_progress: called after each chunk with the offset reached in the
    source, bytes. Raises OSError where `out` fails, ConversionError for a log of more than
    MAX_CHUNKS chunks, and what the source raises; `out` then holds a broken file.
    """
    summary = Summary()
    account = Account(created_by, log, source.size)
    rows: list[list[int]] = []
    summed = _Summed(out)
    with _writer(summed, level) as (writer, put, wait):
        for group in _groups(source, account.grown, on_progress):
            first = len(rows)
            rows += [chunk_row(len(p.events), p.complete_to, p.clock) for p in group]
            if len(rows) > MAX_CHUNKS:
                raise ConversionError(
                    f"the log has more than the {MAX_CHUNKS} chunks that an archive may hold: "
                    "record with --rotate, and archive the files one by one"
                )
            account.groups.append(len(group))
            count = sum(len(p.events) for p in group)
            if count:
                put(group, first)
                summary.events += count
                counts = np.sum([np.bincount(p.events.kind, minlength=256) for p in group], axis=0)
                for kind in np.flatnonzero(counts).tolist():
                    summary.kinds[BY_KIND[Kind(kind)].letter] += int(counts[kind])
        wait()
        account.events = summary.events
        account.kinds = dict(summary.kinds)
        account.interrupted = source.interrupted
        account.problems = list(source.problems)
        account.remarks = list(source.remarks)
        account.damaged = list(source.damaged)
        account.unknown = {str(kind): count for kind, count in source.unknown.items()}
        account.unreadable_bytes = source.unreadable_bytes
        account.log_bytes = source.size
        account.checksums, account.checked_bytes = summed.sums()
        facts = Facts(source.header, source.notes, source.losses, source.end)
        chunks = np.array(rows, np.int64).reshape(len(rows), -1 if rows else 6)
        writer.add_key_value_metadata(pack(Metadata(facts, account, chunks)))
    return summary


class _Summed:
    """A binary output that computes a CRC-32 of each block of BLOCK_BYTES."""

    closed = False
    """ParquetWriter asks for this attribute."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._at = 0
        """Bytes written."""
        self._whole: list[int] = []
        """Checksums of the complete blocks."""
        self._crc = 0
        """Checksum of the block begun."""

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._out.write(view)
        while view:
            part = view[: BLOCK_BYTES - self._at % BLOCK_BYTES]
            self._crc = zlib.crc32(part, self._crc)
            self._at += len(part)
            view = view[len(part) :]
            if self._at % BLOCK_BYTES == 0:
                self._whole.append(self._crc)
                self._crc = 0
        return self._at

    def sums(self) -> tuple[list[int], int]:
        """Return (checksums, bytes that they cover) of all that was written by now."""
        last = [self._crc] if self._at % BLOCK_BYTES else []
        return self._whole + last, self._at

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Do nothing, as nothing is buffered here."""

    def close(self) -> None:
        """Do nothing: `out` is closed by its opener."""


def _groups(
    source: Source, grown: list[list[int]], on_progress: Callable[[int], None] | None
) -> Iterator[list[Part]]:
    """Yield lists of adjacent chunks, each list with GROUP_EVENTS events or more.

    grown: gets [chunk, notes, losses, damages] where a count has changed, from chunk -1 on, which
    is before the first.
    """
    group: list[Part] = []
    events = 0
    for chunk, part in enumerate(chain([None], source.parts()), -1):
        counts = [len(source.notes), len(source.losses), len(source.damaged)]
        if not grown or grown[-1][1:] != counts:
            grown.append([chunk, *counts])
        if part is None:
            continue
        group.append(part)
        events += len(part.events)
        if events >= GROUP_EVENTS:
            yield group
            group, events = [], 0
        if on_progress is not None:
            on_progress(part.offset)
    if group:
        yield group


Put = Callable[[list[Part], int], None]
"""Queues a row group for writing: its chunks, and the number of the first of them."""


@contextmanager
def _writer(out: _Summed, level: int) -> Iterator[tuple[Any, Put, Callable[[], None]]]:
    """Yield (Parquet writer, a function that queues a row group, one that waits for the queue).

    Another thread writes the groups; its exceptions are raised by a later call of either function,
    or at the end of the block, where the file is completed unless an exception ended it.
    """
    columns = [f"{f.name}.list.element" if pa.types.is_list(f.type) else f.name for f in SCHEMA]
    levels = dict.fromkeys(columns, level)
    if level <= LEVEL:  # what delta-encoding leaves of times hardly compresses
        levels[TIME] = min(level, _TIMES_LEVEL)
    writer = pq.ParquetWriter(
        out,
        SCHEMA,
        compression="zstd",
        compression_level=levels,
        use_dictionary=_DICTIONARIES,
        column_encoding={TIME: "DELTA_BINARY_PACKED"},
        write_statistics=[TIME, KIND, "dev"],
        write_page_checksum=True,
        write_batch_size=_BATCH,
        data_page_size=_PAGE,
        max_rows_per_page=_PAGE,
        dictionary_pagesize_limit=_PAGE,
        store_schema=False,
    )
    waiting: list[Future[None]] = []

    def put(group: list[Part], first: int) -> None:
        events = group[0].events
        if len(group) > 1:
            parts = [part.events for part in group]
            events = Events(
                np.concatenate([p.ts for p in parts]),
                np.concatenate([p.cpu for p in parts]),
                np.concatenate([p.number for p in parts]),
                np.concatenate([p.raw.T for p in parts], axis=1).T,
            )
        chunk = np.repeat(np.arange(first, first + len(group)), [len(p.events) for p in group])
        rows = events_by_kind(events, chunk)
        while len(waiting) >= _AHEAD:
            waiting.pop(0).result()
        waiting.append(thread.submit(writer.write_table, rows, row_group_size=len(rows)))

    def wait() -> None:
        while waiting:
            waiting.pop(0).result()

    try:
        with ThreadPoolExecutor(1) as thread:
            yield writer, put, wait
        wait()
        writer.close()
    finally:
        # After an error, ParquetWriter.close (by __del__, too) would write to `out` again.
        writer.is_open = False
