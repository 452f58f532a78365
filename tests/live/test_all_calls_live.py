# SPDX-License-Identifier: Apache-2.0
"""Calls are timed by what they do, not by a list of names."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import devices
from tests.support.path_disks import mounted
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")

SIZE = 8 << 20
LOAD = f"""
import ctypes, fcntl, mmap, os, select, sys, time
with open("/proc/self/comm", "w") as comm:
    comm.write("all-calls")
path = sys.argv[1]
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.write(fd, os.urandom({SIZE}))
os.fsync(fd)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
mmap.mmap(fd, {SIZE}, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE).close()
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
mapped = mmap.mmap(fd, {SIZE})
address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
ctypes.CDLL(None).mlock(ctypes.c_void_p(address), ctypes.c_size_t({SIZE}))
if os.fork() == 0:
    other = os.open(path, os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    fcntl.lockf(other, fcntl.LOCK_EX)
    time.sleep(0.3)
    os._exit(0)
time.sleep(0.1)
fcntl.flock(fd, fcntl.LOCK_EX)
fcntl.flock(fd, fcntl.LOCK_UN)
os.wait()
select.poll().poll(50)
if os.fork() == 0:
    gone = os.open(path + ".gone", os.O_RDWR | os.O_CREAT)
    os.write(gone, bytes({SIZE}))
    os.fsync(gone)
    os.unlink(path + ".gone")
    os._exit(0)
os.wait()
"""


def test_calls_are_timed_by_what_they_do(
    make_loop: Callable[..., devices.LoopDevice], tmp_path: Path
) -> None:
    # GIVEN a program that reads a file by mmap and mlock, waits for a lock of one, and idles in
    # poll; and one whose exit frees a deleted file's blocks, with a discard
    device, log = make_loop(), tmp_path / "log"
    with mounted(device, "ext4", tmp_path / "disk") as disk:
        devices.run("mount", "-o", "remount,discard", disk.mount)
        load = [sys.executable, "-c", LOAD, str(disk.mount / "file")]
        options = ("-d", device.path, "--path", "--call-budget", "0")
        biotrail("record", *options, "-o", log, "--", *load)
    # WHEN its calls are shown
    chosen = ("--format", "jsonl", "-o", "-", "--comm", "all-calls")
    rows = biotrail("export", "--what", "calls", *chosen, log).stdout
    calls = [json.loads(row) for row in rows.splitlines()]
    by_name = {name: [one for one in calls if one["call"] == name] for name in LOOKED_AT}
    # THEN what queued bios is among them with its bios, and what took long
    assert any(one["bios"] for one in by_name["mmap"])
    assert any(one["bios"] for one in by_name["mlock"])
    assert max(one["duration_ns"] for one in by_name["flock"]) > 100_000_000
    # AND what idles is not
    assert not by_name["wait4"]
    assert not by_name["poll"]
    # AND the bios of every call are in the table, but for page faults'
    bios = biotrail("export", *chosen, log).stdout
    queued = {
        (one["tid"], one["entry_ns"])
        for one in map(json.loads, bios.splitlines())
        if one["call"] not in (None, "page fault")
    }
    assert queued == {(one["tid"], one["entry_ns"]) for one in calls if one["bios"]}


LOOKED_AT = ("mmap", "mlock", "flock", "wait4", "poll", "exit_group")
