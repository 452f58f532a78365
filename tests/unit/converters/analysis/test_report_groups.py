# SPDX-License-Identifier: Apache-2.0
"""What the report's groups hold where they are bounded, and by which operation."""

from types import SimpleNamespace

import numpy as np

from biotrail.converters.analysis.distributions.groups import OTHERS, Groups
from biotrail.converters.analysis.report.devices.stacked import Stacked
from biotrail.converters.analysis.report.report import Reporter
from biotrail.converters.events.tables import NEVER
from biotrail.converters.pipeline import Trace
from tests.support.paths import ROOT

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"


def test_a_flush_of_an_upper_device_is_a_flush_below_too() -> None:
    # GIVEN a bio that fsync queued on an upper device, empty and with REQ_PREFLUSH, and its child
    trace = Trace(SAMPLE)
    bios = next(w.bios for w in trace.lifecycles() if len(w.bios) > 1).take(np.arange(2))
    write, preflush = trace.context.op_number("write"), trace.context.flag_mask("PREFLUSH")
    bios.opf[:], bios.bytes[:], bios.dev[:] = write | preflush, 0, (1, 2)
    bios.parent[:] = (NEVER, bios.number[0])
    # WHEN its time is divided
    stacked = Stacked()
    stacked.add(SimpleNamespace(bios=bios), trace.context)  # type: ignore[arg-type]
    # THEN it is under flush, as it is in all other tables
    assert list(stacked.by_pair) == [(1, 2, trace.context.op_number("flush"))]


def test_groups_past_the_bound_are_no_device() -> None:
    # GIVEN a report that keeps one pair of device and operation apart
    trace = Trace(SAMPLE)
    reporter = Reporter(trace.context)
    reporter._bios, reporter._requests = Groups(1), Groups(1)
    for window in trace.lifecycles():
        reporter.add(window)
    # WHEN it is made
    report = reporter.finish(trace)
    # THEN the I/O of all others is in the total, and of no device
    assert OTHERS in reporter._bios.by_code
    known = {entry["name"] for entry in trace.context.devices.values()}
    assert {device.device for device in report.devices} <= known
    whole = sum(group["ios"] for group in reporter._bios.by_code.values())
    assert report.total.bios.counters["ios"] == whole
