# SPDX-License-Identifier: Apache-2.0
"""Who submitted each bio, and how: what its Q says."""

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.submission_tables import Flag, Runner
from biotrail.converters.events.tables import I32, I64, EventRows, PageKind
from biotrail.converters.events.tasks import TaskNames
from biotrail.recorder.schema.records import (
    Q_FLAG_DEVICE,
    Q_FLAG_FILE,
    Q_FLAG_SWAP,
)

PAGE_KINDS = np.zeros(256, dtype=np.uint8)
"""PageKind by the flags of a Q; these have one of the three at most."""
for _flag, _kind in (
    (Q_FLAG_FILE, PageKind.FILE),
    (Q_FLAG_DEVICE, PageKind.DEVICE),
    (Q_FLAG_SWAP, PageKind.SWAP),
):
    PAGE_KINDS[(np.arange(256) & _flag) != 0] = _kind


def waiter_rows(events: Events, queued: EventRows, queue_time: I64, tasks: TaskNames) -> I32:
    """Return the row in the trace's tasks of who waits for each Q's bio; -1: nobody is known.

    Or of who submitted the request of io_uring or aio for which a kernel thread queued it.

    queued: per bio, row of its Q in `events`; -1: not recorded. queue_time: its time (ns).
    """
    found = np.full(len(queued), -1, dtype=np.int32)
    if events.path is None or not len(events):
        return found
    path = events.path.take(np.maximum(queued, 0))
    waiter, runner = path.field("waiter"), path.field("request", "runner")
    submitted = (path.field("request", "req") != 0) & (runner == Runner.KERNEL)
    submitted &= (path.field("request", "flags") & Flag.LATE) == 0
    waiter = np.where((waiter == 0) & submitted, path.field("request", "tid"), waiter)
    known = np.flatnonzero((waiter != 0) & (queued >= 0))
    found[known] = tasks.rows(waiter[known], queue_time[known])
    return found
