# SPDX-License-Identifier: Apache-2.0
"""The column of `Events` with what is known of the path: an index into a table, for each event.

A row of the table has 230 bytes, and most events have none: the index alone is copied with
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I32, I64, NEVER, Bool, EventRows

REQUEST = np.dtype(
    [
        *(("req", "<u8"), ("user_data", "<u8"), ("submitted", "<u8"), ("offset", "<u8")),
        *(("length", "<u4"), ("fd", "<u4"), ("tid", "<u4")),
        *(("opcode", "u1"), ("runner", "u1"), ("joined", "u1"), ("flags", "u1")),
    ]
)
"""What a SUBMISSION record says of a bio's request: its fields of the same names. `req` 0: the bio
has none."""

NO_CALL = -2
"""Number of a call: none is known. -1 is a page fault (`schema.syscalls.PAGE_FAULT`)."""

PATH = np.dtype(
    [
        *(("call", "<i4"), ("foreign", "u1"), ("context", "i1"), ("entry", "<i8")),
        *(("args", "<u8", (4,)), ("dirtied", "<i8"), ("tid", "<u4"), ("pid", "<u4")),
        *(("comm", "S16"), ("cgroup", "<u8"), ("hard", "<i8"), ("raised", "<i8"), ("soft", "<i8")),
        *(("irq", "<u4"), ("request", REQUEST), ("held", "u1"), ("waiter", "<u4")),
        *(("backing", "<u8"), ("limit", "<u8"), ("bps", "<u8"), ("iops", "<u4"), ("limits", "<u4")),
        *(("driver", "u1"), ("errors", "u1"), ("timeouts", "u1")),
        *(("sq_head", "<u2"), ("sq_tail", "<u2")),
        *(("begun", "<i8"), ("answered", "<i8"), ("finished", "<i8")),
    ]
)
"""What is known of one event. Of a Q: call (number; NO_CALL), foreign (1: a 32-bit program's
numbers), entry (ns; NEVER), args, dirtied (ns; NEVER) by thread tid of process pid named comm in
cgroup (id; 0 not known), and the request (REQUEST) of io_uring or aio that the bio serves; and
whether a cgroup's limit held the bio, with that limit, as in HeldBios; and the thread that waits
for the bio where a kernel thread queues it (waiter; 0: none is known), and the address of the loop
device's request that it is queued for (backing; 0: none is known). Of a C: context (0 task, 1
softirq, 2 interrupt; -1 not recorded), and when the device's interrupt number `irq` was entered,
the BLOCK softirq raised and entered (ns; NEVER); and the driver's steps, as in DriverSteps (driver
0: not recorded)."""

NO_PATH = np.zeros(1, dtype=PATH)[0]
"""A row of PATH of which nothing is known."""
NO_PATH["call"] = NO_CALL
NO_PATH["context"] = -1
for _time in ("entry", "dirtied", "hard", "raised", "soft", "begun", "answered", "finished"):
    NO_PATH[_time] = NEVER


@dataclass
class PathColumn:
    """What is known of the path of some events (n,). Tables are shared by columns made of one."""

    at: I32
    """Per event, its row of `rows`; -1: nothing is known."""
    rows: NDArray[np.void]
    """Rows of PATH (k,)."""

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, events: EventRows) -> NDArray[np.void]:
        """Return a copy of the PATH rows of these events, NO_PATH where nothing is known."""
        at = self.at[events]
        if not len(self.rows):
            return unknown(len(at))
        found = self.rows[at]
        found[at < 0] = NO_PATH
        return found

    def field(self, *names: str) -> NDArray[Any]:
        """Return a field of all events (n,), a copy; of nested fields, the inner one's."""
        values, absent = self.rows, NO_PATH
        for name in names:
            values, absent = values[name], absent[name]
        if not len(self.rows):
            return np.full((len(self.at), *values.shape[1:]), absent, values.dtype)
        found: NDArray[Any] = values[self.at]
        found[self.at < 0] = absent
        return found

    def take(self, events: I64 | Bool | slice) -> "PathColumn":
        """Return the column of these events, with the same table."""
        return PathColumn(self.at[events], self.rows)

    @staticmethod
    def joined(
        columns: "Sequence[PathColumn | None]", lengths: Sequence[int]
    ) -> "PathColumn | None":
        """Return the column of all events of some columns, with a table of their rows alone.

        None: nothing is known of that part's events, or of any. lengths: events of each part.
        """
        if all(column is None for column in columns):
            return None
        places, tables, count = [], [], 0
        for column, length in zip(columns, lengths, strict=True):
            at = np.full(length, -1, np.int32)
            if column is not None:
                known = np.flatnonzero(column.at >= 0)
                rows = column.at[known]
                whole = len(rows) == len(column.rows)
                at[known] = (rows if whole else np.arange(len(rows))) + count
                tables.append(column.rows if whole else column.rows[rows])
                count += len(rows)
            places.append(at)
        return PathColumn(np.concatenate(places), np.concatenate(tables))


def unknown(count: int) -> NDArray[np.void]:
    """Return rows of PATH of which nothing is known."""
    return np.frombuffer(NO_PATH.tobytes(), PATH).repeat(count)
