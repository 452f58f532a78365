# SPDX-License-Identifier: Apache-2.0
"""One load's bios as two tools recorded them at once, held against each other."""

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biotrail.converters.events.tables import NEVER, Certainty
from biotrail.converters.pipeline import Trace

Key = tuple[int, int, int, str]
"""Disk, sector, bytes and operation of a bio."""
STEPS = ("getrq", "merge", "insert", "issue", "complete")


@dataclass
class Bio:
    """What a recording says of a bio, and of the request that finished last of its own.

    steps: which of STEPS it has. request: sector, bytes, number of bios; None: not known.
    """

    key: Key
    queue: int
    steps: tuple[bool, ...]
    fragments: int
    requests: int
    requeues: int
    status: int
    done_bytes: int
    request: tuple[int, int, int] | None
    certainty: Certainty
    latency: int
    """From Q to C (ns); NEVER: not known."""
    doubtful: bool

    @property
    def facts(self) -> tuple[Any, ...]:
        """All that two recordings of one bio must agree on."""
        counts = (self.fragments, self.requests, self.requeues, self.status, self.done_bytes)
        return (self.key, self.steps, *counts, self.request)


@dataclass
class Comparison:
    """How many bios were equal, said to be inexact, or left out as ours lacks their end; others."""

    equal: int = 0
    inexact: int = 0
    unended: int = 0
    wrong: list[tuple[Bio, Bio]] = field(default_factory=list)
    numbers: list[tuple[Key, int, int]] = field(default_factory=list)
    """Bios of which one recording has more: (what, ours, theirs)."""


def bios(recording: Path | str, devices: Collection[int]) -> list[Bio]:
    """Return the bios of some disks (dev_t) in a recording of any tool, in the order of Q."""
    trace = Trace(recording)
    found: list[Bio] = []
    for tables in trace.lifecycles():
        requests = {
            int(number): (int(sector), int(size), int(count))
            for number, sector, size, count in zip(
                tables.requests.number,
                tables.requests.sector,
                tables.requests.bytes,
                tables.requests.bios,
                strict=True,
            )
        }
        table = tables.bios
        for row in range(len(table)):
            if int(table.dev[row]) not in devices:
                continue
            operation = trace.context.op_name(int(table.opf[row]))
            queue, complete = int(table.queue[row]), int(table.complete[row])
            found.append(
                Bio(
                    (int(table.dev[row]), int(table.sector[row]), int(table.bytes[row]), operation),
                    queue,
                    tuple(int(getattr(table, step)[row]) != NEVER for step in STEPS),
                    int(table.fragments[row]),
                    int(table.requests[row]),
                    int(table.requeues[row]),
                    int(table.status[row]),
                    int(table.done_bytes[row]),
                    requests.get(int(table.request[row])),
                    Certainty(int(table.certainty[row])),
                    NEVER if NEVER in (queue, complete) else max(complete - queue, 0),
                    bool(table.doubtful[row]),
                )
            )
    return sorted(found, key=lambda bio: bio.queue)


def compare(ours: list[Bio], theirs: list[Bio]) -> Comparison:
    """Hold a tool's bios against biotrail's own, the n-th of a range and operation with the n-th.

    A bio of which ours has no completion is left out (no BPF program was run for it), with all that
    its request served.
    """
    found = Comparison()
    mine, yours = _by_key(ours), _by_key(theirs)
    for key in sorted(mine.keys() | yours.keys()):
        if len(mine[key]) != len(yours[key]):
            found.numbers.append((key, len(mine[key]), len(yours[key])))
            continue
        for one, other in zip(mine[key], yours[key], strict=True):
            if not one.steps[-1]:
                found.unended += 1
            elif other.certainty > Certainty.INTERVAL:
                found.inexact += 1
            elif one.facts == other.facts:
                found.equal += 1
            else:
                found.wrong.append((one, other))
    return found


def certainties(found: list[Bio]) -> Counter[str]:
    """Return how many bios are known how well."""
    return Counter(bio.certainty.name.lower() for bio in found)


def _by_key(found: list[Bio]) -> dict[Key, list[Bio]]:
    """Return the bios by what they are, each in their order."""
    by_key: dict[Key, list[Bio]] = defaultdict(list)
    for bio in found:
        by_key[bio.key].append(bio)
    return by_key


def held(log: Path, recording: Path, *devs: int) -> Comparison:
    """Compare the bios of some disks in biotrail's log and a tool's; none is wrong, none lost."""
    trace = Trace(log)
    begun = trace.start  # the tool may have begun before, while a device was still looked at
    theirs = [bio for bio in bios(recording, devs) if bio.queue >= begun]
    found = compare(bios(log, devs), theirs)
    assert not found.wrong, (recording.name, found.wrong[:3])
    assert not found.numbers, (recording.name, found.numbers[:3], _lost(log))
    known = certainties(theirs)
    assert set(known) <= {"interval", "ambiguous", "incomplete"}, (known, _lost(recording))
    return found


def _lost(recording: Path) -> list[Any]:
    """What a recording has lost, as its reader tells it."""
    trace = Trace(recording)
    list(trace.events())
    return [*trace.losses, *trace.reader.problems]
