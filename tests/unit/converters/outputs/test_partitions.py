# SPDX-License-Identifier: Apache-2.0
"""A table's files by date and device."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biotrail.converters.outputs.parquet import tables
from biotrail.converters.outputs.parquet.tables import Partitions

SCHEMA = pa.schema(
    [("time", pa.int64()), ("device", pa.dictionary(pa.int32(), pa.string())), ("row", pa.int64())]
)


def rows(device: str, *numbers: int) -> pa.Table:
    columns = [[0] * len(numbers), pa.array([device] * len(numbers)).dictionary_encode(), numbers]
    return pa.table(columns, schema=SCHEMA)


def test_a_second_file_has_no_other_recordings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN room for one open file, and recordings of which one has the other's name with a number
    monkeypatch.setattr(tables, "_MOST_OPEN", 1)
    monkeypatch.setattr(tables, "ROW_GROUP", 1)
    for first, stem in ((0, "sda"), (10, "sda-2")):
        one = Partitions(tmp_path, SCHEMA, "time", host="h", stem=stem, level=1, day="1970-01-01")
        # WHEN each writes two devices by turns
        for number in range(3):
            one.write(rows("sda", first + number))
            one.write(rows("sdb", 100 + first + number))
        one.close({})
    # THEN every row is in the dataset once
    files = list(tmp_path.rglob("*.parquet"))
    found = [row for file in files for row in pq.ParquetFile(file).read()["row"].to_pylist()]
    assert len(files) == 12
    assert sorted(found) == [0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112]
