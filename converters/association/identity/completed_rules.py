# SPDX-License-Identifier: Apache-2.0
"""Which C and R behind a C are of a later request at the same address: the rules.

blk_update_request reports each part of a partial completion by a C, so more C follow until the
bytes of the last D (without one, of the last s or I) are completed. A flush sequence (blk-flush.c)
adds a C of no bytes for the same bio.
"""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.identity.queued_between import queued_between
from biotrail.converters.association.identity.request_rows import RequestRows
from biotrail.converters.association.rules import Rule, any_marks
from biotrail.converters.events.array_steps import latest_marked, same_operation
from biotrail.converters.events.events import Events
from biotrail.converters.events.sorting import is_in
from biotrail.converters.events.tables import I64, SECTOR_BYTES, U8, Bool
from biotrail.recorder.schema.records import Kind


@dataclass(frozen=True)
class Completed:
    """C and R (k,) that follow a C, E or d of their address and do not begin a generation yet.

    this: event. kind: record kind. last_c: event of the C before, at the same address or an
    earlier one. has_c: whether that C is of the same generation. begun: bytes of the generation's
    last D, else of its last s or I; -1: none of them was recorded. done: bytes completed since.
    """

    events: Events
    this: I64
    kind: U8
    last_c: I64
    has_c: Bool
    begun: I64
    done: I64

    @property
    def empty(self) -> Bool:
        """Per row (k,): whether it is a C of no bytes."""
        return np.asarray(
            (self.kind == Kind.C) & (self.events.bytes[self.this] == 0), dtype=np.bool_
        )

    @property
    def elsewhere(self) -> Bool:
        """Per row (k,): whether it does not begin where the C before, of its generation, ended.

        blk_update_request advances the request by the bytes of each C. False where the generation
        has no C before.
        """
        size = (self.events.bytes[self.last_c] // SECTOR_BYTES).astype(np.uint64)
        stop = self.events.sector[self.last_c] + size
        return np.asarray((self.events.sector[self.this] != stop) & self.has_c, dtype=np.bool_)

    @property
    def other_sector(self) -> Bool:
        """Per row (k,): whether its first sector differs from that of the C before."""
        return np.asarray(
            self.events.sector[self.this] != self.events.sector[self.last_c], dtype=np.bool_
        )

    @property
    def other_bio(self) -> Bool:
        """Per row (k,): whether it and the C before name different bios; both must name one."""
        bio, old = self.events.bio[self.this], self.events.bio[self.last_c]
        return np.asarray((bio != old) & (bio != 0) & (old != 0), dtype=np.bool_)

    @property
    def other_operation(self) -> Bool:
        """Per row (k,): whether it and the C before differ in operation (REQ_OP)."""
        return ~same_operation(self.events.opf[self.this], self.events.opf[self.last_c])


COMPLETED_RULES: tuple[Rule[Completed], ...] = (
    Rule(
        "no-completion-yet",
        lambda rows: ~rows.has_c,
        "`E` or `d`, with no `C` of the request before",
        "these come with or after a `C`: the request began in between",
        "case",
    ),
    Rule(
        "completed-in-full",
        lambda rows: ~rows.empty & (rows.begun >= 0) & (rows.done >= rows.begun),
        "`C`, when the bytes of the last issue (or start) are complete",
        "after a partial completion the request goes on, after a full one it does not "
        "(blk_update_request)",
        "case",
    ),
    Rule(
        "not-where-completion-ended",
        lambda rows: ~rows.empty & rows.elsewhere,
        "`C`, which did not end where this one begins",
        "blk_update_request advances the request by the bytes of each `C`",
        "case",
    ),
    Rule(
        "second-empty-completion",
        lambda rows: rows.empty & (rows.events.bytes[rows.last_c] == 0),
        "of no bytes: `C` of no bytes",
        "a flush sequence has one such end (blk_flush_complete_seq)",
        "case",
    ),
    Rule(
        "empty-of-other-bio",
        lambda rows: rows.empty & rows.other_bio,
        "of no bytes: `C` of another bio",
        "the end of a flush sequence is of the bio of its data",
        "case",
    ),
    Rule(
        "empty-of-other-operation",
        lambda rows: rows.empty & rows.other_operation,
        "of no bytes: `C` of another operation",
        "likewise",
        "case",
    ),
    Rule(
        "empty-elsewhere",
        lambda rows: rows.empty & rows.elsewhere & rows.other_sector,
        "of no bytes: `C`, neither at its begin nor at its end",
        "likewise",
        "case",
    ),
    Rule(
        "queued-since-completion",
        lambda rows: queued_between(rows.events, rows.last_c, rows.this),
        "`C`, when its bio was queued in between",
        "likewise",
        "case",
    ),
)


def begins_after_completion(table: RequestRows, begins: Bool) -> Bool:
    """Return the mask (n,) of the table's C and R that `COMPLETED_RULES` mark.

    Asked about are those whose row before, at their address, is a C, E or d. begins: (n,) rows that
    begin a generation by other rules, which are not asked about.
    """
    events, kind = table.events, table.role
    result = np.zeros(len(kind), dtype=np.bool_)
    asked = is_in(table.before, Kind.C, Kind.E, Kind.DONE) & is_in(kind, Kind.C, Kind.R) & ~begins
    row = np.flatnonzero(asked)
    if not len(row):
        return result
    start_row = latest_marked(begins)[row]
    # The row with the length to complete: the last D of the generation, else its last s or I.
    sized_row = latest_marked(is_in(kind, Kind.D, Kind.START, Kind.I))[row]
    issue_row = latest_marked(kind == Kind.D)[row]
    sized_row = np.where(issue_row >= start_row, issue_row, sized_row)
    last_c_row = latest_marked(kind == Kind.C)[row - 1]
    size = events.bytes[table.event]
    completed = np.cumsum(np.where(kind == Kind.C, size, 0))
    done = completed[row - 1] - completed[np.maximum(sized_row, 0)]
    rows = Completed(
        events,
        table.event[row],
        kind[row],
        table.event[np.maximum(last_c_row, 0)],
        last_c_row >= start_row,
        np.where(sized_row >= start_row, size[np.maximum(sized_row, 0)], -1),
        done,
    )
    result[row] = any_marks(COMPLETED_RULES, rows, len(row))
    return result
