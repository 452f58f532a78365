# SPDX-License-Identifier: Apache-2.0
"""Call stacks of bios: ids for slices, and the interned data that defines these ids.

Every packet sequence must define a callstack before its first use there, as it must names and
strings. An id is the stack's row in Trace.stacks plus one; 0 is no stack.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import InternedData

from biotrail.converters.events.stacks import Frame, Stack, StackNames
from biotrail.converters.events.tables import I32, U64

KERNEL, UNKNOWN = "[kernel]", "[unknown]"
"""Mappings of the kernel itself, and of code in no known file."""

Defined = set[tuple[str, int]]
"""(kind of interned data, id) of all that a sequence has defined."""
_Place = tuple[str, str]
"""A frame's function and mapping."""


@dataclass
class CallStacks:
    """Interns the log's call stacks. names: None where the log has none."""

    names: StackNames | None
    _stacks: list[Stack] = field(default_factory=list)
    _ids: dict[str, dict[str | _Place, int]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Load the stacks that the log has recorded since the last call."""
        if self.names is not None:
            self._stacks = self.names.all()

    def ids(self, rows: I32) -> U64:
        """Return the interned callstack id of each stack (n,): its row plus one.

        0 for row -1, and for a stack of which no frame is known. Only rows that the last `refresh`
        has loaded.
        """
        known = [
            number if stack.kernel or stack.user else 0
            for number, stack in enumerate(self._stacks, 1)
        ]
        ids: U64 = np.array([0, *known], np.uint64)[rows + 1]
        return ids

    def missing(self, row: int) -> str:
        """Return why (part of) a stack was not captured; empty: nothing is missing, or row -1."""
        return self._stacks[row].missing if row >= 0 else ""

    def define(self, data: InternedData, ids: Iterable[int], defined: Defined) -> None:
        """Define call stacks for a packet sequence that has not defined them before.

        data: the interned data of a packet on that sequence. defined: (kind of interned data, id)
        of all that the sequence has defined; what is added to `data` is added to it.
        """
        for iid in ids:
            if iid and self._new(defined, "callstack", iid):
                places = _places(self._stacks[iid - 1])
                data.callstacks.add(
                    iid=iid, frame_ids=[self._frame(data, place, defined) for place in places]
                )

    @staticmethod
    def _new(defined: Defined, kind: str, iid: int) -> bool:
        if (kind, iid) in defined:
            return False
        defined.add((kind, iid))
        return True

    def _id(self, kind: str, key: str | _Place) -> int:
        known = self._ids.setdefault(kind, {})
        return known.setdefault(key, len(known) + 1)

    def _frame(self, data: InternedData, place: _Place, defined: Defined) -> int:
        """Return a frame's interned id; define the frame for a packet sequence that lacks it."""
        iid = self._id("frame", place)
        if self._new(defined, "frame", iid):
            name, mapping = self._id("name", place[0]), self._id("mapping", place[1])
            if self._new(defined, "name", name):
                data.function_names.add(iid=name, str=place[0].encode())
            if self._new(defined, "mapping", mapping):
                data.mapping_paths.add(iid=mapping, str=place[1].encode())
                data.mappings.add(iid=mapping, path_string_ids=[mapping])
            data.frames.add(iid=iid, function_name_id=name, mapping_id=mapping)
        return iid


def _places(stack: Stack) -> list[_Place]:
    """Return the (function, mapping) of a stack's frames: user, then kernel, outermost first.

    Adjacent user frames of which neither file nor function is known become one.
    """
    places: list[_Place] = []
    for frame in stack.user[::-1]:
        place = _place(frame, kernel=False)
        if place != (UNKNOWN, UNKNOWN) or places[-1:] != [place]:
            places.append(place)
    return places + [_place(frame, kernel=True) for frame in stack.kernel[::-1]]


def _place(frame: Frame, *, kernel: bool) -> _Place:
    """Return a frame's (function, mapping).

    The mapping is the frame's file or module; without one, KERNEL or UNKNOWN. Without a symbol the
    function is `FILE+0xOFFSET`; without a file either, the address for kernel code.
    """
    mapping = frame.where or (KERNEL if kernel else UNKNOWN)
    if frame.name:
        return frame.name, mapping
    if frame.where:
        return f"{frame.where.rsplit('/', 1)[-1]}+{frame.offset:#x}", mapping
    return (f"{frame.offset:#x}", mapping) if kernel else (UNKNOWN, UNKNOWN)
