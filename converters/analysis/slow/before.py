# SPDX-License-Identifier: Apache-2.0
"""I/Os that a device had before one of its I/Os, one by one: a bounded list, for a timeline."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.tables import I64, NEVER, Bios, Bool, Tasks

MOST_BEFORE = 16
"""Kept of each I/O: those that were with the device for most of its time."""

_LOOKED_AT = 4096
"""Bios of a window that are sorted; of more, those that were beside the I/O the longest."""


@dataclass
class Neighbour:
    """One other I/O of the device, or those that one request carried: issued and over together.

    Times: ns since the I/O in question was queued.
    """

    number: int
    """Of the bio; of several of the one with the least number, as all else but sums."""
    operation: str
    ios: int
    """How many bios."""
    bytes: int
    """Their sum."""
    comm: str | None
    queue_ns: int
    """Negative: queued earlier."""
    issue_ns: int | None
    """None: bios of its kind or device are not issued."""
    end_ns: int | None
    """None: its completion is not in the log, or it was still under way."""
    waited_ns: int | None
    """Q to D."""
    in_device_ns: int | None
    """D to C."""


@dataclass
class Before:
    """The neighbours of one I/O, gathered window by window."""

    queue: int
    """ns: when the I/O in question was queued."""
    end: int
    """ns: when it was over."""
    mates: frozenset[int] = frozenset()
    """Numbers of bios that shared its requests: these are no neighbours."""
    _kept: list[tuple[int, Neighbour]] = field(default_factory=list)
    """(ns that it was with the device while the I/O was under way, neighbour)."""
    left_out: int = 0

    def add(
        self, bios: Bios, end: I64, rows: Bool, operations: list[str], codes: I64, tasks: Tasks
    ) -> None:
        """Takes in bios of a window. rows: which; end: ns, FOREVER while under way, shape (n,).

        operations: names; codes: of each bio the place among these.
        """
        at = np.flatnonzero(rows & ~self._mates_of(bios))
        if not len(at):
            return
        began = np.where(bios.issue[at] != NEVER, bios.issue[at], bios.queue[at])
        beside = np.minimum(end[at], self.end) - np.maximum(began, self.queue)
        if len(at) > _LOOKED_AT:
            least = np.partition(beside, -_LOOKED_AT)[-_LOOKED_AT]
            near = beside >= least  # those of one request are as long beside it
            self.left_out += int((~near).sum())
            at, began, beside = at[near], began[near], beside[near]
        pairs = np.stack([began, end[at]])
        _, first, group, ios = np.unique(
            pairs, axis=1, return_index=True, return_inverse=True, return_counts=True
        )
        size = np.zeros(len(ios), np.int64)
        np.add.at(size, group.reshape(-1), bios.bytes[at].astype(np.int64))
        best = np.lexsort((bios.number[at[first]], -beside[first]))
        for one in best[:MOST_BEFORE].tolist():
            row = int(at[first[one]])
            found = self._neighbour(bios, row, operations[codes[row]], tasks)
            found.ios, found.bytes = int(ios[one]), int(size[one])
            self._kept.append((int(beside[first[one]]), found))
        self._kept.sort(key=lambda found: (-found[0], found[1].number))
        self.left_out += int(ios[best[MOST_BEFORE:]].sum())
        self.left_out += sum(found.ios for _, found in self._kept[MOST_BEFORE:])
        del self._kept[MOST_BEFORE:]

    def _mates_of(self, bios: Bios) -> Bool:
        """Which bios are mates: bool, shape (n,)."""
        found = np.zeros(len(bios), dtype=np.bool_)
        mates = np.array(sorted(self.mates), dtype=np.int64)
        at = np.searchsorted(bios.number, mates)  # bios come in the order of their numbers
        at, mates = at[at < len(bios)], mates[at < len(bios)]
        found[at[bios.number[at] == mates]] = True
        return found

    def _neighbour(self, bios: Bios, row: int, operation: str, tasks: Tasks) -> Neighbour:
        queue, issue, complete = (
            None if time == NEVER else int(time) - self.queue
            for time in (bios.queue[row], bios.issue[row], bios.complete[row])
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
        """Those kept, in the order in which they went to the device."""
        found = [neighbour for _, neighbour in self._kept]
        return sorted(
            found, key=lambda n: (n.queue_ns if n.issue_ns is None else n.issue_ns, n.number)
        )
