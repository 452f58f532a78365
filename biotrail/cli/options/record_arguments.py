# SPDX-License-Identifier: Apache-2.0
"""Options that say what `biotrail record` records, and how. Imports only what recording needs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from biotrail.cli.options.record_follow import FollowValue
from biotrail.cli.options.recording_options import duration_option, force_option
from biotrail.recorder.probes.choice import BACKENDS
from biotrail.recorder.probes.maps.stack_maps import Stacks
from biotrail.recorder.probes.sites.follow_options import FollowOptions
from biotrail.recorder.schema.records import PATH_PARTS
from biotrail.text import units, values


class PathParts(click.ParamType[frozenset[str]]):
    """The value of --path: `all`, or names of parts with commas between."""

    name = "parts"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[str]:
        """Return the parts named. Fails with a usage error where there is no such part."""
        if isinstance(value, frozenset):
            return value
        if value == "all":
            return frozenset(PATH_PARTS)
        parts = frozenset(str(value).split(","))
        for part in sorted(parts - set(PATH_PARTS)):
            known = ", ".join(PATH_PARTS)
            self.fail(f"there is no part {part!r}: choose of {known}, or all", param, ctx)
        return parts


EVENT_SETS = ("light", "minimal", "lifecycle", "all")
_Command = TypeVar("_Command", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "-d",
        "--device",
        "devices",
        multiple=True,
        type=values.Name(),
        metavar="DEV",
        help="Only this device: a name, a /dev path, a partition, a mapper name, a by-id link or a "
        "mount point. Can be repeated. Default: all devices.",
    ),
    click.option(
        "-o",
        "--output",
        metavar="FILE",
        type=click.Path(),
        help="The log; - writes it to standard output. Default: biotrail-HOST-DATE-TIME.biotrail "
        "in the current directory.",
    ),
    force_option,
    duration_option(),
    click.option(
        "--events",
        type=click.Choice(EVENT_SETS),
        default="lifecycle",
        show_default=True,
        help="light: each request at its completion, with the kernel's own times, at the least "
        "cost; minimal: queue, issue and complete, and the events that link them; lifecycle: every "
        "step of a bio and request; all: plugs and all other events too.",
    ),
    click.option(
        "--backend",
        type=click.Choice(BACKENDS),
        default="auto",
        show_default=True,
        help="core: precompiled programs, for kernels with type information (BTF); bcc: programs "
        "that bcc compiles here, which record less; auto: core where it can be used, else bcc.",
    ),
    click.option(
        "--stacks",
        is_flag=True,
        help="Record the kernel call stack that queued each bio: see biotrail stacks.",
    ),
    click.option(
        "--user-stacks", is_flag=True, help="With --stacks: record the program's call stack too."
    ),
    click.option(
        "--files",
        is_flag=True,
        help="Record the file that each bio belongs to, by path: I/O through the page cache, and "
        "direct I/O. See biotrail report --by file.",
    ),
    click.option(
        "--command-lines",
        is_flag=True,
        help="Keep the whole command line of each process, not only the title that it set, or "
        "interpreter and script. It may hold secrets, which are then in the log.",
    ),
    click.option(
        "--path",
        "path",
        type=PathParts(),
        is_flag=False,
        flag_value="all",
        metavar="[=PARTS]",
        help="Record the path beside the block layer: the system call that queues each bio (call), "
        "calls with entry and exit (time), every thread's waits for I/O (wait), the interrupt of "
        "each completion (irq), who dirtied the pages of write-back (dirty), what each wait is for "
        "and the commits of journals (fs). All of them, or PARTS with commas.",
    ),
    click.option(
        "--call-over",
        type=units.Duration(),
        metavar="TIME",
        default="1ms",
        show_default=True,
        help="With --path: record calls that took longer than this even if they do no I/O.",
    ),
    click.option(
        "--call-budget",
        type=values.Percent(),
        metavar="PERCENT",
        default=5.0,
        show_default=True,
        help="With --path: time calls no longer once that takes more than so much of a CPU, and "
        "say so; waits and the call that queues each bio are still recorded. 0: no limit.",
    ),
    click.option(
        "--follow",
        type=FollowValue(),
        metavar="WHAT[,SETTINGS]",
        help="Also record which functions requests (request) or bios (bio) pass, for biotrail slow "
        "--functions and biotrail tree. Settings: every=N: each N-th; max=N: so many at one time; "
        "lives=N: so many in all; slower=TIME: only those that took longer; way=typed: tracepoints "
        "alone; max-functions=N. See docs/follow.md.",
    ),
    click.option(
        "--buffer-size",
        type=units.Size(1),
        metavar="SIZE",
        help="Size of each CPU's ring, e.g. 4M; use a larger one when events are lost. Default: "
        "depends on the machine.",
    ),
    click.option(
        "--sync", is_flag=True, help="Sync the log every second, so that it survives a power loss."
    ),
    click.option(
        "--level",
        type=units.Count(0, 19),
        default=1,
        show_default=True,
        help="zstd compression level; 0: no compression.",
    ),
)


def options(command: _Command) -> _Command:
    """Add the options whose values are the fields of RecordArguments to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class RecordArguments:
    """The values of these options, as the user gave them."""

    devices: tuple[str, ...]
    output: str | None
    """Path of the log; `-`: standard output; None: not given."""
    force: bool
    duration: float | None
    """Seconds; None: no end."""
    events: str
    """One of EVENT_SETS."""
    backend: str
    stacks: bool
    user_stacks: bool
    files: bool
    command_lines: bool
    path: frozenset[str] | None
    """Parts of the path; None: none."""
    call_over: float
    """Seconds."""
    call_budget: float
    """Per cent of a CPU; 0: no limit."""
    follow: FollowOptions | None
    """Requests or bios to follow; None: none."""
    buffer_size: int | None
    """Bytes of each CPU's ring; None: the recorder chooses."""
    sync: bool
    level: int

    def check(self) -> None:
        """Raise click.UsageError if options contradict each other."""
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
        """Return these values as keyword arguments of RecordOptions: all but `output`."""
        return {
            "force": self.force,
            "devices": self.devices,
            "events": self.events,
            "backend": self.backend,
            "stacks": Stacks(self.stacks + self.user_stacks),
            "files": self.files,
            "command_lines": self.command_lines,
            "path": self.path or frozenset(),
            "call_over_ns": round(self.call_over * 1e9),
            "call_budget": self.call_budget,
            "follow": self.follow,
            "ring_bytes": self.buffer_size,
            "duration": self.duration,
            "sync": self.sync,
            "level": self.level,
        }
