# SPDX-License-Identifier: Apache-2.0
"""State in a few sentences what a report shows: where time goes, for whom, and what to check next.

Each sentence is a rule's (verdict_rules); a rule whose condition does not hold yields no sentence.
"""

from dataclasses import dataclass
from typing import Any

from biotrail.converters.analysis.report.tree.tree import Report
from biotrail.text import units
from biotrail.text.report.verdict_rules import RULES

SHOWN = 3
"""Most sentences in text and on a page; the JSON has all."""


@dataclass(frozen=True)
class Sentence:
    """One finding. next: what to look at; figures: the numbers that the text states."""

    rule: str
    text: str
    next: str
    figures: dict[str, Any]


def verdict(report: Report) -> list[Sentence]:
    """Return the sentences of all rules whose conditions hold, in the order of RULES."""
    found = ((rule.name, rule.find(report)) for rule in RULES)
    return [Sentence(name, *said) for name, said in found if said is not None]


def lines(said: list[Sentence]) -> list[str]:
    """Return the first SHOWN sentences for people, each with what to look at next."""
    found = [f"* {one.text}. Next: {one.next}." for one in said[:SHOWN]]
    more = len(said) - SHOWN
    return [*found, *([f"* {units.plural(more, 'more sentence')} in --json"] if more > 0 else [])]


def as_dicts(said: list[Sentence]) -> list[dict[str, Any]]:
    """Return all sentences for JSON; docs/report.md names every key."""
    return [
        {"rule": s.rule, "sentence": s.text, "next": s.next, "figures": s.figures} for s in said
    ]
