# SPDX-License-Identifier: Apache-2.0
"""Windows restricted to some of their bios and requests, and times that bound each row."""

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from biotrail.converters.events.tables import (
    FAR,
    I64,
    NEVER,
    Bios,
    Bool,
    Certainty,
    Lifecycles,
    Requests,
    Stages,
)

if TYPE_CHECKING:
    from biotrail.converters.lifecycles.result import Result

T = TypeVar("T", "Lifecycles", "Result")
HANGS_NS = 1_000_000_000
"""I/O that had been in flight for so long when the log ended hangs: it is shown before all else."""


def restricted(window: T, bios: Bool, requests: Bool, open_bios: Bool, open_requests: Bool) -> T:
    """Return a copy of the window with only the masked rows, their stages and the bios' edges.

    An edge stays if its bio is in the mask `bios`, whatever becomes of its request. `path` keeps
    what it has of these bios and requests, and all calls and waits. Each mask is as long as the
    table of the window with its name.
    """
    kept = window.bios.take(bios)
    kept_requests = window.requests.take(requests)
    kept_open = window.open_bios.take(open_bios)
    path = window.path
    if path is not None:
        owners = {
            **dict.fromkeys(("bios", "held"), kept.number),
            **dict.fromkeys(("interrupts", "steps"), kept_requests.number),
            **dict.fromkeys(("open_bios", "open_held"), kept_open.number),
        }
        tables = {name: getattr(path, name) for name in owners}
        path = replace(path, **{n: t.take(np.isin(t.number, owners[n])) for n, t in tables.items()})
    return replace(
        window,
        bios=kept,
        requests=kept_requests,
        edges=window.edges.take(np.isin(window.edges.bio, kept.number)),
        bio_stages=_of(window.bio_stages, kept.number, bios),
        request_stages=_of(window.request_stages, kept_requests.number, requests),
        open_bios=kept_open,
        open_requests=window.open_requests.take(open_requests),
        path=path,
    )


def _of(stages: Stages, numbers: I64, rows: Bool) -> Stages:
    """Return the stages of owners in `numbers`; all of them if the mask `rows` is all True."""
    return stages if rows.all() else stages.take(np.isin(stages.owner, numbers))


def queued_below(window: Lifecycles) -> Bool:
    """Mark the bios (n,) that stacked devices queued for a bio which the window has, too.

    They move once more what that bio moves. A family of bios is in one window, so how a log is cut
    changes nothing; where a choice left the upper bio out, the lower one stands for itself.
    """
    bios = window.bios
    if not (bios.parent != NEVER).any():
        return np.zeros(len(bios), np.bool_)
    here = np.concatenate([bios.number, window.open_bios.number])
    above = np.isin(bios.family, here) & (bios.family != bios.number)
    return np.asarray(above | np.isin(bios.parent, here), dtype=np.bool_)


def sure_complete(table: Bios | Requests) -> I64:
    """Return per row its completion (ns); NEVER where it is not known, or may be another I/O's."""
    return np.where(table.doubtful, NEVER, table.complete)


def first_seen(table: Bios | Requests) -> I64:
    """Return per row its earliest known time (ns), `cut` included; NEVER if it has none."""
    starts = [table.queue, table.getrq, table.merge] if isinstance(table, Bios) else [table.start]
    times = np.stack([table.cut, *starts, table.insert, table.issue, table.complete])
    start = np.where(times != NEVER, times, FAR).min(axis=0)
    return np.where(start == FAR, NEVER, start)


def last_seen(table: Bios | Requests, *, completed: bool = True) -> I64:
    """Return per row its latest known time (ns), `cut` not counted; NEVER if it has none."""
    starts = [table.queue, table.getrq, table.merge] if isinstance(table, Bios) else [table.start]
    ends = [table.complete] if completed else []
    found: I64 = np.stack([*starts, table.insert, table.issue, *ends]).max(axis=0)
    return found


def under_way(bios: Bios) -> Bool:
    """Mark the bios that were in flight when the log ended: bool (n,), by row of `bios`.

    With Certainty.LOST the completion was not recorded, and the bio was not in flight.
    """
    unended = (bios.queue != NEVER) & (bios.complete == NEVER)
    result: Bool = unended & (bios.certainty == Certainty.INCOMPLETE)
    return result
