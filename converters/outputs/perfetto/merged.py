# SPDX-License-Identifier: Apache-2.0
"""Several logs in one Perfetto trace: a root for each host, one log behind the other."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from biotrail.converters.outputs.perfetto.place import Place


@dataclass(frozen=True)
class Named:
    """What tells a log of a trace from the others. `boot`: empty where it is not known."""

    log_id: str
    host: str
    boot: str
    name: str
    """Of its file."""
    aligned: bool
    """Its times are brought onto another machine's timeline, or another log's."""


def places(logs: Sequence[Named]) -> list[Place]:
    """Where each log stands. Every host has a root, every boot where there are several of one.

    Logs of one boot share the root, each with a group of its own below.
    """
    trace = " ".join(f"{log.log_id} {log.name}" for log in logs)
    labels = _labels(logs)
    shared = Counter(labels)
    names = _distinct([log.name for log in logs])
    found = []
    for number, (log, label, name) in enumerate(zip(logs, labels, names, strict=True), 1):
        place = Place(
            f"{number} of {trace}", label, number, label, trace=trace, aligned=log.aligned
        )
        if shared[label] > 1:
            key = f"{label} of {trace}"
            place = replace(place, label=name, host=f"{label}: {name}", above=label, above_key=key)
        found.append(place)
    return found


def _labels(logs: Sequence[Named]) -> list[str]:
    """The host of each; with its boot where logs of several boots are there."""
    boots: dict[str, set[str]] = {}
    for log in logs:
        boots.setdefault(log.host, set()).add(log.boot)
    return [
        f"{log.host}, boot {log.boot[:8] or 'unknown'}" if len(boots[log.host]) > 1 else log.host
        for log in logs
    ]


def _distinct(names: Sequence[str]) -> list[str]:
    """Names with a number behind those that occur again."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found
