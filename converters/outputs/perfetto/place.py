# SPDX-License-Identifier: Apache-2.0
"""Where a log stands in a trace: alone, or as one of several, joined to another's slices."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, U64
from biotrail.converters.inputs.perfetto.clocks import BOOTTIME
from biotrail.converters.sites.pair_names import pairs_alone


@dataclass(frozen=True)
class Arrows:
    """Flows of slices: (n,) each, in any order. Slices of both logs with one id are joined."""

    number: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Of the request or bio."""
    id: U64 = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))


@dataclass(frozen=True)
class Crossing:
    """A guest's requests, or the bios of its host, of one log."""

    requests: Arrows = field(default_factory=Arrows)
    bios: Arrows = field(default_factory=Arrows)
    timed: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Numbers of requests whose stages on the host are known, ascending."""
    stages: I64 = field(default_factory=lambda: np.zeros((0, 4), dtype=np.int64))
    """Of these, ns: to the host, queued there, with its device, and from there."""


@dataclass(frozen=True)
class Ids:
    """Ids that another trace in the same file uses, so that none of ours may be one of them."""

    sequences: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Of packet sequences, sorted."""
    uuids: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Of tracks, sorted as signed 64-bit numbers."""


@dataclass(frozen=True)
class Place:
    """The names and numbers that keep one log of a trace apart from the others."""

    key: str
    """Text that track uuids are hashed from; no other trace and no other log of this trace has
    it."""
    label: str
    """Name of the log's root."""
    number: int = 1
    """Number of the log in the trace, from 1."""
    host: str = ""
    """The `host` argument of its slices; empty where the trace has one log."""
    above: str = ""
    """Name of the root that the log shares with others of its host; empty: it has its own."""
    above_key: str = ""
    """Text that the shared root's uuid is hashed from."""
    trace: str | None = None
    """Text that all logs' sequence ids are hashed from; None: `key`."""
    sequences: int = 0
    """Packet sequences that the logs before this one have."""
    families: int = 0
    """Offset added to correlation ids, which begin at 0 in every log."""
    facts: Mapping[str, str | int] = field(default_factory=dict)
    """Further facts that the trace states about the log."""
    aligned: bool = False
    """Whether times are on the trace's `clock`, not MONOTONIC of the log's machine."""
    clock: int = BOOTTIME
    """The trace's primary clock, where `aligned`: BOOTTIME or MONOTONIC, by Perfetto's ids."""
    crossing: Crossing | None = None
    """What its slices have to do with those of the trace's other log; None: nothing is known."""
    beside: Ids | None = None
    """Ids of another trace that this one is written beside; None: there is none."""
    reasons: bool = False
    """Whether reasons of waits are written for the states that the other trace gives threads."""

    @classmethod
    def alone(cls, context: Context) -> "Place":
        what = "kernel events" if pairs_alone(context.header) else "block I/O"
        return cls(context.log_id, f"{context.host}: {what}")


@dataclass(frozen=True)
class Named:
    """What distinguishes the logs of a trace. boot: the boot id, empty where it is not known."""

    log_id: str
    host: str
    boot: str
    name: str
    """Its file's name."""
    aligned: bool
    """Whether its times were moved to the timeline of another machine or log."""


def places(logs: Sequence[Named]) -> list[Place]:
    """Return each log's Place in a trace of all of them, in the order of `logs`.

    Every host has a root group of tracks, or every boot if a host has several. Logs of one boot
    share the root, each with a group below, named after its file; their `host` is both names.
    `sequences`, `families` and `facts` are left to the caller.
    """
    trace = " ".join(f"{log.log_id} {log.name}" for log in logs)
    boots: dict[str, set[str]] = {}
    for log in logs:
        boots.setdefault(log.host, set()).add(log.boot)
    labels = [
        f"{log.host}, boot {log.boot[:8] or 'unknown'}" if len(boots[log.host]) > 1 else log.host
        for log in logs
    ]
    shared = Counter(labels)
    names = _distinct([log.name for log in logs])
    placed = []
    for number, (log, label, name) in enumerate(zip(logs, labels, names, strict=True), 1):
        place = Place(
            f"{number} of {trace}", label, number, label, trace=trace, aligned=log.aligned
        )
        if shared[label] > 1:
            key = f"{label} of {trace}"
            place = replace(place, label=name, host=f"{label}: {name}", above=label, above_key=key)
        placed.append(place)
    return placed


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names in order, with ` (2)`, ` (3)`, … behind those that occur again.

    A number is passed over if that makes a name that one of the logs has by itself.
    """
    taken = set(names)
    seen: set[str] = set()
    distinct = []
    for name in names:
        numbered = (f"{name} ({number})" for number in count(2))
        free = name if name not in seen else next(one for one in numbered if one not in taken)
        taken.add(free)
        seen.add(name)
        distinct.append(free)
    return distinct
