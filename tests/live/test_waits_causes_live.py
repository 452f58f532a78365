# SPDX-License-Identifier: Apache-2.0
"""Provoked causes of what programs wait for are in a report's first sentence, and no others.

Beside each cause is its opposite: the same program without it. Another program of this machine may
have waited longer; then the one of the test is in the figures of the same sentence (`others`).
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.notes.cpus import hierarchy
from tests.support.devices import MEBIBYTE, Fio, LoopDevice, MakeLoop, run
from tests.support.path_disks import LOAD, Disk, mounted
from tests.support.record_command import biotrail, in_json, recorded, remove_cgroup

pytestmark = [pytest.mark.usefixtures("needs_bpf")]

SIZE = 256 * MEBIBYTE
APP = f"app-{os.getpid()}"
"""The program's name: waits of those that other tests run at the same time are recorded, too."""


@pytest.fixture
def disk(tmp_path: Path, make_loop: MakeLoop) -> Iterator[Disk]:
    """A loop device over memory, with ext4 and its journal."""
    with mounted(make_loop(size=SIZE), "ext4", tmp_path / "mount") as one:
        yield one


def beside(background: str, program: str, seconds: float = 1) -> str:
    """A program that begins others, does something until `over()`, and ends them.

    The others have begun when they have named themselves.
    """
    return f"""
import time
children = [subprocess.Popen([sys.executable, "-c", text, here]) for text in {background}]
for child in children:
    while open(f"/proc/{{child.pid}}/comm").read() == open("/proc/self/comm").read():
        time.sleep(0.01)
name("{APP}")
until = time.monotonic() + {seconds}
def over():
    return time.monotonic() > until
try:
{program}
finally:
    for child in children:
        child.kill()
        child.wait()
"""


def verdict(log: Path) -> dict[str, dict[str, Any]]:
    told = in_json("report", log)["verdict"]
    return {one["rule"]: one for one in told}


def all_waits(log: Path) -> list[dict[str, Any]]:
    """What is said of the calls of all programs, those of other tests, too."""
    found = verdict(log).get("waits", {}).get("figures")
    return [found, *found["others"]] if found else []


def waits_of(log: Path) -> dict[str, dict[str, Any]]:
    """What is said of the calls of APP: figures by call; empty: nothing."""
    return {one["call"]: one for one in all_waits(log) if one["process"] == APP}


def shares(figures: dict[str, Any]) -> dict[str, float]:
    return {one["cause"]: one["share"] for one in figures["causes"]}


def cpu_waited(figures: dict[str, Any]) -> float:
    """ns ready to run without a CPU, a call."""
    waited = (one["wait_ns"] for one in figures["causes"] if one["cause"] == "CPU")
    return sum(waited) / float(figures["count"])


def sentence(figures: dict[str, Any], log: Path) -> str:
    """The sentence, if it is about these calls; else an empty text."""
    first = verdict(log)["waits"]
    return str(first["sentence"]) if first["figures"]["call"] == figures["call"] else ""


def children(*texts: str) -> str:
    return repr([LOAD + text for text in texts])


SPINS = """
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
name("spinner")
os.nice(-10)
while True:
    pass
"""
SYNCS = """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    file = os.open(here + "/small", os.O_CREAT | os.O_WRONLY)
    while not over():
        os.pwrite(file, b"x" * 100, 0)
        os.fsync(file)
"""


@pytest.mark.alone  # who ran is told by who ran last: others' short turns hide the long ones
def test_busy_cpus(tmp_path: Path, disk: Disk) -> None:
    # GIVEN fsyncs on a CPU on which two others compute, and may run before it
    log = tmp_path / "busy"
    program = beside(children(SPINS, SPINS), f"    os.nice(10)\n{SYNCS}", 2)
    disk.record(log, disk.program(program), "--path")
    # WHEN a report is made
    fsync = waits_of(log)["fsync"]
    # THEN they waited for a CPU, and it is said who ran instead
    assert shares(fsync)["CPU"] >= 0.25
    assert fsync["ran"] == "spinner" or fsync["ran_share"] < 0.9
    # GIVEN the same fsyncs, of a thread that runs before all others
    quiet = tmp_path / "quiet"
    first = "    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))\n"
    disk.record(quiet, disk.program(beside("[]", first + SYNCS)), "--path")
    # THEN they waited for a CPU as long as a wake-up takes, and the journal's thread for its own
    most = cpu_waited(fsync) / 4
    assert all(cpu_waited(one) < most for one in waits_of(quiet).values())


@pytest.mark.parametrize("limited", [True, False])
def test_a_quota_of_its_cgroup(tmp_path: Path, disk: Disk, limited: bool) -> None:
    # GIVEN fsyncs of a program whose cgroup may run for 1 % of the time, or that is in none
    root = hierarchy(Path("/proc"))
    if root is None:
        pytest.skip("needs cgroups with the controller cpu")
    if (root / "cgroup.subtree_control").exists():
        (root / "cgroup.subtree_control").write_text("+cpu")
    group = root / f"biotrail-test-quota-{os.getpid()}"
    group.mkdir()
    try:
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text("1000 100000")
        else:
            (group / "cpu.cfs_quota_us").write_text("1000")
        enter = f"""
    if {limited}:
        open("{group}/cgroup.procs", "w").write("0")
"""
        log = tmp_path / "log"
        disk.record(log, disk.program(beside("[]", enter + SYNCS, 2)), "--path")
    finally:
        remove_cgroup(group)
    # WHEN a report is made THEN the quota is named as what may have had that time, or none is
    fsync = waits_of(log).get("fsync", {})
    # Since Linux 6.18 a thread stands for its quota on its way back to user space, in no call.
    waited = bool(fsync) and shares(fsync).get("CPU", 0) >= 0.25
    assert fsync.get("quota_cgroup") == (f"/{group.name}" if limited and waited else None)


WRITES = """
name("noise")
os.nice(-10)
block = bytes(8 << 20)
while True:
    file = os.open(here + "/noise", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for _ in range(6):
        os.write(file, block)
    os.fdatasync(file)
    os.close(file)
"""
APPENDS = """
    file = os.open(here + "/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    while not over():
        os.write(file, b"x" * 300)
        os.fsync(file)
"""


def test_another_ones_write_back_and_what_commits_carry(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a log that is synced after each line, beside a writer of new data
    log, alone = tmp_path / "beside", tmp_path / "alone"
    disk.record(log, disk.program(beside(children(WRITES), APPENDS, 1.5)), "--path")
    disk.record(alone, disk.program(beside("[]", APPENDS)), "--path")
    # WHEN reports are made THEN whose I/O the device had meanwhile is said, if a CPU was not what
    # they waited for most, on a busy machine
    fsync = waits_of(log)["fsync"]
    assert fsync.get("beside") == "noise" or fsync["causes"][0]["cause"] == "CPU"
    # AND the fsyncs waited for the journal, alone too, but there beside nobody
    assert shares(fsync).get("journal", 0) > 0
    found = waits_of(alone)
    assert all(one.get("beside") is None for one in found.values())
    assert all(not one.get("carried_bytes") for one in found.values())


READS = """
    file = os.open(here + "/file", os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    while not over():
        EVICTED
        for at in range(0, 8 << 20, 4096):
            os.pread(file, 4096, at)
"""


def test_pages_that_were_evicted(tmp_path: Path, disk: Disk) -> None:
    # GIVEN reads of a file through the page cache, which is emptied of it or not
    file = disk.prepare("file", 8 * MEBIBYTE)
    logs = tmp_path / "evicted", tmp_path / "cached"
    gone = "os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)"
    for log, evicted in zip(logs, (gone, "pass"), strict=True):
        program = beside("[]", READS.replace("EVICTED", evicted))
        file.read_bytes()
        disk.record(log, disk.program(program), "--path")
    # WHEN reports are made THEN reads waited for pages that were not there, or for nothing
    reads = waits_of(logs[0])["pread64"]
    assert max(shares(reads), key=lambda cause: shares(reads)[cause] * (cause != "CPU")) == (
        "page read"
    )
    assert "pread64" not in waits_of(logs[1])


EXTENDS = """
name("holder")
file = os.open(here + "/shared", os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
block = mmap.mmap(-1, 8 << 20)
while True:
    os.ftruncate(file, 0)
    for at in range(8):
        os.pwritev(file, [block], at << 23)
"""


@pytest.mark.parametrize(("file", "told"), [("shared", True), ("other", False)])
def test_a_lock_whose_holder_does_io(tmp_path: Path, disk: Disk, file: str, told: bool) -> None:
    # GIVEN small writes to a file that another program extends by direct I/O, or to another file
    program = f"""
    file = os.open(here + "/{file}", os.O_CREAT | os.O_WRONLY)
    while not over():
        os.pwrite(file, b"x", 0)
        time.sleep(0.001)
"""
    log = tmp_path / "log"
    disk.record(log, disk.program(beside(children(EXTENDS), program, 1.5)), "--path")
    # WHEN a report is made THEN the lock and who had it are named, or no lock is
    locks = [one for one in waits_of(log).values() if shares(one).get("lock", 0) >= 0.25]
    assert bool(locks) == told
    assert all(one["holder"] == "holder" for one in locks)


def test_throttled_writing(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a device of which little may be dirty and much is written, or the other way round
    bdi = Path(f"/sys/block/{disk.device.name}/bdi")
    if not (bdi / "strict_limit").exists():
        pytest.skip("needs a kernel with a strict limit of a device's dirty pages")
    logs = tmp_path / "limited", tmp_path / "free"
    for log, ratio, strict, blocks in zip(logs, "01", "10", (1 << 30, 8), strict=True):
        (bdi / "max_ratio").write_text(ratio)
        (bdi / "strict_limit").write_text(strict)
        program = f"""
    file = os.open(here + "/file", os.O_CREAT | os.O_WRONLY)
    for at in range({blocks}):
        os.pwrite(file, bytes(1 << 20), (at % 64) << 20)
        if over():
            break
    while not over():
        time.sleep(0.01)
"""
        disk.record(log, disk.program(beside("[]", program)), "--path")
    # WHEN reports are made THEN the writes waited for write-back, or for nothing
    assert "throttled" in shares(waits_of(logs[0])["pwrite64"])
    assert not any("throttled" in shares(one) for one in waits_of(logs[1]).values())


@pytest.mark.parametrize(("threads", "told"), [(16, True), (1, False)])
def test_own_depth(
    tmp_path: Path, loop_device: LoopDevice, fio: Fio, threads: int, told: bool
) -> None:
    # GIVEN direct reads, many at once or one by one
    log = tmp_path / "log"
    job = {"rw": "randread", "bs": "64k", "ioengine": "psync", "number_ios": 8000 // threads}
    options = ("--path", "--call-budget", "0")
    with recorded("-d", loop_device.name, "-o", log, *options):
        fio(loop_device.path, numjobs=threads, thread=True, norandommap=True, **job)
    # WHEN a report is made THEN its own reads are named as what the device had, if they are many
    found = [one for one in all_waits(log) if (one["process"], one["call"]) == ("fio", "pread64")]
    here = [one for one in found if one.get("device") == loop_device.name]
    deep = any(one.get("in_flight", 0) >= 4 and one["beside"] is None for one in here)
    # (where other programs have the CPUs, the reads wait for one of these instead)
    assert deep == told or (told and any(one["causes"][0]["cause"] == "CPU" for one in found))


def test_discards(tmp_path: Path, loop_device: LoopDevice) -> None:
    # GIVEN a device most of whose I/O is trims, or reads
    discards = 'fcntl.ioctl(file, 0x1277, struct.pack("QQ", at % 32 << 20, 1 << 20))'
    for what, told in ((discards, True), ("os.preadv(file, [into], at % 32 << 20)", False)):
        log = tmp_path / f"{told}"
        program = f"""
import fcntl, struct
file = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
into = mmap.mmap(-1, 65536)
for at in range(500):
    {what}
"""
        command = [sys.executable, "-c", LOAD + program, loop_device.path]
        biotrail("record", "-d", loop_device.path, "-o", log, "--", *command)
        # WHEN a report is made THEN trims are what the time is of, or not
        found = verdict(log).get("purpose", {}).get("figures", {})
        assert (found.get("purpose") == "discard") == told


@pytest.mark.parametrize(("trims", "told"), [(True, "discard"), (False, None)])
def test_what_fstrim_does(tmp_path: Path, disk: Disk, trims: bool, told: str | None) -> None:
    # GIVEN a file system whose free space is discarded, or one that is only synced
    if shutil.which("fstrim") is None:
        pytest.skip("needs fstrim")
    # (Its bitmaps are read before: beside busy CPUs such a read can take longer than all discards.)
    run("fstrim", "--minimum", "1M", disk.mount)
    log, words = tmp_path / "log", ["fstrim", disk.mount] if trims else ["sync", "-f", disk.mount]
    disk.record(log, [str(word) for word in words], "--path")
    # WHEN a report is made THEN discards are what the device's time is of, or not
    found = verdict(log)
    assert found.get("purpose", {}).get("figures", {}).get("purpose") == told
    if told:
        assert "discard" in found["purpose"]["sentence"]
    # AND nobody else is named beside the calls of either
    assert all(one.get("beside") is None for one in all_waits(log) if one["process"] == words[0])


DEEP = """
name("deep")
import threading
file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
def read(first):
    into = mmap.mmap(-1, 65536)
    for at in range(10**9):
        os.preadv(file, [into], (at * 7919 + first * 631) % 2048 << 16)
for first in range(15):
    threading.Thread(target=read, args=(first,), daemon=True).start()
read(15)
"""
SHALLOW = """
    file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
    into = mmap.mmap(-1, 65536)
    at = 0
    while not over():
        at += 1
        os.preadv(file, [into], at * 7919 % 2048 << 16)
"""


@pytest.mark.parametrize("scheduler", ["none", "mq-deadline", "kyber", "bfq"])
@pytest.mark.parametrize("deep", [True, False])
def test_a_deep_reader_under_each_scheduler(
    tmp_path: Path, make_loop: MakeLoop, scheduler: str, deep: bool
) -> None:
    # GIVEN reads one by one, beside sixteen at once or alone, and a scheduler
    device, log = make_loop(size=SIZE), tmp_path / "log"
    place = Path(f"/sys/block/{device.name}/queue/scheduler")
    if scheduler not in place.read_text():
        pytest.skip(f"no scheduler {scheduler} here")
    place.write_text(scheduler)
    program = LOAD + beside(children(DEEP) if deep else "[]", SHALLOW, 0.5)
    command = [sys.executable, "-c", program, device.path]
    options = ("--path", "--call-budget=0", "-d", device.path, "-o", log)
    biotrail("record", *options, "--", *command)
    # WHEN a report is made
    reads = [one for one in waits_of(log).values() if one["call"].startswith("preadv")]
    # THEN what the deep one had in flight is named beside the reads, or nobody is; or a CPU is what
    # they waited for most, on a busy machine
    named = {one["beside"] for one in reads if one.get("beside")}
    assert named <= ({"deep"} if deep else set())
    if deep:
        [one] = reads
        if one["causes"][0]["cause"] != "CPU":
            assert named
            assert one["in_flight"] >= 4
            said = sentence(one, log)  # the deep one's own may have waited longer
            assert f"of {APP} (" not in said or "beside reads of deep on" in said
    # AND what that costs on a device over memory cannot be told: nobody is blamed
    told = in_json("blame", "--by", "process", "-n", "0", log)
    assert told["devices_on_the_cpus"] == [device.name]
    [app] = [one for one in told["victims"] if one["name"] == APP]
    assert not app["without"]
    assert not [one for one in app["parts"] if one["kind"] == "other I/O"]


def test_an_idle_disk_under_a_program_that_computes(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a program that reads a block now and then, and computes
    disk.prepare("file", MEBIBYTE)
    program = """
    file = os.open(here + "/file", os.O_RDONLY | os.O_DIRECT)
    into = mmap.mmap(-1, 4096)
    while not over():
        os.preadv(file, [into], 0)
        again = time.monotonic() + 0.3
        while time.monotonic() < again:
            pass
"""
    log = tmp_path / "log"
    disk.record(log, disk.program(beside("[]", program)), "--path")
    # WHEN a report is made THEN it is not said to wait, but that the device is mostly idle
    found = verdict(log)
    assert not waits_of(log)
    assert found["mostly-idle"]["figures"]["device"] == disk.device.name
