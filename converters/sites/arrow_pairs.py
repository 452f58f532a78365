# SPDX-License-Identifier: Apache-2.0
"""Pairs of events as an Arrow table."""

import numpy as np
import pyarrow as pa

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.lifecycles.arrow.columns import MONOTONIC, NAME, WALL, Column, schema
from biotrail.converters.lifecycles.arrow.tables import wall_clock
from biotrail.converters.sites.pair_names import PairNames

PAIRS = (
    Column("number", pa.int64(), "", "index of the record among the log's events"),
    Column("pair", NAME, "", "name of the declared pair"),
    Column("began_time", WALL, "UTC", "first event, by the wall clock"),
    Column("began_ns", pa.int64(), MONOTONIC, "first event"),
    Column("ended_ns", pa.int64(), MONOTONIC, "second event"),
    Column("latency_ns", pa.int64(), "ns", "from the first event to the second"),
    Column("key", NAME, "", "the key's fields and values as text"),
    Column("by", NAME, "", "the value of --by as text; null without --by"),
    Column("key0", pa.uint64(), "", "first field of the key"),
    Column("key1", pa.uint64(), "", "second field of the key; 0 without one"),
    Column("by_value", pa.uint64(), "", "the value of --by; 0 without --by"),
    Column("tid", pa.uint32(), "", "thread of the second event"),
    Column("comm", NAME, "", "its name"),
    Column("cpu", pa.uint16(), "", "CPU of the second event"),
)
PAIR_SCHEMA = schema(PAIRS)


def pairs_table(window: Lifecycles, context: Context, names: PairNames) -> pa.Table:
    """Return a table of PAIR_SCHEMA with a row per pair that ended in the window, by its end.

    names: those of the log's pairs.
    """
    if window.sites is None:
        return PAIR_SCHEMA.empty_table()
    pairs = window.sites.pairs
    numbers = pairs.pair.tolist()
    keys = zip(numbers, pairs.key0.tolist(), pairs.key1.tolist(), strict=True)
    by = zip(numbers, pairs.by.tolist(), strict=True)
    columns = {
        "number": pairs.number,
        "pair": [names.name(number) for number in numbers],
        "began_time": wall_clock(context, pairs.began),
        "began_ns": pairs.began,
        "ended_ns": pairs.ended,
        "latency_ns": pairs.latency,
        "key": [names.key(*key) for key in keys],
        "by": [names.by(*value) or None for value in by],
        "key0": pairs.key0,
        "key1": pairs.key1,
        "by_value": pairs.by,
        "tid": pairs.tid,
        "comm": [comm.decode(errors="replace") for comm in pairs.comm.tolist()],
        "cpu": np.asarray(pairs.cpu),
    }
    return pa.table({name: columns[name] for name in PAIR_SCHEMA.names}, schema=PAIR_SCHEMA)
