# SPDX-License-Identifier: Apache-2.0
"""Histograms of latencies, as the programs' slots are defined."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biotrail.recorder.probes.sites.latencies import BOUNDS, OCTAVES, Latencies
from biotrail.recorder.schema.limits import HIST_SLOTS

SHARES = (0.5, 0.9, 0.99, 0.999)


def slot_of(ns: int) -> int:
    """bt_slot_of() of bpf/pairs.h."""
    if ns < 32:
        return ns
    octave = ns.bit_length() - 1
    return min((octave - 3) * 16 + (ns >> (octave - 4) & 15), HIST_SLOTS - 1)


def counted(values: list[int]) -> Latencies:
    slots = np.bincount([slot_of(ns) for ns in values], minlength=HIST_SLOTS).astype(np.uint64)
    return Latencies(len(values), sum(values), max(values, default=0), slots)


@given(st.integers(0, (1 << OCTAVES) - 1))
def test_a_latency_lies_in_its_slots_bounds(ns: int) -> None:
    # GIVEN a latency WHEN the program chooses its slot THEN it is within that slot's bounds
    slot = slot_of(ns)
    assert BOUNDS[slot] <= ns < BOUNDS[slot + 1]


def test_slots_lie_side_by_side_and_end_at_an_octave() -> None:
    # GIVEN the bounds THEN they ascend, one for each slot and the end, up to 2^47 ns
    assert len(BOUNDS) == HIST_SLOTS + 1
    assert (np.diff(BOUNDS) > 0).all()
    assert BOUNDS[-1] == 1 << OCTAVES == 1 << 47


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=200))
def test_percentiles_are_within_a_slot(values: list[int]) -> None:
    # GIVEN latencies WHEN percentiles are read from their slots
    found = counted(values).percentiles(SHARES)
    # THEN each is within 1/16 of the one at its rank, and none is above the maximum
    ordered = sorted(values)
    for share, value in zip(SHARES, found, strict=True):
        exact = ordered[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)]
        assert abs(value - exact) <= exact / 16 + 1
        assert value <= max(values)


def test_none_have_percentiles_of_zero() -> None:
    # GIVEN no latency THEN its figures are 0
    assert Latencies().percentiles(SHARES) == [0.0] * 4
    assert Latencies().mean == 0


def test_octaves_are_those_of_bcc() -> None:
    # GIVEN latencies at the ends of octaves WHEN they are counted by powers of two
    found = counted([0, 1, 2, 3, 4, 1023, 1024, 2047, 2048]).octaves()
    # THEN 0 and 1 are together, as bcc's log2 histogram has them
    assert {octave: int(count) for octave, count in enumerate(found) if count} == {
        0: 2, 1: 2, 2: 1, 9: 1, 10: 2, 11: 1,
    }  # fmt: skip


def test_what_came_since_is_a_difference() -> None:
    # GIVEN two readings, of which the second has smaller latencies alone
    before = counted([100, 5000])
    after = before + counted([200, 300])
    # WHEN the second is read since the first
    found = after.since(before)
    # THEN it has those alone; its maximum is at most the end of their highest slot
    assert (found.count, found.sum) == (2, 500)
    assert 300 <= found.max < 320
    # AND a new maximum is exact
    assert (after + counted([70_001])).since(after).max == 70_001


@pytest.mark.parametrize("ns", [1 << 47, 1 << 60])
def test_what_is_longer_is_in_the_last_slot(ns: int) -> None:
    # GIVEN a latency beyond the last slot's end THEN it is counted there
    assert slot_of(ns) == HIST_SLOTS - 1
