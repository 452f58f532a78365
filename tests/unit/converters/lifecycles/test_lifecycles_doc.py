# SPDX-License-Identifier: Apache-2.0
"""docs/lifecycles.md says what the machine does, in tables of rules and scenarios. `--update`."""

import re

import pytest

from biotrail.converters.events.tables import STAGE_NAMES, Certainty
from biotrail.converters.lifecycles.account import Reason
from tests.scenarios import cases as scenario_cases
from tests.scenarios import cases_more
from tests.scenarios import losses as scenario_losses
from tests.scenarios import stacks as scenario_stacks
from tests.scenarios import variants as scenario_variants
from tests.scenarios.tools import Scenario, event_of_line, tidy
from tests.support import rule_tables
from tests.support.captures import Event, Follower
from tests.support.golden_files import expect_section
from tests.support.paths import ROOT

DOC = ROOT / "docs" / "lifecycles.md"
TWENTY = [*scenario_cases.CASES, *cases_more.CASES]
HEAD = "| | scenario | events | lifecycles |\n|---|---|---|---|"
BIO_EVENTS = "QGMFXAc"


def text_of(event: Event) -> str:
    """One event: the letter, the addresses that it names, and what is unusual."""
    letter = event["letter"]
    if letter in BIO_EVENTS:
        return f"{letter} b{event['bio']:x}"
    chain = event.get("chain", ())
    held = f"[{' '.join(f'b{bio:x}' for bio in chain)}]" if len(chain) > 1 else ""
    cut = " cut" if event.get("flags") else ""
    flush = " flush" if event["rwbs"] in ("F", "FF") and letter == "D" else ""
    part = letter == "C" and event["bytes"] != event["sectors"] * 512
    error = " error" if event.get("err") else ""
    return f"{letter} r{event['rq']:x}{held}{cut}{flush}{' partial' if part else ''}{error}"


def events_cell(case: Scenario) -> str:
    follower, words = Follower(), []
    for line in tidy(case.given).splitlines():
        event = follower.follow(event_of_line(line.removeprefix("lost ")))
        text = text_of(event)
        words.append(f"~~{text}~~" if line.startswith("lost ") else text)
    return ", ".join(words)


def lifecycles_cell(case: Scenario) -> str:
    found = []
    for line in tidy(case.then).splitlines():
        what, stages, served, certainty = line.split(" | ")
        name = what.split()[0]
        if name.startswith("b"):
            found.append(f"{name}: {stages}; {served}; {certainty}")
        elif "parent" in certainty:
            found.append(f"{name}: {certainty}")
    return "<br>".join(found) or "no bio"


def table(cases: list[Scenario]) -> str:
    rows = [
        f"| {c.number} | {c.name} | {events_cell(c)} | {lifecycles_cell(c)} |"
        for c in sorted(cases, key=lambda c: c.number)
    ]
    return "\n".join([HEAD, *rows])


GENERATED = {
    "request generations": rule_tables.request_generations(),
    "bio generations": rule_tables.bio_generations(),
    "resubmissions": rule_tables.resubmissions(),
    "range conditions": rule_tables.range_conditions(),
    "request ends": rule_tables.request_ends(),
    "lost completions": rule_tables.lost_completions(),
    "certainties": rule_tables.certainties(),
    "finder": rule_tables.finder(),
    "reasons": "\n".join(f"- {reason}" for reason in Reason),
    "scenarios": table(TWENTY),
    "variants": table(scenario_variants.CASES),
    "stacks": table(scenario_stacks.CASES),
    "losses": table(scenario_losses.CASES),
}


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_generated_tables_are_up_to_date(name: str, update: bool) -> None:
    # GIVEN the document / WHEN its table is made again / THEN it is what stands there
    expect_section(DOC, f"generated: {name}", GENERATED[name], update=update)


def test_all_twenty_scenarios_are_listed() -> None:
    # GIVEN the scenarios of the block layer / THEN each number is there, and no other
    assert sorted({case.number for case in TWENTY}) == list(range(1, 21))


def test_every_stage_and_certainty_is_explained() -> None:
    # GIVEN what tables can say / THEN the document names each
    text = DOC.read_text()
    for word in [*STAGE_NAMES.values(), *(c.name.lower() for c in Certainty)]:
        assert re.search(rf"\b{re.escape(word)}\b", text), word
