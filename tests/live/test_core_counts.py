# SPDX-License-Identifier: Apache-2.0
"""What is recorded equals what fio says it did."""

import ctypes
import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.schema.records import (
    LIGHT_GOES_ON,
    LIGHT_NONE,
    Kind,
)
from tests.support.core_decoder import Decoded, Event, decode
from tests.support.core_recording import Recording, recording, unseen
from tests.support.devices import without_merges
from tests.support.kernel_completions import SERVICE_THREADS, done_again

pytestmark = pytest.mark.usefixtures("needs_bpf")


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


# The event set light: fio's counts, and the same times as events recorded at the same time.

NEAR = 1_000_000
"""ns at most between two programs' times of one completion, with an interrupt between them."""
PLUG = 100_000_000
"""ns at most by which the kernel's clock may lag: a plug's time is taken anew after a switch."""


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


# TASK and CGROUP records stand before the first record that uses them, and again on change.

PR_SET_NAME = 15
READ = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
for i in range(int(sys.argv[2])):
    os.preadv(fd, [mmap.mmap(-1, 4096)], i * 4096)
"""


def _read(path, count=4, **options):
    command = [sys.executable, "-c", READ, path, str(count)]
    return subprocess.run(command, check=True, **options)


def _set_name(name):
    ctypes.CDLL(None).prctl(PR_SET_NAME, name, 0, 0, 0)


def test_a_task_is_named_before_its_first_bio(loop_device):
    # GIVEN another process that reads
    with recording("all", [(loop_device.dev, 0)]) as record:
        # WHEN it is recorded
        _read(loop_device.path)

    # THEN its TASK record stands right before its first queue, in the same ring
    events = decode(record.segments)
    queued = events.of(Kind.Q, dev=loop_device.dev)
    tid = queued[0].tid
    (task,) = [e for e in events.of(Kind.TASK) if e.tid == tid]
    assert (task.tgid, task.comm[:6]) == (tid, b"python")
    assert (task.time, task.cpu, task.level) == (queued[0].time, queued[0].cpu, queued[0].level)
    assert task.position < queued[0].position
    assert len(queued) == 4


def test_a_task_is_named_again_when_its_name_changes(loop_device):
    # GIVEN a thread of this process that reads, renames itself, and reads again
    tids = []

    def work():
        tids.append(threading.get_native_id())
        fd = os.open(loop_device.path, os.O_RDONLY)
        for name, offset in ((b"biotrail-one", 0), (b"biotrail-two", 4 << 20)):
            _set_name(name)
            os.pread(fd, 4096, offset)
        os.close(fd)

    with recording("all", [(loop_device.dev, 0)]) as record:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    # THEN both names are there, each before the bios queued under it
    events = decode(record.segments)
    tasks = [e for e in events.of(Kind.TASK) if e.tid == tids[0]]
    assert [e.comm for e in tasks] == [b"biotrail-one", b"biotrail-two"]
    assert {e.tgid for e in tasks} == {os.getpid()}
    first_late = next(e for e in events.of(Kind.Q) if e.sector >= 8192)
    assert tasks[1].time <= first_late.time


def test_the_charged_cgroup_is_recorded_and_named(loop_device, cgroup):
    # GIVEN a process in a cgroup of its own
    def enter():
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))

    with recording("all", [(loop_device.dev, 0)]) as record:
        # WHEN it reads
        _read(loop_device.path, preexec_fn=enter)

    # THEN its bios carry the cgroup's id, which is the inode of its directory, and its name
    events = decode(record.segments)
    queued = events.of(Kind.Q, dev=loop_device.dev)
    assert {e.cgroup for e in queued} == {cgroup.stat().st_ino}
    names = [e.name for e in events.of(Kind.CGROUP) if e.cgroup == cgroup.stat().st_ino]
    assert names == [cgroup.name.encode()]


POOL = """
import ctypes, mmap, os, sys, threading

def work(number):
    ctypes.CDLL(None).prctl(15, b"pool-%d" % number, 0, 0, 0)
    fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
    os.preadv(fd, [mmap.mmap(-1, 4096)], number * 4096)

pool = [threading.Thread(target=work, args=(number,)) for number in range(20)]
[one.start() for one in pool]
[one.join() for one in pool]
"""


def test_the_leader_is_named_with_the_first_thread(loop_device):
    # GIVEN a process of which only threads do I/O, each with a name of its own
    with recording("all", [(loop_device.dev, 0)]) as record:
        # WHEN they are recorded
        load = subprocess.Popen([sys.executable, "-c", POOL, loop_device.path])
        assert load.wait(60) == 0

    # THEN the log has the process's name, once, beside each thread's
    events = decode(record.segments)
    named = [e for e in events.of(Kind.TASK) if e.tgid == load.pid]
    threads = sorted(e.comm.rstrip(b"\0") for e in named if e.tid != load.pid)
    assert threads == sorted(b"pool-%d" % number for number in range(20))
    [leader] = [e for e in named if e.tid == load.pid]
    assert leader.comm.rstrip(b"\0")[:6] == b"python"


@done_again
def test_the_table_is_empty_when_all_has_ended(fio, loop_device):
    # GIVEN more writes, with a flush after each, than there is room to follow at once
    filters = Filters(ops=("write",), max_followed=64)
    with CoreProbes(ProbeConfig("lifecycle", [(loop_device.dev, 0)], filters=filters)) as probes:
        record = Recording(probes)
        record.start()
        # WHEN they come one after the other
        deep = {"ioengine": "libaio", "iodepth": 32}
        for sync in ("none", "dsync"):
            fio(loop_device.path, rw="write", bs="4k", size="1m", sync=sync, **deep)
        record.finish()
        # THEN all were followed: each gave its place back
        assert probes.left_out().unfollowed == 0
    events = decode(record.segments)
    assert len([e for e in events.of(Kind.Q, dev=loop_device.dev) if e.bytes]) == 512
