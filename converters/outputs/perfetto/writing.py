# SPDX-License-Identifier: Apache-2.0
"""Put slices on lanes and write them: one pool of lanes per category and device.

A track cannot hold slices that overlap, so each pool (a device's bios, say) has as many lanes as
were ever needed at once. In the order of their starts, each slice takes the lowest lane whose last
slice ended strictly before: the first lanes are the busy ones, and the upper ones show how deep a
burst was.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.calls.keys import rows_among
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.tables import I64, U64, Bool
from biotrail.converters.outputs.perfetto import loops
from biotrail.converters.outputs.perfetto.columns import FOREVER, Slices, firsts
from biotrail.converters.outputs.perfetto.names import ARROW, CATEGORY_IIDS, STAGE
from biotrail.converters.outputs.perfetto.tracks import Streams
from biotrail.converters.outputs.perfetto.tree import Tree

BLOCK = 1 << 15
"""Most slices whose packets are in memory at once."""
_SLICE, _ARGUMENT, _FLOW, _STAGE = 100, 16, 10, 72
"""Most bytes of a slice's own packets, and of each of its arguments, flows and stages."""

PACKET = 48
"""Most bytes of the end of a slice, or of a counter's sample."""


def last_packet(slices: Slices) -> I64:
    """Return per slice (n,) the time of its last packet, ns; of an open one without its END."""
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

    stream: per slice (n,), its lane's index in `sequences`, the packet sequence ids, and in `last`,
    the time of the lane's last packet, ns; brought up to date. A lane's slices are in order of
    start.
    """
    stages, flows = slices.stages, slices.flows
    # The arguments by slice, as `loops.encode` takes them.
    every = np.arange(len(slices))
    counts = np.zeros(len(slices), dtype=np.int64)
    for column in slices.columns:
        counts[slice(None) if column.at is None else column.at] += 1
    ends = np.cumsum(counts)
    cursor = ends - counts
    arguments, values = np.empty(counts.sum(), np.int64), np.empty(counts.sum(), np.uint64)
    for column in slices.columns:
        argument = column.iid | column.tag << 8
        rows = every if column.at is None else column.at
        numbers = np.ascontiguousarray(column.values, np.uint64)
        loops.place_arguments(rows, numbers, argument, cursor, arguments, values)
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


_FEW_LANES = 512
"""Up to so many lanes, a look at each is faster than a tree."""
_FEWEST_LEAVES = 1024
"""Of the tree: a power of two."""


@dataclass
class LanePool:
    """The lanes of one group of slices, kept from window to window."""

    last_end: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Per lane (lanes,): end of its last slice, ns; -1: none ended yet; FOREVER: occupied to the
    trace's end."""
    frontier: int = -1
    """The latest end of any slice assigned so far, ns; -1: none ended."""
    streams: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Per lane (lanes,): its index in Streams, or -1 before the lane's first slice."""
    _busy_number: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Numbers of the slices in flight at the last window's end."""
    _busy_lane: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Per slice of `_busy_number`: the lane reserved for it."""

    def assign(self, number: I64, start: I64, end: I64, stays: Bool) -> I64:
        """Return the lane of each slice of one window, from 0: int64 (n,). Updates the pool.

        A slice gets the lane that it reserved, unless its start moved to the end of the lane's last
        slice or before; else the lowest lane whose last slice ended before its start. number: the
        same in all windows; rows in the order of (start, number). A slice with end FOREVER reserves
        its lane until it is passed again with its end, or until a window does not pass it; with
        `stays` to the trace's end.
        """
        lane = np.full(len(number), -1, dtype=np.int64)
        if len(self._busy_number):
            row, known = rows_among(self._busy_number, number)
            held = self._busy_lane[row]
            # If the start became earlier than the end of the lane's last slice, they would overlap.
            lane = np.where(known & (start > self.last_end[held]), held, lane)
        taken = lane >= 0
        lane[~taken] = self._lowest(start[~taken], end[~taken], lane[taken], end[taken])
        more = max(int(lane.max(initial=-1)) + 1 - len(self.last_end), 0)
        self.last_end = np.concatenate([self.last_end, np.full(more, -1)])
        self.streams = np.concatenate([self.streams, np.full(more, -1)])
        over = end != FOREVER
        np.maximum.at(self.last_end, lane[over], end[over])
        self.last_end[lane[stays]] = FOREVER
        waits = ~over & ~stays
        self._busy_number, self._busy_lane = number[waits], lane[waits]
        self.frontier = max(self.frontier, int(end[over].max(initial=-1)))
        return lane

    def _lowest(self, start: I64, end: I64, held: I64, held_end: I64) -> I64:
        """Return for each slice (n,), in the order of `start`, the lowest lane that is free then.

        held, held_end: lanes that slices of this window occupy already, until when (ns).
        """
        ends = self.last_end.copy()
        ends[held] = held_end
        if len(ends) and len(start) > 1 and (start[1:] > end[:-1]).all() and start[0] > ends[0]:
            return np.zeros(len(start), dtype=np.int64)  # no slice overlaps the next
        found = np.empty(len(start), np.int64)
        if len(ends) <= _FEW_LANES:
            room = np.concatenate([ends, np.empty(len(start), np.int64)])
            if loops.lowest(start, end, room, len(ends), _FEW_LANES, found) >= 0:
                return found
        leaves = _FEWEST_LEAVES
        while leaves <= len(ends) or not loops.lowest_of_many(
            start, end, _tree(ends, leaves), found
        ):
            leaves *= 2
        return found


def _tree(ends: I64, leaves: int) -> I64:
    """Return a tree (2 * leaves,) for `loops.lowest_of_many`. leaves: a power of two."""
    tree = np.full(2 * leaves, np.iinfo(np.int64).min, np.int64)
    tree[leaves : leaves + len(ends)] = ends
    level = leaves
    while level > 1:
        pairs = tree[level : 2 * level].reshape(-1, 2)
        pairs.min(axis=1, out=tree[level // 2 : level])
        level //= 2
    return tree


@dataclass
class SliceWriter:
    """Writes the slices of one log, window by window, then the ends of open slices."""

    streams: Streams
    tree: Tree
    pools: dict[tuple[str, int], LanePool] = field(default_factory=dict)
    """Per (category, dev_t): its lanes. Loss windows have dev_t 0."""
    _open_streams: list[int] = field(default_factory=list)
    """Streams whose last slice is open: `finish` writes its END."""

    def write(self, slices: Slices, in_flight: Slices | None = None) -> None:
        """Put a window's slices of one category on lanes, and write them. Raises OutputError.

        in_flight: slices of the same category, if it has any, that a later call has among its
        `slices`: they reserve a lane. Both in the order of (start, number). A slice with end
        FOREVER keeps its lane to the trace's end, where `finish` ends it.
        """
        if in_flight is None:
            if not len(slices):
                return
            in_flight = Slices.none(slices.category)
        stream = np.zeros(len(slices), dtype=np.int64)
        groups = names_of(np.concatenate([slices.group, in_flight.group]))
        pooled = [dev for category, dev in self.pools if category == slices.category]
        for dev in sorted({*groups.tolist(), *pooled}):
            rows = np.flatnonzero(slices.group == dev)
            pool = self.pools.setdefault((slices.category, dev), LanePool())
            start, end = slices.start[rows], slices.end[rows]
            # What began after the pool's latest end and all times of `rows` overlaps nothing in
            # this window, and reserves no lane.
            until = max(pool.frontier, int(start.max(initial=-1)))
            until = max(until, int(end[end != FOREVER].max(initial=-1)))
            reserving = np.flatnonzero((in_flight.group == dev) & (in_flight.start <= until))
            stays = np.concatenate([end == FOREVER, np.zeros(len(reserving), dtype=np.bool_)])
            number = np.concatenate([slices.number[rows], in_flight.number[reserving]])
            start = np.concatenate([start, in_flight.start[reserving]])
            end = np.concatenate([end, in_flight.end[reserving]])
            order = np.lexsort((number, start)) if len(reserving) else slice(None)
            lane = np.empty(len(number), dtype=np.int64)
            lane[order] = pool.assign(number[order], start[order], end[order], stays[order])
            lane, start = lane[: len(rows)], start[: len(rows)]
            first = np.full(len(pool.streams), FOREVER)
            np.minimum.at(first, lane, start)
            for new in np.flatnonzero((pool.streams < 0) & (first != FOREVER)).tolist():
                descriptor = self.tree.lane(slices.category, dev, new)
                at = int(first[new])
                pool.streams[new] = self.streams.add(descriptor, slices.category, at)
            stream[rows] = pool.streams[lane]
        if not len(slices):
            return
        self.tree.file.packets(self.streams.prepare(stream, slices))
        for data in encode(slices, stream, self.streams.sequence, self.streams.last):
            self.tree.file.write(data)
        self._open_streams += stream[slices.end == FOREVER].tolist()
        nested = 0 if slices.stages is None else len(slices.stages.name)
        self.tree.file.summary.slices += len(slices) + nested

    def finish(self, end: int) -> None:
        """Write an END at `end`, the trace's last time (ns), for every open slice."""
        stream = np.array(sorted(self._open_streams), dtype=np.int64)
        self.tree.file.packets(self.streams.prepare(stream))
        since = np.maximum(end - self.streams.last[stream], 0)
        out = np.empty(PACKET * len(since), dtype=np.uint8)
        self.tree.file.write(
            out.data[: loops.encode_ends(since, self.streams.sequence[stream], out)]
        )
