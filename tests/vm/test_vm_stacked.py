# SPDX-License-Identifier: Apache-2.0
"""Devices upon devices: every level has all bytes; several paths to a disk; appended zones."""

import numpy as np
import pytest

from biotrail.converters.events.tables import NEVER, SECTOR_BYTES, Bios, Certainty, Requests
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from tests.vm.machine import OP_MASK, READ, WRITE, Case, Machine

BLOCK = 4096
"""What raid5 writes at once."""
MULTIPATH = ("dm_multipath", "dm_multipath_lost")
LINKED = ("dm_thin", "lvm_on_raid1", "md_raid5")
ALL = (*LINKED, "dm_thin_new", *MULTIPATH, "nvme_multipath")

APPENDED = 16384
NO_APPEND = "virtual machine: this kernel's zonefs appends nothing (docs/kernels.md)"


def by_number(numbers: np.ndarray, of: np.ndarray, sizes: np.ndarray) -> list[int]:
    """`sizes` added up for each of `numbers`; what is not of them is left out."""
    found = dict.fromkeys(numbers.tolist(), 0)
    for number, size in zip(of.tolist(), sizes.tolist(), strict=True):
        if number in found:
            found[number] += size
    return list(found.values())


def level(case: Case, names: list[str]) -> Bios:
    return case.log.bios.take(np.isin(case.log.bios.dev, [case.log.dev(name) for name in names]))


def told(case: Case, top: Bios) -> np.ndarray:
    """Of each bio the bytes that events tell of below: raid5's parity claims to be its sector 0."""
    written = (top.opf & OP_MASK) == WRITE
    hidden = (top.sector == 0) & (written | (top.bytes <= BLOCK)) & (case.top == "md9")
    return top.bytes.astype(np.int64) - np.where(hidden, BLOCK, 0)


def upper_and_lower(case: Case) -> tuple[Requests, Requests]:
    """A multipath device's requests, and those of its paths that do their work."""
    paths = [case.log.dev(name) for name in case.lower]
    upper, requests = case.log.requests_of(case.top), case.log.requests
    below = np.isin(requests.dev, paths) & np.isin(requests.parent, upper.number)
    return upper, requests.take(below)


def refused(case: Case) -> Requests:
    """Requests that a lost path refused before their issue: no event tells their end."""
    _, lower = upper_and_lower(case)
    return lower.take((lower.issue == NEVER) & (lower.complete == NEVER))


@pytest.mark.parametrize("name", ALL)
def test_counts_and_bytes_equal_fios(vm: Machine, name: str) -> None:
    # GIVEN a load of direct reads and writes of 4 to 64 KiB
    case = vm.case(name)
    bios = case.log.sent_to(case.top)
    # WHEN the bios of the upper device are counted by operation  THEN they are fio's, to the byte
    for op, words in ((READ, "read"), (WRITE, "write")):
        mine = bios.take((bios.opf & OP_MASK) == op)
        job = case.job[words]
        assert (len(mine), int(mine.bytes.sum())) == (job["total_ios"], job["io_bytes"]), words
        assert int(mine.done_bytes.sum()) == job["io_bytes"]


@pytest.mark.parametrize("name", ALL)
def test_all_has_ended_well(vm: Machine, name: str) -> None:
    # GIVEN the same bios, and all below them
    case = vm.case(name)
    top = case.log.sent_to(case.top)
    below = level(case, case.lower)
    for bios in (top, below.take(np.isin(below.family, top.number))):
        # THEN each has its end, without an error, and is known exactly
        assert (bios.complete > bios.queue).all()
        assert (bios.status == 0).all()
        assert (bios.certainty == Certainty.EXACT).all()


def test_nothing_of_stacks_is_left_open(vm: Machine) -> None:
    # GIVEN the log of all of them  THEN all has ended but what a lost path refused, and what the
    # log tells as lost
    lost = vm.case("dm_multipath_lost", lossy=True)
    log = lost.log
    assert len(log.bios) > 0
    assert 0 <= log.unfinished() - len(refused(lost)) <= 2 * log.lost(Kind.C)
    assert log.reader.problems == []


@pytest.mark.parametrize("name", LINKED)
def test_every_level_has_all_bytes(vm: Machine, name: str) -> None:
    # GIVEN a device on others that may stand on others again
    case = vm.case(name)
    top = case.log.sent_to(case.top)
    written = (top.opf & OP_MASK) == WRITE
    for names in case.told["hops"][1:]:
        # WHEN the bios of each level below are added up by the topmost bio of their family
        bios = level(case, names)
        found = by_number(top.number, bios.family, bios.bytes)
        # THEN they are its bytes; a mirror of two writes them twice
        copies = np.where(written & (len(names) == 2), 2, 1)
        assert found == (told(case, top) * copies).tolist()


def test_parity_has_no_parent(vm: Machine) -> None:
    # GIVEN raid5  WHEN what its disks did is told apart
    case = vm.case("md_raid5")
    bios = level(case, case.lower)
    writes = bios.take((bios.opf & OP_MASK) == WRITE)
    data = writes.parent != NEVER
    # THEN the data is the load's, and beside it there is parity, which is nobody's
    mine = case.log.sent_to(case.top)
    written = (mine.opf & OP_MASK) == WRITE
    assert int(writes.bytes[data].sum()) == int(told(case, mine)[written].sum())
    assert (~data).any()


@pytest.mark.parametrize("name", MULTIPATH)
def test_a_paths_request_has_its_parent(vm: Machine, name: str) -> None:
    # GIVEN a device whose requests go on as others by one of two paths
    case = vm.case(name)
    upper, lower = upper_and_lower(case)
    done = lower.take(lower.complete != NEVER)
    # THEN each request above was done by exactly one below, byte for byte, surely
    assert len(upper) == len(done) == len(np.unique(done.parent)) > 0
    assert by_number(upper.number, done.parent, done.bytes) == upper.bytes.tolist()
    assert set(upper.certainty.tolist()) == set(done.certainty.tolist()) == {Certainty.EXACT}
    assert int(upper.done_bytes.sum()) == int(done.done_bytes.sum()) == int(upper.bytes.sum())
    # AND the one below lies within the time of the one above
    starts = dict(zip(upper.number.tolist(), upper.issue.tolist(), strict=True))
    ends = dict(zip(upper.number.tolist(), upper.complete.tolist(), strict=True))
    for parent, issue, end in zip(done.parent.tolist(), done.issue.tolist(),
                                  done.complete.tolist(), strict=True):  # fmt: skip
        assert starts[parent] <= issue < end <= ends[parent]


def test_paths_take_turns(vm: Machine) -> None:
    # GIVEN two paths by turns  THEN both have requests, and none was given back
    case = vm.case("dm_multipath")
    upper, lower = upper_and_lower(case)
    assert set(lower.dev.tolist()) == {case.log.dev(name) for name in case.lower}
    assert int(upper.requeues.sum()) == len(refused(case)) == 0


def test_a_lost_path_shows_as_requeues(vm: Machine) -> None:
    # GIVEN a path that had gone before the load, which the device did not know yet
    case = vm.case("dm_multipath_lost")
    kept, lost = (case.log.dev(name) for name in case.lower)
    upper, lower = upper_and_lower(case)
    # THEN what it refused was given back, once each, and went by the other, as did all else
    tried = refused(case)
    assert set(tried.dev.tolist()) == {lost}
    assert len(tried) == int(upper.requeues.sum()) > 0
    assert set(lower.dev[lower.complete != NEVER].tolist()) == {kept}


def test_nvme_bios_are_served_by_the_paths(vm: Machine) -> None:
    # GIVEN an NVMe disk by two controllers, of which the disk alone was named
    case = vm.case("nvme_multipath")
    log, bios = case.log, case.log.sent_to(case.top)
    mine = log.edges.request[np.isin(log.edges.bio, bios.number)]
    requests = log.requests.take(np.isin(log.requests.number, mine))
    # THEN its bios were served by requests of both paths, to the byte
    paths = np.unique(requests.dev).tolist()
    assert len(paths) == 2
    assert log.dev(case.top) not in paths
    assert by_number(bios.number, log.edges.bio, log.edges.bytes) == bios.bytes.tolist()
    # AND where the kernel tells their numbers the disk is known to stand on them, by name
    entries = {device["name"]: device for device in log.reader.header["devices"]}
    if "stacked_on" in entries[case.top]:
        assert entries[case.top]["stacked_on"] == paths
        assert {entries[name]["dev"] for name in case.told["paths"]} == set(paths)


@pytest.mark.parametrize("name", ["zone_append", "zone_append_btrfs"])
def test_appended_bios_end_where_the_device_put_them(vm: Machine, name: str) -> None:
    # GIVEN zones that are appended to: where in its zone a write goes the device says
    case = vm.case(name)
    log = case.log
    append = log.trace.context.op_number("zone_append")
    bios = log.bios_of(case.top)
    bios = bios.take((bios.opf & OP_MASK) == append)
    if not len(bios):
        pytest.skip(NO_APPEND)
    # THEN each is there, named by its zone's first sector, and is done
    assert len(bios) == case.job["write"]["total_ios"]
    assert (bios.sector % case.told["zone_sectors"] == 0).all()
    assert (bios.done_bytes == APPENDED).all()
    assert (bios.certainty == Certainty.EXACT).all()
    # AND its completion is the one that tells its place: in each zone one behind the other
    placed = completions(case, append)
    for start in np.unique(bios.sector).tolist():
        mine = sorted(placed[end] for end in bios.complete[bios.sector == start].tolist())
        assert (np.diff(mine) == APPENDED // SECTOR_BYTES).all()
        assert start <= mine[0] < mine[-1] + 1 <= start + case.told["zone_sectors"]


def completions(case: Case, op: int) -> dict[int, int]:
    """Sectors that completions of an operation tell, by their times."""
    found = {}
    for events, _ in Trace(case.log.path).events():
        rows = events.rows(Kind.C)
        rows = rows[
            (events.dev[rows] == case.log.dev(case.top)) & (events.opf[rows] & OP_MASK == op)
        ]
        found |= dict(zip(events.ts[rows].tolist(), events.sector[rows].tolist(), strict=True))
    return found
