# SPDX-License-Identifier: Apache-2.0
"""Generations of kernel pointers (an address from one allocation to the next).

Bios and requests are reused within microseconds, so an address alone identifies neither. Rows (an
event that mentions an address, once per mention) are grouped by address in time order, and local
rules on neighbouring rows say where a new generation begins: `request_rules`, `completed_rules` and
`bio_rules`; docs/lifecycles.md shows them.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.sorting import is_in
from biotrail.converters.events.tables import I64, U8, U64, Bool

PARENT = 200
"""Role of the bio that an X names as the one it was split from (bi_private)."""
REST = 201
"""Role of the bio of an X that reports the remainder instead of the front piece (dm since 6.1)."""
EARLY_COMPLETE = 202
"""Role of the bio of a c that NVMe multipath reports just before the C of the bio's request."""


@dataclass(frozen=True)
class Generations:
    """Rows sorted by pointer, then time. A generation is a run of consecutive rows of one pointer.

    n rows, m generations; events are indices into the window's `Events`.
    pointer: (m,) address of each generation.
    row_event: (n,) event of each row.
    row_role: (n,) what the pointer is in that event: a record kind, PARENT, REST or EARLY_COMPLETE.
    row_slot: (n,) place of the bio in the chain of a D, 0 for the head and for any other role.
    row_gen: (n,) generation of each row.
    start: (m,) first row of each generation.
    again: (m,) number (`Events.number`) of the event with which the next generation of the same
    pointer begins, or -1: none so far.
    """

    pointer: U64
    row_event: I64
    row_role: U8
    row_slot: I64
    row_gen: I64
    start: I64
    again: I64
    _by_role: dict[tuple[bool, tuple[int, ...]], I64] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def superseded(self) -> Bool:
        """Per generation: whether a later one of its pointer was seen, so that it has ended."""
        return np.asarray(self.again >= 0, dtype=np.bool_)

    def first(self, *roles: int) -> I64:
        """Return each generation's first event with one of these roles, or -1. Read-only."""
        return self._by_roles(True, roles)

    def last(self, *roles: int) -> I64:
        """Return each generation's last event with one of these roles, or -1. Read-only."""
        return self._by_roles(False, roles)

    def _by_roles(self, first: bool, roles: tuple[int, ...]) -> I64:
        """Return, per generation (m,), its first or last event with one of these roles, or -1.

        Computed once for each set of roles; read-only.
        """
        event = self._by_role.get((first, roles))
        if event is None:
            rows = is_in(self.row_role, *roles)
            event = self.first_where(rows) if first else self.last_where(rows)
            event.flags.writeable = False
            self._by_role[first, roles] = event
        return event

    def first_where(self, rows: Bool) -> I64:
        """Return, per generation, the event of its first row in the mask (n,), or -1."""
        return self._pick(np.flatnonzero(rows)[::-1])

    def last_where(self, rows: Bool) -> I64:
        """Return, per generation, the event of its last row in the mask (n,), or -1."""
        return self._pick(np.flatnonzero(rows))

    def _pick(self, rows: I64) -> I64:
        """Return per generation the event of whichever of its `rows` comes last there, or -1."""
        picked = np.full(len(self), -1, dtype=np.int64)
        picked[self.row_gen[rows]] = self.row_event[rows]
        return picked

    def at(self, pointer: U64, event: I64) -> I64:
        """Return, per address and event (k,), its last generation that began before, or -1."""
        known, rank = np.unique(self.pointer, return_inverse=True)
        if not len(known):
            return np.full(len(pointer), -1, np.int64)
        width = int(max(event.max(initial=0), self.birth.max())) + 1
        keys = rank * width + self.birth
        by_birth = np.argsort(keys)
        place = np.searchsorted(known, pointer) * width + event
        found = by_birth[np.maximum(np.searchsorted(keys[by_birth], place) - 1, 0)]
        before = (self.pointer[found] == pointer) & (self.birth[found] < event)
        return np.where(before, found, -1)

    def count(self, rows: Bool) -> I64:
        """Return, per generation, how many of its rows are in the mask (n,)."""
        return self.total(rows.astype(np.int64))

    def total(self, values: I64) -> I64:
        """Return, per generation, the sum of `values` (n,) over its rows."""
        if not len(self):
            return np.zeros(0, np.int64)
        return np.add.reduceat(values, self.start)

    @property
    def birth(self) -> I64:
        """Per generation: event of its first row."""
        return self.row_event[self.start]

    @property
    def birth_role(self) -> U8:
        """Per generation: role of its first row."""
        return self.row_role[self.start]

    @property
    def ends(self) -> I64:
        """Per generation: one past its last row."""
        return np.append(self.start[1:], len(self.row_event)).astype(np.int64)

    @property
    def last_event(self) -> I64:
        """Per generation: event of its last row."""
        return self.row_event[self.ends - 1]


def build(
    events: Events, pointer: U64, event: I64, role: U8, slot: I64, begins: Bool, first: Bool
) -> Generations:
    """Return the generations of rows (n,) that are sorted by pointer, then time.

    pointer: (n,) address. event: (n,) index into `events`. role, slot: (n,), see Generations.
    begins: mask (n,) of the rows that begin a generation. first: mask (n,) of the first row of each
    pointer, which must be in `begins`. `again` of a generation is the event number of the row that
    begins the next one of its pointer, or -1.
    """
    start = np.flatnonzero(begins)
    gen = np.cumsum(begins) - 1
    again = np.full(len(start), -1, dtype=np.int64)
    follows = start[1:]
    again[:-1] = np.where(first[follows], -1, events.number[event[follows]])
    return Generations(pointer[start], event, role, slot, gen, start, again)
