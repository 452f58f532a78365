# SPDX-License-Identifier: Apache-2.0
"""Tables built from an association: one row per bio and request, with times and certainty."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from biotrail.converters.association.completion.carry_over import Kept, keep, named_events
from biotrail.converters.association.completion.completion import (
    RequestEnds,
    bios_left_out,
    times,
)
from biotrail.converters.association.completion.end_bounds import ends_between
from biotrail.converters.association.completion.families import Whole, wholes
from biotrail.converters.association.identity.absorptions import request_before_merge
from biotrail.converters.association.identity.address_reuse import (
    ReusedAddresses,
    ReusedGenerations,
)
from biotrail.converters.association.identity.association import Association
from biotrail.converters.association.identity.generations import Generations
from biotrail.converters.association.steps import associate
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.files import files_of
from biotrail.converters.events.plain_events import Owners, PlainEvents
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    U16,
    Bios,
    Bool,
    Certainty,
    Edges,
    RequestKind,
    Requests,
)
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.lifecycles.certainties import (
    bio_certainty,
    fronts_elsewhere,
    latency_doubtful,
    may_flush,
    request_certainty,
)
from biotrail.converters.lifecycles.histories import histories
from biotrail.converters.lifecycles.milestones import Milestones, milestones
from biotrail.converters.lifecycles.operations import request_kinds
from biotrail.converters.lifecycles.own_io import Own, own_events, own_io
from biotrail.converters.lifecycles.path import path_tables
from biotrail.converters.lifecycles.request_devices import RequestDevices
from biotrail.converters.lifecycles.result import Histories, Result
from biotrail.converters.lifecycles.stages import bio_stages, request_stages
from biotrail.converters.lifecycles.submitters import Submitters
from biotrail.recorder.schema.records import NO_TAG, Kind

if TYPE_CHECKING:
    from biotrail.converters.lifecycles.account import Account

FIRST_UNRECORDED = 1 << 62
"""Numbers of bios whose beginning is not in the log start here."""
_SLOTS = 1 << 12
"""Numbers reserved per event for such bios: one event can name several."""


T = TypeVar("T", Bios, Requests)


@dataclass(kw_only=True)
class Modelled(Result):
    """One window that was associated by the column model.

    `kept` marks what the next window must contain again.
    """

    association: Association
    kept: Kept
    own: Own
    bio_number: I64
    """Per bio generation of the association: `Bios.number` of its whole bio."""
    request_number: I64
    """Per request generation of the association: `Requests.number`."""
    plain: PlainEvents | None = None
    """Events of plain I/O that was settled before the association, which does not have them."""

    def carried(self) -> Events:
        """Return the events that the next window must have again; a copy."""
        return self.association.events.take(self.kept.events)

    @property
    def has_own(self) -> bool:
        """As `Result.has_own`."""
        return bool(self.own)

    def count_events(self, account: "Account", begin: int, own_io: bool) -> None:
        """Add the events that no later window has, as `Result.count_events`."""
        if self.plain is not None:
            account.add_plain(self.plain, begin)
        events = self.association.events
        done = ~self.kept.events & (events.ts >= begin)
        used = named_events(self.association)[done]
        own = own_events(self)[done] & (not own_io)
        account.add_events(events.take(done), used & ~own, own)

    def own_numbers(self) -> tuple[I64, I64]:
        """As `Result.own_numbers`."""
        a = self.association
        # An own request that was not issued yet may still get bios of others by a merge. Whose
        # an absorbed request was is known once the absorbing request is issued.
        absorbed = (a.requests.first(Kind.RQ_MERGE) >= 0) & (a.absorbed_by < 0)
        open_ended = (self.own.requests & (a.requests.first(Kind.D) < 0)) | absorbed
        open_ended &= self.kept.requests
        doubtful = a.requests.row_event[open_ended[a.requests.row_gen]]
        return a.events.number[own_events(self)], np.unique(a.events.number[doubtful])

    def _generations(self, kind: str) -> tuple[Generations, Bool, I64]:
        """Return (generations of addresses, mask of those that go on, number of each one)."""
        if kind == "request":
            return self.association.requests, self.kept.requests, self.request_number
        return self.association.bios, self.kept.bios, self.bio_number

    def owners(self, kind: str) -> Owners:
        """As `Result.owners`."""
        generations, kept, number = self._generations(kind)
        none = np.zeros(0, np.int64)
        found = [Owners(none.astype(np.uint64), none, none, none)]
        if len(generations):
            ts = self.association.events.ts
            first, last = ts[generations.birth], ts[generations.last_event]
            modelled = Owners(generations.pointer, first, last, number)
            found.append(modelled.take(~kept & (number != NEVER)))
        return Owners.concatenate(found)

    def open_since(self, kind: str) -> int:
        """As `Result.open_since`."""
        generations, kept, _ = self._generations(kind)
        if not kept.any():
            return int(np.iinfo(np.int64).max)
        return int(self.association.events.ts[generations.birth[kept]].min())

    def histories(self, bios: I64) -> tuple[Histories, Events]:
        """As `Result.histories`."""
        return histories(self, bios)


class Builder:
    """Builder of one log's tables, window after window, in order.

    Between windows it keeps since when each device is known to be request-based, and what is
    known of the reuse of addresses of bios and requests that are kept.
    """

    def __init__(self, context: Context, tasks: TaskNames, stacks: StackNames) -> None:
        """Keep the header's facts, and the tables of names that window after window fills.

        tasks, stacks: those of the Trace, which adds a window's names to `tasks` before `build`.
        """
        self._context = context
        self._tasks = tasks
        self._submitters = Submitters(tasks, stacks)
        self.reused = ReusedAddresses()
        """What is known of the reuse of addresses that the next window's events have."""
        self._reused_at: dict[int, int] = {}
        """Number of the event of such a reuse → its time (ns)."""
        self.request_devices = RequestDevices(context)

    def build(self, events: Events, *, settled: int, final: bool) -> Modelled:
        """Associate one window (a stretch of the log's events) and return its tables.

        events: those that the previous result kept and the new ones, sorted by time. settled: ns;
        bios and requests that ended, with all events before it, are closed; others, and what is
        linked to them, are kept. final: nothing is kept, and all that is open is closed. Certainty
        is that before loss windows are considered. Call it for each window, in order: what is known
        of the reuse of addresses, and which devices are request-based, is remembered.
        """
        associated = associate(events, self._context, self.reused)
        a, ends = associated.association, associated.requests
        whole = wholes(a, associated.pieces, ends.requeues)
        kept = keep(a, ends, whole, settled=settled, final=final)
        self.reused = ReusedAddresses(
            ReusedGenerations.among(events, a.bios, kept.bios),
            ReusedGenerations.among(events, a.requests, kept.requests),
        )
        again = np.concatenate([self.reused.bios.again, self.reused.requests.again])
        at = self._times_of(again, events)
        m = milestones(a, ends, whole)
        own = own_io(a, whole, ends)
        number, family = _numbers(a, whole)
        request_number = _request_numbers(a)
        bios = self._bios(a, whole, m, number, family, request_number)
        bios.certainty[:] = bio_certainty(a, ends, whole, m, self._context)
        # The bio completed after the parts split off its front, whose requests no event names.
        request_based = self.request_devices.make_requests(a, whole)
        hidden = fronts_elsewhere(a, whole) & request_based
        bios.certainty[hidden & (bios.certainty < Certainty.AMBIGUOUS)] = Certainty.LOST
        requests = self._requests(a, ends, whole, family, request_number)
        self._reused_at = dict(zip(again.tolist(), at.tolist(), strict=True))
        bios.own[:], requests.own[:] = own.bios[whole.gen], own.requests
        bio_open = kept.bios[whole.gen]
        rows, open_rows = _in_order(number, ~bio_open), _in_order(number, bio_open)
        request_rows = _in_order(request_number, ~kept.requests)
        closed = np.where(kept.requests, -1, request_number)
        flush_bio = (ends.total <= 0) & (ends.done == 0) & (requests.kind == RequestKind.NORMAL)
        flush_bio &= may_flush(requests.opf, self._context)
        return Modelled(
            association=a,
            kept=kept,
            own=own,
            bios=bios.take(rows),
            requests=requests.take(request_rows),
            edges=_edges(a, whole, number, request_number, ~bio_open),
            open_bios=_going_on(bios.take(open_rows)),
            open_requests=_going_on(requests.take(_in_order(request_number, kept.requests))),
            bio_stages=bio_stages(a, self._context, whole, m, request_based, number, rows),
            request_stages=request_stages(
                a, ends, requests.start, flush_bio, request_number, request_rows
            ),
            bio_number=number[whole.row_of_gen] if len(number) else number,
            request_number=request_number,
            path=path_tables(
                a, self._tasks, whole, number, rows, open_rows, closed, ends, requests
            ),
        )

    def _gone_bios(self, a: Association, whole: Whole, m: Milestones) -> I64:
        """Return `Bios.gone`: the reuse of a bio's address or, of one piece, of its request's.

        The earlier of the two, as the bio may be closed before the other one is known.
        """
        again = a.bios.again[whole.gen]
        if len(a.requests):
            reused = np.where(a.requests.first(Kind.RQ_MERGE) < 0, a.requests.again, -1)
            reused = take_or(reused, np.where(whole.fragments == 1, m.request, -1), -1)
            earlier = (reused >= 0) & ((again < 0) | (reused < again))
            again = np.where(earlier, reused, again)
        return self._times_of(np.where(whole.complete, -1, again), a.events)

    def _gone_requests(self, a: Association, whole: Whole, ends: RequestEnds) -> I64:
        """Return `Requests.gone`: the reuse of a request's address or of all its bios'.

        The earlier of the two, as the request may be closed before the other one is known.
        """
        again = a.requests.again
        pieces = np.flatnonzero(a.request >= 0)
        if len(pieces):
            bio = whole.row_of_gen[pieces]
            reused = np.where(whole.complete, -1, a.bios.again[whole.gen])[bio]
            never = np.iinfo(np.int64).max
            all_over = np.full(len(again), -1)
            np.maximum.at(all_over, a.request[pieces], np.where(reused < 0, never, reused))
            known = (all_over >= 0) & (all_over != never)
            again = np.where(known & ((again < 0) | (all_over < again)), all_over, again)
        open_ = (ends.end < 0) & (a.requests.first(Kind.RQ_MERGE) < 0)
        return self._times_of(np.where(open_, again, -1), a.events)

    def _times_of(self, numbers: I64, events: Events) -> I64:
        """Return the times (ns) of events of this or an earlier window; NEVER for number -1."""
        found = np.full(len(numbers), NEVER, np.int64)
        rows = np.flatnonzero(numbers >= 0)
        if len(rows):
            order = np.argsort(events.number, kind="stable")
            at = np.searchsorted(events.number[order], numbers[rows])
            place = order[np.minimum(at, len(order) - 1)]
            here = events.number[place] == numbers[rows]
            earlier = [self._reused_at.get(n, NEVER) for n in numbers[rows].tolist()]
            found[rows] = np.where(here, events.ts[place], earlier)
        return found

    def _bios(
        self,
        a: Association,
        whole: Whole,
        m: Milestones,
        number: I64,
        family: I64,
        request_number: I64,
    ) -> Bios:
        """Return one row per queued bio (row of `whole`), with certainty and own 0, cut NEVER.

        m, number, family: per row, its times, `Bios.number` and `Bios.family`. request_number:
        `Requests.number` by request generation (one use of a request's address), as `m.request`
        indexes it. A size that is not known becomes 0.
        """
        gen = whole.gen
        queued = a.bios.first(Kind.Q)[gen]
        upper = a.upper[gen]
        above = take_or(whole.row_of_gen, upper, -1)
        return Bios(
            number=number,
            dev=a.facts.dev[gen],
            sector=a.facts.sector[gen],
            bytes=np.maximum(a.facts.bytes[gen], 0).astype(np.uint32),
            opf=a.facts.opf[gen],
            **self._submitters.columns(a.events, queued, m.queue, a.facts.dev[gen]),
            file=files_of(a.events, queued, above),
            queue=m.queue,
            getrq=m.getrq,
            merge=m.merge,
            insert=m.insert,
            issue=m.issue,
            complete=m.complete,
            gone=self._gone_bios(a, whole, m),
            fragments=whole.fragments,
            requests=whole.requests,
            requeues=whole.requeues,
            status=whole.status,
            done_bytes=whole.good.astype(np.uint32),
            request=_numbers_at(request_number, m.request),
            parent=_numbers_at(number, above),
            family=family,
            certainty=np.zeros(len(gen), np.uint8),
            doubtful=latency_doubtful(m.queue, whole.bounds, whole.certainty),
            own=np.zeros(len(gen), np.bool_),
            cut=np.full(len(gen), NEVER, np.int64),
        )

    def _requests(
        self, a: Association, ends: RequestEnds, whole: Whole, family: I64, number: I64
    ) -> Requests:
        """Return one row per request generation (one use of an address); own False, cut NEVER.

        family: `Bios.family` per queued bio (row of `whole`). number: `Requests.number` per
        request. dev, sector, bytes and opf are those of the first D, without one of the first
        event; `sched_tag` and `hctx` are the first D's, `tag` and `others` the last D's. Also
        requests that were absorbed have a row.
        """
        r, events = a.requests, a.events
        bio = np.flatnonzero(a.request >= 0)
        first = np.full(len(r), -1, dtype=np.int64)
        first[a.request[bio][::-1]] = whole.row_of_gen[bio][::-1]
        event = np.where(ends.issue >= 0, ends.issue, r.birth if len(r) else ends.issue)
        opf = events.opf[event] if len(r) else np.zeros(0, np.uint32)
        sector = events.sector[event] if len(r) else np.zeros(0, np.uint64)
        start = _starts(a, ends)
        certainty = request_certainty(a, ends, ~may_flush(opf, self._context))
        return Requests(
            number=number,
            dev=events.dev[event] if len(r) else np.zeros(0, np.uint32),
            sector=sector,
            bytes=(events.bytes[event] if len(r) else np.zeros(0, np.int64)).astype(np.uint32),
            opf=opf,
            tag=_tags(a, ends.last_issue, "tag"),
            sched_tag=_tags(a, ends.issue, "sched_tag"),
            hctx=_tags(a, ends.issue, "hctx"),
            start=start,
            insert=times(a, ends.insert),
            issue=times(a, ends.issue),
            complete=times(a, ends.end),
            gone=self._gone_requests(a, whole, ends),
            bios=np.bincount(a.request[bio], minlength=len(r)).astype(np.uint32),
            others=bios_left_out(a, ends.last_issue),
            requeues=ends.requeues.astype(np.uint32),
            status=ends.status,
            done_bytes=np.clip(ends.good, 0, 0xFFFFFFFF).astype(np.uint32),
            kind=request_kinds(opf, sector, self._context),
            absorbed_by=_numbers_at(number, a.absorbed_by),
            parent=_numbers_at(number, a.above),
            family=_request_families(a, first, family, number),
            certainty=certainty,
            doubtful=latency_doubtful(start, ends_between(a, ends.end), certainty),
            own=np.zeros(len(r), np.bool_),
            cut=np.full(len(r), NEVER, np.int64),
        )


def _going_on(table: T) -> T:
    """Return rows that are kept: whether they ended, and by when, is known when they are closed."""
    table.gone[:] = NEVER
    return table


def _numbers(a: Association, whole: Whole) -> tuple[I64, I64]:
    """Return (number, family) of each queued bio (row of `whole`), int64 each, as in `Bios`.

    number: index in the log of the bio's first event, if it is a Q, A or X. Else the beginning was
    not recorded: FIRST_UNRECORDED + _SLOTS times that event's index, plus the bio's place in the
    chain that a D lists (0 for other events). family: number of the topmost known upper device's
    bio that it works for; its own number if it has no parent.
    """
    birth = a.bios.birth[whole.gen] if len(whole.gen) else whole.gen
    number = a.events.number[birth] if len(whole.gen) else whole.gen
    role = a.bios.birth_role[whole.gen] if len(whole.gen) else np.zeros(0, np.uint8)
    begin_recorded = (role == Kind.Q) | (role == Kind.A) | (role == Kind.X)
    slot = a.bios.row_slot[a.bios.start[whole.gen]] if len(whole.gen) else whole.gen
    number = np.where(begin_recorded, number, FIRST_UNRECORDED + number * _SLOTS + slot)
    upper = a.upper[whole.gen]
    top = np.where(upper >= 0, whole.row_of_gen[np.maximum(upper, 0)], np.arange(len(number)))
    for _ in range(64):  # deeper stacks than any kernel allows
        further = top[top]
        if (further == top).all():
            break
        top = further
    return number.astype(np.int64), number[top].astype(np.int64)


def _request_numbers(a: Association) -> I64:
    """Return the number of each request generation: that of its first event."""
    return a.events.number[a.requests.birth] if len(a.requests) else np.zeros(0, np.int64)


def _request_families(a: Association, first: I64, family: I64, number: I64) -> I64:
    """Return per request the family of its first bio, int64; with a parent, of the parent's first.

    A parent is the upper device's request (`a.above`, request-based dm; one level up), and hides
    the request's own bios. first: per request, row of its first bio in `family`, -1 none. family:
    per queued bio, `Bios.family`. number: per request; if there is no such bio, the number of the
    parent, or of the request itself, stands for the family.
    """
    top = np.where(a.above >= 0, a.above, np.arange(len(number)))
    first = first[top]
    known = family[np.maximum(first, 0)] if len(family) else first
    return np.where(first >= 0, known, number[top]).astype(np.int64)


def _numbers_at(number: I64, row: I64) -> I64:
    """Return number[row], int64; NEVER where the row is -1.

    number: number of each bio or request. row: indices into `number`, or -1.
    """
    return take_or(number, row, NEVER)


def _tags(a: Association, index: I64, name: str) -> U16:
    """Return field `name` of each D (event index); NO_TAG where `index` is -1."""
    if not len(a.events):
        return np.zeros(len(index), np.uint16)
    values = a.events.field(Kind.D, name, np.maximum(index, 0))
    return np.where(index >= 0, values, NO_TAG).astype(np.uint16)


def _starts(a: Association, ends: RequestEnds) -> I64:
    """Return the start (ns, int64) of each request: its s, else its first event or an earlier G.

    The G is the earliest first one among its bios, without those that came with an absorbed
    request.
    """
    birth = times(a, a.requests.birth) if len(a.requests) else np.zeros(0, np.int64)
    got = a.bios.first(Kind.G)
    own = (a.request >= 0) & (got >= 0)
    if (a.absorbed_by >= 0).any():
        own &= request_before_merge(a) < 0
    bio = np.flatnonzero(own)
    allocated = np.full(len(a.requests), np.iinfo(np.int64).max)
    np.minimum.at(allocated, a.request[bio], a.events.ts[got[bio]])
    start = np.where(ends.started >= 0, times(a, ends.started), np.minimum(birth, allocated))
    return start.astype(np.int64)


def _in_order(number: I64, rows: Bool) -> I64:
    """Return the indices of the mask's rows, sorted by number."""
    chosen = np.flatnonzero(rows)
    return chosen[np.argsort(number[chosen])]


def _edges(a: Association, whole: Whole, number: I64, request_number: I64, rows: Bool) -> Edges:
    """Return the edges of the queued bios in the mask `rows`: one per piece that has a request.

    A bio that was not split is its own piece. Edges are in the order of the pieces' generations,
    not of numbers; sector and bytes are the piece's (unknown bytes 0), certainty is that of the
    link. number: `Bios.number` per row of `whole`, as `rows`. request_number: `Requests.number` per
    request generation (one use of an address).
    """
    piece = np.flatnonzero(a.request >= 0)
    piece = piece[rows[whole.row_of_gen[piece]]] if len(rows) else piece
    row = whole.row_of_gen[piece]
    return Edges(
        bio=number[row] if len(number) else piece,
        request=request_number[a.request[piece]] if len(request_number) else piece,
        sector=a.facts.piece_sector[piece],
        bytes=np.maximum(a.facts.piece_bytes[piece], 0).astype(np.uint32),
        certainty=a.certainty[piece],
    )
