# SPDX-License-Identifier: Apache-2.0
"""Sources of events: the protocols that `Trace` reads, and the source that reads a log."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np

from biotrail.converters.events.decoding import Decoder
from biotrail.converters.events.events import Events
from biotrail.recorder.log import Chunk, LogReader
from biotrail.recorder.schema.records import Kind


@dataclass
class Part:
    """A part of a source's events, sorted by (ts, arrival), with `number` still 0.

    complete_to: ns; later parts hold hardly any older event (`Trace` counts those as late).
    clock: clock readings (name → ns) at that time, None if there are none. offset: bytes of the
    source that were read so far. quiet: nothing has come for a while, so what waits for later
    events is given out.
    """

    events: Events
    complete_to: int
    clock: dict[str, int] | None
    offset: int
    quiet: bool = False


class Source(Protocol):
    """What `Trace` reads events from. The lists grow while `parts` is iterated over.

    unknown: number of records by kind that this reader does not know. unreadable_bytes: bytes of
    records that could not be decoded.
    """

    unknown: Counter[int]
    unreadable_bytes: int

    @property
    def header(self) -> dict[str, Any]:
        """The header, with the keys of a log's header (docs/log-format.md)."""

    @property
    def notes(self) -> list[tuple[str, dict[str, Any]]]:
        pass

    @property
    def losses(self) -> list[dict[str, Any]]:
        """Loss windows read so far: start, end (ns), cpu, kind, count."""

    @property
    def damaged(self) -> list[dict[str, int]]:
        """Windows that cannot be read, met so far: offset (bytes), start, end (ns)."""

    @property
    def problems(self) -> list[str]:
        pass

    @property
    def remarks(self) -> list[str]:
        pass

    @property
    def end(self) -> dict[str, Any] | None:
        """The end frame's contents; None before it is read, and if the recording has none."""

    @property
    def interrupted(self) -> bool:
        pass

    @property
    def size(self) -> int:
        pass

    def parts(self) -> Iterator[Part]:
        pass


@runtime_checkable
class Indexed(Protocol):
    """A source of which a part can be read without the rest.

    parts_read: number of parts (chunks) decoded so far. parts_searched: number of further parts
    that were read only for the names of threads and files.
    """

    parts_read: int
    parts_searched: int

    @property
    def parts_total(self) -> int:
        """Number of parts (chunks) that the source has; -1 unknown."""

    def bounds(self) -> tuple[int, int] | None:
        """Return the (first, last) time that the source covers (ns); None if it has no index."""

    def clock_near(self, ns: int) -> dict[str, int] | None:
        """Return a clock reading (name → ns) taken at about `ns`; None if there is none."""

    def names_before(self, ns: int) -> Events:
        """Return the events with names of threads and files before `ns`, sorted by time."""

    def parts_between(self, begin: int, end: int) -> Iterator[Part]:
        """Yield parts with all events of begin <= ts < end (ns), and maybe others.

        A source without an index yields the names from before `begin`, too.
        """


class LogSource(LogReader):
    """A `.biotrail` log, file or pipe, as a Source and an Indexed one."""

    def __init__(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Read the header, of a file its index and end frame, too. Raises LogFormatError."""
        super().__init__(path)
        self._decoder = Decoder(self.header.get("schema"))
        self.unknown = self._decoder.unknown
        self.unreadable_bytes = 0
        self.parts_read = 0
        self.parts_searched = 0
        self.remarks: list[str] = []  # a log's limits are in its header

    def parts(self) -> Iterator[Part]:
        for chunk in self.chunks():
            yield self.part(chunk)

    @property
    def parts_total(self) -> int:
        spans = self.chunk_spans
        return -1 if spans is None else len(spans)

    def bounds(self) -> tuple[int, int] | None:
        """Return the (first, last) time (ns) among the log's header, chunks and end frame."""
        spans = self.chunk_spans
        if spans is None:
            return None
        clocks = (
            facts.get("clocks", {}).get("monotonic") for facts in (self.header, self.end or {})
        )
        times = [time for span in spans for time in span]
        times += [int(time) for time in clocks if time is not None]
        return (min(times), max(times)) if times else None

    def clock_near(self, ns: int) -> dict[str, int] | None:
        """Return the clocks (name → ns) of the first chunk with records at `ns` or later."""
        for _, last in sorted(self.chunk_spans or []):
            if last >= ns:
                chunk = next(self.chunks(last, last), None)
                return None if chunk is None else dict(chunk.clock)
        return None

    def names_before(self, ns: int) -> Events:
        """As of Indexed: from the log's notes of names, else of chunks that have such records."""
        decoder, parts = Decoder(self.header.get("schema")), []
        for chunk in self.name_chunks(ns):
            self.parts_searched += chunk.offset > 0  # not a note of names
            parts.append(_naming(decoder.decode(chunk)))
        events = Events.join(parts)
        return events.take(np.arange(np.searchsorted(events.ts, ns)))

    def parts_between(self, begin: int, end: int) -> Iterator[Part]:
        """Yield the chunks that overlap begin <= ts < end (ns), whole; of a pipe all."""
        if self.chunk_spans is None:
            for chunk in self.chunks():
                part = self.part(chunk)
                if chunk.last_ns < begin:
                    part = replace(part, events=_naming(part.events))
                yield part
            return
        for chunk in self.chunks(begin, max(end - 1, begin)):
            yield self.part(chunk)

    def part(self, chunk: Chunk) -> Part:
        """Return a chunk decoded; `complete_to` is its clock reading's "monotonic" (ns)."""
        self.parts_read += 1
        events = self._decoder.decode(chunk)
        self.unreadable_bytes = self._decoder.unreadable_bytes
        clock = dict(chunk.clock)
        return Part(events, int(clock["monotonic"]), clock, chunk.offset)


def _naming(events: Events) -> Events:
    return events.take(events.rows(Kind.TASK, Kind.FILE_NAME))
