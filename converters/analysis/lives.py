# SPDX-License-Identifier: Apache-2.0
"""Many lives of followed objects: as one tree, and their functions by time.

In the tree what has the same place in each life is one node, with its figures. Functions have the
time that they took. Where a log has tracepoints alone, these have the time until the life's next
hit: what came after them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.events.tables import NEVER
from biotrail.converters.sites.trees import (
    KIND_NAMES,
    ContextKind,
    Life,
    Node,
    NodeKind,
)

MOST_NODES = 50_000
"""Nodes of a merged tree at most; the figures of more are not kept, but counted."""
_OCCURRENCES = 3
"""Contexts of one kind in a life are told apart by which one they are; from the third on not."""
_BUFFER = 512

MOST_STACKS = 50_000
"""Stacks of a flame graph at most; further ones are counted."""


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
            _ = self.of

    @property
    def of(self) -> Distribution:
        if self._new:
            self._all.add(np.array(self._new, np.int64))
            self._new = []
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


@dataclass
class Merged:
    lives: int = 0
    took: Figures = field(default_factory=Figures)
    """From birth to death of the lives that have both."""
    spans: Figures = field(default_factory=Figures)
    """The time of each life that is known: from birth, or the first hit, to the last."""
    hits: int = 0
    unfinished: int = 0
    alone: int = 0
    """Returns whose entry is not recorded."""
    lost: int = 0
    """Lives during which records were lost, or for some of whose hits there was no room."""
    left_out: int = 0
    """Nodes of lives for which there was no room."""
    _contexts: dict[tuple[object, ...], MergedContext] = field(default_factory=dict)
    _nodes: int = 0

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
            waited, until = run.begin - until, max(until, run.end)
            name = run.comm if run.kind == ContextKind.TASK else KIND_NAMES[run.kind]
            like = run.kind, name, run.what
            seen[like] = min(seen.get(like, 0) + 1, _OCCURRENCES)
            key = (*like, seen[like])
            if key not in self._contexts:
                if not self._has_room(life, run.roots):
                    continue
                self._contexts[key] = MergedContext(run.kind, name, run.what, seen[like])
            context = self._contexts[key]
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
                if place not in beside:
                    if not self._has_room(life, [index]):
                        continue
                    beside[place] = MergedNode(node.kind, node.name, node.module)
                found = beside[place]
                if found.add(node, self.lives):
                    found.start.add(max(node.begin - life.begin, 0))
                rest += [(below, found.below) for below in reversed(node.below)]

    def _has_room(self, life: Life, roots: list[int]) -> bool:
        if self._nodes < MOST_NODES:
            self._nodes += 1
            return True
        self.left_out += sum(1 for _ in life.walk(roots))
        return False


@dataclass
class Functions:
    has_functions: bool
    lives: int = 0
    time: int = 0
    left_out: int = 0
    stacks: dict[tuple[str, ...], tuple[int, int]] = field(default_factory=dict)
    """Names from the context inwards → (calls, ns of the innermost itself)."""
    _by_name: dict[tuple[NodeKind, str, str], Calls] = field(default_factory=dict)

    def rows(self) -> list[Calls]:
        """Most time first; of tracepoints until the next hit, if the log has no functions."""
        return sorted(self._by_name.values(), key=lambda f: (-f.took.total, -f.calls, f.name))

    def add(self, life: Life) -> None:
        self.lives += 1
        self.time += max(life.span, 0)
        # Per hit the ns until the next one; of the last one 0. A death that is not the last hit
        # (functions return after it) ends the time of the one before.
        following, before = [0] * len(life.node_of), -1
        for at, index in enumerate(life.node_of):
            node = life.nodes[index]
            time = node.begin if node.hit == at else node.end
            if before >= 0:
                following[at - 1] = max(time - before, 0)
            before = time
        for run in life.contexts:
            # What contexts of one kind share, as the outermost frame: `fio`, `softirq`.
            name = KIND_NAMES[run.kind]
            if run.kind == ContextKind.TASK:
                name = run.comm or name
            elif run.what and run.kind <= ContextKind.THREAD:
                name = f"{name} {run.what}"
            above = [name]
            for node in life.walk(run.roots):
                del above[1 + node.depth :]
                above.append(node.name)
                if node.kind == NodeKind.FRAME:
                    continue
                key = node.kind, node.name, node.module
                if key not in self._by_name:
                    self._by_name[key] = Calls(*key)
                self._by_name[key].add(node, self.lives)
                own = 0
                if node.kind == NodeKind.FUNCTION:
                    own = 0 if node.end == NEVER else node.own
                elif not self.has_functions:
                    own = following[node.hit]
                    self._by_name[key].took.add(own)
                stack = tuple(above)
                calls, spent = self.stacks.get(stack, (0, 0))
                if calls or len(self.stacks) < MOST_STACKS:
                    self.stacks[stack] = calls + 1, spent + own
                else:
                    self.left_out += 1
