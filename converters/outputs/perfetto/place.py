# SPDX-License-Identifier: Apache-2.0
"""Where a log stands in a trace: alone, or as one of several."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from biotrail.converters.events.context import Context


@dataclass(frozen=True)
class Place:
    """What makes a log's part of a trace its own; the parts follow each other in the file."""

    key: str
    """What uuids are hashed from: no other trace has it, nor another part of this one."""
    label: str
    """Name of the log's root."""
    number: int = 1
    """Of the log in the trace, from 1."""
    host: str = ""
    """The `host` argument of its slices; empty where the trace has one log."""
    above: str = ""
    """Name of the root that it shares with other logs of its host; empty: it has its own."""
    above_key: str = ""
    """What that root's uuid is hashed from."""
    trace: str | None = None
    """What all parts' sequence ids are hashed from; None: the key."""
    sequences: int = 0
    """How many packet sequences the parts before it have."""
    families: int = 0
    """What is added to correlation ids, which begin at 0 in every log."""
    facts: Mapping[str, str | int] = field(default_factory=dict)
    """What else the trace says of the log."""
    aligned: bool = False
    """Times are on the trace's timeline, its BOOTTIME, and not MONOTONIC of the log's machine."""

    @classmethod
    def alone(cls, context: Context) -> "Place":
        """In a trace of its own."""
        return cls(context.log_id, f"{context.host}: block I/O")
