# SPDX-License-Identifier: Apache-2.0
"""Encode slices as packets: by compiled loops, or by numpy where they are not compiled.

Both write the same bytes, slices in their order, each on the packet sequence of its lane.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U64
from biotrail.converters.outputs.perfetto.names import ARROW, CATEGORY_IIDS, STAGE
from biotrail.converters.outputs.perfetto.packets.columns import Slices
from biotrail.converters.outputs.perfetto.writing.events import Placed, encode_slices, last_packet

try:
    from biotrail.converters.outputs.perfetto.writing import packet_loops as _packet_loops
except ImportError:  # not compiled, and no Cython to run it uncompiled
    loops: ModuleType | None = None
else:
    loops = _packet_loops if _packet_loops.COMPILED else None

BLOCK = 1 << 15
"""Most slices whose packets are in memory at once."""
_SLICE, _ARGUMENT, _FLOW, _STAGE = 100, 16, 10, 72
"""Most bytes of a slice's own packets, and of each of its arguments, flows and stages."""
_TAG = 4
"""Where the tag of an argument's value begins in `Column.head`."""


def encode(slices: Slices, stream: I64, sequences: U64, last: I64) -> Iterator[bytes | memoryview]:
    """Yield the packets of all slices in their order, some thousand slices at a time.

    stream: per slice (n,), index of its lane in `sequences`, the packet sequence ids, and in
    `last`, the time of the lane's last packet, ns. Slices of one lane are in the order of their
    starts. `last` has been brought up to date when all is yielded.
    """
    if loops is None:
        yield from _by_numpy(slices, stream, sequences, last)
    else:
        yield from by_loops(loops, slices, stream, sequences, last)


def _by_numpy(slices: Slices, stream: I64, sequences: U64, last: I64) -> Iterator[bytes]:
    """Do as `encode`."""
    order = np.argsort(stream, kind="stable")
    ordered, ends = stream[order], last_packet(slices)[order]
    change = np.flatnonzero(np.diff(ordered, prepend=-1))
    before = np.empty(len(slices), dtype=np.int64)
    before[order[1:]] = ends[:-1]
    before[order[change]] = last[ordered[change]]
    last[ordered[change]] = ends[np.append(change[1:], len(ordered)) - 1]
    rows = np.arange(len(slices))
    yield from encode_slices(Placed(slices, rows, sequences[stream], before))


def by_loops(
    module: ModuleType, slices: Slices, stream: I64, sequences: U64, last: I64
) -> Iterator[memoryview]:
    """Do as `encode`. module: packet_loops, compiled or not."""
    stages, flows = slices.stages, slices.flows
    ends, arguments, values = arguments_of(module, slices)
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
        used = module.encode(begin, stop, categories, *columns, out)
        yield out.data[:used]


def _column(values: NDArray[Any] | None, dtype: Any) -> NDArray[Any]:
    """Return the values as the loops take them; None: an empty array."""
    return np.zeros(0, dtype) if values is None else np.ascontiguousarray(values, dtype)


def arguments_of(module: ModuleType, slices: Slices) -> tuple[I64, I64, U64]:
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
        argument = column.iid | column.head[_TAG] << 8
        rows = every if isinstance(here, slice) else here
        numbers = np.ascontiguousarray(given, np.uint64)
        module.place_arguments(rows, numbers, argument, cursor, arguments, values)
    return ends, arguments, values
