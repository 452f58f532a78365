# SPDX-License-Identifier: Apache-2.0
"""How many rows of a table are shown, in which order, and what is said of the rest.

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
    """I/Os."""
    BYTES = "bytes"
    MEAN = "mean"
    """Of the times from queue to completion, as the others."""
    P99 = "p99"
    TOTAL = "total"


def limit_option(default: str, *former: str, most: int | None = None) -> Option:
    """The option `-n`, `--limit`: the command gets `limit`, None where it was not given.

    default: what is shown then, as the help says it. former: names that the option had, which
    go on working unseen. most: more than that cannot be asked for.
    """
    kind = click.IntRange(0, most)
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
    """The option `--sort`: the command gets `order`, None where it was not given.

    default: what rows are sorted by then, as the help says it.
    """

    def read(_context: click.Context, _option: click.Parameter, value: str | None) -> Order | None:
        return None if value is None else Order(value)

    return click.option(
        "--sort",
        "order",
        type=click.Choice([str(order) for order in orders]),
        callback=read,
        help=f"Sort rows by this, the largest first.  [default: {default}]",
    )


def first(rows: Sequence[Row], limit: int) -> tuple[list[Row], int]:
    """Return the first `limit` rows (0: all), and how many that leaves out."""
    shown = list(rows[:limit]) if limit else list(rows)
    return shown, len(rows) - len(shown)


def left_out(number: int, what: str = "row", which: str = "") -> str:
    """`12 more rows: --limit 0 shows all`; `1 more stack with 3 bios: …`."""
    rows = f"more {what if number == 1 else what + 's'}" + (f" {which}" if which else "")
    return f"{units.count(number)} {rows}: --limit 0 shows all"
