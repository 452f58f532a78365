# SPDX-License-Identifier: Apache-2.0
"""Print all output of the command: lines escaped by the rule of docs/names.md, and JSON.

Imports only what recording needs. `click.echo` and `print` are used nowhere else.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import click

from biotrail.recorder.schema.strings import guarded, harmless, shown

_CLEAR = "\x1b[K"
"""ECMA-48: erase to the end of the line."""


class Styled(str):
    """A line with terminal colours of our own; all else in it is escaped already."""


def styled(line: str, **style: Any) -> Styled:
    return Styled(click.style(shown(line), **style))


def say(line: str = "", *, err: bool = False) -> None:
    """Print one line, escaped unless it is Styled; a line feed in it is escaped, too."""
    click.echo(line if isinstance(line, Styled) else shown(line), err=err)


def tell(message: str) -> None:
    """Print `biotrail: MESSAGE` to standard error."""
    with suppress(OSError):  # of a terminal that was closed: the log must still be completed
        say(f"biotrail: {message}", err=True)


def say_all(lines: Iterable[str], *, err: bool = False) -> None:
    for line in lines:
        say(line, err=err)


def relay(text: str, *, err: bool = False) -> None:
    """Print lines that another biotrail process has escaped: nothing is escaped twice."""
    click.echo(harmless(text), err=err)


def say_json(value: Any, indent: int | None = None) -> None:
    click.echo(as_json(value, indent))


def as_json(value: Any, indent: int | None = None) -> str:
    r"""Return JSON in ASCII: `\uHHHH` for all other characters, so none acts on a terminal."""
    return json.dumps(value, indent=indent)


class StatusLine:
    """A line on a terminal that says what is done, cleared before anything else is printed."""

    def __init__(self, *, draws: bool | None = None) -> None:
        self._draws = sys.stderr.isatty() if draws is None else draws
        self._drawn = False

    def show(self, text: str) -> None:
        """Show `text`, cut to the terminal's width, in place of the text shown before."""
        if self._draws:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r{shown(text)[:width]}{_CLEAR}")
            self._drawn = True

    def clear(self) -> None:
        if self._drawn:
            self._write(f"\r{_CLEAR}")
            self._drawn = False

    @staticmethod
    def _write(text: str) -> None:
        with suppress(OSError):  # as in `tell`
            sys.stderr.write(text)
            sys.stderr.flush()


guard_option: Callable[[Any], Any] = click.option(
    "--guard/--no-guard",
    default=True,
    help="In CSV, put an apostrophe before text that a spreadsheet would take for a formula "
    "(= + - @). Default: --guard.",
)


def cells(guard: bool, terminal: bool) -> Callable[[str], str]:
    """Return what makes CSV cells. guard: an apostrophe before what may be taken for a formula."""

    def cell(text: str) -> str:
        text = shown(text) if terminal else text
        return guarded(text) if guard else text

    return cell
