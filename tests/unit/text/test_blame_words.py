# SPDX-License-Identifier: Apache-2.0
"""What blame says in sentences of what would be without a culprit."""

import pytest

from biotrail.converters.analysis.blame.tree import Victim, Without
from biotrail.text.blame import without_them

US = 1_000


@pytest.mark.parametrize(
    ("p99", "said"),
    [
        (300 * US, ", the 99th percentile about 300 us instead of 944 us"),
        (944 * US, ", the 99th percentile would not change"),
        (940 * US, ", the 99th percentile would not change"),
        (990 * US, ""),
        (None, ""),
    ],
)
def test_a_percentile_is_told_where_it_changes(p99: int | None, said: str) -> None:
    # GIVEN a victim whose I/Os take 200 µs, a hundredth of them 944 µs or more
    app = Victim(
        name="app", ios=1000, wait_ns=200 * US * 1000, parts=[], p99_ns=944 * US, without=[]
    )
    # WHEN it is said what would be without a culprit
    text = without_them(app, Without("backup", 150_000.0, None, p99, 500))
    # THEN a percentile is told where it is known to be shorter, or said to stay as it is
    mean = "without them the mean would be 150 us instead of 200 us"
    assert text.replace("µ", "u") == mean + said


def test_a_mean_that_stays_is_not_told_twice() -> None:
    # GIVEN a victim whose mean is the same without the culprit, as far as it is written
    app = Victim(name="app", ios=1, wait_ns=200_000, parts=[], p99_ns=0, without=[])
    # WHEN it is said what would be without the culprit
    text = without_them(app, Without("backup", 199_999.9, (1.0, 2.0), None, 500))
    # THEN no figure stands beside itself
    assert text == "without them the mean would not change"
