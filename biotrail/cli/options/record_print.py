# SPDX-License-Identifier: Apache-2.0
"""The options of `record --print`. Imports only what recording needs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from biotrail.recorder.filters.filters import Filters

_Command = TypeVar("_Command", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--print",
        "print_ios",
        is_flag=True,
        help="Print a line for each I/O that ends, as biosnoop does. No log is kept unless -o is "
        "given. See docs/print.md.",
    ),
    click.option(
        "--json", "as_json", is_flag=True, help="With --print: print a JSON object per line."
    ),
)
_ONE_LOG = ("rotate", "keep", "max_files", "triggers")
"""Options that make several files; the printer follows one."""
_OURS = frozenset({"print_ios", "as_json", "output", "force", "quiet"})
_RAW = "biotrail.cli.record.arguments"


@dataclass(frozen=True)
class Printing:
    """How `record --print` prints, and what it records."""

    what: str
    """A sentence for the user: which devices are recorded, and until when."""
    target: str | None
    """Path of the log that is kept; None: no log is kept."""
    force: bool
    as_json: bool
    quiet: bool
    filters: Filters
    arguments: Sequence[str]
    """Options for the recorder process, as `given` returns them."""
    command: Sequence[str]


class RecordCommand(click.Command):
    """A command that stores its unparsed arguments in the context's `meta`, for `given`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the arguments and parse them as click does."""
        ctx.meta[_RAW] = list(args)
        return super().parse_args(ctx, args)


def options(command: _Command) -> _Command:
    """Add --print and --json to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check(print_ios: bool, as_json: bool, output: str | None, keeping: Mapping[str, Any]) -> None:
    """Raise click.UsageError if --print or --json contradicts other options.

    output: the value of -o; keeping: the values of record_keeping's options.
    """
    if as_json and not print_ios:
        raise click.UsageError("--json needs --print: give both")
    if print_ios and output == "-":
        raise click.UsageError("--print and -o - both write to standard output: give -o FILE")
    if print_ios and any(keeping[name] for name in _ONE_LOG):
        raise click.UsageError("--print follows one log: leave out --rotate and --keep")


def given(ctx: click.Context) -> list[str]:
    """Return the options that `record` was given (`--name=value`) for its recorder process.

    Leaves out the options that the printing process handles itself (_OURS).
    """
    parser = ctx.command.make_parser(ctx)
    values, _, _ = parser.parse_args(list(ctx.meta[_RAW]))
    found = []
    for option in ctx.command.get_params(ctx):
        if not isinstance(option, click.Option) or option.name in {*_OURS, None}:
            continue
        if (value := values.get(option.name)) is None:
            continue
        name = max(option.opts, key=len)
        if option.is_flag:
            found += [name] if value else []
            continue
        for one in value if option.multiple else [value]:
            # An option that was given without its value has click's mark in place of text.
            word = one if isinstance(one, str) else option.flag_value
            found.append(f"{name}={word}")
    return found
