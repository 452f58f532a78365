# SPDX-License-Identifier: Apache-2.0
"""Write tables as CSV, JSON lines, Parquet or Arrow IPC, a window at a time."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

from biotrail.recorder.schema.strings import guarded

_JSON_ROWS = 10_000
"""Rows that are turned into Python objects at once."""
_CSV_ROWS = 16_384
"""Rows that pyarrow formats at once: its 1,024 take a third more time."""
FORMATS = ("csv", "jsonl", "parquet", "arrow")
_TIME_TEXT = "%Y-%m-%dT%H:%M:%SZ"
"""strftime's format; Arrow's %S has all nine digits of the ns."""
Cell = Callable[[str], str]
"""Turns a text into a CSV cell."""
Put = Callable[[pa.Table], Any]
"""Writes one table to the output."""


def write(
    tables: Iterator[pa.Table],
    schema: pa.Schema,
    form: str,
    out: BinaryIO,
    cell: Cell = guarded,
) -> int:
    """Write the tables one behind the other, and return the number of rows.

    form: of FORMATS. cell: turns a text into a CSV cell that a spreadsheet does not take for a
    formula. Dictionary columns are written as plain values, list columns in CSV as words with
    spaces between. Raises OSError where `out` fails; the output is then not complete.
    """
    # Dictionaries differ from window to window, which few formats allow.
    plain = pa.schema(
        [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    )
    rows = 0
    with _csv(out, plain, cell) if form == "csv" else _WRITERS[form](out, plain) as put:
        for table in tables:
            if len(table):
                put(table.cast(plain))
                rows += len(table)
    return rows


@contextmanager
def _csv(out: BinaryIO, schema: pa.Schema, cell: Cell) -> Iterator[Put]:
    names = [f.name for f in schema if pa.types.is_string(f.type)]
    lists = [f.name for f in schema if pa.types.is_list(f.type)]
    for name in lists:
        at = schema.get_field_index(name)
        schema = schema.set(at, pa.field(name, pa.string()))
    options = pyarrow.csv.WriteOptions(batch_size=_CSV_ROWS)
    writer = pyarrow.csv.CSVWriter(out, schema, write_options=options)

    def put(table: pa.Table) -> None:
        for name in names:
            texts = _cells(table[name].combine_chunks(), cell)
            table = table.set_column(table.schema.get_field_index(name), name, texts)
        for name in lists:
            texts = pc.binary_join(table[name].cast(pa.list_(pa.string())), " ")
            table = table.set_column(table.schema.get_field_index(name), name, texts)
        writer.write_table(table)

    yield put
    writer.close()


def _cells(texts: pa.Array, cell: Cell) -> pa.Array:
    """Return `cell` of each text (null: null); it is called once for each distinct text."""
    distinct = texts.dictionary_encode()
    made = [None if text is None else cell(text) for text in distinct.dictionary.to_pylist()]
    return pa.array(made, pa.string()).take(distinct.indices)


@contextmanager
def _jsonl(out: BinaryIO, schema: pa.Schema) -> Iterator[Put]:
    names = [json.dumps(f.name) for f in schema]

    def put(table: pa.Table) -> None:
        for batch in table.to_batches(max_chunksize=_JSON_ROWS):
            parts: list[Any] = ["{"]
            for name, column in zip(names, batch.columns, strict=True):
                parts += [f"{', ' if len(parts) > 1 else ''}{name}: ", _json_texts(column)]
            rows = pc.binary_join_element_wise(*parts, "}\n", "")
            whole = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)
            out.write(pc.binary_join(whole, "")[0].as_buffer())

    yield put


def _json_texts(column: pa.Array) -> pa.Array:
    """Return each value as JSON, as `json.dumps` writes it; null: null. A timestamp is a text."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        quoted = pc.binary_join_element_wise('"', pc.strftime(column, _TIME_TEXT), '"', "")
        return pc.fill_null(quoted, "null")
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pc.fill_null(column.cast(pa.string()), "null")
    if pa.types.is_string(kind):
        return _cells(column, json.dumps).fill_null("null")
    return pa.array([json.dumps(value) for value in column.to_pylist()], pa.string())


@contextmanager
def _parquet(out: BinaryIO, schema: pa.Schema) -> Iterator[Put]:
    writer = pq.ParquetWriter(out, schema, compression="zstd", write_page_checksum=True)
    try:
        yield writer.write_table
        writer.close()
    finally:
        # After an error, ParquetWriter.close (by __del__, too) would write to `out` again.
        writer.is_open = False


@contextmanager
def _arrow(out: BinaryIO, schema: pa.Schema) -> Iterator[Put]:
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    writer = pyarrow.ipc.new_file(out, schema, options=options)
    yield writer.write_table
    writer.close()


_WRITERS: dict[str, Callable[[BinaryIO, pa.Schema], AbstractContextManager[Put]]] = {
    "jsonl": _jsonl,
    "parquet": _parquet,
    "arrow": _arrow,
}
