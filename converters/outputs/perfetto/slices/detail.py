# SPDX-License-Identifier: Apache-2.0
"""Draw less of each bio, so that a browser holds more of a long log."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.calls.keys import rows_of
from biotrail.converters.calls.names import name_of_call
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    Bios,
    Bool,
    Certainty,
    Lifecycles,
    Requests,
    Stages,
    Tasks,
)
from biotrail.converters.lifecycles.windows import restricted
from biotrail.converters.outputs.perfetto.names import BIO, REQUEST, Colour, Detail, Interned
from biotrail.converters.outputs.perfetto.packets.callstacks import CallStacks
from biotrail.converters.outputs.perfetto.packets.columns import Slices
from biotrail.converters.outputs.perfetto.packets.ranking import Ranking
from biotrail.converters.outputs.perfetto.packets.texts import size_text
from biotrail.converters.outputs.perfetto.slices.slices import SliceMaker, requests_seen
from biotrail.converters.outputs.perfetto.slices.times import Seen, add_stages, seen_of
from biotrail.converters.outputs.perfetto.tracks.place import Place


class _LessMaker(SliceMaker):
    """What the makers below share."""

    def _doubts(self, slices: Slices, table: Bios | Requests) -> None:
        """Add to slices the certainty unless it is exact, and the status unless it is OK."""
        doubtful = table.certainty != Certainty.EXACT
        slices.text("certainty", np.where(doubtful, self._certainty(table), np.uint64(0)))
        slices.text("status", np.where(table.status != 0, self._status(table), np.uint64(0)))


@dataclass
class StandardMaker(_LessMaker):
    """Makes slices with all arguments of the slowest I/Os, and of others what is out of the usual.

    Arguments are most of a trace's bytes, and hardly any is ever read. The slowest are those of
    Ranking, and the requests that finished them.
    """

    _bios: Ranking = field(default_factory=Ranking)
    _requests: Ranking = field(default_factory=Ranking)
    _served: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Numbers of the requests that finished the window's chosen bios; -1: none did."""

    def bios(self, table: Bios, stages: Stages, tasks: Tasks) -> Slices:
        """Return a slice per bio of which any time is known, in the order of (start, number).

        As SliceMaker.bios, but bios that are not chosen have their `number` and the arguments of
        `_unusual` alone.
        """
        seen = seen_of(table, stages)
        slices, table = self._begin(BIO, table, seen)
        self._stacks(slices, table)
        add_stages(slices, stages, arguments=False)
        chosen, others = self._split(self._bios, slices, table)
        slices.uint("number", table.number, others)
        part, few = slices.part(chosen), table.take(chosen)
        self._served = few.request
        self._bio_arguments(part, few, tasks, seen)
        add_stages(part, stages, told=~few.doubtful)
        part.stages = None  # all bios have theirs
        slices.adopt(part, chosen)
        self._summaries(slices, table, tasks, others)
        self._unusual(slices, table, seen, others)
        return slices

    def _summaries(self, slices: Slices, table: Bios, tasks: Tasks, others: Bool) -> None:
        """Add to bios of `others` (n,) the argument `what`, where the path was recorded.

        It is one interned text, 7 bytes, of what else are three arguments: `4 KiB fio pread64`.
        Without the path it would take a trace of small random reads over 150 bytes a bio.
        """
        if self.path is None or not len(self.path.bios):
            return
        at = np.flatnonzero(others)
        few = table.take(at)
        row, known = rows_of(self.path.bios.number, few.number)
        paths = self.path.bios
        call = np.where(known, paths.call[row], NO_CALL)
        foreign = np.where(known, paths.foreign[row], False)
        key = np.stack([few.bytes.astype(np.int64), few.task.astype(np.int64), call, foreign])
        kinds, codes = np.unique(key, axis=1, return_inverse=True)
        texts = [self._summary(tasks, *kind) for kind in kinds.T.tolist()]
        ids = np.array([self.strings.id(text) if text else 0 for text in texts], dtype=np.uint64)
        part = slices.part(at)
        part.text("what", ids[codes.reshape(-1)])
        slices.adopt(part, at)

    def _summary(self, tasks: Tasks, size: int, task: int, call: int, foreign: int) -> str:
        """Return a bio's size, process and call in one text, without what is not known."""
        comm = str(tasks.comm[task]) if task >= 0 else ""
        name = "" if call == NO_CALL else name_of_call(call, bool(foreign), self.context.machine)
        return " ".join(filter(None, (size_text(size), comm, name)))

    def requests(self, table: Requests, stages: Stages) -> Slices:
        """Return a slice per request of which any time is known, in the order of (start, number).

        As SliceMaker.requests, but requests that are neither chosen nor finished a chosen bio of
        the last call of `bios` have no stages and the arguments of `_unusual` alone.
        """
        seen = requests_seen(table, stages)
        slices, table = self._begin(REQUEST, table, seen)
        chosen, others = self._split(self._requests, slices, table)
        others &= ~np.isin(table.number, self._served)
        chosen = np.flatnonzero(~others)
        part = slices.part(chosen)
        few = table.take(chosen)
        self._request_arguments(part, few, seen)
        add_stages(part, stages, told=~few.doubtful)
        slices.adopt(part, chosen)
        self._unusual(slices, table, seen, others)
        return slices

    def _split(self, ranking: Ranking, slices: Slices, table: Bios | Requests) -> tuple[I64, Bool]:
        """Return the indices of the slices with all arguments, and the mask of the others (n,)."""
        chosen = ranking.choose(slices, (table.status != 0) | table.doubtful)
        others = np.ones(len(slices), dtype=np.bool_)
        others[chosen] = False
        return chosen, others

    def _unusual(self, slices: Slices, table: Bios | Requests, seen: Seen, others: Bool) -> None:
        """Add to the slices of `others` (n,) what tells how an I/O is out of the usual.

        They are certainty (unless exact), status (unless OK), done_bytes (unless all), requeues,
        parent, a request's `bios` (unless 1), and those of `_marks`. table: per slice (n,) its bio
        or request. seen: per row of the table that the slices were made from.
        """
        short = (table.complete >= 0) & (table.done_bytes != table.bytes)
        several = np.asarray(table.bios != 1) if isinstance(table, Requests) else short
        odd = (table.certainty != Certainty.EXACT) | (table.status != 0) | (table.parent >= 0)
        odd |= short | several | (table.requeues > 0) | table.own | (table.complete == NEVER)
        odd |= (table.queue if isinstance(table, Bios) else table.start) == NEVER
        if self.place.host:
            odd[:] = True
        at = np.flatnonzero(odd & others)
        part, few = slices.part(at), table.take(at)
        self._doubts(part, few)
        part.uint("parent", few.parent, few.parent >= 0)
        part.uint("done_bytes", few.done_bytes, short[at])
        part.uint("requeues", few.requeues, few.requeues > 0)
        if isinstance(few, Requests):
            part.uint("bios", few.bios, few.bios != 1)
        self._marks(part, few, seen)
        slices.adopt(part, at)


@dataclass
class SparseMaker(_LessMaker):
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
        slices, table = self._begin(BIO, table, seen)
        self._doubts(slices, table)
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

    That is a SparseMaker for STAGES, with stages, and for BIOS. names, strings:
    event names and text arguments interned so far, to which new ones are added. stacks: the log's
    call stacks. place: where the log stands in the trace. colour: which slices share a correlation
    id.
    """
    parts = context, names, strings, stacks, place, colour
    if detail == Detail.FULL:
        return SliceMaker(*parts)
    if detail == Detail.STANDARD:
        return StandardMaker(*parts)
    return SparseMaker(*parts, stages=detail == Detail.STAGES)


def drawn_with(detail: Detail, window: Lifecycles) -> Lifecycles:
    """Return the window without its requests if `detail` has none, else the window itself.

    Requests in flight and requests' stages are left out, too; bios and their edges stay.
    """
    if detail.requests:
        return window
    tables = window.requests, window.open_requests
    none = (np.zeros(len(table), dtype=np.bool_) for table in tables)
    bios = (np.ones(len(table), dtype=np.bool_) for table in (window.bios, window.open_bios))
    return restricted(window, next(bios), next(none), next(bios), next(none))
