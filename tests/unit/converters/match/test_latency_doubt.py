# SPDX-License-Identifier: Apache-2.0
"""Without pointers: of which I/O the latency is in doubt, and of which it is known all the same."""

import random

import pytest

from biotrail.converters.events.tables import Certainty
from tests.scenarios.tools import events_of, tables_of
from tests.simulation.check import Tables, run
from tests.simulation.loads import history

WINDOWS = (1, 10, 1_000, 1_000_000)

TWO_READS = """
    0     Q R 0+8 bio=1 pid={first}
    2     G R 0+8 bio=1 pid={first}
    4     D R 0+8 bio=1 rq=1
    {q}   Q R 0+8 bio=2 pid={second}
    {q}.1 G R 0+8 bio=2 pid={second}
    {q}.2 D R 0+8 bio=2 rq=2
    1000  C R 0+8 bio=1 rq=1
    {end} C R 0+8 bio=2 rq=2
    """
"""Two reads of one place at once."""

SWAPPED = """
    0     Q R 0+8 bio=1 pid=1
    1     Q R 0+8 bio=2 pid=1
    10    G R 0+8 bio=2 pid=1
    11    D R 0+8 bio=2 rq=1
    100   C R 0+8 bio=2 rq=1
    110   G R 0+8 bio=1 pid=1
    111   D R 0+8 bio=1 rq=2
    {end} C R 0+8 bio=1 rq=2
    """
"""Two reads of one place, of which the second gets the first request."""

LOST_COMPLETION = """
    0     Q W 1000+8 bio=1
    1     G W 1000+8 bio=1
    2     D W 1000+8 bio=1 rq=1
    10000 Q W 2000+8 bio=2
    10001 G W 2000+8 bio=2
    10002 D W 2000+8 bio=2 rq=2
    10003 C W 2000+8 bio=2 rq=2
    80000 Q W 1000+8 bio=3
    80001 G W 1000+8 bio=3
    80002 D W 1000+8 bio=3 rq=3
    80003 C W 1000+8 bio=3 rq=3
    80010 Q W 1000+8 bio=4
    80011 G W 1000+8 bio=4
    80012 D W 1000+8 bio=4 rq=4
    80013 C W 1000+8 bio=4 rq=4
    90000 Q W 3000+8 bio=5
    """
"""A completion is missing, and the same place is written again, twice."""

MERGE_INTO_ONE_OF_TWO = """
    0   Q W 0+8 bio=1 pid=1
    1   G W 0+8 bio=1 pid=1
    2   Q W 0+8 bio=2 pid=1
    3   G W 0+8 bio=2 pid=1
    4   Q W 8+8 bio=3 pid=1
    5   M W 8+8 bio=3 pid=1
    10  D W 0+16 bio=1 rq=1
    11  D W 0+8 bio=2 rq=2
    1000 C W 0+16 bio=1 rq=1
    1001 C W 0+8 bio=2 rq=2
    """
"""A write joins one of two requests that end where it begins."""

SECOND = 1_000_000
"""ns of a scenario's unit that make its hundreds last longer than a window is held open."""


def doubtful(text: str, **options: int) -> list[tuple[str, bool]]:
    """(certainty, doubtful) of each bio, in the order of their Q; the same for all windows."""
    found = []
    for window in WINDOWS:
        events = events_of(text, options.get("scale", 1000))
        chunks = len(events) if window < 1000 else 1
        t = tables_of(events, associate="intervals", window_events=window, chunks=chunks)
        names = [Certainty(c).name.lower() for c in t.bios.certainty.tolist()]
        found.append(list(zip(names, t.bios.doubtful.tolist(), strict=True)))
    assert all(one == found[0] for one in found)
    return found[0]


@pytest.mark.parametrize("scale", [1000, SECOND])
@pytest.mark.parametrize(
    ("q", "end", "in_doubt"),
    [
        (20, 1050, False),  # within a tenth, whichever completion is whose
        (600, 1050, True),  # the first's is within a tenth; the second's is 400 or 450
        (20, 1200, True),  # they began at one time, and one of them ended 20 % later
    ],
)
def test_two_reads_of_one_place_at_once(q: int, end: int, *, in_doubt: bool, scale: int) -> None:
    # GIVEN two identical reads in flight at once / WHEN it is open which completion is whose
    found = doubtful(TWO_READS.format(first=1, second=2, q=q, end=end), scale=scale)
    # THEN both are ambiguous, and in doubt where a latency may be off by more than a tenth
    if q == 600:
        assert found == [("ambiguous", False), ("ambiguous", True)]
    else:
        assert found == [("ambiguous", in_doubt)] * 2


@pytest.mark.parametrize(("end", "in_doubt"), [(105, False), (300, True)])
def test_bios_that_may_have_swapped_their_requests(end: int, *, in_doubt: bool) -> None:
    # GIVEN two identical bios, of which the second may have got the first request, whose own
    # completions are certain / WHEN these are apart by more than a tenth / THEN both are in doubt
    text = SWAPPED.replace("110 ", "20 ").replace("111 ", "21 ") if end < 110 else SWAPPED
    assert doubtful(text.format(end=end)) == [("ambiguous", in_doubt)] * 2


@pytest.mark.parametrize("scale", [1000, SECOND])
def test_after_a_lost_completion_the_next_of_the_place_are_in_doubt(scale: int) -> None:
    # GIVEN a write whose completion is missing, and two more of its place later
    # WHEN each completion may be the older one's
    found = doubtful(LOST_COMPLETION, scale=scale)
    # THEN no latency there counts; the write elsewhere is not touched by it
    assert found[0] == ("ambiguous", True)
    assert found[1] == ("interval", False)
    assert found[2] == ("ambiguous", True)
    # THEN one of them has no end: that of the last
    assert found[3] == ("ambiguous", False)


def test_a_merge_into_one_of_two_requests_bounds_nothing() -> None:
    # GIVEN a bio that joined one of two requests / WHEN their completions are 0.1 % apart
    # THEN all are in doubt all the same: which request there was at all rests on the choice
    assert doubtful(MERGE_INTO_ONE_OF_TWO) == [("ambiguous", True)] * 3


def _columns(t: Tables) -> list[tuple[int, ...]]:
    names = ("number", "complete", "doubtful")
    return sorted(tuple(row[name] for name in names) for row in (*t.bios, *t.requests))


@pytest.mark.parametrize("seed", range(0, 200, 8))
def test_windows_of_any_size_doubt_the_same(seed: int) -> None:
    # GIVEN a generated block layer at work, with losses / WHEN its log is read in small windows
    found = history(random.Random(seed), 12)
    whole = run(found, "intervals")
    # THEN the same latencies are in doubt; that what is not is right, one_history.py checks
    for window in (7, 150):
        assert _columns(run(found, "intervals", window)) == _columns(whole)
