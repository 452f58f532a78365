# SPDX-License-Identifier: Apache-2.0
"""State in a few sentences what a report shows: where time goes, for whom, and what to check next.

Each sentence is a rule's (verdict_rules); a rule whose condition does not hold yields no sentence.
"""

from dataclasses import dataclass, replace
from typing import Any

from biotrail.converters.analysis.report.tree import Report
from biotrail.text import units
from biotrail.text.report.verdict_rules import RULES

OF_WAITS = {"time", "wait"}
"""Parts of the path of which one shows what programs waited for."""
MORE = "record --path says which calls waited, and for what: a CPU, a limit, a lock, I/O"
"""What the block layer alone cannot tell."""
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
    """Return the sentences of all rules whose conditions hold, in the order of RULES.

    Where programs' waits were not recorded, the first one about I/O names the option that does.
    """
    found = ((rule.name, rule.find(report)) for rule in RULES)
    said = [Sentence(name, *told) for name, told in found if told is not None]
    if said and report.total.bios.ios and not OF_WAITS & {*report.path_parts}:
        said[0] = replace(said[0], next=f"{said[0].next}; {MORE}")
    return said


def of_snapshot(report: Report | None) -> list[Sentence]:
    """Return the sentences on a stretch of a recording that goes on; [] where it has no I/O."""
    return [] if report is None else verdict(report)


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
