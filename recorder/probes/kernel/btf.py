# SPDX-License-Identifier: Apache-2.0
"""Reads the running kernel's BTF: tracepoint prototypes, struct members, block layer enums.

The prototype decides which program fits a tracepoint, never the kernel's version:
distributions backport.
"""

import ctypes
from pathlib import Path
from types import TracebackType
from typing import Self

from biotrail.recorder.probes.kernel.libbpf import RefusedError, load_library
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


class _Type(ctypes.Structure):
    """`struct btf_type` (include/uapi/linux/btf.h)."""

    _fields_ = (
        ("name_off", ctypes.c_uint32),
        ("info", ctypes.c_uint32),
        ("size_or_type", ctypes.c_uint32),
    )

    @property
    def kind(self) -> int:
        return int(self.info >> 24 & 0x1F)

    @property
    def count(self) -> int:
        """Number of members, enum values or parameters that follow this header in memory."""
        return int(self.info & 0xFFFF)


class _Enum(ctypes.Structure):
    """`struct btf_enum`."""

    _fields_ = (("name_off", ctypes.c_uint32), ("value", ctypes.c_int32))


class _Member(ctypes.Structure):
    """`struct btf_member`."""

    _fields_ = (
        ("name_off", ctypes.c_uint32),
        ("type", ctypes.c_uint32),
        ("offset", ctypes.c_uint32),
    )


class KernelBtf:
    """The running kernel's BTF, parsed by libbpf; a context manager that frees it."""

    def __init__(self, module: str = "") -> None:
        """Load /sys/kernel/btf/vmlinux and, on top of it, the BTF of a module.

        `module`: has no effect where it is not loaded or is part of the kernel, where its types are
        in vmlinux, or where modules have no BTF (before 5.11). Raises ProbeError: the BTF cannot be
        read, or libbpf is missing or too old.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the BTF; nothing can be read afterwards. Closing again has no effect."""
        for btf in {self._btf, self._base} - {None}:
            self._lib.void("btf__free", btf)
        self._btf = self._base = None

    def _find(self, name: str, kind: int, btf: int | None = None) -> int | None:
        find = self._lib.get("btf__find_by_name_kind")
        number = int(find(btf or self._btf, name.encode(), kind))
        return number if number > 0 else None

    def _address(self, number: int, btf: int | None = None) -> int:
        """Return the address of a `struct btf_type` by id; what belongs to the type follows it.

        btf: a module's, which has the memory then; None: the kernel's.
        """
        doing = f"type {number} of the kernel's BTF cannot be read"
        return self._lib.pointer(doing, "btf__type_by_id", btf or self._btf, number)

    def _type(self, number: int, btf: int | None = None) -> _Type:
        return _Type.from_address(self._address(number, btf))

    def parameters(self, tracepoint: str) -> int | None:
        """Return how many arguments a tracepoint passes to its probes; None: no such tracepoint."""
        return self._parameters(self._btf, tracepoint)

    def module_parameters(self, tracepoint: str, module: str) -> int | None:
        """Return how many arguments a module's tracepoint passes, as `parameters` does.

        None: the module is not loaded or has no such tracepoint, or the kernel has no BTF of
        modules (before 5.11).
        """
        if not (_BTF / module).exists():
            return None
        try:
            doing = f"the types of module {module} cannot be read"
            btf = self._lib.pointer(doing, "btf__load_module_btf", module.encode(), self._btf)
        except RefusedError:
            return None
        try:
            return self._parameters(btf, tracepoint)
        finally:
            self._lib.void("btf__free", btf)

    def _parameters(self, btf: int | None, tracepoint: str) -> int | None:
        number = self._find(f"btf_trace_{tracepoint}", _KIND_TYPEDEF, btf)
        if number is None:
            return None
        kind = self._type(number, btf)
        while kind.kind in (_KIND_TYPEDEF, _KIND_PTR):
            kind = self._type(kind.size_or_type, btf)
        if kind.kind != _KIND_FUNC_PROTO:
            raise ProbeError(f"btf_trace_{tracepoint} is no function in the kernel's BTF")
        return kind.count - 1  # the first is the probe's own data

    def enum(self, name: str) -> dict[str, int] | None:
        """Return an enum's 32-bit values, read as signed, by name; None: there is no such enum."""
        number = self._find(name, _KIND_ENUM)
        if number is None:
            return None
        address = self._address(number)
        count = _Type.from_address(address).count
        values = (_Enum * count).from_address(address + ctypes.sizeof(_Type))
        return {self._name(value.name_off): int(value.value) for value in values}

    def has_function(self, name: str) -> bool:
        """Return whether BTF describes the kernel function `name`, as it does every kfunc."""
        return self.function_id(name) is not None

    def function_id(self, name: str) -> int | None:
        return self._find(name, _KIND_FUNC)

    def tracepoint_id(self, name: str) -> int | None:
        """Return the BTF id that programs on the tracepoint `name` are loaded for; None: none."""
        return self._find(f"btf_trace_{name}", _KIND_TYPEDEF)

    def members(self, name: str) -> list[str] | None:
        """Return the names of a struct's direct members; None: there is no such struct."""
        number = self._find(name, _KIND_STRUCT)
        if number is None:
            return None
        address = self._address(number)
        count = _Type.from_address(address).count
        members = (_Member * count).from_address(address + ctypes.sizeof(_Type))
        return [self._name(member.name_off) for member in members]

    def has_member(self, name: str, member: str) -> bool:
        """Return whether a struct has `member`, directly or in an anonymous union or struct."""
        number = self._find(name, _KIND_STRUCT)
        return number is not None and self._holds(number, member)

    def offset(self, name: str, member: str) -> int | None:
        """Return the offset in bytes of a direct member of a struct; None: none, or a bit field."""
        found = self._member(name, member)
        return None if found is None or found.offset % 8 else found.offset // 8

    def pointed(self, name: str, member: str) -> str:
        """Return the name of the struct that a direct member of a struct points to; "": none.

        const and the like count.
        """
        found = self._member(name, member)
        kind = None if found is None else self._type(found.type)
        if kind is None or kind.kind != _KIND_PTR or not kind.size_or_type:
            return ""
        return self._name(self._type(kind.size_or_type).name_off)

    def _member(self, name: str, member: str) -> _Member | None:
        """Return a direct member of a struct, its offset in bits without a bit field's size."""
        number = self._find(name, _KIND_STRUCT)
        if number is None:
            return None
        address = self._address(number)
        # Where a struct has bit fields, the upper byte of an offset is the field's size.
        sized = _Type.from_address(address).info >> 31
        count = _Type.from_address(address).count
        members = (_Member * count).from_address(address + ctypes.sizeof(_Type))
        for one in members:
            if self._name(one.name_off) == member:
                at = one.offset & 0xFFFFFF if sized else one.offset
                return _Member(one.name_off, one.type, at)
        return None

    def _holds(self, number: int, member: str) -> bool:
        """Whether a struct or union has `member`, directly or in an anonymous one inside."""
        address = self._address(number)
        count = _Type.from_address(address).count
        members = (_Member * count).from_address(address + ctypes.sizeof(_Type))
        for one in members:
            name = self._name(one.name_off)
            if name == member:
                return True
            nested = not name and self._type(one.type).kind in (_KIND_STRUCT, _KIND_UNION)
            if nested and self._holds(one.type, member):
                return True
        return False

    def _name(self, offset: int) -> str:
        return str(self._lib.get("btf__name_by_offset")(self._btf, offset).decode())


def _strip(values: dict[str, int], prefix: str, without: tuple[str, ...]) -> dict[str, int]:
    return {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix) and name not in without
    }


def kernel_enums(btf: KernelBtf) -> KernelEnums:
    """Return the numbers by which this kernel's `opf` is decoded, as in a log's header.

    Names are without prefixes (REQ_OP_, __REQ_), and REQ_OP_LAST and __REQ_NR_BITS are left out.
    """
    ops = next((values for name in _OP_ENUMS if (values := btf.enum(name))), None)
    flags = btf.enum(_FLAG_ENUM)
    if ops is None or flags is None:
        raise ProbeError(
            "the kernel's BTF has no enum req_op or req_flag_bits: its block layer is unknown, "
            "please report the kernel's version"
        )
    return {
        "op_enum": _strip(ops, "REQ_OP_", ("REQ_OP_LAST",)),
        "flag_bits": _strip(flags, "__REQ_", ("__REQ_NR_BITS",)),
    }
