# SPDX-License-Identifier: Apache-2.0
"""How structs that the recorder and its BPF programs share are described."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
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

    type: u8, u32, u64, i64, or the name of another struct. meaning: a phrase for `bpf/shared.h`.
    count: elements of an array, as a number of LIMITS (by its C name) or a literal one; "": no
    array.
    """

    name: str
    type: str
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


Layout = list[tuple[str, type[Any]]]


def fields(struct: Struct, nested: Mapping[str, type[ctypes.Structure]] | None = None) -> Layout:
    """Return `_fields_` for the ctypes class of a struct, in the order of its members.

    That is a list of (name, ctypes type); a member with a count has an array type. `nested`: the
    ctypes classes of the structs that it holds, by their C name; None: it holds none. KeyError
    where one is missing.
    """
    types = {**_INTEGERS, **(nested or {})}
    return [
        (member.name, types[member.type] * member.elements if member.count else types[member.type])
        for member in struct.members
    ]
