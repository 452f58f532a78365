# SPDX-License-Identifier: Apache-2.0
"""Options that choose by task: its ids, its name, its cgroup by path or by what that is."""

import functools
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from biotrail.cli.options.gathering import Decorator, made_of
from biotrail.text import units, values

if TYPE_CHECKING:
    from biotrail.recorder.filters.filters import Filters

_MAX_TASK = (1 << 31) - 1


def words_of(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for value in given for word in value.split(",") if word)


def task_ids(value: str) -> tuple[int, ...]:
    found = []
    for word in words_of((value,)):
        number = units.whole(word, 1, _MAX_TASK)
        if number is None:
            raise click.BadParameter(f"{word!r} is no process or thread id")
        found.append(number)
    return tuple(found)


def pod(value: str) -> str:
    namespace, slash, name = values.name(value).partition("/")
    if slash and (not namespace or not name or "/" in name):
        raise click.BadParameter(f"{value!r} is no pod: write NAMESPACE/NAME, or a uid")
    return value


_NAMED = (
    (
        "unit",
        "NAME",
        values.name,
        "this systemd unit, wherever it is, or slice: db.service, or db",
    ),
    (
        "container",
        "NAME",
        values.name,
        "this container or guest, by name, or by id (12 characters at least)",
    ),
    ("pod", "NS/NAME", pod, "this pod's containers, by namespace and name, or by uid"),
)


def named_options(prefix: str, what: str, more: str) -> tuple[Decorator, ...]:
    """Return --unit, --container and --pod; the values' names are theirs behind `prefix`."""
    return tuple(
        click.option(
            f"--{name}",
            f"{prefix}{name}",
            multiple=True,
            type=kind,
            metavar=metavar,
            help=f"Only {what} {meaning}. {more}",
        )
        for name, metavar, kind, meaning in _NAMED
    )


class TaskHelp(NamedTuple):
    pid: str
    tid: str
    comm: str
    cgroup: str
    named: tuple[str, str]
    children: str = ""
    """Of --children; empty: there is no such option."""


def task_options(texts: TaskHelp, *short_pid: str) -> Decorator:
    ids = functools.partial(click.option, multiple=True, type=task_ids)
    names = functools.partial(click.option, multiple=True, type=values.name)
    children = click.option("--children", is_flag=True, help=texts.children)
    options: tuple[Decorator, ...] = (
        ids(*short_pid, "--pid", metavar="PID", help=texts.pid),
        *([children] if texts.children else []),
        ids("--tid", metavar="TID", help=texts.tid),
        names("--comm", metavar="NAME", help=texts.comm),
        names("--cgroup", metavar="PATH", help=texts.cgroup),
        *named_options("", *texts.named),
    )
    taken = {"pid", "children", "tid", "comm", "cgroup", "unit", "container", "pod"}
    return made_of("filters", _filters, taken.__contains__, *options)


def _filters(given: dict[str, Any]) -> "Filters":
    from biotrail.recorder.filters.filters import Filters  # not for reading logs

    if given.get("children") and not given["pid"]:
        raise click.UsageError("--children needs --pid: whose children?")
    return Filters(
        pids=tuple(chain.from_iterable(given["pid"])),
        children=given.get("children", False),
        tids=tuple(chain.from_iterable(given["tid"])),
        comms=given["comm"],
        cgroups=given["cgroup"],
        units=given["unit"],
        containers=given["container"],
        pods=given["pod"],
    )
