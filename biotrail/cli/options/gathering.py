# SPDX-License-Identifier: Apache-2.0
"""A command's options as one dataclass: each field is an option, or a group of options."""

import functools
from collections.abc import Callable, Collection
from dataclasses import MISSING, field, fields
from typing import Any

import click

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]
_OPTION = "option"


def option(*words: str, usual: Any = None, **attributes: Any) -> Any:
    """Return a dataclass field that is an option of the command line.

    words, attributes: of click.option; the option's value has the field's name. usual: the
    field's default where that is not the option's.
    """
    decorator_of = lambda name: click.option(*words, name, **attributes)  # noqa: E731
    if usual is None:
        plain = False if attributes.get("is_flag") else () if attributes.get("multiple") else None
        usual = attributes.get("default", plain)
    return field(default=usual, metadata={_OPTION: decorator_of}, kw_only=True)


def added(decorator: Decorator, usual: Any = MISSING) -> Any:
    """Return a dataclass field whose value comes from `decorator`; usual: as for `option`."""
    return field(default=usual, metadata={_OPTION: lambda _name: decorator}, kw_only=True)


def gathered(kind: type[Any], name: str, *, without: Collection[str] = ()) -> Decorator:
    """Return a decorator that adds the options in the fields of `kind` to a command.

    The command gets them as its argument `name`, a `kind`. without: fields that are no options of
    this command, and have their defaults.
    """
    decorators = {
        one.name: one.metadata[_OPTION](one.name) for one in fields(kind) if one.name not in without
    }

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def called(*arguments: Any, **given: Any) -> Any:
            values = {field: given.pop(field) for field in decorators}
            return command(*arguments, **{name: kind(**values)}, **given)

        return with_options(*decorators.values())(called)

    return decorate


def with_options(*options: Decorator) -> Decorator:
    def decorate(command: Command) -> Command:
        for one in reversed(options):
            command = one(command)
        return command

    return decorate
