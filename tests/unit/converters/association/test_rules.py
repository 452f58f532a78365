# SPDX-License-Identifier: Apache-2.0
"""Every rule of the model is needed: without it a history, a case or a test comes out otherwise."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from biotrail.converters import pipeline
from biotrail.converters.association.completion.completion import request_ends
from biotrail.converters.association.completion.end_rules import BioProgress
from biotrail.converters.association.identity.address_reuse import ReusedAddresses
from biotrail.converters.association.identity.association import Association
from biotrail.converters.association.identity.joins import join_identities
from biotrail.converters.association.ranges.conditions import (
    BioCandidates,
    ChainAnswers,
    ChainCandidates,
    LoopCandidates,
)
from biotrail.converters.association.ranges.queries import END_OF_TIME
from biotrail.converters.association.rules import all_mark, any_marks
from biotrail.converters.events.context import Context
from biotrail.converters.events.decoding import Decoder
from biotrail.converters.lifecycles.certainties import BioHistory, RequestHistory, rated
from biotrail.recorder.schema.records import Kind
from tests.prove.seeding import TABLES, AnyRule, RuleBroken, replace_everywhere, table
from tests.scenarios.rule_cases import CASES
from tests.scenarios.tools import events_of
from tests.simulation.one_history import wrong_of_seed
from tests.support import captures
from tests.support.paths import ROOT
from tests.support.record_rings import chunk

RULES = {f"{name}/{rule.name}": rule for name in TABLES for rule in table(name)}
PLAIN = {
    "queued": True,
    "completed": True,
    "served": True,
    "issued": True,
    "start_recorded": True,
    "finished": True,
}
"""What is true of a bio or request of which every event was recorded."""


def one_row(of: type[Any], **columns: Any) -> Any:
    """A row of a dataclass of columns; what is not given is PLAIN, or False."""
    names = [f.name for f in fields(of)]
    return of(**{n: np.array([columns.get(n, PLAIN.get(n, False))]) for n in names})


def associated(text: str) -> Association:
    events = Decoder().decode(chunk(*captures.records(events_of(text)))).events
    events.number = np.arange(len(events))
    return join_identities(events, Context(captures.header()), ReusedAddresses())


def bios(text: str, bio: int, candidate: int) -> BioCandidates:
    return BioCandidates(associated(text), np.array([bio]), np.array([candidate]))


def in_chain(text: str) -> ChainCandidates:
    a = associated(text)
    return ChainCandidates(a, np.array([0]), np.array([0]), a.requests.first(Kind.D))


def looped(text: str = "0 Q R 0+8 bio=1\n1 Q 8:0 R 0+8 bio=2", **columns: Any) -> LoopCandidates:
    plain = {"request": 0, "issue": 0, "end": -1, "completed": False, "asked": 1, "below": True}
    arrays = {name: np.array([value]) for name, value in (plain | columns).items()}
    return LoopCandidates(associated(text), np.array([0]), np.array([1]), **arrays)


def unissued() -> ChainAnswers:
    a = associated("0 s R 0+8 bio=1 rq=1\n1 C R 0+8 bio=1 rq=1")
    ends = request_ends(a, Context(captures.header()))
    far, none = np.array([END_OF_TIME]), np.array([-1])
    return ChainAnswers(ends, np.array([0]), np.array([False]), np.array([1]), far, none)


ROWS = {
    "lost completions/piece-lost": lambda: one_row(
        BioProgress, ended=False, open_pieces=True, piece_lost=True
    ),
    "splits/longer": lambda: bios("0 Q R 0+8 bio=1\n1 Q R 0+8 bio=2", 1, 0),
    "splits/same-operation": lambda: bios("0 Q R 0+16 bio=1\n1 Q W 0+8 bio=2", 1, 0),
    "upper bios/not-itself": lambda: bios("0 Q R 0+8 bio=1", 0, 0),
    "upper bios/queued-whole": lambda: bios(
        "0 Q R 0+16 bio=1\n1 X R 0+8 bio=2 new=8 parent=1\n2 Q R 0+8 bio=3", 2, 1
    ),
    "chains/same-operation": lambda: in_chain("0 Q W 0+8 bio=1\n1 D R 0+8 bio=2 rq=1"),
    "chain refusals/failed-before-issue": unissued,
    "loops/issued-before": lambda: looped(issue=2),
    "loops/other-device": lambda: looped("0 Q R 0+8 bio=1\n1 Q R 8+8 bio=2"),
    "loops/same-operation": lambda: looped("0 Q R 0+8 bio=1\n1 Q 8:0 W 0+8 bio=2"),
    "loops/directly-below": lambda: looped(below=False),
    "certainty of bios/issue-implied": lambda: one_row(BioHistory, issue_implied=True),
    "certainty of requests/issue-implied": lambda: one_row(RequestHistory, issue_implied=True),
}
"""Rows that this rule alone decides."""


def decided(name: str, rows: Any) -> int:
    """What a table says of one row: whether all or any of its rules mark it, or a certainty."""
    rules = table(name)
    if name in ("splits", "upper bios", "chains", "loops"):
        return int(all_mark(rules, rows, 1)[0])
    if name.startswith("certainty"):
        return int(rated(rules, rows, np.zeros(1, np.uint8))[0])
    return int(any_marks(rules, rows, 1)[0])


def generations(text: str) -> tuple[int, int]:
    """Requests and bios of a few events."""
    a = associated(text)
    return len(a.requests), len(a.bios)


@contextmanager
def dropped(name: str) -> Iterator[None]:
    """The model without a rule, for logs with pointers, too."""
    tables, _, rule = name.partition("/")
    right, wrong = RuleBroken(tables, (rule,)).pair()
    replace_everywhere(right, wrong)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline, "BY_MACHINE", False)
            yield
    finally:
        replace_everywhere(wrong, right)


def by(prefix: str) -> list[str]:
    """The rules that are needed by something of this kind."""
    return [name for name, rule in RULES.items() if rule.needed_by.startswith(prefix)]


def test_rules_have_names_reasons_and_a_proof() -> None:
    # GIVEN all rules / THEN in its table each has a name of its own
    for name in TABLES:
        assert max(Counter(rule.name for rule in table(name)).values()) == 1, name
    # AND each says why, and what needs it
    for name, rule in RULES.items():
        assert re.fullmatch(r"[a-z -]+/[a-z-]+", name), name
        assert rule.why, name
        assert rule.needed_by, name
    assert sorted(by("case")) == sorted([*CASES, *ROWS])


@pytest.mark.parametrize("name", by("seed"))
def test_without_the_rule_a_history_comes_out_wrong(name: str) -> None:
    # GIVEN a generated history that needs the rule
    seed = int(RULES[name].needed_by.removeprefix("seed "))
    # WHEN it is associated without the rule / THEN something of it is wrong
    with dropped(name):
        assert wrong_of_seed(seed)[1]


@pytest.mark.parametrize("name", CASES)
def test_by_the_rule_alone_another_generation_begins(name: str) -> None:
    # GIVEN a few events of one address
    # WHEN they are associated with the rule and without it
    found = generations(CASES[name])
    with dropped(name):
        fewer = generations(CASES[name])
    # THEN the rule, and no other, distinguishes two requests or bios
    assert (found[0] - fewer[0], found[1] - fewer[1]) in {(1, 0), (0, 1), (1, 1)}


@pytest.mark.parametrize("name", ROWS)
def test_by_the_rule_alone_a_row_is_decided(name: str) -> None:
    # GIVEN a row of the table
    rows, tables = ROWS[name](), name.partition("/")[0]
    # WHEN the table's rules are asked about it, with this rule and without it
    found = decided(tables, rows)
    with dropped(name):
        without = decided(tables, rows)
    # THEN they say otherwise
    assert found != without


@pytest.mark.parametrize("name", by("tests/"))
def test_a_named_test_is_there(name: str) -> None:
    # GIVEN a rule that a test needs
    rule: AnyRule = RULES[name]
    path, _, test = rule.needed_by.partition("::")
    # THEN that test exists
    assert f"def {test}(" in (ROOT / path).read_text()
