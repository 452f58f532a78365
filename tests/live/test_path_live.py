# SPDX-License-Identifier: Apache-2.0
"""The path beside the block layer of real I/O: calls, waits, dirtying tasks, interrupts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.tables import NEVER
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader
from biotrail.recorder.schema.records import PATH_PARTS, Q_TURN_SHIFT, Kind
from biotrail.recorder.schema.syscalls import PAGE_FAULT
from tests.support import devices
from tests.support.devices import Fio, LoopDevice
from tests.support.path_disks import Disk
from tests.support.path_tables import (
    completions,
    number_of,
    operations,
    recorded_path,
    sector_of,
    whole,
)
from tests.support.record_command import biotrail, exported, fio_command, in_json, recorded

pytestmark = pytest.mark.usefixtures("needs_bpf")

KIB = 1024
MIB = 1024 * KIB
READ, WRITE = 0, 1


def test_direct_io_has_its_call_with_place_and_times(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a file on a loop device, whose own thread answers, that fio reads and writes directly, a
    # call for each block, while all parts are recorded
    file, report, log = disk.prepare("file", 2 * MIB), tmp_path / "fio.json", tmp_path / "log"
    job = {"rw": "randrw", "bs": "4k", "size": "2m", "ioengine": "psync", "thread": True}
    parts = ",".join(reversed(PATH_PARTS))
    disk.record(log, fio_command(str(file), report, **job), f"--path={parts}")
    (account,) = devices.read_fio_report(report)["jobs"]
    # WHEN its calls are read
    found = whole(log)
    place = sector_of(file)
    for name, operation, op in (("pread64", "read", READ), ("pwrite64", "write", WRITE)):
        calls = found.calls_of("fio", name)
        calls = calls.take(calls.bios > 0)
        # THEN there is one for each of fio's I/Os, with its bytes
        assert len(calls) == account[operation]["total_ios"] > 100
        assert int(calls.result.sum()) == account[operation]["io_bytes"]
        assert (calls.bios == 1).all()
        # AND each bio has its call, whose offset is the bio's place in the file
        chosen = (found.bio_comms == "fio") & (operations(found.bios) == op)
        chosen &= found.bios.bytes == 4 * KIB
        bios, paths = found.with_paths(chosen)
        mine = paths.call == number_of(name)
        bios, paths = bios.take(mine), paths.take(mine)
        assert len(bios) == len(calls)
        offsets = paths.args[:, 3].tolist()
        assert [place(offset) for offset in offsets] == bios.sector.tolist()
        assert (paths.args[:, 2] == 4 * KIB).all()
        assert len(np.unique(paths.args[:, 0])) == 1
        # AND the times are in order: entry, Q, C, exit
        row = found.call_of(paths, bios.tid)
        assert (row >= 0).all()
        ended = bios.complete != NEVER  # some of a loop device's no program can see
        assert (calls.entry <= calls.exit).all()
        assert (paths.entry <= bios.queue).all()
        assert (bios.complete <= found.calls.exit[row])[ended].all()
    # AND off the CPU and ready to run together are no longer than the call
    calls, waits = found.calls, found.waits
    assert (calls.blocked + calls.runnable <= calls.exit - calls.entry).all()
    reads = found.calls_of("fio", "pread64")
    reads = reads.take(reads.bios > 0)
    # AND each wait is within its call, and adds to the call's sum
    for call in range(len(reads)):
        mine = waits.take((waits.tid == reads.tid[call]) & (waits.entry == reads.entry[call]))
        assert len(mine) == reads.waits[call]
        assert (mine.out >= reads.entry[call]).all()
        assert (mine.run <= reads.exit[call]).all()
        assert (mine.out <= mine.woken).all()
        assert (mine.woken <= mine.run).all()
        assert int((mine.woken - mine.out).sum()) == reads.blocked[call]
    # AND reads did wait, uninterruptibly, for a thread that woke them
    assert int(reads.waits.sum()) > 0
    ours = waits.take(np.isin(waits.tid, reads.tid) & np.isin(waits.entry, reads.entry))
    assert (ours.state & 2 != 0).all()
    # AND no interrupt of a device led to the completions of a loop device: they ran in a task, or
    # in the softirq that another CPU raised on the submitter's
    ends = completions(log).interrupts
    assert len(ends) > 0
    assert set(ends.context.tolist()) <= {0, 1}
    assert (ends.hard[ends.context == 0] == NEVER).all()
    assert (ends.soft[ends.context == 0] == NEVER).all()


def test_each_way_to_queue_a_bio_has_its_name(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a program that syncs what it wrote, reads a mapped file, and reads through the cache
    disk.prepare("mapped", 256 * KIB)
    disk.prepare("cached", 256 * KIB)
    log = tmp_path / "log"
    program = disk.program("""
name("the-load")
fd = os.open(f"{here}/new", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"x" * 65536, 0)
os.fsync(fd)
with open(f"{here}/mapped", "rb") as stream:
    memory = mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
    assert sum(memory[at] for at in range(0, len(memory), 4096)) == 64 * ord("x")
fd = os.open(f"{here}/cached", os.O_RDONLY)
assert len(os.pread(fd, 262144, 0)) == 262144
""")
    disk.record(log, program, "--path=all", "--files")
    # WHEN bios are added up by file and call
    found = whole(log)
    bios, paths = found.with_paths(found.bio_comms == "the-load")
    files = found.trace.context.files
    bytes_of: dict[tuple[str, int], int] = {}
    for row, call, size in zip(bios.file, paths.call.tolist(), bios.bytes.tolist(), strict=True):
        if row >= 0 and not files[row].device:
            key = Path(files[row].path).name, call
            bytes_of[key] = bytes_of.get(key, 0) + size
    # THEN each file has the call that queued all of its bios
    assert bytes_of == {
        ("new", number_of("fsync")): 64 * KIB,
        ("mapped", PAGE_FAULT): 256 * KIB,
        ("cached", number_of("pread64")): 256 * KIB,
    }
    # AND what fsync wrote was dirtied by the program itself, before
    synced = paths.call == number_of("fsync")
    data = synced & (bios.file >= 0) & (paths.dirtied != NEVER)
    assert int(bios.bytes[data].sum()) >= 64 * KIB
    assert set(paths.dirty_comm[data].tolist()) == {b"the-load"}
    assert (paths.dirtied <= bios.queue)[data].all()


def test_io_uring_is_named_or_unknown(tmp_path: Path, disk: Disk) -> None:
    # GIVEN fio by io_uring, four at once, while all is recorded
    file, report, log = disk.prepare("file", MIB), tmp_path / "fio.json", tmp_path / "log"
    job = {"rw": "randread", "bs": "4k", "size": "1m", "ioengine": "io_uring", "iodepth": 4}
    command = fio_command(str(file), report, **job)
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("needs fio with io_uring")
    disk.record(log, command, "--path=all")
    # WHEN its bios' calls are read
    found = whole(log)
    data = (found.bio_comms == "fio") & (found.bios.bytes == 4 * KIB)
    data &= operations(found.bios) == READ
    assert int(data.sum()) >= 256
    bios, paths = found.with_paths(data)
    # THEN each is by io_uring_enter, but for those that a worker thread submitted
    names = set(paths.call[paths.call != NO_CALL].tolist())
    assert names <= {number_of("io_uring_enter")}
    assert len(bios) > 0


def test_a_disks_completions_follow_its_interrupt(tmp_path: Path) -> None:
    # GIVEN a disk with interrupts, and a file on it that is read directly
    path = tmp_path / "file"
    with path.open("wb") as stream:
        stream.write(b"x" * MIB)
        os.fsync(stream.fileno())
    source = devices.run("findmnt", "-n", "-o", "SOURCE", "-T", path).strip()
    name = Path(source).name
    if not source.startswith("/dev/") or not re.match(r"(vd|sd|nvme)", name):
        pytest.skip("needs the tests' own files on a disk with interrupts")
    log = tmp_path / "log"
    job = {"rw": "randread", "bs": "4k", "size": "1m", "ioengine": "psync"}
    command = fio_command(str(path), tmp_path / "fio.json", **job)
    biotrail("record", "-d", source, "--path=all", "--call-budget=0", "-o", log, "--", *command)
    # WHEN its completions are read
    found = completions(log)
    ends = found.interrupts
    order = np.argsort(found.requests.number)
    rows = order[np.searchsorted(found.requests.number, ends.number, sorter=order)]
    complete = found.requests.complete[rows]
    # THEN each ran in the interrupt, or in a softirq; with all times in order
    in_interrupt, in_softirq = ends.context == 2, ends.context == 1
    assert (in_interrupt | in_softirq).sum() >= 0.9 * len(ends) > 0
    assert (ends.hard != NEVER)[in_interrupt].all()
    assert (ends.soft != NEVER)[in_softirq].all()
    known = in_softirq & (ends.hard != NEVER)
    assert (ends.hard <= ends.raised)[known].all()
    assert (ends.raised <= ends.soft)[known].all()
    assert (ends.soft <= complete)[in_softirq].all()
    assert (ends.irq > 0)[in_interrupt | known].all()


def test_bios_that_a_filter_leaves_out_have_no_call(tmp_path: Path, disk: Disk) -> None:
    # GIVEN two programs that read directly, of which one process is chosen
    disk.prepare("file", MIB)
    log = tmp_path / "log"
    program = disk.program("""
def read(text, count):
    name(text)
    fd = os.open(f"{here}/file", os.O_RDONLY | os.O_DIRECT)
    memory = mmap.mmap(-1, 4096)
    for at in range(count):
        assert os.preadv(fd, [memory], at * 4096) == 4096

if os.fork() == 0:
    read("left-out", 32)
    os._exit(0)
os.wait()
read("chosen", 64)
""")
    disk.record(log, program, "--path=all", "--comm", "chosen")
    # WHEN records are counted
    counts: dict[Kind, int] = {}
    for events, _ in Trace(log).events():
        for kind in (Kind.Q, Kind.CALL):
            counts[kind] = counts.get(kind, 0) + len(events.rows(kind))
    # THEN every bio that was recorded has its call, and no call is another's
    assert counts == {Kind.Q: 64, Kind.CALL: 64}
    found = whole(log)
    assert set(found.bio_comms.tolist()) == {"chosen"}
    reads = "preadv", "preadv2"
    assert (found.calls_of("left-out", *reads).bios == 0).all()
    assert found.calls_of("chosen", *reads).bios.tolist() == [1] * 64


def test_a_call_with_many_bios_is_written_once(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a program that dirties pages far apart, and syncs them in one call, again and again
    log = tmp_path / "log"
    program = disk.program("""
name("the-load")
fd = os.open(f"{here}/apart", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, bytes(1 << 24), 0)
for turn in range(40):
    for at in range(0, 1 << 24, 1 << 18):
        os.pwrite(fd, bytes([turn]) * 4096, at)
    os.fsync(fd)
""")
    disk.record(log, program, "--path=all")
    # WHEN its bios are read
    queued = refer = written = 0
    for events, _ in Trace(log).events():
        queues = events.rows(Kind.Q)
        refers = events.field(Kind.Q, "flags", queues) >> Q_TURN_SHIFT > 0
        refer += int(refers.sum())
        written += len(events.rows(Kind.CALL))
        if events.path is not None:
            number = events.path[queues]["call"]
            queued += int((number == number_of("fsync")).sum())
            # THEN each bio that refers to a CALL has its call
            assert (number[refers] != NO_CALL).all()
    # AND most bios have no CALL of their own
    assert refer > 20 * 64
    assert written < refer / 4
    # AND each belongs to the fsync that returned next
    calls = whole(log).calls_of("the-load", "fsync")
    assert len(calls) == 40
    assert calls.bios.sum() == queued


def test_all_that_follows_a_q_is_told_apart(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a program that writes and syncs, recorded with files and stacks too
    log = tmp_path / "log"
    program = disk.program("""
name("the-load")
fd = os.open(f"{here}/new", os.O_RDWR | os.O_CREAT)
for at in range(0, 1 << 20, 65536):
    os.pwrite(fd, b"x" * 65536, at)
    os.fsync(fd)
""")
    disk.record(log, program, "--path=all", "--files", "--stacks")
    # WHEN its bios with a file are read
    found = whole(log)
    files = found.trace.context.files
    mine = np.array([f >= 0 and files[f].path.endswith("/new") for f in found.bios.file.tolist()])
    mine &= found.bio_comms == "the-load"
    bios, paths = found.with_paths(mine)
    # THEN each has all: a stack, its call, who dirtied it
    assert len(bios) == int(mine.sum()) >= 16
    assert (bios.stack >= 0).all()
    assert (paths.call == number_of("fsync")).all()
    assert set(paths.dirty_comm.tolist()) == {b"the-load"}


def test_a_part_alone_leaves_the_others_out(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a program that syncs, recorded with one part of the path at a time
    program = disk.program("""
fd = os.open(f"{here}/new", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"x" * 65536, 0)
os.fsync(fd)
""")
    kinds = {"call": Kind.CALL, "time": Kind.RETURN, "irq": Kind.INTERRUPT, "dirty": Kind.DIRTIED}
    kinds["wait"] = Kind.WAIT
    for part, kind in kinds.items():
        log = tmp_path / part
        disk.record(log, program, f"--path={part}")
        # WHEN its kinds are counted THEN there are those of the part, and of no other
        counts = np.zeros(256, dtype=np.int64)
        for events, _ in Trace(log).events():
            counts += np.bincount(events.kind, minlength=256)
        there = {k for k in kinds.values() if counts[k]}
        assert there == {kind}, part


def test_info_and_doctor_say_what_is_recorded(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a recording of two parts, and one of a part without the part that it needs
    log, less = tmp_path / "log", tmp_path / "less"
    disk.record(log, ["true"], "--path=call,irq")
    disk.record(less, ["true"], "--path=fs")
    # WHEN info and doctor are asked THEN they say which
    assert "; path: call, irq" in biotrail("info", log).stdout
    said = " ".join(biotrail("info", less).stdout.split())
    assert "; path: no part of it (not fs: it needs the part wait)" in said
    doctor = biotrail("doctor").stdout
    assert [part for part in PATH_PARTS if f"path {part} " in doctor] == list(PATH_PARTS)


# Timing of system calls ends on a load of many short ones, and everything else goes on.

LOAD = """
import mmap, os, sys, time
cached = os.open(sys.argv[1], os.O_RDONLY)
end = time.monotonic() + 4
while time.monotonic() < end:
    for _ in range(1000):
        os.pread(cached, 4096, 0)
direct, memory = os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
for at in range(32):
    assert os.preadv(direct, [memory], at * 4096) == 4096
"""
READS = 32


def test_timing_ends_where_it_costs_more_than_its_budget(
    tmp_path: Path, loop_device: LoopDevice
) -> None:
    # GIVEN a program that reads a cached page for seconds, then a device directly
    cached, log = tmp_path / "cached", tmp_path / "log"
    cached.write_bytes(b"x" * 4096)
    load = [sys.executable, "-c", LOAD, str(cached), loop_device.path]
    # WHEN it is recorded with a budget of a per cent
    done = biotrail("record", "--path", "--call-budget", "1", "-o", log, "--", *load)
    # THEN timing ended, which the user, the log and info say
    assert "timing system calls ended: it took about " in done.stderr
    reader = LogReader(log)
    list(reader.chunks())
    (note,) = [payload for name, payload in reader.notes if name == "call_timing"]
    assert note["percent"] > note["budget"] == 1
    info = " ".join(biotrail("info", log).stdout.split())
    assert ", then no longer: it took about " in info
    # AND later calls have no times, but each bio has its call, as before, and each wait its own
    found = recorded_path(log)
    preadv = [number_of("preadv"), number_of("preadv2")]
    mine = (found.bios.dev == loop_device.dev) & (found.bios.bytes == 4096)
    bios, paths = found.with_paths(mine)
    by_call = np.isin(paths.call, preadv)
    assert int(by_call.sum()) == READS
    (tid,) = set(bios.tid[by_call].tolist())
    reads = found.calls.take((found.calls.tid == tid) & np.isin(found.calls.number, preadv))
    assert not reads.timed.any()
    assert len(reads) == len(found.waits.take(np.isin(found.waits.entry, reads.entry))) > 0
    # AND what it cost is in the log's end
    assert reader.end is not None
    assert reader.end["path"]["timed"] > 0
    assert reader.end["path"]["seconds"]["time"] > 0


# Calls are timed by what they do, not by a list of names.

SIZE = 8 << 20
EVERY_CALL_LOAD = f"""
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
locked, locks = os.pipe()
if os.fork() == 0:
    other = os.open(path, os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    fcntl.lockf(other, fcntl.LOCK_EX)
    os.write(locks, b"x")
    time.sleep(0.3)
    os._exit(0)
os.read(locked, 1)
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


def test_calls_are_timed_by_what_they_do(disk: Disk, tmp_path: Path) -> None:
    # GIVEN a program that reads a file by mmap and mlock, waits for a lock of one, and idles in
    # poll; and one whose exit frees a deleted file's blocks, with a discard
    log = tmp_path / "log"
    devices.run("mount", "-o", "remount,discard", disk.mount)
    load = [sys.executable, "-c", EVERY_CALL_LOAD, str(disk.mount / "file")]
    disk.record(log, load, "--path")
    # WHEN its calls are shown
    calls = exported("calls", "--comm", "all-calls", log)
    by_name = {name: [one for one in calls if one["call"] == name] for name in LOOKED_AT}
    # THEN what queued bios is among them with its bios, and what took long
    assert any(one["bios"] for one in by_name["mmap"])
    assert any(one["bios"] for one in by_name["mlock"])
    assert max(one["duration_ns"] for one in by_name["flock"]) > 100_000_000
    # AND what idles is not
    assert not by_name["wait4"]
    assert not by_name["poll"]
    # AND the bios of every call are in the table, but for page faults'
    queued = {
        (one["tid"], one["entry_ns"])
        for one in exported("bios", "--comm", "all-calls", log)
        if one["call"] not in (None, "page fault")
    }
    assert queued == {(one["tid"], one["entry_ns"]) for one in calls if one["bios"]}


LOOKED_AT = ("mmap", "mlock", "flock", "wait4", "poll", "exit_group")


# The file of a call is its descriptor's, whatever bios it queues.

SYNCS = 50
FILES_LOAD = f"""
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


def test_a_flush_is_of_its_descriptors_file(disk: Disk, tmp_path: Path) -> None:
    # GIVEN a program that writes and syncs a redo log with O_DIRECT, whose fdatasync queues a flush
    # alone, and syncs a directory
    log, file = tmp_path / "log", disk.mount / "redo.log"
    disk.record(log, [sys.executable, "-c", FILES_LOAD, str(file)], "--path", "--files")
    # WHEN its calls are shown
    chosen = ("--comm", "redo", log)
    calls = exported("calls", *chosen)
    # THEN each write and sync is of the file
    for name in ("pwrite64", "fdatasync"):
        assert [one["file"] for one in calls if one["call"] == name] == [str(file)] * SYNCS
    # AND the directory's sync of the directory, which is at the root of its file system
    assert [one["file"] for one in calls if one["call"] == "fsync"] == [str(disk.mount)]
    # AND reports and slow calls say so
    report = in_json("report", "--by", "file", *chosen)
    groups = [one for one in report["call_groups"] if one["call"] == "fdatasync"]
    assert [(one["file"], one["count"]) for one in groups] == [(str(file), SYNCS)]
    slow = in_json("slow", "--calls", "-n", "0", *chosen)["calls"]
    assert all(one["files"] == [str(file)] for one in slow if one["call"]["call"] == "fdatasync")


NO_FILES = """
import ctypes, os, socket, struct, threading, time
with open("/proc/self/comm", "w") as comm:
    comm.write("reader")
READ = {"x86_64": "0", "aarch64": "63"}[os.uname().machine]
def read(fd, size, do):
    def soon():
        while open(f"/proc/{os.getpid()}/syscall").read().split()[0] != READ:
            time.sleep(0.01)
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
soon = struct.pack("qqqq", 0, 0, 0, 1_000_000)
read(timer, 8, lambda: libc.timerfd_settime(timer, 0, soon, None))
master, terminal = os.openpty()
read(terminal, 2, lambda: os.write(master, b"x\\n"))
"""


def test_what_is_no_file_is_called_what_it_is(tmp_path: Path) -> None:
    # GIVEN reads that wait for pipes, sockets, an eventfd, a timer and a terminal
    log = tmp_path / "log"
    options = ("--path", "--files", "--call-budget", "0", "--comm", "reader")
    biotrail("record", *options, "-o", log, "--", sys.executable, "-c", NO_FILES)
    # WHEN calls are grouped by file
    report = in_json("report", "--by", "file", log)
    # THEN each is called what it is
    names = {one["file"] for one in report["call_groups"] if one["call"] == "read"}
    terminals = {name for name in names if name and name.startswith("/dev/pts/")}
    assert len(terminals) == 1 or not Path("/dev/pts/ptmx").exists()
    assert names - terminals >= {
        *("(pipe)", "(socket: UNIX)", "(socket: TCP)", "(eventfd)", "(timerfd)"),
    }


# What the worker of a loop device does is of whoever used the loop device.


@pytest.mark.parametrize("path", [(), ("--path",)])
def test_a_loop_devices_lower_bios_are_its_users(
    loop_device: LoopDevice, fio: Fio, tmp_path: Path, path: tuple[str]
) -> None:
    # GIVEN direct writes to a loop device with direct I/O, on another one
    with devices.loop_over(loop_device.path, direct_io=True) as upper:
        chosen = ("-d", upper.path, "-d", loop_device.path)
        with recorded(*chosen, *path, "-o", tmp_path / "log"):
            done = fio(upper.path, rw="randwrite", bs="16k", size="4m", ioengine="psync")
    of_fio = done["jobs"][0]["write"]
    # WHEN a report is made of the lower device's writes
    options = ("-d", loop_device.name, "--op", "write")
    told = in_json("report", *options, tmp_path / "log")
    # THEN they are fio's, each queued by a worker for it
    by_name: dict[str, int] = {}
    for one in told["processes"]:
        by_name[one["process"]] = by_name.get(one["process"], 0) + one["bytes"]
        if one["process"] == "fio":
            assert one["by_workers"] == one["ios"]
    assert by_name["fio"] == of_fio["io_bytes"]
    # AND no worker has any of its own
    assert not any(name and name.startswith(("kworker", "loop")) for name in by_name)
