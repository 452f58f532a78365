# SPDX-License-Identifier: Apache-2.0
"""The option of commands that blame beside what else they tell."""

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


class WithBlame(click.Command):
    """A command with arguments: --blame takes what it is by after = alone, never the next word."""

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            end = args.index("--") if "--" in args else len(args)
            given = [f"--blame={OWNER}" if one == "--blame" else one for one in args[:end]]
            return parse([*given, *args[end:]])

        parser.parse_args = parse_args  # type: ignore[method-assign]
        return parser
