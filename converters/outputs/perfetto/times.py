# SPDX-License-Identifier: Apache-2.0
"""When bios and requests were first and last seen, and their stages within their slices."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.events.tables import (
    I64,
    NEVER,
    Bios,
    Bool,
    Requests,
    Stage,
    Stages,
)
from biotrail.converters.lifecycles.windows import first_seen, last_seen
from biotrail.converters.outputs.perfetto import loops
from biotrail.converters.outputs.perfetto.columns import Slices, StageColumns
from biotrail.converters.outputs.perfetto.lanes import FOREVER
from biotrail.converters.outputs.perfetto.names import STAGE_IIDS, stage_argument

_NAMES = np.array([STAGE_IIDS[stage] for stage in Stage], dtype=np.uint16)
"""Interned name of each stage."""


@dataclass
class Seen:
    """When a bio or request was first and last seen. Per row of its table; ns, NEVER: no time."""

    first: I64
    last: I64
    lost: Bool
    """Its end was not recorded, or (a bio) neither its Q nor its end."""
    over: Bool
    """It is known to have ended although no completion was recorded: it is lost, or was merged."""


def no_stages() -> Stages:
    """Return Stages without a row."""
    none = np.zeros(0, dtype=np.int64)
    return Stages(none, np.zeros(0, dtype=np.uint8), none, none)


def seen_of(table: Bios | Requests, stages: Stages) -> Seen:
    """Return when each row of `table` was first and last seen, by its own times and its stages'.

    table: rows (n,). stages: of these rows, or of none. A cut at which the row was in flight counts
    as one of its times. Both are NEVER for a row without any time. A row is `lost`, and `over`, if
    its end was not recorded (`Bios.gone`), or if it is a bio without a completion and with neither
    Q nor a cut (the begin of the chosen part of the log): then nothing says that it is still in
    flight. A request merged into another is not yet `over` here.
    """
    first, last = first_seen(table), np.maximum(last_seen(table), table.cut)
    if len(stages.owner):
        first = np.where(first == NEVER, FOREVER, first)
        _widen(table.number, stages, first, last)
        first = np.where(first == FOREVER, NEVER, first)
    lost = table.gone != NEVER
    if isinstance(table, Bios):
        lost |= (table.queue < 0) & (table.cut < 0) & (table.complete < 0)
    return Seen(first, last, lost, lost.copy())


def _widen(number: I64, stages: Stages, first: I64, last: I64) -> None:
    """Lower `first` and raise `last` (n,) to the starts and ends (ns) of the rows' stages."""
    rows = _ascending_rows(number, stages.owner)
    if rows is not None:
        loops.widen(rows, stages.start, stages.end, first, last)
        return
    rows = _rows_of(number, stages.owner)
    np.maximum.at(last, rows, stages.end)
    np.minimum.at(first, rows, stages.start)


def _ascending_rows(number: I64, owner: I64) -> I64 | None:
    """Return per owner (n,) its row in `number`, or -1; None: one of the two does not ascend."""
    rows = np.empty(len(owner), dtype=np.int64)
    columns = np.ascontiguousarray(number), np.ascontiguousarray(owner)
    return rows if loops.rows_of(*columns, rows) >= 0 else None


def _rows_of(number: I64, owner: I64) -> I64:
    """Return per owner (n,) its row in `number`, which has all owners; equal ones are adjacent."""
    change = np.flatnonzero(np.diff(owner, prepend=owner[0] - 1))
    order = np.argsort(number, kind="stable")
    rows = order[np.searchsorted(number[order], owner[change])]
    return np.repeat(rows, np.diff(np.append(change, len(owner))))


def add_stages(
    slices: Slices, stages: Stages, *, arguments: bool = True, told: Bool | None = None
) -> None:
    """Set `slices.stages` to the stages that take time; add a `…_ns` argument per kind of stage.

    stages: of the bios or requests of the slices; those of others are ignored. arguments: False
    adds no arguments; True adds, to the slices with such a stage, the total ns of all of them, also
    if that is 0. told: (n,) the slices that get such arguments; None: all. Stages are clipped to
    their slice before that. Without slices or stages nothing is done.
    """
    if not len(slices) or not len(stages.owner):
        return
    if not arguments:
        found = _ascending_rows(slices.number, stages.owner)
        if found is not None:
            slices.stages = _laid(slices, stages, found)
            return
    kept = np.isin(stages.owner, slices.number)
    table = stages if kept.all() else stages.take(kept)
    rows = _rows_of(slices.number, table.owner)
    start = np.maximum(table.start, slices.start[rows])
    end = np.minimum(np.maximum(table.end, start), slices.end[rows])
    for kind in np.flatnonzero(np.bincount(table.stage)).tolist() if arguments else ():
        here = table.stage == kind
        total = np.zeros(len(slices), dtype=np.int64)
        present = np.zeros(len(slices), dtype=np.bool_)
        np.add.at(total, rows[here], (end - start)[here])
        present[rows[here]] = True
        slices.uint(stage_argument(Stage(kind)), total, present if told is None else present & told)
    lasting = np.flatnonzero(end > start)
    order = lasting[np.argsort(rows[lasting], kind="stable")]
    count = np.bincount(rows[order], minlength=len(slices))
    slices.stages = StageColumns(
        count=count,
        name=_NAMES[table.stage[order]],
        start=start[order],
        end=end[order],
    )


def _laid(slices: Slices, stages: Stages, rows: I64) -> StageColumns:
    count = np.zeros(len(slices), dtype=np.int64)
    name = np.empty(len(rows), dtype=np.uint16)
    start, end = np.empty((2, len(rows)), dtype=np.int64)
    kinds = _NAMES[stages.stage]
    given = [rows, stages.start, stages.end, kinds, slices.start, slices.end]
    kept = loops.lay(*[*map(np.ascontiguousarray, given), count, name, start, end])
    return StageColumns(count, name[:kept], start[:kept], end[:kept])
