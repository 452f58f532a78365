# SPDX-License-Identifier: Apache-2.0
"""Compute a device's counters from its bios, window by window."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, U8, U32, Bios, Bool
from biotrail.converters.outputs.counters import (
    LEVEL_BIN,
    READ_OPS,
    WRITE_OPS,
    Level,
    Samples,
    Throughput,
)
from biotrail.converters.outputs.perfetto.columns import Slices
from biotrail.converters.outputs.perfetto.encode import distinct
from biotrail.converters.outputs.perfetto.lanes import FOREVER
from biotrail.converters.outputs.perfetto.names import IN_DEVICE, QUEUED
from biotrail.converters.outputs.perfetto.tree import READS, WRITES

_IN, _OUT = 1, 2
_DIRECTIONS = dict.fromkeys(READ_OPS, _IN) | dict.fromkeys(WRITE_OPS, _OUT)
_STARTED, _ISSUED, _ENDED = 1, 2, 4
_FINE_BIN, _FEW = 250_000, 4
"""ns: length of a bin, and the most changes in a bin that are a sample each."""


def _none() -> I64:
    """Return an empty array."""
    return np.zeros(0, dtype=np.int64)


@dataclass
class Passage:
    """When bios of one device were queued, issued and ended. Shape (n,); times in ns."""

    number: I64
    start: I64
    issue: I64
    """NEVER: not issued."""
    end: I64
    """FOREVER: in flight, or its end is not known."""
    done_bytes: I64
    """Bytes completed; 0 without a completion."""
    read: Bool
    write: Bool

    @classmethod
    def of(cls, context: Context, slices: Slices, table: Bios, dev: int) -> "Passage":
        """Return the passage of slices on `dev`. table: the bios that the slices were made from."""
        chosen = np.flatnonzero(slices.group == dev)
        rows = slices.rows[chosen]
        direction = _directions(context, table.opf[rows])
        complete = table.complete[rows]
        end = slices.end[chosen]
        return cls(
            number=slices.number[chosen],
            start=slices.start[chosen],
            issue=table.issue[rows],
            end=np.where((end == FOREVER) & (complete >= 0), complete, end),
            done_bytes=np.where(complete >= 0, table.done_bytes[rows], 0),
            read=direction == _IN,
            write=direction == _OUT,
        )

    def states(self) -> U8:
        """Return per bio what has happened to it: _STARTED | _ISSUED | _ENDED, uint8."""
        state = np.full(len(self.number), _STARTED, dtype=np.uint8)
        state[self.issue >= 0] |= _ISSUED
        state[self.end != FOREVER] |= _ENDED
        return state


def _directions(context: Context, opf: U32) -> U8:
    """Return per bi_opf (n,) whether the operation reads (_IN), writes (_OUT) or neither (0)."""
    if not len(opf):
        return np.zeros(0, dtype=np.uint8)
    found, codes = distinct(opf)
    directions = [_DIRECTIONS.get(context.op_name(int(o)), 0) for o in found]
    return np.array(directions, dtype=np.uint8)[codes]


@dataclass
class Gauges:
    """Queue depths and throughput of one device.

    A bio in flight at a window's end is passed again with the next window: only what happened to it
    since is counted.
    """

    origin: int
    """ns: begin of the trace, where the counters begin."""
    fine: bool = True
    """Whether up to _FEW changes within _FINE_BIN are a sample each; else levels have a peak and a
    rest per ms."""
    _number: I64 = field(default_factory=_none)
    """Bios that were in flight at the last window's end, sorted."""
    _state: U8 = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    """Per bio of `_number`: its state that is counted already."""
    _stuck: list[int] = field(default_factory=lambda: [0, 0])
    """Numbers of ended bios whose slice stays open: [never issued, issued]."""

    def __post_init__(self) -> None:
        thinned = (_FINE_BIN, _FEW) if self.fine else (LEVEL_BIN, 0)
        self._queued, self._in_device = (Level(self.origin, *thinned) for _ in range(2))
        self._reads, self._writes = Throughput(self.origin), Throughput(self.origin)

    def update(self, begin: int, end: int, over: Passage, under_way: Passage) -> dict[str, Samples]:
        """Return the samples (by counter) that the window completes.

        begin, end: the window's, ns. over: its bios; under_way: those in flight at its end.
        """
        up, issued, down, unissued = [], [], [], []
        moved: dict[str, list[I64]] = {READS: [], WRITES: []}
        sizes: dict[str, list[I64]] = {READS: [], WRITES: []}
        for passage in (over, under_way):
            new = passage.states() & ~self._counted_states(passage, begin)
            up.append(np.maximum(passage.start[new & _STARTED > 0], begin))
            issued.append(np.maximum(passage.issue[new & _ISSUED > 0], begin))
            ended = new & _ENDED > 0
            at = np.maximum(passage.end, begin)
            down.append(at[ended & (passage.issue >= 0)])
            unissued.append(at[ended & (passage.issue < 0)])
            for name, kind in ((READS, passage.read), (WRITES, passage.write)):
                moved[name].append(at[ended & kind])
                sizes[name].append(passage.done_bytes[ended & kind])
        queued, in_device = self._remember(over, under_way)
        dequeued, completed = np.concatenate([*issued, *unissued]), np.concatenate(down)
        return {
            QUEUED: self._queued.update(np.concatenate(up), dequeued, end, queued),
            IN_DEVICE: self._in_device.update(np.concatenate(issued), completed, end, in_device),
            **{
                name: rate.update(np.concatenate(moved[name]), np.concatenate(sizes[name]), end)
                for name, rate in ((READS, self._reads), (WRITES, self._writes))
            },
        }

    def finish(self, end: int) -> dict[str, Samples]:
        """Return the samples that were held back. end: the trace's, ns; none is later."""
        return {
            QUEUED: self._queued.finish(end),
            IN_DEVICE: self._in_device.finish(end),
            READS: self._reads.finish(end),
            WRITES: self._writes.finish(end),
        }

    def _counted_states(self, passage: Passage, begin: int) -> U8:
        """Return per bio (n,) the state that earlier windows counted; 0: not seen before."""
        states = np.zeros(len(passage.number), dtype=np.uint8)
        early = np.flatnonzero(passage.start < begin)
        if not len(self._number) or not len(early):
            return states
        number = passage.number[early]
        at = np.minimum(np.searchsorted(self._number, number), len(self._number) - 1)
        states[early] = np.where(self._number[at] == number, self._state[at], 0)
        return states

    def _remember(self, over: Passage, under_way: Passage) -> tuple[int, int]:
        """Keep the states of bios in flight; return (queued, in device) at the window's end."""
        state = under_way.states()
        order = np.argsort(under_way.number, kind="stable")
        self._number, self._state = under_way.number[order], state[order]
        stuck = over.states()
        waits, runs = _STARTED, _STARTED | _ISSUED
        self._stuck[0] += int((stuck == waits).sum())
        self._stuck[1] += int((stuck == runs).sum())
        return (
            int((state == waits).sum()) + self._stuck[0],
            int((state == runs).sum()) + self._stuck[1],
        )
