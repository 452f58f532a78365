# SPDX-License-Identifier: Apache-2.0
"""Arrows from a guest's requests to the bios of its host, and the requests' times there."""

import numpy as np

from biotrail.converters.calls.keys import rows_of
from biotrail.converters.events.array_steps import spread
from biotrail.converters.outputs.perfetto.names import GUEST_STAGE_ARGUMENTS
from biotrail.converters.outputs.perfetto.packets.columns import Slices
from biotrail.converters.outputs.perfetto.sites.joined import together
from biotrail.converters.outputs.perfetto.tracks.crossing import Arrows, Crossing


def mark_crossing(crossing: Crossing | None, bios: Slices, requests: Slices) -> None:
    """Add the flows of a crossing, and the arguments of linked requests, to a window's slices.

    bios, requests: changed here. None: nothing is added.
    """
    if crossing is None:
        return
    _add(bios, crossing.bios)
    _add(requests, crossing.requests)
    row, known = rows_of(crossing.timed, requests.number)
    if known.any():
        for at, argument in enumerate(GUEST_STAGE_ARGUMENTS):
            requests.sint(argument.name, crossing.stages[row, at], known)


def _add(slices: Slices, arrows: Arrows) -> None:
    """Add to `slices.flows` the ids of the arrows of each slice's number."""
    order = np.argsort(arrows.number, kind="stable")
    number = arrows.number[order]
    first = np.searchsorted(number, slices.number, side="left")
    count = np.searchsorted(number, slices.number, side="right") - first
    row = np.repeat(np.arange(len(slices)), count)
    slices.flows = together(slices.flows, len(slices), row, arrows.id[order[spread(first, count)]])
