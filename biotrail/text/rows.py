# SPDX-License-Identifier: Apache-2.0
"""Options for the rows of a table: how many, in which order; and a line on the rest.

Every command that prints a table of groups takes the same two options (docs/report.md).
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import click

from biotrail.text import units

Row = TypeVar("Row")
Option = Callable[[Any], Any]


class Order(StrEnum):
    """What rows are sorted by, the largest first."""

    COUNT = "count"
    BYTES = "bytes"
    MEAN = "mean"
    """Mean time from queue to completion; P99 and TOTAL are of the same times."""
    P99 = "p99"
    TOTAL = "total"


def limit_option(default: str, *former: str, most: int | None = None) -> Option:
    """Return the option `-n`, `--limit`. default: as the help says it; former: hidden names."""
    kind = units.Count(0, units.MOST if most is None else most)
    every = "all" if most is None else f"all, {most:,} at most"
    shown = click.option(
        "-n",
        "--limit",
        "limit",
        type=kind,
        metavar="N",
        help=f"Show this many rows; 0: {every}.  [default: {default}]",
    )
    if not former:
        return shown
    unseen = click.option(*former, "limit", type=kind, hidden=True)
    return lambda command: shown(unseen(command))


def sort_option(default: str, orders: Sequence[Order] = tuple(Order)) -> Option:
    """Return the option `--sort`: the command gets `order`. default: as the help says it."""
    return click.option(
        "--sort",
        "order",
        type=click.Choice([str(order) for order in orders]),
        callback=lambda _context, _option, value: value and Order(value),
        help=f"Sort rows by this, the largest first.  [default: {default}]",
    )


def first(rows: Sequence[Row], limit: int) -> tuple[list[Row], int]:
    """Return the first `limit` rows (0: all), and how many rows that leaves out."""
    shown = list(rows[:limit]) if limit else list(rows)
    return shown, len(rows) - len(shown)


def left_out(number: int, what: str = "row", which: str = "") -> str:
    """Return a line on rows that are not shown: `1 more stack with 3 bios: --limit 0 shows all`."""
    rows = f"more {what if number == 1 else what + 's'}" + (f" {which}" if which else "")
    return f"{units.count(number)} {rows}: --limit 0 shows all"
