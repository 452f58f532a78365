# SPDX-License-Identifier: Apache-2.0
"""Columns of an archive's events: one per field of the schema, shared by all kinds that have it.

Rows of a row group are sorted by kind, chunk and time. Values that one kind of record repeats of
another (a bio's address and sector) are then long matches for the compressor, times are small
steps, and the rows that have a field are a few runs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from biotrail.converters.events.events import RAW_WORDS, Events
from biotrail.converters.events.tables import I64, U64
from biotrail.recorder.schema.records import (
    BY_KIND,
    BY_LETTER,
    RECORDS,
    TIMESTAMP_BITS,
    Kind,
)

TIME, CPU, KIND, CHUNK, TIE = "time_ns", "cpu", "kind", "chunk", "tie"
LETTERS = tuple(r.letter for r in RECORDS if r.kind != Kind.PAD)
KIND_TYPE = pa.dictionary(pa.int8(), pa.string())
OWN = {
    TIME: pa.int64(),
    CPU: pa.uint16(),
    KIND: KIND_TYPE,
    CHUNK: pa.int32(),
    TIE: pa.int32(),
}
"""Columns that all rows have; the others are null in rows of kinds without that field."""

RENAMED = {"number": "call_number"}
"""Name of a record's field → name of its column, where a table of events has another column of the
field's name: `number` is the event's own."""

_TIME_MASK = (1 << TIMESTAMP_BITS) - 1
_CODES = {letter: code for code, letter in enumerate(LETTERS)}


@dataclass(frozen=True)
class Column:
    """A field of records as a column."""

    name: str
    type: pa.DataType
    dtype: np.dtype[Any]
    count: int
    """Elements of an array field, each of which fills a word; the column is a list. 1: a scalar."""
    offsets: dict[int, int]
    """Byte offset of the field in a record, by kind."""


COLUMNS: dict[str, Column] = {}
"""A Column for each field of all record kinds, by its name."""
for _record in RECORDS:
    _places: dict[str, Any] = dict(_record.dtype.fields or {})
    for _field in _record.fields:
        if _field.name in ("head", "reserved"):
            continue
        _name, _dtype = RENAMED.get(_field.name, _field.name), np.dtype(_field.dtype)
        _kind = pa.binary() if _dtype.kind == "S" else pa.from_numpy_dtype(_dtype)
        _kind = pa.list_(_kind) if _field.count > 1 else _kind
        _column = COLUMNS.setdefault(_name, Column(_name, _kind, _dtype, _field.count, {}))
        if _column.dtype != _dtype:
            raise TypeError(f"{_field.name} is {_dtype} and {_column.dtype}")
        _column.offsets[int(_record.kind)] = _places[_field.name][1]
SCHEMA = pa.schema([*OWN.items(), *((c.name, c.type) for c in COLUMNS.values())])


def _numbers(values: NDArray[Any]) -> pa.Array:
    """Return a 1-d array as an Arrow array without pa.array, which would import pandas."""
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, buffer])


def _texts(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    places = np.cumsum([0, *map(len, values)], dtype=np.int32)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


_KIND_NAMES = _texts([letter.encode() for letter in LETTERS], pa.string())


def events_by_kind(events: Events, chunk: I64) -> pa.Table:
    """Return the events as a table of SCHEMA, a row per event, sorted by kind, chunk and time.

    events: by chunk, then sorted by time. chunk: int64 (n,), ascending: index of the log's chunk
    that each event comes from. Events of one kind stay in their order. A column of a field is null
    in rows of kinds without the field; `number` has no column. TIE holds the order of events of one
    chunk and time, where the sorting by kind would lose it, else 0.
    """
    order = np.argsort(events.kind, kind="stable")
    counts = np.bincount(events.kind, minlength=256)
    kinds = [int(kind) for kind in np.flatnonzero(counts)]
    ends = np.cumsum(counts)
    blocks = {kind: order[ends[kind] - counts[kind] : ends[kind]] for kind in kinds}
    codes = np.concatenate(
        [np.full(counts[kind], _CODES[BY_KIND[Kind(kind)].letter], np.int8) for kind in kinds]
        or [np.zeros(0, np.int8)]
    )
    columns: dict[str, Any] = {
        TIME: _numbers(events.ts.take(order)),
        CPU: _numbers(events.cpu.take(order)),
        KIND: pa.DictionaryArray.from_arrays(_numbers(codes), _KIND_NAMES),
        CHUNK: _numbers(chunk.astype(np.int32).take(order)),
        TIE: _numbers(_ties(events, chunk, order)),
    }
    words = events.raw.T
    taken = {
        kind: [words[word].take(rows) for word in range(1, BY_KIND[Kind(kind)].size // 8)]
        for kind, rows in blocks.items()
    }
    for column in COLUMNS.values():
        columns[column.name] = pa.chunked_array(
            [
                _cell(column, column.offsets[kind], taken[kind])
                if kind in column.offsets
                else _nulls(column.type, len(rows))
                for kind, rows in blocks.items()
            ],
            column.type,
        )
    return pa.table(columns, schema=SCHEMA)


_NULLS: dict[pa.DataType, pa.Array] = {}


def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    if kind not in _NULLS or len(_NULLS[kind]) < rows:
        _NULLS[kind] = pa.nulls(rows, kind)
    return _NULLS[kind].slice(0, rows)


def _cell(column: Column, offset: int, words: list[U64]) -> pa.Array:
    """Return a record field as an Arrow array. words: per word after the first, of all rows."""
    word, rest = offset // 8 - 1, offset % 8
    size = column.dtype.itemsize
    if column.dtype.kind == "S":
        whole = np.stack(words[word : word + (rest + size + 7) // 8], axis=1)
        text = np.ascontiguousarray(whole.view(np.uint8)[:, rest : rest + size])
        return _texts(text.view(column.dtype).ravel().tolist(), pa.binary())
    if column.count > 1:
        slots = np.stack(words[word : word + column.count], axis=1)
        places = np.arange(0, slots.size + 1, column.count, dtype=np.int32)
        return pa.ListArray.from_arrays(_numbers(places), _numbers(slots.ravel()))
    if size == 8:
        return _numbers(words[word].view(column.dtype))
    return _numbers(words[word].view(column.dtype)[rest // size :: 8 // size])


def _ties(events: Events, chunk: I64, order: NDArray[np.intp]) -> NDArray[np.int32]:
    """Return each event's rank among those of its chunk and time, in `order`; 0: kinds tell it."""
    same = events.ts[1:] == events.ts[:-1]
    if len(same) and chunk[0] != chunk[-1]:
        same &= chunk[1:] == chunk[:-1]
    if not (same & (events.kind[1:] < events.kind[:-1])).any():
        return np.zeros(len(events), np.int32)
    first = np.concatenate([[True], ~same])
    place = np.arange(len(events))
    start = np.maximum.accumulate(np.where(first, place, 0))
    return (place - start).astype(np.int32).take(order)


def wrong_columns(schema: pa.Schema) -> str | None:
    """Return the name of the first column that is missing (of OWN) or of a wrong type."""
    for name, kind in (*OWN.items(), *((c.name, c.type) for c in COLUMNS.values())):
        if schema.get_field_index(name) < 0:
            if name in OWN:
                return name
            continue
        found = schema.field(name).type
        if found != kind and not (pa.types.is_dictionary(found) and pa.types.is_dictionary(kind)):
            return name
    return None


Read = Callable[[list[str]], pa.Table]


def read_events(read: Read, names: frozenset[str]) -> tuple[Events, I64]:
    """Return (events, chunk of each) of a row group. Raises ValueError, ArrowInvalid."""
    own = read(list(OWN))
    if any(own[name].null_count for name in OWN):
        raise ValueError("its events lack times or kinds")
    ts, cpu, chunk, tie = (_values(own[name]) for name in (TIME, CPU, CHUNK, TIE))
    runs = list(_runs(own[KIND].combine_chunks()))
    wanted = [
        column
        for column in COLUMNS.values()
        if column.name in names and any(kind in column.offsets for kind, _, _ in runs)
    ]
    values = read([column.name for column in wanted]) if wanted else None
    words = np.zeros((RAW_WORDS, len(ts)), "<u8")
    for kind, start, end in runs:
        words[0, start:end] = np.uint64(kind << TIMESTAMP_BITS)
        for column in wanted:
            if values is not None and kind in column.offsets:
                cells = values[column.name].slice(start, end - start)
                _put(words[:, start:end], column, column.offsets[kind], cells)
    words[0] |= ts.view(np.uint64) & np.uint64(_TIME_MASK)
    if tie.any():
        order = np.lexsort((tie, ts, chunk))
    elif len(chunk) and chunk[0] == chunk[-1] and chunk.min() == chunk.max():
        order = np.argsort(ts, kind="stable")  # kinds tell the rest
    else:
        order = np.lexsort((ts, chunk))
    made = Events(
        ts.take(order),
        cpu.take(order),
        np.zeros(len(ts), np.int64),
        words.take(order, axis=1).T,
    )
    return made, chunk.take(order)


def _runs(kinds: Any) -> Iterator[tuple[int, int, int]]:
    """Yield (kind, first row, last row + 1) for each run of rows of one kind. Raises ValueError."""
    kinds.validate(full=True)
    letters = kinds.dictionary.to_pylist()
    unknown = sorted(set(letters) - _CODES.keys())
    if unknown or kinds.null_count:
        raise ValueError(f"rows of unknown kinds: {', '.join(map(repr, unknown))}")
    numbers = [int(BY_LETTER[letter].kind) for letter in letters]
    codes = _values(kinds.indices)
    edges = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    bounds = [0, *edges.tolist(), len(codes)] if len(codes) else [0]
    for start, end in pairwise(bounds):
        yield numbers[codes[start]], start, end


def _values(column: Any) -> NDArray[Any]:
    """Return the values of an Arrow column of numbers without nulls, shared where possible."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    dtype = np.dtype(whole.type.to_pandas_dtype())
    found = np.frombuffer(whole.buffers()[1] or b"", dtype, len(whole) + whole.offset)
    return found[whole.offset :]


def _put(words: U64, column: Column, offset: int, cells: Any) -> None:
    if cells.null_count:
        raise ValueError(f"{column.name} is null in rows whose kind has this field")
    word, rest = offset // 8, offset % 8
    size = column.dtype.itemsize
    if column.dtype.kind == "S":
        text = np.array(cells.to_pylist(), column.dtype)
        place = slice(word, word + (rest + size + 7) // 8)
        whole = np.ascontiguousarray(words[place].T).view(np.uint8)
        whole[:, rest : rest + size] = text.view(np.uint8).reshape(len(text), size)
        words[place] = whole.view("<u8").T
    elif column.count > 1:
        slots = cells.combine_chunks()
        if (np.diff(_values(slots.offsets)) != column.count).any():
            raise ValueError(f"{column.name} has lists of another length than {column.count}")
        values = _values(slots.flatten()).reshape(-1, column.count)
        words[word : word + column.count] = values.T
    elif size == 8:
        words[word] = _values(cells)
    else:
        words[word].view(column.dtype)[rest // size :: 8 // size] = _values(cells)
