# SPDX-License-Identifier: Apache-2.0
"""Where events come from: a log, in parts as its chunks are."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from recorder.log import Chunk, LogReader

from .events import Decoder, Events


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


class LogSource:
    """A `.biotrail` log."""

    def __init__(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """Opens a log; raises LogFormatError when it is foreign, empty or newer."""
        self.reader = LogReader(path)
        self.unknown: Counter[int] = Counter()
        self.unreadable_bytes = 0
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

    def part(self, chunk: Chunk) -> Part:
        """A chunk, decoded."""
        decoded = self._decoder.decode(chunk)
        self.unknown.update(decoded.unknown)
        self.unreadable_bytes += decoded.unreadable_bytes
        clock = dict(chunk.clock)
        return Part(decoded.events, int(clock["monotonic"]), clock, chunk.offset)
