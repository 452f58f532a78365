# SPDX-License-Identifier: Apache-2.0
"""Counterexamples among generated histories, each by its seed and by what was wrong there.

Those that can be told in a few events are in the other `test_regression_*.py`, too.
"""

import pytest

from tests.simulation.check import story
from tests.simulation.one_history import wrong_of_seed

LEARNT = {
    "absorbed, and named only by an insert after a requeue": 20412,
    "several discards, apart, or two together": 20764,
    "merges into one address, far apart, and a loss between": 21322,
    "what takes requests sends no bio on": 21788,
    "places behind a gap in a chain": 22466,
    "doubts of one who had the identity later": 23824,
    "a plugged request that cannot be joined": 24498,
    "queued on a partition and on the disk, and the remap lost": 25920,
    "queued on a multipath disk and below, and the remap lost": 27542,
    "joined behind others, and at the head when it failed": 30019,
    "a mirrored bio's memory used below": 30290,
    "one discard, or another that grew": 30330,
    "two bios for one place behind the gap": 33736,
    "a merge into a request whose requeue was lost": 33812,
    "a partial completion that was lost": 35606,
    "queued above before the log, failed on the disk": 36233,
    "a clone of a bio from before the log": 40414,
    "a flush of a bio from before the log": 41294,
    "what joins after an issue whose chain was cut": 46566,
    "what joins after an issue of a bio whose size was not seen": 52523,
    "a request at the memory of a clone whose end was lost": 54085,
    "a flush that failed, at the memory of a request that others had joined": 66098,
    "a flush at the memory of a request that was absorbed": 71389,
    "a bio from before the log that ends where a clone does": 77833,
    "a failure of more than what is known to have joined": 81991,
    "a completion in part, whose issue was lost": 83229,
    "a merge to what cannot be there any more": 84318,
    "two like requests above, of which one's end was lost": 85330,
    "discards behind a gap in a chain": 87560,
    "a loop's bio whose part of the request is through": 91887,
    "two commands of one bio, of unlike size": 93705,
    "a flush's end, or that of data whose own end was lost": 101403,
    "a merge whose Q was lost, in what a larger bio had split off": 104325,
    "a request of which only the insert was seen, and none the issue": 122148,
    "a front's memory in a request of another operation": 123003,
    "absorbed, and named only by the second of two chains": 123560,
    "a failure of one's part, or of all of another": 124367,
    "a flush at the memory of a request whose issue was lost": 145007,
    "a remap of another operation, at the memory of one queued near there": 149719,
}


@pytest.mark.parametrize("seed", LEARNT.values(), ids=LEARNT)
def test_a_history_that_was_once_told_wrong_is_right(seed: int) -> None:
    # GIVEN a history that was a counterexample
    # WHEN it is associated by identity and by intervals
    found, wrong = wrong_of_seed(seed)
    # THEN nothing of it is wrong, and nothing is marked that is determined
    assert not wrong, "\n".join([*wrong, story(found)])
