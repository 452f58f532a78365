# SPDX-License-Identifier: Apache-2.0
"""The table of what drivers did with requests."""

import io

import pytest

from biotrail.converters.events.tables import NEVER
from biotrail.converters.lifecycles.account import Reason
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from tests.support.both_ways import differences, windows_of
from tests.support.driver_logs import LOOP, NVME, SCSI, request, sample
from tests.support.path_logs import PathLog
from tests.support.path_tables import RecordedPath, recorded_path
from tests.support.stack_logs import START


def read(log: PathLog) -> RecordedPath:
    return recorded_path(io.BytesIO(log.data()), 1000)


def test_a_request_has_its_drivers_steps() -> None:
    # GIVEN requests of three drivers, and one without steps WHEN they are read
    found = read(sample())
    steps = found.steps
    # THEN the first three have a row, by their number
    assert steps.number.tolist() == sorted(found.requests.number.tolist())[:3]
    assert steps.driver.tolist() == [NVME, SCSI, LOOP]
    # AND times that the record has as times before C, also behind an INTERRUPT record
    assert (steps.begun - START).tolist() == [995, 3100, 5400]
    assert (steps.answered - START).tolist() == [1700, 3950, 5800]
    assert steps.finished.tolist() == [START + 1900, NEVER, NEVER]
    # AND counts, and the queue
    assert steps.errors.tolist() == [0, 2, 0]
    assert steps.timeouts.tolist() == [0, 1, 0]
    assert (steps.sq_head[0], steps.sq_tail[0]) == (4, 7)
    # AND the first one has its interrupt too
    assert found.interrupts.number.tolist() == steps.number.tolist()[:1]


def test_steps_of_other_requests_are_not_its_own() -> None:
    # GIVEN a request whose driver's beginning is said to be before its allocation
    log = PathLog()
    request(log, 1000, 2000, {"driver": SCSI, "begun": 1500, "answered": 100})
    # WHEN it is read THEN that time is not known, and the answer is
    steps = read(log).steps
    assert (steps.begun.tolist(), steps.answered.tolist()) == ([NEVER], [START + 1900])
    # GIVEN a DRIVER record of a request whose C is not in the log
    log = sample()
    log.add(Kind.DRIVER, 7500, rq=1 << 30, driver=SCSI, begun=100)
    # WHEN it is read THEN there is no row for it, and it is accounted for
    found = read(log)
    assert len(found.steps) == 3
    assert found.trace.account.events["v", Reason.PATH] == 4
    # GIVEN two requests of one address, one after the other
    log = PathLog()
    for at in (1000, 3000):
        steps = {"driver": LOOP, "begun": 100 + at // 10, "answered": 50}
        request(log, at, at + 900, steps, address=1 << 20)
    # WHEN they are read THEN each has the steps of its own completion
    found = read(log).steps
    assert (found.begun - START).tolist() == [1700, 3500]
    # GIVEN a log with interrupts alone WHEN it is read
    log = PathLog()
    log.request(1000, 2000, hard=10, context=2)
    windows = Trace(io.BytesIO(log.data(parts=("irq",)))).lifecycles()
    # THEN its tables have no row of steps
    assert {len(window.path.steps) for window in windows if window.path is not None} == {0}


@pytest.mark.parametrize("ago", [0xFFFFFFFF, 0xFFFFFFFE])
def test_an_answer_too_long_ago_is_not_known(ago: int) -> None:
    # GIVEN a request that took six seconds, its answer four and more before C
    log = PathLog()
    request(log, 1000, 6_000_000_000, {"driver": SCSI, "begun": 5_999_998_000, "answered": ago})
    # WHEN it is read THEN the answer's time is not known, and the beginning's is
    steps = read(log).steps
    assert (steps.begun.tolist(), steps.answered.tolist()) == ([START + 2000], [NEVER])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_windows_of_any_size_have_the_same_rows(size: int) -> None:
    # GIVEN requests in flight across the borders of chunks
    log = PathLog()
    for number in range(12):
        at = 1000 * (number + 1)
        request(log, at, at + 2500, {"driver": 1 + number % 3, "begun": 2400, "answered": 90})
    data = log.data(range(300, 15_000, 700))
    # WHEN the log is read in small windows / THEN it has the same rows
    whole, parts = (windows_of(io.BytesIO(data), events) for events in (1_000, size))
    assert differences(whole, parts) == []
    assert sum(len(window.path.steps) for window in parts[1] if window.path is not None) == 12
