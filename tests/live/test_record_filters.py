# SPDX-License-Identifier: Apache-2.0
"""Filters by I/O: of two loads at once all of one, none of the other, whole lifecycles only."""

import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.events.tables import NEVER
from tests.support import devices
from tests.support.devices import MakeLoop
from tests.support.holding import held_in_flight, on_a_file_system
from tests.support.kernel_completions import Completions
from tests.support.record_command import (
    Log,
    assert_ended,
    biotrail,
    read,
    recorder,
    stop,
)

# Two loads at once under `record` with filters, and what must hold of the log.

SECONDS = 120


@dataclass
class Load:
    """A program that waits for a word before it begins, so that its pid is known before."""

    process: subprocess.Popen[str]
    report: Path | None = None
    count: int = 0
    """I/Os, where the program writes no report."""

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def ios(self) -> int:
        """Reads and writes that fio counted; waits for its end."""
        assert self.process.wait(SECONDS) == 0
        if self.report is None:
            return self.count
        text = self.report.read_text()
        jobs = json.loads(text[text.index("{") :])["jobs"]
        return sum(job[way]["total_ios"] for job in jobs for way in ("read", "write"))


@dataclass
class Loads:
    """Starts loads; all are gone when its block is left."""

    directory: Path
    stack: ExitStack
    trace: Completions
    """Of the devices whose completions matter."""
    all: list[Load] = field(default_factory=list)
    devs: set[int] = field(default_factory=set)
    """What the loads use, and what a test adds (a device below)."""

    def fio(self, path: str | Path, *, forked: bool = False, **options: object) -> Load:
        """A job: a thread of the process, or a child of it."""
        report = self.directory / f"fio-{len(self.all)}.json"
        self.devs.add(devices.dev_of(path))
        job = {"rw": "randread", "bs": "4k", "size": "2m", **options}
        command = ["fio", "--output-format=json", f"--output={report}"]
        command += devices.fio_arguments(path, **job) + ([] if forked else ["--thread"])
        return self._add(Load(self._waiting(command), report))

    def dd(self, path: str | Path, count: int) -> Load:
        """So many reads of 4 KiB by a single thread."""
        self.devs.add(devices.dev_of(path))
        command = ["dd", f"if={path}", "of=/dev/null", "bs=4k", f"count={count}", "iflag=direct"]
        return self._add(Load(self._waiting([*command, "status=none"]), count=count))

    def _waiting(self, command: list[str]) -> subprocess.Popen[str]:
        shell = ["sh", "-c", 'read word; exec "$@"', "sh", *command]
        process = subprocess.Popen(shell, stdin=subprocess.PIPE, text=True)
        self.stack.callback(process.communicate, timeout=SECONDS)
        self.stack.callback(process.kill)
        return process

    def _add(self, load: Load) -> Load:
        self.all.append(load)
        return load


@contextmanager
def loads(trace: Completions) -> Iterator[Loads]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield Loads(directory, stack, trace)


def record_both(
    log: Path, both: Loads, *arguments: str, begin_in: AbstractContextManager[None] | None = None
) -> tuple[Log, str]:
    """Records while all the loads run at once; the log, and what `record` said.

    begin_in: the block in which they are begun; they are waited for behind it.
    """
    truth = both.trace(*both.devs)
    with recorder("-o", log, *arguments, stdout=subprocess.DEVNULL) as process:
        with begin_in or nullcontext():
            for load in both.all:
                load.go()
        for load in both.all:
            load.ios()
        status, said = stop(process, signal.SIGINT)
    assert status == 0, said
    return read(log, truth.unseen_by(log)), said


def on(log: Log, dev: int) -> Any:
    """Bios with data on a device."""
    return log.bios.take((log.bios.dev == dev) & (log.bios.bytes > 0))


def assert_whole(log: Log) -> None:
    """Every bio has its Q and its end, and nothing of it is in doubt."""
    assert (log.bios.queue != NEVER).all()
    assert_ended(log)


# Filters by I/O: of two loads at once all of one, none of the other, whole lifecycles only.

pytestmark = pytest.mark.usefixtures("needs_bpf", "fio")


@pytest.fixture
def both(completions: Completions) -> Iterator[Loads]:
    with loads(completions) as found:
        yield found


def check(found: Any, load: Load, dev: int) -> None:
    """All of the load, nothing else, and whole."""
    assert_whole(found)
    assert len(on(found, dev)) == load.ios()
    assert found.devices() - {0} == {dev}


# What a load has that the other has not, and the filter that says so.
BY_THE_BIO = {
    "op": (["--op", "read"], {"rw": "randread"}, {"rw": "randwrite"}),
    "flags": (["--flags", "sync+idle"], {"rw": "randwrite"}, {"rw": "randread"}),
    "size": (["--min-size", "64k"], {"bs": "64k", "size": "8m"}, {"bs": "4k"}),
    "sectors": (["--sectors", "65536-131071"], {"offset": "32m"}, {"offset": "0"}),
    "two": (
        ["--op", "read,discard", "--sectors", "0-8191", "--min-size", "8k"],
        {"bs": "8k", "size": "4m"},
        {"bs": "8k", "rw": "randwrite"},
    ),
}


@pytest.mark.parametrize(
    ("name", "events"),
    [(name, "lifecycle") for name in BY_THE_BIO] + [("two", "minimal"), ("two", "all")],
)
def test_by_what_the_bio_says(
    tmp_path: Path, loop_device: Any, both: Loads, name: str, events: str
) -> None:
    # GIVEN two loads on one device that differ in what a filter asks for
    chosen, wanted, unwanted = BY_THE_BIO[name]
    ours = both.fio(loop_device.path, **wanted)
    both.fio(loop_device.path, **unwanted)
    # WHEN both run at once
    found, _ = record_both(
        tmp_path / "log", both, "-d", loop_device.name, "--events", events, *chosen
    )
    # THEN the log holds the whole of one and nothing of the other
    check(found, ours, loop_device.dev)


def test_fua_lifecycles_are_whole_to_the_last_flush(
    tmp_path: Path, loop_device: Any, both: Loads
) -> None:
    # GIVEN writes that the flush machinery completes (the device has no FUA), and plain ones
    ours = both.fio(loop_device.path, rw="write", sync="dsync", size="256k")
    both.fio(loop_device.path, rw="write")
    # WHEN those with FUA are recorded
    found, _ = record_both(tmp_path / "log", both, "-d", loop_device.name, "--flags", "fua")
    # THEN each has its end, which comes after its data's
    check(found, ours, loop_device.dev)


@pytest.mark.parametrize("option", ["--pid", "--tid", "--comm"])
def test_by_the_task(tmp_path: Path, loop_device: Any, both: Loads, option: str) -> None:
    # GIVEN two programs of one thread each on one device
    ours = both.dd(loop_device.path, count=400)
    both.fio(loop_device.path)
    value = "dd" if option == "--comm" else str(ours.process.pid)
    # WHEN both run at once
    found, said = record_both(tmp_path / "log", both, "-d", loop_device.name, option, value)
    # THEN the log holds the whole of one and nothing of the other
    check(found, ours, loop_device.dev)
    # AND what was left out is counted: by record, in the log's end, by info
    reason = option.removeprefix("--")
    left_out = (found.trace.reader.end or {})["left_out"]
    assert left_out["bios"][reason] >= both.all[1].ios()
    assert left_out["unfollowed"] == 0
    assert "filters left out" in said
    assert "filters left out" in biotrail("info", tmp_path / "log").stdout
    assert found.context.header["filters"][f"{reason}s"] == [
        value if reason == "comm" else int(value)
    ]


def test_a_name_by_its_beginning(tmp_path: Path, loop_device: Any, both: Loads) -> None:
    # GIVEN two programs
    ours = both.fio(loop_device.path)
    both.dd(loop_device.path, count=100)
    # WHEN those whose name begins with fi are recorded
    found, _ = record_both(tmp_path / "log", both, "-d", loop_device.name, "--comm", "fi*")
    # THEN the log holds that one
    check(found, ours, loop_device.dev)


@pytest.mark.parametrize("children", [True, False])
def test_children_of_a_process(
    tmp_path: Path, loop_device: Any, both: Loads, children: bool
) -> None:
    # GIVEN two processes whose children do the I/O
    ours = both.fio(loop_device.path, forked=True)
    both.fio(loop_device.path, forked=True)
    option = ["--children"] if children else []
    # WHEN one is recorded, with or without its children
    found, _ = record_both(
        tmp_path / "log", both, "-d", loop_device.name, "--pid", str(ours.process.pid), *option
    )
    # THEN theirs is there only with them
    bios = on(found, loop_device.dev)
    if children:
        check(found, ours, loop_device.dev)
    else:
        assert len(bios) < ours.ios() / 2


def test_children_that_were_there_before(tmp_path: Path, loop_device: Any, both: Loads) -> None:
    # GIVEN a process that has a child already, and that is not the parent of the other load
    ours = both.dd(loop_device.path, count=300)
    parent = Path(f"/proc/{ours.process.pid}/stat").read_text().rpartition(")")[2].split()[1]
    # WHEN the parent is recorded with its children
    found, _ = record_both(
        tmp_path / "log", both, "-d", loop_device.name, "--pid", parent, "--children"
    )
    # THEN the child's I/O is there
    check(found, ours, loop_device.dev)


def test_by_the_cgroup_and_those_below_it(
    tmp_path: Path, loop_device: Any, both: Loads, cgroup: Path
) -> None:
    # GIVEN a load in a cgroup below the one that is asked for, and one that is in none
    ours = both.fio(loop_device.path)
    both.fio(loop_device.path)
    (cgroup / "below" / "cgroup.procs").write_text(str(ours.process.pid))
    # WHEN both run at once
    found, _ = record_both(tmp_path / "log", both, "-d", loop_device.name, "--cgroup", str(cgroup))
    # THEN the log holds the whole of one and nothing of the other
    check(found, ours, loop_device.dev)


def test_what_a_kernel_thread_queues_for_a_cgroup_is_that_cgroups(
    tmp_path: Path, make_loop: MakeLoop, both: Loads, cgroup: Path
) -> None:
    # GIVEN a loop device on another: its kernel threads queue what is written to it
    lower = make_loop()
    with devices.loop_over(lower.path, direct_io=True) as upper:
        both.devs.add(lower.dev)
        ours = both.fio(upper.path, rw="randwrite")
        both.fio(upper.path, rw="randwrite")
        (cgroup / "cgroup.procs").write_text(str(ours.process.pid))
        # WHEN the lower one is recorded by the cgroup of one of two loads on the upper one
        found, _ = record_both(tmp_path / "log", both, "-d", lower.name, "--cgroup", str(cgroup))
    # THEN the log holds what was queued for it, though not by it
    check(found, ours, lower.dev)
    assert not len(found.by("fio"))


def test_a_device_and_those_below_it(tmp_path: Path, make_loop: MakeLoop, both: Loads) -> None:
    # GIVEN a loop device on another, and a third
    lower, third = make_loop(), make_loop()
    with devices.loop_over(lower.path, direct_io=True) as upper:
        both.devs.add(lower.dev)
        ours = both.fio(upper.path)
        both.fio(third.path)
        # WHEN the upper one is recorded with what is below
        found, _ = record_both(tmp_path / "log", both, "-d", upper.path, "--below")
    # THEN the log holds both, and not the third
    assert_whole(found)
    assert len(on(found, upper.dev)) == len(on(found, lower.dev)) == ours.ios()
    assert found.devices() - {0} == {upper.dev, lower.dev}


def test_bios_of_others_in_a_request_are_counts(
    tmp_path: Path, loop_device: Any, both: Loads
) -> None:
    # GIVEN writes of 4 and 8 KiB that merge under one plug
    both.fio(
        loop_device.path, rw="write", bssplit="4k/50:8k/50", size="4m", ioengine="libaio",
        iodepth=64, iodepth_batch=64, iodepth_batch_complete_min=64,
    )  # fmt: skip
    # WHEN those of 8 KiB are recorded
    found, _ = record_both(tmp_path / "log", both, "-d", loop_device.name, "--min-size", "8k")
    # THEN those bios are whole, and each request tells how many others it had
    assert_whole(found)
    bios, requests = on(found, loop_device.dev), found.requests
    assert set(bios.bytes.tolist()) == {8192}
    assert int(requests.others.sum()) > 0
    assert (requests.bytes == 8192 * requests.bios + 4096 * requests.others).all()


def test_what_finds_no_room_to_be_followed_is_a_loss(
    tmp_path: Path, make_loop: MakeLoop, both: Loads
) -> None:
    # GIVEN more bios in flight than can be followed, as the device does not answer
    where = tmp_path / "lower"
    with on_a_file_system(make_loop, where) as device:
        tags = int(Path(f"/sys/block/{device.name}/mq/0/nr_tags").read_text())
        both.fio(device.path, rw="write", ioengine="libaio", iodepth=tags, size="4m")
        # WHEN they are recorded
        some = ("-d", device.name, "--op", "write", "--max-in-flight", str(tags // 2))
        held = held_in_flight(where, device.name, tags)
        found, said = record_both(tmp_path / "log", both, *some, begin_in=held)
    # THEN what was not followed is told as lost, and what was is whole
    unfollowed = (found.trace.reader.end or {})["left_out"]["unfollowed"]
    assert unfollowed > 0
    assert "--max-in-flight" in said
    assert len(on(found, device.dev)) + unfollowed == both.all[0].ios()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pid", "999999999"], "no such process"),
        (["--cgroup", "/no/such/group"], "no such cgroup"),
        (["--op", "reed"], "this kernel knows"),
        (["--flags", "sync+nothing"], "this kernel knows"),
        (["--comm", "a", *["--comm", "b"] * 8], "at most 8"),
    ],
)
def test_what_is_not_there_is_told(tmp_path: Path, arguments: list[str], message: str) -> None:
    # GIVEN a filter that names nothing of this machine WHEN recording is asked for
    done = biotrail("record", "-o", tmp_path / "log", *arguments, status=1)
    # THEN the message says so, and no log is left
    assert message in done.stderr
    assert not (tmp_path / "log").exists()
