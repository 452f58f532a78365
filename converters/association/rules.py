# SPDX-License-Identifier: Apache-2.0
"""What a rule of association is: a named entry of a table, with its reason and its proof.

The tables of docs/lifecycles.md are generated from these entries, the proof's seeded bugs name them
(tests/prove/mutant_list.py), and a unit test drops each of them in turn.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from biotrail.converters.events.tables import Bool

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class Exemption(Generic[Rows]):
    """Rows that a rule leaves out.

    name: unique among the exemptions of its rule. holds: rows → mask (n,) of those left out.
    says: the condition in words, as docs/lifecycles.md shows it.
    """

    name: str
    holds: Callable[[Rows], Bool]
    says: str


@dataclass(frozen=True)
class Rule(Generic[Rows]):
    """One rule: a predicate on the columns of some rows.

    name: unique in its table. holds: rows → mask (n,) of the rows that the rule marks, but for the
    exemptions. says: the condition in words. why: the kernel's reason, with its function, and its
    version where kernels differ. needed_by: what fails without the rule: `seed N`, a generated
    history (tests/simulation); `case`, the rule's own one in test_rules.py; or a test's id. unless:
    exemptions.
    """

    name: str
    holds: Callable[[Rows], Bool]
    says: str
    why: str
    needed_by: str
    unless: tuple[Exemption[Rows], ...] = ()

    def marks(self, rows: Rows) -> Bool:
        """Return the mask (n,) of the rows that the rule marks: where it holds, no exemption does.

        rows: the columns that `holds` takes, n rows.
        """
        mask = self.holds(rows)
        for exemption in self.unless:
            mask = mask & ~exemption.holds(rows)
        return mask


def any_marks(rules: Iterable[Rule[Rows]], rows: Rows, count: int) -> Bool:
    """Return the mask (count,) of the rows that at least one of the rules marks."""
    mask = np.zeros(count, dtype=np.bool_)
    for rule in rules:
        mask |= rule.marks(rows)
    return mask


def all_mark(rules: Iterable[Rule[Rows]], rows: Rows, count: int) -> Bool:
    """Return the mask (count,) of the rows that each of the rules marks; all True without rules."""
    mask = np.ones(count, dtype=np.bool_)
    for rule in rules:
        mask &= rule.marks(rows)
    return mask
