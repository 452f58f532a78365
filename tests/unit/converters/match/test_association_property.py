# SPDX-License-Identifier: Apache-2.0
"""Generated block layers at work: what is said of them is held to what truly happened."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulation.check import problems, run, story
from tests.simulation.loads import history
from tests.simulation.model import History
from tests.simulation.one_history import wrong_of_seed

SEEDS = 75
"""Seeded histories in each of four tests; `make prove` runs 10,000."""


def _told(found: History, wrong: list[str]) -> str:
    # As text: pytest would show the history itself, whose parts all know each other.
    return "\n".join([*wrong, story(found)]) if wrong else ""


def _wrong_by_identity(found: History) -> str:
    return _told(found, problems(found, run(found)))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_by_identity_a_small_history_is_as_it_happened(rng: random.Random) -> None:
    # GIVEN a block layer at work, recorded with losses, lateness and recycled pointers
    # WHEN its log is associated by identity / THEN all that the records determine is right,
    # and nothing wrong is called exact
    assert not _wrong_by_identity(history(rng, size=3))


@pytest.mark.parametrize("quarter", range(4))
def test_larger_histories_are_right_with_pointers_and_without(quarter: int) -> None:
    # GIVEN larger histories, by seed
    for seed in range(quarter * SEEDS, (quarter + 1) * SEEDS):
        # WHEN their logs are associated by identity and by intervals alone / THEN both say what
        # happened, intervals say what the reference says, and what is not sure is marked
        assert not _told(*wrong_of_seed(seed)), f"seed {seed}"
