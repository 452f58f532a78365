# SPDX-License-Identifier: Apache-2.0
"""What `blame` says of a log, at once and as it goes; and histories at random."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from biotrail.converters.analysis.blame import company
from biotrail.converters.analysis.blame.blame import BlameOptions, First, Second, close
from biotrail.converters.analysis.blame.online import Online, Waits
from biotrail.converters.analysis.blame.tree import Blamed, Kind, Victim
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from tests.support.blame_logs import MS, US, Io, S

BY_PROCESS = ("process", "process")


def blamed(
    path: Path, window: int = WINDOW_EVENTS, by: tuple[str, str] = BY_PROCESS, **more: Any
) -> Blamed:
    options = BlameOptions(by, **more)

    def learn(paused: Sequence[dict[str, Any]] = ()) -> First:
        trace = Trace(path)
        found = First(trace.context, Choice(trace.context), options, paused)
        for _ in found.watch(trace.lifecycles(window, small=True)):
            pass
        return found

    first = learn()
    if (paused := first.again) is not None:
        first = learn(paused)
    trace = Trace(path)
    second = Second(trace.context, Choice(trace.context), first)
    for _ in second.watch(trace.lifecycles(window, small=True)):
        pass
    return close(second)


def victim(found: Blamed, name: str) -> Victim:
    [one] = [one for one in found.victims if one.name == name]
    return one


def part(one: Victim, kind: Kind, culprit: str | None = None) -> int:
    return sum(p.wait_ns for p in one.parts if p.kind == kind and p.culprit == culprit)


def random_ios(seed: int) -> list[Io]:
    """Up to 300 I/Os of three programs, some of them over a second long."""
    rng = random.Random(seed)
    ios = []
    for _ in range(rng.randrange(20, 300)):
        queue = rng.randrange(0, 4 * S, 1000)
        issue = queue + rng.choice([1, 5, 400]) * US * rng.randrange(1, 4)
        takes = rng.choice([40 * US, 300 * US, 20 * MS, 1_500 * MS if rng.random() < 0.1 else MS])
        comm = rng.choice(["app", "backup", "scan"])
        op, sectors = rng.choice([("R", 8), ("W", 64)])
        ios.append(Io(comm, queue, issue, issue + takes + rng.randrange(1000), op, sectors))
    return ios


def is_long(io: Io) -> bool:
    return io.complete - io.issue > company.LONG_NS


def waits(path: Path, window: int = WINDOW_EVENTS, by: str = "process") -> Waits:
    trace = Trace(path)
    found, whole = Online(trace.context, by), Waits()
    for one in [*trace.lifecycles(window, small=True), None]:
        whole.merge(found.add(one)[0])
    return whole
