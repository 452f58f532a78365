# SPDX-License-Identifier: Apache-2.0
"""The report's division of time among devices that stand on each other."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from biotrail.converters.analysis.report.devices.devices import Stacked
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.events.tables import NEVER
from biotrail.converters.pipeline import Trace
from tests.scenarios import stacks
from tests.scenarios.tools import events_of, read
from tests.support import captures
from tests.support.paths import ROOT
from tests.support.window_loads import HEADER

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"


def test_stacked_devices_tell_where_the_time_went(tmp_path: Path) -> None:
    # GIVEN a volume on dm-crypt on a mirror on two disks
    case = next(c for c in stacks.CASES if "dm-crypt" in c.name)
    path = tmp_path / "log.biotrail"
    captures.write_log(path, events_of(case.given), HEADER)
    # WHEN it is reported on
    trace = Trace(path)
    tables, report = read(path), make_report(trace, trace.lifecycles())
    # THEN each child is under its parent, and the three parts add up to the parents' time
    children = tables.bios.take(tables.bios.parent != NEVER)
    assert sum(pair.children for pair in report.stacked) == len(children) > 0
    row = {number: i for i, number in enumerate(tables.bios.number.tolist())}
    parents = [row[number] for number in children.parent.tolist()]
    whole = (tables.bios.complete - tables.bios.queue)[parents].sum()
    parts = sum(p.to_child.sum + p.child.sum + p.from_child.sum for p in report.stacked)
    assert parts == whole


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
