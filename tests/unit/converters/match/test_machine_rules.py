# SPDX-License-Identifier: Apache-2.0
"""Every rule of the machine is needed: without it a history or a case comes out otherwise.

Those of logs without pointers are in `test_finder`.
"""

import io
import random
import re
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.context import Context
from biotrail.converters.events.decoding import Decoder
from biotrail.converters.events.events import Events
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.match import rules
from biotrail.converters.match.tables import Matcher
from tests.prove.machine import KINDS, complaints
from tests.scenarios.rule_cases import CASES
from tests.scenarios.tools import devices_with, events_of
from tests.simulation.delivery import log_of
from tests.simulation.loads import history
from tests.support import captures
from tests.support.matching import by_machine, unlike, without
from tests.support.record_rings import chunk

RULES = {
    name: rule
    for name, rule in rules.by_name().items()
    if not name.startswith("finder/") and name != "requests/got"
}
WRONG = {
    name: int(rule.needed_by.removeprefix("seed "))
    for name, rule in RULES.items()
    if rule.needed_by.startswith("seed ")
}
"""Rule → history that comes out wrong without it."""
OTHERWISE = {
    name: tuple(rule.needed_by.rsplit(" ", 1))
    for name, rule in RULES.items()
    if rule.needed_by.rpartition(" ")[0] in KINDS
}
"""Rule → history (kind, seed) that comes out otherwise without it."""
LOOP = "0 Q 7:1 R 0+8 bio=1 page=1\n1 s 7:1 R 0+8 bio=1 rq=1\n"
TEXTS = {
    "splits/longer": "0 Q R 0+8 bio=1\n1 G R 0+8 bio=2",
    "splits/same-operation": "0 Q R 0+16 bio=1\n1 G W 0+8 bio=2",
    "splits/sent-the-rest": "0 Q R 0+16 bio=1\n1 D R 0+8 bio=2 rq=1 chain=2",
    "chains/same-operation": """
        0 s R 8+8 bio=1 rq=1
        1 QF W 0+8 bio=2
        3 D R 0+16 bio=1 rq=1 bios=1 flags=1
        """,
    "chain refusals/failed-before-issue": """
        0 s W 8+8 bio=1 rq=1
        1 QF W 0+8 bio=2
        3 s W 0+16 bio=3 rq=3
        4 D W 0+16 bio=3 rq=3 bios=1 flags=1
        5 C W 0+16 bio=1 rq=1 status=10
        """,
    "loops/issued-before": f"""{LOOP}
        2 Q R 64+8 bio=2 page=1
        3 D 7:1 R 0+8 bio=1 rq=1
        """,
    "loops/directly-below": f"""{LOOP}
        2 D 7:1 R 0+8 bio=1 rq=1
        3 Q 253:1 R 64+8 bio=2 page=1
        """,
}
"""Rule → events of which the tables are others without it."""


def test_rules_have_names_reasons_and_a_proof() -> None:
    # GIVEN all rules / THEN each has a name of its own, says why, and what needs it
    assert len(rules.by_name()) == len(rules.NAMES)
    for name, rule in rules.by_name().items():
        assert re.fullmatch(r"[a-z -]+/[a-z-]+", name), name
        assert rule.why, name
        assert rule.needed_by, name
    # AND is a condition of the machine, by that name
    sources = Path(rules.__file__).parent.glob("*.py")
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    assert set(re.findall(r'on\["(.*?)"', text)) == set(rules.NAMES)


@pytest.mark.parametrize("name", WRONG)
def test_without_the_rule_a_history_comes_out_wrong(name: str) -> None:
    # GIVEN a generated history that needs the rule
    made = history(random.Random(WRONG[name]), 12)
    log = log_of(made).getvalue()
    assert complaints(made, by_machine(io.BytesIO(log))) == []
    # WHEN it is read without the rule / THEN something of it is wrong
    with without(name):
        assert complaints(made, by_machine(io.BytesIO(log)))


@pytest.mark.parametrize("name", CASES)
def test_by_the_rule_alone_another_generation_begins(name: str) -> None:
    # GIVEN a few events of one address  WHEN they are read with the rule and without it
    requests, bios = (len(table) for table in rows(CASES[name]))
    with without(name):
        fewer = [len(table) for table in rows(CASES[name])]
    # THEN the rule, and no other, distinguishes two requests or bios
    assert (requests - fewer[0], bios - fewer[1]) in {(1, 0), (0, 1), (1, 1)}


@pytest.mark.parametrize("name", TEXTS)
def test_without_the_rule_a_few_events_come_out_otherwise(name: str) -> None:
    # GIVEN a few events  WHEN they are read with the rule and without it / THEN the tables differ
    found = rows(TEXTS[name])
    with without(name):
        assert rows(TEXTS[name]) != found


def machine() -> Matcher:
    """Of a log with a loop device whose file is on the disk that `events_of` takes for granted."""
    backing = {"backing_dev": captures.device_number("254:0")}
    devices = devices_with([("7:1", {"name": "loop1", "kind": "loop", "loop": backing})])
    return Matcher(Context(captures.header(devices=devices)), TaskNames(), StackNames())


def decoded(text: str) -> Events:
    events = Decoder().decode(chunk(*captures.records(events_of(text)))).events
    events.number = np.arange(len(events))
    return events


def rows(text: str) -> tuple[list[list[int]], list[list[int]]]:
    """Requests and bios of a few events: some columns of each."""
    matcher = machine()
    matcher.take(decoded(text), 0)
    told = matcher.rows(None)
    bios, requests = told.bios, told.requests
    found = [requests.number, requests.bios], [bios.number, bios.request, bios.parent]
    return np.stack(found[0]).T.tolist(), np.stack(found[1]).T.tolist()


def test_a_page_that_is_used_again_keeps_no_family_open() -> None:
    # GIVEN reads of a loop device from one buffer, one each 4 us, all ended
    count, settle_us = 1000, 200
    text = "".join(
        f"{4 * at + place} {kind} 7:1 R {8 * at}+8 bio={at % 3 + 1}{more}\n"
        for at in range(count)
        for place, (kind, more) in enumerate(
            [("Q", " page=1"), ("s", " rq=1"), ("D", " rq=1"), ("C", " rq=1")]
        )
    )
    # WHEN those are asked for that were over before the settle time
    matcher, events = machine(), decoded(text)
    matcher.take(events, settle_us * 1000)
    told = matcher.rows(int(events.ts[-1]) - settle_us * 1000)
    # THEN each is there but those of that time
    assert len(told.bios) >= count - settle_us // 4 - 1


@pytest.mark.parametrize("name", OTHERWISE)
def test_without_the_rule_a_history_comes_out_otherwise(name: str) -> None:
    # GIVEN a generated history
    kind, seed = OTHERWISE[name]
    log = log_of(KINDS[kind](int(seed))).getvalue()
    # WHEN it is read with the rule and without it / THEN the tables differ
    found = by_machine(io.BytesIO(log))
    with without(name):
        assert unlike(found, by_machine(io.BytesIO(log)))


def test_every_rule_is_shown_to_be_needed() -> None:
    # GIVEN all rules / THEN each is in one of these tests, but for those that say why not
    idle = {name for name, rule in RULES.items() if rule.needed_by.startswith("nothing: ")}
    assert {*WRONG, *CASES, *TEXTS, *OTHERWISE} == set(RULES) - idle
