# SPDX-License-Identifier: Apache-2.0
"""Options that choose a part of a log, the same for every command that reads one (docs/cuts.md)."""

import functools
from typing import Any

import click

from biotrail.cli.options.cuts import Cut
from biotrail.cli.options.gathering import Command, Decorator, with_options
from biotrail.cli.options.moments import Moment, MomentType, Times
from biotrail.cli.options.task_options import named_options
from biotrail.converters.analysis.choosing.choosing import Who
from biotrail.converters.analysis.choosing.outcomes import Wish
from biotrail.recorder.schema.cgroup_names import NamedCgroups
from biotrail.recorder.schema.kernel_names import OPS
from biotrail.text import units, values

OPERATIONS = sorted({name.lower() for name in OPS})
WINDOW = "2s"


_TIMES: tuple[Decorator, ...] = (
    click.option(
        "--from",
        "cut_from",
        type=MomentType(),
        metavar="TIME",
        help="Start of the part of the log to use: 2.5s after the start of recording, "
        '"last 5s", 14:03:05 (UTC), or ISO 8601.',
    ),
    click.option(
        "--to",
        "cut_to",
        type=MomentType(),
        metavar="TIME",
        help="End of that part, not included; written as --from.",
    ),
    click.option(
        "--around",
        "cut_around",
        type=MomentType(),
        metavar="TIME",
        help="Use the part of the log around this time; see --window.",
    ),
    click.option(
        "--window",
        "cut_window",
        type=units.Duration(units.ABOVE_ZERO),
        metavar="TIME",
        help=f"Length of the part that --around chooses.  [default: {WINDOW}]",
    ),
)
_DEVICE: Decorator = click.option(
    "-d",
    "--device",
    "cut_devices",
    multiple=True,
    type=values.Name(),
    metavar="DEV",
    help="Only this device or partition of the log, by name or as 8:0. Can be repeated.",
)
_IOS: tuple[Decorator, ...] = (
    click.option(
        "--op",
        "cut_ops",
        multiple=True,
        type=click.Choice(OPERATIONS),
        metavar="OP",
        help="Only this operation (read, write, flush, discard, …). Can be repeated.",
    ),
    click.option(
        "--pid",
        "cut_pids",
        multiple=True,
        type=units.Count(1, (1 << 31) - 1),
        metavar="PID",
        help="Only I/O queued by this process. Can be repeated.",
    ),
    click.option(
        "--comm",
        "cut_comms",
        multiple=True,
        type=values.Name(),
        metavar="NAME",
        help="Only I/O queued by threads of this name; NAME* matches a prefix. Can be repeated.",
    ),
    click.option(
        "--cgroup",
        "cut_cgroups",
        multiple=True,
        type=values.Name(),
        metavar="PATH",
        help="Only I/O charged to this cgroup or a descendant. Can be repeated.",
    ),
    *named_options("cut_", "I/O of", "Can be repeated, and with --cgroup: of either."),
)
_FILE: Decorator = click.option(
    "--file",
    "cut_files",
    multiple=True,
    type=values.Name(),
    metavar="PATTERN",
    help="Only I/O of files whose path matches, e.g. '/srv/db/*'. Needs a log made with "
    "record --files. Can be repeated.",
)
_OUTCOMES: tuple[Decorator, ...] = (
    click.option(
        "--slower-than",
        "cut_slower",
        type=units.Duration(),
        metavar="TIME",
        help="Only I/Os that took at least this long.",
    ),
    click.option(
        "--slowest",
        "cut_slowest",
        type=units.Count(),
        metavar="N",
        help="Only the N slowest of the I/Os that the other options choose.",
    ),
    click.option("--failed", "cut_failed", is_flag=True, help="Only I/Os that ended in an error."),
)


def cut_options(command: Command) -> Command:
    """Add all options that choose a part of a log; pass them to the command as `cut`: a Cut."""
    return _with(command, (*_TIMES, _DEVICE, *_IOS, _FILE, *_OUTCOMES))


def choice_options(command: Command) -> Command:
    """Add the options of `cut_options` but those of outcomes.

    Commands that use it have their own --slower-than, --slowest and --failed.
    """
    return _with(command, (*_TIMES, _DEVICE, *_IOS, _FILE))


def record_options(command: Command) -> Command:
    """Add the options of times and devices, as `cut_options` does: all that records have."""
    return _with(command, (*_TIMES, _DEVICE))


def time_options(command: Command) -> Command:
    """Add the options of times, as `cut_options` does."""
    return _with(command, _TIMES)


def _with(command: Command, options: tuple[Decorator, ...]) -> Command:
    """Add the options, whose values (`cut_…`) become the command's argument `cut`: a Cut.

    Values that contradict each other raise click.UsageError when the command is called.
    """

    @functools.wraps(command)
    def called(*arguments: Any, **given: Any) -> Any:
        ours = {name: given.pop(name) for name in list(given) if name.startswith("cut_")}
        return command(*arguments, cut=_cut(ours), **given)

    return with_options(*options)(called)


def _cut(given: dict[str, Any]) -> Cut:
    """Return the options' values (`cut_…`) as a Cut. Raises click.UsageError."""
    return Cut(
        _times(given["cut_from"], given["cut_to"], given["cut_around"], given["cut_window"]),
        _read(given, "cut_devices"),
        tuple(given.get("cut_ops", ())),
        Who(
            frozenset(given.get("cut_pids", ())),
            frozenset(_read(given, "cut_comms")),
            frozenset(_read(given, "cut_cgroups")),
            NamedCgroups(*(_read(given, f"cut_{one}") for one in ("unit", "container", "pod"))),
        ),
        Wish(
            nanoseconds(given.get("cut_slower") or 0),
            given.get("cut_slowest") or 0,
            bool(given.get("cut_failed")),
        ),
        _read(given, "cut_files"),
    )


def _read(given: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return the names of an option as names that are read look; none: the command lacks it."""
    return tuple(map(values.as_read, given.get(name, ())))


def _times(
    begin: Moment | None, end: Moment | None, around: Moment | None, window: float | None
) -> Times:
    """Return the chosen part of the log's time. window: seconds; None: not given.

    Raises click.UsageError if the options contradict each other.
    """
    if around is None:
        if window is not None:
            raise click.UsageError("--window is the length around a time: give --around TIME, too")
        offsets = [m.offset for m in (begin, end) if m is not None and m.offset is not None]
        if begin and end and len(offsets) == 2 and offsets[1] <= offsets[0]:
            raise click.UsageError(f"--to {end.text} is not after --from {begin.text}")
        return Times(begin, end)
    if begin is not None or end is not None:
        raise click.UsageError("--around needs no other time: leave out --from and --to")
    length = units.Duration().convert(WINDOW, None, None) if window is None else window
    return Times(around=around, window=nanoseconds(length))


def nanoseconds(seconds: float) -> int:
    """Convert seconds to nanoseconds."""
    return round(seconds * 1e9)
