# SPDX-License-Identifier: Apache-2.0
"""The bcc backend with the kernel's own headers, beside core and beside fio's account."""

import numpy as np
import pytest

from biotrail.converters.events.tables import Certainty
from biotrail.recorder.schema.records import Kind
from tests.support.devices import read_fio_report
from tests.vm.beside import KINDS, check_times, events
from tests.vm.machine import OP_MASK, READ, WRITE, Case, Log, Machine

MS = 1_000_000
DISKS = ("plain", "merging")
"""One I/O at a time of 4 to 64 KiB; batches of neighbours under mq-deadline."""


def case_of(vm: Machine) -> Case:
    """Skips where the kernel has not run all programs, of either backend."""
    case = vm.case("bcc_beside_core")
    if case.log.reader.losses or bcc_log(case).reader.losses:
        pytest.skip("virtual machine: the kernel skipped events meanwhile, as the log tells")
    return case


def bcc_log(case: Case) -> Log:
    return case.logs[f"{case.directory.name}/bcc.biotrail"]


def name_of(case: Case, which: str) -> str:
    return str(case.told["devices"][DISKS.index(which)])


def test_bcc_tells_what_it_was_recorded_by(vm: Machine) -> None:
    # GIVEN a log of each  THEN its header says so
    case = case_of(vm)
    assert case.log.reader.header["backend"] == "core"
    header = bcc_log(case).reader.header
    assert header["backend"] == "bcc"
    # AND plugs, of which tracepoints tell no device, are named as missing, beside what core lacks
    missing = {entry["letter"] for entry in header["events"]["missing"]}
    lacking = {entry["letter"] for entry in case.log.reader.header["events"]["missing"]}
    assert missing == lacking | {"P", "U"}


@pytest.mark.parametrize("which", DISKS)
def test_bcc_counts_and_bytes_equal_fios(vm: Machine, which: str) -> None:
    # GIVEN bcc's log of a load
    case = case_of(vm)
    log = bcc_log(case)
    bios = log.bios_of(name_of(case, which))
    (job,) = read_fio_report(case.directory / f"{which}.json")["jobs"]
    # WHEN bios are counted by operation  THEN they are fio's, to the byte
    for op, words in ((READ, "read"), (WRITE, "write")):
        mine = bios.take((bios.opf & OP_MASK) == op)
        assert (len(mine), int(mine.bytes.sum())) == (
            job[words]["total_ios"],
            job[words]["io_bytes"],
        )
        assert int(mine.done_bytes.sum()) == job[words]["io_bytes"]
    # AND all have ended well, each found by its sectors without a second candidate
    assert len(bios) > 500
    assert (bios.status == 0).all()
    assert set(bios.certainty.tolist()) == {Certainty.INTERVAL}
    assert log.unfinished() == 0
    assert log.reader.problems == []


@pytest.mark.parametrize("which", DISKS)
def test_bcc_tells_the_events_that_core_tells(vm: Machine, which: str) -> None:
    # GIVEN one load in both logs
    case = case_of(vm)
    core, bcc = (
        events(log.path, log.dev(name_of(case, which))) for log in (case.log, bcc_log(case))
    )
    # WHEN events are compared by place, length, operation and flags  THEN they are the same
    for kind in KINDS:
        assert bcc[kind] == core[kind], kind
    assert (core[Kind.M].total() > 0) == (which == "merging")


@pytest.mark.parametrize("which", DISKS)
def test_bcc_finds_the_steps_that_core_knows(vm: Machine, which: str) -> None:
    # GIVEN the same, associated by intervals and by identity
    case = case_of(vm)
    core, bcc = (log.bios_of(name_of(case, which)) for log in (case.log, bcc_log(case)))
    # THEN each bio took the same steps, bcc's after core's and before what came next
    check_times(core, bcc)


def snooped(case: Case) -> list[tuple[str, int, int, int]]:
    """biosnoop's I/Os of the disk, sorted: R or W, sector, bytes, latency in ns.

    Without the block that shows that it listens. Its lines are by CPU, and by when an I/O was
    accounted for, which can be after the next one has begun.
    TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)
    """
    lines = (case.directory / "biosnoop.txt").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines]
    mark = str(case.told["mark"])
    mine = [line for line in words if line[3:4] == [case.top] and line[5] != mark]
    assert {line[1] for line in mine} == {"fio"}
    return sorted(
        (line[4], int(line[5]), int(line[6]), round(float(line[7]) * MS)) for line in mine
    )


def recorded(case: Case) -> list[tuple[str, int, int, int]]:
    bios = case.log.bios_of(case.top)
    letters = np.where((bios.opf & OP_MASK) == WRITE, "W", "R").tolist()
    times = (bios.complete - bios.issue).tolist()
    return sorted(zip(letters, bios.sector.tolist(), bios.bytes.tolist(), times, strict=True))


def test_biosnoop_tells_the_same_ios(vm: Machine) -> None:
    # GIVEN one I/O at a time, told by a tool on kprobes and recorded
    case = vm.case("biosnoop_beside_core")
    # WHEN they are compared by operation, place and length  THEN they are fio's, the same ones
    ours, theirs = ([what[:3] for what in told] for told in (recorded(case), snooped(case)))
    assert ours == theirs
    assert len(ours) == case.job["read"]["total_ios"] + case.job["write"]["total_ios"] > 300


def test_biosnoops_latencies_are_ours(vm: Machine) -> None:
    # GIVEN the same I/Os
    case = vm.case("biosnoop_beside_core")
    ours, theirs = (
        np.array([what[3] for what in told]) for told in (recorded(case), snooped(case))
    )
    # WHEN its latency is compared: from before the tracepoint of the issue to after that of the
    # completion, printed in hundredths of a millisecond  THEN it holds ours, each of them
    assert (theirs >= ours - MS // 200).all()
    # AND it is mostly longer by what the probes take
    assert float(np.median(theirs - ours)) < MS // 2
