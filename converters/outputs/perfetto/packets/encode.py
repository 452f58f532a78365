# SPDX-License-Identifier: Apache-2.0
"""Protobuf messages as rows of a byte matrix: one call per field, not per message.

`Rows` lays out the same message for n rows at once. What every row shares (tags, constant
values) is a template; what differs is written column by column; a mask says which bytes a
row uses, so that varints take their shortest form and absent fields take none. One row:

    0a LL | 40 dd dd | 50 ss ss ss | 68 02 | 5a LL | 48 01 | 50 nn | 22 LL 08 aa 18 vv vv …
    Trace.packet  timestamp  sequence    flags  event   type    name    annotation
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U8, Bool

Unsigned = NDArray[np.unsignedinteger[Any]]
"""An array of any unsigned dtype."""
_SMALL = 1 << 16
"""Value range up to which a table by value replaces a sort."""


def varint(value: int) -> bytes:
    """Return a number of at least 0 as a protobuf varint in its shortest form."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, wire_type: int) -> bytes:
    """Return a field's tag. wire_type: 0 varint, 1 fixed64, 2 length-delimited."""
    return varint(number << 3 | wire_type)


def distinct(values: NDArray[Any]) -> tuple[NDArray[Any], I64]:
    """Return the sorted distinct values and, per value (n,) int64, its index among them.

    As np.unique with return_inverse, but linear for values below 65,536 and for few distinct uint32
    flag words. values: integers, shape (n,), n at least 1.
    """
    least, most = int(values.min()), int(values.max())
    if least == most:
        return values[:1], np.zeros(len(values), dtype=np.int64)
    if most < _SMALL and least >= 0:
        present = np.zeros(most + 1, dtype=np.bool_)
        present[values] = True
        found = np.flatnonzero(present)
        place = np.zeros(most + 1, dtype=np.int64)
        place[found] = np.arange(len(found))
        return found.astype(values.dtype), place[values]
    if values.dtype == np.uint32:
        # Flag words are few but their bits far apart, so index the 16-bit halves.
        high, upper = distinct(values >> np.uint32(16))
        low, lower = distinct(values & np.uint32(0xFFFF))
        if len(high) * len(low) < _SMALL:
            both, inverse = distinct(upper * len(low) + lower)
            return high[both // len(low)] << np.uint32(16) | low[both % len(low)], inverse
    found, inverse = np.unique(values, return_inverse=True)
    return found, inverse


def widths(values: Unsigned) -> U8:
    """Return the bytes that each value takes as a protobuf varint: shape (n,), uint8, 1 to 10."""
    width = np.ones(len(values), dtype=np.uint8)
    top = int(values.max()) if len(values) else 0
    for bits in range(7, 64, 7):
        if top >> bits == 0:
            break
        width += values >= values.dtype.type(1 << bits)
    return width


@dataclass
class _Piece:
    """Constant bytes, followed by a varint column or not. Shape (n,) each."""

    lead: bytes
    where: Bool | None = None
    """Rows that have the piece; None: all."""
    values: Unsigned | None = None
    """The varint's values; None: the piece has no varint."""
    width: U8 | None = None
    """Bytes of each varint."""

    def size(self) -> "int | I64":
        """Return the bytes per row: one number where all rows take the same, else (n,) int64.

        A row that does not have the piece takes 0.
        """
        least = len(self.lead)
        if self.width is None and self.where is None:
            return least
        width = np.uint8(0) if self.width is None else self.width
        whole: I64 = np.add(width, least, dtype=np.int64)
        return whole if self.where is None else whole * self.where

    def columns(self) -> int:
        """Return the most bytes that a row takes."""
        varint = 0 if self.width is None else int(self.width.max())
        return len(self.lead) + varint


@dataclass
class Rows:
    """Encoder of n messages of one shape, written field by field. n is at least 1."""

    n: int
    _pieces: list[_Piece] = field(default_factory=list)

    def const(self, data: bytes) -> None:
        """Append constant bytes to every row."""
        self._pieces.append(_Piece(data))

    def varint(self, lead: bytes, values: Unsigned, where: Bool | None = None) -> None:
        """Append `lead` (a field's tag) and each row's value as a varint.

        values: (n,), any unsigned dtype. where: rows (n,) that have the field; None: all. Nothing
        is appended where no row has it.
        """
        if where is not None:
            if not where.any():
                return
            where = None if where.all() else where
        least = int(values.min())
        if least == int(values.max()):
            self._pieces.append(_Piece(lead + varint(least), where))
        else:
            self._pieces.append(_Piece(lead, where, values, widths(values)))

    @contextmanager
    def message(self, lead: bytes, where: Bool | None = None) -> Iterator[None]:
        """Enclose what the `with` block appends in a message: tag, length, fields.

        lead: the tag. where: rows (n,) that have the message; None: all. Its fields must then be
        given the same `where`, or be in some of these rows only.
        """
        at = len(self._pieces)
        self._pieces.append(_Piece(b""))
        yield
        size: int | I64 = 0
        for piece in self._pieces[at + 1 :]:
            size = size + piece.size()
        if isinstance(size, int):
            self._pieces[at] = _Piece(lead + varint(size))
            if where is not None and not where.all():
                self._pieces[at].where = where
            return
        values = size.astype(np.uint64)
        rows = None if where is None or where.all() else where
        self._pieces[at] = _Piece(lead, rows, values, widths(values))

    def finish(self) -> bytes:
        """Return the bytes of all rows, one row after the other.

        A row has only the pieces that were appended for it.
        """
        spans = []
        width = 0
        for piece in self._pieces:
            spans.append(width)
            width += piece.columns()
        template = np.zeros(width, dtype=np.uint8)
        for at, piece in zip(spans, self._pieces, strict=True):
            template[at : at + len(piece.lead)] = np.frombuffer(piece.lead, dtype=np.uint8)
        matrix = np.empty((self.n, width), dtype=np.uint8)
        matrix[:] = template
        used = np.ones((self.n, width), dtype=np.bool_)
        ragged = False
        for at, piece in zip(spans, self._pieces, strict=True):
            ragged |= _fill(matrix, used, at, piece)
        return matrix[used].tobytes() if ragged else matrix.tobytes()


def _fill(matrix: U8, used: Bool, at: int, piece: _Piece) -> bool:
    """Write a piece into `matrix` from column `at`, and clear in `used` the bytes that rows lack.

    matrix: uint8 (n, bytes), whose rows have the constant bytes already. used: bool of the same
    shape, True in the piece's columns before; rows outside of `piece.where` use none of them.
    Returns whether any row uses fewer than all of its columns.
    """
    start = at + len(piece.lead)
    ragged = piece.where is not None
    if piece.where is not None:
        for column in range(at, start):
            used[:, column] = piece.where
    if piece.values is None or piece.width is None:
        return ragged
    return _fill_varint(matrix, used, start, piece.values, piece.width, piece.where) or ragged


def _fill_varint(
    matrix: U8, used: Bool, start: int, values: Unsigned, width: U8, where: Bool | None
) -> bool:
    """Write varints into `matrix` from column `start`, and mark in `used` which bytes rows use.

    matrix: uint8 (n, bytes). used: bool of the same shape. values: (n,); width: bytes of each as a
    varint. where: rows that have the varint; None: all. Returns whether any row uses fewer than all
    of the columns that the longest varint takes.
    """
    least, most = int(width.min()), int(width.max())
    rest: Unsigned = values
    if values.dtype == np.uint64 and not int(values.max()) >> 32:
        rest = values.astype(np.uint32)
    for i in range(most):
        column = rest.astype(np.uint8)
        if i + 1 < least:
            column |= np.uint8(0x80)
        elif i + 1 < most:
            more = width > i + 1
            column &= np.uint8(0x7F)
            column |= more.view(np.uint8) << np.uint8(7)
        matrix[:, start + i] = column
        if i >= least:
            here = width > i
            used[:, start + i] = here if where is None else here & where
        elif where is not None:
            used[:, start + i] = where
        if i + 1 < most:
            rest = rest >> rest.dtype.type(7)
    return most > least or where is not None
