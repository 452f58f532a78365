# SPDX-License-Identifier: Apache-2.0
"""A window's bios and requests as flat samples: what is counted, and every stage's time."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.choosing.choosing import asks_flush
from biotrail.converters.analysis.choosing.tries import tries
from biotrail.converters.events.context import OP_MASK, Context
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    U8,
    Bios,
    Bool,
    Certainty,
    Requests,
    Stages,
)

FLAGS = ("SYNC", "META", "FUA", "PREFLUSH", "RAHEAD", "NOWAIT")
"""Flags of I/O that reports count."""

COUNTERS = (
    "ios",
    "bytes",
    "done_bytes",
    "ended",
    "unfinished",
    "failed",
    "merged",
    "split",
    "fragments",
    "requeues",
    *(flag.lower() for flag in FLAGS),
    *(certainty.name.lower() for certainty in Certainty),
    "tries",
    "tried_bytes",
)
"""Rows of `Samples.counters`; the same for bios and for requests. A try counts in the last two
alone."""
_OF_TRIES = [COUNTERS.index(name) for name in ("tries", "tried_bytes")]
NOT_COUNTED = -1


@dataclass
class Samples:
    """Bios or requests that ended in a window (or never will), shape (n,) each.

    counters: int64 (len(COUNTERS), n). latency: ns from Q (a request's start) to the end,
    -1 not known, or a try. end: ns when it ended; where that was not seen, when it began.
    stage_owner: row of each stage's owner. stage_ns: its time. A try (tries.py) has its row, so
    that rows are those of the table, but no size, status, latency or stages.
    """

    place: I64
    """dev << 8 | operation; what only flushes is a flush."""
    counters: I64
    size: I64
    """bytes; NOT_COUNTED for a try."""
    status: I64
    latency: I64
    end: I64
    stage_owner: I64
    stage: U8
    stage_ns: I64

    def __len__(self) -> int:
        return len(self.place)

    def take(self, rows: Bool) -> "Samples":
        """The rows of the mask."""
        kept = rows[self.stage_owner]
        renumbered = np.cumsum(rows) - 1
        return Samples(
            place=self.place[rows],
            counters=self.counters[:, rows],
            size=self.size[rows],
            status=self.status[rows],
            latency=self.latency[rows],
            end=self.end[rows],
            stage_owner=renumbered[self.stage_owner[kept]],
            stage=self.stage[kept],
            stage_ns=self.stage_ns[kept],
        )


def of_bios(bios: Bios, stages: Stages, context: Context) -> Samples:
    """A window's bios."""
    ended = (bios.queue != NEVER) & (bios.complete != NEVER)
    rows = {
        "ended": ended,
        "unfinished": ~ended,
        "failed": bios.status != 0,
        "merged": bios.merge != NEVER,
        "split": bios.fragments > 1,
        "fragments": bios.fragments,
        "requeues": bios.requeues,
    }
    begin = np.where(bios.queue != NEVER, bios.queue, bios.complete)
    return _samples(bios, stages, context, rows, bios.queue, begin)


def of_requests(requests: Requests, stages: Stages, context: Context) -> Samples:
    """A window's requests. merged: what another request absorbed; split is 0 for all."""
    ended = (requests.start != NEVER) & (requests.complete != NEVER)
    absorbed = requests.absorbed_by != NEVER
    rows = {
        "ended": ended,
        "unfinished": ~ended & ~absorbed,
        "failed": requests.status != 0,
        "merged": absorbed,
        "fragments": requests.bios,
        "requeues": requests.requeues,
    }
    return _samples(requests, stages, context, rows, requests.start, requests.start)


def _samples(
    table: Bios | Requests,
    stages: Stages,
    context: Context,
    rows: dict[str, NDArray[np.generic]],
    start: I64,
    begin: I64,
) -> Samples:
    ended: Bool = (start != NEVER) & (table.complete != NEVER)
    rows["ios"] = np.ones(len(table), dtype=np.int64)
    rows["bytes"], rows["done_bytes"] = table.bytes, table.done_bytes
    for flag in FLAGS:
        rows[flag.lower()] = (table.opf & np.uint32(context.flag_mask(flag))) != 0
    for certainty in Certainty:
        rows[certainty.name.lower()] = table.certainty == certainty
    counters = np.zeros((len(COUNTERS), len(table)), dtype=np.int64)
    for row, name in enumerate(COUNTERS):
        if name in rows:
            counters[row] = rows[name]
    found = Samples(
        place=table.dev.astype(np.int64) << 8 | operations_of(table, context),
        counters=counters,
        size=table.bytes.astype(np.int64),
        status=table.status.astype(np.int64),
        latency=np.where(ended, np.maximum(table.complete - start, 0), NEVER),
        end=np.where(table.complete != NEVER, table.complete, begin),
        stage_owner=_owners(table.number, stages.owner),
        stage=stages.stage,
        stage_ns=stages.end - stages.start,
    )
    tried = tries(context, table)
    return _beside(found, tried) if tried.any() else found


def _beside(found: Samples, tried: Bool) -> Samples:
    """Return the samples with the tries of the mask counted as such, and as nothing else."""
    counters = np.where(tried, 0, found.counters)
    size = found.counters[COUNTERS.index("bytes")]
    counters[_OF_TRIES] = np.where(tried, [np.ones_like(size), size], 0)
    kept = ~tried[found.stage_owner]
    return replace(
        found,
        counters=counters,
        size=np.where(tried, NOT_COUNTED, found.size),
        status=np.where(tried, 0, found.status),
        latency=np.where(tried, NEVER, found.latency),
        stage_owner=found.stage_owner[kept],
        stage=found.stage[kept],
        stage_ns=found.stage_ns[kept],
    )


def _owners(number: I64, owner: I64) -> I64:
    """Row of each stage's owner. Stages are ordered as their owners are."""
    if not len(owner):
        return np.zeros(0, dtype=np.int64)
    first = np.flatnonzero(owner[1:] != owner[:-1]) + 1
    first = np.concatenate([[0], first])
    row = np.searchsorted(number, owner[first])
    return np.repeat(row, np.diff(first, append=len(owner)))


def operations_of(table: Bios | Requests, context: Context) -> I64:
    """Return the number of each one's operation, int64 (n,).

    A write without data that asks for a flush (fsync) is a flush.
    """
    op = (table.opf & OP_MASK).astype(np.int64)
    flush = context.op_number("flush")
    if flush < 0:
        return op
    return np.where(asks_flush(context, table.opf, table.bytes), flush, op)
