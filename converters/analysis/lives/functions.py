# SPDX-License-Identifier: Apache-2.0
"""Functions and tracepoints of many lives by their time, and the same as a flame graph.

Functions have the time that they took. Where a log has tracepoints alone, these have the time until
the life's next hit: what came after them.
"""

from biotrail.converters.analysis.lives.merged import Calls
from biotrail.converters.events.tables import NEVER
from biotrail.converters.sites.trees import (
    KIND_NAMES,
    ContextKind,
    ContextRun,
    Life,
    NodeKind,
)

MOST_STACKS = 50_000
"""Stacks of a flame graph at most; further ones are counted."""


class Functions:
    def __init__(self, functions: bool) -> None:
        self.has_functions = functions
        self.lives = 0
        self.time = 0
        self.left_out = 0
        self._by_name: dict[tuple[NodeKind, str, str], Calls] = {}
        self._stacks: dict[tuple[str, ...], tuple[int, int]] = {}
        """Names from the context inwards → (calls, ns)."""

    def rows(self) -> list[Calls]:
        """Most time first; of tracepoints until the next hit, if the log has no functions."""
        return sorted(self._by_name.values(), key=lambda f: (-f.took.total, -f.calls, f.name))

    def stacks(self) -> list[tuple[tuple[str, ...], int, int]]:
        """Return (names from the context inwards, calls, ns of the innermost itself) of each."""
        return sorted((names, *values) for names, values in self._stacks.items())

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
            above = [context_name(run)]
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
                calls, spent = self._stacks.get(stack, (0, 0))
                if calls or len(self._stacks) < MOST_STACKS:
                    self._stacks[stack] = calls + 1, spent + own
                else:
                    self.left_out += 1


def context_name(run: ContextRun) -> str:
    """What contexts of one kind share, as the outermost frame: `fio`, `softirq`."""
    name = KIND_NAMES[run.kind]
    if run.kind == ContextKind.TASK:
        return run.comm or name
    return f"{name} {run.what}" if run.what and run.kind <= ContextKind.THREAD else name
