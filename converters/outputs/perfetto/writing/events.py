# SPDX-License-Identifier: Apache-2.0
"""Encode slices and samples as track event packets, block by block, by numpy, through `Rows`.

A slice is one row of a block: its BEGIN with name and arguments, BEGIN and END of each stage, its
END.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U8, U64, Bool
from biotrail.converters.outputs.perfetto.names import ARROW, CATEGORY_IIDS, STAGE
from biotrail.converters.outputs.perfetto.packets.columns import Flows, Slices, StageColumns
from biotrail.converters.outputs.perfetto.packets.encode import Rows, tag
from biotrail.converters.outputs.perfetto.tracks.lanes import FOREVER

BLOCK = 8192
"""Slices encoded at once: the matrices stay in the processor's caches."""
_STAGE_CELLS = 8 * BLOCK
"""Most (slices x stages) and (slices x flows) of a block, which bounds its matrix where one slice
has very many."""

PACKET = tag(1, 2)
_TIMESTAMP, _SEQUENCE = tag(8, 0), tag(10, 0)
_EVENT = tag(11, 2)
_CATEGORY, _NAME, _TYPE, _FAMILY = tag(3, 0), tag(10, 0), tag(9, 0), tag(52, 0)
_CALLSTACK = tag(56, 0)
_FLOW = tag(47, 1)
_STAGE, _ARROW = (_CATEGORY + bytes([CATEGORY_IIDS[one]]) for one in (STAGE, ARROW))
_BEGIN, _END, _COUNTER = _TYPE + b"\x01", _TYPE + b"\x02", _TYPE + b"\x04"
_VALUE = tag(30, 0)
_MOST = float(1 << 62)
"""The largest sample that is written, which a damaged log may exceed."""


@dataclass
class Placed:
    """Slices in the order of their packets, with their sequences and the times before them."""

    slices: Slices
    rows: I64
    """Per ordered row: index of its slice."""
    sequence: U64
    """Per ordered row: packet sequence id."""
    before: I64
    """Per ordered row: time of the packet before it on the same sequence, ns."""

    def __len__(self) -> int:
        return len(self.rows)


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


def encode_slices(placed: Placed) -> "list[bytes]":
    """Return the packets of all slices in the order of `placed`, a bytes object per block.

    A block is at most BLOCK slices, which are encoded at once.
    """
    slices = placed.slices
    dense = [column.dense(len(slices)) for column in slices.columns]
    placed = replace(placed, slices=replace(slices, columns=dense))
    return [
        data
        for at in range(0, len(placed), BLOCK)
        for data in _encode_part(placed, at, min(at + BLOCK, len(placed)))
    ]


def _encode_part(placed: Placed, begin: int, end: int) -> list[bytes]:
    """Return the packets of rows `begin` to `end` (exclusive), a bytes object per block.

    The rows are one block, unless one has so many stages or flows that the block's matrix would be
    too large: then they are halved until they are not.
    """
    chosen = placed.rows[begin:end]
    stages, flows = placed.slices.stages, placed.slices.flows
    most = 0 if stages is None else int(stages.count[chosen].max(initial=0))
    most_flows = 0 if flows is None else int(flows.count[chosen].max(initial=0))
    if max(most, most_flows) * (end - begin) > _STAGE_CELLS and end - begin > 1:
        middle = (begin + end) // 2
        return _encode_part(placed, begin, middle) + _encode_part(placed, middle, end)
    return [_encode_block(placed, begin, end, most, most_flows)]


def _encode_block(placed: Placed, begin: int, end: int, most: int, most_flows: int) -> bytes:
    """Return the packets of rows `begin` to `end` (exclusive) of `placed`.

    most, most_flows: stages, and flows, of the slice with most. Each slice has a BEGIN with its
    arguments (also correlation id, call stack and flows), BEGIN and END of each stage, and an END
    unless it is open. Timestamps are ns after the packet before on the same sequence.
    """
    slices, chosen = placed.slices, placed.rows[begin:end]
    start, stop = slices.start[chosen], slices.end[chosen]
    rows = Rows(end - begin)
    sequence = placed.sequence[begin:end]
    with rows.message(PACKET):
        _head(rows, start - placed.before[begin:end], sequence)
        with rows.message(_EVENT):
            rows.const(_BEGIN + _CATEGORY + bytes([CATEGORY_IIDS[slices.category]]))
            rows.varint(_NAME, slices.name[chosen])
            if slices.family is not None:
                stacked = slices.in_family
                where = None if stacked is None else stacked[chosen]
                rows.varint(_FAMILY, slices.family[chosen], where)
            if slices.callstack is not None:
                stacks = slices.callstack[chosen]
                rows.varint(_CALLSTACK, stacks, stacks > 0)
            for column in slices.columns:
                where = None if column.where is None else column.where[chosen]
                rows.annotation(column.head, column.values[chosen], where)
            for slot in range(most_flows):
                _flow(rows, slices.flows, chosen, slot)
    last = start
    if slices.stages is not None:
        for slot in range(most):
            last = _stage(rows, slices.stages, chosen, slot, last, sequence)
    ends = stop != FOREVER
    with rows.message(PACKET, ends):
        _head(rows, np.where(ends, stop - last, 0), sequence, ends)
        rows.const(_EVENT + b"\x02" + _END, ends)
    return rows.finish()


def _flow(rows: Rows, flows: Flows | None, chosen: I64, slot: int) -> None:
    """Append the id of flow number `slot` to the rows whose slice has such a flow.

    chosen: per row (n,), index of its slice. slot: from 0.
    """
    if flows is not None:
        here = flows.count[chosen] > slot
        at = np.where(here, flows.first[chosen] + slot, 0)
        rows.fixed(_FLOW, _eight_bytes(flows.id[at]), here)


def _eight_bytes(values: U64) -> tuple[U8, ...]:
    """Return the values (n,) as eight columns of bytes, the lowest first."""
    data = np.ascontiguousarray(values, dtype="<u8").view(np.uint8).reshape(len(values), 8)
    return tuple(data[:, i] for i in range(8))


def _head(rows: Rows, since: I64, sequence: U64, where: Bool | None = None) -> None:
    """Append timestamp (`since`: ns after the packet before) and sequence id of a packet.

    Without the flag SEQ_NEEDS_INCREMENTAL_STATE, which only tells readers to skip a packet after a
    loss: no packet of a file is lost.
    """
    rows.varint(_TIMESTAMP, since.view(np.uint64), where)
    rows.varint(_SEQUENCE, sequence, where)


def _stage(
    rows: Rows, stages: StageColumns, chosen: I64, slot: int, last: I64, sequence: U64
) -> I64:
    """Append BEGIN and END packets of stage number `slot` to the rows whose slice has such a stage.

    chosen: per row (n,), index of its slice, by which `stages` says first stage and count. slot:
    from 0. last: per row (n,), the time of its last packet, ns. sequence: the rows' sequence ids
    (n,). Returns `last` as it is after the stage. The begin of a stage that overlaps the
    one before is moved to that one's end.
    """
    here = stages.count[chosen] > slot
    at = np.where(here, stages.first[chosen] + slot, 0)
    start = np.where(here, np.maximum(stages.start[at], last), last)
    end = np.where(here, np.maximum(stages.end[at], start), last)
    with rows.message(PACKET, here):
        _head(rows, start - last, sequence, here)
        with rows.message(_EVENT, here):
            if stages.flow is None:
                rows.const(_BEGIN + _STAGE, here)
            else:  # What has a flow and no length is a mark, from which an arrow leads on.
                mark = here & (stages.flow[at] > 0) & (end == start)
                rows.const(_BEGIN + _STAGE, here & ~mark)
                rows.const(_BEGIN + _ARROW, mark)
            rows.varint(_NAME, stages.name[at].astype(np.uint64), here)
            if stages.flow is not None:
                rows.fixed(_FLOW, _eight_bytes(stages.flow[at]), here & (stages.flow[at] > 0))
    with rows.message(PACKET, here):
        _head(rows, end - start, sequence, here)
        rows.const(_EVENT + b"\x02" + _END, here)
    return end


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
