# SPDX-License-Identifier: Apache-2.0
"""Pairs of real events: each is the one that the kernel, or another recording, has."""

import json
import os
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.pipeline import Trace
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.log import LogReader, Segment
from biotrail.recorder.schema.records import Kind
from tests.support import devices
from tests.support.core_decoder import Event, decode, walk
from tests.support.core_recording import recording
from tests.support.devices import LoopDevice, MakeLoop
from tests.support.kernel_completions import done_again
from tests.support.pair_recording import declared, pair, pairing
from tests.support.path_disks import mounted
from tests.support.paths import ROOT
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")

ISSUE, COMPLETE = "block:block_rq_issue", "block:block_rq_complete"
NEAR_NS = 50_000
"""Two programs on one event run one directly after the other, with preemption off: between their
clock readings lie the first program, interrupts, and time that a hypervisor took. This is a limit
of the median: half of all readings are not interrupted."""
READS = 500


def read(device: devices.LoopDevice) -> None:
    """Read READS different blocks directly, one after the other."""
    devices.run(
        "dd", f"if={device.path}", "of=/dev/null", "bs=4k", f"count={READS}", "iflag=direct"
    )


class Served(NamedTuple):
    """A request of the lifecycles' recording; times in ns."""

    request: int
    sector: int
    issue: int
    complete: int


def served(segments: list[Segment], dev: int) -> list[Served]:
    """Each issue of a device with the next completion of its request, by time of issue."""
    events = decode(segments)
    open_: dict[int, Event] = {}
    found = []
    for event in events.of(Kind.D, Kind.C, dev=dev):
        if event.kind == Kind.D:
            open_[event.rq] = event
        elif (issue := open_.pop(event.rq, None)) is not None:
            found.append(Served(event.rq, issue.sector, issue.time, event.time))
    return found


@pytest.mark.parametrize(
    "wanted",
    [
        replace(declared("block")[0], variants=declared("block")[0].variants[:1]),
        pair(ISSUE, COMPLETE, "dev", "sector", device=("dev",), by=("dev",)),
    ],
    ids=["by request", "by device and sector"],
)
@done_again
def test_issue_to_complete_is_that_of_the_lifecycles(loop_device: LoopDevice, wanted: Any) -> None:
    # GIVEN a device that pairs and lifecycles are recorded of at the same time
    chosen = [(loop_device.dev, 0)]
    with (
        recording("lifecycle", chosen) as core,
        pairing(wanted, devices=chosen) as pairs,
    ):
        # WHEN sectors are read
        read(loop_device)
    requests = served(core.segments, loop_device.dev)
    by_request = len(pairs.probes.pairs[0].begins[0].keys) == 1
    records = pairs.records()
    # THEN both have the same requests, one to one, each with its own times
    assert len(records) >= READS
    apart = []
    for record in records:
        # A request is issued after both programs ran, and both have its issue before either has
        # its completion: whatever lies between the readings, these intervals alone overlap.
        key = record.key0 if by_request else record.key1
        (known,) = (
            one
            for one in requests
            if key == (one.request if by_request else one.sector)
            and one.issue < record.time
            and record.began < one.complete
        )
        requests.remove(known)
        assert record.by == loop_device.dev
        latency = known.complete - known.issue
        apart.append(abs(record.time - record.began - latency))
    # AND the same latency, but for the time between two programs
    assert median(apart) < NEAR_NS
    counts = pairs.readings[0].counts
    assert len(requests) <= counts["no_begin"] + counts["overwritten"] + counts["open"]
    assert pairs.lost == 0
    # AND the histogram has each of the records
    total = pairs.readings[0].total
    assert total.count == len(records)
    assert total.max == max(record.time - record.began for record in records)


def softirqs() -> dict[int, int]:
    """How often each softirq's handler ran, by its number."""
    lines = Path("/proc/softirqs").read_text().splitlines()[1:]
    return {number: sum(map(int, line.split()[1:])) for number, line in enumerate(lines)}


def test_softirqs_are_those_that_the_kernel_counts() -> None:
    # GIVEN the kernel's own counts
    before = softirqs()
    # WHEN softirqs are paired for a while in which the CPUs have some to do
    with pairing(*declared("softirq")) as pairs:
        devices.run("sh", "-c", "for i in $(seq 100); do sleep 0.01; done")
    after = softirqs()
    # THEN there are pairs, and of no handler more than it ran
    reading = pairs.readings[0]
    assert reading.total.count > 0
    assert all(one.count <= after[by] - before[by] for by, one in reading.by.items())
    # AND each is on one CPU, where it ends after it began
    for record in pairs.records():
        assert record.key1 == record.cpu
        assert record.time >= record.began
    assert pairs.lost == 0


def test_works_are_known_by_their_functions(loop_device: LoopDevice) -> None:
    # GIVEN a loop device, whose driver reads its file in a workqueue
    # WHEN it is read
    with pairing(*declared("workqueue")) as pairs:
        read(loop_device)
    # THEN its driver's function is among those that ran
    resolved, reading = pairs.probes.pairs[0], pairs.readings[0]
    names = pairs.probes.names(resolved, reading.by)
    if not names:
        pytest.skip("needs the kernel's symbols")
    assert any(name.startswith("loop_") for name in names.values()), names


def test_each_fsync_is_a_pair(make_loop: MakeLoop, tmp_path: Path) -> None:
    # GIVEN a file on ext4
    with mounted(make_loop(), "ext4", tmp_path / "disk") as on:
        file = os.open(on.mount / "file", os.O_RDWR | os.O_CREAT)
        inode = os.fstat(file).st_ino
        # WHEN it is written and synced, and this process's syncs are paired
        with pairing(*declared("ext4-fsync"), filters=Filters(pids=(os.getpid(),))) as pairs:
            for number in range(20):
                os.pwrite(file, b"x" * 4096, 4096 * number)
                os.fsync(file)
        os.close(file)
    # THEN there is a pair for each, of that file and thread
    records = pairs.records()
    counts = pairs.readings[0].counts
    assert len(records) + counts["overwritten"] + counts["open"] == 20
    assert {record.key0 for record in records} == {inode}
    assert {record.tid for record in records} == {os.getpid()}


def test_an_event_may_begin_where_the_last_ended() -> None:
    # GIVEN one event as begin and end, of this thread alone
    wanted = pair("raw_syscalls:sys_enter", "raw_syscalls:sys_enter", "@tid")
    with pairing(wanted, filters=Filters(tids=(os.getpid(),))) as pairs:
        # WHEN it enters the kernel several times, and sleeps there
        for _ in range(20):
            time.sleep(0.01)
    records = pairs.records()
    # THEN the pairs follow each other without a gap: each begins after the one before has ended
    assert len(records) >= 19
    spans = [(record.began, record.time) for record in records]
    assert all(ended <= began for (_, ended), (began, _) in pairwise(spans))
    assert sum(ended - began for began, ended in spans) > 19 * 10_000_000


def test_a_command_is_paired_and_its_status_kept() -> None:
    # GIVEN a command that ends with a status of its own
    # WHEN what it begins is paired, as JSON
    done = biotrail("pairs", "softirq", "--json", "--", "sh", "-c", "sleep 0.5; exit 3", status=3)
    # THEN the last line has the totals, and the status is the command's
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["pair"] == "softirq" and last["last"]
    for value in last["values"]:
        assert value["count"] == sum(slot["count"] for slot in value["histogram"])


def test_a_log_of_pairs_is_whole(tmp_path: Path) -> None:
    # GIVEN two pairs WHEN they are recorded to a log
    log = tmp_path / "x.biotrail"
    biotrail("pairs", "softirq,runqueue", "-o", log, "--for", "1s")
    # THEN it is whole, says what the pairs are, and has a record for each
    biotrail("verify", log)
    reader = LogReader(log)
    assert [one["name"] for one in reader.header["sites"]["pairs"]] == ["softirq", "runqueue"]
    records = [one for chunk in reader.chunks() for part in chunk.segments for one in walk(part)]
    assert {one.pair for one in records} == {0, 1}
    # AND its end says how many there were
    assert reader.end is not None
    assert sum(one["pairs"] for one in reader.end["sites"]["pairs"]) == len(records)


def test_cost_ends_it() -> None:
    # GIVEN a limit that nothing can hold WHEN pairs are counted without end
    done = biotrail("pairs", "runqueue", "--max-cpu", "0.0001", status=1)
    # THEN it ends by itself, prints what it has, and says why
    assert "more than --max-cpu" in done.stderr
    assert "runqueue:" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["irq:softirq_entri", "softirq_exit", "--key", "vec"], "near: irq:softirq_entry"),
        (["softirq_entry", "softirq_exit", "--key", "vex"], "no field vex; near: vec"),
        ([ISSUE, COMPLETE, "--key", "comm"], "a key has at most 8 bytes"),
        (["softirq", "-d", "loop0"], "does not say which field is the device"),
    ],
)
def test_what_does_not_exist_is_said(words: list[str], said: str) -> None:
    # GIVEN a wrong name WHEN pairs are asked for THEN one message says what there is
    done = biotrail("pairs", *words, "--for", "1s", status=1)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# The pair `runqueue` beside the scheduler's own counters of the same threads.

_TASKS = 3
_PER_WAIT_NS = 5_000
"""How far apart the scheduler's clock readings and the tracepoints may be, for each wait."""


def test_waits_for_a_cpu_are_those_that_the_scheduler_counts(tmp_path: Path) -> None:
    # GIVEN threads that want one CPU, started and stopped while the pair is recorded
    log, load = tmp_path / "log", ROOT / "tests/support/run_queue_load.py"
    # WHEN every wait is recorded
    words = ("runqueue", "-o", log, "--", sys.executable, load, str(_TASKS), "1")
    done = biotrail("pairs", *words)
    assert "LOST" not in done.stderr, done.stderr
    pairs = Pairs.concatenate([w.sites.pairs for w in Trace(log).lifecycles() if w.sites])
    counted = json.loads(done.stdout)
    inside = pairs.ended <= counted["until"]
    assert len(counted["tasks"]) == _TASKS
    longest = int((pairs.ended - pairs.began).max())
    for pid, (waited, runs) in counted["tasks"].items():
        mine = inside & (pairs.key0 == int(pid))
        found = int((pairs.ended[mine] - pairs.began[mine]).sum())
        # THEN each thread has a pair for each time that it ran. Of some machines' own agents the
        # kernel traces no switch: what runs next has no pair then, in ftrace neither
        missing = runs - int(mine.sum())
        assert runs > _TASKS
        assert -1 <= missing <= 1 + runs // 10
        # AND they waited as long as the scheduler says, but for what lies between its readings of
        # the clock and its tracepoints
        allowed = runs * _PER_WAIT_NS + waited // 100
        assert -allowed <= waited - found <= allowed + max(0, missing) * longest
