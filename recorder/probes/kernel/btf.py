# SPDX-License-Identifier: Apache-2.0
"""Reads the running kernel's BTF: tracepoint prototypes, struct members, block layer enums.

The prototype decides which program fits a tracepoint, never the kernel's version:
distributions backport.
"""

import ctypes
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from biotrail.recorder.probes.kernel.libbpf import load_library
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import KernelEnums

_BTF = Path("/sys/kernel/btf")
_KIND_PTR = 2
_KIND_STRUCT = 4
_KIND_UNION = 5
_KIND_ENUM = 6
_KIND_TYPEDEF = 8
_KIND_FUNC = 12
_KIND_FUNC_PROTO = 13
_OP_ENUMS = ("req_op", "req_opf")  # enum req_opf up to 5.19, enum req_op since
_FLAG_ENUM = "req_flag_bits"


class _Type(NamedTuple):
    """`struct btf_type` (include/uapi/linux/btf.h).

    vlen: number of members, enum values or parameters, which begin at the address `behind`. flag:
    of a struct: it has bit fields. refers: the id of the type that it refers to.
    """

    kind: int
    vlen: int
    flag: bool
    refers: int
    name_at: int
    behind: int


class KernelBtf:
    """The running kernel's BTF, parsed by libbpf; a context manager that frees it."""

    def __init__(self, module: str = "") -> None:
        """Load /sys/kernel/btf/vmlinux and, on top of it, the BTF of a module, if it has one.

        It has none where it is not loaded, or before 5.11. Raises ProbeError.
        """
        self._lib = load_library()
        self._base: int | None = None
        self._btf: int | None = self._lib.pointer(
            "the kernel's type information (BTF) cannot be read from /sys/kernel/btf/vmlinux, "
            "use a kernel built with CONFIG_DEBUG_INFO_BTF",
            "btf__load_vmlinux_btf",
        )
        if module and (_BTF / module).exists():
            self._base = self._btf
            doing = f"the type information (BTF) of the module {module} cannot be read"
            try:
                name = module.encode()
                self._btf = self._lib.pointer(doing, "btf__load_module_btf", name, self._base)
            except ProbeError:
                self._btf = self._base
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the BTF; nothing can be read afterwards. Closing again has no effect."""
        for btf in {self._btf, self._base} - {None}:
            self._lib.get("btf__free")(btf)
        self._btf = self._base = None

    def _find(self, name: str, kind: int) -> int | None:
        number = int(self._lib.get("btf__find_by_name_kind")(self._btf, name.encode(), kind))
        return number if number > 0 else None

    def _type(self, number: int) -> _Type:
        """Return a type by id; what belongs to it is in the memory of the BTF."""
        doing = f"type {number} of the kernel's BTF cannot be read"
        address = self._lib.pointer(doing, "btf__type_by_id", self._btf, number)
        name_at, info, refers = (ctypes.c_uint32 * 3).from_address(address)
        kind, flag = info >> 24 & 0x1F, bool(info >> 31)
        return _Type(kind, info & 0xFFFF, flag, refers, name_at, address + 12)

    def parameters(self, tracepoint: str) -> int | None:
        """Return how many arguments a tracepoint passes to its probes; None: no such tracepoint."""
        number = self._find(f"btf_trace_{tracepoint}", _KIND_TYPEDEF)
        if number is None:
            return None
        kind = self._type(number)
        while kind.kind in (_KIND_TYPEDEF, _KIND_PTR):
            kind = self._type(kind.refers)
        if kind.kind != _KIND_FUNC_PROTO:
            raise ProbeError(f"btf_trace_{tracepoint} is no function in the kernel's BTF")
        return kind.vlen - 1  # the first is the probe's own data

    def enum(self, name: str) -> dict[str, int] | None:
        """Return an enum's 32-bit values, read as signed, by name; None: there is no such enum."""
        number = self._find(name, _KIND_ENUM)
        if number is None:
            return None
        kind = self._type(number)
        values = (ctypes.c_int32 * 2 * kind.vlen).from_address(kind.behind)  # struct btf_enum
        return {self._name(name_at): value for name_at, value in values}

    def _members(self, number: int | None) -> Iterator[tuple[str, int, int]]:
        """Yield the direct members of a struct or union: name ("": none), type, offset in bits."""
        if number is None:
            return
        kind = self._type(number)
        mask = 0xFFFFFF if kind.flag else 0xFFFFFFFF
        members = (ctypes.c_uint32 * 3 * kind.vlen).from_address(kind.behind)  # struct btf_member
        for name_at, type_, offset in members:
            yield self._name(name_at), type_, offset & mask

    def function_id(self, name: str) -> int | None:
        """Return the id of the kernel function `name`, as BTF has of every kfunc; None: no such."""
        return self._find(name, _KIND_FUNC)

    def members(self, name: str) -> list[str] | None:
        """Return the names of a struct's direct members; None: there is no such struct."""
        number = self._find(name, _KIND_STRUCT)
        return None if number is None else [member for member, _, _ in self._members(number)]

    def has_member(self, name: str, member: str) -> bool:
        """Return whether a struct has `member`, directly or in an anonymous union or struct."""
        wanted = [self._find(name, _KIND_STRUCT)]
        while wanted:
            for found, kind, _ in self._members(wanted.pop()):
                if found == member:
                    return True
                if not found and self._type(kind).kind in (_KIND_STRUCT, _KIND_UNION):
                    wanted.append(kind)
        return False

    def offset(self, name: str, member: str) -> int | None:
        """Return the offset in bytes of a direct member of a struct; None: none, or a bit field."""
        for found, _, bits in self._members(self._find(name, _KIND_STRUCT)):
            if found == member:
                return None if bits % 8 else bits // 8
        return None

    def pointed(self, name: str, member: str) -> str:
        """Return the name of the struct that a direct member points to; "": none, or const."""
        for found, number, _ in self._members(self._find(name, _KIND_STRUCT)):
            if found == member and (kind := self._type(number)).kind == _KIND_PTR:
                return self._name(self._type(kind.refers).name_at) if kind.refers else ""
        return ""

    def _name(self, offset: int) -> str:
        return str(self._lib.get("btf__name_by_offset")(self._btf, offset).decode())


def offered(btf: KernelBtf, tracepoint: str, programs: Mapping[int, str]) -> tuple[str, str]:
    """Return (the program by the tracepoint's number of arguments, ""), or ("", reason)."""
    count = btf.parameters(tracepoint)
    if count is None:
        return "", f"this kernel has no tracepoint {tracepoint}"
    if count not in programs:
        return "", f"{tracepoint} has {count} arguments: there is no program for that"
    return programs[count], ""


def kernel_enums(btf: KernelBtf) -> KernelEnums:
    """Return the numbers by which this kernel's `opf` is decoded, as in a log's header."""
    ops = next((values for name in _OP_ENUMS if (values := btf.enum(name))), None)
    flags = btf.enum(_FLAG_ENUM)
    if ops is None or flags is None:
        raise ProbeError(
            "the kernel's BTF has no enum req_op or req_flag_bits: its block layer is unknown, "
            "please report the kernel's version"
        )
    return {
        "op_enum": {n.removeprefix("REQ_OP_"): op for n, op in ops.items() if n != "REQ_OP_LAST"},
        "flag_bits": {
            name.removeprefix("__REQ_"): bit
            for name, bit in flags.items()
            if name.startswith("__REQ_") and name != "__REQ_NR_BITS"
        },
    }
