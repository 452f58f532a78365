# SPDX-License-Identifier: Apache-2.0
"""Records of chosen sites as Arrow tables: pairs; lives, spans of functions, hits."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, Lifecycles
from biotrail.converters.lifecycles.arrow.columns import (
    MONOTONIC,
    NAME,
    WALL,
    Column,
    filled,
    schema,
)
from biotrail.converters.lifecycles.arrow.tables import wall_clock
from biotrail.converters.sites.building import Followed, LifeReader
from biotrail.converters.sites.pair_names import PairNames
from biotrail.converters.sites.tables import Following
from biotrail.converters.sites.trees import (
    ENDING_NAMES,
    FINISH_NAMES,
    KIND_NAMES,
    Life,
    Node,
    NodeKind,
)
from biotrail.recorder.schema.records import HIT_BORN, HIT_ENDED, Role

_LIFE = Column("life", pa.uint32(), "", "number of the object's life in the recording, from 1 on")
_OBJECT = Column("object", pa.uint64(), "", "address")
_CONTEXT = Column("context", pa.int32(), "", "number of the run of hits in one thread or interrupt")
_WHERE = (
    _CONTEXT,
    Column("context_kind", NAME, "", "task, worker, kernel thread, idle, softirq, interrupt, NMI"),
    Column("context_what", NAME, "", "as system call pread64, work blk_mq_run_work_fn; null"),
)
LIVES = (
    _LIFE,
    _OBJECT,
    Column("type", NAME, "", "name of the struct"),
    Column("detail", pa.uint64(), "", "what the type's declaration shows, as the sector"),
    Column("born_time", WALL, "UTC", "birth, else the first hit, by the wall clock"),
    Column("born_ns", pa.int64(), MONOTONIC, "birth; null: not recorded"),
    Column("first_ns", pa.int64(), MONOTONIC, "first hit"),
    Column("last_ns", pa.int64(), MONOTONIC, "last hit"),
    Column("ended_ns", pa.int64(), MONOTONIC, "death; null: not recorded"),
    Column("ending", NAME, "", "ended, or why no end is known"),
    Column("life_ns", pa.int64(), "ns", "from birth to death; null: one of them is not known"),
    Column("tid", pa.uint32(), "", "thread of the first hit"),
    Column("comm", NAME, "", "its name"),
    Column("hits", pa.uint32(), "", "hits in the life"),
    Column("contexts", pa.uint32(), "", "runs of hits in one thread or interrupt"),
    Column("spans", pa.uint32(), "", "functions entered"),
    Column("unfinished", pa.uint32(), "", "of these without a recorded return"),
    Column("returns_alone", pa.uint32(), "", "returns without a recorded entry"),
    Column("left_out", pa.uint32(), "", "hits beyond the most that a life may have"),
    Column("cut", pa.bool_(), "", "the recorder had no room for some hits"),
    Column("lost", pa.bool_(), "", "records were lost while it lived"),
)
SPANS = (
    _LIFE,
    _OBJECT,
    Column("span", pa.int32(), "", "number of the span in its life"),
    Column("parent", pa.int32(), "", "span of the followed function that called it; null: none"),
    Column("function", NAME, "", "name"),
    Column("module", NAME, "", "kernel module; null: the kernel itself"),
    Column("path", NAME, "", "functions above, from the context's outermost on, as a;b;c"),
    Column("begin_ns", pa.int64(), MONOTONIC, "entry"),
    Column("end_ns", pa.int64(), MONOTONIC, "return; null: not recorded"),
    Column("span_ns", pa.int64(), "ns", "from entry to return"),
    Column("self_ns", pa.int64(), "ns", "without followed functions and interrupts inside"),
    Column("finish", NAME, "", "returned, or why no return is known"),
    Column("value", pa.uint64(), "", "what it returned, as in its register; null: not known"),
    *_WHERE,
    Column("tid", pa.uint32(), "", "thread that ran or was interrupted"),
    Column("comm", NAME, "", "its name"),
    Column("cpu", pa.uint16(), "", "CPU of the entry"),
    Column("end_cpu", pa.uint16(), "", "CPU of the return"),
)
HITS = (
    Column("number", pa.int64(), "", "index of the record among the log's events"),
    Column("time_ns", pa.int64(), MONOTONIC, "when the site was passed"),
    _LIFE,
    _OBJECT,
    Column("site", NAME, "", "name of the function or tracepoint"),
    Column("role", NAME, "", "entry, return, tracepoint"),
    Column("detail", pa.uint64(), "", "as of lives, at this time"),
    Column("value", pa.uint64(), "", "what a function returned; null: no return"),
    Column("born", pa.bool_(), "", "the life begins here"),
    Column("ended", pa.bool_(), "", "the life ends here"),
    Column("span", pa.int32(), "", "span that it enters or leaves, or is in; null: none"),
    *_WHERE,
    Column("tid", pa.uint32(), "", "thread that ran or was interrupted"),
    Column("comm", NAME, "", "its name"),
    Column("cpu", pa.uint16(), "", "CPU"),
    Column("path", NAME, "", "functions above, from the context's outermost on, as a;b;c"),
)
LIFE_SCHEMA, SPAN_SCHEMA, HIT_SCHEMA = schema(LIVES), schema(SPANS), schema(HITS)
_ROLES = {Role.ENTRY: "entry", Role.RETURN: "return", Role.EVENT: "tracepoint"}

Make = Callable[[Sequence[Followed], Following, Context], pa.Table]
"""Makes a table of lives."""


def followed_tables(
    windows: Iterable[Lifecycles], context: Context, makes: Sequence[Make]
) -> Iterator[tuple[pa.Table, ...]]:
    """Yield the tables that `makes` makes, of the lives of each window, and of those at the end."""
    reader = LifeReader(context)
    for window in windows:
        reader.add(window)
        if ready := list(reader.ready()):
            yield tuple(make(ready, reader.following, context) for make in makes)
    rest = list(reader.rest())
    yield tuple(make(rest, reader.following, context) for make in makes)


def lives_table(lives: Sequence[Followed], following: Following, context: Context) -> pa.Table:
    """Return a table of LIFE_SCHEMA with a row per life, in the order of their ends."""
    rows = [one.life for one in lives]
    spans = [sum(node.kind == NodeKind.FUNCTION for node in life.nodes) for life in rows]
    begin = np.array([life.begin for life in rows], np.int64)
    columns = {
        "life": [life.number for life in rows],
        "object": [life.object for life in rows],
        "type": [following.type] * len(rows),
        "detail": [life.detail or None for life in rows],
        "born_time": wall_clock(context, begin),
        "born_ns": _times(life.born for life in rows),
        "first_ns": [life.first for life in rows],
        "last_ns": [life.last for life in rows],
        "ended_ns": _times(life.ended for life in rows),
        "ending": [ENDING_NAMES[life.ending] for life in rows],
        "life_ns": _times(life.took for life in rows),
        "tid": [int(one.hits["tid"][0]) for one in lives],
        "comm": [_comm(one.hits["comm"][0]) for one in lives],
        "hits": [life.hits for life in rows],
        "contexts": [len(life.contexts) for life in rows],
        "spans": spans,
        "unfinished": [life.unfinished for life in rows],
        "returns_alone": [life.alone for life in rows],
        "left_out": [life.left_out for life in rows],
        "cut": [life.cut for life in rows],
        "lost": [life.lost for life in rows],
    }
    return _table(columns, LIFE_SCHEMA)


def spans_table(lives: Sequence[Followed], following: Following, context: Context) -> pa.Table:
    """Return a table of SPAN_SCHEMA with a row per function that was entered, by life and entry."""
    columns: dict[str, list[Any]] = {name: [] for name in SPAN_SCHEMA.names}
    for one in lives:
        numbers, above = span_numbers(one.life), _Paths(one.life)
        for index, node in enumerate(one.life.nodes):
            if node.kind == NodeKind.FUNCTION:
                row = _span(one.life, index, numbers, above)
                for name, value in row.items():
                    columns[name].append(value)
    return _table(columns, SPAN_SCHEMA)


def hits_table(lives: Sequence[Followed], following: Following, context: Context) -> pa.Table:
    """Return a table of HIT_SCHEMA with a row per hit, by life and time."""
    columns: dict[str, list[Any]] = {name: [] for name in HIT_SCHEMA.names}
    for one in lives:
        numbers, above = span_numbers(one.life), _Paths(one.life)
        named = zip(*(one.hits[name].tolist() for name in _HIT_FIELDS), strict=True)
        for at, values in enumerate(named):
            row = _hit(one.life, at, values, numbers, above)
            row["site"] = following.site(row["site"]).name
            for name, value in row.items():
                columns[name].append(value)
    return _table(columns, HIT_SCHEMA)


def span_numbers(life: Life) -> list[int | None]:
    """Return per node of a life the number of the span that it is or is in; None: it is in none."""
    numbers: list[int | None] = []
    count = 0
    for node in life.nodes:
        if node.kind == NodeKind.FUNCTION:
            numbers.append(count)
            count += 1
        else:
            numbers.append(None if node.parent < 0 else numbers[node.parent])
    return numbers


class _Paths:
    """The functions above a life's nodes, as text, each made once."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._made: dict[int, str] = {-1: ""}

    def above(self, node: Node) -> str | None:
        """Return the names above a node as `a;b;c`; None: it is outermost."""
        return self._to(node.parent) or None

    def _to(self, index: int) -> str:
        chain = []
        while index not in self._made:
            chain.append(index)
            index = self._life.nodes[index].parent
        text = self._made[index]
        for one in reversed(chain):
            name = self._life.nodes[one].name.replace(";", ":")
            text = self._made[one] = f"{text};{name}" if text else name
        return text


def _span(life: Life, index: int, numbers: list[int | None], paths: _Paths) -> dict[str, Any]:
    node = life.nodes[index]
    known = node.end != NEVER
    return {
        "life": life.number,
        "object": life.object,
        "span": numbers[index],
        "parent": None if node.parent < 0 else numbers[node.parent],
        "function": node.name,
        "module": node.module or None,
        "path": paths.above(node),
        "begin_ns": node.begin,
        "end_ns": node.end if known else None,
        "span_ns": node.took if known else None,
        "self_ns": node.own if known else None,
        "finish": FINISH_NAMES[node.finish],
        "value": node.value if known else None,
        **_where(life, node),
        "tid": life.contexts[node.context].tid,
        "comm": life.contexts[node.context].comm,
        "cpu": node.cpu,
        "end_cpu": node.cpu_end if known else None,
    }


_HIT_FIELDS = ("number", "time", "site", "role", "detail", "value", "flags", "tid", "comm", "cpu")


def _hit(
    life: Life, at: int, values: tuple[Any, ...], numbers: list[int | None], paths: _Paths
) -> dict[str, Any]:
    hit = dict(zip(_HIT_FIELDS, values, strict=True))
    role, flags = hit["role"], hit.pop("flags")
    hit["time_ns"] = hit.pop("time")
    node = life.nodes[life.node_of[at]]
    return {
        **hit,
        "life": life.number,
        "object": life.object,
        "role": _ROLES.get(role, f"role {role}"),
        "value": hit["value"] if role == Role.RETURN else None,
        "born": bool(flags & HIT_BORN),
        "ended": bool(flags & HIT_ENDED),
        "span": numbers[life.node_of[at]],
        **_where(life, node),
        "comm": _comm(hit["comm"]),
        "path": paths.above(node),
    }


def _where(life: Life, node: Node) -> dict[str, Any]:
    run = life.contexts[node.context]
    return {
        "context": run.number,
        "context_kind": KIND_NAMES[run.kind],
        "context_what": run.what or None,
    }


def _comm(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _times(values: Iterable[int]) -> list[int | None]:
    return [None if value == NEVER else value for value in values]


def _table(columns: dict[str, Any], to: pa.Schema) -> pa.Table:
    made = []
    for field in to:
        values = columns[field.name]
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            made.append(values)
        elif pa.types.is_dictionary(field.type):
            made.append(pa.array(values, pa.string()).dictionary_encode().cast(field.type))
        else:
            made.append(pa.array(values, field.type))
    return pa.table(made, schema=to)


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
        "pair": [names.name(number) for number in numbers],
        "began_time": wall_clock(context, pairs.began),
        "latency_ns": pairs.latency,
        "key": [names.key(*key) for key in keys],
        "by": [names.by(*value) or None for value in by],
        "by_value": pairs.by,
        "comm": [comm.decode(errors="replace") for comm in pairs.comm.tolist()],
    }
    return filled(PAIR_SCHEMA, pairs, **columns)
