# SPDX-License-Identifier: Apache-2.0
"""Tables of `biotrail top`, which show what there is room for."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType

from biotrail.converters.analysis.figures import Summary
from biotrail.text import units
from biotrail.text.columns import Column, table, with_more, without_repeats
from biotrail.text.rows import first

PLAIN_ROWS = 10
"""Rows of a table without a screen or a limit."""
TIMES = (
    Column("p50"),
    Column("p99"),
    Column("max", 2),
    Column("p50 1 min", 1),
    Column("p99 1 min", 1),
)


@dataclass(frozen=True)
class Table:
    """One table of a snapshot, with all its rows.

    repeats: number of leading cells that are blanked where they repeat the row above.
    """

    columns: Sequence[Column]
    rows: list[list[str]]
    repeats: int = 0
    most: int = PLAIN_ROWS
    """Rows shown where neither a terminal nor an option limits them."""

    def drawn(self, limit: int, width: int, screen: bool = False) -> RenderableType:
        """Return the first `limit` rows (0: all), and a line on how many more there are.

        screen: that line does not mention --limit, as a screen has no room for more.
        """
        shown, more = first(self.rows, limit)
        rows = without_repeats(shown, self.repeats) if self.repeats else shown
        made = table("", self.columns, rows, width)
        if screen and more:
            return Group(made, f"… {units.plural(more, 'more row')}")
        return with_more(made, more)


def times(now: Summary | None, minute: Summary | None) -> list[str]:
    """Return the cells of TIMES; `-` where there are no values."""
    found = []
    for values, shown in ((now, ("p50", "p99", "max")), (minute, ("p50", "p99"))):
        some = values is not None and values.count
        found += [units.duration(getattr(values, name)) if some else "-" for name in shown]
    return found
