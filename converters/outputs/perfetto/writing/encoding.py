# SPDX-License-Identifier: Apache-2.0
"""Encode slices and samples as track event packets: slices by compiled loops, others as `Rows`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U64
from biotrail.converters.outputs.perfetto.names import ARROW, CATEGORY_IIDS, STAGE
from biotrail.converters.outputs.perfetto.packets.columns import Slices
from biotrail.converters.outputs.perfetto.packets.encode import Rows, tag
from biotrail.converters.outputs.perfetto.tracks.lanes import FOREVER
from biotrail.converters.outputs.perfetto.writing import packet_loops as loops

BLOCK = 1 << 15
"""Most slices whose packets are in memory at once."""
_SLICE, _ARGUMENT, _FLOW, _STAGE = 100, 16, 10, 72
"""Most bytes of a slice's own packets, and of each of its arguments, flows and stages."""

PACKET = tag(1, 2)
_TIMESTAMP, _SEQUENCE = tag(8, 0), tag(10, 0)
_EVENT = tag(11, 2)
_TYPE = tag(9, 0)
_END, _COUNTER = _TYPE + b"\x02", _TYPE + b"\x04"
_VALUE = tag(30, 0)
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
    for row in endless[stages.count[endless] > 0].tolist():
        own = slice(int(stages.first[row]), int(stages.first[row] + stages.count[row]))
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
    flow_parts = [None] * 3 if flows is None else [flows.first, flows.count, flows.id]
    stage_parts: list[NDArray[Any] | None] = [None] * 6
    if stages is not None:
        stage_parts = [stages.first, stages.count, stages.name]
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
    """Return the values as the loops take them; None: an empty array."""
    return np.zeros(0, dtype) if values is None else np.ascontiguousarray(values, dtype)


def _arguments_of(slices: Slices) -> tuple[I64, I64, U64]:
    """Return (ends, arguments, values) of the slices' arguments, by slice, in the columns' order.

    ends: per slice (n,), where its arguments end in the other two; they begin where those of the
    slice before end. arguments, values: per argument, as `packet_loops.encode` takes them.
    """
    n = len(slices)
    every = np.arange(n)
    columns = [(column, *column.present()) for column in slices.columns]
    counts = np.zeros(n, dtype=np.int64)
    for _, here, _ in columns:
        counts[here] += 1
    ends = np.cumsum(counts)
    total = int(ends[-1]) if n else 0
    arguments, values = np.empty(total, np.int64), np.empty(total, np.uint64)
    cursor = ends - counts
    for column, here, given in columns:
        argument = column.iid | column.tag << 8
        rows = every if isinstance(here, slice) else here
        numbers = np.ascontiguousarray(given, np.uint64)
        loops.place_arguments(rows, numbers, argument, cursor, arguments, values)
    return ends, arguments, values


def _head(rows: Rows, since: I64, sequence: U64) -> None:
    """Append timestamp (`since`: ns after the packet before) and sequence id of a packet.

    Without the flag SEQ_NEEDS_INCREMENTAL_STATE, which only tells readers to skip a packet after a
    loss: no packet of a file is lost.
    """
    rows.varint(_TIMESTAMP, since.view(np.uint64))
    rows.varint(_SEQUENCE, sequence)


def encode_ends(since: I64, sequence: U64) -> bytes:
    """Return END packets for open slices, b"" for none.

    since: ns after the last packet of the slice's sequence (n,). sequence: packet sequence ids
    (n,).
    """
    if not len(since):
        return b""
    rows = Rows(len(since))
    with rows.message(PACKET):
        _head(rows, since, sequence)
        rows.const(_EVENT + b"\x02" + _END)
    return rows.finish()


def encode_samples(since: I64, sequence: U64, values: NDArray[np.float64]) -> bytes:
    """Return counter packets of one or several counters, b"" for none.

    since: ns after the packet before on the same sequence (n,). sequence: packet sequence ids (n,).
    values: at least 0, rounded to integers and limited to 2^62.
    """
    if not len(since):
        return b""
    rows = Rows(len(since))
    with rows.message(PACKET):
        _head(rows, since, sequence)
        with rows.message(_EVENT):
            rows.const(_COUNTER)
            rows.varint(_VALUE, np.rint(np.minimum(values, _MOST)).astype(np.uint64))
    return rows.finish()
