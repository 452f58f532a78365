# SPDX-License-Identifier: Apache-2.0
"""The machine: what it says of histories is true, whenever it closes what is over."""

import io
import itertools
import random
from pathlib import Path

import pytest

from tests.prove.machine import KINDS, SETTLE_NS, complaints
from tests.simulation.delivery import log_of
from tests.simulation.loads import history
from tests.support.matching import by_machine, unlike
from tests.support.paths import DATA

SEEDS = (
    *(600184, 610187, 610933, 620038, 620185, 630131, 630498, 631825),
    *(650041, 650346, 671738, 701472, 710134, 910443),
)
"""Histories that were wrong before, or otherwise in other windows."""
FRESH = range(930_000, 930_060)
FEW = range(930_000, 930_008)


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        *(("", seed) for seed in (*SEEDS, *FRESH)),
        *itertools.product(("mostly plain", "stacked"), FEW),
    ],
)
def test_what_it_says_of_a_history_is_true(kind: str, seed: int) -> None:
    # GIVEN a generated history, of all kinds of I/O or mostly plain  WHEN the machine reads its log
    made = KINDS[kind](seed) if kind else history(random.Random(seed), 12)
    # THEN nothing that it says is wrong
    assert complaints(made, by_machine(log_of(made))) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", FEW)
def test_closing_early_and_late_gives_the_same_rows(kind: str, seed: int) -> None:
    # GIVEN the log of a history, of each kind
    log = log_of(KINDS[kind](seed)).getvalue()
    # WHEN families are closed at its end, or as soon as they are over, in windows of all sizes
    late = by_machine(io.BytesIO(log))
    for events in (1, 7, 100):
        early = by_machine(io.BytesIO(log), SETTLE_NS, events)
        # THEN the rows are the same
        assert unlike(late, early) == []


@pytest.mark.parametrize("path", sorted((DATA / "kernels").glob("*.biotrail")), ids=str)
def test_logs_of_kernels_do_not_depend_on_when_they_are_closed(path: Path) -> None:
    # GIVEN a log that was recorded on another kernel
    # WHEN families are closed at its end, or as soon as they are over / THEN the rows are the same
    assert unlike(by_machine(path), by_machine(path, SETTLE_NS, 50)) == []
