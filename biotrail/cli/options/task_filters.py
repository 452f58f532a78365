# SPDX-License-Identifier: Apache-2.0
"""Filters by task of `biotrail follow`."""

import functools
from collections.abc import Callable
from typing import Any

import click

from biotrail.cli.options.record_filters import task_numbers
from biotrail.recorder.filters.filters import Filters

_Command = Callable[..., Any]
_OPTIONS = (
    click.option(
        "--pid",
        multiple=True,
        metavar="PID",
        help="Only what this process does; several: 12,34.",
    ),
    click.option(
        "--children", is_flag=True, help="With --pid: also what the processes do that it starts."
    ),
    click.option("--tid", multiple=True, metavar="TID", help="Only what this thread does."),
    click.option(
        "--comm",
        multiple=True,
        metavar="NAME",
        help="Only what tasks of this name (its first 15 bytes) do; 'fio*' matches a prefix.",
    ),
    click.option(
        "--cgroup",
        multiple=True,
        metavar="PATH",
        help="Only what tasks of this cgroup or a descendant do.",
    ),
)


def task_filters(command: _Command) -> _Command:
    """Add the filters by task to a command, which gets one argument `filters`: a Filters."""

    @functools.wraps(command)
    def wrapped(
        *,
        pid: tuple[str, ...],
        children: bool,
        tid: tuple[str, ...],
        comm: tuple[str, ...],
        cgroup: tuple[str, ...],
        **given: Any,
    ) -> Any:
        """Make a Filters of the options, check it, and call the command."""
        filters = Filters(
            pids=task_numbers(pid, "--pid"),
            children=children,
            tids=task_numbers(tid, "--tid"),
            comms=comm,
            cgroups=cgroup,
        )
        if children and not pid:
            raise click.UsageError("--children needs --pid: whose children?")
        if "" in (*comm, *cgroup):
            raise click.BadParameter("must not be empty", param_hint="--comm, --cgroup")
        return command(filters=filters, **given)

    result: _Command = wrapped
    for option in reversed(_OPTIONS):
        result = option(result)
    return result
