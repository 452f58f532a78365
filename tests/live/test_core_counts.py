# SPDX-License-Identifier: Apache-2.0
"""What is recorded equals what fio says it did."""

from collections import Counter
from pathlib import Path

import pytest

from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.schema.records import Kind
from tests.support.core_decoder import decode
from tests.support.core_recording import recording, unseen
from tests.support.kernel_completions import SERVICE_THREADS

pytestmark = pytest.mark.usefixtures("needs_bpf")


@pytest.mark.parametrize(
    ("engine", "depth", "rw"),
    [
        ("psync", 1, "randread"),
        ("libaio", 16, "randwrite"),
        ("io_uring", 32, "randread"),
        ("io_uring", 8, "randrw"),
    ],
)
def test_counts_and_bytes_equal_fio(fio, loop_device, completions, engine, depth, rw):
    # GIVEN a RAM-backed loop device that merges nothing, and a recording of it alone
    (Path("/sys/block") / loop_device.name / "queue" / "nomerges").write_text("2")
    truth = completions(loop_device.dev)
    with recording("all", [(loop_device.dev, 0)]) as record:
        # WHEN fio does a known number of direct I/Os
        report = fio(loop_device.path, rw=rw, bs="4k", size="16m", ioengine=engine, iodepth=depth)
    job = report["jobs"][0]
    ios = job["read"]["total_ios"] + job["write"]["total_ios"]
    total = job["read"]["io_bytes"] + job["write"]["io_bytes"]

    # THEN there is a queue, start and issue for each, of the same bytes, and nothing was lost
    events = decode(record.segments)
    assert record.lost == record.too_deep == 0
    assert ios == 4096
    for kind in (Kind.Q, Kind.START, Kind.D):
        found = [e for e in events.of(kind, dev=loop_device.dev) if e.bytes]
        assert len(found) == ios, kind
        assert sum(e.bytes for e in found) == total, kind
    # AND a completion, but for those that no program was run for
    done = [e for e in events.of(Kind.C, dev=loop_device.dev) if e.bytes]
    assert len(done) == ios - unseen(truth, events).with_data()
    assert all(e.status == 0 for e in done)


def test_identities_link_queue_start_issue_and_completion(fio, loop_device):
    # GIVEN one thread that does one direct read at a time
    with recording("all", [(loop_device.dev, 0)]) as record:
        fio(loop_device.path, rw="randread", bs="8k", size="2m", ioengine="psync")

    # WHEN each issue is traced back
    events = decode(record.segments)
    issues = events.of(Kind.D, dev=loop_device.dev)
    queued = {e.time: e for e in events.of(Kind.Q, dev=loop_device.dev)}
    starts = events.of(Kind.START, dev=loop_device.dev)
    assert len(issues) == len(queued) == len(starts) == 256

    # THEN bio, sector, bytes and operation are those of the queue, and the request that of start
    for queue, start, issue in zip(queued.values(), starts, issues, strict=True):
        assert queue.time <= start.time <= issue.time
        assert queue.bio == start.bio == issue.bio
        assert start.rq == issue.rq
        assert (queue.sector, queue.bytes, queue.opf) == (issue.sector, issue.bytes, issue.opf)
        assert queue.part == loop_device.dev
        assert queue.page > 1 << 63
        assert (issue.nr_bios, issue.flags, issue.hctx) == (1, 0, 0)
        assert issue.tag != 0xFFFF


def test_event_sets(fio, loop_device, completions):
    # GIVEN each event set
    kinds = {}
    for name in ("minimal", "lifecycle", "all"):
        truth = completions(loop_device.dev)
        with recording(name, [(loop_device.dev, 0)]) as record:
            # WHEN the same reads are done
            fio(loop_device.path, rw="randread", bs="4k", size="1m", ioengine="psync")
        events = decode(record.segments)
        kinds[name] = Counter(e.kind for e in events.events)
        done = 256 - unseen(truth, events).with_data()
        # THEN programs outside the set are not attached, and say why
        outside = [p for p in record.programs if not p.attached]
        assert all(p.reason for p in outside)

    # AND each set holds what it promises
    assert {Kind.Q, Kind.D, Kind.C} <= set(kinds["minimal"])
    assert Kind.START not in kinds["minimal"]
    assert kinds["lifecycle"][Kind.START] == 256
    assert not {Kind.G, Kind.DONE, Kind.P, Kind.U} & set(kinds["lifecycle"])
    assert kinds["all"][Kind.G] == 256
    assert kinds["all"][Kind.DONE] == kinds["all"][Kind.C] == done


def test_a_device_filter_leaves_other_devices_out(fio, make_loop):
    # GIVEN two devices, one of them recorded
    wanted, other = make_loop(), make_loop()
    with recording("all", [(wanted.dev, 0)]) as record:
        # WHEN both are read
        for device in (other, wanted):
            fio(device.path, rw="read", bs="16k", size="1m", ioengine="psync")

    # THEN all records are of the one
    events = decode(record.segments)
    devices = {e.dev for e in events.events if e.kind not in (Kind.TASK, Kind.CGROUP)}
    assert devices == {wanted.dev}
    assert len(events.of(Kind.Q, dev=wanted.dev)) == 64


def test_high_rate_loses_nothing_uncounted(fio, loop_device, completions):
    # GIVEN a load that keeps a core busy while the rings could fill many times
    truth = completions(loop_device.dev, tasks=SERVICE_THREADS)
    with recording("lifecycle", [(loop_device.dev, 0)]) as record:
        report = fio(
            loop_device.path,
            rw="randread",
            bs="4k",
            ioengine="io_uring",
            iodepth=32,
            iodepth_batch_submit=8,
            runtime=2,
            time_based=True,
            norandommap=True,
        )

    # WHEN it is counted
    ios = report["jobs"][0]["read"]["total_ios"]
    # AND what was lost, where the thread that drains the rings got no CPU
    counts = record.count_by_kind() + record.lost_by_kind

    # THEN queues, starts and issues equal fio's I/Os
    assert record.too_deep == 0
    assert counts[Kind.Q] == counts[Kind.START] == counts[Kind.D] == ios
    # AND completions, but for those that no program was run for
    assert counts[Kind.C] == ios - len(truth.in_service_threads())


def test_full_rings_are_counted(fio, loop_device):
    # GIVEN small rings that nobody drains
    config = ProbeConfig("lifecycle", [(loop_device.dev, 0)], 64 << 10)
    with CoreProbes(config) as probes:
        probes.attach()
        # WHEN more I/O is done than they hold
        fio(loop_device.path, rw="randread", bs="4k", size="16m", ioengine="psync")
        probes.detach()
        segments, lost = probes.drain(), probes.lost().sum(axis=(0, 1))

    # THEN what was written and what was counted as lost add up
    events = decode(segments)
    for kind in (Kind.Q, Kind.START, Kind.D):
        assert len(events.of(kind)) + lost[kind] == 4096
    assert lost[Kind.Q] > 0
