# SPDX-License-Identifier: Apache-2.0
"""Records of chosen sites as Arrow tables: pairs; lives, spans of functions, hits."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from biotrail.converters.sites.lives import LifeReader
from biotrail.converters.sites.pair_names import PairNames
from biotrail.converters.sites.tables import Following
from biotrail.converters.sites.trees import KIND_NAMES, Life, NodeKind, known
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

Make = Callable[[Sequence[Life], Following, Context], pa.Table]
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


def lives_table(lives: Sequence[Life], following: Following, context: Context) -> pa.Table:
    """Return a table of LIFE_SCHEMA with a row per life, in the order of their ends."""
    begin = np.array([life.begin for life in lives], np.int64)
    rows = [
        {
            "life": life.number,
            "object": life.object,
            "type": following.type,
            "detail": life.detail or None,
            "born_ns": known(life.born),
            "first_ns": life.first,
            "last_ns": life.last,
            "ended_ns": known(life.ended),
            "ending": life.ending,
            "life_ns": known(life.took),
            "tid": int(life.rows["tid"][0]),
            "comm": life.rows["comm"][0].decode("utf-8", "replace"),
            "hits": life.hits,
            "contexts": len(life.contexts),
            "spans": sum(node.kind == NodeKind.FUNCTION for node in life.nodes),
            "unfinished": life.unfinished,
            "returns_alone": life.alone,
            "left_out": life.left_out,
            "cut": life.cut,
            "lost": life.lost,
        }
        for life in lives
    ]
    return _table(rows, LIFE_SCHEMA, born_time=wall_clock(context, begin))


def spans_table(lives: Sequence[Life], following: Following, context: Context) -> pa.Table:
    """Return a table of SPAN_SCHEMA with a row per function that was entered, by life and entry."""
    rows = []
    for life in lives:
        places = _Places(life)
        for index, node in enumerate(life.nodes):
            if node.kind != NodeKind.FUNCTION:
                continue
            ended = node.end != NEVER
            run = life.contexts[node.context]
            rows.append(
                {
                    **places.of(index),
                    "parent": None if node.parent < 0 else places.spans[node.parent],
                    "function": node.name,
                    "module": node.module or None,
                    "begin_ns": node.begin,
                    "end_ns": node.end if ended else None,
                    "span_ns": node.took if ended else None,
                    "self_ns": node.own if ended else None,
                    "finish": node.finish,
                    "value": node.value if ended else None,
                    "tid": run.tid,
                    "comm": run.comm,
                    "cpu": node.cpu,
                    "end_cpu": node.cpu_end if ended else None,
                }
            )
    return _table(rows, SPAN_SCHEMA)


def hits_table(lives: Sequence[Life], following: Following, context: Context) -> pa.Table:
    """Return a table of HIT_SCHEMA with a row per hit, by life and time."""
    names = ("number", "time", "site", "role", "detail", "value", "flags", "tid", "comm", "cpu")
    rows = []
    for life in lives:
        places = _Places(life)
        columns = (life.rows[name].tolist() for name in names)
        for index, values in zip(life.node_of, zip(*columns, strict=True), strict=True):
            number, time, site, role, detail, value, flags, tid, comm, cpu = values
            rows.append(
                {
                    **places.of(index),
                    "number": number,
                    "time_ns": time,
                    "site": following.site(site).name,
                    "role": _ROLES.get(role, f"role {role}"),
                    "detail": detail,
                    "value": value if role == Role.RETURN else None,
                    "born": bool(flags & HIT_BORN),
                    "ended": bool(flags & HIT_ENDED),
                    "tid": tid,
                    "comm": comm.decode("utf-8", "replace"),
                    "cpu": cpu,
                }
            )
    return _table(rows, HIT_SCHEMA)


class _Places:
    """Where nodes of a life are: in which span and context, and below which functions."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.spans: list[int | None] = []
        """Per node the number of the span that it is or is in; None: it is in none."""
        count = 0
        for node in life.nodes:
            if node.kind == NodeKind.FUNCTION:
                self.spans.append(count)
                count += 1
            else:
                self.spans.append(None if node.parent < 0 else self.spans[node.parent])
        self._paths: dict[int, str] = {-1: ""}

    def of(self, index: int) -> dict[str, Any]:
        """Return the columns that spans and hits share, of a node."""
        life, node = self._life, self._life.nodes[index]
        run = life.contexts[node.context]
        return {
            "life": life.number,
            "object": life.object,
            "span": self.spans[index],
            "context": run.number,
            "context_kind": KIND_NAMES[run.kind],
            "context_what": run.what or None,
            "path": self._path(node.parent) or None,
        }

    def _path(self, index: int) -> str:
        """Return the names down to a node as `a;b;c`."""
        chain = []
        while index not in self._paths:
            chain.append(index)
            index = self._life.nodes[index].parent
        text = self._paths[index]
        for one in reversed(chain):
            name = self._life.nodes[one].name.replace(";", ":")
            text = self._paths[one] = f"{text};{name}" if text else name
        return text


def _table(rows: Sequence[Mapping[str, Any]], to: pa.Schema, **given: Any) -> pa.Table:
    """given: columns that the rows do not have."""
    names = [name for name in to.names if name not in given]
    return pa.table({**given, **{name: [r[name] for r in rows] for name in names}}, schema=to)


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
    """Return a table of PAIR_SCHEMA with a row per pair that ended in the window, by its end."""
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
