# SPDX-License-Identifier: Apache-2.0
"""Two requests became one, and the record of that was lost: the issue's chain tells."""

import pytest

from biotrail.converters.events.tables import NEVER, Certainty
from tests.scenarios import cases
from tests.scenarios.tools import Scenario, bio_lines, events_of, run

CASES = [c for c in cases.CASES if "m" in {e["letter"] for e in events_of(c.given)}]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.slug)
def test_bios_are_as_if_it_had_been_recorded(case: Scenario) -> None:
    # GIVEN requests that merged
    told = run(case)
    # WHEN no m is in the log
    found = run(case, drop="m")
    # THEN every bio is there once, with its times, stages and request
    assert bio_lines(found) == bio_lines(told)
    # THEN who took the absorbed requests is known; they are marked, for their end was not seen
    assert found.requests.absorbed_by.tolist() == told.requests.absorbed_by.tolist()
    absorbed = found.requests.absorbed_by != NEVER
    assert set(found.requests.certainty[absorbed].tolist()) == {Certainty.LOST}
    assert set(found.requests.certainty[~absorbed].tolist()) == {Certainty.EXACT}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.slug)
def test_an_issue_elsewhere_is_another_bios(case: Scenario) -> None:
    # GIVEN the same, but for chains that are of other sectors
    events = [e for e in events_of(case.given) if e["letter"] not in "mC"]
    assert any(len(e.get("chain", ())) > 1 for e in events)
    moved = case.given.replace(" D W 0+", " D W 4096+").replace(" C W 0+", " C W 4096+")
    elsewhere = Scenario(case.number, case.name, moved, case.then)
    # WHEN no m is in the log / THEN what waited is not said to have gone there
    found = run(elsewhere, drop="m")
    assert (found.requests.absorbed_by == NEVER).all()
