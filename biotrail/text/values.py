# SPDX-License-Identifier: Apache-2.0
"""Types of options that are no quantities of `units`: text, names and shares.

An argument may hold any bytes. Python decodes those that are no UTF-8 to lone surrogates, which no
text has and nothing can encode but os.fsencode. Names of files, processes and cgroups are bytes,
and are taken as they are; all else is text.
"""

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # generic in click 8.2 and later only
    _StrType = click.ParamType[str]
    _FloatType = click.ParamType[float]
else:
    _StrType = _FloatType = click.ParamType

MOST_PER_CENT = 1e7
"""Of a core: that of 100,000 cores."""


class Text(_StrType):
    """Option type: text, which is UTF-8."""

    name = "text"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        text = str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{value!r} is not UTF-8", param, ctx)
        return text


class Name(_StrType):
    """Option type: the name of a file, process, cgroup or device, of any bytes but none."""

    name = "name"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        if not value:
            self.fail("must not be empty", param, ctx)
        return str(value)


class FileName(click.Path):
    """Option type: a file or directory, which need not exist; an empty name is a usage error."""

    def convert(
        self,
        value: "str | os.PathLike[str]",
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> "str | bytes | os.PathLike[str]":
        if not os.fspath(value):
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


def as_read(name: str) -> str:
    """Return a Name as it looks in a log, where U+FFFD is in place of bytes that are no UTF-8."""
    return os.fsencode(name).decode("utf-8", "replace")


class Percent(_FloatType):
    """Option type: a percentage, `5` or `2.5%`, as a float."""

    name = "percent"

    def __init__(self, least: float = 0.0, most: float = MOST_PER_CENT) -> None:
        self.least, self.most = least, most

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            found = float(str(value).removesuffix("%"))
        except ValueError:
            self.fail(f"{value!r} is not a percentage: write 5 or 2.5%", param, ctx)
        if not self.least <= found <= self.most:  # nor nan, which is not less or more
            self.fail(f"{value!r} is not between {self.least:g} and {self.most:g}", param, ctx)
        return found


LEAST_PER_CENT = 1e-6
"""`Percent(LEAST_PER_CENT)`: any but 0."""
