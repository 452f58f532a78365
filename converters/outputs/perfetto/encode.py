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
_SMALL = 1 << 16


def varint(value: int) -> bytes:
    """One unsigned varint in its shortest form."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, wire_type: int) -> bytes:
    """A field's tag; wire types: 0 varint, 1 fixed64, 2 length-delimited."""
    return varint(number << 3 | wire_type)


def distinct(values: NDArray[Any]) -> tuple[NDArray[Any], I64]:
    """np.unique with inverse, in linear time for what is small or repeats. Not negative.

    values: shape (n,), n at least 1. Returns the distinct values, sorted, and the place of
    each value among them: shape (n,), int64.
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
        # By halves: flags are few, though their bits are far apart.
        high, upper = distinct(values >> np.uint32(16))
        low, lower = distinct(values & np.uint32(0xFFFF))
        if len(high) * len(low) < _SMALL:
            both, inverse = distinct(upper * len(low) + lower)
            return high[both // len(low)] << np.uint32(16) | low[both % len(low)], inverse
    found, inverse = np.unique(values, return_inverse=True)
    return found, inverse


def widths(values: Unsigned) -> U8:
    """Bytes that each value takes as a varint: shape (n,), uint8, 1 to 10."""
    width = np.ones(len(values), dtype=np.uint8)
    top = int(values.max()) if len(values) else 0
    for bits in range(7, 64, 7):
        if top >> bits == 0:
            break
        width += values >= values.dtype.type(1 << bits)
    return width


@dataclass
class _Piece:
    """Constant bytes and, after them, a varint or fixed bytes; `where`: rows that have them."""

    lead: bytes
    where: Bool | None = None
    values: Unsigned | None = None
    width: U8 | None = None
    fixed: tuple[U8, ...] = ()
    """Columns of fixed bytes."""
    length_at: int = -1
    """Where in `lead` stands a one-byte length that counts the rest and the varint."""

    def size(self) -> "int | I64":
        """Bytes per row: one number, or shape (n,)."""
        least = len(self.lead) + len(self.fixed)
        if self.width is None and self.where is None:
            return least
        width = np.uint8(0) if self.width is None else self.width
        whole: I64 = np.add(width, least, dtype=np.int64)
        return whole if self.where is None else whole * self.where

    def columns(self) -> int:
        """Most bytes that a row takes."""
        varint = 0 if self.width is None else int(self.width.max())
        return len(self.lead) + len(self.fixed) + varint


@dataclass
class Rows:
    """n messages of one shape, written field by field. n is at least 1."""

    n: int
    _pieces: list[_Piece] = field(default_factory=list)

    def const(self, data: bytes, where: Bool | None = None) -> None:
        """Bytes that every row has, or every row of `where`: shape (n,), bool."""
        if where is not None and not where.any():
            return
        self._add(_Piece(data, None if where is None or where.all() else where))

    def varint(self, lead: bytes, values: Unsigned, where: Bool | None = None) -> None:
        """`lead` (a tag), then each row's value. Shape (n,), any unsigned type."""
        if where is not None:
            if not where.any():
                return
            where = None if where.all() else where
        least = int(values.min())
        if least == int(values.max()):
            self._add(_Piece(lead + varint(least), where))
        else:
            self._add(_Piece(lead, where, values, widths(values)))

    def fixed(self, lead: bytes, columns: tuple[U8, ...], where: Bool | None = None) -> None:
        """`lead`, then the same number of bytes in every row: a column, shape (n,), for each."""
        if where is None or where.any():
            self._add(_Piece(lead, None if where is None or where.all() else where, fixed=columns))

    def fixed64(self, lead: bytes, values: NDArray[np.float64]) -> None:
        """`lead` (a tag), then each row's double. Shape (n,), float64."""
        data = np.ascontiguousarray(values, dtype="<f8").view(np.uint8).reshape(self.n, 8)
        self.fixed(lead, tuple(data[:, i] for i in range(8)))

    def annotation(
        self, head: bytes, values: Unsigned, where: Bool | None = None, length_at: int = 1
    ) -> None:
        """A message of less than 128 bytes whose last field is the varint.

        head: the message's tag, one byte for its length (at `length_at`), the rest before
        the value.
        """
        if where is not None and not where.any():
            return
        self.varint(head, values, where)
        piece = self._pieces[-1]
        if piece.width is not None:
            piece.length_at = length_at
            return
        data = bytearray(piece.lead)
        data[length_at] = len(data) - length_at - 1
        piece.lead = bytes(data)

    @contextmanager
    def message(self, lead: bytes, where: Bool | None = None) -> Iterator[None]:
        """What is written inside is one message: `lead` (a tag), its length, its fields.

        where: rows that have it; its fields must then be given the same `where`.
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

    def _add(self, piece: _Piece) -> None:
        self._pieces.append(piece)

    def finish(self) -> bytes:
        """All rows, one after the other."""
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
    """Writes a piece's own bytes; whether some rows do not use all of its columns."""
    start = at + len(piece.lead)
    for column, data in enumerate(piece.fixed, start):
        matrix[:, column] = data
    ragged = piece.where is not None
    if piece.where is not None:
        for column in range(at, start + len(piece.fixed)):
            used[:, column] = piece.where
    if piece.values is None or piece.width is None:
        return ragged
    if piece.length_at >= 0:
        matrix[:, at + piece.length_at] = piece.width + np.uint8(
            len(piece.lead) - piece.length_at - 1
        )
    return _fill_varint(matrix, used, start, piece.values, piece.width, piece.where) or ragged


def _fill_varint(
    matrix: U8, used: Bool, start: int, values: Unsigned, width: U8, where: Bool | None
) -> bool:
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
