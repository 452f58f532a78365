# SPDX-License-Identifier: Apache-2.0
"""Perfetto traces: waits named by what they were for, commits on their journals' tracks."""

import io
from typing import Any

import pytest

from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import ARGUMENTS, CALL, COMMIT, COMMIT_PHASES
from biotrail.converters.pipeline import Trace
from tests.support.path_logs import FSYNC, WITH_REASONS, PathLog
from tests.support.perfetto_check import Read, Slice, read
from tests.support.stack_logs import DEV, START

NOTES = {"stacks": {"wait": {"7": [["jbd2_log_wait_commit", "", 1]], "8": [["odd", "", 1]]}}}


def trace_of(log: PathLog, size: int = 1_000_000, **how: Any) -> Read:
    source, out = Trace(io.BytesIO(log.data(notes=NOTES, **how))), io.BytesIO()
    convert(source.lifecycles(size), source.context, out)
    return read(out.getvalue())


def spans(one: Slice) -> list[tuple[str, int, int]]:
    return [(child.name, child.start - START, child.end - START) for child in one.children]


def sample() -> PathLog:
    """A call that waits for a commit, for what no rule knows, and without a stack; two journals."""
    log = PathLog()
    log.task(42, b"db")
    log.waits(500, 600, 900, 950, stack=7, waker=900)
    log.waits(500, 1000, 1100, 1100, stack=8)
    log.waits(500, 1200, 1300, 1300, stack=-17)
    log.returns(500, 2000, number=FSYNC, blocked=500, runnable=50, waits=3)
    log.commit(11, 400, 410, 420, 430, 890)
    log.commit(12, 900, 910, 910, 930, 1500)
    log.commit(5, -1, -1, 700, 800, 900, tid=901, dev=DEV + 1)
    return log


@pytest.mark.parametrize("cuts", [[], [450, 920, 1150]])
def test_waits_are_named_by_their_reasons(cuts: list[int]) -> None:
    # GIVEN a log that says what waits are for, in one window or several  WHEN it is drawn
    size = 1 if cuts else 1_000_000
    (call,) = trace_of(sample(), size, cuts=cuts, parts=WITH_REASONS).slices(CALL)
    # THEN each wait has its reason, `blocked` where it is unknown, and times as ever
    assert spans(call) == [
        ("journal commit", 600, 900),
        ("runnable", 900, 950),
        ("other", 1000, 1100),
        ("blocked", 1200, 1300),
    ]


def test_a_call_names_the_commit_that_it_waited_for() -> None:
    # GIVEN a call whose wait a journal's thread ended  WHEN it is drawn
    (call,) = trace_of(sample(), parts=WITH_REASONS).slices(CALL)
    # THEN it names the transaction
    assert call.args["commit"] == 11
    assert "commit" in {argument.name for argument in ARGUMENTS[CALL]}


def test_without_the_part_waits_are_blocked() -> None:
    # GIVEN a log whose header does not have the part  WHEN it is drawn
    (call,) = trace_of(sample(), parts=("time", "wait")).slices(CALL)
    # THEN waits are named as of old
    assert {name for name, _, _ in spans(call)} == {"blocked", "runnable"}


def test_commits_are_on_tracks_of_their_journals() -> None:
    # GIVEN commits of two file systems  WHEN they are drawn
    trace = trace_of(sample(), parts=WITH_REASONS)
    found: dict[str, list[Slice]] = {}
    for one in trace.slices(COMMIT):
        found.setdefault(trace.tracks[one.track].descriptor.name, []).append(one)
    # THEN each journal has its track, with a slice for each commit
    assert len(found) == 2
    assert all(name.startswith("journal of ") for name in found)
    mine, other = sorted(found.values(), key=len, reverse=True)
    assert [one.args for one in mine] == [
        {"transaction": 11, "tid": 900},
        {"transaction": 12, "tid": 900},
    ]
    assert [(one.name, one.start - START, one.end - START) for one in mine] == [
        (COMMIT, 400, 890),
        (COMMIT, 900, 1500),
    ]
    # AND phases within, without those of no length, or not seen
    starting, locking, flushing, logging = COMMIT_PHASES
    assert spans(mine[0]) == [
        (starting, 400, 410),
        (locking, 410, 420),
        (flushing, 420, 430),
        (logging, 430, 890),
    ]
    assert spans(mine[1]) == [
        (starting, 900, 910),
        (flushing, 910, 930),
        (logging, 930, 1500),
    ]
    assert (other[0].start - START, spans(other[0])) == (
        700,
        [(flushing, 700, 800), (logging, 800, 900)],
    )
    assert {argument.name for argument in ARGUMENTS[COMMIT]} == {"transaction", "tid"}
