# SPDX-License-Identifier: Apache-2.0
"""Figures of timed system calls: of those of one name, or of one name in a group or slot."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.sketch import Distribution, Mergeable
from biotrail.converters.calls.names import MOVES_BYTES, name_of_call, name_of_error
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import Calls
from biotrail.converters.events.tables import I64, NEVER

CALL_PARTS = ("running", "runnable", "own_io", "other_io", "otherwise", "undivided")
"""Columns of Calls that divide a call's time, in the order in which they are shown."""


@dataclass
class CallFigures(Mergeable):
    """Figures of the calls of one name that did I/O, or of those that did none."""

    count: int = 0
    bytes: int = 0
    bios: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    time: Distribution = field(default_factory=Distribution)
    """ns from entry to return, of calls whose entry is known."""
    parts: dict[str, Distribution] = field(default_factory=dict)
    """Name in CALL_PARTS → ns, of the calls that have such a part."""

    def add(self, calls: Calls, name: str) -> None:
        self.count += len(calls)
        self.bios += int(calls.bios.sum(dtype=np.int64))
        if name in MOVES_BYTES:
            self.bytes += int(np.maximum(calls.result, 0).sum(dtype=np.int64))
        results, counts = np.unique(calls.result[calls.result < 0], return_counts=True)
        for result, count in zip(results.tolist(), counts.tolist(), strict=True):
            if error := name_of_error(result):
                self.errors[error] += count
        timed = calls.take(calls.entry != NEVER)
        self.time.add(timed.exit - timed.entry)
        for part in CALL_PARTS:
            ns = getattr(timed, part)
            if ns.any():
                self.parts.setdefault(part, Distribution()).add(ns[ns > 0])


def coded(calls: Calls) -> I64:
    """Code of the name, and of whether it queued a bio, or waited for its own or other I/O."""
    did_io = (calls.bios > 0) | (calls.own_io > 0) | (calls.other_io > 0)
    return (calls.number.astype(np.int64) * 4 + calls.timed * 2 + calls.foreign) * 2 + did_io


def named(code: int, context: Context) -> tuple[str, bool]:
    """Return (name of the call, whether it did I/O) of a code of `coded`."""
    foreign, timed = bool(code & 2), bool(code & 4)
    return name_of_call(code >> 3, foreign, context.machine, timed), bool(code & 1)


def by_pair(first: I64, second: I64) -> Iterator[tuple[int, int, I64]]:
    """Yield (value of `first`, value of `second`, rows) for each distinct pair, ascending."""
    order = np.lexsort((second, first))
    new = (np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)
    for rows in np.split(order, np.flatnonzero(new) + 1) if len(order) else ():
        yield int(first[rows[0]]), int(second[rows[0]]), rows
