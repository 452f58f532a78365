# SPDX-License-Identifier: Apache-2.0
"""Filters by task of `biotrail follow`."""

import functools
from collections.abc import Callable
from typing import Any

import click

from biotrail.cli.options.cgroup_options import named_options
from biotrail.cli.options.record_filters import TaskIds, joined
from biotrail.recorder.filters.filters import Filters
from biotrail.text import values

_Command = Callable[..., Any]
_OPTIONS = (
    click.option(
        "--pid",
        multiple=True,
        type=TaskIds(),
        metavar="PID",
        help="Only what this process does; several: 12,34.",
    ),
    click.option(
        "--children", is_flag=True, help="With --pid: also what the processes do that it starts."
    ),
    click.option(
        "--tid",
        multiple=True,
        type=TaskIds(),
        metavar="TID",
        help="Only what this thread does.",
    ),
    click.option(
        "--comm",
        multiple=True,
        type=values.Name(),
        metavar="NAME",
        help="Only what tasks of this name (its first 15 bytes) do; 'fio*' matches a prefix.",
    ),
    click.option(
        "--cgroup",
        multiple=True,
        type=values.Name(),
        metavar="PATH",
        help="Only what tasks of this cgroup or a descendant do.",
    ),
    *named_options("", "what tasks do of", "Also of those that appear later."),
)


def task_filters(command: _Command) -> _Command:
    """Add the filters by task to a command, which gets one argument `filters`: a Filters."""

    @functools.wraps(command)
    def wrapped(
        *,
        pid: tuple[tuple[int, ...], ...],
        children: bool,
        tid: tuple[tuple[int, ...], ...],
        comm: tuple[str, ...],
        cgroup: tuple[str, ...],
        unit: tuple[str, ...],
        container: tuple[str, ...],
        pod: tuple[str, ...],
        **given: Any,
    ) -> Any:
        """Make a Filters of the options, check it, and call the command."""
        filters = Filters(
            pids=joined(pid),
            children=children,
            tids=joined(tid),
            comms=comm,
            cgroups=cgroup,
            units=unit,
            containers=container,
            pods=pod,
        )
        if children and not pid:
            raise click.UsageError("--children needs --pid: whose children?")
        return command(filters=filters, **given)

    result: _Command = wrapped
    for option in reversed(_OPTIONS):
        result = option(result)
    return result
