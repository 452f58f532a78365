# SPDX-License-Identifier: Apache-2.0
"""The tables of rules that docs/lifecycles.md shows, made from the rules themselves."""

from collections.abc import Iterable
from typing import Any

from biotrail.converters.association.completion.end_rules import (
    COMPLETION_LOST_RULES,
    REQUEST_END_RULES,
)
from biotrail.converters.association.identity.bio_rules import BIO_RULES
from biotrail.converters.association.identity.completed_rules import COMPLETED_RULES
from biotrail.converters.association.identity.generations import PARENT, REST
from biotrail.converters.association.identity.neighbours import NeighbourRule, Roles
from biotrail.converters.association.identity.remaps import RESUBMISSION_CONDITIONS
from biotrail.converters.association.identity.request_rules import REQUEST_RULES
from biotrail.converters.association.ranges.conditions import (
    CHAIN_CONDITIONS,
    CHAIN_REFUSALS,
    LOOP_CONDITIONS,
    SPLIT_CONDITIONS,
    UPPER_CONDITIONS,
)
from biotrail.converters.association.rules import Rule
from biotrail.converters.lifecycles.certainties import (
    BIO_CERTAINTY_RULES,
    REQUEST_CERTAINTY_RULES,
    CertaintyRule,
)
from biotrail.recorder.schema.records import BY_KIND, Kind

_ORDER = "QAXGsMFImDRCcdEa"
"""Letters in the order in which events of an I/O come."""
_WORDS = {PARENT: "being split by `X`", REST: "being what `X` leaves"}


def _letters(roles: Iterable[int]) -> list[str]:
    """Return each role as text, in the order of an I/O's events."""
    letters = [BY_KIND[Kind(role)].letter for role in roles if role not in _WORDS]
    named = [f"`{letter}`" for letter in sorted(letters, key=_ORDER.index)]
    return named + [_WORDS[role] for role in sorted(roles) if role in _WORDS]


def _roles(roles: Roles, conjunction: str) -> str:
    """Return a set of roles as text."""
    words = _letters(roles.members)
    if roles.others:
        return f"any but {' '.join(words)}" if words else "any"
    if not roles.members:
        return ""
    if conjunction and len(words) > 1:
        return f"{', '.join(words[:-1])} {conjunction} {words[-1]}"
    return (", " if set(words) & set(_WORDS.values()) else " ").join(words)


def _table(head: str, rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table; head: names of the columns, separated by |."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|---" * (head.count("|") + 1) + "|"
    return "\n".join([f"| {head} |", rule, *lines])


def _but(rule: Rule[Any]) -> str:
    """Return the exemptions of a rule as text."""
    return "; ".join(exemption.says for exemption in rule.unless)


def _generations(rules: Iterable[NeighbourRule[Any]]) -> list[list[str]]:
    """Return the rows of rules on neighbouring events."""
    return [
        [
            rule.name,
            _roles(rule.roles, ""),
            ", ".join(text for text in (_roles(rule.after, "or"), rule.says) if text),
            _but(rule),
            rule.why,
        ]
        for rule in rules
    ]


_GENERATIONS = "rule | event | when the event before it (same address) is | but not | why"


def request_generations() -> str:
    """Return the table of where a request's generation begins."""
    completed = [[r.name, "`C` `R`", r.says, _but(r), r.why] for r in COMPLETED_RULES]
    return _table(_GENERATIONS, _generations(REQUEST_RULES) + completed)


def bio_generations() -> str:
    """Return the table of where a bio's generation begins."""
    return _table(_GENERATIONS, _generations(BIO_RULES))


def _plain(rules: Iterable[Rule[Any]]) -> list[list[str]]:
    """Return the rows of rules that have a condition, exemptions and a reason."""
    return [[rule.name, rule.says, _but(rule), rule.why] for rule in rules]


def resubmissions() -> str:
    """Return the table of what an A must hold to send a bio on."""
    rows = [[rule.name, rule.says, rule.why] for rule in RESUBMISSION_CONDITIONS]
    return _table("condition | of the `A` | why", rows)


def request_ends() -> str:
    """Return the table of when a request has ended."""
    return _table("rule | a request has ended when | but not | why", _plain(REQUEST_END_RULES))


def lost_completions() -> str:
    """Return the table of when a bio's end was not recorded."""
    rows = [[rule.name, rule.says, rule.why] for rule in COMPLETION_LOST_RULES]
    return _table("rule | a bio's end was not recorded when | why", rows)


def range_conditions() -> str:
    """Return the table of what candidates of range queries must hold."""
    questions: tuple[tuple[str, tuple[Rule[Any], ...]], ...] = (
        ("implicit split", SPLIT_CONDITIONS),
        ("cut chain", CHAIN_CONDITIONS),
        ("cut chain: not even one is taken if", CHAIN_REFUSALS),
        ("upper bio of a clone", UPPER_CONDITIONS),
        ("loop device's upper bio", LOOP_CONDITIONS),
    )
    rows = [[name, r.name, r.says, r.why] for name, rules in questions for r in rules]
    return _table("question | condition | of the candidate | why", rows)


def certainties() -> str:
    """Return the table of what makes a bio or request lost or incomplete."""
    tables: tuple[tuple[str, tuple[CertaintyRule[Any], ...]], ...] = (
        ("bio", BIO_CERTAINTY_RULES),
        ("request", REQUEST_CERTAINTY_RULES),
    )
    rows = [
        [name, rule.name, rule.gives.name.lower(), rule.says, _but(rule), rule.why]
        for name, rules in tables
        for rule in rules
    ]
    return _table("of a | rule | certainty | when | but not | why", rows)
