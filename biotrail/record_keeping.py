# SPDX-License-Identifier: Apache-2.0
"""`record`'s options for when to stop and what to keep. Imports only what recording needs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from biotrail import units
from recorder.sinks import Limit

if TYPE_CHECKING:  # generic in click 8.2 and later only
    _AmountType = click.ParamType["int | float"]
else:
    _AmountType = click.ParamType

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Amount(_AmountType):
    """`1G`, `512MiB`: bytes as an int; `10min`, `30s`: seconds as a float."""

    name = "amount"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float:
        """A usage error for anything else, and for a number without a unit."""
        if isinstance(value, (int, float)):
            return value
        text = str(value)
        unit = text.lstrip("0123456789. ")
        if unit[:1] in ("K", "M", "G", "k", "B"):
            amount: int | float = units.Size().convert(text, param, ctx)
        elif unit:
            amount = units.Duration().convert(text, param, ctx)
        else:
            self.fail(f"{text!r} has no unit: write 512M, 1G, 30s or 10min", param, ctx)
        if amount <= 0:
            self.fail(f"{text!r} must be more than 0", param, ctx)
        return amount


def limit(amounts: Sequence[int | float]) -> Limit | None:
    """Sizes and times as one limit; None where there are none."""
    if not amounts:
        return None
    sizes = [a for a in amounts if isinstance(a, int)]
    times = [a for a in amounts if isinstance(a, float)]
    return Limit(min(sizes, default=None), min(times, default=None))


_OPTIONS = (
    click.option(
        "--max-events",
        type=click.IntRange(min=1),
        metavar="N",
        help="Stop when about N events were recorded.",
    ),
    click.option(
        "--max-size",
        type=units.Size(),
        metavar="SIZE",
        help="Stop when the log has about this size, e.g. 1G.",
    ),
    click.option(
        "--rotate",
        type=Amount(),
        multiple=True,
        metavar="SIZE|TIME",
        help="Begin a new file at this size or age, e.g. 1G or 10min; give both for whichever "
        "comes first. Each file reads alone.",
    ),
    click.option(
        "--max-files",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --rotate: delete the oldest file of this run beyond N.",
    ),
)


def options(command: _Command) -> _Command:
    """Decorate a command with them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def several_files(given: dict[str, Any]) -> bool:
    """Whether these options make more than one file."""
    return bool(given["rotate"])


def chosen(given: dict[str, Any], output: str | None) -> dict[str, Any]:
    """RecordOptions' fields from what click gave. Raises UsageError where they do not fit."""
    if given["max_size"] is not None and given["max_size"] <= 0:
        raise click.BadParameter("must be more than 0", param_hint="--max-size")
    if given["max_files"] is not None and not given["rotate"]:
        raise click.UsageError("--max-files needs --rotate")
    if several_files(given) and output is None:
        raise click.UsageError("-o - takes one log: give -o FILE, which the files are named after")
    return {
        "max_events": given["max_events"],
        "max_bytes": given["max_size"],
        "rotate": limit(given["rotate"]),
        "max_files": given["max_files"],
    }
