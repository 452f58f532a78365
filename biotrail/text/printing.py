# SPDX-License-Identifier: Apache-2.0
"""What the command prints, all of it: lines for people by the rule of docs/names.md, and JSON.

Imports only what recording needs. `click.echo` and `print` are used nowhere else.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

import click

from biotrail.recorder.schema.strings import guarded, harmless, shown


class Styled(str):
    """A line with colours of our own, for a terminal; what else is in it is `shown` already."""


def styled(line: str, **style: Any) -> Styled:
    """Return the line, shown, in the style of `click.style`."""
    return Styled(click.style(shown(line), **style))


def say(line: str = "", *, err: bool = False) -> None:
    """Print one line; err: to standard error. A line feed within it is shown, not obeyed."""
    click.echo(line if isinstance(line, Styled) else shown(line), err=err)


def say_all(lines: Iterable[str], *, err: bool = False) -> None:
    """Print the lines."""
    for line in lines:
        say(line, err=err)


def relay(text: str, *, err: bool = False) -> None:
    """Print lines that another process of biotrail has said and so made safe already."""
    click.echo(harmless(text), err=err)


def say_json(value: Any, indent: int | None = None) -> None:
    """Print a JSON value."""
    click.echo(as_json(value, indent))


def as_json(value: Any, indent: int | None = None) -> str:
    r"""Return JSON in ASCII: every other character as `\uHHHH`, whatever the terminal obeys."""
    return json.dumps(value, indent=indent)


guard_option: Callable[[Any], Any] = click.option(
    "--guard/--no-guard",
    default=True,
    help="In CSV, put an apostrophe before text that a spreadsheet would take for a formula "
    "(= + - @). Default: --guard.",
)


def cells(guard: bool, terminal: bool) -> Callable[[str], str]:
    """Return what turns a text into a cell of CSV.

    guard: an apostrophe before what a spreadsheet would take for a formula. terminal: CSV that
    is printed for a person is escaped as other text is.
    """

    def cell(text: str) -> str:
        text = shown(text) if terminal else text
        return guarded(text) if guard else text

    return cell
