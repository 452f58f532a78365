# SPDX-License-Identifier: Apache-2.0
"""The twenty scenarios of the block layer, each as its events and as its lifecycles."""

import pytest

from tests.scenarios import cases, cases_more, losses, stacks, variants
from tests.scenarios.tools import Scenario, describe, run, tidy

CASES = [
    *cases.CASES,
    *cases_more.CASES,
    *variants.CASES,
    *stacks.CASES,
    *losses.CASES,
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.slug)
def test_scenario(case: Scenario) -> None:
    # GIVEN a scenario's events / WHEN its log is read
    found = describe(run(case))
    # THEN its lifecycles are those expected, to the nanosecond
    assert found == tidy(case.then)
