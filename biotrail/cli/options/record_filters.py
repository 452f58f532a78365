# SPDX-License-Identifier: Apache-2.0
"""Filter options of `biotrail record` and `top`."""

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import click

from biotrail.cli.options.cgroup_options import named_options
from biotrail.recorder.filters.filters import MAX_FOLLOWED, Filters
from biotrail.text import units, values

_MAX_TASK = (1 << 31) - 1
_MOST_BIO = (1 << 32) - 1
"""Bytes of a bio, a u32 in the kernel."""
_Command = Callable[..., Any]


def _words(values: Iterable[str]) -> tuple[str, ...]:
    """Split values at commas; drop empty words."""
    return tuple(word for value in values for word in value.split(",") if word)


class TaskIds(click.ParamType[tuple[int, ...]]):
    """The type of --pid and --tid: a process's or thread's id, or several between commas."""

    name = "ids"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the ids. Raises click.UsageError for anything else than 1 to 2^31 - 1."""
        if isinstance(value, tuple):
            return value
        found = []
        for word in _words((value,)):
            number = units.whole(word, 1, _MAX_TASK)
            if number is None:
                self.fail(f"{word!r} is no process or thread id", param, ctx)
            found.append(number)
        return tuple(found)


def joined(ids: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the ids of an option that was given several times."""
    return tuple(chain.from_iterable(ids))


class SectorRanges(click.ParamType[tuple[tuple[int, int], ...]]):
    """The type of --sectors: `FIRST-LAST` in 512-byte sectors, or several between commas."""

    name = "sectors"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, int], ...]:
        """Return ranges (first, last), both included. Raises click.UsageError."""
        if isinstance(value, tuple):
            return value
        found = []
        for word in _words((value,)):
            begin, dash, end = word.partition("-")
            first = units.whole(begin)
            last = units.whole(end) if dash else first
            if first is None or last is None or last < first:
                self.fail(
                    f"{word!r} is no range of sectors: write FIRST-LAST, e.g. 2048-4095", param, ctx
                )
            found.append((first, last))
        return tuple(found)


def _paths(values: Iterable[str]) -> tuple[str, ...]:
    """Return absolute paths; links are not followed."""
    return tuple(map(os.path.abspath, values))


_TASK_OPTIONS = (
    click.option(
        "--below",
        is_flag=True,
        help="With -d: also record the lower devices that these are stacked on.",
    ),
    click.option(
        "--pid",
        multiple=True,
        type=TaskIds(),
        metavar="PID",
        help="Only I/O queued by this process; several: 12,34. Buffered writes are queued by "
        "kernel threads: use --cgroup for those.",
    ),
    click.option(
        "--children",
        is_flag=True,
        help="With --pid: also I/O of the processes that it starts.",
    ),
    click.option(
        "--tid",
        multiple=True,
        type=TaskIds(),
        metavar="TID",
        help="Only I/O queued by this thread.",
    ),
    click.option(
        "--comm",
        multiple=True,
        type=values.Name(),
        metavar="NAME",
        help="Only I/O of tasks of this name (its first 15 bytes); 'fio*' matches a prefix.",
    ),
    click.option(
        "--cgroup",
        multiple=True,
        type=values.Name(),
        metavar="PATH",
        help="Only I/O charged to this cgroup or a descendant, whichever task queues it: "
        "/system.slice/app.service, or the cgroup's directory.",
    ),
    *named_options("", "I/O of", "Also of those that appear later. With --cgroup: of either."),
)
_FILE_OPTIONS = (
    click.option(
        "--file",
        "only_files",
        multiple=True,
        type=values.Name(),
        metavar="PATH",
        help="Only I/O of this file's data, whichever task queues it. With --dir: of either.",
    ),
    click.option(
        "--dir",
        "only_dirs",
        multiple=True,
        type=values.Name(),
        metavar="PATH",
        help="Only I/O of the data of files in this directory and all below it.",
    ),
)
_BIO_OPTIONS = (
    click.option(
        "--op",
        multiple=True,
        type=values.Text(),
        metavar="OP",
        help="Only this operation: read, write, flush, discard, …",
    ),
    click.option(
        "--flags",
        multiple=True,
        type=values.Text(),
        metavar="FLAG",
        help="Only bios with one of these flags: sync, meta, fua, ra, …; sync+meta: both.",
    ),
    click.option(
        "--min-size",
        type=units.Size(most=_MOST_BIO),
        default=0,
        metavar="SIZE",
        help="Only bios of at least this size.",
    ),
    click.option(
        "--sectors",
        multiple=True,
        type=SectorRanges(),
        metavar="A-B",
        help="Only bios that touch these 512-byte sectors of the disk.",
    ),
)
_FOLLOWING_OPTIONS = (
    click.option(
        "--own-io",
        is_flag=True,
        help="With filters: record the recorder's own I/O, marked, as without filters, "
        "instead of leaving it out.",
    ),
    click.option(
        "--max-in-flight",
        type=units.Count(64, 1 << 24),
        default=MAX_FOLLOWED,
        show_default=True,
        metavar="N",
        help="With filters: how many chosen bios may be in flight at once; further ones are "
        "lost, and counted.",
    ),
)


def filter_options(command: _Command) -> _Command:
    """Add the filter options to a command, which gets one argument `filters`: a Filters.

    The command must have an argument `devices`: the filters are checked against it.
    """

    @functools.wraps(command)
    def wrapped(**given: Any) -> Any:
        """Make a Filters of the filter options, check it against `devices`, and call the command.

        Raises click.UsageError for values that are no filters or contradict each other.
        """
        names = inspect.signature(_filters).parameters
        filters = _filters(**{name: given.pop(name) for name in names})
        _check(filters, given["devices"])
        return command(filters=filters, **given)

    result: _Command = wrapped
    options = (*_TASK_OPTIONS, *_FILE_OPTIONS, *_BIO_OPTIONS, *_FOLLOWING_OPTIONS)
    for option in reversed(options):
        result = option(result)
    return result


def _filters(
    *,
    below: bool,
    pid: tuple[tuple[int, ...], ...],
    children: bool,
    tid: tuple[tuple[int, ...], ...],
    comm: tuple[str, ...],
    cgroup: tuple[str, ...],
    unit: tuple[str, ...],
    container: tuple[str, ...],
    pod: tuple[str, ...],
    only_files: tuple[str, ...],
    only_dirs: tuple[str, ...],
    op: tuple[str, ...],
    flags: tuple[str, ...],
    min_size: int,
    sectors: tuple[tuple[tuple[int, int], ...], ...],
    own_io: bool,
    max_in_flight: int,
) -> Filters:
    """Return the values of the filter options, by their parameters' names, as a Filters."""
    return Filters(
        pids=joined(pid),
        children=children,
        tids=joined(tid),
        comms=comm,
        cgroups=cgroup,
        units=unit,
        containers=container,
        pods=pod,
        files=_paths(only_files),
        dirs=_paths(only_dirs),
        ops=_words(op),
        flags=tuple(tuple(w for w in word.split("+") if w) for word in _words(flags)),
        min_bytes=min_size,
        sectors=tuple(chain.from_iterable(sectors)),
        below=below,
        own_io=own_io,
        max_followed=max_in_flight,
    )


def _check(filters: Filters, devices: tuple[str, ...]) -> None:
    """Raise click.UsageError if the filters contradict each other or can match nothing."""
    if filters.children and not filters.pids:
        raise click.UsageError("--children needs --pid: whose children?")
    if filters.below and not devices:
        raise click.UsageError("--below needs -d: without it every device is recorded")
    if () in filters.flags:
        raise click.BadParameter("names no flag", param_hint="--flags")
