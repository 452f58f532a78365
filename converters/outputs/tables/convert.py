# SPDX-License-Identifier: Apache-2.0
"""Write tables as CSV, JSON lines, Parquet or Arrow IPC, a window at a time."""

import json
from collections.abc import Callable, Iterator
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
    tables: Iterator[pa.Table], schema: pa.Schema, form: str, out: BinaryIO, cell: Cell = guarded
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
    writer: Any = None
    if form == "csv":
        writer, put = _csv(out, plain, cell)
    elif form == "jsonl":
        put = _jsonl(out, plain)
    else:
        if form == "parquet":
            writer = pq.ParquetWriter(out, plain, compression="zstd", write_page_checksum=True)
        else:
            options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
            writer = pyarrow.ipc.new_file(out, plain, options=options)
        put = writer.write_table
    rows = 0
    try:
        for table in tables:
            if len(table):
                put(table.cast(plain))
                rows += len(table)
        if writer is not None:
            writer.close()
    finally:
        # After an error, ParquetWriter.close (by __del__, too) would write to `out` again.
        if form == "parquet":
            writer.is_open = False
    return rows


def _csv(out: BinaryIO, schema: pa.Schema, cell: Cell) -> tuple[Any, Put]:
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

    return writer, put


def _cells(texts: pa.Array, cell: Cell) -> pa.Array:
    """Return `cell` of each text (null: null); it is called once for each distinct text."""
    distinct = texts.dictionary_encode()
    made = [None if text is None else cell(text) for text in distinct.dictionary.to_pylist()]
    return pa.array(made, pa.string()).take(distinct.indices)


def _jsonl(out: BinaryIO, schema: pa.Schema) -> Put:
    names = [json.dumps(f.name) for f in schema]

    def put(table: pa.Table) -> None:
        for batch in table.to_batches(max_chunksize=_JSON_ROWS):
            parts: list[Any] = ["{"]
            for name, column in zip(names, batch.columns, strict=True):
                parts += [f"{', ' if len(parts) > 1 else ''}{name}: ", _json_texts(column)]
            rows = pc.binary_join_element_wise(*parts, "}\n", "")
            whole = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)
            out.write(pc.binary_join(whole, "")[0].as_buffer())

    return put


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
