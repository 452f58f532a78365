# SPDX-License-Identifier: Apache-2.0
"""Slices of one category as columns: times, names, arguments, stages."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U8, U64, Bool
from biotrail.converters.outputs.perfetto.encode import Unsigned
from biotrail.converters.outputs.perfetto.names import ARGUMENT_IIDS

_UINT, _BOOL = 0x18, 0x10
_STRING = b"\x88\x01"


@dataclass
class Column:
    """One argument of every slice, or of those in `where`."""

    iid: int
    """Of the argument's name."""
    head: bytes
    """DebugAnnotation up to its value: tag, length (filled in later), name_iid, value's tag."""
    values: Unsigned
    where: Bool | None
    interned: bool = False
    """Values are ids of interned strings."""


@dataclass
class StageColumns:
    """Stages that take time, grouped by slice: rows first[i] to first[i] + count[i] - 1."""

    first: I64
    count: I64
    name: U8
    start: I64
    end: I64


@dataclass
class Slices:
    """A window's slices of one category. Shape (n,) each; times in ns."""

    category: str
    number: I64
    group: I64
    """What the lane belongs to: the disk's dev_t."""
    start: I64
    end: I64
    """FOREVER: to the trace's end."""
    name: U64
    """Interned event name."""
    family: U64 | None
    """Correlation ids; None: no slice has one."""
    in_family: Bool | None = None
    """Which slices have one; None: all."""
    callstack: U64 | None = None
    """Ids of call stacks, 0: none; None: no slice has one."""
    columns: list[Column] = field(default_factory=list)
    stages: StageColumns | None = None
    rows: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Where each one stands in the table that it was made of."""

    def __len__(self) -> int:
        return len(self.number)

    def uint(self, name: str, values: NDArray[Any], where: Bool | None = None) -> None:
        """Adds an unsigned number; negative values only outside of `where`."""
        if where is not None:
            values = np.where(where, values, values.dtype.type(0))
        if values.dtype.kind == "i":
            values = values.astype(np.uint64)
        self._add(name, bytes([_UINT]), values, where)

    def true(self, name: str, where: Bool) -> None:
        """Adds `true` for the slices in `where`."""
        self._add(name, bytes([_BOOL]), np.ones(len(where), dtype=np.uint8), where)

    def text(self, name: str, ids: U64) -> None:
        """Adds an interned string; id 0: the slice has none."""
        where = ids > 0
        self._add(name, _STRING, ids, None if where.all() else where, interned=True)

    def _add(
        self, name: str, kind: bytes, values: Unsigned, where: Bool | None, interned: bool = False
    ) -> None:
        iid = ARGUMENT_IIDS[name]
        head = b"\x22\x00\x08" + bytes([iid]) + kind
        if where is None or where.any():
            self.columns.append(Column(iid, head, values, where, interned))
