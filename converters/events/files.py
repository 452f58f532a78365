# SPDX-License-Identifier: Apache-2.0
"""Whose pages bios carry: FILE records joined to their Q, and the files' paths.

A file is an inode: its number, its generation and its file system. Its path is the one that it
had when its first record was written; what was renamed or deleted later keeps it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.queued import queued_of
from biotrail.converters.events.tables import I32, I64, U32, U64
from biotrail.recorder.schema.records import FILE_NAME_CUT, FILE_NAME_DELETED, FILE_NAME_LAST, Kind

NO_FILE = -1
"""Row of a bio without one."""
_DEEPEST = 64
"""Devices that stand on each other; no kernel allows so many."""

_DEV_SHIFT, _LOW = 32, (1 << 32) - 1

_KEY = ("head", "inode", "dev", "generation")
"""What the records of one path share."""

Key = tuple[int, int, int]
"""(inode, dev, generation)."""


class File(NamedTuple):
    """One file, or a block device whose own pages were moved."""

    path: str
    """From the root directory where its mount point is known; else within its file system."""
    inode: int
    dev: int
    """s_dev of its file system; of a block device: its dev_t."""
    device: bool
    """The pages are the block device's own: a file system's metadata, or the device as a file."""
    known: bool
    """Whether the log has its path; otherwise `path` says what is known."""


class _Names(NamedTuple):
    inside: str
    """Path within the file system."""
    cut: bool
    deleted: bool
    mount: tuple[str, str] | None
    """(directory of the file system, mount point)."""


class FileNames:
    """Every file seen so far. Rows are never renumbered, so tables may point to them."""

    def __init__(self, device_name: Callable[[int], str]) -> None:
        """`device_name`: a device's, by its dev_t."""
        self._device_name = device_name
        self._rows: dict[Key, int] = {}
        self._keys: list[Key] = []
        self._names: dict[Key, _Names] = {}
        self._mounts: dict[int, list[tuple[str, str]]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def mounted(self, payload: Mapping[str, Any]) -> None:
        """Takes in a `mounts` note."""
        for dev, pairs in payload.items():
            self._mounts[int(dev)] = [(str(root), str(point)) for root, point in pairs]

    def learn(self, events: Events) -> None:
        """Takes in the FILE_NAME records of a window."""
        rows = events.rows(Kind.FILE_NAME)
        if not len(rows):
            return
        # By file, for two CPUs may tell of two files at once; a stable sort keeps each in order.
        order = np.lexsort((events.cpu[rows], events.raw[rows, 2], events.raw[rows, 1]))
        order = order[np.argsort(events.ts[rows][order], kind="stable")]
        parts: list[np.void] = []
        for record in events.fields(Kind.FILE_NAME, rows[order]):
            same = bool(parts) and all(record[field] == parts[0][field] for field in _KEY)
            parts = [*parts, record] if same else [record]
            if int(record["flags"]) & FILE_NAME_LAST:
                self._learn_path(parts)
                parts = []

    def _learn_path(self, parts: list[np.void]) -> None:
        first, last = parts[0], parts[-1]
        if first["level"] or first["piece"]:
            return
        key = int(first["inode"]), int(first["dev"]), int(first["generation"])
        if key in self._names:
            return
        names: dict[int, bytes] = {}
        for part in parts:
            level = int(part["level"])
            names[level] = names.get(level, b"") + bytes(part["component"])
        words = [names[level].decode("utf-8", "replace") for level in sorted(names, reverse=True)]
        inside = "/" + "/".join(words)
        flags = int(last["flags"])
        cut, deleted = bool(flags & FILE_NAME_CUT), bool(flags & FILE_NAME_DELETED)
        self._names[key] = _Names(inside, cut, deleted, self._mount(key[1], inside))

    def _mount(self, dev: int, inside: str) -> tuple[str, str] | None:
        """The mount that shows the path: of the longest directory above it."""
        fits = [
            (root, point)
            for root, point in self._mounts.get(dev, [])
            if root in ("/", inside) or inside.startswith(f"{root}/")
        ]
        return max(fits, key=lambda pair: len(pair[0]), default=None)

    def rows(self, inode: U64, dev: U32, generation: U32) -> I32:
        """Row of each file: int32."""
        if not len(inode):
            return np.zeros(0, dtype=np.int32)
        keys = np.stack(
            [inode, dev.astype(np.uint64) << np.uint64(_DEV_SHIFT) | generation], axis=1
        )
        distinct, at = np.unique(keys, axis=0, return_inverse=True)
        known = [
            self._row((number, pair >> _DEV_SHIFT, pair & _LOW))
            for number, pair in distinct.tolist()
        ]
        return np.array(known, dtype=np.int32)[at.reshape(-1)]

    def _row(self, key: Key) -> int:
        row = self._rows.setdefault(key, len(self._keys))
        if row == len(self._keys):
            self._keys.append(key)
        return row

    def __getitem__(self, row: int) -> File:
        """What a row stands for, as far as the log tells by now."""
        key = self._keys[row]
        inode, dev, _ = key
        if not dev:
            return File(self._device_name(inode), inode, inode, True, True)
        names = self._names.get(key)
        where = self._device_name(dev)
        if names is None:
            mounted = self._mounts.get(dev)
            place = mounted[0][1] if mounted else where
            return File(f"inode {inode} of {place}", inode, dev, False, False)
        mount = names.mount or self._mount(dev, names.inside)
        path = f"{where}:…{names.inside}" if names.cut else f"{where}:{names.inside}"
        if mount is not None and not names.cut:
            root, point = mount
            path = point.rstrip("/") + (names.inside if root == "/" else names.inside[len(root) :])
        path += " (deleted)" if names.deleted else ""
        return File(path or "/", inode, dev, False, True)


def attach_files(events: Events, names: FileNames) -> None:
    """Gives each Q the row of its FILE record; learns the names among the events.

    `events` hold all of their times, so that no pair is torn.
    """
    names.learn(events)
    rows = events.rows(Kind.FILE)
    if not len(rows):
        return
    queued = queued_of(events, rows)
    told = rows[queued >= 0]
    files = np.full(len(events), NO_FILE, dtype=np.int32)
    columns = [events.field(Kind.FILE, name, told) for name in ("inode", "dev", "generation")]
    files[queued[queued >= 0]] = names.rows(*columns)
    events.file = files


def files_of(events: Events, queued: I64, upper: I64) -> I32:
    """Row of each bio's file; without one of its own, it has that of the bio above it.

    queued: row of its Q, -1 not seen. upper: which bio of these it was made for, -1 none.
    """
    if events.file is None:
        return np.full(len(queued), NO_FILE, dtype=np.int32)
    file = np.where(queued >= 0, events.file[np.maximum(queued, 0)], NO_FILE).astype(np.int32)
    lower = np.flatnonzero(upper >= 0)
    for _ in range(_DEEPEST):
        further = lower[(file[lower] == NO_FILE) & (file[upper[lower]] != NO_FILE)]
        if not len(further):
            break
        file[further] = file[upper[further]]
    return file
