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
from biotrail.converters.outputs.perfetto.names import IN_DEVICE, QUEUED
from biotrail.converters.outputs.perfetto.packets.columns import Slices
from biotrail.converters.outputs.perfetto.packets.encode import distinct
from biotrail.converters.outputs.perfetto.tracks.lanes import FOREVER
from biotrail.converters.outputs.perfetto.tracks.tree import READS, WRITES

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
        """Return the times of the bios that have a slice on `dev` (dev_t), in the slices' order.

        slices: of bios; table: the bios that they were made from. A bio whose slice is open has its
        completion as end if one is known. Whether it reads or writes follows from its operation;
        flushes and discards do neither.
        """
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
    """Return per bi_opf (n,) uint8: _IN if the operation reads, _OUT if it writes data, else 0."""
    if not len(opf):
        return np.zeros(0, dtype=np.uint8)
    opfs, codes = distinct(opf)
    directions = [_DIRECTIONS.get(context.op_name(int(o)), 0) for o in opfs]
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

    def update(
        self, begin: int, end: int, ended: Passage, in_flight: Passage
    ) -> dict[str, Samples]:
        """Take in a window's bios of the device; return, by counter's name, the samples now final.

        begin, end: ns, between which the bios' changes are counted: an earlier one that was not
        counted yet counts at `begin`; all before `end` are known. ended: bios that the window
        ended; in_flight: those in flight at its end, which a later call has again. Samples are
        (times in ns, values), sorted. Counters: QUEUED, bios that are neither issued nor ended;
        IN_DEVICE, issued and not ended; READS and WRITES, bytes/s. Both depths are corrected just
        before `end` where they differ from the bios in flight. Remembers the states of `in_flight`.
        """
        up, issued, down, unissued = [], [], [], []
        moved: dict[str, list[I64]] = {READS: [], WRITES: []}
        sizes: dict[str, list[I64]] = {READS: [], WRITES: []}
        for passage in (ended, in_flight):
            new = passage.states() & ~self._counted_states(passage, begin)
            up.append(np.maximum(passage.start[new & _STARTED > 0], begin))
            issued.append(np.maximum(passage.issue[new & _ISSUED > 0], begin))
            ends = new & _ENDED > 0
            at = np.maximum(passage.end, begin)
            down.append(at[ends & (passage.issue >= 0)])
            unissued.append(at[ends & (passage.issue < 0)])
            for name, kind in ((READS, passage.read), (WRITES, passage.write)):
                moved[name].append(at[ends & kind])
                sizes[name].append(passage.done_bytes[ends & kind])
        queued, in_device = self._remember(ended, in_flight)
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
        """Return, by counter's name, the samples that were held back: (times in ns, values).

        All four counters are there, some perhaps without samples. end: the trace's, ns; no sample
        is later: levels that changed after it have their sample at it. To be called once; no
        `update` may follow.
        """
        return {
            QUEUED: self._queued.finish(end),
            IN_DEVICE: self._in_device.finish(end),
            READS: self._reads.finish(end),
            WRITES: self._writes.finish(end),
        }

    def _counted_states(self, passage: Passage, begin: int) -> U8:
        """Return per bio (n,) the state that earlier windows counted; 0: no window counted it.

        A state is a combination of _STARTED, _ISSUED and _ENDED. begin: the window's, ns: only bios
        that started before it can have been counted.
        """
        states = np.zeros(len(passage.number), dtype=np.uint8)
        early = np.flatnonzero(passage.start < begin)
        if not len(self._number) or not len(early):
            return states
        number = passage.number[early]
        at = np.minimum(np.searchsorted(self._number, number), len(self._number) - 1)
        states[early] = np.where(self._number[at] == number, self._state[at], 0)
        return states

    def _remember(self, ended: Passage, in_flight: Passage) -> tuple[int, int]:
        """Keep the states of bios in flight; return how many are (queued, in device) now.

        Now is the window's end. ended: bios that the window ended; in_flight: those in flight at
        its end, of which those that have ended already count in neither. Bios of `ended` without an
        end, whose slice stays open, are added to `_stuck`, and so counted here and in every later
        window. Sets `_number`, `_state`.
        """
        state = in_flight.states()
        order = np.argsort(in_flight.number, kind="stable")
        self._number, self._state = in_flight.number[order], state[order]
        stuck = ended.states()
        waits, runs = _STARTED, _STARTED | _ISSUED
        self._stuck[0] += int((stuck == waits).sum())
        self._stuck[1] += int((stuck == runs).sum())
        return (
            int((state == waits).sum()) + self._stuck[0],
            int((state == runs).sum()) + self._stuck[1],
        )
