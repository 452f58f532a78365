# SPDX-License-Identifier: Apache-2.0
"""Files whose pages bios carry: FILE records joined to their Q, and the files' paths.

A file is identified by inode number, inode generation and file system. Its path is the last that
was recorded: FILE_NAME records are written again when I/O finds it renamed.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import translate
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I32, I64, U32, U64, Bool
from biotrail.recorder.schema.records import FILE_NAME_CUT, FILE_NAME_DELETED, FILE_NAME_LAST, Kind

# Names that people have for files, by patterns of their paths.

DELETED = " (deleted)"
"""What stands behind the path of a file that had no name any more."""
_GLOB = re.compile(r"[*?\[]")


class Labels:
    """Labels by pattern; a path has that of the first pattern that is it, else that fits it.

    A pattern that does not begin with `/` or `*` is of the end of a path, from a `/` on.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        """pairs: (pattern, label)."""
        self._paths: dict[str, str] = {}
        self._globs: list[tuple[re.Pattern[str], str]] = []
        for pattern, label in pairs:
            if not _GLOB.search(pattern):
                self._paths.setdefault(pattern, label)
                continue
            whole = pattern if pattern[0] in "/*" else f"*/{pattern}"
            self._globs.append((re.compile(translate(whole)), label))
        self.of = cache(self._of)

    def _of(self, path: str) -> str | None:
        path = path.removesuffix(DELETED)
        if (found := self._paths.get(path)) is not None:
            return found
        end = path
        while end:
            _, _, end = end.partition("/")
            if (found := self._paths.get(end)) is not None:
                return found
        return next((label for glob, label in self._globs if glob.match(path)), None)


# Where a container sees a file of its root, which is an overlay, by the file's path on the host.
#
# The path alone tells it, so it does for logs of any age:
#
# | whose | layers lie in |
# |---|---|
# | Docker (overlay2) | `…/overlay2/ID/diff/` |
# | Podman, CRI-O (containers/storage) | `…/overlay/ID/diff/` |
# | containerd (of Docker, k3s) | `…/io.containerd.snapshotter.v1.overlayfs/snapshots/N/fs/` |

_LAYER = re.compile(
    r"[^:]*?/(?:overlay2?/(?:[0-9a-f]{64}(?:-init)?|[0-9a-z]{25})/diff"
    r"|io\.containerd\.snapshotter\.v1\.overlayfs/snapshots/\d+/fs)(/.*)",
    re.DOTALL,
)


NO_FILE = -1
"""Value in place of a file's row: the bio has no known file."""
_KERNEL_FILES = "/sys/", "/proc/"
"""Where sysfs and procfs are mounted."""

_DEV_SHIFT, _LOW = 32, (1 << 32) - 1
_BTRFS_HASH = 0x9E3779B1
"""Factor by which bpf/inodes.h mixes the number of a subvolume, or tree, into generations."""
_TREES = 1, (0, _BTRFS_HASH)
"""Inode of all trees of a btrfs, and its generations: without subvolumes, and in the root tree.
Data that scrub and device replace read and write by its address is of that inode, too."""
_RELOCATED = 1 ^ (-9 * _BTRFS_HASH & _LOW)
"""Generation of the inodes through which btrfs relocates data (balance), of its data reloc tree."""
_MAJOR_SHIFT = 20
OTHER_DEV = _LOW
"""In place of a file's device: what a call's descriptor is open as has no path."""
_PIPE = 2
"""`other` of a CALL_FILE record."""
_KERNELS_NAMES = {
    "[eventf": "eventfd",
    "[eventp": "epoll",
    "[fanoti": "fanotify",
    "[io_uri": "io_uring",
    "[perf_e": "perf_event",
    "[signal": "signalfd",
    "[timerf": "timerfd",
    "[userfa": "userfaultfd",
    "inotify": "inotify",
    "kvm-vcp": "kvm-vcpu",
    **{name: name for name in ("[pidfd]", "kvm-vm", "")},
}
"""First 7 bytes of the name that the kernel gives a file without a path → what it is called; all
others are sockets, by their protocol."""

_KEY = ("head", "inode", "dev", "generation")
"""Fields that all FILE_NAME records of one path have in common."""

Key = tuple[int, int, int]
"""(inode, dev, generation)."""


class File(NamedTuple):
    """One file, or a block device whose own pages were moved."""

    path: str
    """Absolute path where the mount point is known; else `DEVICE:PATH`, or `inode N of PLACE`."""
    inode: int
    dev: int
    """s_dev of the file system; for a block device's own pages its dev_t."""
    device: bool
    """Whether the pages belong to a block device: file system metadata, or the device as a file."""
    known: bool
    """Whether the log has the path; if not, `path` names the inode and where it is, or says what it
    is that has no path: a pipe, a socket and the like (`dev` is OTHER_DEV)."""
    was: str | None = None
    """The path before, where the log has several: the file was renamed."""
    label: str | None = None
    """What people call it (--labels); None: no label is of its path."""

    @property
    def in_container(self) -> str | None:
        """Where containers see it; None: it is in no layer of an overlay, or has no known path."""
        found = _LAYER.fullmatch(self.path) if self.known and not self.device else None
        return found[1] if found else None

    @property
    def shown(self) -> str:
        """The path, and behind it the label or the path that containers see, if it has one."""
        also = self.label or self.in_container
        return f"{self.path} ({also})" if also else self.path


class _Names(NamedTuple):
    """A recorded path, before the mount point is put in front."""

    inside: str
    """Path within the file system."""
    cut: bool
    """Whether outer directories are missing because the path was too deep to record."""
    deleted: bool
    mount: tuple[str, str] | None
    """(mounted directory of the file system, mount point); None: not known."""


class FileNames:
    """All files recorded so far. Row numbers never change, so tables may hold them."""

    def __init__(self, device_name: Callable[[int], str]) -> None:
        self._device_name = device_name
        self._rows: dict[Key, int] = {}
        self.keys: list[Key] = []
        self._names: dict[Key, _Names] = {}
        self._were: dict[Key, _Names] = {}
        self.foreseen: FileNames | None = None
        """Another reading of the log, to its end, whose names are taken; None: this reading's."""
        self.renamed: list[int] = []
        """Rows of files whose path has changed, in that order; it grows while the log is read."""
        self._mounts: dict[int, list[tuple[str, str]]] = {}
        self.labels: Labels | None = None
        """What people call files; None: no labels were given."""

    def __len__(self) -> int:
        return len(self._rows)

    def of_kernel(self, rows: I32) -> Bool:
        """Return per row whether it is of sysfs or procfs: calls of it wait for the kernel."""
        found, of = np.unique(rows, return_inverse=True)
        paths = ["" if row == NO_FILE else self[row].path for row in found.tolist()]
        kernel = np.array([path.startswith(_KERNEL_FILES) for path in paths], dtype=np.bool_)
        return np.asarray(kernel[of], dtype=np.bool_)

    def add_mounts(self, payload: Mapping[str, Any]) -> None:
        for dev, pairs in payload.items():
            self._mounts[int(dev)] = [(str(root), str(point)) for root, point in pairs]

    def add_records(self, events: Events) -> None:
        """Add the paths of a window's FILE_NAME records; a file's last path counts.

        The records of one path (a name, or a piece of one, each) follow one another on their CPU,
        up to one with FILE_NAME_LAST. A path is dropped if its first record is missing, if it is
        not complete at the window's end, or if its records have several times and another file's
        come between.
        """
        rows = events.rows(Kind.FILE_NAME)
        if not len(rows):
            return
        # Two CPUs may record two files at the same time: group by file, and let the stable sort
        # keep the records of one path in order.
        order = np.lexsort((events.cpu[rows], events.raw[rows, 2], events.raw[rows, 1]))
        order = order[np.argsort(events.ts[rows][order], kind="stable")]
        parts: list[np.void] = []
        for record in events.fields(Kind.FILE_NAME, rows[order]):
            same = bool(parts) and all(record[field] == parts[0][field] for field in _KEY)
            parts = [*parts, record] if same else [record]
            if int(record["flags"]) & FILE_NAME_LAST:
                self._add_path(parts)
                parts = []

    def _add_path(self, parts: list[np.void]) -> None:
        """Store the path of one file from its FILE_NAME records, innermost name first."""
        first, last = parts[0], parts[-1]
        if self.foreseen is not None or first["level"] or first["piece"]:
            return
        key = int(first["inode"]), int(first["dev"]), int(first["generation"])
        names: dict[int, bytes] = {}
        for part in parts:
            level = int(part["level"])
            names[level] = names.get(level, b"") + bytes(part["component"])
        words = [names[level].decode("utf-8", "replace") for level in sorted(names, reverse=True)]
        inside = "/" + "/".join(words).lstrip("/")  # the root's own name is "/"
        flags = int(last["flags"])
        cut, deleted = bool(flags & FILE_NAME_CUT), bool(flags & FILE_NAME_DELETED)
        before = self._names.get(key)
        if before is not None and before.inside == inside:
            return
        if before is not None:
            if deleted:
                return  # it is still open, and its last name is that before
            self._were[key] = before
            if key in self._rows:
                self.renamed.append(self._rows[key])
        self._names[key] = _Names(inside, cut, deleted, self._mount(key[1], inside))

    def _mount(self, dev: int, inside: str) -> tuple[str, str] | None:
        """Return the (root, mount point) with the longest root that shows a path of `dev`."""
        fits = [
            (root, point)
            for root, point in self._mounts.get(dev, [])
            if root in ("/", inside) or inside.startswith(f"{root}/")
        ]
        return max(fits, key=lambda pair: len(pair[0]), default=None)

    def rows(self, inode: U64, dev: U32, generation: U32) -> I32:
        """Return the row of each file, int32 (n,); dev 0: a block device's pages, by `inode`."""
        if not len(inode):
            return np.zeros(0, dtype=np.int32)
        keys = np.stack(
            [inode, dev.astype(np.uint64) << np.uint64(_DEV_SHIFT) | generation], axis=1
        )
        distinct, at = np.unique(keys, axis=0, return_inverse=True)
        rows = []
        for number, pair in distinct.tolist():
            key = (number, pair >> _DEV_SHIFT, pair & _LOW)
            row = self._rows.setdefault(key, len(self.keys))
            if row == len(self.keys):
                self.keys.append(key)
            rows.append(row)
        return np.array(rows, dtype=np.int32)[at.reshape(-1)]

    def __getitem__(self, row: int) -> File:
        """Return the file of a row (as from `rows`, not NO_FILE), named by what was read so far.

        `path` is absolute where a mount is known and the path is complete; else `DEVICE:PATH`
        (`DEVICE:…/PATH` if outer directories are missing); with " (deleted)" at its end if the file
        was deleted. Without a path it is `inode N of PLACE`: the file system's first mount point,
        else its device; of inodes of btrfs's own, what is done through them. For a block device's
        own pages it is the device's name. Raises IndexError: no such row.
        `was`: likewise the path before.
        """
        key = self.keys[row]
        inode, dev, _ = key
        if not dev:
            return File(self._device_name(inode), inode, inode, True, True)
        if dev == OTHER_DEV:
            if key[2] == _PIPE:
                return File("(pipe)", inode, dev, False, False)
            word = inode.to_bytes(8, "little").split(b"\0")[0].decode("ascii", "replace")
            path = f"(socket: {word.partition('-')[0]})"
            if word in _KERNELS_NAMES or word.startswith("["):
                path = f"({_KERNELS_NAMES.get(word, word).strip('[]') or 'no file'})"
            return File(path, inode, dev, False, False)
        known = self if self.foreseen is None else self.foreseen
        names, was = known._names.get(key), known._were.get(key)
        if names is None:
            mounted = self._mounts.get(dev)
            place = mounted[0][1] if mounted else self._device_name(dev)
            path = _BY_ADDRESS.get(_btrfs_role(key), "inode {inode} of {place}")
            return File(path.format(inode=inode, place=place), inode, dev, False, False)
        before = None if was is None else self._path(dev, was)
        path = self._path(dev, names)
        label = self.labels.of(path) if self.labels is not None else None
        return File(path, inode, dev, False, True, before, label)

    def _path(self, dev: int, names: _Names) -> str:
        where = self._device_name(dev)
        mount = names.mount or self._mount(dev, names.inside)
        path = f"{where}:…{names.inside}" if names.cut else f"{where}:{names.inside}"
        if mount is not None and not names.cut:
            root, point = mount
            path = point.rstrip("/") + (names.inside if root == "/" else names.inside[len(root) :])
            path = path.rstrip("/") or "/"
        return path + (DELETED if names.deleted else "")


_BY_ADDRESS = {
    "trees": "({place}: data by address)",
    "relocated": "({place}: data that is relocated)",
}
"""`_btrfs_role` → what stands for a path, in braces the place."""


def _btrfs_role(key: Key) -> str:
    """Return what an inode of btrfs's own is for: "trees", "relocated", or ""."""
    inode, dev, generation = key
    if dev >> _MAJOR_SHIFT:  # btrfs has devices of no driver
        return ""
    if inode == _TREES[0] and generation in _TREES[1]:
        return "trees"
    return "relocated" if generation == _RELOCATED else ""


def attach_files(events: Events, names: FileNames, meta: int) -> None:
    """Set `events.file` of each Q, RETURN and WAIT to a row in `names`; add names first."""
    names.add_records(events)
    rows, of_calls = events.rows(Kind.FILE), events.rows(Kind.CALL_FILE)
    if not len(rows) and not len(of_calls):
        return
    files = np.full(len(events), NO_FILE, dtype=np.int32)
    for kind, found, event in (
        (Kind.FILE, rows, events.followed(Kind.Q, rows)),
        (Kind.CALL_FILE, of_calls, _ends_of(events, of_calls)),
    ):
        at = found[event >= 0]
        columns = [events.field(kind, name, at) for name in ("inode", "dev", "generation")]
        if kind == Kind.CALL_FILE:
            other = events.field(kind, "other", at)
            columns[1] = np.where(other > 0, np.uint32(OTHER_DEV), columns[1])
            columns[2] = np.where(other > 0, other, columns[2])
        files[event[event >= 0]] = names.rows(*columns)
    # Blocks of btrfs's trees are of no file, as other file systems' metadata.
    queued = np.flatnonzero((events.kind == Kind.Q) & (files != NO_FILE)) if meta else rows[:0]
    trees = queued[events.field(Kind.Q, "opf", queued) & np.uint32(meta) != 0]
    for row in np.unique(files[trees]).tolist():
        if _btrfs_role(names.keys[row]) == "trees":
            files[trees[files[trees] == row]] = NO_FILE
    events.file = files


def _ends_of(events: Events, rows: I64) -> I64:
    """Return the row of the RETURN or WAIT that each CALL_FILE record follows, (n,); -1: none."""
    returns = np.concatenate([events.rows(Kind.RETURN), events.rows(Kind.WAIT)])
    found = np.full(len(rows), -1, dtype=np.int64)
    if not len(rows) or not len(returns):
        return found
    tids = np.concatenate(
        [events.field(kind, "tid", events.rows(kind)) for kind in (Kind.RETURN, Kind.WAIT)]
    ).astype(np.int64)
    order = np.lexsort((tids, events.ts[returns]))
    times, tids = events.ts[returns][order], tids[order]
    asked = events.field(Kind.CALL_FILE, "tid", rows).astype(np.int64)
    first = np.searchsorted(times, events.ts[rows], side="left")
    stop = np.searchsorted(times, events.ts[rows], side="right")
    for ahead in range(int((stop - first).max(initial=0))):
        place = np.minimum(first + ahead, len(order) - 1)
        same = (first + ahead < stop) & (tids[place] == asked)
        found[same] = returns[order[place[same]]]
    return found
