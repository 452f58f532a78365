# SPDX-License-Identifier: Apache-2.0
"""FILE_NAME records that went by, so that a later file can begin with them (see names.py)."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.schema.records import FILE_NAME_LAST

SLOT_BITS = 15
"""BT_FILE_SLOT_BITS of bpf/files.h: files whose names the kernel does not write again."""
_HASH = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_LOW_32 = (1 << 32) - 1
_FLAGS_SHIFT = 16

Rows = NDArray[np.uint64]
"""Records as words, as in the ring: shape (n, 8), u64."""


def slot(inode: int, dev: int) -> int:
    """The place that a file's names have in the kernel's direct-mapped cache."""
    return ((inode + (dev << 32)) * _HASH & _WORD) >> (64 - SLOT_BITS)


def paths(rows: Rows) -> Iterator[Rows]:
    """The records of each whole path; those of a path that is not whole are left out."""
    last = np.flatnonzero(rows[:, 3] >> np.uint64(_FLAGS_SHIFT) & np.uint64(FILE_NAME_LAST))
    begin = 0
    for end in (last + 1).tolist():
        path = rows[begin:end]
        begin = end
        # What was cut short for want of room stands right before: it is of another time.
        path = path[(path[:, :3] == path[-1, :3]).all(axis=1)]
        if int(path[0, 3]) & 0xFFFF == 0:
            yield path


class FileNames:
    """The newest path of every slot."""

    def __init__(self) -> None:
        self._slots: dict[int, Rows] = {}

    def learn(self, rows: Rows) -> None:
        """Take in the records of a chunk, by time."""
        for path in paths(rows):
            place = slot(int(path[0, 1]), int(path[0, 2]) & _LOW_32)
            known = self._slots.get(place)
            if known is None or known[0, 0] <= path[0, 0]:
                self._slots[place] = path

    def rows(self) -> Rows:
        """All of them."""
        return np.concatenate([np.empty((0, 8), np.uint64), *self._slots.values()])
