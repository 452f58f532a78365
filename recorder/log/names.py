# SPDX-License-Identifier: Apache-2.0
"""Names of tasks, cgroups and files, and calls that go on, which a later log file repeats.

The kernel writes a TASK, CGROUP or FILE_NAME record only when its direct-mapped cache does not
hold it (bpf/dictionary.h, bpf/files.h). A table with the same slots therefore holds, at any time,
every name that the kernel will not write again: a log that begins with the table lacks none.
Likewise it writes a call's CALL only once in CALL_REPEAT_NS (bpf/calls.h).
"""

import base64
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.log.chunks import Segment, find
from biotrail.recorder.log.columns import Found
from biotrail.recorder.schema.records import (
    BY_KIND,
    CALL_REPEAT_NS,
    FILE_NAME_LAST,
    TIMESTAMP_BITS,
    Kind,
)

TASK_SLOTS = 16384
CGROUP_SLOTS = 1024
"""BT_TASK_SLOTS and BT_CGROUP_SLOTS of bpf/dictionary.h."""
FILE_SLOT_BITS = 15
"""BT_FILE_SLOT_BITS of bpf/files.h: the kernel remembers the names of 2^15 files."""
_HASH = 0x9E3779B97F4A7C15
_FLAGS_SHIFT = 16
"""Where the flags are in the fourth word of FILE_NAME; below them its level and piece."""
NO_CPU = 0xFFFF
"""Segment.cpu of segments that came from no ring."""
NOTE = "names"
"""Name of the note that repeats records of NOTED kinds, for readers of a part of a log."""
NOTED = (Kind.TASK, Kind.FILE_NAME)
_TIME_MASK = (1 << TIMESTAMP_BITS) - 1
_LOW_32 = np.uint64(0xFFFFFFFF)
_CALL_WORDS, _TURN_SHIFT = 8, 40
"""Of CALL: its size, and where `turn` is in the last word."""
_Q_THREAD = 4
"""The word of Q with `tid` in its upper half."""

Rows = NDArray[np.uint64]


KINDS = (Kind.TASK, Kind.CGROUP, Kind.FILE_NAME)
"""Kinds of name records; of the first two one record is a whole name, a file's path takes several
of FILE_NAME."""
_WORDS = {kind: BY_KIND[kind].size // 8 for kind in KINDS}


class NameRecords(NamedTuple):
    """Name records of one chunk, as in the ring, by time; CALLs as `repeatable` adds them."""

    tasks: Rows
    cgroups: Rows
    files: Rows
    calls: Rows = np.empty((0, _CALL_WORDS), np.uint64)


def records_at(found: Sequence[Found]) -> NameRecords:
    """Return a copy of a chunk's name records, by time; `found`: where those of KINDS are."""
    parts: dict[Kind, list[Rows]] = {kind: [] for kind in KINDS}
    for words, starts in found:
        kinds = words.take(starts) >> np.uint64(TIMESTAMP_BITS)
        for kind, rows in parts.items():
            of_kind = starts[(kinds == kind) & (starts + _WORDS[kind] <= len(words))]
            if len(of_kind):
                rows.append(words[of_kind[:, np.newaxis] + np.arange(_WORDS[kind])])
    return NameRecords(*(_sorted(rows, _WORDS[kind]) for kind, rows in parts.items()))


def repeatable(named: Sequence[NameRecords], segments: Sequence[Segment]) -> list[NameRecords]:
    """Return what later files repeat of the chunks of one drain: names, and CALLs that go on.

    named: of each chunk. segments: what all were made of. CALLs are those of the drain's last
    CALL_REPEAT_NS that bios of a later chunk may refer to. Their `bio` is the thread's id, from the
    Q that the CALL follows in its ring; a CALL without one is left out.
    """
    parts: list[Rows] = []
    for words, starts in find(segments, (Kind.Q, Kind.CALL)):
        kinds = words.take(starts) >> np.uint64(TIMESTAMP_BITS)
        queues = starts[kinds == Kind.Q]
        at = starts[(kinds == Kind.CALL) & (starts + _CALL_WORDS <= len(words))]
        calls = words[at[:, np.newaxis] + np.arange(_CALL_WORDS)]
        refers = (calls[:, -1] >> np.uint64(_TURN_SHIFT) & np.uint64(0xFF)) > 0
        if not refers.any():  # most logs
            continue
        times = calls[:, 0] & np.uint64(_TIME_MASK)
        refers &= times + np.uint64(CALL_REPEAT_NS) > times[refers].max()
        calls, at = calls[refers], at[refers]
        before = np.searchsorted(queues, at) - 1
        own = before >= 0
        own[own] = words[queues[before[own]] + 1] == calls[own, 1]
        calls = calls[own]
        calls[:, 1] = words[queues[before[own]] + _Q_THREAD] >> np.uint64(32)
        parts.append(calls)
    *front, last = named
    return [*front, last._replace(calls=_sorted(parts, _CALL_WORDS))]


def note(named: Sequence[NameRecords], near_ns: int) -> dict[str, Any]:
    """Return the payload of a "names" note: {"monotonic": ns, "count": of records, "records"}.

    "records" has those of NOTED kinds as in the ring, in base64, by the kind's number as text.
    `near_ns`: CLOCK_MONOTONIC within a year of their times, of which they have the low 56 bits.
    """
    found: dict[Kind, list[bytes]] = {}
    for one in named:
        for kind, rows in zip(NOTED, (one.tasks, one.files), strict=True):
            if len(rows):
                found.setdefault(kind, []).append(rows.tobytes())
    joined = {kind: b"".join(parts) for kind, parts in found.items()}
    return {
        "monotonic": near_ns,
        "count": sum(len(data) // BY_KIND[kind].size for kind, data in joined.items()),
        "records": {str(int(k)): base64.b64encode(data).decode() for k, data in joined.items()},
    }


def _sorted(parts: list[Rows], words: int) -> Rows:
    """Return all rows (n, words) uint64 by head word, so by time; the sort is stable."""
    if not parts:
        return np.empty((0, words), np.uint64)
    rows = np.concatenate(parts)
    return rows[np.argsort(rows[:, 0], kind="stable")]


def file_slot(inode: int, dev: int) -> int:
    """Return the slot of a file in the kernel's cache of names; `dev`: kernel dev_t."""
    return ((inode + (dev << 32)) * _HASH & (1 << 64) - 1) >> (64 - FILE_SLOT_BITS)


def _paths(rows: Rows) -> Iterator[Rows]:
    """Yield a copy of the records of each complete path (m, 8), the file's own name first.

    `rows`: by time. A path ends at a record with FILE_NAME_LAST and begins with level 0, piece 0;
    its records have the same time, inode, device and generation. A record missing in between is not
    noticed.
    """
    last = np.flatnonzero(rows[:, 3] >> np.uint64(_FLAGS_SHIFT) & np.uint64(FILE_NAME_LAST))
    begin = 0
    for end in (last + 1).tolist():
        path = rows[begin:end]
        begin = end
        # Records of a path that was cut short for lack of room may stand right before: drop those
        # of another time, inode, device or generation.
        path = path[(path[:, :3] == path[-1, :3]).all(axis=1)]
        if int(path[0, 3]) & 0xFFFF == 0:
            yield path


class Names:
    """The newest name record in every slot of the kernel's caches."""

    def __init__(self) -> None:
        slots = {Kind.TASK: TASK_SLOTS, Kind.CGROUP: CGROUP_SLOTS}
        self._tables = [np.zeros((n, _WORDS[kind]), np.uint64) for kind, n in slots.items()]
        self._files: dict[int, Rows] = {}
        self._calls: dict[int, NDArray[np.uint64]] = {}

    def update(self, records: NameRecords) -> None:
        """Put a chunk's name records, by time, into their slots, unless the slot's is newer."""
        for path in _paths(records.files):
            slot = file_slot(int(path[0, 1]), int(path[0, 2] & _LOW_32))
            previous = self._files.get(slot)
            if previous is None or previous[0, 0] <= path[0, 0]:
                self._files[slot] = path
        named = (records.tasks, records.cgroups)
        for table, rows in zip(self._tables, named, strict=True):
            slots = (rows[:, 1] & _LOW_32 & np.uint64(len(table) - 1)).astype(np.intp)
            # Rings are drained one by one, so a later chunk may hold older records.
            newer = rows[:, 0] >= table[slots, 0]
            table[slots[newer]] = rows[newer]
        for call in records.calls:
            old = self._calls.get(tid := int(call[1]))
            if old is None or call[0] >= old[0]:
                self._calls[tid] = call
        if len(records.calls):
            oldest = (int(records.calls[-1, 0]) & _TIME_MASK) - CALL_REPEAT_NS
            self._calls = {t: call for t, call in self._calls.items() if _is_within(call, oldest)}

    def segments(self, at_ns: int) -> list[Segment]:
        """Return all names as segments for a log's first chunk, one for each kind that has any.

        Behind them one of the calls that bios after `at_ns` may refer to. In these copies the
        records' times become `at_ns` (CLOCK_MONOTONIC, ns), so that they precede the file's events.
        Levels are the kind's index in KINDS, calls behind it.
        """
        segments = []
        files = np.concatenate([np.empty((0, 8), np.uint64), *self._files.values()])
        tables = [*(table[table[:, 0] != 0] for table in self._tables), files]
        for level, (rows, kind) in enumerate(zip(tables, KINDS, strict=True)):
            rows[:, 0] = np.uint64(int(kind) << TIMESTAMP_BITS | at_ns & _TIME_MASK)
            if len(rows):
                segments.append(Segment(NO_CPU, level, 0, rows.tobytes()))
        running = [c for c in self._calls.values() if _is_within(c, at_ns - CALL_REPEAT_NS)]
        if running:
            calls = np.array(running)
            calls[:, 0] = np.uint64(int(Kind.CALL) << TIMESTAMP_BITS | at_ns & _TIME_MASK)
            segments.append(Segment(NO_CPU, len(KINDS), 0, calls.tobytes()))
        return segments


def _is_within(record: NDArray[np.uint64], since_ns: int) -> bool:
    """Return whether a record is newer than `since_ns` (CLOCK_MONOTONIC), by its low 56 bits."""
    ago = (int(record[0]) - since_ns) & _TIME_MASK
    return 0 < ago <= _TIME_MASK >> 1
