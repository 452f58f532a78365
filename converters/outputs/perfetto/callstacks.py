# SPDX-License-Identifier: Apache-2.0
"""Call stacks of bios: ids for slices, and what defines them in a packet sequence.

A callstack is interned data, like names and strings: every sequence is told of one before its
first use there. An id is the stack's row and one; 0 is no stack.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import InternedData

from biotrail.converters.events.stacks import Frame, Stack, StackNames
from biotrail.converters.events.tables import I32, U64

KERNEL, UNKNOWN = "[kernel]", "[unknown]"
"""Mappings of the kernel itself, and of code that is in no known file."""

Told = set[tuple[str, int]]
"""What a sequence knows: kind of interned data, id."""
_Place = tuple[str, str]
"""A frame's function and mapping."""


@dataclass
class CallStacks:
    """All stacks of a trace, as far as they are known."""

    names: StackNames | None
    _stacks: list[Stack] = field(default_factory=list)
    _ids: dict[str, dict[str | _Place, int]] = field(default_factory=dict)

    def refresh(self) -> None:
        """Take in what the log has told since the last time."""
        if self.names is not None:
            self._stacks = self.names.all()

    def ids(self, rows: I32) -> U64:
        """The callstack's id for each row of Trace.stacks; 0 where its frames are not known."""
        known = [
            number if stack.kernel or stack.user else 0
            for number, stack in enumerate(self._stacks, 1)
        ]
        ids: U64 = np.array([0, *known], np.uint64)[rows + 1]
        return ids

    def missing(self, row: int) -> str:
        """Why a stack or a part of it is not there; empty: nothing is missing."""
        return self._stacks[row].missing if row >= 0 else ""

    def define(self, data: InternedData, ids: Iterable[int], told: Told) -> None:
        """Add what a sequence does not know of these callstacks."""
        for iid in ids:
            if iid and self._new(told, "callstack", iid):
                places = _places(self._stacks[iid - 1])
                data.callstacks.add(
                    iid=iid, frame_ids=[self._frame(data, place, told) for place in places]
                )

    @staticmethod
    def _new(told: Told, kind: str, iid: int) -> bool:
        if (kind, iid) in told:
            return False
        told.add((kind, iid))
        return True

    def _id(self, kind: str, key: str | _Place) -> int:
        known = self._ids.setdefault(kind, {})
        return known.setdefault(key, len(known) + 1)

    def _frame(self, data: InternedData, place: _Place, told: Told) -> int:
        iid = self._id("frame", place)
        if self._new(told, "frame", iid):
            name, mapping = self._id("name", place[0]), self._id("mapping", place[1])
            if self._new(told, "name", name):
                data.function_names.add(iid=name, str=place[0].encode())
            if self._new(told, "mapping", mapping):
                data.mapping_paths.add(iid=mapping, str=place[1].encode())
                data.mappings.add(iid=mapping, path_string_ids=[mapping])
            data.frames.add(iid=iid, function_name_id=name, mapping_id=mapping)
        return iid


def _places(stack: Stack) -> list[_Place]:
    """Frames from the outermost; unknown ones in a row become one."""
    places: list[_Place] = []
    for frame in stack.user[::-1]:
        place = _place(frame, kernel=False)
        if place != (UNKNOWN, UNKNOWN) or places[-1:] != [place]:
            places.append(place)
    return places + [_place(frame, kernel=True) for frame in stack.kernel[::-1]]


def _place(frame: Frame, *, kernel: bool) -> _Place:
    mapping = frame.where or (KERNEL if kernel else UNKNOWN)
    if frame.name:
        return frame.name, mapping
    if frame.where:
        return f"{frame.where.rsplit('/', 1)[-1]}+{frame.offset:#x}", mapping
    return (f"{frame.offset:#x}", mapping) if kernel else (UNKNOWN, UNKNOWN)
