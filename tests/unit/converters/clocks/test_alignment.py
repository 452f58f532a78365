# SPDX-License-Identifier: Apache-2.0
"""Logs of machines whose clocks differ: where their times stand on one timeline, and how surely."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biotrail.converters.clocks.alignment import Clocks, choose_reference
from biotrail.converters.clocks.corridor import MOST_DRIFT, Line, fit
from biotrail.converters.clocks.wall_clock import Reading, WallClock
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError
from biotrail.text.alignment import alignment_lines
from tests.support.hosts_logs import SECOND, Machine
from tests.support.path_logs import PathLog

SPAN = (0, 10 * SECOND)
BIOS = list(range(SECOND // 10, 10 * SECOND, SECOND // 3))
US = 1000


def clocks(path):
    return Clocks.from_trace(path.name, Trace(path))


def queued(path):
    windows = list(Trace(path).lifecycles())
    return np.concatenate([w.bios.queue for w in windows])


def lined_up(tmp_path, one, other, span=SPAN, **how):
    """Errors (ns) of the other machine's bios on the first one's timeline, and the alignment."""
    first = one.write(tmp_path / "one.biotrail", BIOS, span=SPAN)
    second = other.write(tmp_path / "other.biotrail", BIOS, span=span, **how)
    alignment = clocks(second).align_to(clocks(first))
    found = alignment.times(queued(second))
    true = np.array([one.boottime(at) for at in BIOS])
    return found - true, alignment


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    fast=st.tuples(*[st.floats(-3e-4, 3e-4)] * 2),
    started=st.integers(-10_000, -20),
    blur=st.tuples(*[st.sampled_from([0, 30, 400, 20_000])] * 2),
    seed=st.integers(0, 1000),
    span=st.tuples(st.integers(-5, 0), st.integers(10, 14)),
)
def test_what_is_said_holds(tmp_path, fast, started, blur, seed, span):
    # GIVEN two machines with any drifts, offsets and readings as sure as they say
    one = Machine(fast=fast[0], blur=blur[0], seed=seed)
    other = Machine("db2", "2" * 32, started * SECOND, fast[1], blur=blur[1], seed=seed + 1)
    # WHEN one's log is lined up with the other's
    errors, alignment = lined_up(
        tmp_path, one, other, (span[0] * SECOND, span[1] * SECOND), every=SECOND
    )
    # THEN no bio is further off than the alignment says
    assert np.abs(errors).max() <= alignment.uncertainty


def test_readings_of_one_boot_interruptions_and_suspends_count(tmp_path):
    # GIVEN a machine whose first reading tells BOOTTIME - MONOTONIC as surely as its width
    one = Machine(fast=0.0, blur=0, seed=966)
    other = Machine("db2", "2" * 32, -20 * SECOND, 1e-6, blur=30, seed=967)
    # WHEN its log is lined up  THEN that width is in what is said
    span = (-5 * SECOND, 13 * SECOND)
    errors, alignment = lined_up(tmp_path, one, other, span, every=SECOND)
    assert np.abs(errors).max() <= alignment.uncertainty
    # GIVEN two logs of one boot, whose readings have widths, and whose wall clock was set between
    one = Machine(blur=5000, seed=1)
    other = Machine(blur=5000, seed=2, wrong=SECOND)
    # WHEN they are lined up / THEN it is exact, but for where the first's own BOOTTIME is put
    errors, alignment = lined_up(tmp_path, one, other)
    assert (alignment.uncertainty, alignment.same_boot) == (0, True)
    assert len(set(errors.tolist())) == 1
    assert abs(errors[0]) <= 10_000
    # GIVEN a log without an end, of a clock that drifts / WHEN it is lined up
    other = Machine("db2", "2" * 32, fast=50e-6, seed=1)
    errors, alignment = lined_up(tmp_path, Machine(), other, end=False)
    # THEN its last chunk tells the drift
    assert np.abs(errors).max() <= alignment.uncertainty < US
    # GIVEN a line through two readings / WHEN a third one lies beside it by more than its width
    ends = [Reading(0, 0, 10 * SECOND, 100), Reading(SECOND, SECOND, 11 * SECOND, 100)]
    wall = WallClock.fit(ends)
    assert wall.uncertainty_at(SECOND // 2) == 200
    half = SECOND // 2
    wall.compare([Reading(half, half, half + 10 * SECOND + 5000, 100)])
    # THEN the line is less sure by as much
    assert wall.uncertainty_at(half) == 200 + 5000 - 200


@pytest.mark.parametrize("size", [2 * SECOND, -300_000_000])
def test_a_wall_clock_that_was_set(tmp_path, size):
    # GIVEN a machine whose wall clock is wrong until it is set, in the midst of the recording
    one = Machine()
    other = Machine("db2", "2" * 32, wrong=-size, steps=[(4 * SECOND + 17, size)], seed=1)
    # WHEN its log is lined up
    errors, alignment = lined_up(tmp_path, one, other, every=SECOND // 50)
    # THEN all of it is by the right time, the step is found to the chunk, and it is said
    assert np.abs(errors).max() <= alignment.uncertainty < 20 * US
    (step,) = alignment.own.steps
    assert abs(step.size - size) < US
    assert step.before - step.after <= SECOND // 50 + US
    assert step.after <= other.boottime(4 * SECOND + 17) <= step.before


def test_a_machine_that_slept(tmp_path):
    # GIVEN a machine that slept for an hour between two bios
    one = Machine()
    asleep = (4 * SECOND, 3600 * SECOND)
    other = Machine("db2", "2" * 32, sleeps=[asleep], seed=1)
    bios = [SECOND, 3 * SECOND, 3605 * SECOND, 3607 * SECOND]
    first = one.write(tmp_path / "one.biotrail", BIOS, span=SPAN)
    path = tmp_path / "slept.biotrail"
    other.write(path, bios, span=(0, 3608 * SECOND), every=SECOND // 2)
    # WHEN its log is lined up / THEN what came after is an hour later
    alignment = clocks(path).align_to(clocks(first))
    found = alignment.times(queued(path))
    true = np.array([one.boottime(at) for at in bios])
    assert np.abs(found - true).max() <= alignment.uncertainty


def test_logs_without_clocks_or_from_before_are_told(tmp_path):
    # GIVEN a host's log, and one of the same host from before it was started again
    later = Machine(started=100 * SECOND, boot="2" * 32)
    earlier = Machine()
    first = later.write(tmp_path / "later.biotrail", [], span=(200 * SECOND, 201 * SECOND))
    second = earlier.write(tmp_path / "earlier.biotrail", [], span=SPAN)
    # WHEN one of them is to give the timeline / THEN it is the one that has no times below zero
    assert choose_reference([clocks(first), clocks(second)]) == 1
    assert choose_reference([clocks(second), clocks(first)]) == 0
    # GIVEN a log whose header has no reading, and no chunk / WHEN it shall be lined up
    from biotrail.recorder.log import LogWriter

    path = tmp_path / "old.biotrail"
    with path.open("wb") as stream:
        LogWriter(stream, {"log_id": "a" * 32}).close({})
    # THEN that is said
    with pytest.raises(ConversionError, match=r"old\.biotrail: holds no reading of the clocks"):
        clocks(path)


def test_what_is_said_of_it(tmp_path):
    # GIVEN logs of a machine that drifts and was set, of one from an hour later, and of one boot
    one, same = Machine(), Machine(wrong=5 * SECOND)
    other = Machine("db2", "2" * 32, fast=50e-6, steps=[(4 * SECOND, SECOND)], wrong=-SECOND)
    late = Machine("db3", "3" * 32)
    hour = 3600 * SECOND
    logs = [
        clocks(machine.write(tmp_path / f"{name}.biotrail", BIOS, span=span, every=SECOND // 50))
        for name, machine, span in (
            ("one", one, SPAN),
            ("same", same, SPAN),
            ("other", other, SPAN),
            ("late", late, (hour, hour + SECOND)),
        )
    ]
    # WHEN it is told how they line up
    labels = ["db1: one", "db1: same", "db2", "db3"]
    lines = alignment_lines(
        [(labels[0], logs[0], None)]
        + [
            (label, log, log.align_to(logs[0]))
            for label, log in zip(labels[1:], logs[1:], strict=True)
        ]
    )
    # THEN each has its line, with what is odd about it, and the limit of it all
    said = "\n".join(lines)
    for pattern in (
        r"times are those of db1: one",
        r"  db1: same: the same boot, so the same clock: exact",
        r"  db2: by wall clock, within [\d.]+ (ns|µs) as far as the logs tell",
        r"note: db1: same: its wall clock differs by \+5 s from the other log's",
        r"note: db2: its wall clock went 50 ppm slow against its BOOTTIME",
        r"note: db2: its wall clock was set by \+1 s at 2026-09-21 \d\d:\d\d:\d\dZ or up to 20 ms",
        r"note: db3: no time in common, 59 min 50 s between",
        r"how far the wall clocks of db1: one and db2, db3 were apart while recording, which no",
    ):
        assert re.search(pattern, said), (pattern, said)


def test_the_path_is_on_the_timeline_too(tmp_path):
    # GIVEN a log with calls, waits and interrupts, whose machine slept before
    log = PathLog()
    log.bio(120, 480, entry=100, dirtied=(20, 7, b"db"))
    log.waits(100, 150, 500, 530)
    log.returns(100, 600, blocked=350, runnable=30, queued=1)
    log.request(1000, 2000, context=1, hard=400, raised=350, soft=100)
    path = log.write(tmp_path / "one.biotrail")
    alignment = replace(clocks(path).align_to(clocks(path)), slept=np.array([7 * SECOND]))
    windows = [window for window in Trace(path).lifecycles() if window.path is not None]
    for table, columns in {
        "calls": ("entry", "exit"),
        "waits": ("entry", "out", "woken", "run"),
        "bios": ("entry", "dirtied"),
        "interrupts": ("hard", "raised", "soft"),
    }.items():
        # WHEN its windows are put on a timeline / THEN all times of its path are
        window = next(w for w in windows if len(getattr(w.path, table)))
        before = getattr(window.path, table)
        after = getattr(alignment.lifecycles(window).path, table)
        for column in columns:
            times = getattr(before, column)
            assert np.array_equal(getattr(after, column), alignment.times(times)), column
            assert not np.array_equal(getattr(after, column), times), column
    # AND durations are not
    [window] = [w for w in windows if len(w.path.calls)]
    assert alignment.lifecycles(window).path.calls.blocked.tolist() == [350]


# The line between two clocks that bounds at many times leave, and how exactly it is known.


def bounds(
    seed: int, offset: int, rate: float, count: int = 200
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds that hold for a clock that is `offset` ahead at 0 and faster by `rate`."""
    draw = np.random.default_rng(seed)
    at = np.sort(draw.integers(0, 30 * SECOND, count))
    true = offset + np.rint(at * rate).astype(np.int64)
    return at, true - draw.integers(20, 90_000, count), true + draw.integers(20, 90_000, count)


@given(
    seed=st.integers(0, 1 << 16),
    offset=st.integers(-(1 << 55), 1 << 55),
    rate=st.floats(-900e-6, 900e-6),
)
def test_the_true_clock_is_within_the_bound(seed: int, offset: int, rate: float) -> None:
    # GIVEN bounds around a clock's true offset
    at, low, high = bounds(seed, offset, rate)
    # WHEN the line is fitted / THEN all bounds hold for it, and the truth is within what it says
    found = fit(at, low, high)
    assert found is not None
    assert found.kept.all()
    line = found.line
    moved = line.times(at) - at
    assert (moved >= low - 2).all()
    assert (moved <= high + 2).all()
    ends = at[[0, -1]]
    true = ends + offset + np.rint(ends * rate).astype(np.int64)
    assert np.abs(line.times(ends) - true).max() <= line.within


def test_what_is_not_known_stays_unknown() -> None:
    # GIVEN nothing  WHEN a line is asked for  THEN there is none
    nothing = np.zeros(0, dtype=np.int64)
    assert fit(nothing, nothing, nothing) is None
    # GIVEN one pair of bounds
    at, low, high = (np.array([one]) for one in (SECOND, 100, 300))
    # WHEN the line is fitted  THEN at that time it is in the middle
    found = fit(at, low, high)
    assert found is not None
    assert found.line.times(at)[0] - SECOND == 200
    assert 100 <= found.line.within <= 103
    assert abs(found.line.rate) <= MOST_DRIFT * 1e-6
    # GIVEN a line  WHEN a time that was not recorded is converted  THEN it stays so
    line = Line(0, 1000, 0.0, 5)
    assert line.times(np.array([-1, 0, 7])).tolist() == [-1, 1000, 1007]
    # GIVEN bounds, of which three are of another clock
    at, low, high = bounds(3, 5 * SECOND, 50e-6)
    wrong = np.array([10, 90, 150])
    low[wrong] += 400_000
    high[wrong] += 400_000
    # WHEN the line is fitted / THEN these are left out, and the line is the others'
    found = fit(at, low, high)
    assert found is not None
    assert np.flatnonzero(~found.kept).tolist() == wrong.tolist()
    assert found.line.rate == pytest.approx(50e-6, abs=1e-5)
