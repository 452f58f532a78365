# SPDX-License-Identifier: Apache-2.0
"""Events of a log as a Parquet file, from which everything can be made that the log gives."""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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
from biotrail.converters.inputs.parquet.columns import KIND, SCHEMA, TIME, table
from biotrail.recorder.log import Facts
from biotrail.recorder.schema.errors import ConversionError
from biotrail.recorder.schema.records import BY_KIND, Kind

LEVEL = 3
"""zstd's, unless told otherwise."""

GROUP_EVENTS = 1 << 17
"""Events of a row group, at least: chunks are not cut. zstd finds again what is near enough."""

_TIMES_LEVEL = 1

_PAGE = 1 << 30
"""A column of a row group is one page: what repeats in it is then in one piece for zstd."""

_DICTIONARIES = [KIND, "bio", "rq", "opf", "bytes", "tid"]
"""Columns of few values in no order: addresses too, for memory is used again."""

_BATCH = 1 << 16
_AHEAD = 2
"""Row groups that wait at most for the one that is being written: bounds the memory."""


@dataclass
class Summary:
    """What was archived."""

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
    """Write all events of `source`, and what else it knows, to `out`.

    level: zstd's. created_by, log: the account's. on_progress is given the offset reached in
    the source. Raises OSError where `out` fails, and what the source raises.
    """
    summary = Summary()
    account = Account(created_by, log, source.size)
    rows: list[list[int]] = []
    known = _Known(source, account)
    summed = _Summed(out)
    with _writer(summed, level) as (writer, put, done):
        for group in _groups(_told(source, known, on_progress)):
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
                summary.kinds += _counted(group)
        done()
        _finish(account, source, summary)
        account.checksums, account.checked_bytes = summed.sums()
        facts = Facts(source.header, source.notes, source.losses, source.end)
        chunks = np.array(rows, np.int64).reshape(len(rows), -1 if rows else 6)
        writer.add_key_value_metadata(pack(Metadata(facts, account, chunks)))
    return summary


class _Summed:
    """Passes bytes on, with a crc32 of each block."""

    closed = False

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._at = 0
        self._whole: list[int] = []
        self._crc = 0

    def write(self, data: Any) -> int:
        """Write all of it. Raises OSError."""
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
        """(checksums, bytes that they cover) of what was written by now."""
        last = [self._crc] if self._at % BLOCK_BYTES else []
        return self._whole + last, self._at

    def tell(self) -> int:
        """Bytes written."""
        return self._at

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Who opened the output closes it."""


class _Known:
    """Notes what the source knew of losses and the like as it gave its chunks."""

    def __init__(self, source: Source, account: Account) -> None:
        self._source = source
        self._grown = account.grown
        self._chunk = -1
        self.look()

    def look(self) -> None:
        """After each chunk."""
        source = self._source
        known = [len(source.notes), len(source.losses), len(source.damaged)]
        if not self._grown or self._grown[-1][1:] != known:
            self._grown.append([self._chunk, *known])
        self._chunk += 1


def _told(
    source: Source, known: _Known, on_progress: Callable[[int], None] | None
) -> Iterator[Part]:
    for part in source.parts():
        known.look()
        yield part
        if on_progress is not None:
            on_progress(part.offset)


def _groups(parts: Iterator[Part]) -> Iterator[list[Part]]:
    """Chunks together, until there are enough events for a row group."""
    group: list[Part] = []
    events = 0
    for part in parts:
        group.append(part)
        events += len(part.events)
        if events >= GROUP_EVENTS:
            yield group
            group, events = [], 0
    if group:
        yield group


def _counted(group: list[Part]) -> Counter[str]:
    counts = np.sum([np.bincount(p.events.kind, minlength=256) for p in group], axis=0)
    return Counter(
        {BY_KIND[Kind(kind)].letter: int(counts[kind]) for kind in np.flatnonzero(counts).tolist()}
    )


def _finish(account: Account, source: Source, summary: Summary) -> None:
    """What is known of the source once all of it was read."""
    account.events = summary.events
    account.kinds = dict(summary.kinds)
    account.interrupted = source.interrupted
    account.problems = list(source.problems)
    account.remarks = list(source.remarks)
    account.damaged = list(source.damaged)
    account.unknown = {str(kind): count for kind, count in source.unknown.items()}
    account.unreadable_bytes = source.unreadable_bytes
    account.log_bytes = source.size


Put = Callable[[list[Part], int], None]
"""Writes a row group: its chunks, and the number of the first of them."""


def _paths() -> list[str]:
    """Columns as Parquet names them."""
    return [f"{f.name}.list.element" if pa.types.is_list(f.type) else f.name for f in SCHEMA]


def _level(name: str, level: int) -> int:
    """zstd's for a column: what is left of times by their encoding is hardly worth the work."""
    return min(level, _TIMES_LEVEL) if name == TIME and level <= LEVEL else level


@contextmanager
def _writer(out: _Summed, level: int) -> Iterator[tuple[Any, Put, Callable[[], None]]]:
    """A Parquet writer, what hands it row groups, which another thread encodes, and what waits."""
    writer = pq.ParquetWriter(
        out,
        SCHEMA,
        compression="zstd",
        compression_level={name: _level(name, level) for name in _paths()},
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
        events = group[0].events if len(group) == 1 else _together([p.events for p in group])
        chunk = np.repeat(np.arange(first, first + len(group)), [len(p.events) for p in group])
        rows = table(events, chunk)
        while len(waiting) >= _AHEAD:
            waiting.pop(0).result()
        waiting.append(thread.submit(writer.write_table, rows, row_group_size=len(rows)))

    def done() -> None:
        while waiting:
            waiting.pop(0).result()

    try:
        with ThreadPoolExecutor(1) as thread:
            yield writer, put, done
        done()
        writer.close()
    finally:
        # What failed is not closed: that would write again.
        writer.is_open = False


def _together(parts: list[Events]) -> Events:
    """All of them one behind the other, as they came."""
    return Events(
        np.concatenate([p.ts for p in parts]),
        np.concatenate([p.cpu for p in parts]),
        np.concatenate([p.number for p in parts]),
        np.concatenate([p.raw.T for p in parts], axis=1).T,
    )
