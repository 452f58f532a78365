# SPDX-License-Identifier: Apache-2.0
"""The options of `record --print`. Imports only what recording needs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import click

from biotrail.cli.options.gathering import option
from biotrail.cli.options.record_keeping import Keeping
from biotrail.recorder.filters.filters import Filters

NOT_PASSED_ON = frozenset({"print_ios", "as_json", "output", "force", "quiet"})
"""Options that the printing process handles itself."""
_RAW = "biotrail.cli.recording.arguments"


@dataclass(frozen=True)
class PrintOptions:
    """Whether to print I/Os as they end."""

    print_ios: bool = option(
        "--print",
        is_flag=True,
        help="Print a line for each I/O that ends, as biosnoop does. No log is kept unless -o is "
        "given. See docs/print.md.",
    )
    as_json: bool = option(
        "--json", is_flag=True, help="With --print: print a JSON object per line."
    )


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


class RecordingCommand(click.Command):
    """A command that stores its unparsed arguments in the context's `meta`, for `given`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the arguments and parse them as click does."""
        ctx.meta[_RAW] = list(args)
        return super().parse_args(ctx, args)


def check(asked: PrintOptions, output: str | None, keeping: Keeping) -> None:
    """Raise click.UsageError if --print or --json contradicts other options.

    output: the value of -o.
    """
    if asked.as_json and not asked.print_ios:
        raise click.UsageError("--json needs --print: give both")
    if asked.print_ios and output == "-":
        raise click.UsageError("--print and -o - both write to standard output: give -o FILE")
    flight = keeping.flight
    if asked.print_ios and (keeping.several_files or flight.max_files or flight.triggers):
        raise click.UsageError("--print follows one log: leave out --rotate and --keep")


def given(ctx: click.Context, not_passed_on: Collection[str]) -> list[str]:
    """Return the options that a RecordingCommand was given, `--name=value`, as `record` takes them.

    not_passed_on: names of parameters that are the command's own.
    """
    parser = ctx.command.make_parser(ctx)
    values, _, _ = parser.parse_args(list(ctx.meta[_RAW]))
    found = []
    for parameter in ctx.command.get_params(ctx):
        if not isinstance(parameter, click.Option) or parameter.name in {*not_passed_on, None}:
            continue
        if (value := values.get(parameter.name)) is None:
            continue
        name = max(parameter.opts, key=len)
        if parameter.is_flag:
            found += [name] if value else []
            continue
        for one in value if parameter.multiple else [value]:
            # An option that was given without its value has click's mark in place of text.
            word = one if isinstance(one, str) else parameter.flag_value
            found.append(f"{name}={word}")
    return found
