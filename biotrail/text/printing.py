# SPDX-License-Identifier: Apache-2.0
"""Print all output of the command: lines escaped by the rule of docs/names.md, and JSON.

Imports only what recording needs. `click.echo` and `print` are used nowhere else.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

import click

from biotrail.recorder.schema.strings import guarded, harmless, shown


class Styled(str):
    """A line with terminal colours of our own; all else in it is escaped already."""


def styled(line: str, **style: Any) -> Styled:
    """Return the line, escaped, in the style of `click.style`."""
    return Styled(click.style(shown(line), **style))


def say(line: str = "", *, err: bool = False) -> None:
    """Print one line, escaped unless it is Styled; a line feed in it is escaped, too.

    err: print to standard error.
    """
    click.echo(line if isinstance(line, Styled) else shown(line), err=err)


def say_all(lines: Iterable[str], *, err: bool = False) -> None:
    """Print the lines, each as `say` does."""
    for line in lines:
        say(line, err=err)


def relay(text: str, *, err: bool = False) -> None:
    """Print lines that another biotrail process has escaped.

    Unprintable characters other than line feeds are escaped; nothing is escaped twice.
    """
    click.echo(harmless(text), err=err)


def say_json(value: Any, indent: int | None = None) -> None:
    """Print a value as JSON."""
    click.echo(as_json(value, indent))


def as_json(value: Any, indent: int | None = None) -> str:
    r"""Return JSON in ASCII: `\uHHHH` for all other characters, so none acts on a terminal."""
    return json.dumps(value, indent=indent)


guard_option: Callable[[Any], Any] = click.option(
    "--guard/--no-guard",
    default=True,
    help="In CSV, put an apostrophe before text that a spreadsheet would take for a formula "
    "(= + - @). Default: --guard.",
)
"""The option `--guard`: the command gets `guard`."""


def cells(guard: bool, terminal: bool) -> Callable[[str], str]:
    """Return a function that turns a text into a CSV cell.

    guard: put an apostrophe before what a spreadsheet would take for a formula. terminal: escape
    the text, as for a person.
    """

    def cell(text: str) -> str:
        text = shown(text) if terminal else text
        return guarded(text) if guard else text

    return cell
