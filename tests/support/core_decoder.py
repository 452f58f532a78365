# SPDX-License-Identifier: Apache-2.0
"""A record at a time from drained segments: slow, obvious, and apart from what is tested."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from biotrail.recorder.log import Segment
from biotrail.recorder.schema.records import BLOCK_BYTES, BY_KIND, Kind


@dataclass(frozen=True)
class Event:
    """One record; its fields are attributes."""

    kind: Kind
    time: int
    cpu: int
    level: int
    position: int
    row: Any

    def __getattr__(self, name: str) -> Any:
        value = self.row[name]
        return value.tolist() if isinstance(value, np.ndarray) else value.item()


def walk(segment: Segment) -> Iterator[Event]:
    """The records of one segment in the order of the ring; pads are left out."""
    position, end = segment.position, segment.position + len(segment.data)
    while position < end:
        at = position - segment.position
        head = int.from_bytes(segment.data[at : at + 8], "little")
        kind = Kind(head >> 56)
        if kind is Kind.PAD:
            position += BLOCK_BYTES - position % BLOCK_BYTES
            continue
        dtype = BY_KIND[kind].dtype
        if position // BLOCK_BYTES != (position + dtype.itemsize - 1) // BLOCK_BYTES:
            raise ValueError(f"record at {position} crosses a block")
        row = np.frombuffer(segment.data, dtype, count=1, offset=at)[0]
        yield Event(kind, head & ((1 << 56) - 1), segment.cpu, segment.level, position, row)
        position += dtype.itemsize
    if position != end:
        raise ValueError(f"segment ends inside a record: {position} for {end}")


@dataclass
class Decoded:
    """All events of a recording by (time, arrival), and the chains of its issues."""

    events: list[Event] = field(default_factory=list)
    chains: dict[int, list[int]] = field(default_factory=dict)
    """index of the D's place in `events` → bios after the head"""

    def of(self, *kinds: Kind, dev: int | None = None) -> list[Event]:
        """Events of these kinds, of one disk where `dev` is given."""
        return [e for e in self.events if e.kind in kinds and (dev is None or e.dev == dev)]

    def chain(self, issue: Event) -> list[int]:
        """All bios of a D, the head first."""
        return [issue.bio, *self.chains.get(id(issue), [])]


def decode(segments: Iterable[Segment]) -> Decoded:
    """Decodes everything; checks that CHAIN records follow their D in its ring."""
    decoded = Decoded()
    for segment in segments:
        issue: Event | None = None
        for event in walk(segment):
            if event.kind is not Kind.CHAIN:
                issue = event if event.kind is Kind.D else None
                decoded.events.append(event)
                continue
            if issue is None or (issue.rq, issue.time) != (event.rq, event.time):
                raise ValueError(f"CHAIN at {event.position} follows no D of its own")
            found = decoded.chains.setdefault(id(issue), [])
            found.extend(bio for bio in event.bios if bio)
    decoded.events.sort(key=lambda event: event.time)
    return decoded
