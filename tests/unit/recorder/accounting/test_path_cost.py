# SPDX-License-Identifier: Apache-2.0
"""What the programs of the path cost, from the runs that the kernel counted and all their runs."""

import pytest

from biotrail.recorder.accounting.cost import CALL_NS, OTHER_CALL_NS, ns_per_run, part_seconds
from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.backend import ProgramInfo
from biotrail.recorder.probes.maps.path_maps import PathRuns
from biotrail.recorder.schema.records import Kind
from tests.support.log_samples import ring
from tests.support.stack_logs import record


def program(part: str, runs: int, spent: int) -> ProgramInfo:
    return ProgramInfo("bt_x", "Q", "x", True, "", runs, spent, 0, part)


def test_a_run_of_the_block_layers_programs_is_what_an_event_costs() -> None:
    # GIVEN programs of the block layer, and one of the path that ran much more often
    programs = [program("", 10, 3000), program("", 10, 1000), program("wait", 1000, 50_000)]
    # WHEN the mean is taken  THEN it is of the former
    assert ns_per_run(programs) == 200
    assert ns_per_run([program("wait", 5, 5)]) == 0


def test_a_part_that_counts_its_runs_costs_their_number_times_the_mean() -> None:
    # GIVEN a part's programs, of which the kernel counted few of their many runs
    programs = [program("irq", 30, 3000), program("irq", 10, 1000)]
    # WHEN its cost is estimated  THEN all runs count
    runs = PathRuns(by_part={"irq": 1_000_000})
    assert part_seconds(programs, runs, 0) == {"irq": pytest.approx(0.1)}


def test_timed_calls_cost_at_least_what_the_budget_reckons() -> None:
    # GIVEN 1,000 calls, of which 900 are timed
    runs = PathRuns(1000, 900)
    least = (900 * CALL_NS + 100 * OTHER_CALL_NS) / 1e9
    # WHEN the kernel counted no run, or short ones  THEN it is that
    assert part_seconds([program("time", 0, 0)], runs, 0) == {"time": least}
    assert part_seconds([program("time", 10, 100)], runs, 0) == {"time": least}
    # WHEN runs were longer: two for each call  THEN it is what they took
    assert part_seconds([program("time", 10, 5000)], runs, 0) == {"time": pytest.approx(1e-3)}


def test_a_part_without_counts_follows_the_block_layers_events() -> None:
    # GIVEN a part of the path that does not count its runs
    programs = [program("", 100, 20_000), program("other", 50, 5000)]
    # WHEN there were ten times as many events as runs were counted  THEN it took ten times as long
    assert part_seconds(programs, PathRuns(), 1000) == {"other": pytest.approx(50e-6)}
    # AND nothing is known where the kernel counted none
    assert part_seconds([program("other", 0, 0)], PathRuns(), 1000) == {}
    assert part_seconds([program("", 100, 20_000)], PathRuns(), 1000) == {}


def test_events_of_the_path_are_told_apart_from_the_block_layers() -> None:
    # GIVEN records of a bio with its call and submission, of a call's return, and of a wait
    of_bio = (Kind.Q, Kind.CALL, Kind.DIRTIED, Kind.SUBMISSION)
    kinds = (Kind.TASK, *of_bio, Kind.RETURN, Kind.WAIT, Kind.WAIT_STACK)
    data = ring([record(kind, 1000) for kind in kinds], 0)
    meter = Meter()
    # WHEN they are counted
    meter.add([Segment(0, 0, 0, data)])
    # THEN names, and what only adds to the bio, are no events; the return and the wait are
    assert (meter.events, meter.path_events) == (3, 2)
