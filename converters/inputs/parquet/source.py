# SPDX-License-Identifier: Apache-2.0
"""A Parquet archive as a source of events: the same parts, chunk by chunk, as the log itself."""

import itertools
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biotrail.converters.events import arrow
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64
from biotrail.converters.inputs.beginning import is_url
from biotrail.converters.inputs.foreign import MAX_NS
from biotrail.converters.inputs.log import Part
from biotrail.converters.inputs.parquet.account import (
    BLOCK_BYTES,
    Metadata,
    clock_of,
    not_ours,
    unpack,
)
from biotrail.converters.inputs.parquet.locations import open_url, reason
from biotrail.recorder.schema.errors import LogFormatError

MAGIC = b"PAR1"
EVENTS = "events"


TABLE_KEY = "biotrail.table"


MOST_EVENTS_A_BYTE = 256
"""Most events per stored byte of a row group; biotrail stores two or three bytes per event."""
_MAX_GROUP = 1 << 22


class ArchiveSource:
    """An archive of one recording, as a Source with the same contents as its log."""

    def __init__(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Open an archive, or a dataset's directory that holds one archive; check its metadata.

        path: may be a URL (locations.py). A stream must be seekable, and stay open for `parts`,
        which finds damaged events.
        Raises LogFormatError: not readable, no archive, cut off, footer or metadata damaged, of
        another format, or a directory with no archive or with several.
        """
        if isinstance(path, str | os.PathLike) and os.path.isdir(path):
            archives = sorted(Path(path, EVENTS).rglob("*.parquet"))
            if not archives:
                raise LogFormatError(
                    f"{os.fspath(path)}: is a directory and no archive: there is no "
                    f"{EVENTS}/…/*.parquet in it; give a log, or what `biotrail archive` wrote"
                )
            if len(archives) > 1:
                raise LogFormatError(
                    f"{os.fspath(path)}: holds {len(archives)} recordings; give one of them, such "
                    f"as {archives[0]}"
                )
            path = archives[0]
        self.name = os.fspath(path) if isinstance(path, str | os.PathLike) else "the stream"
        self._stream, self._file, self.size = _open(path, self.name)
        self.metadata: Metadata = unpack(self.name, self._file.metadata.metadata or {})
        facts, account = self.metadata.facts, self.metadata.account
        if wrong := arrow.wrong_columns(self._file.schema_arrow):
            raise LogFormatError(
                f"{self.name}: its column {wrong} is not there or of another type; make it again "
                "from the log"
            )
        total = np.concatenate([[0], np.cumsum(self.metadata.chunks[:, 0])])
        self._group_events: list[int] = np.diff(total[np.cumsum([0, *account.groups])]).tolist()
        """Number of events of each group of chunks."""
        wanted = [n for n in self._group_events if n]
        meta = self._file.metadata
        there = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
        if max(there, default=0) > _MAX_GROUP:
            raise LogFormatError(
                f"{self.name}: has a row group of {max(there)} events: no biotrail writes more "
                f"than {_MAX_GROUP}; make it again from the log"
            )
        if wrong := _excessive_cost(meta, self.size):
            raise LogFormatError(
                f"{self.name}: {wrong}: no biotrail writes that; make it again from the log"
            )
        if there != wanted:
            raise LogFormatError(
                f"{self.name}: has {len(there)} row groups of {sum(there)} events where its "
                f"account says {len(wanted)} of {sum(wanted)}: something rewrote it; make it again "
                "from the log"
            )
        self.header = facts.header
        self.end: dict[str, Any] | None = facts.end
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.losses: list[dict[str, Any]] = []
        self.damaged: list[dict[str, int]] = []
        self.interrupted = account.interrupted
        self.problems = list(account.problems)
        self.remarks = list(account.remarks)
        self.unknown = Counter({int(kind): count for kind, count in account.unknown.items()})
        self.unreadable_bytes = account.unreadable_bytes
        self._grown = {row[0]: row[1:] for row in account.grown}
        self._replayed = [0, 0, 0]
        self._replay_findings(-1)

    def parts(self) -> Iterator[Part]:
        """Yield the log's chunks as LogSource does; can be called once.

        Chunks of a damaged row group come without events. `offset` is in proportion to the events
        of the row groups read so far. Notes, losses and damaged windows are added when the log's
        reader had met them; damage of the archive itself is added to `problems` and `damaged`.
        """
        chunk = row_group = 0
        done = 0
        for chunks, events in zip(self.metadata.account.groups, self._group_events, strict=True):
            table = self.metadata.chunks[chunk : chunk + chunks]
            found = (
                self._events_of_group(row_group, table[:, 0], chunk) if events else Events.empty()
            )
            row_group += bool(events)
            done += events
            offset = self.size * done // max(1, self.metadata.account.events)
            edges = np.cumsum([0, *table[:, 0]]).tolist() if len(found) else [0] * (chunks + 1)
            for row in range(chunks):
                self._replay_findings(chunk + row)
                part = found.take(slice(edges[row], edges[row + 1]))
                yield Part(part, int(table[row, 1]), clock_of(table[row]), offset)
            chunk += chunks
        self._replay_findings(None)

    def wrong_blocks(self) -> list[str]:
        """Read the file; return a description of each block that fails its checksum."""
        account, found = self.metadata.account, []
        self._stream.seek(0)
        for index, crc in enumerate(account.checksums):
            offset = index * BLOCK_BYTES
            end = min(offset + BLOCK_BYTES, account.checked_bytes)
            if zlib.crc32(self._stream.read(end - offset)) != crc:
                found.append(f"bytes from offset {offset} to {end} fail their checksum")
        return found

    def _events_of_group(self, index: int, counts: I64, first: int) -> Events:
        """Return a row group's events, in the log's order; if it is damaged none."""
        try:
            events, chunk = arrow.read_events(
                lambda names: self._file.read_row_group(index, columns=names),
                frozenset(self._file.schema_arrow.names),
            )
            if not np.array_equal(np.repeat(np.arange(len(counts)) + first, counts), chunk):
                raise ValueError("its events do not match the table of chunks")
            if len(events) and not 0 <= events.ts.min() <= events.ts.max() <= MAX_NS:
                raise ValueError("its events have impossible times")
            return events
        except (pa.ArrowException, OSError, ValueError) as error:
            group = self._file.metadata.row_group(index)
            offset = _group_offset(group)
            self.problems.append(
                f"row group {index} at offset {offset} cannot be read ({_what(error)}): "
                f"{group.num_rows} events left out"
            )
            # Its time is by statistics, else by its chunks.
            complete = self.metadata.chunks[:, 1]
            start, end = int(complete[max(0, first - 1)]), int(complete[first + len(counts) - 1])
            times = group.column(0).statistics
            if times is not None and times.has_min_max:
                start, end = max(0, int(times.min)), max(0, int(times.max))
            self.damaged.append({"offset": offset, "start": start, "end": max(start, end)})
            return Events.empty()

    def _replay_findings(self, chunk: int | None) -> None:
        """Extend notes, losses and damaged to what the log's reader had met after a chunk.

        chunk: its index; -1: before the first; None: at the end, so all. Nothing is added for a
        chunk without an entry in `Account.grown`. `_replayed` keeps how many of each were added.
        """
        facts, account = self.metadata.facts, self.metadata.account
        everything = [len(facts.notes), len(facts.losses), len(account.damaged)]
        to = everything if chunk is None else self._grown.get(chunk, self._replayed)
        self.notes += facts.notes[self._replayed[0] : to[0]]
        self.losses += facts.losses[self._replayed[1] : to[1]]
        self.damaged += account.damaged[self._replayed[2] : to[2]]
        self._replayed = [max(a, b) for a, b in zip(self._replayed, to, strict=True)]


def _excessive_cost(meta: Any, size: int) -> str:
    """Return in words why reading costs more than the file's size allows; "" if it does not.

    meta: the file's Parquet metadata. size: of the file (bytes). Columns must lie within the file,
    not share bytes with one another, and those of a row group together take at least a byte for
    MOST_EVENTS_A_BYTE events. Only the first violation is described.
    """
    spans: list[tuple[int, int]] = []
    for index in range(meta.num_row_groups):
        group = meta.row_group(index)
        columns = [group.column(place) for place in range(group.num_columns)]
        stored = [int(column.total_compressed_size) for column in columns]
        for column, length in zip(columns, stored, strict=True):
            begin = int(column.data_page_offset)
            if column.has_dictionary_page:
                begin = min(begin, int(column.dictionary_page_offset))
            spans.append((begin, begin + length))
        if min(stored, default=0) < 0 or group.num_rows > MOST_EVENTS_A_BYTE * sum(stored):
            return f"row group {index} has {group.num_rows} events in {sum(stored)} bytes"
    spans.sort()
    for (_, end), (begin, _) in itertools.pairwise(spans):
        if begin < end:
            return f"columns share the bytes from offset {begin} on"
    if spans and not 0 <= spans[0][0] <= spans[-1][1] <= size:
        return f"columns go past its end, up to offset {spans[-1][1]}"
    return ""


def _group_offset(group: Any) -> int:
    column = group.column(0)
    return int(column.dictionary_page_offset or column.data_page_offset)


def _what(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def _open(path: str | os.PathLike[str] | BinaryIO, name: str) -> tuple[BinaryIO, Any, int]:
    """Return (stream, pq.ParquetFile, size in bytes) of an archive. Raises LogFormatError."""
    remote = is_url(path)
    given = open_url(name) if remote else path
    try:
        stream = open(given, "rb") if isinstance(given, str | os.PathLike) else given  # noqa: SIM115
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - len(MAGIC)))
        whole = size > 2 * len(MAGIC) and stream.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise LogFormatError(
            f"{name}: cannot be read: {reason(error)}; give the path of an archive"
        ) from error
    if not whole:
        raise LogFormatError(
            f"{name}: is a part of an archive only: its {size} bytes do not end with a Parquet "
            "footer; copy it again, or make it again from the log"
        )
    try:
        metadata = pq.read_metadata(stream)
        if arrow.KIND not in metadata.schema.names:
            raise not_ours(name)
        file = pq.ParquetFile(
            stream,
            metadata=metadata,
            read_dictionary=[arrow.KIND],
            page_checksum_verification=True,
            pre_buffer=remote,  # one request for a row group's columns, and not one for each
        )
    except (pa.ArrowException, OSError) as error:
        raise LogFormatError(
            f"{name}: its Parquet footer is damaged ({_what(error)}); copy it again, or make it "
            "again from the log"
        ) from None
    return stream, file, size


def check_table(path: str) -> tuple[int, int, list[str]] | None:
    """Read a dataset's table of bios or requests, a file or URL, with its page checksums.

    Returns (bytes, readable rows, problems); None: its metadata are no such table's.
    """
    try:
        given = open_url(path) if is_url(path) else pa.OSFile(os.fsencode(path))
        if TABLE_KEY.encode() not in (pq.read_metadata(given).metadata or {}):
            return None
    except (pa.ArrowException, OSError):
        return None
    file = pq.ParquetFile(given, page_checksum_verification=True)
    rows, problems = 0, []
    for index in range(file.metadata.num_row_groups):
        try:
            rows += len(file.read_row_group(index))
        except (pa.ArrowException, OSError, ValueError) as error:
            offset = _group_offset(file.metadata.row_group(index))
            problems.append(f"row group {index} at offset {offset} cannot be read ({_what(error)})")
    return given.seek(0, os.SEEK_END), rows, problems
