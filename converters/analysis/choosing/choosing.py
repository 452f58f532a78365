# SPDX-License-Identifier: Apache-2.0
"""Which I/Os a question is about: device, operation, file, and who queued them."""

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from biotrail.converters.events.context import Context, dev_numbers
from biotrail.converters.events.tables import U32, Bios, Bool, Requests, Tasks
from biotrail.converters.lifecycles.operations import asks_flush, operations
from biotrail.recorder.schema.errors import ConversionError

__all__ = ["Choice", "asks_flush", "device_named", "operations"]
NO_FILES = "this log does not tell files: record again with biotrail record --files"


def device_named(context: Context, name: str) -> int | None:
    """dev_t of `nvme0n1`, `/dev/nvme0n1`, `mapper/data` or `259:0`; None: not in the log."""
    short = name.removeprefix("/dev/").removeprefix("mapper/")
    for dev, entry in context.devices.items():
        if short in (entry.get("name"), entry.get("dm_name"), dev_numbers(dev)):
            return dev
    return _numbered(short)


@dataclass(frozen=True)
class Who:
    """Who queued an I/O. Empty: anybody. Of several of one kind any will do, of two kinds both."""

    pids: frozenset[int] = frozenset()
    """Processes."""
    comms: frozenset[str] = frozenset()
    """Names of threads; a star at the end stands for any rest."""
    cgroups: frozenset[str] = frozenset()
    """Paths, each with its subtree, or ids."""

    def mask(self, context: Context, bios: Bios, tasks: Tasks) -> Bool:
        """Which of the bios are theirs, shape (n,); of whom nothing is known is none of them."""
        chosen = np.ones(len(bios), dtype=np.bool_)
        if self.pids:
            pids = np.array(sorted(self.pids), dtype=np.int64)
            tgid = _of_tasks(np.isin(tasks.tgid, pids), bios)
            chosen &= np.where(bios.task >= 0, tgid, (bios.tid > 0) & np.isin(bios.tid, pids))
        if self.comms:
            named = {str(comm): self._named(str(comm)) for comm in set(tasks.comm.tolist())}
            found = [named[str(comm)] for comm in tasks.comm.tolist()]
            chosen &= _of_tasks(np.array(found, dtype=np.bool_), bios)
        if self.cgroups:
            ids, place = np.unique(bios.cgroup, return_inverse=True)
            inside = [self._charged(one, context.cgroups.get(one)) for one in ids.tolist()]
            chosen &= np.array(inside, dtype=np.bool_)[place]
        return chosen

    def _named(self, comm: str) -> bool:
        return any(
            comm.startswith(name[:-1]) if name.endswith("*") else comm == name
            for name in self.comms
        )

    def _charged(self, one: int, path: str | None) -> bool:
        if str(one) in self.cgroups:
            return True
        above = [] if path is None else [name.rstrip("/") for name in self.cgroups]
        return any(path == (name or "/") or str(path).startswith(f"{name}/") for name in above)


ANYBODY = Who()


def _of_tasks(chosen: Bool, bios: Bios) -> Bool:
    """Of a mask of tasks, that of the bios that these queued."""
    if not len(chosen):
        return np.zeros(len(bios), dtype=np.bool_)
    return np.asarray((bios.task >= 0) & chosen[np.maximum(bios.task, 0)], dtype=np.bool_)


class Choice:
    """The I/Os of some devices (disks or partitions), operations, submitters and files."""

    def __init__(
        self,
        context: Context,
        devices: Collection[str] = (),
        wanted: Collection[str] = (),
        who: Who = ANYBODY,
        files: Collection[str] = (),
    ) -> None:
        """devices: names or `8:0`. wanted: names of operations. None of these: all of them.

        files: paths, as a shell's patterns. Raises ConversionError: the log does not tell files.
        """
        if files and not context.has_files:
            raise ConversionError(NO_FILES)
        self._files = tuple(files)
        self._context = context
        self._devices = tuple(devices)
        self._wanted = frozenset(wanted)
        self.who = who

    @property
    def context(self) -> Context:
        """The log's facts that the choice is made by."""
        return self._context

    @property
    def all(self) -> bool:
        """Whether nothing is left out."""
        return not (self._devices or self._wanted or self.by_bio)

    @property
    def by_device(self) -> bool:
        """Whether only some devices are meant."""
        return bool(self._devices)

    @property
    def by_who(self) -> bool:
        """Whether only some submitters are meant."""
        return self.who != ANYBODY

    @property
    def by_bio(self) -> bool:
        """Whether it takes a bio to tell: no request has a submitter or a file of its own."""
        return self.by_who or bool(self._files)

    def mask(self, bios: Bios, tasks: Tasks) -> Bool:
        """Which of the bios are meant, shape (n,)."""
        chosen = self._on_devices(bios.dev, bios.part)
        chosen &= self._doing(bios.opf, bios.bytes)
        if self.by_who:
            chosen &= self.who.mask(self._context, bios, tasks)
        if self._files:
            rows, place = np.unique(bios.file, return_inverse=True)
            chosen &= np.array([self._is_wanted(row) for row in rows.tolist()], np.bool_)[place]
        return chosen

    def _is_wanted(self, row: int) -> bool:
        if row < 0:
            return False
        path = self._context.files[row].path
        return any(fnmatchcase(path, pattern) for pattern in self._files)

    def request_mask(self, requests: Requests) -> Bool:
        """Which of the requests are meant by what they are themselves, shape (n,)."""
        if self.by_bio:
            return np.zeros(len(requests), dtype=np.bool_)
        chosen = self._on_devices(requests.dev, requests.dev)
        return chosen & self._doing(requests.opf, requests.bytes)

    def _on_devices(self, dev: U32, part: U32) -> Bool:
        if not self._devices:
            return np.ones(len(dev), dtype=np.bool_)
        wanted = np.array(self.devices(), dtype=np.int64)
        return np.isin(dev, wanted) | np.isin(part, wanted)

    def _doing(self, opf: U32, size: U32) -> Bool:
        if not self._wanted or not len(opf):
            return np.ones(len(opf), dtype=np.bool_)
        codes, names = operations(self._context, opf, size)
        return np.array([name in self._wanted for name in names], dtype=np.bool_)[codes]

    def devices(self) -> list[int]:
        """dev_t of those devices that the log has told of by now."""
        found = [device_named(self._context, name) for name in self._devices]
        return [dev for dev in found if dev is not None]

    def check(self, seen: Collection[int]) -> None:
        """Raises ConversionError for a device that the log does not have.

        To be called when the log was read: a device can appear while it is recorded. seen:
        devices with events; blktrace's files list no others.
        """
        known = {*self._context.devices, *seen}
        for name in self._devices:
            if device_named(self._context, name) not in known:
                told = ", ".join(sorted({self._context.device_name(d) for d in known}))
                raise ConversionError(f"the log has no device {name}; it has {told or 'none'}")


def _numbered(name: str) -> int | None:
    """dev_t of `major:minor`; None for anything else."""
    major, _, minor = name.partition(":")
    if not all(part.isascii() and part.isdigit() for part in (major, minor)):
        return None
    return int(major) << 20 | int(minor)
