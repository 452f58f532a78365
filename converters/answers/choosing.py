# SPDX-License-Identifier: Apache-2.0
"""Which I/Os a question is about: device, operation and file."""

from collections.abc import Collection
from fnmatch import fnmatchcase

import numpy as np

from converters.model.context import Context, dev_numbers
from converters.model.operations import asks_flush, operations
from converters.model.tables import Bios, Bool
from recorder.errors import ConversionError

__all__ = ["Choice", "asks_flush", "device_named", "operations"]
NO_FILES = "this log does not tell files: record again with biotrail record --files"


def device_named(context: Context, name: str) -> int | None:
    """dev_t of `nvme0n1`, `/dev/nvme0n1`, `mapper/data` or `259:0`; None: not in the log."""
    short = name.removeprefix("/dev/").removeprefix("mapper/")
    for dev, entry in context.devices.items():
        if short in (entry.get("name"), entry.get("dm_name"), dev_numbers(dev)):
            return dev
    return _numbered(short)


class Choice:
    """The I/Os of one device (a disk or a partition), of some operations, of some files."""

    def __init__(
        self,
        context: Context,
        device: str | None = None,
        wanted: Collection[str] = (),
        file: str | None = None,
    ) -> None:
        """device: its name or `8:0`. wanted: names of operations; none: all of them.

        file: paths, as a shell's pattern. Raises ConversionError: the log does not tell files.
        """
        if file is not None and not context.has_files:
            raise ConversionError(NO_FILES)
        self._file = file
        self._context = context
        self._device = device
        self._wanted = frozenset(wanted)

    def mask(self, bios: Bios) -> Bool:
        """Which of the bios are meant, shape (n,)."""
        chosen = np.ones(len(bios), dtype=np.bool_)
        if self._device is not None:
            dev = self.device()
            chosen &= (bios.dev == dev) | (bios.part == dev) if dev else False
        if self._wanted:
            codes, names = operations(self._context, bios.opf, bios.bytes)
            chosen &= np.array([name in self._wanted for name in names], dtype=np.bool_)[codes]
        if self._file is not None:
            rows, place = np.unique(bios.file, return_inverse=True)
            chosen &= np.array([self._is_wanted(row) for row in rows.tolist()], np.bool_)[place]
        return chosen

    def _is_wanted(self, row: int) -> bool:
        return row >= 0 and fnmatchcase(self._context.files[row].path, self._file or "")

    @property
    def all_devices(self) -> bool:
        """Whether no device was chosen."""
        return self._device is None

    def device(self) -> int | None:
        """The device's dev_t; None while the log has not told of it, or when all are meant."""
        return None if self._device is None else device_named(self._context, self._device)

    def check(self, seen: Collection[int]) -> None:
        """Raises ConversionError for a device that the log does not have.

        To be called when the log was read: a device can appear while it is recorded. seen:
        devices with events; blktrace's files list no others.
        """
        known = {*self._context.devices, *seen}
        if self._device is None or self.device() in known:
            return
        names = ", ".join(sorted({self._context.device_name(d) for d in known}))
        raise ConversionError(f"the log has no device {self._device}; it has {names or 'none'}")


def _numbered(name: str) -> int | None:
    """dev_t of `major:minor`; None for anything else."""
    major, _, minor = name.partition(":")
    if not all(part.isascii() and part.isdigit() for part in (major, minor)):
        return None
    return int(major) << 20 | int(minor)
