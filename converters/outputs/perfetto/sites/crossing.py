# SPDX-License-Identifier: Apache-2.0
"""Arrows from a guest's requests to the bios of its host, and the requests' times there."""

import numpy as np

from biotrail.converters.calls.keys import rows_of
from biotrail.converters.events.array_steps import spread
from biotrail.converters.events.tables import I64, U64
from biotrail.converters.outputs.perfetto.names import (
    GUEST_STAGE_ARGUMENTS,
    TO_HOST,
    Interned,
)
from biotrail.converters.outputs.perfetto.packets.columns import Slices
from biotrail.converters.outputs.perfetto.sites.joined import together
from biotrail.converters.outputs.perfetto.tracks.crossing import Arrows, Crossing


def mark_crossing(
    crossing: Crossing | None, bios: Slices, requests: Slices, names: Interned
) -> None:
    """Add the flows of a crossing, and the arguments of linked requests, to a window's slices.

    bios, requests: changed here. None: nothing is added. names: event names, for that of the marks
    in requests from which the arrows lead.
    """
    if crossing is None:
        return
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
