# SPDX-License-Identifier: Apache-2.0
"""The tables of rules that docs/lifecycles.md shows, made from the rules themselves."""

from collections.abc import Iterable

from biotrail.converters.match.rules import TABLES


def _table(head: str, rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table; head: names of the columns, separated by |."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|---" * (head.count("|") + 1) + "|"
    return "\n".join([f"| {head} |", rule, *lines])


_GENERATIONS = "rule | event | when the event before it (same address) is | but not | why"


def _generations(*tables: str) -> str:
    rules = [rule for table in tables for rule in TABLES[table]]
    return _table(_GENERATIONS, [[r.name, r.event, r.says, r.but, r.why] for r in rules])


def request_generations() -> str:
    """Return the table of where a request's generation begins."""
    return _generations("requests", "completed")


def bio_generations() -> str:
    """Return the table of where a bio's generation begins."""
    return _generations("bios")


def resubmissions() -> str:
    """Return the table of what an A must hold to send a bio on."""
    rows = [[rule.name, rule.says, rule.why] for rule in TABLES["resubmissions"]]
    return _table("condition | of the `A` | why", rows)


def request_ends() -> str:
    rows = [[rule.name, rule.says, rule.but, rule.why] for rule in TABLES["request ends"]]
    return _table("rule | a request has ended when | but not | why", rows)


def lost_completions() -> str:
    rows = [[rule.name, rule.says, rule.why] for rule in TABLES["lost completions"]]
    return _table("rule | a bio's end was not recorded when | why", rows)


def range_conditions() -> str:
    """Return the table of what candidates of range queries must hold."""
    questions = {
        "implicit split": "splits",
        "cut chain": "chains",
        "cut chain: not even one is taken if": "chain refusals",
        "upper bio of a clone": "upper bios",
        "loop device's upper bio": "loops",
    }
    rows = [
        [name, r.name, r.says, r.why] for name, table in questions.items() for r in TABLES[table]
    ]
    return _table("question | condition | of the candidate | why", rows)


def certainties() -> str:
    """Return the table of what makes a bio or request lost or incomplete."""
    rows = [
        [name, r.name, r.gives.name.lower() if r.gives else "", r.says, r.but, r.why]
        for name in ("bio", "request")
        for r in TABLES[f"certainty of {name}s"]
    ]
    return _table("of a | rule | certainty | when | but not | why", rows)


def finder() -> str:
    """Return the table of whom an event without pointers is about."""
    return _table("rule | says | why", [[r.name, r.says, r.why] for r in TABLES["finder"]])
