# SPDX-License-Identifier: Apache-2.0
"""Rules on neighbouring rows of one address: whether the later row begins another generation.

An address is reused as soon as its bio or request is freed; a generation is one use of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Generic, TypeVar

import numpy as np

from biotrail.converters.association.rules import Rule
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, U8, U16, Bool


@dataclass(frozen=True)
class Roles:
    """A set of roles: record kinds (Kind), or what else an address can be in an event.

    others: the set holds all other roles instead. 0 is the role before the first row of an address.
    """

    members: frozenset[int]
    others: bool = False

    def table(self) -> Bool:
        """Return (256,) whether the set holds each role number."""
        is_member = np.zeros(256, dtype=np.bool_)
        is_member[list(self.members)] = True
        return ~is_member if self.others else is_member


def of(*roles: int) -> Roles:
    """Return the set of these roles."""
    return Roles(frozenset(roles))


def but(*roles: int) -> Roles:
    """Return the set of all roles but these."""
    return Roles(frozenset(roles), others=True)


ANY = but()
"""Every role; as the role before, also 0: the first row of an address."""


@cache
def _chosen(roles: Roles, after: Roles) -> Bool:
    """Return (65536,) whether a row is chosen, by the role before it << 8 | its own role."""
    return np.outer(after.table(), roles.table()).ravel()


@dataclass(frozen=True)
class Neighbours:
    """Rows (n,) sorted by address, then time, each an event that mentions the address.

    event: index into `events`. role: what the address is in the event, a record kind for most.
    before: role of the row before at the same address, 0 at the first row of an address.
    """

    events: Events
    event: I64
    role: U8
    before: U8

    @cached_property
    def _code(self) -> U16:
        """Per row (n,): role of the row before << 8 | role, uint16."""
        return self.before.astype(np.uint16) << np.uint16(8) | self.role

    @cached_property
    def _rows(self) -> dict[tuple[Roles, Roles], I64]:
        """Row indices that `rows` has returned, by its arguments."""
        return {}

    def rows(self, roles: Roles, after: Roles) -> I64:
        """Return the rows (indices, ascending) in `roles` whose row before is in `after`, int64.

        Kept for the next call with these arguments, so not to be changed.
        """
        row = self._rows.get((roles, after))
        if row is None:
            row = np.flatnonzero(_chosen(roles, after)[self._code])
            self._rows[roles, after] = row
        return row


Table = TypeVar("Table", bound=Neighbours)


@dataclass(frozen=True)
class Pairs(Generic[Table]):
    """Pairs of neighbours (k,): a row of the table that a rule is asked about, and the row before.

    table: all rows. row: index of the later row of each pair.
    """

    table: Table
    row: I64

    @property
    def events(self) -> Events:
        """The window's events."""
        return self.table.events

    @cached_property
    def this(self) -> I64:
        """Per pair: event of the later row."""
        return self.table.event[self.row]

    @cached_property
    def prev(self) -> I64:
        """Per pair: event of the row before; meaningless where the address has none."""
        return self.table.event[self.row - 1]

    @property
    def role(self) -> U8:
        """Per pair: role of the later row."""
        return self.table.role[self.row]

    @property
    def before(self) -> U8:
        """Per pair: role of the row before."""
        return self.table.before[self.row]


def always(pairs: Pairs[Table]) -> Bool:
    """Return True for every pair (k,): the roles alone decide."""
    return np.ones(len(pairs.row), dtype=np.bool_)


@dataclass(frozen=True)
class NeighbourRule(Rule[Pairs[Table]]):
    """A rule on pairs of neighbours; a row that it marks begins a generation.

    roles: roles of the later row. after: roles of the row before. `holds` gets the pairs of these
    roles alone.
    """

    roles: Roles = ANY
    after: Roles = ANY


def begins_by(rules: Iterable[NeighbourRule[Table]], table: Table) -> Bool:
    """Return the mask (n,) of the table's rows that at least one rule marks.

    A rule marks rows of its `roles` whose row before is in `after`, where it holds and none of its
    own exemptions does; these are asked about such rows alone. The first row of an address is not
    marked as such.
    """
    begins = np.zeros(len(table.event), dtype=np.bool_)
    for rule in rules:
        rows = table.rows(rule.roles, rule.after)
        if len(rows):
            rows = rows[rule.holds(Pairs(table, rows))]
        for exemption in rule.unless if len(rows) else ():
            rows = rows[~exemption.holds(Pairs(table, rows))]
        begins[rows] = True
    return begins
