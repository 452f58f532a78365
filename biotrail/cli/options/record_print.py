# SPDX-License-Identifier: Apache-2.0
"""`record --print`: its options, and what it takes of the others. Imports what recording needs."""

import importlib
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
    """What is printed, and what is recorded for it."""

    what: str
    """For a person: devices, and until when."""
    target: str | None
    """The log that is kept; None: none."""
    force: bool
    as_json: bool
    quiet: bool
    filters: Filters
    arguments: Sequence[str]
    """record's options, as they were given."""
    command: Sequence[str]


class RecordCommand(click.Command):
    """Remembers its arguments as they were given, for the recorder that --print starts."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does."""
        ctx.meta[_RAW] = list(args)
        return super().parse_args(ctx, args)


def options(command: _Command) -> _Command:
    """Decorate a command with them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check(print_ios: bool, as_json: bool, output: str | None, keeping: Mapping[str, Any]) -> None:
    """Raise UsageError where --print does not go with the other options."""
    if as_json and not print_ios:
        raise click.UsageError("--json is --print's: give both")
    if print_ios and output == "-":
        raise click.UsageError("--print and -o - both want standard output: give -o FILE")
    if print_ios and any(keeping[name] for name in _ONE_LOG):
        raise click.UsageError("--print follows one log: leave out --rotate and --keep")


def run(printing: Printing) -> int:
    """Print; the exit status. What reads logs is imported now: recording alone needs none of it."""
    status: int = importlib.import_module("biotrail.cli.print_live").run(printing)
    return status


def given(ctx: click.Context) -> list[str]:
    """Return record's options as they were given, but for those that are this process's."""
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
        else:
            found += [f"{name}={one}" for one in (value if option.multiple else [value])]
    return found
