# SPDX-License-Identifier: Apache-2.0
"""Rates, depths and intervals are of the time that was recorded, not of that of the events."""

from pathlib import Path

import pytest

from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.report.report import Reporter
from biotrail.converters.analysis.report.tree import Report
from biotrail.converters.lifecycles.cutting import Span
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from biotrail.text.report import verdict
from tests.scenarios.tools import events_of
from tests.support import captures

START = captures.clock()["monotonic"]
SECOND = 10**9
TOOK = 100_000


def two_reads(path: Path, stopped: int | None = 4 * SECOND, backend: str = "core") -> Trace:
    """Reads of 100 µs that begin 1 s and 2 s after recording began, which lasted for 4 s."""
    words = []
    for number, at in enumerate((1_000_000, 2_000_000)):
        where = f"R {4096 * number}+8"
        words += [f"{at} Q {where} bio={number + 1:x}", f"{at} s {where} rq={number + 1:x}"]
        words += [f"{at} G {where} bio={number + 1:x}"]
        words += [f"{at + 100} C {where} bio={number + 1:x} rq={number + 1:x}"]
    log = captures.write_log(
        path / "log.biotrail",
        events_of("\n".join(words)),
        {"backend": backend},
        chunks=2,
        stopped=stopped,
    )
    return Trace(log)


def reported(trace: Trace, interval: int = 0, window_events: int = WINDOW_EVENTS) -> Report:
    reporter = Reporter(trace.context, interval)
    for window in trace.lifecycles(window_events, small=window_events < 10):
        reporter.add(window)
    return reporter.finish(trace)


@pytest.mark.parametrize("window_events", [1, WINDOW_EVENTS])
def test_figures_are_of_the_recorded_time(tmp_path: Path, window_events: int) -> None:
    # GIVEN a recording of 4 s with I/O from 1 s to 2.0001 s WHEN it is reported on
    report = reported(two_reads(tmp_path), SECOND, window_events)
    # THEN its time, rates, activity and intervals are of the 4 s, whatever windows it was read in
    assert (report.begin_ns, report.end_ns) == (START, START + 4 * SECOND)
    assert report.total.bios.ios_per_s == 0.5
    assert report.time_of == "recording"
    assert as_json(report)["time"]["of"] == "recording"
    [device] = report.devices
    assert (device.queue.active_ns, device.queue.idle_ns) == (2 * TOOK, 4 * SECOND - 2 * TOOK)
    assert device.queue.mean == pytest.approx(2 * TOOK / (4 * SECOND))
    ios = [sum(one.ios for one in part.groups) for part in report.intervals]
    assert ios == [0, 1, 1, 0]
    # and the first sentences say that the device was idle
    assert "mostly-idle" in {one.rule for one in verdict.verdict(report)}


def test_a_cut_is_of_the_cuts_time(tmp_path: Path) -> None:
    # GIVEN the recording from 1.5 to 3.5 s
    trace = two_reads(tmp_path)
    trace.restrict(Span(START + 3 * SECOND // 2, START + 7 * SECOND // 2))
    # WHEN it is reported on THEN its time is that
    report = reported(trace)
    assert (report.span_ns, report.total.bios.ios_per_s) == (2 * SECOND, 0.5)
    assert report.devices[0].queue.idle_ns == 2 * SECOND - TOOK


def test_an_interrupted_recording_ends_with_its_last_chunk(tmp_path: Path) -> None:
    # GIVEN a log without an end of the recording WHEN it is reported on
    report = reported(two_reads(tmp_path, stopped=None))
    # THEN its time is up to the last chunk's clock, which here is that of the last event
    assert (report.begin_ns, report.end_ns) == (START, START + 2 * SECOND + TOOK + 1)


def test_a_recording_that_does_not_say_is_from_event_to_event(tmp_path: Path) -> None:
    # GIVEN the same events, recorded by another tool WHEN they are reported on
    report = reported(two_reads(tmp_path, backend="perf"))
    # THEN their time is that of the events, and this is said
    assert report.time_of == "events"
    assert (report.begin_ns - START, report.span_ns) == (SECOND, SECOND + TOOK)
    assert as_json(report)["time"]["of"] == "events"


def test_an_idle_recording_has_its_time(tmp_path: Path) -> None:
    # GIVEN a recording of a second without any event WHEN it is reported on
    trace = Trace(captures.write_log(tmp_path / "idle.biotrail", [], stopped=SECOND))
    report = reported(trace, SECOND)
    # THEN it is of that second
    assert (report.span_ns, report.total.bios.ios_per_s, report.devices) == (SECOND, 0, [])
