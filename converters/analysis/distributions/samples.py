# SPDX-License-Identifier: Apache-2.0
"""A window's bios and requests as flat samples: counters, sizes, latencies, and stage times."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.analysis.choosing.choosing import failed_nowait
from biotrail.converters.analysis.distributions import sum_loops as loops
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    OP_MASK,
    U8,
    Bios,
    Bool,
    Certainty,
    Requests,
    Stages,
)
from biotrail.converters.lifecycles.operations import CLEARED, asks_flush

FLAGS = ("SYNC", "META", "FUA", "PREFLUSH", "RAHEAD", "NOWAIT")
"""REQ_ flags for which reports count the I/Os that have them."""

COUNTERS = (
    "ios",
    "bytes",  # of data to move: length at Q (of requests: at the first D), but of no CLEARED
    "done_bytes",  # completed without error
    "ended",  # beginning and completion are in the log
    "doubtful",  # ended, but the latency is in doubt (`Bios.doubtful`), and in no distribution
    "unfinished",  # one of them is not; without requests that were merged into another
    "failed",
    "merged",
    "split",
    "fragments",  # pieces of a bio that went to requests; bios of a request
    "requeues",
    *(flag.lower() for flag in FLAGS),
    *(certainty.name.lower() for certainty in Certainty),
    "tries",
    "tried_bytes",
    "by_workers",  # that another thread queued for whom they are (`Bios.whom`)
    *CLEARED.values(),  # lengths of ranges that were discarded, zeroed or erased: no data moves
)
"""Names of `Samples.counters`, the same for bios and requests. A try counts only in
tries and tried_bytes."""
NOT_COUNTED = -1


@dataclass
class Samples:
    """The rows of a window's `bios` or `requests`, (n,), and their stages, (m,), as samples.

    A failed NOWAIT attempt has a row, too, but no size, status, latency or stages; one whose
    latency is in doubt has neither a latency nor stages.
    """

    place: I64
    """(n,): dev << 8 | number of the operation, as operations_of gives it."""
    counters: dict[str, NDArray[Any]]
    """Name of COUNTERS → what each row adds to it: bool or integers, (n,); absent: nothing."""
    size: I64
    """(n,): bytes of data; NOT_COUNTED for a try, and for a row of `ranges`."""
    status: I64
    """(n,): blk_status_t or negative errno; 0 good, not known, or a try."""
    latency: I64
    """(n,): ns from Q (requests: allocation) to completion; -1 not known, in doubt, or a try."""
    doubtful: I64
    """(n,): likewise where it is in doubt; -1 elsewhere."""
    end: I64
    """(n,): ns of the completion or, if that was not recorded, of the beginning; -1 neither."""
    stage_owner: I64
    """(m,): row of the bio (request) that the stage belongs to, ascending."""
    stage: U8
    stage_ns: I64
    """(m,): duration of the stage, ns."""
    ranges: I64 | None = None
    """(n,): bytes of the range that an operation of CLEARED acts on, else NOT_COUNTED."""

    def __len__(self) -> int:
        return len(self.place)

    def take(self, rows: Bool) -> "Samples":
        kept = rows[self.stage_owner]
        renumbered = np.cumsum(rows) - 1
        return Samples(
            place=self.place[rows],
            counters={name: column[rows] for name, column in self.counters.items()},
            size=self.size[rows],
            status=self.status[rows],
            latency=self.latency[rows],
            doubtful=self.doubtful[rows],
            end=self.end[rows],
            stage_owner=renumbered[self.stage_owner[kept]],
            stage=self.stage[kept],
            stage_ns=self.stage_ns[kept],
            ranges=None if self.ranges is None else self.ranges[rows],
        )


def samples_of(table: Bios | Requests, stages: Stages, context: Context) -> Samples:
    """Return the rows of a table and their stages as samples.

    Failed NOWAIT attempts (REQ_NOWAIT ended by BLK_STS_AGAIN) count only as tries. A request that
    was merged into another is `merged`, and not `unfinished`.
    """
    start = begin = table.queue if isinstance(table, Bios) else table.start
    ended: Bool = (start != NEVER) & (table.complete != NEVER)
    rows: dict[str, NDArray[Any]] = {
        "ios": np.ones(len(table), dtype=np.bool_),
        "bytes": table.bytes,
        "done_bytes": table.done_bytes,
        "ended": ended,
        "unfinished": ~ended,
        "failed": table.status != 0,
        "requeues": table.requeues,
    }
    if isinstance(table, Bios):
        begin = np.where(start != NEVER, start, table.complete)
        rows["merged"] = table.merge != NEVER
        rows["split"], rows["fragments"] = table.fragments > 1, table.fragments
        if (others := table.whom >= 0).any():
            rows["by_workers"] = others
    else:
        absorbed = table.absorbed_by != NEVER
        rows["merged"], rows["unfinished"] = absorbed, ~ended & ~absorbed
        rows["fragments"] = table.bios
    present = int(np.bitwise_or.reduce(table.opf, initial=0))
    for flag in FLAGS:
        if present & context.flag_mask(flag):
            rows[flag.lower()] = (table.opf & np.uint32(context.flag_mask(flag))) != 0
    certain = np.bincount(table.certainty, minlength=len(Certainty))
    for certainty in Certainty:
        if certain[certainty]:
            rows[certainty.name.lower()] = table.certainty == certainty
    op, length = operations_of(table, context), table.bytes.astype(np.int64)
    size, ranges = length, None
    for number in np.flatnonzero(np.bincount(op)).tolist():
        if (name := CLEARED.get(context.op_name(number))) is not None:
            mine = op == number
            rows[name] = np.where(mine, length, 0)
            for moved in ("bytes", "done_bytes"):
                rows[moved] = np.where(mine, 0, rows[moved])
            ranges = np.where(mine, length, NOT_COUNTED if ranges is None else ranges)
            size = np.where(mine, NOT_COUNTED, size)
    status = table.status.astype(np.int64)
    latency = np.where(ended, np.maximum(table.complete - start, 0), NEVER)
    doubtful, tried = table.doubtful & ended, failed_nowait(context, table)
    in_doubt = np.full(len(table), NEVER, np.int64)
    stage = stages.stage
    owner = np.empty(len(stages), np.int64)
    found = loops.owners(table.number, np.ascontiguousarray(stages.owner), owner)
    if found < len(stages):  # the stages are not in the order of the numbers
        first = np.flatnonzero(np.diff(stages.owner, prepend=NEVER))
        row = np.searchsorted(table.number, stages.owner[first])
        owner = np.repeat(row, np.diff(first, append=len(stages)))
    stage_ns = stages.end - stages.start
    if doubtful.any():
        rows["doubtful"] = doubtful
        in_doubt = np.where(doubtful & ~tried, latency, NEVER)
    if tried.any():
        rows.update({name: np.where(tried, 0, column) for name, column in rows.items()})
        rows["tries"], rows["tried_bytes"] = tried, np.where(tried, length, 0)
        size, status = np.where(tried, NOT_COUNTED, size), np.where(tried, 0, status)
        ranges = None if ranges is None else np.where(tried, NOT_COUNTED, ranges)
    if (apart := doubtful | tried).any():
        latency, kept = np.where(apart, NEVER, latency), ~apart[owner]
        owner, stage, stage_ns = owner[kept], stage[kept], stage_ns[kept]
    return Samples(
        place=table.dev.astype(np.int64) << 8 | op,
        counters=rows,
        size=size,
        status=status,
        latency=latency,
        doubtful=in_doubt,
        end=np.where(table.complete != NEVER, table.complete, begin),
        stage_owner=owner,
        stage=stage,
        stage_ns=stage_ns,
        ranges=ranges,
    )


def operations_of(table: Bios | Requests, context: Context) -> I64:
    """Return each REQ_OP_*; I/O without data but REQ_PREFLUSH, as of fsync, counts as a flush."""
    op = (table.opf & OP_MASK).astype(np.int64)
    flush = context.op_number("flush")
    if flush < 0:
        return op
    return np.where(asks_flush(context, table.opf, table.bytes), flush, op)
