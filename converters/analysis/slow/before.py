# SPDX-License-Identifier: Apache-2.0
"""I/Os that were with a device while another one waited, one by one: a bounded list."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.tables import I64, NEVER, Bios, Bool, Tasks
from biotrail.converters.lifecycles.windows import sure_complete

MOST_BEFORE = 16
"""Neighbours kept for each I/O: those with the longest time beside the I/O."""

_LOOKED_AT = 4096
"""Bios of a window that are grouped and sorted; of more, those with the longest time beside the
I/O are chosen first."""


@dataclass
class Neighbour:
    """Another bio of the device, or several that were issued and completed at the same times.

    Several such bios were carried by one request. The fields of the bio with the least number
    stand for all of them, except the sums `ios` and `bytes`. Times are ns since the I/O in
    question was queued.
    """

    number: int
    """Number of the bio."""
    operation: str
    ios: int
    """Number of bios."""
    bytes: int
    """Sum of the bios' sizes."""
    comm: str | None
    """Name of the submitting thread; None: not known."""
    queue_ns: int
    """Time of Q; negative: queued before the I/O in question."""
    issue_ns: int | None
    """Time of D; None: not issued (a flush without data, a bio-based device), or not recorded."""
    end_ns: int | None
    """Time of C; None: not in the log, in doubt, or still in flight at the log's end."""
    waited_ns: int | None
    """Q to D; None without D."""
    in_device_ns: int | None
    """D to C; None without D or C, or with C in doubt."""


@dataclass
class Before:
    """The neighbours of one I/O, gathered window by window."""

    queue: int
    """ns: when the I/O in question was queued."""
    end: int
    """ns: when the I/O in question ended."""
    mates: frozenset[int] = frozenset()
    """Numbers of bios that shared requests with the I/O in question, and so are no neighbours."""
    _kept: list[tuple[int, Neighbour]] = field(default_factory=list)
    """(time beside the I/O in question, neighbour), longest first. The time, ns, is the overlap of
    the neighbour's D (or Q) to C with `queue` to `end`."""
    left_out: int = 0
    """Bios that had less time beside the I/O than those kept."""

    def add(
        self, bios: Bios, end: I64, rows: Bool, operations: list[str], codes: I64, tasks: Tasks
    ) -> None:
        """Add bios of a window; keep the MOST_BEFORE neighbours that were longest beside the I/O.

        A neighbour is a bio, or several with the same D (without D: Q) and end, as bios of one
        request have. Its time beside the I/O in question is the overlap of D (or Q) to its end with
        the I/O's Q to end; of equal ones, the least number is kept first. Bios in `mates` are left
        out. Changes the list of neighbours, and adds to `left_out` the bios that are not kept. Bios
        added by different calls of this method are never one neighbour.

        bios: of one device, ascending by number. end: ns (n,) when each ended, or the largest int64
        while it is in flight. rows: mask (n,) of the bios to add. operations, codes: bio i is an
        `operations[codes[i]]`. tasks: the threads that `bios.task` is the row of.
        """
        bio_row = np.flatnonzero(rows & ~self._mates_of(bios))
        if not len(bio_row):
            return
        issue = bios.issue[bio_row]
        began = np.where(issue != NEVER, issue, bios.queue[bio_row])
        beside = np.minimum(end[bio_row], self.end) - np.maximum(began, self.queue)
        if len(bio_row) > _LOOKED_AT:
            least = np.partition(beside, -_LOOKED_AT)[-_LOOKED_AT]
            near = beside >= least  # bios of one request tie, so none of them is split off
            self.left_out += int((~near).sum())
            bio_row, began, beside = bio_row[near], began[near], beside[near]
        pairs = np.stack([began, end[bio_row]])
        _, first, group, ios = np.unique(
            pairs, axis=1, return_index=True, return_inverse=True, return_counts=True
        )
        size = np.zeros(len(ios), np.int64)
        np.add.at(size, group.reshape(-1), bios.bytes[bio_row].astype(np.int64))
        longest = np.lexsort((bios.number[bio_row[first]], -beside[first]))
        for one in longest[:MOST_BEFORE].tolist():
            row = int(bio_row[first[one]])
            neighbour = self._neighbour(bios, row, operations[codes[row]], tasks)
            neighbour.ios, neighbour.bytes = int(ios[one]), int(size[one])
            self._kept.append((int(beside[first[one]]), neighbour))
        self._kept.sort(key=lambda kept: (-kept[0], kept[1].number))
        self.left_out += int(ios[longest[MOST_BEFORE:]].sum())
        self.left_out += sum(neighbour.ios for _, neighbour in self._kept[MOST_BEFORE:])
        del self._kept[MOST_BEFORE:]

    def _mates_of(self, bios: Bios) -> Bool:
        """Mark the bios whose numbers are in `mates`: bool (n,). bios: ascending by number."""
        mask = np.zeros(len(bios), dtype=np.bool_)
        mates = np.array(sorted(self.mates), dtype=np.int64)
        row = np.searchsorted(bios.number, mates)
        row, mates = row[row < len(bios)], mates[row < len(bios)]
        mask[row[bios.number[row] == mates]] = True
        return mask

    def _neighbour(self, bios: Bios, row: int, operation: str, tasks: Tasks) -> Neighbour:
        """Return the bio in a row as a neighbour on its own, with times in ns since the I/O's Q.

        operation: the bio's. tasks: the threads that `bios.task` is the row of. A time that is not
        known is None, but queue_ns 0; comm is None where the task is -1. `end_ns` is the recorded
        completion, never the log's end.
        """
        queue, issue, complete = (
            None if time == NEVER else int(time) - self.queue
            for time in (bios.queue[row], bios.issue[row], sure_complete(bios)[row])
        )
        task = int(bios.task[row])
        return Neighbour(
            number=int(bios.number[row]),
            operation=operation,
            ios=1,
            bytes=int(bios.bytes[row]),
            comm=str(tasks.comm[task]) if task >= 0 else None,
            queue_ns=queue or 0,
            issue_ns=issue,
            end_ns=complete,
            waited_ns=None if issue is None or queue is None else issue - queue,
            in_device_ns=None if issue is None or complete is None else complete - issue,
        )

    def neighbours(self) -> list[Neighbour]:
        """Return the kept neighbours, by the time of D (without D: of Q)."""
        kept = [neighbour for _, neighbour in self._kept]
        return sorted(
            kept, key=lambda n: (n.queue_ns if n.issue_ns is None else n.issue_ns, n.number)
        )
