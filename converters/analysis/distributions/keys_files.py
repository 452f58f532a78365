# SPDX-License-Identifier: Apache-2.0
"""Grouping I/O by the file whose pages it carries: by inode, by path, by directory."""

import posixpath
from collections.abc import Mapping

import numpy as np

from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.events.context import Context, dev_numbers
from biotrail.converters.events.files import File
from biotrail.converters.events.tables import I64, Bool, Lifecycles

NO_DATA = frozenset({"flush", "discard", "secure_erase", "write_zeroes"})
"""Operations whose bios carry no pages."""
Name = Mapping[str, str | int | None]
_EMPTY, _UNKNOWN, _FIRST = 0, 1, 2
"""Codes of bios that carry no data, of those whose file is not known, and of the first file."""


def _without(code: int) -> Name:
    """Return the fields of a group that has no file."""
    kind = "no data" if code == _EMPTY else "not known"
    return {"file": None, "file_kind": kind, "file_dev": None, "inode": None}


def _kind(found: File) -> str:
    if found.device:
        return "device"
    return "file" if found.known else "no name"


class ByInode:
    """The inode whose pages it carries; without one, why there is none."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key."""
        row = window.bios.file.astype(np.int64)
        missing = np.where(self._carries_nothing(window), _EMPTY, _UNKNOWN)
        return np.where(row >= 0, row + _FIRST, missing)

    def _carries_nothing(self, window: Lifecycles) -> Bool:
        operations, names = self._context.op_codes(window.bios.opf)
        empty = np.array([name in NO_DATA for name in names], dtype=np.bool_)[operations]
        return np.asarray(empty | (window.bios.bytes == 0), dtype=np.bool_)

    def name(self, code: int) -> Name:
        """See Key. A file of None: see file_kind."""
        if code < _FIRST:
            return _without(code)
        found = self._context.files[code - _FIRST]
        path, inode = (None, None) if found.device else (found.path, found.inode)
        told = {"file": path, "file_kind": _kind(found)}
        named = {"device": found.path} if found.device else {}
        return {**told, "file_dev": dev_numbers(found.dev), "inode": inode, **named}


class ByPath(ByInode):
    """The path of the file, whichever inodes had it; without a file, why there is none.

    A path can be learned after a file's first I/O, where the records of its name were lost:
    `canonical` then leads from the code of its inode's number to that of its path.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._codes: dict[tuple[int, str], int] = {}
        self._inodes: dict[int, set[int]] = {}
        """Rows of the files of each code."""
        self._of_row = np.zeros(0, dtype=np.int64)
        """Code of each row of the log's files; 0: not asked for yet, or without a name so far."""

    def _words(self, found: File) -> str:
        """Return what files have in common that are one group."""
        return found.path

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key."""
        inodes = super().codes(window, samples)
        rows, place = np.unique(inodes, return_inverse=True)
        if len(rows) and rows[-1] - _FIRST >= len(self._of_row):
            room = np.zeros(2 * int(rows[-1]), dtype=np.int64)
            room[: len(self._of_row)] = self._of_row
            self._of_row = room
        found = [self._code(code - _FIRST) if code >= _FIRST else code for code in rows.tolist()]
        return np.array(found, dtype=np.int64)[place]

    def _code(self, row: int) -> int:
        known = int(self._of_row[row])
        if known:
            return known
        file = self._context.files[row]
        code = self._code_of(file)
        self._inodes.setdefault(code, set()).add(row)
        if file.known:
            self._of_row[row] = code
        return code

    def _code_of(self, file: File) -> int:
        return self._codes.setdefault((file.dev, self._words(file)), _FIRST + len(self._codes))

    def canonical(self, code: int) -> int:
        """Return the code of the path that the files of `code` are known by now, if it is one.

        Notes in the path's group that these files are among its own.
        """
        if code < _FIRST:
            return code
        rows = self._inodes[code]
        now = {self._code_of(self._context.files[row]) for row in rows}
        if len(now) > 1:
            return code
        [path] = now
        self._inodes.setdefault(path, set()).update(rows)
        return path

    def name(self, code: int) -> Name:
        """See Key. inode: where one alone had the path; inodes: how many had it."""
        if code < _FIRST:
            return {**_without(code), "inodes": 0}
        rows = self._inodes[code]
        told = super().name(min(rows) + _FIRST)
        if told["file"] is None:
            return {**told, "inodes": 0}
        return {**told, "inode": told["inode"] if len(rows) == 1 else None, "inodes": len(rows)}


class ByDirectory(ByPath):
    """The directory of the file; without a file, or without its name, why there is none."""

    def _words(self, found: File) -> str:
        if found.device:
            return found.path
        return directory(found.path) if found.known else ""

    def name(self, code: int) -> Name:
        """See Key. A dir of None: see file_kind."""
        told = dict(super().name(code))
        path = told.pop("file")
        told.pop("inode")
        known = told["file_kind"] == "file"
        return {"dir": directory(str(path)) if known else None, **told}


def directory(path: str) -> str:
    """Return what stands before the last name of a path: `/srv/db`, `/`, `sda1:/db`."""
    found = posixpath.dirname(path)
    return f"{found}/" if found.endswith(":") else found
