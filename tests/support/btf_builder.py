# SPDX-License-Identifier: Apache-2.0
"""Writes BTF (Documentation/bpf/btf.rst) type by type, so that tests know every id and offset."""

import struct
from collections.abc import Sequence

from biotrail.recorder.sites.btf import Kind

_HEADER = struct.Struct("<HBBIIIII")
_POINTER = 8


class BtfBuilder:
    """A blob of BTF being written; each method adds a type and returns its id.

    `base`: the builder of vmlinux's, for a module's. Names are never shared between the two, as a
    kernel may write them. `sizes` has the bytes of each type, for structs' offsets.
    """

    def __init__(self, base: "BtfBuilder | None" = None) -> None:
        self.next = base.next if base else 1
        self.sizes: dict[int, int] = dict(base.sizes) if base else {0: 1}
        self._string_base = base.string_end if base else 0
        self._strings = b"\0"
        self._types = b""

    @property
    def string_end(self) -> int:
        return self._string_base + len(self._strings)

    def bytes(self) -> bytes:
        """The blob as /sys/kernel/btf/NAME has it."""
        header = _HEADER.pack(
            0xEB9F, 1, 0, 24, 0, len(self._types), len(self._types), len(self._strings)
        )
        return header + self._types + self._strings

    def _name(self, name: str) -> int:
        if not name:
            return 0
        at = self.string_end
        self._strings += name.encode() + b"\0"
        return at

    def add(
        self,
        kind: int,
        name: str,
        extent: int,
        words: Sequence[int] = (),
        vlen: int = 0,
        flag: bool = False,
    ) -> int:
        """Add a type of any kind; `words` follow its header."""
        info = kind << 24 | vlen | flag << 31
        self._types += struct.pack(f"<{3 + len(words)}I", self._name(name), info, extent, *words)
        self.next += 1
        return self.next - 1

    def _sized(self, number: int, size: int) -> int:
        self.sizes[number] = size
        return number

    def int(self, name: str, size: int, signed: bool = False) -> int:
        return self._sized(self.add(Kind.INT, name, size, [signed << 24 | size * 8]), size)

    def pointer(self, to: int) -> int:
        return self._sized(self.add(Kind.PTR, "", to), _POINTER)

    def typedef(self, name: str, of: int) -> int:
        return self._sized(self.add(Kind.TYPEDEF, name, of), self.sizes.get(of, 1))

    def const(self, of: int) -> int:
        return self._sized(self.add(Kind.CONST, "", of), self.sizes.get(of, 1))

    def array(self, of: int, count: int) -> int:
        return self._sized(self.add(Kind.ARRAY, "", 0, [of, 1, count]), count * self.sizes[of])

    def forward(self, name: str) -> int:
        return self.add(Kind.FWD, name, 0)

    def enum(self, name: str, size: int = 4, signed: bool = False, **values: int) -> int:
        words = [w for n, v in values.items() for w in (self._name(n), v & 0xFFFFFFFF)]
        number = self.add(Kind.ENUM, name, size, words, len(values), signed)
        return self._sized(number, size)

    def enum64(self, name: str, signed: bool = False, **values: int) -> int:
        words = [
            w
            for n, v in values.items()
            for w in (self._name(n), v & 0xFFFFFFFF, v >> 32 & 0xFFFFFFFF)
        ]
        return self._sized(self.add(Kind.ENUM64, name, 8, words, len(values), signed), 8)

    def struct(self, name: str, *members: tuple[str, int], union: bool = False) -> int:
        """Members one behind the other without padding; of a union all at 0."""
        at, words = 0, []
        for member, number in members:
            words += [self._name(member), number, 0 if union else at * 8]
            at = max(at, self.sizes[number]) if union else at + self.sizes[number]
        kind = Kind.UNION if union else Kind.STRUCT
        return self._sized(self.add(kind, name, at, words, len(members)), at)

    def bit_fields(self, name: str, size: int, *members: tuple[str, int, int, int]) -> int:
        """A struct of members (name, type, first bit, bits); bits 0: a whole member."""
        words = [
            w for n, number, bit, bits in members for w in (self._name(n), number, bits << 24 | bit)
        ]
        return self._sized(self.add(Kind.STRUCT, name, size, words, len(members), True), size)

    def proto(self, *parameters: tuple[str, int]) -> int:
        words = [word for name, number in parameters for word in (self._name(name), number)]
        return self.add(Kind.FUNC_PROTO, "", 0, words, len(parameters))

    def function(self, name: str, *parameters: tuple[str, int], static: bool = False) -> int:
        return self.add(Kind.FUNC, name, self.proto(*parameters), vlen=0 if static else 1)

    def tracepoint(self, name: str, *parameters: tuple[str, int], named: bool = True) -> int:
        """A tracepoint's typedef; with `named` also the function that has the arguments' names."""
        void = self.pointer(0)
        proto = self.proto(("", void), *(("", number) for _, number in parameters))
        if named:
            self.function(f"__traceiter_{name}", ("__data", void), *parameters)
        return self.typedef(f"btf_trace_{name}", self.pointer(proto))
