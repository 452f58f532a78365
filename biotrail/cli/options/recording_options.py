# SPDX-License-Identifier: Apache-2.0
"""Options that all commands have which record: record, top, metrics, pairs and follow."""

from collections.abc import Callable
from typing import Any

import click

from biotrail.text import units, values

force_option: Callable[[Any], Any] = click.option(
    "-f", "--force", is_flag=True, help="Replace FILE if it exists."
)
device_option: Callable[[Any], Any] = click.option(
    "-d",
    "--device",
    "devices",
    multiple=True,
    type=values.Name(),
    metavar="DEV",
    help="Only this device, named as for record. Can be repeated. Default: all devices.",
)
"""-d of commands that start a recorder or measure; record's own says how devices are named."""


def duration_option(*other_names: str) -> Callable[[Any], Any]:
    """Return the option --duration, of seconds or None, with other names that it has as well."""
    return click.option(
        "--duration",
        *other_names,
        "duration",
        type=units.Duration(units.ABOVE_ZERO),
        metavar="TIME",
        help="Stop after 10s, 5min, 2h, …",
    )
