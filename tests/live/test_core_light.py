# SPDX-License-Identifier: Apache-2.0
"""The event set light: fio's counts, and the same times as events recorded at the same time."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.schema.records import LIGHT_GOES_ON, LIGHT_NONE, Kind
from tests.support.core_decoder import Decoded, Event, decode
from tests.support.core_recording import recording, unseen

pytestmark = pytest.mark.usefixtures("needs_bpf")

NEAR = 1_000_000
"""ns at most between two programs' times of one completion, with an interrupt between them."""
PLUG = 100_000_000
"""ns at most by which the kernel's clock may lag: a plug's time is taken anew after a switch."""


def without_merges(device) -> None:
    (Path("/sys/block") / device.name / "queue" / "nomerges").write_text("2")


def took_times(device) -> bool:
    """Whether the kernel takes the time of each issue: only with statistics (wbt)."""
    path = Path("/sys/block") / device.name / "queue" / "wbt_lat_usec"
    try:
        return int(path.read_text()) > 0
    except (OSError, ValueError):
        return False


def ends(events: Decoded) -> list[Event]:
    return [e for e in events.of(Kind.LIGHT) if not e.flags & LIGHT_GOES_ON]


@pytest.mark.parametrize(
    ("engine", "depth", "rw"), [("psync", 1, "randread"), ("io_uring", 16, "randrw")]
)
def test_one_record_for_each_of_fios_ios(fio, loop_device, completions, engine, depth, rw):
    # GIVEN a light recording of a device that merges nothing
    without_merges(loop_device)
    truth = completions(loop_device.dev)
    with recording("light", [(loop_device.dev, 0)]) as record:
        # WHEN fio does a known number of direct I/Os
        report = fio(loop_device.path, rw=rw, bs="4k", size="16m", ioengine=engine, iodepth=depth)
    job = report["jobs"][0]
    ios = job["read"]["total_ios"] + job["write"]["total_ios"]
    # THEN there is a record for each, and nothing else but names
    events = decode(record.segments)
    assert record.lost == record.too_deep == 0
    assert {e.kind for e in events.events} <= {Kind.LIGHT, Kind.CGROUP}
    found = [e for e in ends(events) if e.bytes]
    assert ios == 4096
    assert len(found) == ios - unseen(truth, events).with_data()
    assert all(
        (e.bytes, e.nr_bios, e.status, e.dev) == (4096, 1, 0, loop_device.dev) for e in found
    )
    # AND each has a start, an issue not before it, and a cgroup with a name
    assert all(LIGHT_NONE > e.since_start >= e.since_issue for e in found) or not took_times(
        loop_device
    )
    assert {e.cgroup for e in found} <= {e.cgroup for e in events.of(Kind.CGROUP)}
    # AND only its own program was attached
    assert {p.letter for p in record.programs if p.attached} == {"L"}


@pytest.mark.parametrize(
    "load",
    [
        {"rw": "randread", "bs": "8k", "ioengine": "psync", "size": "8m"},
        {"rw": "randread", "bs": "4k", "ioengine": "io_uring", "iodepth": 32, "size": "8m"},
        {"rw": "write", "bs": "64k", "ioengine": "psync", "direct": 0, "size": "16m", "fsync": 16},
    ],
    ids=["one by one", "batches", "written back"],
)
def test_times_are_those_of_the_events(fio, loop_device, load):
    # GIVEN a light recording, and one of all steps, of one device at the same time
    if not took_times(loop_device):
        pytest.skip("this kernel takes no time of issues: no write-back throttling (wbt)")
    with ExitStack() as both:
        steps = both.enter_context(recording("lifecycle", [(loop_device.dev, 0)]))
        light = both.enter_context(recording("light", [(loop_device.dev, 0)]))
        # WHEN a load runs
        fio(loop_device.path, **load)
    steps_of, found = decode(steps.segments), ends(decode(light.segments))
    last: dict[Kind, dict[int, Event]] = {Kind.START: {}, Kind.D: {}}
    compared = 0
    mine = {(e.rq, e.sector, e.bytes): [] for e in found}
    for e in found:
        mine[e.rq, e.sector, e.bytes].append(e)
    for event in steps_of.events:
        if event.kind in last:
            last[event.kind][event.rq] = event
        if event.kind is not Kind.C or not event.bytes or event.rq not in last[Kind.D]:
            continue
        # THEN each completion is in both, at the same time, with the same operation
        same = [
            e
            for e in mine.get((event.rq, event.sector, event.bytes), [])
            if abs(e.time - event.time) < NEAR
        ]
        if not same:
            continue
        (one,) = same
        issue = last[Kind.D][event.rq]
        assert (one.opf, one.status, one.tag) == (issue.opf, event.status, issue.tag)
        assert one.nr_bios == max(issue.nr_bios, 1)
        # AND its issue is that of D, or as much earlier as the plug's clock was kept
        early = issue.time - (one.time - one.since_issue)
        assert -NEAR < early < PLUG
        if start := last[Kind.START].get(event.rq):
            assert -NEAR < start.time - (one.time - one.since_start) < PLUG
        compared += 1
    assert compared > 0.9 * len([e for e in found if e.bytes])


def test_flushes_are_told_apart(loop_device, fio):
    # GIVEN a light recording WHEN writes are synced
    with recording("light", [(loop_device.dev, 0)]) as record:
        fio(loop_device.path, rw="randwrite", bs="4k", size="1m", ioengine="psync", fsync=1)
    # THEN a request of the flush machinery has no bio, and those that asked for it have one
    bare = [e for e in ends(decode(record.segments)) if not e.bytes]
    assert {e.nr_bios for e in bare} == {0, 1}


def test_filters_by_operation_and_flags(fio, loop_device, completions):
    # GIVEN a light recording of writes alone
    without_merges(loop_device)
    truth = completions(loop_device.dev)
    wanted = Filters(ops=("write",), flags=(("sync",),), cgroups=("/",), own_io=True)
    with recording("light", [(loop_device.dev, 0)], filters=wanted) as record:
        # WHEN there are reads as well
        report = fio(loop_device.path, rw="randrw", bs="4k", size="4m", ioengine="psync")
    job = report["jobs"][0]
    # THEN all writes are there, no read is, and the reads are counted
    events = decode(record.segments)
    found = [e for e in ends(events) if e.bytes]
    writes, reads = job["write"]["total_ios"], job["read"]["total_ios"]
    assert {e.opf & 0xFF for e in found} == {1}
    # What no program was run for may be of either.
    most = len(truth.unseen([], events.events[0].time))
    assert writes - most <= len(found) <= writes
    assert record.left_out.bios["op"] >= reads - most
