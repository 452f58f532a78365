# SPDX-License-Identifier: Apache-2.0
"""Turn bios and requests into operations, tables with the same columns, and these into events.

An operation is Begin, Issued, Complete; Begin, Complete when it was never issued; Begin, Issued,
Cancelled when its completion was not recorded. OTF2 requires the events of a location in order of
time, but a window brings the early events of operations that ended late: a `Queue` holds events
back until nothing older can come.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import (
    I32,
    I64,
    NEVER,
    U8,
    U32,
    U64,
    Bios,
    Bool,
    Requests,
    Table,
)
from biotrail.converters.lifecycles.windows import first_seen, last_seen

LATEST = np.iinfo(np.int64).max
"""A time after all others."""
NO_STRING = 0xFFFF_FFFF
"""The number of no string."""
NO_NAMES: U32 = np.empty(0, dtype=np.uint32)


@dataclass
class Operations(Table):
    """Bios or requests, as rows of one shape. Times in ns, NEVER where not seen."""

    number: I64
    disk: U32
    """Disk's dev_t."""
    dev: U32
    """dev_t of the partition or disk that was addressed."""
    sector: U64
    bytes: U32
    opf: U32
    begin: I64
    """Q of a bio, allocation of a request; NEVER: before the trace began."""
    first: I64
    """Earliest known time."""
    last: I64
    """Latest known time, its completion aside."""
    issue: I64
    complete: I64
    done_bytes: U32
    status: I32
    absorbed_by: I64
    """Number of the request that this one was merged into; NEVER: none."""
    own: Bool
    parent: I64
    """Number of the upper device's operation; NEVER: none is known."""
    request: I64
    """Number of the request that finished the bio last; NEVER: none, or a request itself."""
    tid: U32
    """Submitting thread; 0: not known."""
    comm: U32
    """Number of the submitting thread's name; NO_STRING: not known."""
    pieces: U32
    """Fragments of a bio, or bios of a request."""
    requeues: U32
    certainty: U8
    doubtful: Bool
    """Whether `complete` is known, but may be another one's (`Bios.doubtful`)."""
    gone: I64
    """As `Bios.gone`."""


_SAME = (
    *("number", "sector", "bytes", "opf", "issue", "complete", "done_bytes", "status", "own"),
    *("gone", "parent", "requeues", "certainty", "doubtful"),
)
"""Columns that bios, requests and operations have in common."""


def bio_operations(bios: Bios, comms: U32 = NO_NAMES) -> Operations:
    """Return each bio as an operation. comms: the number of each of the tasks' names."""
    named = (bios.task >= 0) & (bios.task < len(comms))
    comm = np.full(len(bios), NO_STRING, dtype=np.uint32)
    comm[named] = comms[bios.task[named]]
    return Operations(
        **{name: getattr(bios, name) for name in _SAME},
        disk=bios.dev,
        dev=np.where(bios.part == 0, bios.dev, bios.part),
        begin=bios.queue,
        first=first_seen(bios),
        last=np.maximum(last_seen(bios, completed=False), bios.cut),
        absorbed_by=np.full(len(bios), NEVER, dtype=np.int64),
        request=bios.request,
        tid=bios.tid,
        comm=comm,
        pieces=bios.fragments,
    )


def request_operations(requests: Requests) -> Operations:
    """Return each request, in order, as an operation on its disk."""
    return Operations(
        **{name: getattr(requests, name) for name in _SAME},
        disk=requests.dev,
        dev=requests.dev,
        begin=requests.start,
        first=first_seen(requests),
        last=np.maximum(last_seen(requests, completed=False), requests.cut),
        absorbed_by=requests.absorbed_by,
        request=np.full(len(requests), NEVER, dtype=np.int64),
        tid=np.zeros(len(requests), dtype=np.uint32),
        comm=np.full(len(requests), NO_STRING, dtype=np.uint32),
        pieces=requests.bios,
    )


HOLD_EVENTS = 1_200_000
"""Most events that a queue holds back (72 bytes each) before it writes those of long-open
operations."""

LONG_NS = 1_000_000_000
"""ns: how long an operation must be open for its first events to be written before it ends."""


class Phase(IntEnum):
    """The kinds of an operation's events, in their order."""

    BEGIN = 0
    ISSUED = 1
    COMPLETE = 2
    CANCELLED = 3


TRUNCATED = 1
"""EVENT.flags: the event was not recorded; its time is the nearest that is known."""
BLOCKING = 2
"""EVENT.flags, at BEGIN: the operation was never issued, COMPLETE follows directly."""

OWN = 4
"""EVENT.flags, at BEGIN: I/O of the recording itself."""
UNISSUED = 8
"""EVENT.flags, at COMPLETE and CANCELLED: no issue of the operation was recorded."""
DOUBTFUL = 16
"""EVENT.flags, at COMPLETE: the end may be another operation's, and how long this took is open."""

EVENT = np.dtype(
    [
        ("time", "<i8"),  # ns
        ("number", "<i8"),  # of the operation
        ("detail", "<u8"),  # BEGIN: first sector; CANCELLED: absorbing request's number + 1, or 0
        ("link", "<i8"),  # BEGIN: upper device's operation; end: the bio's request; NEVER: none
        ("dev", "<u4"),  # dev_t of the device or partition that was addressed
        ("bytes", "<u4"),  # BEGIN: requested; COMPLETE: completed without error
        ("opf", "<u4"),
        ("status", "<i4"),  # COMPLETE: blk_status_t, negative errno on old kernels
        ("tid", "<u4"),  # BEGIN: submitting thread; 0: not known
        ("comm", "<u4"),  # BEGIN: number of the thread's name; NO_STRING: not known
        ("pieces", "<u4"),  # COMPLETE, CANCELLED: a bio's fragments, a request's bios
        ("requeues", "<u4"),  # COMPLETE, CANCELLED
        ("certainty", "u1"),  # COMPLETE, CANCELLED: Certainty
        ("flags", "u1"),
        ("phase", "u1"),
    ],
    align=True,
)
"""An event's fields. A field is 0 (`link`: NEVER) at phases that its comment does not list."""
_WORDS = EVENT.itemsize // 8
"""64-bit words of an event."""
EventArray = NDArray[np.void]


def _event_rows(ops: Operations, time: I64, truncated: Bool, phase: Phase) -> EventArray:
    """Return an event per operation, with the fields that all phases have; others are 0."""
    events = np.zeros(len(ops), dtype=EVENT)
    events["time"] = time
    events["number"] = ops.number
    events["phase"] = int(phase)
    events["dev"] = ops.dev
    events["opf"] = ops.opf
    events["link"] = NEVER
    events["flags"] = np.where(truncated, TRUNCATED, 0)
    return events


def _begin_events(ops: Operations, time: I64, blocking: Bool) -> EventArray:
    events = _event_rows(ops, time, ops.begin == NEVER, Phase.BEGIN)
    events["detail"], events["link"] = ops.sector, ops.parent
    events["bytes"] = ops.bytes
    events["tid"], events["comm"] = ops.tid, ops.comm
    events["flags"] |= np.where(blocking, BLOCKING, 0).astype(np.uint8)
    events["flags"] |= np.where(ops.own, OWN, 0).astype(np.uint8)
    return events


def _end_events(ops: Operations, time: I64, truncated: Bool, phase: Phase) -> EventArray:
    """Return Complete or Cancelled events (n,), one per operation, without bytes and status."""
    events = _event_rows(ops, time, truncated, phase)
    events["link"] = ops.request
    events["pieces"], events["requeues"] = ops.pieces, ops.requeues
    events["certainty"] = ops.certainty
    events["flags"] |= np.where(ops.issue == NEVER, UNISSUED, 0).astype(np.uint8)
    events["flags"] |= np.where(ops.doubtful, DOUBTFUL, 0).astype(np.uint8)
    return events


@dataclass
class WrittenBegins:
    """Open operations whose first events were written already."""

    numbers: I64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Their numbers, sorted."""
    issued: Bool = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    """Per number: whether Issued was written, too."""

    def add(self, numbers: I64, issued: Bool) -> None:
        """Add operations, whose numbers must not be there yet."""
        order = np.argsort(np.concatenate([self.numbers, numbers]), kind="stable")
        self.numbers = np.concatenate([self.numbers, numbers])[order]
        self.issued = np.concatenate([self.issued, issued])[order]

    def find(self, numbers: I64) -> tuple[Bool, Bool]:
        """Return two masks (n,) for operations' numbers: Begin was written; Issued was written."""
        if not len(self.numbers):
            no = np.zeros(len(numbers), dtype=np.bool_)
            return no, no
        at = np.searchsorted(self.numbers, numbers).clip(max=len(self.numbers) - 1)
        begin_written = self.numbers[at] == numbers
        return begin_written, begin_written & self.issued[at]

    def remove(self, numbers: I64) -> None:
        keep = ~np.isin(self.numbers, numbers)
        self.numbers, self.issued = self.numbers[keep], self.issued[keep]


def finished_events(ops: Operations, until: int, written: WrittenBegins) -> tuple[EventArray, int]:
    """Return the events of operations that ended, unsorted, and how many had a time moved.

    ops: completed; or over without a recorded completion: these are cancelled, flagged TRUNCATED,
    at their last known time or, in flight when the log ends, at `until` (ns) if later; or merged
    into another, at the last known time without that flag. written: whose Begin, or Begin and
    Issued, is left out as it was written before. A begin that is not known is at the first known
    time (or `until`), flagged TRUNCATED. Without a recorded issue, Issued is at the end, flagged
    TRUNCATED; but what completed, with its Begin among the events, is flagged BLOCKING instead.
    Issue and end are moved to the begin or issue that they would precede.
    """
    begin_written, issue_written = written.find(ops.number)
    absorbed = ops.absorbed_by != NEVER
    completed = ops.complete != NEVER
    issued = ops.issue != NEVER
    start = np.where(ops.begin != NEVER, ops.begin, ops.first)
    start = np.where(start == NEVER, until, start)
    over = absorbed | (ops.gone != NEVER)
    cut = np.where(over, ops.last, np.maximum(ops.last, until))
    end = np.where(completed, ops.complete, np.maximum(cut, start))
    issue = np.where(issued, ops.issue, end)
    moved_issue = np.maximum(issue, start)
    moved_end = np.maximum(end, moved_issue)
    moved = int(np.count_nonzero((moved_issue != issue) | (moved_end != end)))
    blocking = completed & ~issued & ~begin_written
    wants_issued = ~blocking & ~issue_written
    begins = _begin_events(*_only(~begin_written, ops, start, blocking))
    issuing, issue_ns, truncated = _only(wants_issued, ops, moved_issue, ~issued)
    issues = _event_rows(issuing, issue_ns, truncated, Phase.ISSUED)
    done, done_ns = _only(completed, ops, moved_end)
    ends = _end_events(done, done_ns, np.zeros(len(done), dtype=np.bool_), Phase.COMPLETE)
    ends["bytes"], ends["status"] = done.done_bytes, done.status
    cancelled, cancelled_ns, truncated = _only(~completed, ops, moved_end, ~absorbed)
    cancels = _end_events(cancelled, cancelled_ns, truncated, Phase.CANCELLED)
    cancels["detail"] = cancelled.absorbed_by + 1
    return _joined([begins, issues, ends, cancels]), moved


def _only(rows: Bool, ops: Operations, *columns: Any) -> tuple[Any, ...]:
    """Return operations and columns restricted to a mask, without a copy where it has all rows."""
    if rows.all():
        return ops, *columns
    return ops.take(rows), *(column[rows] for column in columns)


class Queue:
    """One location's events, held back until nothing older can come."""

    def __init__(self, hold_events: int = HOLD_EVENTS) -> None:
        """hold_events: number beyond which `release` begins operations in flight for long."""
        self._parts: list[EventArray] = []
        self._hold_events = hold_events
        self._written_to = np.iinfo(np.int64).min
        """ns: time of the last event that was released."""
        self._written = WrittenBegins()
        """Open operations with events that were put into the queue before their end."""
        self.held = 0
        """Number of events held back now."""
        self.peak = 0
        """Largest value of `held` so far."""
        self.moved = 0
        """Operations or events whose time was moved to keep an order that OTF2 demands."""

    def finish(self, ops: Operations, until: int) -> None:
        """Put in the events of operations that ended, or that `until` (ns) cuts off."""
        events, moved = finished_events(ops, until, self._written)
        self._written.remove(ops.number)
        self.moved += moved
        self._put(events)

    def release(self, end: int, still_open: Operations) -> EventArray:
        """Remove and return the events that nothing can precede any more, by (time, number, phase).

        Those are before `end` (ns) and the first known time of `still_open`, the operations in
        flight then whose Begin was not put in yet. When more than `hold_events` are held,
        operations in flight for LONG_NS get their Begin and Issued now, so that they hold nothing
        back; or later their Issued.
        """
        begin_written, issue_written = self._written.find(still_open.number)
        issued = still_open.issue != NEVER
        since = still_open.take(begin_written & ~issue_written & issued)
        if len(since):
            no = np.zeros(len(since), dtype=np.bool_)
            self._put(_event_rows(since, since.issue, no, Phase.ISSUED))
            self._written.remove(since.number)
            self._written.add(since.number, ~no)
        waiting = still_open.take(~begin_written & (still_open.first != NEVER))
        if self.held > self._hold_events:
            long_open = (waiting.complete == NEVER) & (waiting.first < end - LONG_NS)
            ops, waiting = waiting.take(long_open), waiting.take(~long_open)
            start = np.where(ops.begin != NEVER, ops.begin, ops.first)
            no, issued = np.zeros(len(ops), dtype=np.bool_), ops.issue != NEVER
            issue = np.maximum(ops.issue, start)
            self._put(_begin_events(ops, start, no))
            self._put(_event_rows(ops, issue, no, Phase.ISSUED)[issued])
            self._written.add(ops.number, issued)
        return self.take(min(end, int(waiting.first.min(initial=end))))

    def _put(self, events: EventArray) -> None:
        if len(events):
            self._parts.append(events)
            self.held += len(events)
            self.peak = max(self.peak, self.held)

    def take(self, edge: int = LATEST) -> EventArray:
        """Remove and return, sorted by (time, number, phase), the events before `edge` (ns).

        An event older than the last one that was returned before is moved to that one's time, and
        counted in `moved`.
        """
        if not self._parts:
            return np.empty(0, dtype=EVENT)
        events = _joined(self._parts)
        order = np.argsort(events["time"], kind="stable")
        time = events["time"][order]
        same = time[1:] == time[:-1]
        if same.any():  # equal times are few: only these are sorted by three keys
            tied = np.append(False, same) | np.append(same, False)
            some = order[tied]
            keys = events["phase"][some], events["number"][some], events["time"][some]
            order[tied] = some[np.lexsort(keys)]
        ready = int(np.searchsorted(events["time"][order], edge))
        out, rest = _taken(events, order[:ready]), _taken(events, order[ready:])
        self._parts, self.held = ([rest] if len(rest) else []), len(rest)
        late = out["time"] < self._written_to
        if late.any():
            self.moved += int(late.sum())
            out["time"] = np.maximum(out["time"], self._written_to)
        if len(out):
            self._written_to = int(out["time"][-1])
        return out


# Events are copied as 64-bit words, (n, _WORDS), which is faster than as records.


def _joined(parts: list[EventArray]) -> EventArray:
    words = [part.view("<u8").reshape(-1, _WORDS) for part in parts]
    return np.concatenate(words).view(EVENT).reshape(-1)


def _taken(events: EventArray, rows: I64) -> EventArray:
    return events.view("<u8").reshape(-1, _WORDS).take(rows, axis=0).view(EVENT).reshape(-1)
