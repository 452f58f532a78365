# SPDX-License-Identifier: Apache-2.0
"""Draw less of each bio, so that a browser holds more of a long log."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Bios, Certainty, Lifecycles, Stages, Tasks
from biotrail.converters.lifecycles.windows import restricted
from biotrail.converters.outputs.perfetto.names import BIO, Colour, Detail, Interned
from biotrail.converters.outputs.perfetto.packets.callstacks import CallStacks
from biotrail.converters.outputs.perfetto.packets.columns import Slices
from biotrail.converters.outputs.perfetto.slices.slices import SliceMaker
from biotrail.converters.outputs.perfetto.slices.times import add_stages, seen_of
from biotrail.converters.outputs.perfetto.tracks.place import Place


@dataclass
class SparseMaker(SliceMaker):
    """Makes slices of bios, with arguments only where one is uncertain, failed or cut off."""

    stages: bool = False
    """Whether slices have stages; without them they have no correlation ids either."""

    def bios(self, table: Bios, stages: Stages, tasks: Tasks) -> Slices:
        """Return a slice per bio of which any time is known, in the order of (start, number).

        table, tasks: a window's bios and threads' names, which are not drawn. stages: of these
        bios, drawn if `self.stages`. Slices have no arguments but certainty and status, where these
        are not EXACT and OK, and the marks of `_marks`. Without stages they have no correlation
        ids.
        """
        seen = seen_of(table, stages)
        slices = self._begin(BIO, table, seen)
        table = table.take(slices.rows)
        doubtful = table.certainty != Certainty.EXACT
        slices.text("certainty", np.where(doubtful, self._certainty(table), np.uint64(0)))
        slices.text("status", np.where(table.status != 0, self._status(table), np.uint64(0)))
        self._marks(slices, table, seen)
        if self.stages:
            add_stages(slices, stages, arguments=False)
        else:
            slices.family = None
        return slices


def slice_maker(
    detail: Detail,
    context: Context,
    names: Interned,
    strings: Interned,
    stacks: CallStacks,
    place: Place,
    colour: Colour,
) -> SliceMaker:
    """Return the SliceMaker that draws as much of each bio as `detail` says.

    That is a SparseMaker unless `detail` is FULL, with stages if it is STAGES. names, strings:
    event names and text arguments interned so far, to which new ones are added. stacks: the log's
    call stacks. place: where the log stands in the trace. colour: which slices share a correlation
    id.
    """
    if detail == Detail.FULL:
        return SliceMaker(context, names, strings, stacks, place, colour)
    maker = SparseMaker(context, names, strings, stacks, place, colour)
    maker.stages = detail == Detail.STAGES
    return maker


def drawn_with(detail: Detail, window: Lifecycles) -> Lifecycles:
    """Return the window without its requests, unless `detail` is FULL: then the window itself.

    Requests in flight and requests' stages are left out, too; bios and their edges stay.
    """
    if detail == Detail.FULL:
        return window
    tables = window.requests, window.open_requests
    none = (np.zeros(len(table), dtype=np.bool_) for table in tables)
    bios = (np.ones(len(table), dtype=np.bool_) for table in (window.bios, window.open_bios))
    return restricted(window, next(bios), next(none), next(bios), next(none))
