# SPDX-License-Identifier: Apache-2.0
"""The file of a call is its descriptor's, whatever bios it queues."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import devices
from tests.support.path_disks import mounted
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")

SYNCS = 50
LOAD = f"""
import mmap, os, sys
with open("/proc/self/comm", "w") as comm:
    comm.write("redo")
page = mmap.mmap(-1, 4096)
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_DIRECT)
for _ in range({SYNCS}):
    os.pwrite(fd, page, 0)
    os.fdatasync(fd)
directory = os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY)
open(sys.argv[1] + ".new", "w").close()
os.fsync(directory)
"""


def test_a_flush_is_of_its_descriptors_file(
    make_loop: Callable[..., devices.LoopDevice], tmp_path: Path
) -> None:
    # GIVEN a program that writes and syncs a redo log with O_DIRECT, whose fdatasync queues a flush
    # alone, and syncs a directory
    device, log = make_loop(), tmp_path / "log"
    with mounted(device, "ext4", tmp_path / "disk") as disk:
        file = disk.mount / "redo.log"
        load = [sys.executable, "-c", LOAD, str(file)]
        options = ("-d", device.path, "--path", "--files", "--call-budget", "0")
        biotrail("record", *options, "-o", log, "--", *load)
    # WHEN its calls are shown
    chosen = ("--comm", "redo", log)
    rows = biotrail("export", "--what", "calls", "--format", "jsonl", "-o", "-", *chosen).stdout
    calls = [json.loads(row) for row in rows.splitlines()]
    # THEN each write and sync is of the file
    for name in ("pwrite64", "fdatasync"):
        assert [one["file"] for one in calls if one["call"] == name] == [str(file)] * SYNCS
    # AND the directory's sync of the directory, which is at the root of its file system
    assert [one["file"] for one in calls if one["call"] == "fsync"] == [str(disk.mount)]
    # AND reports and slow calls say so
    report = json.loads(biotrail("report", "--by", "file", "--json", *chosen).stdout)
    groups = [one for one in report["call_groups"] if one["call"] == "fdatasync"]
    assert [(one["file"], one["count"]) for one in groups] == [(str(file), SYNCS)]
    slow = json.loads(biotrail("slow", "--calls", "-n", "0", "--json", *chosen).stdout)["calls"]
    assert all(one["files"] == [str(file)] for one in slow if one["call"]["call"] == "fdatasync")


NO_FILES = """
import ctypes, os, socket, struct, threading, time
with open("/proc/self/comm", "w") as comm:
    comm.write("reader")
def read(fd, size, do):
    def soon():
        time.sleep(0.02)
        do()
    thread = threading.Thread(target=soon)
    thread.start()
    assert os.read(fd, size)
    thread.join()
end, begin = os.pipe()
read(end, 1, lambda: os.write(begin, b"x"))
ours, theirs = socket.socketpair()
read(ours.fileno(), 1, lambda: theirs.send(b"x"))
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
read(client.fileno(), 1, lambda: accepted.send(b"x"))
event = os.eventfd(0)
read(event, 8, lambda: os.eventfd_write(event, 1))
libc = ctypes.CDLL(None)
timer = libc.timerfd_create(1, 0)
libc.timerfd_settime(timer, 0, struct.pack("qqqq", 0, 0, 0, 20_000_000), None)
read(timer, 8, lambda: None)
master, terminal = os.openpty()
read(terminal, 2, lambda: os.write(master, b"x\\n"))
"""


def test_what_is_no_file_is_called_what_it_is(tmp_path: Path) -> None:
    # GIVEN reads that wait for pipes, sockets, an eventfd, a timer and a terminal
    log = tmp_path / "log"
    options = ("--path", "--files", "--call-budget", "0", "--comm", "reader")
    biotrail("record", *options, "-o", log, "--", sys.executable, "-c", NO_FILES)
    # WHEN calls are grouped by file
    report = json.loads(biotrail("report", "--by", "file", "--json", log).stdout)
    # THEN each is called what it is
    names = {one["file"] for one in report["call_groups"] if one["call"] == "read"}
    terminals = {name for name in names if name and name.startswith("/dev/pts/")}
    assert len(terminals) == 1 or not Path("/dev/pts/ptmx").exists()
    assert names - terminals >= {
        *("(pipe)", "(socket: UNIX)", "(socket: TCP)", "(eventfd)", "(timerfd)"),
    }
