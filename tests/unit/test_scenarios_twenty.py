# SPDX-License-Identifier: Apache-2.0
"""The twenty scenarios of the block layer, each as its events and as its lifecycles."""

import pytest
import scenario_cases
import scenario_cases_more
import scenario_losses
import scenario_stacks
import scenario_variants
from scenario_tools import Scenario, describe, run, tidy

CASES = [
    *scenario_cases.CASES,
    *scenario_cases_more.CASES,
    *scenario_variants.CASES,
    *scenario_stacks.CASES,
    *scenario_losses.CASES,
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.slug)
def test_scenario(case: Scenario) -> None:
    # GIVEN a scenario's events / WHEN its log is read
    found = describe(run(case))
    # THEN its lifecycles are those expected, to the nanosecond
    assert found == tidy(case.then)
