# SPDX-License-Identifier: Apache-2.0
"""Reads raw BTF (Documentation/bpf/btf.rst): the kernel's, and a module's on top of it.

libbpf's functions answer for one type at a time; which of 60,000 functions take a struct is a
question to all types at once, so kinds, names and references are arrays here.
"""

import re
import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.schema.errors import SiteError

_HEADER = struct.Struct("<HBBIIIII")
"""struct btf_header: magic, version, flags, its length; offset and length of types and strings."""
_MAGIC = 0xEB9F
_TYPE_WORDS = 3
"""Words of struct btf_type: offset of the name, info, size or type."""


class Kind(IntEnum):
    """BTF_KIND_* (include/uapi/linux/btf.h)."""

    VOID = 0
    INT = 1
    PTR = 2
    ARRAY = 3
    STRUCT = 4
    UNION = 5
    ENUM = 6
    FWD = 7
    TYPEDEF = 8
    VOLATILE = 9
    CONST = 10
    RESTRICT = 11
    FUNC = 12
    FUNC_PROTO = 13
    VAR = 14
    DATASEC = 15
    FLOAT = 16
    DECL_TAG = 17
    TYPE_TAG = 18
    ENUM64 = 19


MODIFIERS = (Kind.TYPEDEF, Kind.VOLATILE, Kind.CONST, Kind.RESTRICT, Kind.TYPE_TAG)
"""Kinds that name or qualify another type, and change nothing of how it lies in memory."""
RECORDS = (Kind.STRUCT, Kind.UNION)

_FIXED = {Kind.INT: 1, Kind.ARRAY: 3, Kind.VAR: 1, Kind.DECL_TAG: 1}
"""Words that follow struct btf_type, by kind; and those for each of its vlen elements."""
_EACH = {
    **dict.fromkeys((Kind.STRUCT, Kind.UNION, Kind.DATASEC, Kind.ENUM64), 3),
    **dict.fromkeys((Kind.ENUM, Kind.FUNC_PROTO), 2),
}
_FIXED_BY_KIND = tuple(_TYPE_WORDS + _FIXED.get(kind, 0) for kind in Kind)
_EACH_BY_KIND = tuple(_EACH.get(kind, 0) for kind in Kind)


class Type(NamedTuple):
    """vlen: number of members, values or parameters.

    flag: the kind_flag (of an enum: it is signed; of a struct: it has bit fields). extent: size in
    bytes, or the id of the type that it refers to. at: index of its first word in the blob.
    """

    number: int
    kind: Kind
    name: str
    vlen: int
    flag: bool
    extent: int
    at: int


class Member(NamedTuple):
    """bit: offset in bits; bits: size of a bit field, else 0."""

    name: str
    number: int
    bit: int
    bits: int


class Parameters(NamedTuple):
    """Parameters of all function types of one blob, flattened.

    proto (p,): id of the function type that each belongs to; place (p,): its index there, from 0
    on; type (p,): id of its type. Ascending by proto, then place.
    """

    proto: NDArray[np.int64]
    place: NDArray[np.int64]
    type: NDArray[np.int64]


class Btf:
    """One blob of BTF. Ids are those of the kernel: a module's begin where vmlinux's end.

    name: the module's; "": the kernel's own. first: id of its first type; end: the id after its
    last. kinds, refs (n,): kind, and size or referred type, of the types from `first` on.
    """

    def __init__(self, data: bytes, name: str = "", base: "Btf | None" = None) -> None:
        """data: as in /sys/kernel/btf/NAME. base: vmlinux's, for a module. Raises SiteError."""
        self.name, self.base = name, base
        try:
            magic, _, _, length, at, size, strings, string_bytes = _HEADER.unpack_from(data)
        except struct.error:
            raise self._damaged("it is too short") from None
        if magic != _MAGIC:
            raise self._damaged(f"it begins with {magic:#x}, not with {_MAGIC:#x}")
        types = data[length + at : length + at + size]
        self.strings = data[length + strings : length + strings + string_bytes]
        if len(types) < size or size % 4 or len(self.strings) < string_bytes:
            raise self._damaged("it is cut")
        self._string_base: int = base.string_end if base else 0
        self.string_end: int = self._string_base + string_bytes
        self._words = np.frombuffer(types, "<u4")
        words = memoryview(types).cast("I")
        starts, at = [], 0
        try:
            while at < len(words):
                starts.append(at)
                info = words[at + 1]
                kind = info >> 24 & 0x1F
                at += _FIXED_BY_KIND[kind] + _EACH_BY_KIND[kind] * (info & 0xFFFF)
        except IndexError:
            raise self._damaged(f"type {len(starts)} is of a kind that is not known") from None
        if at != len(words):
            raise self._damaged("its last type is cut")
        self._starts = np.array(starts, np.int64)
        self.first: int = base.end if base else 1
        self.end: int = self.first + len(self._starts)
        self.kinds = (self._words[self._starts + 1] >> 24 & 0x1F).astype(np.uint8)
        self.refs = self._words[self._starts + 2].astype(np.int64)
        self._name_at = self._words[self._starts].astype(np.int64)
        rows = np.flatnonzero(self.kinds == Kind.FUNC_PROTO)
        counts = (self._words[self._starts[rows] + 1] & 0xFFFF).astype(np.int64)
        owner = np.repeat(np.arange(len(rows)), counts)
        index = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        at_words = self._starts[rows][owner] + _TYPE_WORDS + 2 * index + 1
        taken = self._words[at_words].astype(np.int64)
        self.parameters = Parameters(self.first + rows[owner], index, taken)
        refers = np.isin(self.kinds, (Kind.PTR, Kind.FUNC, *MODIFIERS))
        if (self.refs[refers] >= self.end).any() or (self.parameters.type >= self.end).any():
            raise self._damaged("a type refers to one that is not there")

    def _damaged(self, reason: str) -> SiteError:
        place = f"/sys/kernel/btf/{self.name or 'vmlinux'}"
        return SiteError(f"the type information (BTF) of {place} cannot be read: {reason}")

    def type(self, number: int) -> Type:
        """Return the type with this id; 0 is void. Raises SiteError: there is no such id."""
        if number == 0:
            return Type(0, Kind.VOID, "void", 0, False, 0, 0)
        if self.base and number < self.first:
            return self.base.type(number)
        if not self.first <= number < self.end:
            raise self._damaged(f"there is no type {number}")
        row = number - self.first
        at = int(self._starts[row])
        info = int(self._words[at + 1])
        kind = Kind(int(self.kinds[row]))
        name = self.string(int(self._name_at[row]))
        return Type(number, kind, name, info & 0xFFFF, bool(info >> 31), int(self.refs[row]), at)

    def string(self, offset: int) -> str:
        if self.base and offset < self._string_base:
            return self.base.string(offset)
        at = offset - self._string_base
        end = self.strings.find(b"\0", at)
        return self.strings[at : end if end >= 0 else None].decode(errors="replace")

    def words_of(self, of: Type) -> NDArray[np.uint32]:
        """Return the words that follow the type's header, and those of later types."""
        holder = self.base if self.base and of.number < self.first else self
        return holder._words[of.at + _TYPE_WORDS :]

    def _following(self, of: Type, each: int) -> list[list[int]]:
        """Return the elements that follow the type's header, each as its words."""
        rows: list[list[int]] = self.words_of(of)[: each * of.vlen].reshape(-1, each).tolist()
        return rows

    def members(self, of: Type) -> list[Member]:
        return [
            Member(self.string(name), number, *((at & 0xFFFFFF, at >> 24) if of.flag else (at, 0)))
            for name, number, at in self._following(of, 3)
        ]

    def values(self, of: Type) -> dict[int, str]:
        """Return an enum's names by value; of several names of a value the first."""
        found: dict[int, str] = {}
        for name, low, *high in self._following(of, 2 if of.kind == Kind.ENUM else 3):
            value, bits = (low | high[0] << 32, 64) if high else (low, 32)
            if of.flag and value >> bits - 1:
                value -= 1 << bits
            found.setdefault(value, self.string(name))
        return found

    def array(self, of: Type) -> tuple[int, int]:
        """Return (element type, number of elements)."""
        words = self.words_of(of)
        return int(words[0]), int(words[2])

    def arguments(self, proto: Type) -> list[tuple[str, int]]:
        """Return names ("": not known) and type ids."""
        return [(self.string(name), number) for name, number in self._following(proto, 2)]

    def strip(self, number: int) -> Type:
        """Return the type below typedefs, const, volatile, restrict and type tags."""
        found = self.type(number)
        while found.kind in MODIFIERS:
            found = self.type(found.extent)
        return found

    def named(self, name: str, kind: Kind) -> list[int]:
        """Return the ids of this blob's own types of that name, ascending."""
        return (self.first + np.flatnonzero(self.has_name(name) & (self.kinds == kind))).tolist()

    def has_name(self, name: str) -> NDArray[np.bool_]:
        """Return a mask (n,) of this blob's own types."""
        wanted = re.compile(re.escape(name.encode() + b"\0"))
        offsets: list[int] = []
        # Where strings read `name`, or the end of a longer one; a module may use the kernel's.
        for blob in (self.base, self) if self.base else (self,):
            found = wanted.finditer(blob.strings)
            offsets += [match.start() + blob._string_base for match in found]
        return np.isin(self._name_at, offsets)

    def names(self, kind: Kind, prefix: str = "") -> dict[str, int]:
        """Return the ids of this blob's own named types by name; of several of a name the last."""
        rows = np.flatnonzero(self.kinds == kind)
        found = {
            self.string(int(at)): int(row)
            for at, row in zip(self._name_at[rows], rows, strict=True)
        }
        return {n: self.first + r for n, r in found.items() if n.startswith(prefix) and n}

    def close_over(self, mask: NDArray[np.bool_]) -> None:
        """Add to `mask` (end,), by id, this blob's types that name or qualify a type in it."""
        rows = np.flatnonzero(np.isin(self.kinds, MODIFIERS))
        while True:
            fresh = mask[self.refs[rows]] & ~mask[self.first + rows]
            if not fresh.any():
                return
            mask[self.first + rows[fresh]] = True
