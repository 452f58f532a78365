# SPDX-License-Identifier: Apache-2.0
"""Write tables of bios and requests as a dataset of Parquet files: by host, date and device."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biotrail.converters.lifecycles.arrow.columns import NAME

ROW_GROUP = 1 << 16
"""Rows of a partition that are written at once."""
_MOST_BUFFERED = 1 << 20
"""Most rows that wait, of all partitions together."""

_MOST_OPEN = 100
"""Most open files. A partition whose file was closed for that continues in another file."""

_DAY_NS = 86_400 * 10**9
_DEVICE = "device"


@dataclass
class _Partition:
    """The rows that wait for one date and device, and the file they go to."""

    waiting: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    """Number of rows that wait."""
    files: int = 0
    """Number of files begun."""
    writer: Any = None
    """The open file's ParquetWriter; None: no file is open."""


class Partitions:
    """One table of one recording, partitioned by the date in column `time` and by device."""

    def __init__(
        self,
        root: Path,
        schema: pa.Schema,
        time: str,
        *,
        host: str,
        stem: str,
        level: int,
        day: str,
    ) -> None:
        """Prepare to write one table of one recording below `root`/host=HOST; write nothing yet.

        schema: of every table; column `device` goes into directories' names, not into files. time:
        name of the column with the wall clock. stem: of files' names, quoted for URLs. day: date
        (2026-11-07) for rows whose wall clock is not known.
        """
        self._root = root / f"host={quote(host, safe='')}"
        self._schema = pa.schema([f for f in schema if f.name != _DEVICE])
        self._time, self._stem, self._level, self._day = time, stem, level, day
        self._parts: dict[tuple[str, str], _Partition] = {}
        self._open: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Partitions with an open file, the least recently written first."""
        self._buffered = 0
        self.rows = 0
        """Number of rows passed to `write`."""

    def write(self, table: pa.Table) -> None:
        """Add the rows of a table to the partitions of their date and device."""
        for key, rows in self._split(table):
            part = self._parts.setdefault(key, _Partition())
            part.waiting.append(rows)
            part.rows += len(rows)
            self._buffered += len(rows)
            if part.rows >= ROW_GROUP:
                self._flush(key)
        self.rows += len(table)
        if self._buffered > _MOST_BUFFERED:
            self._flush_all()

    def close(self, metadata: dict[str, str]) -> None:
        """Write the rows that wait, close all files; `metadata` goes into those still open."""
        self._flush_all()
        for key in list(self._open):
            self._parts[key].writer.add_key_value_metadata(metadata)
            self._close_file(key)

    def abandon(self) -> None:
        """Close the files after an error; they stay, without the rows that wait."""
        for part in self._parts.values():
            if part.writer is not None:
                with suppress(OSError, pa.ArrowException):
                    part.writer.close()

    def _split(self, table: pa.Table) -> Iterator[tuple[tuple[str, str], pa.Table]]:
        """Yield ((date, device), its rows without `device`); unknown dates are `_day`."""
        if not len(table):
            return
        devices = table[_DEVICE].combine_chunks()
        names = devices.dictionary.to_pylist()
        times = table[self._time].cast(pa.int64())
        none = times.is_null().to_numpy()
        days = np.where(none, -1, times.fill_null(0).to_numpy() // _DAY_NS)
        keys = np.stack([days, devices.indices.to_numpy()], axis=1)
        rest = table.drop_columns([_DEVICE])
        distinct, key_of_row = np.unique(keys, axis=0, return_inverse=True)
        key_of_row = key_of_row.reshape(-1)
        for index, (day, code) in enumerate(distinct.tolist()):
            date = self._day if day < 0 else str(np.datetime64(day, "D"))
            rows = rest if len(distinct) == 1 else rest.take(np.flatnonzero(key_of_row == index))
            yield (date, names[code]), rows

    def _flush_all(self) -> None:
        for key, part in self._parts.items():
            if part.rows:
                self._flush(key)

    def _flush(self, key: tuple[str, str]) -> None:
        """Write a partition's waiting rows as one row group, and forget them.

        The partition's files are `date=DATE/device=DEVICE/STEM.parquet`, then STEM+2, …. A stem is
        quoted and so has no `+`: no recording's second file has the name of another recording's
        first, such as `sda-2`. Of too many open files the least recently written are closed.
        """
        part = self._parts[key]
        if part.writer is None:
            while len(self._open) >= _MOST_OPEN:
                self._close_file(next(iter(self._open)))
            date, device = key
            folder = self._root / f"date={date}" / f"device={quote(device, safe='')}"
            folder.mkdir(parents=True, exist_ok=True)
            part.files += 1
            name = self._stem if part.files == 1 else f"{self._stem}+{part.files}"
            part.writer = pq.ParquetWriter(
                folder / f"{name}.parquet",
                self._schema,
                compression="zstd",
                compression_level=self._level,
                use_dictionary=[f.name for f in self._schema if f.type == NAME],
                column_encoding={
                    f.name: "DELTA_BINARY_PACKED" for f in self._schema if f.type == pa.int64()
                },
                write_page_checksum=True,
            )
            self._open[key] = None
        self._open.move_to_end(key)
        table = pa.concat_tables(part.waiting).unify_dictionaries()
        part.writer.write_table(table, row_group_size=max(1, len(table)))
        self._buffered -= part.rows
        part.waiting, part.rows = [], 0

    def _close_file(self, key: tuple[str, str]) -> None:
        del self._open[key]
        self._parts[key].writer.close()
        self._parts[key].writer = None
