# SPDX-License-Identifier: Apache-2.0
"""What the kernel's types say of sites: functions and tracepoints that take a struct, prototypes.

A site's own names are the kernel's: functions by their name in BTF, tracepoints without their
system. Everything is read on demand: a module's BTF only if a question concerns it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.sites.btf import MODIFIERS, RECORDS, Btf, Kind, Type

PLACE = Path("/sys/kernel/btf")
_TRACEPOINT = "btf_trace_"
"""The kernel has a typedef of this name for each tracepoint, of a pointer to its probes' type."""
_NAMED_AFTER = ("__probestub_", "__traceiter_", "__bpf_trace_")
"""Functions of a tracepoint's prototype, whose BTF has the arguments' names."""
_GENERATED = (
    *_NAMED_AFTER,
    *("perf_trace_", "trace_event_raw_event_", "trace_raw_output_", "bpf_prog_"),
)
"""Prefixes of functions that the tracing macros make of each tracepoint: they are no sites."""
_WORD = 8
_SPLIT = 16
"""Bytes of the largest struct that is passed by value in registers."""


@dataclass(frozen=True)
class Taking:
    """A function or tracepoint with an argument `struct T *`; of a function's several the first.

    module: "": the kernel itself. argument: its index, from 0 on, of `arguments`. slot: the
    register, or index in a BPF program's context, that has it; not the index where a struct is
    passed by value before it; -1: on the stack, behind a struct of more than 16 bytes.
    btf_id: what BPF_PROG_LOAD's attach_btf_id is, in the BTF of `module`. passed_as: the argument's
    name, where a tracepoint passes several such structs; else "".
    """

    name: str
    module: str
    kind: Literal["function", "tracepoint"]
    argument: int
    arguments: int
    slot: int
    btf_id: int
    passed_as: str = ""

    @property
    def symbol(self) -> str:
        """Return the name as the kernel lists it: "nvme_queue_rq [nvme]" of a module."""
        return f"{self.name} [{self.module}]" if self.module else self.name

    @property
    def shown(self) -> str:
        """Return "sched_switch(next)" where a tracepoint passes several structs."""
        return f"{self.name}({self.passed_as})" if self.passed_as else self.name


@dataclass(frozen=True)
class Prototype:
    """What a tracepoint passes to programs of type tp_btf; module and btf_id: as of Taking.

    names, types: of the arguments: "": BTF has no name; ids of types in `btf`.
    """

    module: str
    btf_id: int
    names: tuple[str, ...]
    types: tuple[int, ...]
    btf: Btf


class TypeTable:
    def __init__(self, vmlinux: bytes, modules: Mapping[str, Callable[[], bytes]]) -> None:
        """modules: functions that read a module's BTF, by its name. Raises SiteError."""
        self._kernel = Btf(vmlinux)
        self._readers = dict(modules)
        self._modules: dict[str, Btf | None] = {}
        self._masks: dict[tuple[str, str], NDArray[np.bool_]] = {}

    @classmethod
    def kernel(cls, place: Path = PLACE) -> Self:
        try:
            vmlinux = (place / "vmlinux").read_bytes()
            names = sorted(path.name for path in place.iterdir() if path.name != "vmlinux")
        except OSError as error:
            raise SiteError(
                f"the kernel's type information (BTF), {place}/vmlinux, cannot be read: "
                f"{error.strerror}; use a kernel built with CONFIG_DEBUG_INFO_BTF"
            ) from error
        return cls(vmlinux, {name: (place / name).read_bytes for name in names})

    def _blobs(self, text: str = "") -> Iterator[Btf]:
        """Yield the kernel's BTF, then that of modules, if it can be read and has `text`."""
        yield self._kernel
        for name, read in self._readers.items():
            if name not in self._modules:
                try:
                    self._modules[name] = Btf(read(), name, self._kernel)
                except (OSError, SiteError):
                    self._modules[name] = None
            blob = self._modules[name]
            if blob is not None and text.encode() in blob.strings:
                yield blob

    def struct(self, name: str) -> tuple[Btf, Type]:
        for blob in self._blobs(name):
            for kinds in RECORDS:
                if found := blob.named(name, kinds):
                    return blob, blob.type(found[-1])
        near = get_close_matches(name, self._kernel.names(Kind.STRUCT), 5)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise SiteError(f"the kernel's types (BTF) have no struct {name}{hint}")

    def functions_taking(self, struct: str) -> list[Taking]:
        """Return the functions with a `struct STRUCT *` among their arguments, by module and name.

        Through typedefs and const. Those that tracepoints are made of are left out. The kernel's
        own come first, then those of each module. SiteError: BTF has no such struct.
        """
        self.struct(struct)
        takings = []
        known: dict[int, tuple[int, int, int]] = {}  # of the kernel's own function types
        for blob in self._blobs():
            # (argument, arguments, slot) by the id of each function type that takes it.
            found = dict(known)
            parameters = blob.parameters
            hits = np.flatnonzero(self._pointers(blob, struct)[parameters.type])
            protos, first = np.unique(parameters.proto[hits], return_index=True)
            for proto, at in zip(protos.tolist(), hits[first].tolist(), strict=True):
                index = int(parameters.place[at])
                before = parameters.type[at - index : at].tolist()
                found[proto] = (index, blob.type(proto).vlen, _slot(blob, before))
            known = known if blob.base else found
            rows = np.flatnonzero(blob.kinds == Kind.FUNC)
            rows = rows[np.isin(blob.refs[rows], list(found))]
            functions = (blob.type(int(blob.first + row)) for row in rows)
            takings += sorted(
                (
                    Taking(one.name, blob.name, "function", *found[one.extent], one.number)
                    for one in functions
                    if not one.name.startswith(_GENERATED)
                ),
                key=lambda taking: taking.name,
            )
        return takings

    def tracepoints_taking(self, struct: str) -> list[Taking]:
        """Return the typed tracepoints with a `struct STRUCT *` among their arguments, by name.

        As `functions_taking`; arguments are counted without the probe's own data. One Taking for
        each such argument, as for sched_switch, which passes two tasks.
        """
        self.struct(struct)
        takings = []
        for blob in self._blobs(_TRACEPOINT):
            pointers = self._pointers(blob, struct)
            for name, number in blob.names(Kind.TYPEDEF, prefix=_TRACEPOINT).items():
                proto = _probe(blob, number)
                types = [number for _, number in blob.arguments(proto)[1:]] if proto else []
                at = [index for index, type_ in enumerate(types) if pointers[type_]]
                short = name.removeprefix(_TRACEPOINT)
                count = len(types)
                names = _names(blob, short, count) if len(at) > 1 else [""] * count
                takings += [
                    Taking(short, blob.name, "tracepoint", one, count, one, number, names[one])
                    for one in at
                ]
        return sorted(takings, key=lambda taking: (taking.name, taking.argument))

    def _pointers(self, blob: Btf, struct: str) -> NDArray[np.bool_]:
        """Return a mask (end,) by type id: pointers to `struct`, through typedefs and const."""
        known = self._masks.get((blob.name, struct))
        if known is not None:
            return known
        structs, mask = np.zeros((2, blob.end), np.bool_)
        blobs = (blob.base, blob) if blob.base else (blob,)
        for one in blobs:  # `struct` itself, and forward declarations of it
            own = one.has_name(struct) & np.isin(one.kinds, (*RECORDS, Kind.FWD))
            structs[one.first : one.end] |= own
            one.close_over(structs)
        for one in blobs:
            rows = np.flatnonzero(one.kinds == Kind.PTR)
            mask[one.first + rows[structs[one.refs[rows]]]] = True
            one.close_over(mask)
        self._masks[blob.name, struct] = mask
        return mask

    def prototype(self, tracepoint: str) -> Prototype | None:
        """Return a tracepoint's prototype; None: there is none, or its module has no BTF."""
        name = tracepoint.rpartition(":")[2]
        wanted = _TRACEPOINT + name
        for blob in self._blobs(wanted):
            for number in blob.named(wanted, Kind.TYPEDEF):
                if proto := _probe(blob, number):
                    types = tuple(type_ for _, type_ in blob.arguments(proto)[1:])
                    names = tuple(_names(blob, name, len(types)))
                    return Prototype(blob.name, number, names, types, blob)
        return None


def _probe(blob: Btf, number: int) -> Type | None:
    """Return the function type of a tracepoint's typedef; None: the typedef is of another kind."""
    pointer = blob.strip(number)
    proto = blob.strip(pointer.extent) if pointer.kind == Kind.PTR else pointer
    return proto if proto.kind == Kind.FUNC_PROTO else None


def _names(blob: Btf, tracepoint: str, count: int) -> list[str]:
    names = [""] * count
    for prefix in _NAMED_AFTER:
        for number in blob.named(prefix + tracepoint, Kind.FUNC):
            named = blob.arguments(blob.strip(blob.type(number).extent))[1:]
            if len(named) == count:
                names = [text for text, _ in named]
    return names


def _slot(blob: Btf, before: list[int]) -> int:
    """Return the register of an argument behind those of the types `before`; -1: not known.

    A struct by value takes two registers if it has more than 8 bytes, and the stack or a reference,
    by machine, if it has more than 16.
    """
    slot = 0
    for number in before:
        found = blob.strip(number)
        size = found.extent if found.kind in RECORDS else _WORD
        if size > _SPLIT:
            return -1
        slot += max(1, -(-size // _WORD))
    return slot


def type_text(blob: Btf, number: int) -> str:
    """Return a type as C writes it, without const: "struct request *", "u64", "char [16]"."""
    found = blob.type(number)
    while found.kind in MODIFIERS and found.kind != Kind.TYPEDEF:
        found = blob.type(found.extent)
    match found.kind:
        case Kind.PTR:
            below = type_text(blob, found.extent)
            return below + ("*" if below.endswith("*") else " *")
        case Kind.ARRAY:
            element, count = blob.array(found)
            return f"{type_text(blob, element)} [{count}]"
        case Kind.FUNC_PROTO:
            return "function"
        case Kind.STRUCT | Kind.UNION | Kind.ENUM | Kind.ENUM64 | Kind.FWD:
            word = {Kind.UNION: "union", Kind.ENUM: "enum", Kind.ENUM64: "enum"}
            return f"{word.get(found.kind, 'struct')} {found.name or '(anonymous)'}"
    return found.name
