# SPDX-License-Identifier: Apache-2.0
"""A command's options as one dataclass: each field is an option, or a group of options."""

import functools
from collections.abc import Callable, Collection
from dataclasses import MISSING, field, fields
from enum import StrEnum
from typing import Any

import click

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]
_OPTION = "option"


def option(*words: str, usual: Any = None, **attributes: Any) -> Any:
    """Return a dataclass field that is an option, by click.option's words and attributes.

    usual: the field's default where that is not the option's.
    """
    decorator_of = lambda name: click.option(*words, name, **attributes)  # noqa: E731
    if usual is None:
        usual = attributes.get("default", () if attributes.get("multiple") else None)
    return field(default=usual, metadata={_OPTION: decorator_of}, kw_only=True)


def member(name: str, usual: StrEnum, text: str) -> Any:
    """Return a dataclass field that is a member of an enum: its option, the usual one, its help."""
    kind = type(usual)
    return option(
        name,
        usual=usual,
        type=click.Choice([str(one) for one in kind]),
        default=str(usual),
        show_default=True,
        callback=lambda _context, _option, value: kind(value),
        help=text,
    )


def flag(*words: str) -> Any:
    """Return a dataclass field that is True if its option is given: its names, and its help."""
    *names, text = words
    return option(*names, usual=False, is_flag=True, help=text)


def added(decorator: Decorator, usual: Any = MISSING) -> Any:
    """Return a dataclass field whose value comes from `decorator`; usual: as for `option`."""
    return field(default=usual, metadata={_OPTION: lambda _name: decorator}, kw_only=True)


def gathered(kind: type[Any], name: str, *, without: Collection[str] = ()) -> Decorator:
    """Add the options of `kind`, but `without`, to a command, which gets a `kind` as `name`."""
    decorators = {
        one.name: one.metadata[_OPTION](one.name) for one in fields(kind) if one.name not in without
    }
    return made_of(
        name, lambda values: kind(**values), decorators.__contains__, *decorators.values()
    )


def made_of(
    name: str,
    make: Callable[[dict[str, Any]], Any],
    is_taken: Callable[[str], bool],
    *options: Decorator,
) -> Decorator:
    """Add options to a command, which gets as `name` what `make` makes of the taken values."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def called(*arguments: Any, **given: Any) -> Any:
            values = {one: given.pop(one) for one in list(given) if is_taken(one)}
            return command(*arguments, **{name: make(values)}, **given)

        found: Command = called
        for one in reversed(options):  # click has the last one first in the help
            found = one(found)
        return found

    return decorate
