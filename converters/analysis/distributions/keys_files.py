# SPDX-License-Identifier: Apache-2.0
"""Keys that group I/O by the file whose pages the bio carries: by inode, by path, by directory."""

import posixpath
from collections.abc import Mapping

import numpy as np

from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.events.context import Context, dev_numbers
from biotrail.converters.events.files import OTHER_DEV, File
from biotrail.converters.events.tables import I64, Bios, Bool, Lifecycles
from biotrail.converters.lifecycles.operations import CLEARED, FLUSH
from biotrail.converters.lifecycles.purposes import Purpose, purposes

NO_DATA = frozenset({FLUSH, *CLEARED})
"""Operations whose bios carry no pages."""
Name = Mapping[str, str | int | None]
_KINDS = ("no data", "not known", "swap", "journal", "metadata", "no I/O")
"""file_kind by code of what has no file; files follow."""
_EMPTY, _UNKNOWN, _SWAP, _JOURNAL, _METADATA, NO_IO = range(len(_KINDS))
"""Codes of bios without data, of bios whose file is not known, of what such are for, and of calls
that queued no I/O."""
_FIRST = len(_KINDS)
"""Code of the first file."""
_PURPOSES = {
    Purpose.NONE: _EMPTY,
    Purpose.SWAP: _SWAP,
    Purpose.JOURNAL: _JOURNAL,
    Purpose.METADATA: _METADATA,
}
_OF_PURPOSE = np.array([_PURPOSES.get(one, _UNKNOWN) for one in sorted(Purpose)], np.int64)
"""Purpose → code of its bios without a file."""


def _without(code: int) -> Name:
    """Return the name's fields for a group without a file: a code below _FIRST."""
    return {"file": None, "file_kind": _KINDS[code], "file_dev": None, "inode": None}


def _kind(file: File) -> str:
    """Return file_kind: "device" (a block device's own pages), "file", "no name" or "other"."""
    if file.device:
        return "device"
    if file.dev == OTHER_DEV:
        return "other"
    return "file" if file.known else "no name"


class ByInode:
    """Key: inode of the file whose pages the bio carries. Codes: row in Context.files, + _FIRST.

    Bios without a file: a code below _FIRST, by what they are for.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key."""
        row = window.bios.file.astype(np.int64)
        found = row + _FIRST
        missing = np.flatnonzero(row < 0)
        if len(missing):
            bios = window.bios if len(missing) == len(row) else window.bios.take(missing)
            found[missing] = _OF_PURPOSE[purposes(bios, window.tasks, self._context)]
            found[missing[self._carries_nothing(bios)]] = _EMPTY
        return found

    def _carries_nothing(self, bios: Bios) -> Bool:
        """Mark the bios without pages: flush, discard and the like, or 0 bytes."""
        operations, names = self._context.op_codes(bios.opf)
        empty = np.array([name in NO_DATA for name in names], dtype=np.bool_)[operations]
        return np.asarray(empty | (bios.bytes == 0), dtype=np.bool_)

    def name(self, code: int) -> Name:
        """Return the name of a group: `file`, `file_kind`, `file_dev` and `inode`.

        code: as of `codes`. file: the last path; `file_was`, if it was renamed: the one before.
        file_kind: "file"; "no name" (`file` then says the inode);
        "other" (what a call's descriptor is that is no file: file_dev and inode are None);
        "device" (a block device's own pages: file and inode are None, and `device` names it); or
        one of _KINDS (the bio has no file: all others are None). file_dev: major:minor of
        the file system, or of the device. label: what people call the file, where they do;
        container_file: where containers see it, where it is in a layer of an overlay.
        """
        if code < _FIRST:
            return _without(code)
        file = self._context.files[code - _FIRST]
        path, inode = (None, None) if file.device else (file.path, file.inode)
        fields = {"file": path, "file_kind": _kind(file)}
        if file.dev == OTHER_DEV:
            return {**fields, "file_dev": None, "inode": None}
        if file.was is not None:
            fields["file_was"] = file.was
        device = {"device": file.path} if file.device else {}
        label = {"label": file.label} if file.label else {}
        if (seen := file.in_container) is not None:
            label["container_file"] = seen
        return {**fields, "file_dev": dev_numbers(file.dev), "inode": inode, **device, **label}


class ByPath(ByInode):
    """Key: path of the file, whichever inodes had that path; without a file as ByInode.

    Where the records of a file's name were lost, the path can become known after the file's first
    I/O, and it changes when the file is renamed. Such I/O has a code of its own; `canonical` maps
    it to the code of the last path. Only where another file had got the earlier path, too, before
    the change was noticed, the I/O until then stays with that path.
    """

    def __init__(self, context: Context) -> None:
        """Start without paths. context: the log's, whose `files` grow while it is read."""
        super().__init__(context)
        self._next = _FIRST
        self._codes: dict[tuple[int, str], int] = {}
        """(dev_t, `_words` of the file) → code."""
        self._inodes: dict[int, set[int]] = {}
        """Code → rows of its files in Context.files."""
        self._renamed = 0
        """Rows of `Context.files.renamed` that were looked at."""
        self._of_row = np.zeros(0, dtype=np.int64)
        """Per row of Context.files: code, or 0 if not asked for yet or without a name so far."""

    def _words(self, file: File) -> str:
        """Return the text that all files of a group (on one device) share: the path."""
        return file.path

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """Return the code of the path of each bio's file: int64 (n,), by row of the window's bios.

        The same path on two devices has two codes. A new path gets the next code; so does the
        stand-in (`inode N of …`) of a file whose path is not known yet. Bios without a file have
        codes below _FIRST, as by ByInode. Adds to `_codes` and `_inodes`, and lengthens `_of_row`
        where Context.files has grown. samples: not used.
        """
        self._take_renamed()
        inodes = super().codes(window, samples)
        rows, place = np.unique(inodes, return_inverse=True)
        if len(rows) and rows[-1] - _FIRST >= len(self._of_row):
            room = np.zeros(2 * int(rows[-1]), dtype=np.int64)
            room[: len(self._of_row)] = self._of_row
            self._of_row = room
        found = [self._code(code - _FIRST) if code >= _FIRST else code for code in rows.tolist()]
        return np.array(found, dtype=np.int64)[place]

    def _take_renamed(self) -> None:
        """Have files that were renamed since the last call looked up anew; part them from others.

        A path that they alone had is free for another file's code.
        """
        renamed = self._context.files.renamed
        for row in renamed[self._renamed :]:
            code = int(self._of_row[row]) if row < len(self._of_row) else 0
            if not code:
                continue
            self._of_row[row] = 0
            rows = self._inodes[code]
            if len(rows) > 1:
                rows.discard(row)
            else:
                self._codes = {key: one for key, one in self._codes.items() if one != code}
        self._renamed = len(renamed)

    def _code(self, row: int) -> int:
        """Return the code of the file in a row of Context.files; a new group gets the next code.

        A group is one device's `_words` of a file: its path or, while that is not known, its
        stand-in (`inode N of …`). row: from 0, within `_of_row`. Notes the row in `_inodes`, unless
        the code is in `_of_row` already. The code is kept in `_of_row` only if the file's path is
        known, because a path can follow.
        """
        code = int(self._of_row[row])
        if code:
            return code
        file = self._context.files[row]
        code = self._code_of(file)
        self._inodes.setdefault(code, set()).add(row)
        if file.known:
            self._of_row[row] = code
        return code

    def _code_of(self, file: File) -> int:
        """Return the code of the file's group; a new group gets the next code."""
        code = self._codes.setdefault((file.dev, self._words(file)), self._next)
        self._next += code == self._next
        return code

    def canonical(self, code: int) -> int:
        """Return the code of the path that the files of `code` have by now.

        code: as of `codes`. It is returned itself if these files have several paths or still none
        that is known, or if it stands for I/O without a file. Adds the files' rows to `_inodes` of
        the returned code (not if they have several paths), so that `name` counts them; a path that
        no I/O had so far gets the next code.
        """
        if code < _FIRST:
            return code
        self._take_renamed()
        rows = self._inodes[code]
        codes = {self._code_of(self._context.files[row]) for row in rows}
        if len(codes) > 1:
            return code
        [path] = codes
        self._inodes.setdefault(path, set()).update(rows)
        return path

    def name(self, code: int) -> Name:
        """Return the name of a path's group: the fields of ByInode.name, and `inodes`.

        Those are file, file_kind, file_dev, inode and, of a block device's own pages, device. code:
        as of `codes` or `canonical`. If several inodes had the path, `inode` is None, and there is
        no `file_was`. `inodes`: how
        many had it; 0 for a group without a file, and for a block device's own pages.
        """
        if code < _FIRST:
            return {**_without(code), "inodes": 0}
        rows = self._inodes[code]
        fields = super().name(min(rows) + _FIRST)
        if fields["file"] is None:
            return {**fields, "inodes": 0}
        if len(rows) > 1:
            fields = {name: value for name, value in fields.items() if name != "file_was"}
        inode = fields["inode"] if len(rows) == 1 else None
        return {**fields, "inode": inode, "inodes": len(rows)}


class ByDirectory(ByPath):
    """Key: directory of the file; files without a known name form one group per device."""

    def _words(self, file: File) -> str:
        if file.device:
            return file.path
        return directory(file.path) if file.known else ""

    def name(self, code: int) -> Name:
        """Return the name of a directory's group: `dir`, `file_kind`, `file_dev` and `inodes`.

        code: as of `codes` or `canonical`. dir: path of the directory; None where file_kind is not
        "file". inodes: how many inodes had files in it; 0 for a group without a file, and for a
        block device's own pages. The latter have `device`, too.
        """
        fields = dict(super().name(code))
        path = fields.pop("file")
        fields.pop("inode")
        fields.pop("file_was", None)
        fields.pop("label", None)
        fields.pop("container_file", None)
        known = fields["file_kind"] == "file"
        return {"dir": directory(str(path)) if known else None, **fields}


def directory(path: str) -> str:
    """Return the path without its last component: `/srv/db`, `/`, or `sda1:/` from `sda1:/db`."""
    parent = posixpath.dirname(path)
    return f"{parent}/" if parent.endswith(":") else parent
