# SPDX-License-Identifier: Apache-2.0
"""TASK and CGROUP records stand before the first record that uses them, and again on change."""

import ctypes
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from biotrail.recorder.schema.records import Kind
from tests.support.core_decoder import decode
from tests.support.core_recording import recording
from tests.support.record_command import remove_cgroup

pytestmark = pytest.mark.usefixtures("needs_bpf")

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


def test_renewed_dictionaries_are_written_again(loop_device):
    # GIVEN a recording in which a process was named already
    with recording("all", [(loop_device.dev, 0)]) as record:
        fd = os.open(loop_device.path, os.O_RDONLY)
        os.pread(fd, 4096, 0)
        os.pread(fd, 4096, 8 << 20)
        # WHEN a new log begins
        record.probes.renew_dictionaries()
        os.pread(fd, 4096, 16 << 20)
        os.close(fd)

    # THEN the process and its cgroup are named once more
    events = decode(record.segments)
    mine = [e for e in events.of(Kind.TASK) if e.tid == threading.get_native_id()]
    assert len(mine) == 2
    cgroup = events.of(Kind.Q, dev=loop_device.dev)[0].cgroup
    assert len([e for e in events.of(Kind.CGROUP) if e.cgroup == cgroup]) == 2


@pytest.fixture
def cgroup():
    """A cgroup of the hierarchy that block I/O is charged to: blkio's own (v1), or the unified."""
    root = Path("/sys/fs/cgroup/blkio")
    if not root.is_dir():
        root = Path("/sys/fs/cgroup")
        control = root / "cgroup.subtree_control"
        if not control.exists() or "io" not in control.read_text().split():
            pytest.skip("needs a cgroup hierarchy with block I/O accounting")
    path = root / f"biotrail-{uuid.uuid4().hex[:8]}"
    path.mkdir()
    yield path
    remove_cgroup(path)


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
