# SPDX-License-Identifier: Apache-2.0
"""Events as an Arrow table in time order, with names beside the records' own fields."""

import numpy as np
import pyarrow as pa

from biotrail.converters.events.arrow import COLUMNS, CPU, KIND, KIND_TYPE, TIME, events_by_kind
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, NO_CPU
from biotrail.converters.lifecycles.arrow.columns import NAME, named, nullable
from biotrail.recorder.schema.records import BY_KIND, Kind

_TEXT = pa.string()
EVENT_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        (TIME, pa.int64()),
        (CPU, pa.uint16()),
        (KIND, KIND_TYPE),
        ("event", NAME),
        ("device", NAME),
        ("op", NAME),
        *((c.name, _TEXT if c.dtype.kind == "S" else c.type) for c in COLUMNS.values()),
    ]
)
"""Columns of `events_table`. `event`, `device` and `op` are names; the columns of record fields
hold the recorded values, null in kinds without the field."""


def events_table(events: Events, context: Context) -> pa.Table:
    """Return a table of EVENT_SCHEMA with one row per event, in the events' order.

    The recorded fields are null in kinds without them; texts are decoded as UTF-8, invalid bytes
    replaced.
    """
    by_kind = events_by_kind(events, np.zeros(len(events), np.int64))
    back = np.empty(len(events), np.int64)
    back[np.argsort(events.kind, kind="stable")] = np.arange(len(events))
    found = {name: _taken(by_kind[name], back) for name in by_kind.column_names}
    opf = found["opf"].cast(pa.int64()).fill_null(-1).to_numpy()
    columns = {
        "number": events.number,
        TIME: events.ts,
        CPU: nullable(events.cpu, NO_CPU),
        KIND: found[KIND],
        "event": named(events.kind, lambda kind: BY_KIND[Kind(kind)].name),
        "device": named(events.dev, lambda dev: context.device_name(dev) if dev else None),
        "op": named(opf, lambda value: None if value < 0 else context.op_name(value)),
    }
    for column in COLUMNS.values():
        values = found[column.name]
        columns[column.name] = _text(values) if column.dtype.kind == "S" else values
    return pa.table(columns, schema=EVENT_SCHEMA)


def _taken(values: pa.ChunkedArray, rows: I64) -> pa.Array:
    """Return the values at the rows. Most columns are null in all kinds that a window has."""
    if values.null_count == len(values):
        return pa.nulls(len(rows), values.type)
    return values.combine_chunks().take(rows)


def _text(values: pa.Array) -> pa.Array:
    """Return binary values as UTF-8 strings, invalid bytes replaced; nulls stay null."""
    distinct = values.dictionary_encode()
    texts = [value.decode("utf-8", "replace") for value in distinct.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(distinct.indices)
