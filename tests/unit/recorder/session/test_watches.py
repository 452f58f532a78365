# SPDX-License-Identifier: Apache-2.0
"""Triggers that no event fires: pressure, and a device that hangs."""

from pathlib import Path

import pytest

from biotrail.recorder.filters.triggers import Pressure
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.session.watches import PressureWatch, StuckWatch

SECOND = 1_000_000_000


def disk(block: Path, name: str, dev: str, completed: int, in_flight: int) -> None:
    """A disk's files in sysfs; of what it completed half were reads, and one in three discards."""
    (block / name).mkdir(exist_ok=True)
    (block / name / "dev").write_text(f"{dev}\n")
    reads, discards = completed // 2, completed // 3
    counts = [reads, 0, 0, 0, completed - reads - discards, 0, 0, 0, in_flight, 0, 0, discards]
    counts += [0] * 5
    (block / name / "stat").write_text(" ".join(map(str, counts)) + "\n")


def test_a_disk_that_completes_nothing_fires_once_until_it_completes_again(tmp_path: Path) -> None:
    # GIVEN a disk that hangs, one that works, and one that is idle
    watch = StuckWatch(2 * SECOND, (), 0, tmp_path)
    fired = []
    for half_seconds in range(12):
        disk(tmp_path, "hung", "8:0", 70, 3)
        disk(tmp_path, "busy", "8:16", 100 + half_seconds, 3)
        disk(tmp_path, "idle", "8:32", 5, 0)
        # WHEN they are looked at each half second
        fired += watch.hits(half_seconds * SECOND // 2)
    # THEN the one that hangs is told, once, when it has completed nothing for as long
    assert [(hit.trigger, hit.dev, hit.value, hit.what) for hit in fired] == [
        ("stuck", 8 << 20, 2 * SECOND, "3 in flight")
    ]
    # AND again where it hangs anew after it has completed something
    disk(tmp_path, "hung", "8:0", 71, 2)
    disk(tmp_path, "busy", "8:16", 200, 0)
    assert watch.hits(6 * SECOND) == []
    assert [hit.what for hit in watch.hits(8 * SECOND)] == ["2 in flight"]


def test_what_a_hanging_disk_needs_is_kept_until_it_has_fired(tmp_path: Path) -> None:
    # GIVEN a disk with I/O in flight since a look at second 10
    watch = StuckWatch(2 * SECOND, (), 0, tmp_path)
    disk(tmp_path, "sda", "8:0", 7, 0)
    watch.hits(9 * SECOND)
    assert watch.hold_from() is None
    disk(tmp_path, "sda", "8:0", 7, 1)
    watch.hits(10 * SECOND)
    # WHEN it is asked what to keep
    # THEN the records since as long before that as the trigger waits
    assert watch.hold_from() == 8 * SECOND
    # AND nothing more once it has fired
    assert watch.hits(12 * SECOND)
    assert watch.hold_from() is None


def test_only_disks_that_are_recorded_are_watched(tmp_path: Path) -> None:
    # GIVEN two disks that hang, of which one is recorded, and one that goes away
    watch = StuckWatch(SECOND, {8 << 20 | 16}, 0, tmp_path)
    for name, dev in (("sda", "8:0"), ("sdb", "8:16")):
        disk(tmp_path, name, dev, 1, 1)
    (tmp_path / "gone").mkdir()
    # WHEN they are looked at
    watch.hits(0)
    hits = watch.hits(SECOND)
    # THEN the one is told
    assert [hit.dev for hit in hits] == [8 << 20 | 16]


def test_a_kernel_without_pressure_is_refused(tmp_path: Path) -> None:
    # GIVEN no /proc/pressure
    # WHEN pressure is to be watched
    # THEN that is refused, with the option
    with pytest.raises(ProbeError, match=r"pressure=full-io:150ms/1s: this kernel measures no"):
        PressureWatch([Pressure(150_000, 1_000_000, full=True)], str(tmp_path / "io"))


def test_a_cgroup_outside_of_the_hierarchy_is_refused() -> None:
    # GIVEN a cgroup's path that leads out of the hierarchy
    # WHEN its pressure is to be watched
    # THEN that is refused
    with pytest.raises(ProbeError, match=r"/a/\.\./\.\./b"):
        PressureWatch([Pressure(1000, 2_000_000, cgroup="/a/../../b")])
