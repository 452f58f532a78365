# SPDX-License-Identifier: Apache-2.0
"""Waits of every thread, whether its calls are timed or not, beside what the kernel counts."""

import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.tables import WaitCause
from biotrail.recorder.log import LogReader
from biotrail.recorder.schema.syscalls import PAGE_FAULT
from tests.support import idle_reaper, lone_loads
from tests.support.held_batch import SYSCALLS
from tests.support.path_disks import Disk
from tests.support.path_tables import RecordedPath, recorded_path
from tests.support.record_command import biotrail, exported, in_json

pytestmark = pytest.mark.usefixtures("needs_bpf")

DELAYS = Path("/proc/sys/kernel/task_delayacct")


@pytest.fixture
def file(disk: Disk) -> Path:
    """A file of 32 MiB on ext4 on a loop device, not in the cache."""
    return disk.prepare("file", 32 << 20)


@contextmanager
def delays_counted() -> Iterator[None]:
    """Delay accounting of threads that begin meanwhile."""
    if not DELAYS.exists():
        pytest.skip("the kernel has no delay accounting")
    before = DELAYS.read_text()
    DELAYS.write_text("1")
    try:
        yield
    finally:
        DELAYS.write_text(before)


def recorded(log: Path, role: str, file: Path, *options: str) -> tuple[RecordedPath, str]:
    """(a recording of a role of lone_loads, what the load printed)."""
    load = [sys.executable, lone_loads.__file__, role, str(file)]
    done = biotrail("record", *options, "-o", log, "--", *load)
    return recorded_path(log), done.stdout


def test_page_faults_wait_as_long_as_the_kernel_counts(tmp_path: Path, file: Path) -> None:
    # GIVEN a thread that touches mapped pages which are not in the cache; its calls are not timed
    options = ("--path=call,wait,fs", "--files")
    for number in range(5):
        with delays_counted():
            found, printed = recorded(tmp_path / f"log{number}", "faults", file, *options)
        if int(printed) * 10_000_000 < 60_000_000_000:
            break  # else a delay began at 0: the kernel had not yet accounted for the thread
    # WHEN its waits are added up that the kernel counts as waits for I/O
    mine = found.calls.take(found.call_comms == "faults")
    waits = found.waits.take(np.isin(found.waits.tid, mine.tid) & found.waits.io_wait)
    blocked = int((waits.woken - waits.out).sum())
    # THEN delay accounting has them as long: it begins when the thread is taken off its queue,
    # some microseconds before the switch, and ends when it is put on one, after the wake-up began
    # and before the thread runs, which beside a load may be long
    counted, tick = int(printed) * 10_000_000, 10_000_000
    assert 0.95 * blocked <= counted + tick
    assert counted <= 1.05 * int((waits.run - waits.out).sum()) + 5_000 * len(waits)
    # AND nearly all are page faults of the file, known by the bio that each was for
    faults = waits.take(waits.number == PAGE_FAULT)
    assert len(faults) > 0.9 * len(waits)
    assert not faults.timed.any()
    names = [found.trace.context.files[row].path for row in faults.file[faults.file >= 0].tolist()]
    assert sum(name == str(file) for name in names) > 0.9 * len(faults)


def test_waits_of_timed_calls_add_up_to_these_calls(tmp_path: Path, file: Path) -> None:
    # GIVEN a thread that writes, syncs and reads directly, recorded with its calls timed
    found, _ = recorded(tmp_path / "log", "mixed", file, "--path", "--call-budget", "0")
    # WHEN its waits for I/O and the parts of its calls are added up
    calls = found.calls.take((found.call_comms == "mixed") & found.calls.timed)
    waits = found.waits.take(np.isin(found.waits.tid, calls.tid) & found.waits.timed)
    waits = waits.take(np.isin(waits.entry, calls.entry) & (waits.cause != WaitCause.OTHERWISE))
    whole = int((calls.own_io + calls.other_io).sum())
    # THEN both are the same
    assert whole > 0
    assert int((waits.woken - waits.out).sum()) == pytest.approx(whole, rel=0.02)
    # AND nothing of a timed call stands by itself, but what came before calls were timed
    syncs = found.calls_of("mixed", "fsync")
    assert int(syncs.timed.sum()) == len(syncs) == 200


def test_waits_go_on_beside_very_many_calls(tmp_path: Path, file: Path) -> None:
    # GIVEN a thread that syncs, beside processes that make as many system calls as they can
    found, printed = recorded(tmp_path / "log", "storm", file, "--path")
    reader = LogReader(tmp_path / "log")
    list(reader.chunks())
    (note,) = [payload for name, payload in reader.notes if name == "call_timing"]
    # WHEN its calls and waits are read  THEN timing ended, and each sync has a wait all the same
    syncs = found.calls_of("syncer", "fsync")
    alone = syncs.take(~syncs.timed)
    assert syncs.timed.any()
    assert (alone.entry >= note["until"] - 1_000_000_000).all()
    ended = len(np.unique(syncs.entry))
    assert ended >= int(printed) - 2
    # AND they are for I/O, with what they were for
    waits = found.waits.take(np.isin(found.waits.entry, alone.entry))
    assert (waits.cause != WaitCause.OTHERWISE).all()
    walked = waits.stack >= 0  # else the CPU had taken its share of stacks for others
    assert walked.any()
    assert (waits.reason[walked] > 0).all()


# Waits in state D that no I/O ends, of real calls: RCU for a cgroup, vfork.

LOAD = """
import os, sys, time
with open("/proc/self/comm", "w") as comm:
    comm.write("mover")
for _ in range(3):
    time.sleep(0.1)
    with open(sys.argv[1], "w") as procs:
        procs.write(str(os.getpid()))
    time.sleep(0.1)
    with open(sys.argv[2], "w") as procs:
        procs.write(str(os.getpid()))
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup of version 2 without processes."""
    roots = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
    root = next((one for one in roots if (one / "cgroup.procs").exists()), None)
    if root is None:
        pytest.skip("needs cgroup v2")
    made = root / "biotrail-no-io"
    made.mkdir()
    yield made
    made.rmdir()


def test_moving_between_cgroups_is_no_io(group: Path, tmp_path: Path) -> None:
    # GIVEN a process that moves between cgroups, which waits for RCU in state D
    log = tmp_path / "log"
    places = (group / "cgroup.procs", group.parent / "cgroup.procs")
    load = [sys.executable, "-c", LOAD, *map(str, places)]
    biotrail("record", "--path", "-o", log, "--call-budget", "0", "--", *load)
    # WHEN its calls are shown
    calls = exported("calls", log)
    moves = [call for call in calls if call["call"] == "write" and call["comm"] == "mover"]
    # THEN none of these writes waited for I/O, though they waited in state D
    assert any(call["waits"] for call in moves)
    assert {(call["own_io_ns"], call["other_io_ns"]) for call in moves} == {(0, 0)}
    entries = {(call["tid"], call["entry_ns"]) for call in moves}
    waits = [one for one in exported("waits", log) if (one["tid"], one["entry_ns"]) in entries]
    assert {wait["reason"] for wait in waits} <= {"RCU", "cgroup"}
    assert {wait["cause"] for wait in waits} == {"otherwise"}


# Who woke a call has a name, though it did no I/O itself.

WAKER_LOAD = """
import os, sys
with open("/proc/self/comm", "w") as comm:
    comm.write("syncer")
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.posix_fallocate(fd, 0, 16 << 20)
os.fsync(fd)
for n in range(100):
    os.pwrite(fd, b"x" * 4096, 8192 * (n * 997 % 2048))
    os.fsync(fd)
"""


def test_wakers_have_names(disk: Disk, tmp_path: Path) -> None:
    # GIVEN fsyncs that wait for write-back of preallocated blocks, which a worker ends that queues
    # no bio
    log = tmp_path / "log"
    disk.record(log, [sys.executable, "-c", WAKER_LOAD, str(disk.mount / "file")], "--path")
    # WHEN the calls are shown
    calls = in_json("slow", "--calls", "--comm", "syncer", "-n", "0", log)["calls"]
    waits = [wait for one in calls for wait in one["waits"]]
    # THEN whoever woke one has a name, workers among them
    names = {wait["waker_tid"]: wait["waker_comm"] for wait in waits if wait["waker_tid"]}
    assert names
    assert None not in names.values()
    assert any(comm.startswith("kworker/") for comm in names.values()), names


# A thread that idles in io_getevents, until another one submits what it reaps.


@pytest.mark.skipif(
    platform.machine() not in SYSCALLS, reason=f"numbers of calls on {platform.machine()}"
)
def test_an_idle_thread_does_not_wait_for_io(disk: Disk, tmp_path: Path) -> None:
    # GIVEN a thread that waits for three reads, of which each is submitted half a second after it
    # began to wait
    log = tmp_path / "log"
    load = [sys.executable, idle_reaper.__file__, str(disk.mount / "file"), "0.5"]
    disk.record(log, load, "--path")
    # WHEN its calls are shown
    ours = ("--comm", idle_reaper.NAME, log)
    waits = [call for call in exported("calls", *ours) if call["call"] == "io_getevents"]
    reads = [bio for bio in exported("bios", *ours) if bio["call"] == "io_submit"]
    # THEN they wait for I/O for no longer than it was in flight, and otherwise for all else
    assert len(waits) == len(reads) == idle_reaper.READS
    for wait, read in zip(waits, reads, strict=True):
        assert 0 < wait["other_io_ns"] <= read["complete_ns"] - read["queue_ns"]
        assert wait["own_io_ns"] == 0
        idle = read["queue_ns"] - wait["entry_ns"]
        assert wait["otherwise_ns"] >= idle - wait["running_ns"] - wait["runnable_ns"] > 0
