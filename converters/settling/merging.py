# SPDX-License-Identifier: Apache-2.0
"""Builds a window's tables from its plain I/O and, for the rest, by the column model."""

from dataclasses import fields, replace
from types import ModuleType
from typing import TypeVar

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.path_tables import PathTables
from biotrail.converters.events.plain_events import PlainEvents
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tables import I64, Edges, Stages, Table
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.lifecycles.lifecycles import Builder, Modelled
from biotrail.converters.lifecycles.path import (
    bio_paths,
    driver_steps,
    has_path,
    held_bios,
    interrupts,
    no_tables,
    with_rows_of,
)
from biotrail.converters.lifecycles.submissions import bio_requests
from biotrail.converters.lifecycles.submitters import Submitters
from biotrail.converters.settling.light import LightBuilder
from biotrail.converters.settling.lives import PlainLives
from biotrail.converters.settling.settler import Settled, Settler
from biotrail.converters.settling.standing import StandingBuilder

T = TypeVar("T", bound=Table)


def builder(
    context: Context,
    tasks: TaskNames,
    stacks: StackNames,
    *,
    by_intervals: bool,
    module: ModuleType | None,
) -> "AnyBuilder":
    """Return what builds a log's windows: plain I/O is settled first, but not without pointers.

    There a request stands for its bios where these were not recorded. module: None: nothing is
    compiled. Light logs have a builder of their own.
    """
    if context.is_light:
        return LightBuilder(context, tasks, stacks)
    if by_intervals:
        return StandingBuilder(context, tasks, stacks)
    if module is None:
        return Builder(context, tasks, stacks)
    return SettlingBuilder(context, tasks, stacks, module)


class SettlingBuilder:
    """A `Builder` that has the plain I/O of each window settled first."""

    def __init__(
        self, context: Context, tasks: TaskNames, stacks: StackNames, module: ModuleType
    ) -> None:
        """As `Builder`. `module`: the compiled pass, `settling.plain`."""
        self._context, self._tasks, self._stacks = context, tasks, stacks
        self._builder = Builder(context, tasks, stacks)
        self._settler = Settler(context, Submitters(tasks, stacks), module)
        # The tables of the path, and followed objects, need what the model knows of I/O in flight.
        self._holds = not context.header.get("sites")

    def build(self, events: Events, *, settled: int, final: bool) -> Modelled:
        """As `Builder.build`, with the same tables; the order of edges differs.

        `association`, `kept`, `own`, `bio_number` and `request_number` of the result are of the
        events that are not plain, which were associated alone; `settled` is asked for the others.
        """
        holds = self._holds and not final and not has_path(events)
        plain = self._settler.settle(events, settled, self._builder.reused.bios, holds=holds)
        if plain is None:
            return self._builder.build(events, settled=settled, final=final)
        for requests in (plain.requests, plain.open_requests):
            self._builder.request_devices.add(requests.dev, requests.number)
        rest = events.take(plain.rest)
        result = self._builder.build(rest, settled=settled, final=final)
        lives = PlainLives(events, plain.lives, self._modelled)
        merged = _with_plain(result, plain, events)
        path = _with_plain_path(result.path, plain, events, self._tasks)
        return replace(merged, path=path, settled=lives)

    def _modelled(self, events: Events) -> Modelled:
        """Return what the model makes of some families' events, which nothing else concerns."""
        made_by = Builder(self._context, self._tasks, self._stacks)
        return made_by.build(events, settled=0, final=True)


def _with_plain(result: Modelled, plain: Settled, events: Events) -> Modelled:
    """Return the result with the rows of plain I/O among those of the model."""
    return replace(
        result,
        bios=_merged(plain.bios, result.bios, plain.bios.number, result.bios.number),
        requests=_merged(
            plain.requests, result.requests, plain.requests.number, result.requests.number
        ),
        edges=Edges.concatenate([plain.edges, result.edges]),
        open_bios=_merged(
            plain.open_bios, result.open_bios, plain.open_bios.number, result.open_bios.number
        ),
        open_requests=_merged(
            plain.open_requests,
            result.open_requests,
            plain.open_requests.number,
            result.open_requests.number,
        ),
        bio_stages=_merged_stages(plain.bio_stages, result.bio_stages),
        request_stages=_merged_stages(plain.request_stages, result.request_stages),
        plain=PlainEvents(events, plain.rest, plain.counts, plain.beside, plain.held),
    )


def _with_plain_path(
    path: PathTables | None, plain: Settled, events: Events, tasks: TaskNames
) -> PathTables | None:
    """Return the tables of the path with the rows of plain bios and requests, and of its records.

    path: the model's, which has no records of the path. None: the window has no path.
    """
    if not has_path(events):
        return None
    path = with_rows_of(path or no_tables(tasks), events, tasks)
    none = np.zeros(0, np.int64)
    number, request = plain.bios.number, plain.requests.number
    bios = bio_paths(events, number, plain.queued)
    by = interrupts(events, request, plain.completed)
    steps = driver_steps(events, request, plain.completed, plain.requests.start)
    submitted = bio_requests(events, (number, plain.queued), (none, none))
    held = held_bios(events, tasks, number, plain.queued)
    return replace(
        path,
        bios=_merged(bios, path.bios, bios.number, path.bios.number),
        interrupts=_merged(by, path.interrupts, by.number, path.interrupts.number),
        steps=_merged(steps, path.steps, steps.number, path.steps.number),
        bio_requests=_merged(
            submitted, path.bio_requests, submitted.number, path.bio_requests.number
        ),
        held=_merged(held, path.held, held.number, path.held.number),
    )


def _merged_stages(plain: Stages, rest: Stages) -> Stages:
    """Return the stages of both, sorted by owner; each owner is in one of them."""
    return _merged(plain, rest, plain.owner, rest.owner)


def _merged(plain: T, rest: T, plain_key: I64, rest_key: I64) -> T:
    """Return the rows of two tables that are sorted by their keys, sorted by key."""
    if not len(rest):
        return plain
    at = np.searchsorted(plain_key, rest_key)
    names = [f.name for f in fields(plain)]
    columns = {n: np.insert(getattr(plain, n), at, getattr(rest, n), axis=0) for n in names}
    return type(plain)(**columns)


AnyBuilder = Builder | SettlingBuilder | LightBuilder | StandingBuilder
"""What builds the tables of a log's windows, one after the other."""
