# SPDX-License-Identifier: Apache-2.0
"""Choice of I/Os by device, operation, file and submitter."""

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from biotrail.converters.events.context import Context, dev_numbers
from biotrail.converters.events.tables import U32, Bios, Bool, Requests, Tasks
from biotrail.converters.lifecycles.operations import asks_flush, operations
from biotrail.recorder.schema.errors import ConversionError

__all__ = ["Choice", "asks_flush", "device_named", "operations"]
NO_FILES = "this log does not say which files I/O is of: record again with biotrail record --files"


def device_named(context: Context, name: str) -> int | None:
    """Return the dev_t of a device name: `nvme0n1`, `/dev/nvme0n1`, `mapper/data` or `259:0`.

    A `major:minor` is converted even if the log does not have that device; any other name that
    the log does not have gives None.
    """
    short = name.removeprefix("/dev/").removeprefix("mapper/")
    for dev, entry in context.devices.items():
        if short in (entry.get("name"), entry.get("dm_name"), dev_numbers(dev)):
            return dev
    return _numbered(short)


@dataclass(frozen=True)
class Who:
    """Submitters of I/O. A bio has to match one item of each set that is not empty."""

    pids: frozenset[int] = frozenset()
    """Process ids."""
    comms: frozenset[str] = frozenset()
    """Thread names; a `*` at the end matches any rest."""
    cgroups: frozenset[str] = frozenset()
    """Paths, each with its subtree, or decimal ids."""

    def mask(self, context: Context, bios: Bios, tasks: Tasks) -> Bool:
        """Mark the bios of these submitters, (n,); False where the submitter is not known.

        Where only the submitting thread of a bio is known, not its process, the thread's id is
        compared with `pids`. tasks: the window's.
        """
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
        """Return whether a thread's name matches one of `comms`."""
        return any(
            comm.startswith(name[:-1]) if name.endswith("*") else comm == name
            for name in self.comms
        )

    def _charged(self, one: int, path: str | None) -> bool:
        """Return whether a cgroup, by id and path (None: not known), is in `cgroups` or below."""
        if str(one) in self.cgroups:
            return True
        above = [] if path is None else [name.rstrip("/") for name in self.cgroups]
        return any(path == (name or "/") or str(path).startswith(f"{name}/") for name in above)


ANYBODY = Who()


def _of_tasks(chosen: Bool, bios: Bios) -> Bool:
    """Mark the bios (n,) that were queued by the tasks of the mask `chosen` (m,)."""
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
        """Each parameter restricts the choice; an empty one does not.

        devices: names as of device_named. wanted: names of operations. who: submitters. files:
        shell patterns (fnmatch) for whole paths. Raises ConversionError if there are files and the
        log was recorded without files.
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
        """The log's context, from which devices, operations, cgroups and files have their names."""
        return self._context

    @property
    def all(self) -> bool:
        """Whether the choice is all I/Os."""
        return not (self._devices or self._wanted or self.by_bio)

    @property
    def by_device(self) -> bool:
        """Whether the choice is restricted to some devices."""
        return bool(self._devices)

    @property
    def by_who(self) -> bool:
        """Whether the choice is restricted to some submitters."""
        return self.who != ANYBODY

    @property
    def by_bio(self) -> bool:
        """Whether only bios can match: submitters and files are known of bios, not of requests."""
        return self.by_who or bool(self._files)

    def mask(self, bios: Bios, tasks: Tasks) -> Bool:
        """Mark the chosen bios, shape (n,). tasks: the window's."""
        chosen = self._on_devices(bios.dev, bios.part)
        chosen &= self._doing(bios.opf, bios.bytes)
        if self.by_who:
            chosen &= self.who.mask(self._context, bios, tasks)
        if self._files:
            rows, place = np.unique(bios.file, return_inverse=True)
            chosen &= np.array([self._is_wanted(row) for row in rows.tolist()], np.bool_)[place]
        return chosen

    def _is_wanted(self, row: int) -> bool:
        """Return whether the file in a row of Context.files (-1: none) matches a pattern."""
        if row < 0:
            return False
        path = self._context.files[row].path
        return any(fnmatchcase(path, pattern) for pattern in self._files)

    def request_mask(self, requests: Requests) -> Bool:
        """Mark the requests whose own device and operation are chosen, shape (n,).

        All False if the choice is `by_bio`.
        """
        if self.by_bio:
            return np.zeros(len(requests), dtype=np.bool_)
        chosen = self._on_devices(requests.dev, requests.dev)
        return chosen & self._doing(requests.opf, requests.bytes)

    def _on_devices(self, dev: U32, part: U32) -> Bool:
        """Mark rows (n,) whose disk `dev` or partition `part` is one of the choice's devices."""
        if not self._devices:
            return np.ones(len(dev), dtype=np.bool_)
        wanted = np.array(self.devices(), dtype=np.int64)
        return np.isin(dev, wanted) | np.isin(part, wanted)

    def _doing(self, opf: U32, size: U32) -> Bool:
        """Mark rows (n,) with one of the choice's operations. size: bytes."""
        if not self._wanted or not len(opf):
            return np.ones(len(opf), dtype=np.bool_)
        codes, names = operations(self._context, opf, size)
        return np.array([name in self._wanted for name in names], dtype=np.bool_)[codes]

    def devices(self) -> list[int]:
        """Return the dev_t of the choice's devices; those not in the log so far are left out."""
        found = [device_named(self._context, name) for name in self._devices]
        return [dev for dev in found if dev is not None]

    def check(self, seen: Collection[int]) -> None:
        """Raise ConversionError for a device of the choice that the log does not have.

        To be called after the log was read to its end, because a device can appear during the
        recording. seen: dev_t of devices with events, which blktrace's files do not list otherwise.
        """
        known = {*self._context.devices, *seen}
        for name in self._devices:
            if device_named(self._context, name) not in known:
                listed = ", ".join(sorted({self._context.device_name(d) for d in known}))
                raise ConversionError(f"the log has no device {name}; it has {listed or 'none'}")


def _numbered(name: str) -> int | None:
    """Return the dev_t of a decimal `major:minor`; None for any other name."""
    major, _, minor = name.partition(":")
    if not all(part.isascii() and part.isdigit() for part in (major, minor)):
        return None
    return int(major) << 20 | int(minor)
