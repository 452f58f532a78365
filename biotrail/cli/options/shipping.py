# SPDX-License-Identifier: Apache-2.0
"""Options of `biotrail archive` that ship the logs of a directory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from biotrail.text import values

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--watch",
        "directory",
        metavar="DIR",
        type=click.Path(file_okay=False),
        help="Ship the finished logs in DIR, and those that become finished. Needs --to.",
    ),
    click.option(
        "--to",
        type=values.Name(),
        metavar="DESTINATION",
        help="Where --watch ships to: a directory, or a URL (s3://BUCKET/FOLDER, gs://, abfs://).",
    ),
    click.option("--once", is_flag=True, help="With --watch: ship what is finished, and end."),
    click.option(
        "--keep-logs", is_flag=True, help="With --watch: delete no log after it was shipped."
    ),
    click.option(
        "--take-damaged",
        is_flag=True,
        help="With --watch: delete damaged logs, too, when what can be read of them was shipped. "
        "Default: keep them.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="With --watch: print only what goes wrong."),
)


@dataclass(frozen=True)
class Shipping:
    """What to ship. directory: of the logs; to: a directory or URL; level: zstd's."""

    directory: str
    to: str
    level: int
    once: bool
    keep_logs: bool
    take_damaged: bool
    quiet: bool


def shipping_options(function: Function) -> Function:
    """Add the options to a command, which gets them by the names that `asked_shipping` takes."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def asked_shipping(
    logs: tuple[str, ...],
    target: str | None,
    tables: str | None,
    level: int,
    force: bool,
    *,
    directory: str | None,
    to: str | None,
    **flags: bool,
) -> Shipping | None:
    """Return what to ship; None: `archive` was given logs. flags: the last four of Shipping.

    Raises click.UsageError: neither, both, or options that do not go together.
    """
    if directory is None:
        if to is not None or any(flags.values()):
            raise click.UsageError("--to, --once, --keep-logs, --take-damaged, -q need --watch DIR")
        if not logs:
            raise click.UsageError("give LOGs, or --watch DIR --to DESTINATION")
        return None
    if to is None:
        raise click.UsageError("--watch needs --to DESTINATION: a directory or a URL")
    if logs or target is not None or tables is not None or force:
        raise click.UsageError("--watch takes no LOG, -o, --tables or -f: it names archives itself")
    return Shipping(directory, to, level, **flags)
