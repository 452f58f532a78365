# SPDX-License-Identifier: Apache-2.0
"""A recording as Arrow tables, for notebooks and scripts."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, BinaryIO, cast

import pyarrow as pa

from biotrail.converters.calls.arrow import (
    CALL_SCHEMA,
    COMMIT_SCHEMA,
    WAIT_SCHEMA,
    calls_table,
    commits_table,
    waits_table,
)
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.inputs.beginning import is_pipe
from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.lifecycles.arrow.columns import BIO_SCHEMA, REQUEST_SCHEMA
from biotrail.converters.lifecycles.arrow.events import EVENT_SCHEMA, events_table
from biotrail.converters.lifecycles.arrow.tables import bios_table, requests_table
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.arrow import (
    HIT_SCHEMA,
    LIFE_SCHEMA,
    PAIR_SCHEMA,
    SPAN_SCHEMA,
    followed_tables,
    hits_table,
    lives_table,
    pairs_table,
    spans_table,
)
from biotrail.converters.sites.pair_names import PairNames
from biotrail.converters.submissions.arrow import SUBMISSION_SCHEMA, submissions_table
from biotrail.text import tallies

TABLES: dict[str, tuple[Callable[[Lifecycles, Context], pa.Table], pa.Schema]] = {
    "bios": (bios_table, BIO_SCHEMA),
    "requests": (requests_table, REQUEST_SCHEMA),
    "calls": (calls_table, CALL_SCHEMA),
    "waits": (waits_table, WAIT_SCHEMA),
    "commits": (commits_table, COMMIT_SCHEMA),
    "submissions": (submissions_table, SUBMISSION_SCHEMA),
}
"""Table of lifecycles → what makes it of a window, and its schema."""
FOLLOWED: dict[str, tuple[Callable[..., pa.Table], pa.Schema]] = {
    "lives": (lives_table, LIFE_SCHEMA),
    "spans": (spans_table, SPAN_SCHEMA),
    "hits": (hits_table, HIT_SCHEMA),
}
"""Table of followed objects → what makes it, and its schema."""


class Recording:
    """Bios, requests, events, calls, waits, submissions, pairs and lives of a log or its like.

    That is a log, an archive or another tool's recording. Read on first use and kept. Calls,
    waits, commits and submissions are those of logs recorded with --path; lives, spans and hits
    those of followed objects (biotrail follow).

    docs/parquet.md and the metadata of each schema's fields give columns, types and units. Times
    are ns of CLOCK_MONOTONIC, sectors 512 bytes, sizes bytes; what is not known is null. A table
    takes about 300 bytes per bio or request; the memory of `windows` does not grow with the log.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | BinaryIO,
        associate: str = "auto",
        *,
        own_io: bool = False,
        include_ambiguous: bool = False,
    ) -> None:
        """Open the input and read its header.

        Parameters and errors are those of `biotrail.open`.
        """
        self._path = path
        self._associate = associate
        self._shown = {"own_io": own_io, "include_ambiguous": include_ambiguous}
        # The first reading uses this source, for a stream can be read only once.
        self._first: Source | None = open_source(path)
        self.header: dict[str, Any] = dict(self._first.header)
        """The log's header as JSON: host, kernel, devices, events, filters."""

    def __repr__(self) -> str:
        host = self.header.get("host", {}).get("name") or "an unknown host"
        return f"<biotrail recording of {host}: {self._path}>"

    @cached_property
    def bios(self) -> pa.Table:
        """A table with a row for each bio, in the order of its number."""
        return self._lifecycles["bios"].sort_by("number")

    @cached_property
    def requests(self) -> pa.Table:
        """A table with a row for each request, in the order of its number."""
        return self._lifecycles["requests"].sort_by("number")

    @cached_property
    def calls(self) -> pa.Table:
        """A table with a row for each timed system call, in the order of their ends."""
        return self._lifecycles["calls"]

    @cached_property
    def waits(self) -> pa.Table:
        """A table with a row for each recorded wait of a call, in the order of their ends."""
        return self._lifecycles["waits"]

    @cached_property
    def submissions(self) -> pa.Table:
        """A table with a row for each io_uring request or aio iocb that queued a bio, by number."""
        return self._lifecycles["submissions"].sort_by("number")

    @cached_property
    def commits(self) -> pa.Table:
        """A table with a row for each commit of a journal, in the order of their ends."""
        return self._lifecycles["commits"]

    @cached_property
    def events(self) -> pa.Table:
        """A table with a row for each event, in the order of time."""
        trace = self._trace()
        tables = [events_table(events, trace.context) for events, _ in trace.shown_events()]
        return _joined(tables, EVENT_SCHEMA).sort_by("number")

    @cached_property
    def pairs(self) -> pa.Table:
        """A table with a row for each pair of events, in the order of their ends."""
        trace = self._trace()
        names = PairNames(trace.context)
        names.finish(trace.reader.end)
        tables = [pairs_table(w, trace.context, names) for w in trace.lifecycles()]
        return _joined(tables, PAIR_SCHEMA)

    @cached_property
    def lives(self) -> pa.Table:
        """A table with a row for each life of a followed object, in the order of their ends."""
        return self._followed["lives"]

    @cached_property
    def spans(self) -> pa.Table:
        """A table with a row for each function that a followed object passed, by life and entry."""
        return self._followed["spans"]

    @cached_property
    def hits(self) -> pa.Table:
        """A table with a row for each hit of a followed object, by life and time."""
        return self._followed["hits"]

    @cached_property
    def _followed(self) -> dict[str, pa.Table]:
        trace = self._trace()
        makes = [make for make, _ in FOLLOWED.values()]
        parts = followed_tables(trace.lifecycles(), trace.context, makes)
        return _by_name(FOLLOWED, parts)

    @property
    def missing(self) -> list[str]:
        """Sentences on what is missing from the tables: lost, damaged, left out; empty: nothing is.

        Reads the whole input, if that was not done before.
        """
        self._lifecycles  # noqa: B018 - reading to the end sets _said
        return self._said

    def windows(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield (bios, requests) window by window, in the order of time, for large logs."""
        for bios, requests, *_ in self._windows():
            yield bios, requests

    def _windows(self) -> Iterator[tuple[pa.Table, ...]]:
        """Yield each window's tables, in the order of TABLES; sets `_said` at the end."""
        trace = self._trace()
        for window in trace.lifecycles():
            yield tuple(make(window, trace.context) for make, _ in TABLES.values())
        self._said = [*tallies.own_lines(trace), *tallies.loss_lines(trace)]

    @cached_property
    def _lifecycles(self) -> dict[str, pa.Table]:
        return _by_name(TABLES, self._windows())

    def _trace(self) -> Trace:
        """Return a Trace that reads the input from its beginning.

        Raises ValueError for a stream that was read already.
        """
        source, self._first = self._first, None
        if source is None:
            if not isinstance(self._path, str | os.PathLike) or is_pipe(self._path):
                raise ValueError(
                    "a stream can be read once: open a file to have both events and bios"
                )
            source = open_source(self._path)
        return Trace(source, self._associate, **self._shown)


def _by_name(
    tables: Mapping[str, tuple[Any, pa.Schema]], windows: Iterable[tuple[pa.Table, ...]]
) -> dict[str, pa.Table]:
    """Return the tables of all windows. windows: of each, tables in the order of `tables`."""
    every = list(windows)
    return {
        name: _joined([window[place] for window in every], schema)
        for place, (name, (_, schema)) in enumerate(tables.items())
    }


def _joined(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    return cast(pa.Table, pa.concat_tables([schema.empty_table(), *tables]).unify_dictionaries())
