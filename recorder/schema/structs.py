# SPDX-License-Identifier: Apache-2.0
"""How structs that the recorder and its BPF programs share are described."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from biotrail.recorder.schema.limits import LIMITS

_INTEGERS: Mapping[str, type[Any]] = {
    "u8": ctypes.c_uint8,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "i64": ctypes.c_int64,
}


@dataclass(frozen=True)
class Member:
    """One member of a struct.

    type: u8, u32, u64, i64, or another struct. meaning: a phrase for `bpf/shared.h`. count:
    elements of an array, as a number of LIMITS (by its C name) or a literal one; "": no array.
    """

    name: str
    type: "str | Struct"
    meaning: str = ""
    count: str = ""

    @property
    def elements(self) -> int:
        """Number of elements, 1 if the member is no array."""
        return LIMITS.get(self.count) or int(self.count or 1)


@dataclass(frozen=True)
class Struct:
    """A struct by its C name. meaning: one or two sentences for `bpf/shared.h`."""

    name: str
    meaning: str
    members: tuple[Member, ...]

    @cached_property
    def ctype(self) -> type[Any]:
        """Its ctypes class, one for all that set or read it."""
        layout = []
        for member in self.members:
            kind = member.type.ctype if isinstance(member.type, Struct) else _INTEGERS[member.type]
            layout.append((member.name, kind * member.elements if member.count else kind))
        return type(self.name, (ctypes.Structure,), {"_fields_": layout})
