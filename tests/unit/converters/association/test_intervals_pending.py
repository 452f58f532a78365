# SPDX-License-Identifier: Apache-2.0
"""Ranges that are pending on a device, held against looking at each of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from biotrail.converters.association.ranges.intervals import PendingRanges
from biotrail.converters.association.ranges.queries import Pending, Question, sweep

SECTORS = st.integers(0, 64)
ITEMS = st.integers(0, 9)


class AgainstBruteForce(RuleBasedStateMachine):
    """GIVEN any additions and removals / THEN every answer is that of a plain dict."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: PendingRanges[int] = PendingRanges()
        self.model: dict[int, tuple[int, int]] = {}

    @rule(item=ITEMS, sector=SECTORS, length=st.integers(-1, 20))
    def add(self, item: int, sector: int, length: int) -> None:
        self.ranges.add(item, sector, sector + length)
        self.model.pop(item, None)
        if length > 0:
            self.model[item] = (sector, sector + length)

    @rule(item=ITEMS)
    def remove(self, item: int) -> None:
        self.ranges.remove(item)
        self.model.pop(item, None)

    @rule(sector=SECTORS, length=st.integers(1, 20))
    def ask(self, sector: int, length: int) -> None:
        end = sector + length
        covering = [i for i, (a, b) in self.model.items() if a <= sector and end <= b]
        touching = [i for i, (a, b) in self.model.items() if a < end and sector < b]
        assert sorted(self.ranges.covering(sector, end)) == sorted(covering)
        assert sorted(self.ranges.touching(sector, end)) == sorted(touching)

    @invariant()
    def same_size(self) -> None:
        assert len(self.ranges) == len(self.model)


TestPendingRanges = AgainstBruteForce.TestCase

lives = st.tuples(
    st.integers(0, 2), SECTORS, st.integers(1, 20), st.integers(0, 50), st.integers(0, 30)
)
asked = st.tuples(st.integers(0, 2), SECTORS, st.integers(1, 12), st.integers(0, 80))


@given(st.lists(lives, max_size=25), st.lists(asked, max_size=25))
def test_a_sweep_answers_as_looking_at_everything_does(
    pending: list[tuple[int, int, int, int, int]], asked: list[tuple[int, int, int, int]]
) -> None:
    # GIVEN ranges on three devices that come and go, and questions at any time
    table = np.array(pending, dtype=np.int64).reshape(len(pending), 5)
    rows = Pending(
        ids=np.arange(len(pending)) + 100,
        dev=table[:, 0].astype(np.uint32),
        sector=table[:, 1].astype(np.uint64),
        end=(table[:, 1] + table[:, 2]).astype(np.uint64),
        since=table[:, 3],
        until=table[:, 3] + table[:, 4],
    )
    questions = [Question(i, d, s, s + n, ts) for i, (d, s, n, ts) in enumerate(asked)]
    # WHEN answered in one sweep
    answers = sweep(rows, questions)
    # THEN each has those that lived then, on that device, and cover it
    for q in questions:
        wanted = [
            100 + i
            for i, (dev, sector, length, since, lasted) in enumerate(pending)
            if dev == q.dev
            and sector <= q.sector
            and q.end <= sector + length
            and since <= q.ts <= since + lasted
        ]
        assert sorted(answers[q.asker]) == wanted
