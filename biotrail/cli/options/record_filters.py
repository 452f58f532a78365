# SPDX-License-Identifier: Apache-2.0
"""Filter options of `biotrail record` and `top`."""

import os
from dataclasses import replace
from itertools import chain
from typing import Any

import click

from biotrail.cli.options.gathering import made_of
from biotrail.cli.options.task_options import TaskHelp, task_options, words_of
from biotrail.recorder.filters.filters import MAX_FOLLOWED, Filters
from biotrail.text import units, values

_MOST_BIO = (1 << 32) - 1
"""Bytes of a bio, a u32 in the kernel."""


def sector_ranges(value: str) -> tuple[tuple[int, int], ...]:
    """Parse --sectors, `FIRST-LAST` or several between commas; both ends are included."""
    found = []
    for word in words_of((value,)):
        begin, dash, end = word.partition("-")
        first = units.whole(begin)
        last = units.whole(end) if dash else first
        if first is None or last is None or last < first:
            raise click.BadParameter(
                f"{word!r} is no range of sectors: write FIRST-LAST, e.g. 2048-4095"
            )
        found.append((first, last))
    return tuple(found)


_TASK_HELP = TaskHelp(
    pid="Only I/O queued by this process; several: 12,34. Buffered writes are queued by "
    "kernel threads: use --cgroup for those.",
    children="With --pid: also I/O of the processes that it starts.",
    tid="Only I/O queued by this thread.",
    comm="Only I/O of tasks of this name (its first 15 bytes); 'fio*' matches a prefix.",
    cgroup="Only I/O charged to this cgroup or a descendant, whichever task queues it: "
    "/system.slice/app.service, or the cgroup's directory.",
    named=("I/O of", "Also of those that appear later. With --cgroup: of either."),
)
_OPTIONS = (
    click.option(
        "--below",
        is_flag=True,
        help="With -d: also record the lower devices that these are stacked on.",
    ),
    task_options(_TASK_HELP),
    click.option(
        "--file",
        "only_files",
        multiple=True,
        type=values.name,
        metavar="PATH",
        help="Only I/O of this file's data, whichever task queues it. With --dir: of either.",
    ),
    click.option(
        "--dir",
        "only_dirs",
        multiple=True,
        type=values.name,
        metavar="PATH",
        help="Only I/O of the data of files in this directory and all below it.",
    ),
    click.option(
        "--op",
        multiple=True,
        type=values.text,
        metavar="OP",
        help="Only this operation: read, write, flush, discard, …",
    ),
    click.option(
        "--flags",
        multiple=True,
        type=values.text,
        metavar="FLAG",
        help="Only bios with one of these flags: sync, meta, fua, ra, …; sync+meta: both.",
    ),
    click.option(
        "--min-size",
        type=units.size_from(most=_MOST_BIO),
        default=0,
        metavar="SIZE",
        help="Only bios of at least this size.",
    ),
    click.option(
        "--sectors",
        multiple=True,
        type=sector_ranges,
        metavar="A-B",
        help="Only bios that touch these 512-byte sectors of the disk.",
    ),
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


def _filters(given: dict[str, Any]) -> Filters:
    flags = tuple(tuple(w for w in word.split("+") if w) for word in words_of(given["flags"]))
    if () in flags:
        raise click.BadParameter("names no flag", param_hint="--flags")
    filters: Filters = given["filters"]
    return replace(
        filters,
        files=tuple(map(os.path.abspath, given["only_files"])),
        dirs=tuple(map(os.path.abspath, given["only_dirs"])),
        ops=words_of(given["op"]),
        flags=flags,
        min_bytes=given["min_size"],
        sectors=tuple(chain.from_iterable(given["sectors"])),
        below=given["below"],
        own_io=given["own_io"],
        max_followed=given["max_in_flight"],
    )


_TAKEN = {"filters", "only_files", "only_dirs", "op", "flags", "min_size", "sectors"}
_TAKEN |= {"below", "own_io", "max_in_flight"}
filter_options = made_of("filters", _filters, _TAKEN.__contains__, *_OPTIONS)
"""Adds the filters' options, those by task among them, to a command, which gets `filters`."""
