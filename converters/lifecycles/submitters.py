# SPDX-License-Identifier: Apache-2.0
"""Who submitted each bio, and how: the columns of `Bios` that come from its Q."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.events import NO_STACK, Events
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.submission_tables import Flag, Runner
from biotrail.converters.events.tables import I32, I64, NO_CPU, U16, U32, EventRows, PageKind
from biotrail.converters.events.tasks import TaskNames
from biotrail.recorder.schema.records import (
    FIRST_UNKNOWN_TID,
    Q_FLAG_DEVICE,
    Q_FLAG_FILE,
    Q_FLAG_SWAP,
    Kind,
)

PAGE_KINDS = np.zeros(256, dtype=np.uint8)
"""PageKind by the flags of a Q; these have one of the three at most."""
for _flag, _kind in (
    (Q_FLAG_FILE, PageKind.FILE),
    (Q_FLAG_DEVICE, PageKind.DEVICE),
    (Q_FLAG_SWAP, PageKind.SWAP),
):
    PAGE_KINDS[(np.arange(256) & _flag) != 0] = _kind


@dataclass
class Submitters:
    """Names of the log's threads, and its call stacks, to which columns refer by row."""

    tasks: TaskNames
    stacks: StackNames

    def columns(
        self, events: Events, queued: EventRows, queue_time: I64, dev: U32
    ) -> dict[str, NDArray[Any]]:
        """Return the columns of `Bios` that say who submitted each bio and how, from its Q.

        By column name: part (the Q's dev_t, of the partition or disk), tid, task, whom (by the Q's
        records alone), cgroup, ioprio, hint, page (a PageKind), stack, cpu. task, whom and stack
        are rows of `tasks` and `stacks`, -1 if the thread has no name or no stack was recorded;
        stacks not met before are added to `stacks`. Without a Q part is `dev`, task, whom and stack
        are -1, cpu is NO_CPU, the others are 0. tid is 0, too, where the recording does not have
        it; `task` still names the thread.

        queued: per bio, row of its Q in `events`; -1: not recorded. queue_time: its time (ns). dev:
        per bio, the disk (dev_t).
        """
        recorded = queued >= 0
        whole = bool(recorded.all()) and len(events) > 0

        def field_of_q(name: str, dtype: type) -> NDArray[Any]:
            """Return a field of each bio's Q; 0 where Q was not recorded."""
            if whole:
                return np.asarray(events.field(Kind.Q, name, queued).astype(dtype, copy=False))
            if not len(events):
                return np.zeros(len(queued), dtype)
            value = events.field(Kind.Q, name, np.maximum(queued, 0))
            return np.where(recorded, value, 0).astype(dtype)

        tid = field_of_q("tid", np.uint32)
        return {
            "part": np.where(recorded, field_of_q("part", np.uint32), dev).astype(np.uint32),
            "tid": np.where(tid < FIRST_UNKNOWN_TID, tid, 0).astype(np.uint32),
            "task": np.where(recorded, self.tasks.rows(tid, queue_time), -1).astype(np.int32),
            "whom": self.waiter_rows(events, queued, queue_time),
            "cgroup": field_of_q("cgroup", np.uint64),
            "ioprio": field_of_q("ioprio", np.uint16),
            "hint": field_of_q("hint", np.uint8),
            "page": PAGE_KINDS[field_of_q("flags", np.uint8)],
            "stack": self._stack_rows(events, queued),
            "cpu": _cpus(events, queued),
        }

    def waiter_rows(self, events: Events, queued: EventRows, queue_time: I64) -> I32:
        """Return the row in the trace's tasks of who waits for each Q's bio; -1: nobody is known.

        Or of who submitted the request of io_uring or aio for which a kernel thread queued it.

        queued, queue_time: as for `columns`.
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
        found[known] = self.tasks.rows(waiter[known], queue_time[known])
        return found

    def _stack_rows(self, events: Events, queued: I64) -> I32:
        """Return the row in the trace's stacks of each Q; -1: no Q (-1) or no stack."""
        if events.stack is None:
            return np.full(len(queued), -1, dtype=np.int32)
        ids = take_or(events.stack, queued, NO_STACK)
        return self.stacks.rows(ids)


def _cpus(events: Events, queued: EventRows) -> U16:
    """Return the CPU of each Q, uint16; NO_CPU where its row `queued` is -1."""
    return take_or(events.cpu, queued, NO_CPU)
