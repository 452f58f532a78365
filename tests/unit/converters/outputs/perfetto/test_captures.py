# SPDX-License-Identifier: Apache-2.0
"""Captured event sequences, from log to trace, held against the model's own tables."""

import io

import pytest

from biotrail.converters.events.tables import Stage
from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import STAGE_TITLES
from biotrail.converters.pipeline import Trace
from tests.support import captures
from tests.support.perfetto_check import read

NAMES = sorted(path.stem for path in captures.DATA.glob("*.txt"))


def collected(windows, into):
    for window in windows:
        into.append(window)
        yield window


def drawn(trace, category):
    return {
        s.args["number"]: (s.start, s.dur, s.args.get("latency_ns"), s.children)
        for s in trace.slices(category)
    }


@pytest.mark.parametrize("window_events", [7, 1_000_000])
@pytest.mark.parametrize("name", NAMES)
def test_every_lifecycle_of_a_capture_is_in_its_trace(name, window_events, tmp_path):
    # GIVEN a captured sequence as a log
    path = tmp_path / "capture.biotrail"
    captures.write_log(path, captures.load(name))
    log, windows, out = Trace(path), [], io.BytesIO()
    # WHEN it is converted
    lifecycles = collected(log.lifecycles(window_events), windows)
    summary = convert(lifecycles, log.context, out)
    trace = read(out.getvalue())
    # THEN each bio and request of the tables is drawn once, with the table's times
    bios, requests = drawn(trace, "bio"), drawn(trace, "request")
    assert summary.not_drawn == 0
    assert summary.bios == len(bios) == sum(len(w.bios) for w in windows)
    assert summary.requests == len(requests) == sum(len(w.requests) for w in windows)
    for window in windows:
        table = window.bios
        for number, queue, complete in zip(
            table.number.tolist(), table.queue.tolist(), table.complete.tolist(), strict=True
        ):
            start, dur, latency, _ = bios[number]
            assert queue < 0 or start == queue
            if queue >= 0 and complete >= 0:
                assert dur == latency == complete - queue
        stages = window.bio_stages
        for owner, stage, start, end in zip(
            stages.owner, stages.stage, stages.start, stages.end, strict=True
        ):
            expected = (STAGE_TITLES[Stage(int(stage))], int(start), int(end))
            nested = [(c.name, c.start, c.end) for c in bios[int(owner)][3]]
            assert start == end or expected in nested
