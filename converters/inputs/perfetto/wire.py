# SPDX-License-Identifier: Apache-2.0
"""Fields of protobuf messages as columns: one row per message, without an object for any."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.tables import I64, U8
from biotrail.converters.inputs.perfetto import wire_loops as loops

MISSING, NUMBER = -1, -2
"""Lengths (`Fields.length`) of a field that does not occur, and of one that is a number."""


def _scratch() -> I64:
    return np.zeros(4, dtype=np.int64)


@dataclass(frozen=True)
class Messages:
    """Messages in a buffer: begin[i] to end[i] are the bytes of the i-th."""

    data: memoryview
    begin: I64
    end: I64

    def __len__(self) -> int:
        return len(self.begin)

    def take(self, rows: I64) -> "Messages":
        """Return the messages of the chosen rows."""
        return Messages(self.data, self.begin[rows], self.end[rows])

    def bytes(self, row: int) -> bytes:
        """Return the bytes of one message."""
        return bytes(self.data[int(self.begin[row]) : int(self.end[row])])

    def fields(self, numbers: Sequence[int]) -> "Fields":
        """Return the fields with these numbers of every message, each field's last."""
        slots = np.full(max(numbers) + 1, -1, dtype=np.int64)
        slots[list(numbers)] = np.arange(len(numbers))
        shape = (len(numbers), len(self))
        value, length = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        found = Fields(self.data, tuple(numbers), value, length)
        found.broken = loops.single_fields(
            self.data, self.begin, self.end, slots, value, length, _scratch()
        )
        return found

    def repeated(self, number: int) -> "tuple[I64, Messages]":
        """Return (owner, messages): every field of bytes with this number, in order.

        owner: (n,), the row of the message that each is in.
        """
        # A field has two bytes at least; pages that are not written take no memory.
        most = int((self.end - self.begin).sum()) // 2
        owner, begin, end = (np.empty(most, dtype=np.int64) for _ in range(3))
        count, _ = loops.repeated_fields(
            self.data, self.begin, self.end, number, owner, begin, end, _scratch()
        )
        return owner[:count].copy(), Messages(self.data, begin[:count].copy(), end[:count].copy())


@dataclass
class Fields:
    """Fields of n messages, a row of the arrays per field number."""

    data: memoryview
    numbers: tuple[int, ...]
    value: I64
    """(fields, n): the number, as signed 64 bits; of bytes where they begin."""
    length: I64
    """(fields, n): length of bytes, else MISSING or NUMBER."""
    broken: int = field(default=0)
    """Messages that end in something that is no field."""

    def values(self, number: int, missing: int = 0) -> I64:
        """Return a field's numbers (n,), `missing` where it does not occur or is bytes."""
        row = self.numbers.index(number)
        found: I64 = np.where(self.length[row] == NUMBER, self.value[row], missing)
        return found

    def messages(self, number: int) -> tuple[I64, Messages]:
        """Return (rows, messages): a field of bytes, of the rows that have it."""
        row = self.numbers.index(number)
        rows = np.flatnonzero(self.length[row] >= 0)
        begin = self.value[row][rows]
        return rows, Messages(self.data, begin, begin + self.length[row][rows])

    def texts(self, number: int, width: int) -> U8:
        """Return a field of text as bytes of `width` (n, width), filled with zeros; longer: cut."""
        row = self.numbers.index(number)
        out = np.zeros((self.length.shape[1], width), dtype=np.uint8)
        loops.copy_texts(self.data, self.value[row], self.length[row], out)
        return out
