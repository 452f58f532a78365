# SPDX-License-Identifier: Apache-2.0
"""Recordings without pointers of dm on a partition, whose remap goes on with dm's clone."""

from pathlib import Path

from biotrail.converters.events.tables import NEVER, Bios, Certainty
from biotrail.converters.pipeline import Trace
from tests.support import paths

DATA = paths.DATA / "stacked"


def bios(path: Path) -> Bios:
    """All bios of a recording."""
    return Bios.concatenate([window.bios for window in Trace(path).lifecycles()])


def test_dm_on_a_disk() -> None:
    # GIVEN 20 reads of a dm device on a whole disk WHEN they are read
    found = bios(DATA / "lvmdisk.txt")
    # THEN each has one bio of the disk below it
    assert len(found) == 40
    assert int((found.parent != NEVER).sum()) == 20


def test_dm_on_a_partition() -> None:
    # GIVEN the same on a partition WHEN they are read
    found = bios(DATA / "lvmpart.txt")
    # THEN the two remaps are of one bio of the disk
    assert len(found) == 40
    assert int((found.parent != NEVER).sum()) == 20
    assert int(found.bytes.sum()) == 160 << 10
    assert (found.certainty <= Certainty.INTERVAL).all()


def test_lvm_on_luks_on_a_partition() -> None:
    # GIVEN three levels of devices WHEN they are read
    found = bios(DATA / "lvm-on-luks-on-partition.perf.txt")
    # THEN there is a bio for each, linked
    assert len(found) == 3
    assert int((found.parent != NEVER).sum()) == 2


def test_a_remap_that_names_the_partition() -> None:
    # GIVEN a read of dm as Linux 4.x reports it WHEN it is read
    found = bios(DATA / "old-kernel-form.txt")
    # THEN there is one bio on the disk, below dm's
    assert len(found) == 2
    assert int((found.parent != NEVER).sum()) == 1


def test_a_set_of_the_disk_alone() -> None:
    # GIVEN the disk's own events, by blktrace WHEN they are read
    found = bios(DATA / "sda.blktrace.0")
    # THEN there is one bio for each Q
    assert len(found) == 20
    assert int(found.bytes.sum()) == 80 << 10


def test_a_lost_completion_is_the_older_ones() -> None:
    # GIVEN a write whose completion was lost, and the same write again 80 s later, which completed
    found = bios(paths.DATA / "ftrace" / "doubtful.txt")
    again = found.take((found.sector == 1000) & (found.opf & 1 == 1))
    older, newer = (
        again.take(again.queue == time) for time in (again.queue.min(), again.queue.max())
    )
    # WHEN they are matched THEN the later one has its completion, the older one none
    assert older.complete[0] == NEVER
    assert newer.complete[0] - newer.queue[0] == 1_002_000
