# SPDX-License-Identifier: Apache-2.0
"""Compute a device's counters from its bios, window by window."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, NEVER, U8, U32, Bios, Bool
from biotrail.converters.lifecycles.windows import last_seen
from biotrail.converters.outputs.counters import (
    LEVEL_BIN,
    READ_OPS,
    WRITE_OPS,
    Latency,
    Level,
    Samples,
    Throughput,
)
from biotrail.converters.outputs.perfetto.names import IN_DEVICE, QUEUED
from biotrail.converters.outputs.perfetto.packets.columns import Slices
from biotrail.converters.outputs.perfetto.packets.encode import distinct
from biotrail.converters.outputs.perfetto.tracks.lanes import FOREVER
from biotrail.converters.outputs.perfetto.tracks.tree import LATENCIES, READS, WRITES

_IN, _OUT = 1, 2
_DIRECTIONS = dict.fromkeys(READ_OPS, _IN) | dict.fromkeys(WRITE_OPS, _OUT)
_FINE_BIN, _FEW = 250_000, 4
"""ns: length of a bin, and the most changes in a bin that are a sample each."""


@dataclass
class Passage:
    """When bios of one device were queued, issued and ended. Shape (n,); times in ns."""

    start: I64
    issue: I64
    """NEVER: not issued."""
    end: I64
    """Where the completion is in doubt or was not recorded, the bio's last event; FOREVER: in
    flight when the log ends."""
    complete: I64
    """NEVER: not recorded."""
    done_bytes: I64
    latency: I64
    """Q2C; NEVER: not known, or in doubt."""
    read: Bool
    write: Bool

    @classmethod
    def of(cls, context: Context, slices: Slices, table: Bios, dev: int) -> "Passage":
        """Return the times of the bios that have a slice on `dev` (dev_t), in the slices' order.

        slices: of bios; table: the bios that they were made from. Whether a bio reads or writes
        follows from its operation; flushes and discards do neither.
        """
        chosen = np.flatnonzero(slices.group == dev)
        rows = slices.rows[chosen]
        bios = table.take(rows)
        direction = _directions(context, bios.opf)
        return cls(
            start=slices.start[chosen],
            issue=bios.issue,
            end=np.where(bios.doubtful, last_seen(bios, completed=False), slices.end[chosen]),
            complete=bios.complete,
            done_bytes=bios.done_bytes.astype(np.int64),
            latency=np.where(
                (bios.queue != NEVER) & (bios.complete != NEVER) & ~bios.doubtful,
                bios.complete - bios.queue,
                NEVER,
            ),
            read=direction == _IN,
            write=direction == _OUT,
        )


def _directions(context: Context, opf: U32) -> U8:
    """Return per bi_opf (n,) uint8: _IN if the operation reads, _OUT if it writes data, else 0."""
    if not len(opf):
        return np.zeros(0, dtype=np.uint8)
    opfs, codes = distinct(opf)
    directions = [_DIRECTIONS.get(context.op_name(int(o)), 0) for o in opfs]
    return np.array(directions, dtype=np.uint8)[codes]


@dataclass
class Gauges:
    """Queue depths, throughput and latencies of one device, from its bios as they end."""

    origin: int
    """ns: begin of the trace, where the counters begin."""
    fine: bool = True
    """Whether up to _FEW changes within _FINE_BIN are a sample each; else levels have a peak and a
    rest per ms."""
    _begin: int = 0
    """ns: changes before this are samples already, or about to be."""

    def __post_init__(self) -> None:
        thinned = (_FINE_BIN, _FEW) if self.fine else (LEVEL_BIN, 0)
        self._queued, self._in_device = (Level(self.origin, *thinned) for _ in range(2))
        self._reads, self._writes = Throughput(self.origin), Throughput(self.origin)
        self._latency = Latency(self.origin)

    @property
    def held(self) -> int:
        """Number of changes that are no samples yet."""
        return self._queued.held + self._in_device.held

    def update(self, ended: Passage, until: int) -> dict[str, Samples]:
        """Take in bios that ended; return, by counter's name, the samples that are final now.

        until: ns; all changes before it are known. A change before an earlier `until` counts as at
        that. Samples are (times in ns, values), sorted. Counters: QUEUED, bios that are neither
        issued nor ended; IN_DEVICE, issued and not ended; READS and WRITES, bytes/s; LATENCIES, µs.
        """
        until = max(until, self._begin)
        start, issue, end, complete = (
            np.where(at < 0, at, np.maximum(at, self._begin))
            for at in (ended.start, ended.issue, ended.end, ended.complete)
        )
        issued, over = issue >= 0, end != FOREVER
        read, write = (kind & (complete >= 0) for kind in (ended.read, ended.write))
        self._begin = until
        told = ended.latency != NEVER
        latencies = self._latency.update_all(complete[told], ended.latency[told], until)
        left = np.concatenate([issue[issued], end[over & ~issued]])
        return {
            QUEUED: self._queued.update(start, left, until),
            IN_DEVICE: self._in_device.update(issue[issued], end[over & issued], until),
            READS: self._reads.update(complete[read], ended.done_bytes[read], until),
            WRITES: self._writes.update(complete[write], ended.done_bytes[write], until),
            **_in_us(latencies),
        }

    def finish(self, end: int) -> dict[str, Samples]:
        """Return, by counter's name, the samples that were held back: (times in ns, values).

        All counters are there, some perhaps without samples. end: the trace's, ns; no sample
        is later: levels that changed after it have their sample at it. To be called once; no
        `update` may follow.
        """
        return {
            QUEUED: self._queued.finish(end),
            IN_DEVICE: self._in_device.finish(end),
            READS: self._reads.finish(end),
            WRITES: self._writes.finish(end),
            **_in_us(self._latency.finish_all(end)),
        }


def _in_us(latencies: list[Samples]) -> dict[str, Samples]:
    """Return the samples of latencies, ns, by counter's name, in µs, which the UI does not scale.

    One of less than 1 µs is 1: 0 stands for none.
    """
    every = zip(LATENCIES, latencies, strict=True)
    return {name: (at, np.maximum(np.rint(value / 1e3), value > 0)) for name, (at, value) in every}
