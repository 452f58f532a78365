# SPDX-License-Identifier: Apache-2.0
"""What readers of other tools' recordings hand over: tracepoints' records as columns."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64

Column = NDArray[Any]
"""Values of one field, (n,): integers of any size and byte order, or bytes (S1 to S…)."""

THREAD_NAMES = "task_name"
"""`TracepointRows.event` of rows that only name threads; their column is "comm"."""


@dataclass
class TracepointRows:
    """Some records of one tracepoint, as columns of one length n, in the recording's order.

    event: the tracepoint's name without its system ("block_rq_issue"), or THREAD_NAMES. time: ns,
    int64. cpu: any integer. pid: id of the thread (the kernel's pid), any integer; negative: not
    known. arrival: position in the recording, ascending where records follow each other; decides
    the order of records of one time in a batch, whatever their tracepoint (an offset, or a line's
    number).

    columns: by the names of the tracepoint's own fields (dev, sector, nr_sector, bytes, rwbs,
    error, old_dev, old_sector, new_sector, nr_rq, comm); others are not looked at. dev and
    old_dev: the kernel's own numbers, major << 20 | minor. rwbs and comm: bytes, NUL-terminated or
    -padded. Columns that the recording lacks are absent; those of
    `schema.block_events.NEEDED` must be there, or the rows are counted as unreadable.
    """

    event: str
    time: I64
    cpu: Column
    pid: Column
    arrival: I64
    columns: Mapping[str, Column]
    tgid: Column | None = None
    """id of the thread's process (the kernel's tgid); None: not known."""
    comm: Column | None = None
    """Name of the thread, bytes, from beside the tracepoint's fields; None: only from these."""

    def __len__(self) -> int:
        return len(self.time)

    def without(self, rows: NDArray[np.bool_]) -> "TracepointRows":
        """Return the rows without those of the mask `rows`, (n,); copies."""
        keep = ~rows
        return TracepointRows(
            self.event,
            self.time[keep],
            self.cpu[keep],
            self.pid[keep],
            self.arrival[keep],
            {name: column[keep] for name, column in self.columns.items()},
            None if self.tgid is None else self.tgid[keep],
            None if self.comm is None else self.comm[keep],
        )


@dataclass(frozen=True)
class Loss:
    """Records that were lost between two times (ns). cpu: -1 unknown. count: -1 unknown."""

    start: int
    end: int
    cpu: int
    count: int


@dataclass
class Batch:
    """What a reader found in the next piece of a recording.

    complete_to: ns; later batches hold hardly any older record. offset: bytes of the recording that
    were read so far. passed_over: number of records of other events, by event ("sched_switch").
    """

    rows: list[TracepointRows]
    complete_to: int
    offset: int
    losses: list[Loss] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)
