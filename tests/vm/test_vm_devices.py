# SPDX-License-Identifier: Apache-2.0
"""Each kind of device: counts and bytes are the load's, nothing is left open, stacks are linked."""

import numpy as np
import pytest

from biotrail.converters.events.tables import Certainty
from biotrail.recorder.schema.records import Kind
from tests.vm.machine import OP_MASK, READ, WRITE, Case, Machine

DISKS = (
    "nvme",
    "virtio_scsi",
    "virtio_scsi_split",
    "ahci",
    "null_blk_none",
    "null_blk_mq_deadline",
    "null_blk_zoned",
    "brd",
    "zram",
    "loop_buffered",
)
STACKED = ("loop_direct", "dm_linear", "dm_striped", "dm_crypt", "md_raid0", "md_raid1")
BIO_BASED = ("brd", "zram")


UNSEEN = "virtual machine: this kernel queues an array's parts without an event (docs/kernels.md)"
NOT_TOLD = "virtual machine: this kernel tells no remap for this target (docs/kernels.md)"


def whole(vm: Machine, name: str) -> Case:
    """A case whose lower bios have their Q."""
    case = vm.case(name)
    if name in STACKED and case.log.parts_unseen(case):
        pytest.skip(UNSEEN)
    return case


@pytest.mark.parametrize("name", DISKS + STACKED)
def test_counts_and_bytes_equal_fios(vm: Machine, name: str) -> None:
    # GIVEN a load of direct reads and writes
    case = whole(vm, name)
    bios = case.log.sent_to(case.top)
    # WHEN the bios of its device are counted by operation  THEN they are fio's, to the byte
    for op, words in ((READ, "read"), (WRITE, "write")):
        mine = bios.take((bios.opf & OP_MASK) == op)
        job = case.job[words]
        assert (len(mine), int(mine.bytes.sum())) == (job["total_ios"], job["io_bytes"]), words
        assert int(mine.done_bytes.sum()) == job["io_bytes"]


@pytest.mark.parametrize("name", DISKS + STACKED)
def test_all_has_ended_well(vm: Machine, name: str) -> None:
    # GIVEN the same bios, and those below them
    case = whole(vm, name)
    for bios in (case.log.sent_to(case.top), case.log.below(case)):
        # THEN each has its end, without an error, and is known exactly
        assert (bios.complete > bios.queue).all()
        assert (bios.status == 0).all()
        assert (bios.certainty == Certainty.EXACT).all()


def test_nothing_is_left_open(vm: Machine) -> None:
    # GIVEN the log of all devices  THEN all that began has ended, but what the log tells as lost
    log, array = vm.case("devices").log, vm.case("md_raid0", lossy=True)
    known = log.parts_unseen(array)
    left = log.unfinished() - (log.unfinished_of(array.top) if known else 0)
    assert len(log.bios) > 0
    assert left <= 2 * log.lost(Kind.C)
    assert not log.reader.interrupted
    assert log.reader.problems == []


@pytest.mark.parametrize("name", [name for name in DISKS if name not in BIO_BASED])
def test_requests_served_every_byte(vm: Machine, name: str) -> None:
    # GIVEN a device that has requests
    case = vm.case(name)
    bios, edges = case.log.sent_to(case.top), case.log.edges
    # WHEN what its requests served is added up by bio
    served = dict.fromkeys(bios.number.tolist(), 0)
    for bio, size in zip(edges.bio.tolist(), edges.bytes.tolist(), strict=True):
        if bio in served:
            served[bio] += size
    # THEN each bio was served once, to the byte
    assert list(served.values()) == bios.bytes.tolist()


def test_large_bios_were_split(vm: Machine) -> None:
    # GIVEN a disk that takes 16 KiB at once  THEN larger bios went in as many parts as that takes
    case = vm.case("virtio_scsi_split")
    bios = case.log.sent_to(case.top)
    assert np.array_equal(bios.fragments, (bios.bytes + 16383) // 16384)
    assert int(bios.fragments.max()) == 4


def test_neighbours_were_merged(vm: Machine) -> None:
    # GIVEN batches of neighbouring writes under mq-deadline  THEN requests served several bios
    case = vm.case("null_blk_mq_deadline")
    bios, requests = case.log.sent_to(case.top), case.log.requests_of(case.top)
    assert 0 < len(requests) < len(bios)
    assert int(requests.bios.sum()) == len(bios)


@pytest.mark.parametrize("name", STACKED)
def test_lower_bios_are_linked(vm: Machine, name: str) -> None:
    # GIVEN a device upon others
    case = whole(vm, name)
    if name == "dm_crypt" and not case.log.is_linked(case):
        pytest.skip(NOT_TOLD)
    top, lower = case.log.sent_to(case.top), case.log.below(case)
    # WHEN the bios below are added up by their parents
    copies = np.where((top.opf & OP_MASK) == WRITE, case.told.get("write_copies", 1), 1)
    below = dict.fromkeys(top.number.tolist(), 0)
    for parent, size in zip(lower.parent.tolist(), lower.bytes.tolist(), strict=True):
        below[parent] += size
    # THEN every bio above has its bytes below, as often as the device writes them
    assert list(below.values()) == (top.bytes.astype(np.int64) * copies).tolist()
    assert np.array_equal(lower.family, lower.parent)


def test_a_device_that_is_down_fails_all(vm: Machine) -> None:
    # GIVEN dm-flakey that is never up  THEN each bio ends with an error, and none arrives below
    case = vm.case("dm_flakey_down")
    bios = case.log.sent_to(case.top)
    assert len(bios) == case.failed > 0
    assert (bios.status != 0).all()
    assert int(bios.done_bytes.sum()) == 0
    assert len(case.log.below(case)) == 0
