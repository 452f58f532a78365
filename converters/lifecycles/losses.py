# SPDX-License-Identifier: Apache-2.0
"""Loss windows of a log, and the bios and requests in flight while records were lost."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from biotrail.converters.events.tables import (
    FAR,
    NEVER,
    Bios,
    Certainty,
    LossWindows,
    Requests,
)
from biotrail.recorder.schema.records import RECORDS

_MAX_NS = 1 << 62
_OF_PATH = tuple(int(record.kind) for record in RECORDS if record.part)


def loss_windows(
    losses: Iterable[dict[str, Any]], damaged: Iterable[dict[str, Any]]
) -> LossWindows:
    """Return one row per counted loss and per unreadable chunk, sorted by start.

    losses: dicts with start, end (ns) and, where known, cpu, kind and count; else these are -1, 0
    and -1. damaged: dicts with start and end (ns, cut down to 2^62). Windows that overlap stay
    separate rows.
    """
    rows = [
        (w["start"], w["end"], w.get("cpu", -1), w.get("kind", 0), w.get("count", -1))
        for w in losses
    ]
    # A damaged frame header can hold any 64 bits as times.
    rows += [(min(w["start"], _MAX_NS), min(w["end"], _MAX_NS), -1, 0, -1) for w in damaged]
    table = np.array(sorted(rows), dtype=np.int64).reshape(len(rows), 5)
    return LossWindows(
        start=table[:, 0],
        end=table[:, 1],
        cpu=table[:, 2].astype(np.int32),
        kind=table[:, 3].astype(np.uint8),
        count=table[:, 4],
    )


def mark_lost(table: Bios | Requests, loss: LossWindows, *, by_intervals: bool) -> None:
    """Set `certainty` of rows that are over to LOST where they were in flight during a loss window.

    And `gone` to FAR where the end was not recorded and it is not known by when the row had ended:
    with the kernel's pointers a row that is not LOST is in flight when the log ends; without them
    (by_intervals) nothing tells that from a completion that was lost.

    Rows that are INCOMPLETE stay so. Losses of the path's own records do not count: no lifecycle
    depends on these. In flight is from Q (of a request: its start), or without one from the
    beginning of time, to the completion, both included; of an absorbed request to that of the
    request that it was merged into (the next one only). Without a completion it lasts to the end of
    time.
    """
    loss = loss.take(~np.isin(loss.kind, _OF_PATH))
    if len(loss) and len(table):
        begin = table.queue if isinstance(table, Bios) else table.start
        end = table.complete
        if isinstance(table, Requests):
            order = np.argsort(table.number)
            at = np.searchsorted(table.number[order], table.absorbed_by)
            taker = order[np.minimum(at, len(order) - 1)]
            found = table.number[taker] == table.absorbed_by
            end = np.where(found, table.complete[taker], table.complete)
        end = np.where(end == NEVER, FAR, end)
        order = np.argsort(loss.start)
        latest = np.maximum.accumulate(loss.end[order])
        before = np.searchsorted(loss.start[order], end, side="right")
        touched = (before > 0) & (latest[np.maximum(before - 1, 0)] >= begin)
        table.certainty[touched & (table.certainty <= Certainty.AMBIGUOUS)] = Certainty.LOST
    unended = (table.complete == NEVER) & (table.gone == NEVER)
    if isinstance(table, Requests):
        unended &= table.absorbed_by == NEVER
    table.gone[unended & (by_intervals | (table.certainty == Certainty.LOST))] = FAR
