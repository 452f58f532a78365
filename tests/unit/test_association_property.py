# SPDX-License-Identifier: Apache-2.0
"""Generated block layers at work: what the model says of them is held to what truly happened."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layers_check import problems, run, story
from layers_loads import history
from layers_model import History

SEEDS = 150
"""Seeded histories in each of four tests; `make prove` runs 10,000."""


def _holds(found: History) -> None:
    wrong = problems(found, run(found))
    assert not wrong, "\n".join([*wrong, story(found)])


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_by_identity_a_small_history_is_as_it_happened(rng: random.Random) -> None:
    # GIVEN a block layer at work, recorded with losses, lateness and recycled pointers
    found = history(rng, size=3)
    # WHEN its log is associated by identity / THEN all that the records determine is right,
    # and nothing wrong is called exact
    _holds(found)


@pytest.mark.parametrize("quarter", range(4))
def test_by_identity_larger_histories_are_as_they_happened(quarter: int) -> None:
    # GIVEN larger histories, by seed / WHEN their logs are associated / THEN likewise
    for seed in range(quarter * SEEDS, (quarter + 1) * SEEDS):
        _holds(history(random.Random(seed)))
