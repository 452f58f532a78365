# SPDX-License-Identifier: Apache-2.0
"""Place several logs in one Perfetto trace: a root for each host, one log behind the other."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from biotrail.converters.outputs.perfetto.tracks.place import Place


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

    Every host has a root group of tracks, or every boot if a host has several boots. Logs of one
    boot share the root, each with a group of its own below, named after its file. Their slices'
    `host` is the root's name, followed by the file's if the root is shared. `sequences`, `families`
    and `facts` are left to the caller.
    """
    trace = " ".join(f"{log.log_id} {log.name}" for log in logs)
    labels = _labels(logs)
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


def _labels(logs: Sequence[Named]) -> list[str]:
    """Return, per log, the name of its root: its host, with the boot where the host has several.

    The boot is the first 8 digits of its id, or `unknown`: `db1, boot 1f0e2d3c`.
    """
    boots: dict[str, set[str]] = {}
    for log in logs:
        boots.setdefault(log.host, set()).add(log.boot)
    return [
        f"{log.host}, boot {log.boot[:8] or 'unknown'}" if len(boots[log.host]) > 1 else log.host
        for log in logs
    ]


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
