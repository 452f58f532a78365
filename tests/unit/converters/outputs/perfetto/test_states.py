# SPDX-License-Identifier: Apache-2.0
"""Whether a device was idle, busy or flushing, on a track of its own."""

import io
import itertools

import pytest

from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import Detail, Options
from tests.support.perfetto_check import read
from tests.support.perfetto_make import PREFLUSH, WRITE, Scene, context, direct, request
from tests.support.perfetto_scenes import T

MS = 1_000_000
FLUSH = {"bytes": 0, "opf": WRITE | PREFLUSH}


def states(scene, windows=(), detail=Detail.STANDARD):
    out = io.BytesIO()
    convert(scene.windows(windows), context(), out, options=Options(detail=detail))
    trace = read(out.getvalue())
    return [(s.name, s.start - T, s.end - T) for s in trace.slices("state")]


@pytest.mark.parametrize("windows", [(), range(T, T + 9 * MS, MS)])
def test_a_device_is_idle_busy_or_flushing(windows):
    # GIVEN two writes that overlap, a flush within a third, and the flush to the device after that
    bios = [
        direct(0, T + MS, 2 * MS),
        direct(1, T + 2 * MS, 2 * MS),
        direct(2, T + 5 * MS, 2 * MS),
        direct(3, T + 6 * MS, 500_000, **FLUSH),
    ]
    device_flush = {"bytes": 0, "opf": 2 | PREFLUSH, "kind": 1}
    requests = [request(9, T + 8 * MS, complete=T + 8 * MS + 5, **device_flush)]
    scene = Scene(bios=bios, requests=requests)
    # WHEN the states are read / THEN a flush stands before other I/O, and both before nothing
    found = states(scene, windows)
    assert [one[0] for one in found] == [
        "idle", "busy", "idle", "busy", "flushing", "busy", "idle", "flushing",
    ]  # fmt: skip
    assert found[0][1] == 0 and found[1][1] == MS and found[4][1] == 6 * MS
    # AND they fill the trace without gaps
    assert all(one[2] == other[1] for one, other in itertools.pairwise(found))


def test_short_gaps_go_before_the_track_grows():
    # GIVEN thousands of I/Os with gaps between, one of which is long
    starts = [20_000 * n + 50 * MS * (n >= 2_000) for n in range(4_000)]
    scene = Scene(bios=[direct(n, T + at, 9_000) for n, at in enumerate(starts)])
    # WHEN the states are read / THEN they are few, and the long gap is there
    found = states(scene)
    assert len(found) <= 501
    assert max(end - start for name, start, end in found if name == "idle") > 49 * MS


def test_less_detail_has_no_states():
    # GIVEN an I/O / WHEN it is drawn without requests / THEN there is no track of states
    assert states(Scene(bios=[direct(0, T, 9_000)]), detail=Detail.STAGES) == []
