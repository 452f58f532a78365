# SPDX-License-Identifier: Apache-2.0
"""The table of functions and tracepoints that followed objects passed, by their time."""

from collections.abc import Sequence

from rich.console import RenderableType

from biotrail.converters.analysis.lives.functions import Functions
from biotrail.converters.analysis.lives.merged import Calls
from biotrail.converters.sites.trees import NodeKind
from biotrail.text import units
from biotrail.text.columns import Column, table, with_more
from biotrail.text.rows import first

_COLUMNS: tuple[Column, ...] = (
    Column("function", left=True),
    Column("calls"),
    Column("lives"),
    Column("total"),
    Column("share", rank=1),
    Column("median"),
    Column("p99"),
    Column("max", rank=2),
    Column("self", rank=1),
    Column("no return", rank=3),
)
_OF_TRACEPOINTS = 8
"""Columns that tracepoints have; where a log has these alone, the others are left out."""


def functions_table(functions: Functions, limit: int, width: int) -> RenderableType:
    """Return the functions with the most time as a table. limit: number of rows, 0: all."""
    rows, more = first(functions.rows(), limit)
    if functions.has_functions:
        title, columns = "Functions by time", _COLUMNS
    else:
        title, columns = "Tracepoints by the time after them", _COLUMNS[:_OF_TRACEPOINTS]
    cells = [_cells(row, functions)[: len(columns)] for row in rows]
    return with_more(table(title, columns, cells, width), more)


def _cells(row: Calls, functions: Functions) -> Sequence[str]:
    name = f"{row.name} [{row.module}]" if row.module else row.name
    if row.kind != NodeKind.FUNCTION:
        name = f"· {name}" if row.kind == NodeKind.EVENT else f"{name} returned, no entry"
    cells = [name, units.count(row.calls), units.count(row.lives)]
    if not row.took.of.count:
        return [*cells, *("" for _ in range(6)), _count(row.unfinished)]
    share = f"{100 * row.took.total / functions.time:.1f} %" if functions.time else ""
    own = units.duration(row.own.total) if row.own.of.count else ""
    shown = (row.took.percentile(0.5), row.took.percentile(0.99), row.took.of.max)
    times = [units.duration(row.took.total), share, *map(units.duration, shown)]
    return [*cells, *times, own, _count(row.unfinished)]


def _count(number: int) -> str:
    return units.count(number) if number else ""
