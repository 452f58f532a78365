# SPDX-License-Identifier: Apache-2.0
"""Where events come from: a log, in parts as its chunks are."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np

from biotrail.converters.events.events import Decoder, Events
from biotrail.recorder.log import Chunk, LogReader
from biotrail.recorder.schema.records import Kind


@dataclass
class Part:
    """Some events, sorted by (ts, arrival), numbers not given yet.

    complete_to: ns; parts to come hold hardly anything older (what comes late is counted).
    clock: the source's clock reading at that time, if it has one. offset: bytes read.
    """

    events: Events
    complete_to: int
    clock: dict[str, int] | None
    offset: int


class Source(Protocol):
    """What `Trace` reads. Lists grow while `parts` is consumed.

    header: as a log's. notes: (name, payload). losses, damaged: as LogReader's. unknown:
    records of kinds this reader does not know. size: bytes, -1 unknown.
    """

    unknown: Counter[int]
    unreadable_bytes: int

    @property
    def header(self) -> dict[str, Any]:
        """As a log's."""

    @property
    def notes(self) -> list[tuple[str, dict[str, Any]]]:
        """(name, payload), as learned."""

    @property
    def losses(self) -> list[dict[str, Any]]:
        """Loss windows, as LogReader's."""

    @property
    def damaged(self) -> list[dict[str, int]]:
        """Windows that cannot be read."""

    @property
    def problems(self) -> list[str]:
        """Damage, in words."""

    @property
    def remarks(self) -> list[str]:
        """What else to know of it, in words: nothing is damaged."""

    @property
    def end(self) -> dict[str, Any] | None:
        """What was known at the end; None when interrupted."""

    @property
    def interrupted(self) -> bool:
        """The end is missing."""

    @property
    def size(self) -> int:
        """Bytes; -1 unknown."""

    def parts(self) -> Iterator[Part]:
        """All events, once."""


@runtime_checkable
class Indexed(Protocol):
    """A source that need not be read from its beginning to its end to know a part of it.

    parts_read: how many of its parts were read, all in all; parts_total: of how many, -1 unknown.
    parts_searched: of how many more only the names of threads were looked for.
    """

    parts_read: int
    parts_searched: int

    @property
    def parts_total(self) -> int:
        """Chunks of a log."""

    def bounds(self) -> tuple[int, int] | None:
        """(first, last) time that it covers in ns; None while the last is not known."""

    def clock_near(self, ns: int) -> dict[str, int] | None:
        """A reading of its clocks from about that time, if it has one."""

    def names_before(self, ns: int) -> Events:
        """Events that gave names (of threads) before, sorted."""

    def parts_between(self, begin: int, end: int) -> Iterator[Part]:
        """Parts with all events of begin <= ts < end, and maybe others.

        Where the end is not known, names from before as well.
        """


class LogSource:
    """A `.biotrail` log."""

    def __init__(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Opens a log; raises LogFormatError when it is foreign, empty or newer."""
        self.reader = LogReader(path)
        self.unknown: Counter[int] = Counter()
        self.unreadable_bytes = 0
        self.parts_read = 0
        self.parts_searched = 0
        self._decoder = Decoder(self.header.get("schema"))

    @property
    def header(self) -> dict[str, Any]:
        """The log's header."""
        return self.reader.header

    @property
    def notes(self) -> list[tuple[str, dict[str, Any]]]:
        """What was learned while recording."""
        return self.reader.notes

    @property
    def losses(self) -> list[dict[str, Any]]:
        """Loss windows as the recorder wrote them."""
        return self.reader.losses

    @property
    def damaged(self) -> list[dict[str, int]]:
        """Windows of chunks that cannot be read."""
        return self.reader.damaged

    @property
    def problems(self) -> list[str]:
        """Damage, in words."""
        return self.reader.problems

    @property
    def remarks(self) -> list[str]:
        """None: a log says all of it in its header."""
        return []

    @property
    def end(self) -> dict[str, Any] | None:
        """The end frame; None where the log has none."""
        return self.reader.end

    @property
    def interrupted(self) -> bool:
        """The log has no end."""
        return self.reader.interrupted

    @property
    def size(self) -> int:
        """Bytes; -1 for a pipe."""
        return self.reader.size

    def parts(self) -> Iterator[Part]:
        """The log's chunks, decoded."""
        for chunk in self.reader.chunks():
            yield self.part(chunk)

    @property
    def parts_total(self) -> int:
        """Chunks; -1 for a pipe."""
        spans = self.reader.chunk_spans
        return -1 if spans is None else len(spans)

    def bounds(self) -> tuple[int, int] | None:
        """From the recording's start to its end, or to the last chunk where that has no end."""
        spans = self.reader.chunk_spans
        if spans is None:
            return None
        told = (_monotonic(self.header), _monotonic(self.end or {}))
        times = [time for span in spans for time in span]
        times += [time for time in told if time is not None]
        return (min(times), max(times)) if times else None

    def clock_near(self, ns: int) -> dict[str, int] | None:
        """That of the chunk that was written next; None for a pipe."""
        for _, last in sorted(self.reader.chunk_spans or []):
            if last >= ns:
                chunk = next(self.reader.chunks(last, last), None)
                return None if chunk is None else dict(chunk.clock)
        return None

    def names_before(self, ns: int) -> Events:
        """From the log's notes, or, where its end does not say that it has them, from its chunks.

        Of a pipe: none; its chunks are read anyway.
        """
        decoder, parts = Decoder(self.header.get("schema")), []
        for chunk in self.reader.name_chunks(ns):
            self.parts_searched += not self.reader.has_names
            parts.append(_naming(decoder.decode(chunk).events))
        events = Events.join(parts)
        return events.take(np.arange(np.searchsorted(events.ts, ns)))

    def parts_between(self, begin: int, end: int) -> Iterator[Part]:
        """The chunks of that time; of a pipe, those before it with names alone."""
        if self.reader.chunk_spans is None:
            for chunk in self.reader.chunks():
                part = self.part(chunk)
                if chunk.last_ns < begin:
                    part = replace(part, events=_naming(part.events))
                yield part
            return
        for chunk in self.reader.chunks(begin, max(end - 1, begin)):
            yield self.part(chunk)

    def part(self, chunk: Chunk) -> Part:
        """A chunk, decoded."""
        self.parts_read += 1
        decoded = self._decoder.decode(chunk)
        self.unknown.update(decoded.unknown)
        self.unreadable_bytes += decoded.unreadable_bytes
        clock = dict(chunk.clock)
        return Part(decoded.events, int(clock["monotonic"]), clock, chunk.offset)


def _naming(events: Events) -> Events:
    """Those that give names: recorder.names.NOTED."""
    return events.take(events.rows(Kind.TASK, Kind.FILE_NAME))


def _monotonic(facts: dict[str, Any]) -> int | None:
    """ns of the "clocks" of a header or an end."""
    time = facts.get("clocks", {}).get("monotonic")
    return None if time is None else int(time)
