# SPDX-License-Identifier: Apache-2.0
"""The path beside the block layer: calls, waits, interrupts, dirtying tasks, with counts."""

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from biotrail.converters.events.path_tables import Calls
from biotrail.converters.events.tables import NEVER, PageKind
from biotrail.converters.pipeline import Trace
from biotrail.recorder.probes.maps.path_maps import COMMITS
from biotrail.recorder.schema.records import PATH_PARTS, Kind
from tests.support.path_tables import RecordedPath, recorded_path
from tests.vm.guest_cgroups import MINE, THEIRS
from tests.vm.guest_path import BLOCKS, CACHED_BYTES, READS, WRITES
from tests.vm.machine import READ, WRITE, Case, Machine, biotrail

NO_REGISTERS = {"5.10"}
"""Kernels without bpf_task_pt_regs(), and without types of modules."""

METADATA_BYTES = 4096
"""Most that a block of the file system has: inodes, bitmaps, directories."""

NAMELESS = {"5.10"}
"""Kernels whose io_uring_complete does not name the request."""


def of_dd(found: RecordedPath, name: str, length: int) -> Calls:
    """The calls of dd by this name that moved `length` bytes and queued a bio, in their order."""
    calls = found.calls_of("dd", name)
    return calls.take((calls.bios > 0) & (calls.result == length))


def test_parts_are_recorded_or_named(vm: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a recording with all parts of the path
    case = vm.case("path", lossy=True)
    # WHEN header, info and doctor are read
    facts = case.log.reader.header["path"]
    missing = {entry["part"]: entry["reason"] for entry in facts["missing"]}
    assert biotrail("info", case.log.path) == 0
    info = capsys.readouterr().out
    said = json.loads((case.directory / "doctor.json").read_text(encoding="utf-8"))
    checks = {check["name"]: check for check in said["checks"]}
    # THEN all parts are recorded, but for the call of a bio where registers cannot be read
    wanted = {"call", COMMITS} if vm.branch in NO_REGISTERS else set()
    # AND submissions where completions do not name their request
    wanted |= {"uring"} if vm.branch in NAMELESS else set()
    assert set(missing) == wanted
    assert set(facts["parts"]) == set(PATH_PARTS) - wanted
    # AND all three give the same reason
    for part in PATH_PARTS:
        assert checks[f"path {part}"]["ok"] == (part not in missing)
    for part, reason in missing.items():
        assert checks[f"path {part}"]["detail"] == reason
        assert reason in " ".join(info.split())


def test_every_direct_call_is_there(vm: Machine) -> None:
    # GIVEN direct writes and reads of dd, one bio each  WHEN its calls are counted
    case = vm.case("path")
    found = recorded_path(case.log.path)
    writes, reads = of_dd(found, "write", 64 << 10), of_dd(found, "read", 16 << 10)
    # THEN each is there with its bio, and its parts are within its time
    assert (len(writes), len(reads)) == (WRITES, READS)
    for calls in (writes, reads):
        assert (calls.bios == 1).all()
        assert (calls.entry != NEVER).all()
        assert (calls.blocked + calls.runnable < calls.exit - calls.entry).all()
        # AND its waits are its own: none where the disk was faster than the thread
        for entry, tid, waits, blocked in zip(
            calls.entry, calls.tid, calls.waits, calls.blocked, strict=True
        ):
            mine = found.waits.take((found.waits.entry == entry) & (found.waits.tid == tid))
            assert len(mine) == waits
            assert int((mine.woken - mine.out).sum()) == blocked


def test_waits_are_in_order(vm: Machine) -> None:
    # GIVEN the same recording  WHEN the times of each wait are compared
    waits = recorded_path(vm.case("path").log.path).waits
    # THEN a thread enters a call, leaves its CPU, is woken, and runs again
    assert len(waits) > 0
    assert (waits.entry <= waits.out).all()
    assert (waits.out <= waits.woken).all()
    assert (waits.woken <= waits.run).all()


def _direct_bios(case: Case) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    bios = case.log.bios
    mine = (bios.tid > 0) & (case.log.comms == "dd") & (bios.parent == NEVER)
    operation = bios.opf & 0xFF
    writes = mine & (operation == WRITE) & (bios.bytes == 64 << 10)
    reads = mine & (operation == READ) & (bios.bytes == 16 << 10)
    return bios.number[writes], bios.number[reads]


def test_bios_name_their_call(vm: Machine) -> None:
    # GIVEN the same recording  WHEN the calls of its bios are read
    case = vm.case("path")
    found = recorded_path(case.log.path)
    if "call" not in case.log.reader.header["path"]["parts"]:
        # THEN a kernel without registers has none
        assert not (found.paths.call >= 0).any()
        return
    writes, reads = _direct_bios(case)
    # THEN those of the direct writes and reads have dd's, with descriptor, length and entry
    for bios, name, fd, length, count in (
        (writes, "write", 1, 64 << 10, WRITES),
        (reads, "read", 0, 16 << 10, READS),
    ):
        paths = found.paths.take(np.isin(found.paths.number, bios))
        assert len(bios) >= count
        assert (paths.call == found.number_of(name)).all()
        assert (paths.args[:, 0] == fd).all()
        lengths = paths.args[:, 2]
        assert int((lengths == length).sum()) >= count
        entries = set(of_dd(found, name, length).entry.tolist())
        assert entries <= set(paths.entry.tolist())


def test_write_back_is_charged_to_who_dirtied(vm: Machine) -> None:
    # GIVEN a file that dd wrote through the page cache  WHEN its write-back is read
    case = vm.case("path")
    found = recorded_path(case.log.path)
    charged = found.paths.take(found.paths.dirtied != NEVER)
    # Metadata too, if the journal wrote it meanwhile.
    data = case.log.bios.number[case.log.bios.page == PageKind.FILE]
    charged = charged.take(np.isin(charged.number, data))
    bios = case.log.bios.take(np.isin(case.log.bios.number, charged.number))
    # THEN every byte of the file is charged to dd, before its bio was queued; blocks of metadata,
    # which are pages of the block device, have who dirtied them too. Times of dirtying are ticks.
    data = bios.bytes > METADATA_BYTES
    assert int(bios.bytes[data].sum()) == CACHED_BYTES
    assert set(charged.dirty_comm[data].tolist()) == {b"dd"}
    assert (charged.dirtied <= bios.queue).all()


def test_every_completion_has_its_interrupt(vm: Machine) -> None:
    # GIVEN the same recording of a SCSI disk  WHEN completions are held against interrupts
    case = vm.case("path")
    found = recorded_path(case.log.path)
    counts = dict.fromkeys((Kind.C, Kind.INTERRUPT), 0)
    for events, _ in Trace(case.log.path).events():
        for kind in counts:
            counts[kind] += len(events.rows(kind))
    # THEN each has one; where it ran in an interrupt or softirq, that began before it ended
    assert counts[Kind.INTERRUPT] == counts[Kind.C] > 0
    requests = case.log.requests
    order = np.argsort(requests.number)  # requests are not in the order of their numbers
    rows = order[np.searchsorted(requests.number, found.interrupts.number, sorter=order)]
    assert np.array_equal(requests.number[rows], found.interrupts.number)
    issue, complete = requests.issue[rows], requests.complete[rows]
    hard, soft = found.interrupts.hard, found.interrupts.soft
    in_interrupt = found.interrupts.context == 2
    assert (hard[in_interrupt] != NEVER).all()
    assert (hard[hard != NEVER] <= complete[hard != NEVER]).all()
    assert (soft[soft != NEVER] <= complete[soft != NEVER]).all()
    # AND a device's interrupt comes after the issue, but for one that answers several requests
    assert np.median((hard - issue)[hard != NEVER]) > 0


def test_write_back_is_charged_to_the_writers_cgroup(vm: Machine) -> None:
    # GIVEN two cgroups that write a file each  WHEN write-back of both is read
    case = vm.case("path_cgroups")
    found = recorded_path(case.log.path)
    numbers = case.told["numbers"]
    data = case.log.bios.number[case.log.bios.page == PageKind.FILE]
    charged = found.paths.take(np.isin(found.paths.number, data) & (found.paths.dirtied != NEVER))
    bios = case.log.bios.take(np.isin(case.log.bios.number, charged.number))
    # THEN each cgroup is charged for all of its file, and no other
    for name in (MINE, THEIRS):
        mine = charged.dirty_cgroup == numbers[name]
        assert int(bios.bytes[mine].sum()) == BLOCKS << 16
        assert found.trace.context.cgroups[numbers[name]] == f"/{name}"
    assert set(charged.dirty_cgroup.tolist()) == set(numbers.values())


def test_calls_are_of_the_chosen_cgroup(vm: Machine) -> None:
    # GIVEN a recording of one of two cgroups, in which dd writes with 32 calls each
    case = vm.case("path_cgroups")
    found = recorded_path(case.directory / "chosen.biotrail")
    # WHEN its calls are read  THEN they are of one dd, and of nobody outside
    assert len(of_dd_anyhow(found, "write", 64 << 10)) in range(1, BLOCKS + 1)
    tasks = found.trace.tasks.table()
    rows = np.unique(found.calls.task[found.calls.task >= 0])
    assert set(tasks.comm[rows].tolist()) <= {"dd", "bash"}
    assert len(set(tasks.tgid[rows].tolist())) == 1


def of_dd_anyhow(found: RecordedPath, name: str, length: int) -> Calls:
    """The calls of dd by this name that moved `length` bytes, whether they queued a bio or not."""
    calls = found.calls_of("dd", name)
    return calls.take(calls.result == length)
