# SPDX-License-Identifier: Apache-2.0
"""The column of the path: rows of a table by index, however events are taken and joined."""

import numpy as np

from biotrail.converters.events.path_column import NO_CALL, NO_PATH, PathColumn, unknown


def column(*calls: int) -> PathColumn:
    """A column of events of which some (calls other than NO_CALL) have a row."""
    known = [call for call in calls if call != NO_CALL]
    rows = unknown(len(known))
    rows["call"] = known
    at = np.cumsum(np.array(calls) != NO_CALL) - 1
    return PathColumn(np.where(np.array(calls) != NO_CALL, at, -1).astype(np.int32), rows)


def calls_of(found: PathColumn) -> list[int]:
    return found[np.arange(len(found))]["call"].tolist()


def test_unknown_rows_say_nothing() -> None:
    # GIVEN rows of which nothing is known  THEN each is NO_PATH, and can be written
    rows = unknown(3)
    assert (rows == NO_PATH).all()
    rows["call"][1] = 5
    assert rows["call"].tolist() == [NO_CALL, 5, NO_CALL]


def test_events_are_taken_with_their_rows() -> None:
    # GIVEN five events, three of which have a row  WHEN some are taken
    found = column(7, NO_CALL, 8, 9, NO_CALL)
    # THEN each has its own row, and the table is shared
    assert calls_of(found.take(np.array([4, 3, 0]))) == [NO_CALL, 9, 7]
    assert calls_of(found.take(slice(1, 4))) == [NO_CALL, 8, 9]
    assert found.take(slice(1, 4)).rows is found.rows


def test_joined_columns_keep_only_rows_in_use() -> None:
    # GIVEN a part of a column, a part without one, and a whole column
    part = column(7, NO_CALL, 8, 9, NO_CALL).take(np.array([3, 1]))
    # WHEN they are joined
    found = PathColumn.joined([part, None, column(5, 6)], [2, 2, 2])
    # THEN all have their rows, and the table has no others
    assert found is not None
    assert calls_of(found) == [9, NO_CALL, NO_CALL, NO_CALL, 5, 6]
    assert found.rows["call"].tolist() == [9, 5, 6]


def test_a_column_without_rows_knows_nothing() -> None:
    # GIVEN events none of which has a row  THEN nothing is known of them
    assert calls_of(column(NO_CALL, NO_CALL)) == [NO_CALL, NO_CALL]
