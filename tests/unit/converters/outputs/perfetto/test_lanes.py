# SPDX-License-Identifier: Apache-2.0
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biotrail.converters.outputs.perfetto.tracks import lanes
from biotrail.converters.outputs.perfetto.tracks.lanes import FOREVER, LanePool
from tests.support.both_ways import uncompiled

UNCOMPILED = uncompiled("converters/outputs/perfetto/tracks/lane_loops.py")
NEVER_ENDS = 10**6

intervals = st.lists(
    st.tuples(st.integers(0, 80), st.integers(0, 30)), min_size=1, max_size=50
).map(sorted)
cuts = st.lists(st.integers(1, 120), max_size=6)


def columns(rows):
    start = np.array([s for s, _ in rows], dtype=np.int64)
    return start, start + np.array([d for _, d in rows], dtype=np.int64)


def assign(start, end, windows, *, tell_open=True):
    """Lanes when the slices are told window by window."""
    pool, number = LanePool(), np.arange(len(start))
    lane = np.full(len(start), -1)
    bounds = [-1, *sorted(set(windows)), NEVER_ENDS]
    for begin, until in pairwise(bounds):
        over = (end >= begin) & (end < until)
        rows = np.flatnonzero(over | ((start < until) & (end >= until) & tell_open))
        told = np.where(over[rows], end[rows], FOREVER)
        none = np.zeros(len(rows), dtype=np.bool_)
        given_lane = pool.assign(number[rows], start[rows], told, none)
        lane[rows[over[rows]]] = given_lane[over[rows]]
    return lane


def assert_no_overlap(start, end, lane):
    for each in np.unique(lane):
        on = np.flatnonzero(lane == each)
        on = on[np.argsort(start[on], kind="stable")]
        assert (start[on][1:] > end[on][:-1]).all()


def depth(start, end):
    return max(int(((start <= t) & (end >= t)).sum()) for t in start)


@given(intervals)
def test_as_many_lanes_as_slices_at_once_and_none_overlap(rows):
    # GIVEN any slices / WHEN they get lanes
    start, end = columns(rows)
    lane = assign(start, end, [])
    # THEN no lane holds two at once, and there are no more lanes than needed
    assert_no_overlap(start, end, lane)
    assert int(lane.max()) + 1 == depth(start, end)


@given(intervals, cuts)
def test_windows_change_no_lane(rows, windows):
    # GIVEN slices, told whole or in windows that also tell what is under way
    start, end = columns(rows)
    # WHEN both get lanes / THEN they are the same
    assert assign(start, end, windows).tolist() == assign(start, end, []).tolist()


@given(intervals, cuts)
def test_slices_that_were_not_announced_find_room(rows, windows):
    # GIVEN windows that do not tell what is under way / WHEN slices end in later windows
    start, end = columns(rows)
    lane = assign(start, end, windows, tell_open=False)
    # THEN they still overlap with nothing
    assert_no_overlap(start, end, lane)


def test_touching_slices_do_not_share_a_lane():
    # GIVEN a slice that starts when another ends / WHEN they get lanes / THEN two
    start, end = np.array([10, 20]), np.array([20, 30])
    assert sorted(assign(start, end, [])) == [0, 1]


def test_a_pool_that_fell_idle_begins_with_its_first_lane():
    # GIVEN three slices at once, then single ones / WHEN they get lanes / THEN the first lane
    start = np.array([0, 1, 2, 100, 200])
    end = np.array([50, 40, 60, 110, 210])
    assert assign(start, end, []).tolist() == [0, 1, 2, 0, 0]


def test_a_slice_that_stays_keeps_its_lane_for_ever():
    # GIVEN a slice without an end that is told once
    pool = LanePool()
    one = np.array([7]), np.array([5]), np.array([FOREVER])
    (held,) = pool.assign(*one, np.array([True]))
    # WHEN others come in later windows / THEN they get other lanes
    for number in range(3):
        at = np.array([100 * number + 100])
        (lane,) = pool.assign(np.array([number]), at, at + 10, np.array([False]))
        assert lane != held


@pytest.mark.parametrize("few", [0, 3, 512])
@given(intervals, cuts)
def test_few_lanes_and_many_are_the_lowest_that_are_free(few, rows, windows):
    # GIVEN any slices, in windows or not
    start, end = columns(rows)
    # WHEN the loops for few lanes and for many find their lanes, compiled or not
    for loops in (UNCOMPILED, lanes.loops):
        with mock.patch.multiple(lanes, loops=loops, _FEW_LANES=few, _FEWEST_LEAVES=1):
            lane = assign(start, end, windows)
        # THEN every lane below was busy at the start, and the lane was not
        for row in range(len(start)):
            busy = {int(lane[r]) for r in range(row) if end[r] >= start[row]}
            assert set(range(lane[row])) <= busy
            assert lane[row] not in busy
