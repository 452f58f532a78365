# SPDX-License-Identifier: Apache-2.0
"""The file names recorded so far, which a later log file repeats (see names.py)."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.schema.records import FILE_NAME_LAST

SLOT_BITS = 15
"""BT_FILE_SLOT_BITS of bpf/files.h: the kernel remembers the names of 2^15 files."""
_HASH = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_LOW_32 = (1 << 32) - 1
_FLAGS_SHIFT = 16

Rows = NDArray[np.uint64]
"""FILE_NAME records (n, 8) uint64: the words of each, as in the ring."""


def slot(inode: int, dev: int) -> int:
    """Return the slot of a file in the kernel's direct-mapped cache of names (bpf/files.h).

    `dev`: kernel dev_t of the file system.
    """
    return ((inode + (dev << 32)) * _HASH & _WORD) >> (64 - SLOT_BITS)


def paths(rows: Rows) -> Iterator[Rows]:
    """Yield a copy of the records of each complete path (m, 8), the file's own name first.

    `rows`: by time. A path ends at a record with FILE_NAME_LAST and begins with level 0, piece 0;
    its records have the same time, inode, device and generation. Records of a path whose first or
    last record is missing are skipped; a record missing in between is not noticed.
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


class FileNames:
    """The newest path in every slot of the kernel's cache of file names."""

    def __init__(self) -> None:
        self._slots: dict[int, Rows] = {}

    def update(self, rows: Rows) -> None:
        """Update the slots of the kernel's cache of file names with a chunk's FILE_NAME records.

        `rows`: (n, 8) uint64, by time. A complete path replaces that of its slot, unless that is
        newer; incomplete ones are ignored.
        """
        for path in paths(rows):
            number = slot(int(path[0, 1]), int(path[0, 2]) & _LOW_32)
            previous = self._slots.get(number)
            if previous is None or previous[0, 0] <= path[0, 0]:
                self._slots[number] = path

    def rows(self) -> Rows:
        """Return a copy of the records of all paths (n, 8)."""
        return np.concatenate([np.empty((0, 8), np.uint64), *self._slots.values()])
