# SPDX-License-Identifier: Apache-2.0
"""Tables for people: as wide as the terminal, with the least important columns left out first."""

import errno
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from biotrail.recorder.schema.strings import shown
from biotrail.text.rows import left_out

PIPE_WIDTH = 160
"""Characters of a line where output is no terminal."""
_GAP = 3
"""Characters between columns: a space at each side, and one where others draw a line."""


@dataclass(frozen=True)
class Column:
    """A column. rank: columns of a higher rank are left out first if there is no room; 0: never."""

    head: str
    rank: int = 0
    left: bool = False


def columns_of(text: str) -> list[Column]:
    """Return the columns of `device < | count @1 | share`: `<` is left, `@1` the rank."""
    found = []
    for one in text.split("|"):
        head, _, rank = one.strip().partition("@")
        left = head.rstrip().endswith("<")
        found.append(Column(head.strip().removesuffix("<").strip(), int(rank or 0), left))
    return found


class Screen(Console):
    """A console whose `str` argument is one line, escaped by `shown`."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(shown(text), **how)

    def on_broken_pipe(self) -> None:
        """Raise it on: rich would exit with status 1, unlike what prints without it."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def block(lines: Iterable[str]) -> Text:
    return Text("\n".join(map(shown, lines)))


def console() -> Screen:
    """Return a console on standard output: plain text of PIPE_WIDTH where that is no terminal."""
    known = "COLUMNS" in os.environ
    terminal = os.isatty(1)
    width = shutil.get_terminal_size().columns if terminal or known else PIPE_WIDTH
    return Screen(width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)


def table(
    title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> Table:
    """Return a table of at most `width` characters, if the columns of rank 0 are not wider."""
    rows = [[shown(cell) for cell in row] for row in rows]
    widths = [
        max(len(column.head), *(len(row[place]) for row in rows), 1) if rows else len(column.head)
        for place, column in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    while sum(widths[place] + _GAP for place in kept) - _GAP > width:
        last = max(kept, key=lambda place: (columns[place].rank, place))
        if not columns[last].rank:
            break
        kept.remove(last)
    made = Table(
        title=Text(shown(title), style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        show_edge=False,
    )
    for place in kept:
        column = columns[place]
        made.add_column(
            Text(column.head),
            justify="left" if column.left else "right",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in rows:
        made.add_row(*(Text(row[place]) for place in kept))
    return made


def with_more(made: Table, more: int, what: str = "row") -> RenderableType:
    return with_lines(made, [left_out(more, what)] if more else [])


def with_lines(made: Table, lines: Sequence[str]) -> RenderableType:
    return Group(made, block(lines)) if lines else made


def without_repeats(rows: Sequence[Sequence[str]], leading: int) -> list[list[str]]:
    """Return the rows with leading cells blank where they and those before repeat the row above."""
    made: list[list[str]] = []
    above: list[str] = []
    for row in rows:
        cells = list(row)
        for place in range(leading):
            if above[:1] and above[: place + 1] == list(row[: place + 1]):
                cells[place] = ""
        above = list(row)
        made.append(cells)
    return made
