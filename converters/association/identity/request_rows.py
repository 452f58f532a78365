# SPDX-License-Identifier: Apache-2.0
"""Events of requests by address, and what a rule can ask of an event and the one before it."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.identity.neighbours import Neighbours, Pairs
from biotrail.converters.association.identity.queued_between import queued_between
from biotrail.converters.events.array_steps import is_operation, same_operation
from biotrail.converters.events.context import PASSTHROUGH_OPS, Context
from biotrail.converters.events.sorting import is_in
from biotrail.converters.events.tables import OP_MASK, Bool
from biotrail.recorder.schema.records import Kind


@dataclass(frozen=True)
class Operations:
    """Numbers of the operations (REQ_OP_*) that have their own rules; -1: not in this kernel.

    zone_append: its C reports the sector that was written, not D's. discard: a request can hold
    several ranges that do not touch. passthrough: SCSI and driver commands, to which no bio is ever
    merged.
    """

    zone_append: int = -1
    discard: int = -1
    passthrough: tuple[int, ...] = ()

    @classmethod
    def of(cls, context: Context) -> "Operations":
        """Return the numbers that these operations have in the kernel that made the log."""
        own = tuple(context.op_number(name) for name in sorted(PASSTHROUGH_OPS))
        return cls(context.op_number("zone_append"), context.op_number("discard"), own)


@dataclass(frozen=True)
class RequestRows(Neighbours):
    """Events of requests (n,), sorted by request address, then time; a role is a record kind.

    operations: numbers of the operations that have their own rules.
    """

    operations: Operations


Requests = Pairs[RequestRows]


def other_sector(p: Requests) -> Bool:
    """Return, per pair (k,), whether the two events begin at different sectors."""
    return np.asarray(p.events.sector[p.this] != p.events.sector[p.prev], dtype=np.bool_)


def other_operation(p: Requests) -> Bool:
    """Return, per pair (k,), whether the two events differ in operation (REQ_OP)."""
    return ~same_operation(p.events.opf[p.this], p.events.opf[p.prev])


def other_bio(p: Requests) -> Bool:
    """Return, per pair (k,), whether the events name different head bios; both must name one."""
    bio, head = p.events.bio[p.this], p.events.bio[p.prev]
    return np.asarray((bio != head) & (bio != 0) & (head != 0), dtype=np.bool_)


def bio_queued_between(p: Requests) -> Bool:
    """Return, per pair (k,), whether the later event's bio was queued between the two events."""
    return queued_between(p.events, p.prev, p.this)


def flush_queued_between(p: Requests) -> Bool:
    """Return, per pair (k,), whether an event of no bytes follows one with data, of a newer bio."""
    rows = np.flatnonzero((p.events.bytes[p.this] == 0) & (p.events.bytes[p.prev] > 0))
    result = np.zeros(len(p.row), dtype=np.bool_)
    result[rows] = queued_between(p.events, p.prev[rows], p.this[rows])
    return result


def elsewhere_or_other_operation(p: Requests) -> Bool:
    """Return, per pair (k,), whether the events differ in first sector or operation."""
    return other_sector(p) | other_operation(p)


def issued_elsewhere(p: Requests) -> Bool:
    """Return, per pair (k,), whether the sectors differ; not for a C after a D without data."""
    without_data = (p.role == Kind.C) & (p.events.bytes[p.prev] == 0)
    return np.asarray(other_sector(p) & ~without_data, dtype=np.bool_)


def zone_append_completion(p: Requests) -> Bool:
    """Return, per pair (k,), whether the later event is the C of a zone append."""
    append = is_operation(p.events.opf[p.this], p.table.operations.zone_append)
    return np.asarray((p.role == Kind.C) & append, dtype=np.bool_)


def both_without_bio(p: Requests) -> Bool:
    """Return, per pair (k,), whether neither event names a bio."""
    return np.asarray((p.events.bio[p.this] == 0) & (p.events.bio[p.prev] == 0), dtype=np.bool_)


def one_without_bio(p: Requests) -> Bool:
    """Return, per pair (k,), whether exactly one of the events names a bio."""
    return np.asarray((p.events.bio[p.this] == 0) != (p.events.bio[p.prev] == 0), dtype=np.bool_)


def passthrough_of_other_size(p: Requests) -> Bool:
    """Return, per pair (k,), whether the sizes differ and the earlier event is a passthrough's."""
    operation = p.events.opf[p.prev] & OP_MASK
    resized = p.events.bytes[p.this] != p.events.bytes[p.prev]
    return np.asarray(resized & np.isin(operation, p.table.operations.passthrough), dtype=np.bool_)


def sectors_left_out(p: Requests) -> Bool:
    """Return, per pair (k,), whether the later event's range lacks some of the earlier one's."""
    return ~p.events.lie_within(p.prev, p.this)


def ends_earlier(p: Requests) -> Bool:
    """Return, per pair (k,), whether the later event's range ends before the earlier one's does."""
    return np.asarray(p.events.end(p.this) < p.events.end(p.prev), dtype=np.bool_)


def other_head_at_sector(p: Requests) -> Bool:
    """Return, per pair (k,), whether the events have one first sector and different head bios."""
    return ~other_sector(p) & other_bio(p)


def discard(p: Requests) -> Bool:
    """Return, per pair (k,), whether the later event is a discard's."""
    return is_operation(p.events.opf[p.this], p.table.operations.discard)


def joined_inside(p: Requests) -> Bool:
    """Return, per pair (k,), whether M or F does not join the earlier range at its border.

    That is: an M begins before the earlier event's end, or an F ends behind its first sector.
    """
    events = p.events
    back = (p.role == Kind.M) & (events.end(p.prev) > events.sector[p.this])
    return np.asarray(
        back | ((p.role == Kind.F) & (events.sector[p.prev] < events.end(p.this))), dtype=np.bool_
    )


def joined_beside(p: Requests) -> Bool:
    """Return, per M or F (k,), whether the next I, D or m covers it, and not the event before it.

    The next I, D or m is the row right behind the run of M and F at the same address; it has the
    request's whole range. False where another event, or none, is there, and where it is a discard.
    """
    table, events = p.table, p.events
    joins = is_in(table.role, Kind.M, Kind.F)
    # Index of the first row at or behind each row that is neither M nor F; n: none.
    count = len(table.event)
    behind = np.where(joins, count, np.arange(count))
    behind = np.minimum.accumulate(behind[::-1])[::-1][p.row]
    pair = np.flatnonzero(behind < count)
    row, behind = p.row[pair], behind[pair]
    same = events.rq[table.event[behind]] == events.rq[table.event[row]]
    same &= is_in(table.role[behind], Kind.I, Kind.D, Kind.RQ_MERGE)
    discard = is_operation(events.opf[table.event[behind]], table.operations.discard)
    pair, whole_event = pair[same & ~discard], table.event[behind[same & ~discard]]
    result = np.zeros(len(p.row), dtype=np.bool_)
    result[pair] = events.lie_within(p.this[pair], whole_event)
    result[pair] &= ~events.lie_within(p.prev[pair], whole_event)
    return result
