# SPDX-License-Identifier: Apache-2.0
"""Gathering of a command's parameters into one dataclass."""

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any

Command = Callable[..., Any]


def gathered(kind: type[Any], name: str) -> Callable[[Command], Command]:
    """Return a decorator for a command that takes one dataclass in place of many parameters.

    kind: a dataclass. The parameters (from click) that have the names of its fields are passed to
    the command as one keyword argument `name`: a `kind` with their values; a field without a
    parameter has its default. All other arguments are passed on unchanged. Stands below every
    decorator that itself reads one of these parameters.
    """
    names = [one.name for one in fields(kind)]

    def decorate(command: Command) -> Command:
        """Return `command` with the fields of `kind` gathered; click's options of it are kept."""

        @functools.wraps(command)
        def called(*arguments: Any, **given: Any) -> Any:
            values = {field: given.pop(field) for field in names if field in given}
            return command(*arguments, **{name: kind(**values)}, **given)

        return called

    return decorate
