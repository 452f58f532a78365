# SPDX-License-Identifier: Apache-2.0
"""Samples of what kept threads from running: quotas of cgroups, and the hypervisor."""

from pathlib import Path

import pytest

from biotrail.recorder.notes.cpus import CpuWatch


def host(place: Path, kind: str, options: str) -> tuple[Path, Path]:
    """A /proc and a hierarchy of cgroups with one called web."""
    proc, groups = place / "proc", place / "cgroup"
    (proc / "self").mkdir(parents=True)
    (groups / "web").mkdir(parents=True)
    (proc / "self" / "mounts").write_text(f"cgroup {groups} {kind} {options} 0 0\n")
    (groups / "cgroup.controllers").write_text("cpu io\n")
    steal(proc, 5)
    return proc, groups / "web"


def steal(proc: Path, ticks: int) -> None:
    (proc / "stat").write_text(f"cpu  1 2 3 4 5 6 7 {ticks} 0 0\ncpu0 1\n")


@pytest.mark.parametrize(
    ("kind", "options", "quota", "stat"),
    [
        ("cgroup2", "rw", ("cpu.max", "50000 100000"), "throttled_usec {}"),
        ("cgroup", "rw,cpu,cpuacct", ("cpu.cfs_quota_us", "50000"), "throttled_time {}000"),
    ],
)
def test_what_grew_is_noted(
    tmp_path: Path, kind: str, options: str, quota: tuple[str, str], stat: str
) -> None:
    # GIVEN a cgroup with a quota
    proc, web = host(tmp_path, kind, options)
    (web / quota[0]).write_text(quota[1])
    (web / "cpu.stat").write_text("nr_periods 1\n" + stat.format(100))
    (web / "cgroup.procs").write_text("7\n")
    (web / "below").mkdir()
    (web / "below" / "cgroup.procs").write_text("8\n9\n")
    watch = CpuWatch(proc)
    # WHEN nothing grew / THEN nothing is noted
    assert watch.changes() is None
    # WHEN its threads were held, and the hypervisor ran others
    (web / "cpu.stat").write_text("nr_periods 2\n" + stat.format(350))
    steal(proc, 7)
    note = watch.changes()
    # THEN that is noted, for the time since the last look
    assert note is not None
    assert note["throttled_ns"] == {"/web": 250_000}
    assert note["pids"] == {"/web": [7, 8, 9]}
    assert note["steal_ns"] > 0
    assert note["from"] < note["to"]
    # AND once
    assert watch.changes() is None


def test_cgroups_without_a_quota_and_hosts_without_cgroups(tmp_path: Path) -> None:
    # GIVEN a cgroup without a quota / WHEN looked at / THEN it is not watched
    proc, web = host(tmp_path, "cgroup2", "rw")
    (web / "cpu.max").write_text("max 100000")
    (web / "cpu.stat").write_text("throttled_usec 1")
    watch = CpuWatch(proc)
    (web / "cpu.stat").write_text("throttled_usec 9")
    assert watch.changes() is None
    # AND nothing is needed
    assert CpuWatch(tmp_path / "none").changes() is None
