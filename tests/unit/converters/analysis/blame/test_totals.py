# SPDX-License-Identifier: Apache-2.0
"""Sums of blame that never go down: what is below zero is carried forward, nothing is lost."""

from collections import Counter
from itertools import accumulate, pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from biotrail.converters.analysis.blame.online import Row, Waits
from biotrail.converters.analysis.blame.tree import OTHERS
from biotrail.converters.analysis.live.blame_totals import MOST_PAIRS, MOST_VICTIMS, BlameTotals
from biotrail.converters.pipeline import Trace
from tests.support import blame_logs
from tests.support.blame_logs import MS, Io
from tests.support.blame_reading import waits

PATH = Path(__file__).parents[4] / "data" / "calls" / "ext4-on-loop.biotrail"


def of(behind: dict[str, dict[str, int]]) -> Waits:
    """Waits of victims: culprit → ns."""
    found = Waits()
    for victim, culprits in behind.items():
        found.rows[victim] = Row(1, 1000, behind=Counter(culprits))
    return found


def totals() -> BlameTotals:
    return BlameTotals(Trace(PATH).context, "process")


CELLS = st.lists(st.integers(-1000, 1000), min_size=1, max_size=50)


@given(cells=CELLS)
def test_a_counter_is_the_most_that_the_sum_was(cells: list[int]) -> None:
    # GIVEN cells of a pair, some of them negative
    found = totals()
    told = [0]
    for ns in cells:
        # WHEN they are added
        found.add_waits(of({"app": {"backup": ns}}))
        told.append(found.behind["app", "backup"])
    # THEN the counter never goes down, and is the most that the sum has been
    assert told == sorted(told)
    assert told == list(accumulate(accumulate([0, *cells]), max))
    # AND the counter and what is carried forward are the sum
    assert told[-1] + found._rest["app", "backup"] == sum(cells)


def test_pairs_are_bounded_and_nothing_is_lost() -> None:
    # GIVEN more victims and culprits than are kept apart
    found = totals()
    for victim in range(2 * MOST_VICTIMS):
        culprits = {f"culprit {number}": 10 for number in range(20)}
        # WHEN they are added
        found.add_waits(of({f"victim {victim}": culprits}))
    # THEN the rest is others, of each victim and of all
    assert len(found.waited) == MOST_VICTIMS + 1
    assert len(found.behind) <= MOST_PAIRS + MOST_VICTIMS + 1
    assert sum(found.behind.values()) == 2 * MOST_VICTIMS * 200
    assert found.behind[OTHERS, OTHERS] == MOST_VICTIMS * 200
    assert sum(found.waited.values()) == 2 * MOST_VICTIMS * 1200


def test_sums_are_those_of_one_pass(tmp_path: Path) -> None:
    # GIVEN a reader beside a writer
    path = blame_logs.write(tmp_path / "a.biotrail", blame_logs.beside_a_writer())
    # WHEN the windows of its log are added, however small
    trace = Trace(path)
    found = BlameTotals(trace.context, "process")
    told: list[Counter[tuple[str, str]]] = []
    for window in trace.lifecycles(50, small=True):
        found.add(window)
        told.append(Counter(found.behind))
    found.finish()
    # THEN no counter ever went down
    told.append(found.behind)
    for before, after in pairwise(told):
        assert all(after[pair] >= ns for pair, ns in before.items())
    # AND they are what one pass finds
    whole = waits(path, 50)
    assert found.waited == {name: row.wait_ns for name, row in whole.rows.items()}
    assert found.behind["app", "backup"] == whole.rows["app"].behind["backup"] > 0


def test_what_cannot_be_told_is_counted(tmp_path: Path) -> None:
    # GIVEN I/O of 10 µs, which is too short to be told
    ios = [Io("app", t * MS, t * MS, t * MS + 10_000) for t in range(100)]
    trace = Trace(blame_logs.write(tmp_path / "a.biotrail", ios))
    # WHEN it is added / THEN all of its time is untold
    found = BlameTotals(trace.context, "process")
    for window in trace.lifecycles():
        found.add(window)
    found.finish()
    assert found.untold == found.waited == {"app": 1_000_000}
