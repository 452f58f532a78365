# SPDX-License-Identifier: Apache-2.0
"""A log's tables by the machine of converters/match, and what differs between two readings."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import STAGE_NAMES, Bios, Edges, Requests, Stage, Stages
from biotrail.converters.lifecycles.losses import loss_windows, mark_lost
from biotrail.converters.match import rules
from biotrail.converters.match.tables import Matcher
from biotrail.converters.pipeline import Trace

NAMES = ("bios", "requests", "edges", "bio_stages", "request_stages")
KINDS = (Bios, Requests, Edges, Stages, Stages)
LATE = 1 << 60
"""ns: nothing is closed before the log's end."""


@dataclass
class Matched:
    """All rows of a log."""

    bios: Bios
    requests: Requests
    edges: Edges
    bio_stages: Stages
    request_stages: Stages


def by_machine(
    log: Any, settle_ns: int = LATE, window_events: int = 1 << 40, associate: str = "identity"
) -> Matched:
    """The tables by the machine, which takes `window_events` at once; own I/O included.

    settle_ns: how long it waits for late events before it closes what is over. associate: as
    `Trace` has it.
    """
    trace = Trace(log, associate, own_io=True)
    matcher = Matcher(trace.context, trace.tasks, trace.stacks, by_intervals=trace.by_intervals)
    parts = []
    lost = 0
    for events, _ in trace.events(window_events):
        trace.tasks.add_records(events)
        losses = loss_windows(trace.reader.losses, trace.reader.damaged)
        matcher.lose(losses.end[lost:])
        lost = len(losses)
        for first in range(0, len(events), window_events):
            some = events.take(slice(first, first + window_events))
            before = int(some.ts[-1]) - settle_ns
            parts.append(_tables(matcher.build(some, settle_ns=settle_ns, before=before)))
    last = matcher.build(Events.empty(), settle_ns=settle_ns, before=None)
    parts.append(_tables(last))
    return _whole(trace, parts)


def _tables(rows: Any) -> tuple[Any, ...]:
    return tuple(getattr(rows, name) for name in NAMES)


def _whole(trace: Trace, parts: list[Any]) -> Matched:
    """The parts' tables, each as one; what was in flight during a loss is marked."""
    tables = zip(*parts, strict=True)
    found = [kind.concatenate(list(t)) for kind, t in zip(KINDS, tables, strict=True)]
    matched = Matched(*found)
    loss = loss_windows(trace.reader.losses, trace.reader.damaged)
    for table in (matched.bios, matched.requests):
        mark_lost(table, loss, by_intervals=trace.by_intervals)
    return matched


def as_rows(matched: Matched) -> SimpleNamespace:
    """The tables as `tests.simulation.check.Tables` has them: rows as dicts, stages by owner."""
    found = {}
    for name, kind in zip(NAMES[:3], KINDS, strict=False):
        columns = [f.name for f in fields(kind)]
        rows = _rows(getattr(matched, name), columns)
        found[name] = [dict(zip(columns, row, strict=True)) for row in rows]
    for name in NAMES[3:]:
        stages: dict[int, list[tuple[str, int, int]]] = {}
        for owner, stage, start, end in _rows(
            getattr(matched, name), [f.name for f in fields(Stages)]
        ):
            stages.setdefault(owner, []).append((STAGE_NAMES[Stage(stage)], start, end))
        found[name] = stages
    return SimpleNamespace(**found)


def unlike(one: Matched, other: Matched) -> list[str]:
    """What differs between two readings, in words; empty: nothing does."""
    found = []
    for name, kind in zip(NAMES, KINDS, strict=True):
        columns = [f.name for f in fields(kind)]
        rows = [Counter(_rows(getattr(m, name), columns)) for m in (one, other)]
        found += [f"{name}: only the first has {_said(columns, r)}" for r in rows[0] - rows[1]]
        found += [f"{name}: only the second has {_said(columns, r)}" for r in rows[1] - rows[0]]
    return found


def _rows(table: Any, columns: list[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(getattr(table, c).tolist() for c in columns), strict=True))


def _said(columns: list[str], row: tuple[Any, ...]) -> str:
    return str(dict(zip(columns, row, strict=True)))


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Switch rules of the machine off. names: `TABLE/RULE`."""
    rules.OFF.update(names)
    try:
        yield
    finally:
        rules.OFF.difference_update(names)
