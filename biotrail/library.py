# SPDX-License-Identifier: Apache-2.0
"""A recording as Arrow tables, for notebooks and scripts."""

import os
from collections.abc import Iterator
from functools import cached_property
from typing import Any, BinaryIO, cast

import pyarrow as pa

from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.lifecycles.arrow.columns import BIO_SCHEMA, REQUEST_SCHEMA
from biotrail.converters.lifecycles.arrow.events import EVENT_SCHEMA, events_table
from biotrail.converters.lifecycles.arrow.tables import bios_table, requests_table
from biotrail.converters.pipeline import Trace
from biotrail.text import tallies


class Recording:
    """What a log, an archive or blktrace's data holds; read when it is first asked for, and kept.

    Columns, types and units are in docs/parquet.md, and in the metadata of each schema's fields.
    Times are ns of CLOCK_MONOTONIC, sectors 512 bytes, sizes bytes; what is not known is null.
    A table's memory is about 300 bytes per bio or request; `windows` needs no more for a long log
    than for a short one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | BinaryIO,
        associate: str = "auto",
        *,
        own_io: bool = False,
    ) -> None:
        """As `biotrail.open`."""
        self._path = path
        self._associate, self._own_io = associate, own_io
        # A stream can be read once: what is asked for first is all that there is.
        self._first: Source | None = open_source(path)
        self.header: dict[str, Any] = dict(self._first.header)
        """What the recorder noted at the beginning: host, kernel, devices, events, filters."""

    def __repr__(self) -> str:
        host = self.header.get("host", {}).get("name") or "an unknown host"
        return f"<biotrail recording of {host}: {self._path}>"

    @cached_property
    def bios(self) -> pa.Table:
        """A row for each bio, in the order of its number."""
        return self._lifecycles[0]

    @cached_property
    def requests(self) -> pa.Table:
        """A row for each request, in the order of its number."""
        return self._lifecycles[1]

    @cached_property
    def events(self) -> pa.Table:
        """A row for each event, in the order of time."""
        trace = self._trace()
        tables = [events_table(events, trace.context) for events, _ in trace.shown_events()]
        return _joined(tables, EVENT_SCHEMA)

    @property
    def missing(self) -> list[str]:
        """What should be in the recording and is not, a sentence each; empty: nothing."""
        self._lifecycles  # noqa: B018 - only who read all of it knows
        return self._said

    def windows(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Bios and requests in pieces, in the order of time, for what does not fit into memory."""
        trace = self._trace()
        for window in trace.lifecycles():
            yield bios_table(window, trace.context), requests_table(window, trace.context)
        self._said = [*tallies.own_lines(trace), *tallies.loss_lines(trace)]

    @cached_property
    def _lifecycles(self) -> tuple[pa.Table, pa.Table]:
        pairs = list(self.windows())
        return (
            _joined([bios for bios, _ in pairs], BIO_SCHEMA),
            _joined([requests for _, requests in pairs], REQUEST_SCHEMA),
        )

    def _trace(self) -> Trace:
        source, self._first = self._first, None
        if source is None:
            if hasattr(self._path, "read"):
                raise ValueError(
                    "a stream can be read once: open a path to have both events and bios"
                )
            source = open_source(self._path)
        return Trace(source, self._associate, own_io=self._own_io)


def _joined(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """One table in order of number; each window has names of its own, here all are of one list."""
    table = cast(pa.Table, pa.concat_tables([schema.empty_table(), *tables]).unify_dictionaries())
    return table.sort_by("number")
