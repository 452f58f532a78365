# SPDX-License-Identifier: Apache-2.0
"""Types of options that are no quantities of `units`: text, names and shares.

An argument may hold any bytes. Python decodes those that are no UTF-8 to lone surrogates, which no
text has and nothing can encode but os.fsencode. Names of files, processes and cgroups are bytes,
and are taken as they are; all else is text.
"""

import os
from collections.abc import Callable

import click

MOST_PER_CENT = 1e7
"""Of a core: that of 100,000 cores."""


def text(value: str) -> str:
    """Option type: text, which is UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.BadParameter(f"{value!r} is not UTF-8") from None
    return value


def name(value: str) -> str:
    """Option type: the name of a file, process, cgroup or device, of any bytes but none."""
    if not value:
        raise click.BadParameter("must not be empty")
    return value


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
    """Return a `name` as it looks in a log, where U+FFFD is in place of bytes that are no UTF-8."""
    return os.fsencode(name).decode("utf-8", "replace")


def percent_from(least: float = 0.0, most: float = MOST_PER_CENT) -> Callable[[str | float], float]:
    """Return an option type: a percentage, `5` or `2.5%`."""

    def percent(value: str | float) -> float:
        try:
            found = float(str(value).removesuffix("%"))
        except ValueError:
            why = f"{value!r} is not a percentage: write 5 or 2.5%"
            raise click.BadParameter(why) from None
        if not least <= found <= most:  # nor nan, which is not less or more
            raise click.BadParameter(f"{value!r} is not between {least:g} and {most:g}")
        return found

    return percent


LEAST_PER_CENT = 1e-6
"""`percent_from(LEAST_PER_CENT)`: any but 0."""
