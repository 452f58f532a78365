# SPDX-License-Identifier: Apache-2.0
"""Options that say what is recorded, and how. Imports only what recording needs."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import click

from biotrail.cli.options.gathering import Decorator, added, option
from biotrail.recorder.probes.backend import BACKENDS
from biotrail.recorder.probes.maps.stack_maps import Stacks
from biotrail.recorder.probes.sites.follow_options import AUTO, FOLLOWED_IO, WAYS, FollowOptions
from biotrail.recorder.schema.records import PATH_PARTS
from biotrail.text import units, values

force_option: Callable[[Any], Any] = click.option(
    "-f", "--force", is_flag=True, help="Replace FILE if it exists."
)
device_option: Callable[[Any], Any] = click.option(
    "-d",
    "--device",
    "devices",
    multiple=True,
    type=values.name,
    metavar="DEV",
    help="Only this device, named as for record. Can be repeated. Default: all devices.",
)
"""-d of commands that start a recorder or measure; record's own says how devices are named."""


def duration_option(*other_names: str) -> Callable[[Any], Any]:
    return click.option(
        "--duration",
        *other_names,
        "duration",
        type=units.duration_from(units.ABOVE_ZERO),
        metavar="TIME",
        help="Stop after 10s, 5min, 2h, …",
    )


MOST_AT_ONCE = 4096
EVERY = (1, (1 << 32) - 1)
"""Range of each N-th, a u32 of the programs."""
_NUMBERS = {
    "every": ("every", *EVERY),
    "max": ("at_once", 1, MOST_AT_ONCE),
    "lives": ("lives", 0, units.MOST),
    "max-functions": ("max_functions", 1, units.MOST),
}
"""Settings that are whole numbers: the field of FollowOptions, the least and largest value."""
_SETTINGS = (*_NUMBERS, "slower", "way")


def follow_options(value: str) -> FollowOptions:
    """Parse --follow: `request` or `bio`, then settings, as `request,every=100`."""
    struct, *parts = value.split(",")
    if struct not in FOLLOWED_IO:
        known = " or ".join(FOLLOWED_IO)
        raise click.BadParameter(
            f"{struct!r} is no I/O of the block layer: give {known}; "
            "biotrail follow follows any struct"
        )
    found = FollowOptions(struct)
    for part in parts:
        name, equals, text = part.partition("=")
        if name not in _SETTINGS or not equals:
            known = ", ".join(f"{one}=" for one in _SETTINGS)
            raise click.BadParameter(f"there is no setting {part!r}: choose of {known}")
        if name == "slower":
            found = replace(found, slower_ns=round(units.seconds(text) * 1e9))
        elif name == "way":
            if text not in (AUTO, *WAYS):
                known = ", ".join((AUTO, *WAYS))
                raise click.BadParameter(f"there is no way {text!r}: choose of {known}")
            found = replace(found, way=text)
        else:
            field, least, most = _NUMBERS[name]
            if (number := units.whole(text, least, most)) is None:
                raise click.BadParameter(
                    f"{name}={text}: give a whole number from {least} to {most}"
                )
            changed: dict[str, Any] = {field: number}
            found = replace(found, **changed)
    return found


def path_parts(value: str) -> frozenset[str]:
    if value == "all":
        return frozenset(PATH_PARTS)
    parts = frozenset(value.split(","))
    for part in sorted(parts - set(PATH_PARTS)):
        known = ", ".join(PATH_PARTS)
        raise click.BadParameter(f"there is no part {part!r}: choose of {known}, or all")
    return parts


EVENT_SETS = ("light", "minimal", "lifecycle", "all")
SITES = "sites"
"""Name of the event set of `pairs` and `follow` in a log's header: chosen sites, and no others."""
_RAW = "biotrail.cli.recording.arguments"
"""Key in a context's `meta` under which a RecordingCommand keeps its words."""


def path_option(text: str) -> Decorator:
    return click.option(
        "--path", type=path_parts, is_flag=False, flag_value="all", metavar="[=PARTS]", help=text
    )


def call_over_option(text: str) -> Decorator:
    return click.option(
        "--call-over",
        type=units.duration_from(),
        metavar="TIME",
        default="1ms",
        show_default=True,
        help=text,
    )


def call_budget_option(text: str) -> Decorator:
    return click.option(
        "--call-budget",
        type=values.percent_from(),
        metavar="PERCENT",
        default=5.0,
        show_default=True,
        help=text,
    )


_SAME = (
    *("force", "devices", "duration", "events", "backend", "files", "command_lines"),
    *("call_budget", "follow", "sync", "level"),
)
"""Options that are called alike in RecordOptions."""


@dataclass(frozen=True)
class RecordArguments:
    devices: tuple[str, ...] = option(
        "-d",
        "--device",
        multiple=True,
        type=values.name,
        metavar="DEV",
        help="Only this device: a name, a /dev path, a partition, a mapper name, a by-id link or a "
        "mount point. Can be repeated. Default: all devices.",
    )
    output: str | None = option(
        "-o",
        "--output",
        metavar="FILE",
        type=values.FileName(),
        help="The log; - writes it to standard output. Default: biotrail-HOST-DATE-TIME.biotrail "
        "in the current directory.",
    )
    """Path of the log; `-`: standard output; None: not given."""
    force: bool = added(force_option)
    duration: float | None = added(duration_option())
    events: str = option(
        "--events",
        type=click.Choice(EVENT_SETS),
        default="lifecycle",
        show_default=True,
        help="light: each request at its completion, with the kernel's own times, at the least "
        "cost; minimal: queue, issue and complete, and the events that link them; lifecycle: every "
        "step of a bio and request; all: plugs and all other events too.",
    )
    backend: str = option(
        "--backend",
        type=click.Choice(BACKENDS),
        default="auto",
        show_default=True,
        help="core: precompiled programs, for kernels with type information (BTF); bcc: programs "
        "that bcc compiles here, which record less; auto: core where it can be used, else bcc.",
    )
    stacks: bool = option(
        "--stacks",
        is_flag=True,
        help="Record the kernel call stack that queued each bio: see biotrail stacks.",
    )
    user_stacks: bool = option(
        "--user-stacks", is_flag=True, help="With --stacks: record the program's call stack too."
    )
    files: bool = option(
        "--files",
        is_flag=True,
        help="Record the file that each bio belongs to, by path: I/O through the page cache, and "
        "direct I/O. See biotrail report --by file.",
    )
    command_lines: bool = option(
        "--command-lines",
        is_flag=True,
        help="Keep the whole command line of each process, not only the title that it set, or "
        "interpreter and script. It may hold secrets, which are then in the log.",
    )
    path: frozenset[str] | None = added(
        path_option(
            "Record the path beside the block layer: the system call that queues each bio "
            "(call), calls with entry and exit (time), every thread's waits for I/O (wait), the "
            "interrupt of each completion (irq), who dirtied the pages of write-back (dirty), what "
            "each wait is for and the commits of journals (fs). All of them, or PARTS with commas."
        )
    )
    call_over: float = added(
        call_over_option(
            "With --path: record calls that took longer than this even if they do no I/O."
        )
    )
    call_budget: float = added(
        call_budget_option(
            "With --path: time calls no longer once that takes more than so much of a CPU, and say "
            "so; waits and the call that queues each bio are still recorded. 0: no limit."
        )
    )
    follow: FollowOptions | None = option(
        "--follow",
        type=follow_options,
        metavar="WHAT[,SETTINGS]",
        help="Also record which functions requests (request) or bios (bio) pass, for biotrail slow "
        "--functions and biotrail tree. Settings: every=N: each N-th; max=N: so many at one time; "
        "lives=N: so many in all; slower=TIME: only those that took longer; way=typed: tracepoints "
        "alone; max-functions=N. See docs/follow.md.",
    )
    buffer_size: int | None = option(
        "--buffer-size",
        type=units.size_from(1),
        metavar="SIZE",
        help="Size of each CPU's ring, e.g. 4M; use a larger one when events are lost. Default: "
        "depends on the machine.",
    )
    sync: bool = option(
        "--sync", is_flag=True, help="Sync the log every second, so that it survives a power loss."
    )
    level: int = option(
        "--level",
        type=units.Count(0, 19),
        default=1,
        show_default=True,
        help="zstd compression level; 0: no compression.",
    )

    def check(self) -> None:
        if self.user_stacks and not self.stacks:
            raise click.UsageError("--user-stacks needs --stacks")
        if self.stacks and self.backend == "bcc":
            raise click.UsageError("--stacks needs the core backend: bcc's programs take no stacks")
        if self.files and self.backend == "bcc":
            raise click.UsageError("--files needs the core backend: bcc's programs see no files")
        if self.path and self.backend == "bcc":
            raise click.UsageError("--path needs the core backend")
        if self.follow is not None and self.events == "light":
            raise click.UsageError("--follow needs another event set than light")
        if self.follow is not None and self.backend == "bcc":
            raise click.UsageError("--follow needs the core backend")

    def record_options(self) -> dict[str, Any]:
        """Return all values but `output` as keyword arguments of RecordOptions."""
        return {name: getattr(self, name) for name in _SAME} | {
            "stacks": Stacks(self.stacks + self.user_stacks),
            "path": self.path or frozenset(),
            "call_over_ns": round(self.call_over * 1e9),
            "ring_bytes": self.buffer_size,
        }


class RecordingCommand(click.Command):
    """A command that stores its unparsed arguments in the context's `meta`, for `given`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_RAW] = list(args)
        return super().parse_args(ctx, args)


def given(ctx: click.Context, not_passed_on: Collection[str]) -> list[str]:
    """Return the options that a RecordingCommand was given, `--name=value`, for `record`."""
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
