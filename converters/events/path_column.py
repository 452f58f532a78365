# SPDX-License-Identifier: Apache-2.0
"""The column of `Events` with what is known of the path: an index into a table, for each event.

A row of the table has 226 bytes, and most events have none, so only the index is copied with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.path_tables import NO_PATH, PATH
from biotrail.converters.events.tables import I32, I64, Bool, EventRows


@dataclass
class PathColumn:
    """What is known of the path of some events (n,). Tables are shared by columns made of one."""

    at: I32
    """Per event, its row of `rows`; -1: nothing is known."""
    rows: NDArray[np.void]
    """Rows of PATH (k,)."""

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, events: EventRows) -> NDArray[np.void]:
        """Return a copy of the PATH rows of these events, NO_PATH where nothing is known."""
        at = self.at[events]
        if not len(self.rows):
            return unknown(len(at))
        found = self.rows[at]
        found[at < 0] = NO_PATH
        return found

    def field(self, *names: str) -> NDArray[Any]:
        """Return a field of all events (n,), a copy; of nested fields, the inner one's."""
        values, absent = self.rows, NO_PATH
        for name in names:
            values, absent = values[name], absent[name]
        if not len(self.rows):
            return np.full((len(self.at), *values.shape[1:]), absent, values.dtype)
        found: NDArray[Any] = values[self.at]
        found[self.at < 0] = absent
        return found

    def take(self, events: I64 | Bool | slice) -> "PathColumn":
        """Return the column of these events, with the same table."""
        return PathColumn(self.at[events], self.rows)

    @staticmethod
    def joined(
        columns: "Sequence[PathColumn | None]", lengths: Sequence[int]
    ) -> "PathColumn | None":
        """Return the column of all events of some columns, with a table of their rows alone.

        None: nothing is known of that part's events, or of any. lengths: events of each part.
        """
        if all(column is None for column in columns):
            return None
        places, tables, count = [], [], 0
        for column, length in zip(columns, lengths, strict=True):
            at = np.full(length, -1, np.int32)
            if column is not None:
                known = np.flatnonzero(column.at >= 0)
                rows = column.at[known]
                whole = len(rows) == len(column.rows)
                at[known] = (rows if whole else np.arange(len(rows))) + count
                tables.append(column.rows if whole else column.rows[rows])
                count += len(rows)
            places.append(at)
        return PathColumn(np.concatenate(places), np.concatenate(tables))


def unknown(count: int) -> NDArray[np.void]:
    """Return rows of PATH of which nothing is known."""
    return np.frombuffer(bytearray(NO_PATH.tobytes()) * count, PATH)
