# SPDX-License-Identifier: Apache-2.0
"""Names of tasks, cgroups and files that went by, so that a later file can begin with them.

The kernel writes a TASK, CGROUP or FILE_NAME record only when its direct-mapped cache does not
hold it (bpf/dictionary.h, bpf/files.h). A table with the same slots therefore holds, at any time,
every name that the kernel will not write again: a log that begins with the table lacks none.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.log.chunks import Chunk, Segment
from biotrail.recorder.log.columns import record_starts
from biotrail.recorder.log.file_names import FileNames
from biotrail.recorder.schema.records import BY_KIND, TIMESTAMP_BITS, Kind

TASK_SLOTS = 16384
CGROUP_SLOTS = 1024
"""BT_TASK_SLOTS and BT_CGROUP_SLOTS of bpf/dictionary.h."""
NO_CPU = 0xFFFF
"""cpu of segments that came from no ring."""
NOTE = "names"
"""The note that repeats records of NOTED kinds, for who reads a part of a log."""
NOTED = (Kind.TASK, Kind.FILE_NAME)
_TIME_MASK = (1 << TIMESTAMP_BITS) - 1
_LOW_32 = np.uint64(0xFFFFFFFF)

Rows = NDArray[np.uint64]


class _Form(NamedTuple):
    kind: Kind
    words: int
    slots: int


_TABLES = (_Form(Kind.TASK, 4, TASK_SLOTS), _Form(Kind.CGROUP, 8, CGROUP_SLOTS))
"""A record of these is a whole name; a file's path is several."""
_FORMS = (*_TABLES, _Form(Kind.FILE_NAME, 8, 0))


class Found(NamedTuple):
    """Name records of one chunk: shape (n, 4), (n, 8) and (n, 8), u64 words as in the ring."""

    tasks: Rows
    cgroups: Rows
    files: Rows


def find(segments: Sequence[Segment]) -> Found:
    """The TASK, CGROUP and FILE_NAME records of a chunk, by time."""
    parts: tuple[list[Rows], ...] = tuple([] for _ in _FORMS)
    for segment in segments:
        whole = len(segment.data) // 8
        words = np.frombuffer(segment.data, dtype="<u8", count=whole)
        tops = np.ascontiguousarray(words.view(np.uint8)[7::8])
        likely = [bool((tops == form.kind).any()) for form in _FORMS]
        if not whole or not any(likely):  # most chunks: the walk over all records is spared
            continue
        at = record_starts(tops, segment.position // 8)
        for form, rows in zip(_FORMS, parts, strict=True):
            where = at[(tops.take(at) == form.kind) & (at + form.words <= len(words))]
            rows.append(words[where[:, np.newaxis] + np.arange(form.words)])
    return Found(*(_sorted(rows, f.words) for rows, f in zip(parts, _FORMS, strict=True)))


def for_notes(segments: Sequence[Segment]) -> dict[int, bytes]:
    """Records of a chunk that a note is to repeat, by kind, as they were in the ring."""
    found = find(segments)
    rows = {Kind.TASK: found.tasks, Kind.FILE_NAME: found.files}
    return {int(kind): rows[kind].tobytes() for kind in NOTED if len(rows[kind])}


def note(records: Mapping[int, Sequence[bytes]], near_ns: int) -> dict[str, Any]:
    """A note's payload. near_ns: CLOCK_MONOTONIC, within a year of the records' times."""
    joined = {kind: b"".join(parts) for kind, parts in records.items()}
    return {
        "monotonic": near_ns,
        "count": sum(len(data) // BY_KIND[Kind(kind)].size for kind, data in joined.items()),
        "records": {str(kind): base64.b64encode(data).decode() for kind, data in joined.items()},
    }


def chunk_of(payload: Mapping[str, Any]) -> Chunk:
    """The records of a note as a chunk of no ring. Its clock has no other reading."""
    near = int(payload["monotonic"])
    segments = [
        Segment(NO_CPU, level, 0, base64.b64decode(text))
        for level, text in enumerate(payload["records"].values())
    ]
    return Chunk(0, 0, 0, near, {"monotonic": near}, segments)


def _sorted(parts: list[Rows], words: int) -> Rows:
    if not parts:
        return np.empty((0, words), np.uint64)
    rows = np.concatenate(parts)
    return rows[np.argsort(rows[:, 0], kind="stable")]


class Names:
    """The newest name record of every slot."""

    def __init__(self) -> None:
        self._tables = [np.zeros((form.slots, form.words), np.uint64) for form in _TABLES]
        self._files = FileNames()

    def learn(self, found: Found) -> None:
        """Take in the name records of a chunk, which is to follow those learned before."""
        self._files.learn(found.files)
        for table, rows, form in zip(self._tables, found[:-1], _TABLES, strict=True):
            slots = (rows[:, 1] & _LOW_32 & np.uint64(form.slots - 1)).astype(np.intp)
            newer = rows[:, 0] >= table[slots, 0]  # rings are drained one after the other
            table[slots[newer]] = rows[newer]

    def segments(self, at_ns: int) -> list[Segment]:
        """All of them as records of the time `at_ns` (CLOCK_MONOTONIC), for a log's first chunk."""
        found = []
        tables = [*(table[table[:, 0] != 0] for table in self._tables), self._files.rows()]
        for level, (rows, form) in enumerate(zip(tables, _FORMS, strict=True)):
            rows[:, 0] = np.uint64(int(form.kind) << TIMESTAMP_BITS | at_ns & _TIME_MASK)
            if len(rows):
                found.append(Segment(NO_CPU, level, 0, rows.tobytes()))
        return found
