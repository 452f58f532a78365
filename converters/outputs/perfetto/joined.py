# SPDX-License-Identifier: Apache-2.0
"""Arguments and arrows that join slices to followed lives, and to the other log of a guest."""

import numpy as np

from biotrail.converters.calls.keys import rows_of
from biotrail.converters.events.array_steps import spread, take_or
from biotrail.converters.events.site_tables import JoinedLives
from biotrail.converters.events.tables import I64, U32, U64, Bool, Lifecycles
from biotrail.converters.outputs.perfetto.columns import Flows, Slices
from biotrail.converters.outputs.perfetto.names import (
    GUEST_STAGE_ARGUMENTS,
    TO_HOST,
    TO_LIFE,
    Interned,
)
from biotrail.converters.outputs.perfetto.place import Arrows, Crossing
from biotrail.converters.outputs.perfetto.tracks import Identity


def life_flow(identity: Identity, life: int) -> int:
    """Return the id of the flow between a life's slice and that of its request or bio."""
    return identity.uuid(f"I/O of life {life}")


def mark_lives(
    window: Lifecycles,
    joined: JoinedLives,
    kind: str,
    bios: Slices,
    requests: Slices,
    identity: Identity,
    names: Interned,
) -> None:
    """Add the argument `life`, and a mark with a flow, to the slices of followed requests or bios.

    window: whose slices `bios` and `requests` are; changed here. kind: the struct that the log
    follows. A bio whose last request was followed has the argument too, without a flow. Of several
    lives of a request, its slice has the first one's number, and a flow to each. names: event
    names, for the marks'.
    """
    if not len(joined):
        return
    joined = joined.take(np.lexsort((joined.life, joined.number)))
    drawn = requests if kind == "request" else bios
    drawn.uint("life", *_life_of(drawn.number, joined))
    if kind == "request":
        served = window.bios.request[bios.rows]
        bios.uint("life", *_life_of(served, joined))
    _add_flows(drawn, joined, identity, names.id(TO_LIFE))


def _life_of(number: I64, joined: JoinedLives) -> tuple[U32, Bool]:
    """Return (first life of each number, whether it has one), (n,) each. joined: by number."""
    place = np.searchsorted(joined.number, number)
    found = np.minimum(place, len(joined) - 1)
    has = joined.number[found] == number
    return take_or(joined.life, np.where(has, found, -1), 0), has


def _add_flows(slices: Slices, joined: JoinedLives, identity: Identity, name: int) -> None:
    """Put a mark into slices for each life of theirs, at the begin. name: of the marks.

    The life has a mark at its begin, too: which of both is first depends on what was recorded.
    """
    order = np.argsort(slices.number)
    place = np.minimum(np.searchsorted(slices.number[order], joined.number), len(slices) - 1)
    if not len(slices):
        return
    at = order[place]
    known = slices.number[at] == joined.number
    ids = [life_flow(identity, life) for life in joined.life[known].tolist()]
    slices.mark(at[known], slices.start[at[known]], np.array(ids, np.uint64), name)


def together(flows: Flows | None, count: int, row: I64, ids: U64) -> Flows | None:
    """Return flows with further ones: `ids` of the slices `row`. count: number of slices."""
    if flows is not None:
        row = np.concatenate([np.repeat(np.arange(count), flows.count), row])
        ids = np.concatenate([flows.id, ids])
    if not len(ids):
        return flows
    counts = np.bincount(row, minlength=count)
    return Flows(counts, ids[np.argsort(row, kind="stable")])


def mark_crossing(crossing: Crossing, bios: Slices, requests: Slices, names: Interned) -> None:
    """Add the flows of a crossing, and the arguments of linked requests, to a window's slices.

    bios, requests: changed here. names: event names, for that of the marks in requests from which
    the arrows lead.
    """
    row, ids = _found(bios, crossing.bios)
    bios.flows = together(bios.flows, len(bios), row, ids)
    row, ids = _found(requests, crossing.requests)
    requests.mark(row, requests.start[row], ids, names.id(TO_HOST))
    row, known = rows_of(crossing.timed, requests.number)
    if known.any():
        for at, argument in enumerate(GUEST_STAGE_ARGUMENTS):
            requests.sint(argument.name, crossing.stages[row, at], known)


def _found(slices: Slices, arrows: Arrows) -> tuple[I64, U64]:
    """Return the arrows of each slice's number: (index of the slice, id of the arrow), (m,)."""
    order = np.argsort(arrows.number, kind="stable")
    number = arrows.number[order]
    first = np.searchsorted(number, slices.number, side="left")
    count = np.searchsorted(number, slices.number, side="right") - first
    row = np.repeat(np.arange(len(slices)), count)
    return row, arrows.id[order[spread(first, count)]]
