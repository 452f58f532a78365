# SPDX-License-Identifier: Apache-2.0
"""Put slices on lanes and write them: one pool of lanes per category and device."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.tables import I64, U64
from biotrail.converters.outputs.perfetto import loops
from biotrail.converters.outputs.perfetto.columns import FOREVER, STRING, Slices, firsts
from biotrail.converters.outputs.perfetto.lanes import LanePool
from biotrail.converters.outputs.perfetto.names import ARROW, CATEGORY_IIDS, STAGE
from biotrail.converters.outputs.perfetto.packets import PacketFile
from biotrail.converters.outputs.perfetto.summary import PerfettoSummary
from biotrail.converters.outputs.perfetto.tracks import Streams
from biotrail.converters.outputs.perfetto.tree import Tree

BLOCK = 1 << 15
"""Most slices whose packets are in memory at once."""
_SLICE, _ARGUMENT, _FLOW, _STAGE = 100, 16, 10, 72
"""Most bytes of a slice's own packets, and of each of its arguments, flows and stages."""

_PACKET = 48
"""Most bytes of the end of a slice, or of a counter's sample."""
_MOST = float(1 << 62)
"""The largest sample that is written, which a damaged log may exceed."""


def last_packet(slices: Slices) -> I64:
    """Return per slice (n,) the time of its last packet, ns.

    That is its end; for an open slice the latest time of its stages, or its start if it has none.
    """
    last = slices.end.copy()
    endless = np.flatnonzero(last == FOREVER)
    last[endless] = slices.start[endless]
    stages = slices.stages
    if stages is None:
        return last
    first = firsts(stages.count)
    for row in endless[stages.count[endless] > 0].tolist():
        own = slice(int(first[row]), int(first[row] + stages.count[row]))
        last[row] = max(last[row], stages.start[own].max(), stages.end[own].max())
    return last


def encode(slices: Slices, stream: I64, sequences: U64, last: I64) -> Iterator[memoryview]:
    """Yield the packets of all slices in their order, some thousand slices at a time.

    stream: per slice (n,), index of its lane in `sequences`, the packet sequence ids, and in
    `last`, the time of the lane's last packet, ns. Slices of one lane are in the order of their
    starts. `last` has been brought up to date when all is yielded.
    """
    stages, flows = slices.stages, slices.flows
    ends, arguments, values = _arguments_of(slices)
    flow_parts = [None] * 3 if flows is None else [firsts(flows.count), flows.count, flows.id]
    stage_parts: list[NDArray[Any] | None] = [None] * 6
    if stages is not None:
        stage_parts = [firsts(stages.count), stages.count, stages.name]
        stage_parts += [stages.start, stages.end, stages.flow]
    columns = (
        _column(slices.start, np.int64),
        _column(slices.end, np.int64),
        _column(slices.name, np.uint64),
        _column(stream, np.int64),
        _column(sequences, np.uint64),
        last,
        _column(slices.family, np.uint64),
        _column(slices.in_family, np.uint8),
        _column(slices.callstack, np.uint64),
        ends,
        arguments,
        values,
        *map(_column, flow_parts, (np.int64, np.int64, np.uint64)),
        *map(_column, stage_parts, (np.int64, np.int64, np.uint16, np.int64, np.int64, np.uint64)),
    )
    categories = np.array([CATEGORY_IIDS[c] for c in (slices.category, STAGE, ARROW)], np.int64)
    for begin in range(0, len(slices), BLOCK):
        stop = min(begin + BLOCK, len(slices))
        size = _SLICE * (stop - begin)
        size += _ARGUMENT * int(ends[stop - 1] - (ends[begin - 1] if begin else 0))
        size += 0 if flows is None else _FLOW * int(flows.count[begin:stop].sum())
        size += 0 if stages is None else _STAGE * int(stages.count[begin:stop].sum())
        out = np.empty(size, dtype=np.uint8)
        used = loops.encode(begin, stop, categories, *columns, *[out])
        yield out.data[:used]


def _column(values: NDArray[Any] | None, dtype: Any) -> NDArray[Any]:
    return np.zeros(0, dtype) if values is None else np.ascontiguousarray(values, dtype)


def _arguments_of(slices: Slices) -> tuple[I64, I64, U64]:
    """Return (ends, arguments, values) of the slices' arguments, by slice, in the columns' order.

    ends: per slice (n,), where its arguments end in the other two; they begin where those of the
    slice before end. arguments, values: per argument, as `loops.encode` takes them.
    """
    n = len(slices)
    every = np.arange(n)
    counts = np.zeros(n, dtype=np.int64)
    for column in slices.columns:
        counts[slice(None) if column.at is None else column.at] += 1
    ends = np.cumsum(counts)
    total = int(ends[-1]) if n else 0
    arguments, values = np.empty(total, np.int64), np.empty(total, np.uint64)
    cursor = ends - counts
    for column in slices.columns:
        argument = column.iid | column.tag << 8
        rows = every if column.at is None else column.at
        numbers = np.ascontiguousarray(column.values, np.uint64)
        loops.place_arguments(rows, numbers, argument, cursor, arguments, values)
    return ends, arguments, values


def encode_samples(since: I64, sequence: int, values: NDArray[np.float64]) -> memoryview:
    """Return a counter's packets.

    since: ns after the packet before (n,). sequence: packet sequence id. values: at least 0,
    rounded to integers and limited to 2^62.
    """
    out = np.empty(_PACKET * len(since), dtype=np.uint8)
    whole = np.rint(np.minimum(values, _MOST)).astype(np.uint64)
    return out.data[: loops.encode_samples(since, sequence, whole, out)]


@dataclass
class _Pool:
    """The lanes of one device's bios or requests, or of the loss windows."""

    lanes: LanePool = field(default_factory=LanePool)
    streams: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Per lane (lanes,): its index in Streams, or -1 before the lane's first slice."""


class SliceWriter:
    """Writes the slices of one log, window by window, then the ends of open slices.

    Adds to `summary.slices`.
    """

    def __init__(
        self, file: PacketFile, streams: Streams, tree: Tree, summary: PerfettoSummary
    ) -> None:
        """Begin without lanes; nothing is written.

        file, streams, tree, summary: of the whole trace; all are changed by `write` and `finish`.
        """
        self._file = file
        self._streams = streams
        self._tree = tree
        self._summary = summary
        self._pools: dict[tuple[str, int], _Pool] = {}
        """Per (category, dev_t): its lanes. Loss windows have dev_t 0."""
        self._open_streams: list[int] = []
        """Streams whose last slice is open: `finish` writes its END."""

    @property
    def lanes(self) -> int:
        """Number of lanes of all pools."""
        return sum(len(pool.lanes) for pool in self._pools.values())

    def write(self, slices: Slices, in_flight: Slices) -> None:
        """Put a window's slices of one category on lanes, and write them.

        in_flight: slices of the same category that a later call has among its `slices`. Those that
        began before the end of what is written only reserve a lane until the next call. Both in the
        order of (start, number). A slice with end FOREVER keeps its lane to the trace's end, and
        gets its END by `finish`. Raises OutputError where writing fails.
        """
        stream = np.zeros(len(slices), dtype=np.int64)
        groups = names_of(np.concatenate([slices.group, in_flight.group]))
        pooled = [dev for category, dev in self._pools if category == slices.category]
        for dev in sorted({*groups.tolist(), *pooled}):
            rows = np.flatnonzero(slices.group == dev)
            reserving = self._concurrent(slices, rows, in_flight, dev)
            stream[rows] = self._assign_lanes(slices, rows, in_flight, reserving, dev)
        if len(slices):
            self._write_slices(slices, stream)

    def _concurrent(self, slices: Slices, rows: I64, in_flight: Slices, dev: int) -> I64:
        """Return the rows (k,) of `in_flight` on `dev` that need a lane in this window.

        rows: those of `slices` on `dev` (dev_t). In flight slices need a lane if they began no
        later than the latest end so far of the pool, or the last begin or end among `rows`; an end
        that is FOREVER does not count. Later ones overlap nothing in this window, so they can wait.
        Changes nothing.
        """
        pool = self._pools.get((slices.category, dev))
        ends = slices.end[rows]
        ended = int(ends[ends != FOREVER].max(initial=-1))
        until = max(
            ended, pool.lanes.frontier if pool else -1, int(slices.start[rows].max(initial=-1))
        )
        return np.flatnonzero((in_flight.group == dev) & (in_flight.start <= until))

    def _assign_lanes(
        self, slices: Slices, rows: I64, in_flight: Slices, reserving: I64, dev: int
    ) -> I64:
        """Put these rows of `slices` on lanes of `dev`; return the stream of each."""
        pool = self._pools.setdefault((slices.category, dev), _Pool())
        number = np.concatenate([slices.number[rows], in_flight.number[reserving]])
        start = np.concatenate([slices.start[rows], in_flight.start[reserving]])
        end = np.concatenate([slices.end[rows], in_flight.end[reserving]])
        order = np.lexsort((number, start)) if len(reserving) else slice(None)
        lane = np.empty(len(number), dtype=np.int64)
        reserves = np.zeros(len(reserving), dtype=np.bool_)
        stays = np.concatenate([end[: len(rows)] == FOREVER, reserves])
        lane[order] = pool.lanes.assign(number[order], start[order], end[order], stays[order])
        lane, start = lane[: len(rows)], start[: len(rows)]
        self._add_streams(pool, slices.category, dev, lane, start)
        return pool.streams[lane]

    def _add_streams(self, pool: _Pool, category: str, dev: int, lane: I64, start: I64) -> None:
        """Add a stream to `pool.streams` for each lane that has its first slice."""
        lanes = int(lane.max(initial=-1)) + 1
        more = np.full(max(lanes - len(pool.streams), 0), -1, dtype=np.int64)
        pool.streams = np.concatenate([pool.streams, more])
        first = np.full(len(pool.streams), FOREVER)
        np.minimum.at(first, lane, start)
        for new in np.flatnonzero((pool.streams < 0) & (first != FOREVER)).tolist():
            descriptor = self._tree.lane(category, dev, new)
            pool.streams[new] = self._streams.add(descriptor, category, int(first[new]))

    def _write_slices(self, slices: Slices, stream: I64) -> None:
        """Write slices, each on its `stream` (n,), and the interned data that must precede them."""
        uses = [
            (stream if column.at is None else stream[column.at], column.values)
            for column in slices.columns
            if column.tag == STRING
        ]
        used = np.flatnonzero(np.bincount(stream))
        stages = (
            []
            if slices.stages is None
            else np.flatnonzero(np.bincount(slices.stages.name)).tolist()
        )
        self._streams.use(slices.category, [c.iid for c in slices.columns], stages)
        self._file.packets(self._tree.announcements())
        callstacks = [] if slices.callstack is None else [(stream, slices.callstack)]
        self._file.write(self._streams.prepare(used, uses, callstacks))
        for data in encode(slices, stream, self._streams.sequence, self._streams.last):
            self._file.write(data)
        self._open_streams += stream[slices.end == FOREVER].tolist()
        nested = 0 if slices.stages is None else len(slices.stages.name)
        self._summary.slices += len(slices) + nested

    def finish(self, end: int) -> None:
        """Write an END at `end`, the trace's last time (ns), for every open slice."""
        stream = np.array(sorted(self._open_streams), dtype=np.int64)
        self._file.write(self._streams.prepare(stream, ()))
        since = np.maximum(end - self._streams.last[stream], 0)
        out = np.empty(_PACKET * len(since), dtype=np.uint8)
        self._file.write(out.data[: loops.encode_ends(since, self._streams.sequence[stream], out)])
