# SPDX-License-Identifier: Apache-2.0
"""The option of commands that blame I/O which goes on."""

from collections.abc import Callable
from typing import Any

import click

from biotrail.converters.analysis.blame.parties import OWNER, WRITERS

_Command = Callable[..., Any]


def blame_option(what: str) -> Callable[[_Command], _Command]:
    """Return the option --blame: None, or one of WRITERS. what: the beginning of its help."""
    return click.option(
        "--blame",
        type=click.Choice(WRITERS),
        is_flag=False,
        flag_value=OWNER,
        metavar="[=BY]",
        help=f"{what}, by {OWNER} (the container, else the unit, else the cgroup, else the "
        f"process), or BY: {', '.join(one for one in WRITERS if one != OWNER)}.",
    )
