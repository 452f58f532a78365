# SPDX-License-Identifier: Apache-2.0
"""Trees of many lives as one: what has the same place in each is one node, with its figures."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.events.tables import NEVER
from biotrail.converters.sites.trees import (
    KIND_NAMES,
    ContextKind,
    ContextRun,
    Life,
    Node,
    NodeKind,
)

MOST_NODES = 50_000
"""Nodes of a merged tree at most; the figures of more are not kept, but counted."""
_OCCURRENCES = 3
"""Contexts of one kind in a life are told apart by which one they are; from the third on not."""
_BUFFER = 512


class Figures:
    """Figures of a quantity (ns): count, sum, percentiles, in bounded memory."""

    __slots__ = ("_all", "_new", "total")

    def __init__(self) -> None:
        self._all = Distribution()
        self._new: list[int] = []
        self.total = 0

    def add(self, value: int) -> None:
        self._new.append(value)
        self.total += value
        if len(self._new) >= _BUFFER:
            self._flush()

    def _flush(self) -> None:
        self._all.add(np.array(self._new, np.int64))
        self._new = []

    @property
    def of(self) -> Distribution:
        if self._new:
            self._flush()
        return self._all

    def percentile(self, share: float) -> int:
        return self.of.percentiles([share])[0]


@dataclass
class Calls:
    """The calls of a function, or hits of a tracepoint, of many lives."""

    kind: NodeKind
    name: str
    module: str
    calls: int = 0
    lives: int = 0
    last: int = 0
    """Number of the life that was counted last."""
    unfinished: int = 0
    took: Figures = field(default_factory=Figures)
    """From entry to return, of calls that have both; of tracepoints and frames nothing."""
    own: Figures = field(default_factory=Figures)
    """The part of `took` in the function itself."""

    def add(self, node: Node, life: int) -> bool:
        """Add a call of the life of that number, from 1; return whether it is the life's first."""
        first = self.last != life
        self.calls += 1
        self.lives += first
        self.last = life
        if node.kind == NodeKind.FUNCTION:
            if node.end == NEVER:
                self.unfinished += 1
            else:
                self.took.add(node.took)
                self.own.add(node.own)
        return first


@dataclass
class MergedNode(Calls):
    start: Figures = field(default_factory=Figures)
    """From the life's begin to the first call in the life."""
    below: "dict[tuple[str, bool], MergedNode]" = field(default_factory=dict)
    """By name, and whether the node has times of its own."""


@dataclass
class MergedContext:
    """Contexts of one kind that came at the same place in the lives."""

    kind: ContextKind
    name: str
    """Of a task the name of its thread, of others that of the kind: as texts begin."""
    what: str
    which: int
    """From 1: the first such context in a life, the second, the third and all later ones."""
    runs: int = 0
    lives: int = 0
    last: int = 0
    start: Figures = field(default_factory=Figures)
    """From the life's begin to the context's first hit, of the first in the life."""
    waited: Figures = field(default_factory=Figures)
    """From the last hit before, in any context, to the first in it; of those where there is time
    between."""
    took: Figures = field(default_factory=Figures)
    roots: dict[tuple[str, bool], MergedNode] = field(default_factory=dict)


Placed = TypeVar("Placed", MergedNode, MergedContext)


def in_order(nodes: Iterable[Placed]) -> list[Placed]:
    """Return nodes in the order of their mean starts; of equal ones, that of most lives first."""
    return sorted(nodes, key=lambda one: (one.start.total / max(one.start.of.count, 1), -one.lives))


class Merged:
    def __init__(self) -> None:
        self.lives = 0
        self.took = Figures()
        """From birth to death of the lives that have both."""
        self.spans = Figures()
        """The time of each life that is known: from birth, or the first hit, to the last."""
        self.hits = 0
        self.unfinished = 0
        self.alone = 0
        """Returns whose entry is not recorded."""
        self.lost = 0
        """Lives during which records were lost, or for some of whose hits there was no room."""
        self.left_out = 0
        """Nodes of lives for which there was no room."""
        self._contexts: dict[tuple[object, ...], MergedContext] = {}
        self._nodes = 0

    def contexts(self) -> list[MergedContext]:
        return in_order(self._contexts.values())

    def add(self, life: Life) -> None:
        self.lives += 1
        self.hits += life.hits
        self.unfinished += life.unfinished
        self.alone += life.alone
        self.lost += life.lost or life.cut
        self.spans.add(max(life.span, 0))
        if life.took != NEVER:
            self.took.add(life.took)
        seen: dict[tuple[object, ...], int] = {}
        until = life.begin
        for run in life.contexts:
            self._add_run(life, run, seen, run.begin - until)
            until = max(until, run.end)

    def _add_run(
        self, life: Life, run: ContextRun, seen: dict[tuple[object, ...], int], waited: int
    ) -> None:
        """seen: number of contexts so far by key; this one is added."""
        name = run.comm if run.kind == ContextKind.TASK else KIND_NAMES[run.kind]
        like = run.kind, name, run.what
        seen[like] = min(seen.get(like, 0) + 1, _OCCURRENCES)
        key = (*like, seen[like])
        context = self._contexts.get(key)
        if context is None:
            if not self._has_room(life, run.roots):
                return
            context = self._contexts[key] = MergedContext(run.kind, name, run.what, seen[like])
        context.runs += 1
        if context.last != self.lives:
            context.last = self.lives
            context.lives += 1
            context.start.add(max(run.begin - life.begin, 0))
        if waited > 0:
            context.waited.add(waited)
        context.took.add(run.end - run.begin)
        rest = [(index, context.roots) for index in reversed(run.roots)]
        while rest:
            index, beside = rest.pop()
            node = life.nodes[index]
            place = node.name, node.kind != NodeKind.FRAME
            found = beside.get(place)
            if found is None:
                if not self._has_room(life, [index]):
                    continue
                found = beside[place] = MergedNode(node.kind, node.name, node.module)
            if found.add(node, self.lives):
                found.start.add(max(node.begin - life.begin, 0))
            rest += [(below, found.below) for below in reversed(node.below)]

    def _has_room(self, life: Life, roots: list[int]) -> bool:
        if self._nodes < MOST_NODES:
            self._nodes += 1
            return True
        self.left_out += sum(1 for _ in life.walk(roots))
        return False
