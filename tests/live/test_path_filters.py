# SPDX-License-Identifier: Apache-2.0
"""Filters of `record`, and the recorder's own calls: which calls and waits a log has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from biotrail.recorder.log import LogReader
from biotrail.recorder.schema.records import Kind
from tests.support.devices import LoopDevice, MakeLoop
from tests.support.path_tables import RecordedPath, recorded_path
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")

ALWAYS = "--call-budget=0"
"""Calls of other processes, whatever they cost, do not end the timing."""

READ = """
import mmap, os, sys
def name(text):
    with open("/proc/self/comm", "w") as comm:
        comm.write(text)

def read(path, count):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    memory = mmap.mmap(-1, 4096)
    for at in range(count):
        assert os.preadv(fd, [memory], at * 4096) == 4096
    os.close(fd)

"""


def program(text: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", READ + text, *map(str, arguments)]


def names(found: RecordedPath) -> set[str]:
    """Names of the threads of all calls and waits."""
    table = found.trace.tasks.table()
    rows = {*found.calls.task.tolist(), *found.waits.task.tolist()} - {-1}
    return {str(table.comm[row]) for row in rows}


def waits_and_calls_left_out(log: Path) -> int:
    counts = (LogReader(log).end or {})["left_out"]["events"]
    return int(counts.get(str(int(Kind.RETURN)), 0)) + int(counts.get(str(int(Kind.WAIT)), 0))


def test_calls_and_waits_are_of_the_tasks_that_were_chosen(
    tmp_path: Path, loop_device: LoopDevice
) -> None:
    # The name is of no other test: all that has it is recorded, wherever it runs.
    # GIVEN two programs that read directly, of which one name is chosen  WHEN both are recorded
    log = tmp_path / "log"
    both = program(
        """
if os.fork() == 0:
    name("left-out")
    read(sys.argv[1], 64)
    os._exit(0)
assert os.wait()[1] == 0
name("this-name")
read(sys.argv[1], 64)
""",
        loop_device.path,
    )
    biotrail(
        "record",
        "--path",
        ALWAYS,
        "--call-over",
        "1us",
        "--comm",
        "this-name",
        "-o",
        log,
        "--",
        *both,
    )
    # THEN calls and waits are of that name alone, each read with its bio
    found = recorded_path(log)
    assert names(found) == {"this-name"}
    assert int(found.calls_of("this-name", "preadv", "preadv2").bios.sum()) == 64


@pytest.mark.parametrize("children", [True, False])
def test_calls_of_a_process_and_its_children(
    tmp_path: Path, loop_device: LoopDevice, children: bool
) -> None:
    # GIVEN a process that waits for a word, then reads, as does a child that it starts
    go, done, log = tmp_path / "go", tmp_path / "done", tmp_path / "log"
    os.mkfifo(go)
    load = subprocess.Popen(
        program(
            """
open(sys.argv[2]).read()
if os.fork() == 0:
    name("the-child")
    read(sys.argv[1], 64)
    os._exit(0)
assert os.wait()[1] == 0
name("the-parent")
read(sys.argv[1], 64)
open(sys.argv[3], "w").close()
""",
            loop_device.path,
            go,
            done,
        )
    )
    # WHEN its process id is recorded, with its children or without
    more = ["--children"] if children else []
    wait = f"echo > {go}; until [ -e {done} ]; do sleep 0.1; done"
    try:
        arguments = ["--pid", load.pid, *more, "-o", log, "--", "sh", "-c", wait]
        biotrail("record", "--path", ALWAYS, "--call-over", "1us", *map(str, arguments))
        assert load.wait(60) == 0
    finally:
        load.kill()
        load.wait()
    # THEN calls are of these processes alone
    found = recorded_path(log)
    assert len(found.calls_of("the-parent", "preadv", "preadv2")) == 64
    assert len(found.calls_of("the-child", "preadv", "preadv2")) == (64 if children else 0)
    pids = set(found.trace.tasks.table().tgid[found.calls.task[found.calls.task >= 0]].tolist())
    assert load.pid in pids
    assert len(pids) == (2 if children else 1)


def test_calls_of_a_cgroup(tmp_path: Path, loop_device: LoopDevice, cgroup: Path) -> None:
    # GIVEN two programs that read directly, of which one is in a cgroup  WHEN that is recorded
    log = tmp_path / "log"
    both = program(
        """
for text in ("left-out", "chosen"):
    if os.fork() == 0:
        if text == "chosen":
            open(f"{sys.argv[2]}/cgroup.procs", "w").write("0")
        name(text)
        read(sys.argv[1], 64)
        os._exit(0)
    assert os.wait()[1] == 0
""",
        loop_device.path,
        cgroup,
    )
    arguments = ["--path", ALWAYS, "--call-over", "1us", "--cgroup", str(cgroup), "-o", str(log)]
    biotrail("record", *arguments, "--", *both)
    # THEN calls and waits are of the program in it alone
    found = recorded_path(log)
    assert "chosen" in names(found)
    assert "left-out" not in names(found)
    assert int(found.calls_of("chosen", "preadv", "preadv2").bios.sum()) == 64


def test_calls_whose_bios_all_went_elsewhere_are_left_out(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    # GIVEN a program that reads two devices, of which one is recorded, and waits for a pipe
    here, there = make_loop(), make_loop()
    log = tmp_path / "log"
    load = program(
        """
name("the-load")
read(sys.argv[1], 64)
read(sys.argv[2], 32)
mine, yours = os.pipe()
if os.fork() == 0:
    import time
    time.sleep(0.05)
    os._exit(0)
os.close(yours)
assert os.read(mine, 1) == b""
""",
        here.path,
        there.path,
    )
    biotrail("record", "--path", ALWAYS, "-d", here.path, "-o", log, "--", *load)
    # WHEN its calls are read
    found = recorded_path(log)
    reads = found.calls_of("the-load", "preadv", "preadv2")
    # THEN those that read the other device are not there, but counted, with their waits
    assert reads.bios.tolist() == [1] * 64
    assert waits_and_calls_left_out(log) >= 32
    # AND a slow call that queued no bio is
    (slow,) = (
        found.calls_of("the-load", "read")
        .take(found.calls_of("the-load", "read").otherwise > 10_000_000)
        .bios.tolist()
    )
    assert slow == 0
    # AND every wait is of a call that is there
    known = set(zip(found.calls.tid.tolist(), found.calls.entry.tolist(), strict=True))
    mine = found.waits.take(found.waits.tid == reads.tid[0])
    assert {*zip(mine.tid.tolist(), mine.entry.tolist(), strict=True)} <= known


def test_the_recorders_own_calls_are_left_out(tmp_path: Path, loop_device: LoopDevice) -> None:
    # GIVEN recordings of all calls that take a microsecond  WHEN one asks for the recorder's own
    found = {}
    for own in (True, False):
        log, asked = tmp_path / f"log-{own}", ["--own-io"] if own else []
        # Its parent is the recorder.
        text = "read(sys.argv[1], 64); print(os.getppid(), file=open(sys.argv[2], 'w'))"
        load = program(text, loop_device.path, tmp_path / "recorder")
        arguments = ["--path", ALWAYS, "--call-over", "1us", "--sync", *asked, "-o", str(log)]
        biotrail("record", *arguments, "--", *load)
        calls = recorded_path(log).calls
        tasks = recorded_path(log).trace.tasks.table()
        pids = tasks.tgid[calls.task[calls.task >= 0]].tolist()
        found[own] = int((tmp_path / "recorder").read_text()) in pids
    # THEN only that one has them
    assert found == {True: True, False: False}
