# SPDX-License-Identifier: Apache-2.0
"""Reads from ELF files what function names need: build id, segments, symbols.

A file may belong to any user while the recorder runs as root. So every length is bounded, and a
file that exceeds a bound has no symbols. Only the needed parts are read, so that the build ids of
a thousand files take less than a second.
"""

import lzma
import os
import stat
import struct
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_IDENT_BYTES = 16
_MAGIC = b"\x7fELF"
_PT_LOAD, _PT_NOTE = 1, 4
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_NT_GNU_BUILD_ID = 3
_FUNCTIONS = (2, 10)
"""Types of symbols that are functions: STT_FUNC, STT_GNU_IFUNC."""
_MAX_HEADERS = 1 << 14
_MAX_NOTES = 1 << 16
_MAX_TABLE = 1 << 28
_MAX_NAME = 1 << 10
_BUILD_ID_BYTES = 20
_INNER = ".gnu_debugdata"
_MAX_INNER = 1 << 26
_BY_CLASS = {
    2: {
        "header": (("type", "u2"), ("machine", "u2"), ("version", "u4"), ("entry", "u8"),
                   ("phoff", "u8"), ("shoff", "u8"), ("flags", "u4"), ("ehsize", "u2"),
                   ("phentsize", "u2"), ("phnum", "u2"), ("shentsize", "u2"), ("shnum", "u2"),
                   ("shstrndx", "u2")),
        "segment": (("type", "u4"), ("flags", "u4"), ("offset", "u8"), ("vaddr", "u8"),
                    ("paddr", "u8"), ("filesz", "u8"), ("memsz", "u8"), ("align", "u8")),
        "section": (("name", "u4"), ("type", "u4"), ("flags", "u8"), ("addr", "u8"),
                    ("offset", "u8"), ("size", "u8"), ("link", "u4"), ("info", "u4"),
                    ("align", "u8"), ("entsize", "u8")),
        "symbol": (("name", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2"),
                   ("value", "u8"), ("size", "u8")),
    },
    1: {
        "header": (("type", "u2"), ("machine", "u2"), ("version", "u4"), ("entry", "u4"),
                   ("phoff", "u4"), ("shoff", "u4"), ("flags", "u4"), ("ehsize", "u2"),
                   ("phentsize", "u2"), ("phnum", "u2"), ("shentsize", "u2"), ("shnum", "u2"),
                   ("shstrndx", "u2")),
        "segment": (("type", "u4"), ("offset", "u4"), ("vaddr", "u4"), ("paddr", "u4"),
                    ("filesz", "u4"), ("memsz", "u4"), ("flags", "u4"), ("align", "u4")),
        "section": tuple((n, "u4") for n in ("name", "type", "flags", "addr", "offset", "size",
                                             "link", "info", "align", "entsize")),
        "symbol": (("name", "u4"), ("value", "u4"), ("size", "u4"), ("info", "u1"),
                   ("other", "u1"), ("section", "u2")),
    },
}  # fmt: skip
"""Elf64 and Elf32 structures (elf.h), by EI_CLASS."""
_DTYPES = {
    (kind, order): {
        name: np.dtype([(member, order + size) for member, size in members])
        for name, members in structures.items()
    }
    for kind, structures in _BY_CLASS.items()
    for order in "<>"
}
"""These by EI_CLASS and byte order."""


class NoElfError(Exception):
    """The file is no ELF file, or not one that can be read."""


class Functions(NamedTuple):
    """Functions sorted by address: three arrays (n,), uint64."""

    address: NDArray[np.uint64]
    """As in the symbol table."""
    size: NDArray[np.uint64]
    """Bytes, 0 where the file does not say."""
    names: NDArray[np.uint64]
    """File offsets."""


class Elf:
    """An open ELF file, of 32 or 64 bits and either byte order."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the file, read its ELF and program headers. Raises NoElfError, OSError."""
        # O_NONBLOCK: open() must not wait where the path is a pipe by now.
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise NoElfError("no file")
            ident = os.pread(self._fd, _IDENT_BYTES, 0)
            if len(ident) < _IDENT_BYTES or ident[:4] != _MAGIC or ident[4] not in _BY_CLASS:
                raise NoElfError("no ELF file")
            self._order = ">" if ident[5] == 2 else "<"
            self._form = _DTYPES[ident[4], self._order]
            self._header = head = self._table("header", _IDENT_BYTES, 1)[0]
            self._segments = self._table("segment", int(head["phoff"]), int(head["phnum"]))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._fd)

    def _table(self, name: str, offset: int, count: int) -> NDArray[np.void]:
        dtype = self._form[name]
        size = count * dtype.itemsize
        if size > _MAX_TABLE or offset + size >= 1 << 62:
            raise NoElfError("a table that is too large")
        data = os.pread(self._fd, size, offset)
        if len(data) < size:
            raise NoElfError("cut")
        return np.frombuffer(data, dtype)

    def build_id(self) -> bytes:
        """Return the first GNU build id, as the kernel has it: 20 bytes, cut or padded with zeros.

        b"" where there is none in the first _MAX_NOTES of each PT_NOTE segment.
        """
        head = struct.Struct(f"{self._order}III")
        for segment in self._segments[self._segments["type"] == _PT_NOTE]:
            size = min(int(segment["filesz"]), _MAX_NOTES)
            notes = self._read(size, int(segment["offset"]))
            at = 0
            while at + head.size <= len(notes):
                name, value, kind = head.unpack_from(notes, at)
                at += head.size
                begin = at + (name + 3 & ~3)
                if kind == _NT_GNU_BUILD_ID and notes[at : at + name] == b"GNU\0":
                    if found := notes[begin : begin + value]:
                        return found[:_BUILD_ID_BYTES].ljust(_BUILD_ID_BYTES, b"\0")
                    break
                at = begin + (value + 3 & ~3)
        return b""

    def address(self, offset: int) -> int | None:
        """Return the virtual address of a file offset, by the first PT_LOAD segment that has it."""
        for segment in self._segments[self._segments["type"] == _PT_LOAD]:
            inside = offset - int(segment["offset"])
            if 0 <= inside < int(segment["filesz"]):
                return int(segment["vaddr"]) + inside
        return None

    def _sections(self) -> NDArray[np.void]:
        count = int(self._header["shnum"])
        if count > _MAX_HEADERS:
            raise NoElfError("too many sections")
        return self._table("section", int(self._header["shoff"]), count)

    def inner(self) -> "Elf | None":
        """Return the file in .gnu_debugdata (stripped symbols), the caller's to close."""
        sections, names = self._sections(), int(self._header["shstrndx"])
        if names >= len(sections):
            return None
        texts = int(sections[names]["offset"])
        for section in sections:
            if self.text(texts + int(section["name"])) == _INNER:
                size = min(int(section["size"]), _MAX_INNER)
                packed = self._read(size, int(section["offset"]))
                with suppress(lzma.LZMAError, NoElfError):
                    # What was unpacked before `packed` ends too early is used.
                    unpacker = lzma.LZMADecompressor(memlimit=_MAX_INNER)
                    with open(os.memfd_create("biotrail"), "wb") as file:
                        file.write(unpacker.decompress(packed, _MAX_INNER))
                        file.flush()
                        return Elf(f"/proc/self/fd/{file.fileno()}")
                return None
        return None

    def functions(self) -> Functions:
        """Return the functions of .symtab or, where it has none, of .dynsym, sorted by address."""
        sections = self._sections()
        for kind in (_SHT_SYMTAB, _SHT_DYNSYM):
            for section in sections[sections["type"] == kind]:
                if section["link"] >= len(sections):
                    continue
                count = int(section["size"]) // self._form["symbol"].itemsize
                rows = self._table("symbol", int(section["offset"]), count)
                defined = np.isin(rows["info"] & 15, _FUNCTIONS) & (rows["section"] != 0)
                rows = rows[defined]
                rows = rows[np.argsort(rows["value"], kind="stable")]
                if len(rows):
                    texts = int(sections[section["link"]]["offset"]) & (1 << 62) - 1
                    return Functions(
                        rows["value"].astype(np.uint64),
                        rows["size"].astype(np.uint64),
                        rows["name"].astype(np.uint64) + np.uint64(texts),
                    )
        none = np.zeros(0, np.uint64)
        return Functions(none, none, none)

    def text(self, offset: int) -> str:
        """Return the NUL-terminated text at a file offset, cut after _MAX_NAME bytes."""
        return self._read(_MAX_NAME, offset).split(b"\0")[0].decode(errors="replace")

    def _read(self, size: int, offset: int) -> bytes:
        # pread() rejects larger offsets; no file has data there.
        return os.pread(self._fd, size, min(offset, 1 << 62))
