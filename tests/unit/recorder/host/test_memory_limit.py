# SPDX-License-Identifier: Apache-2.0
"""How much memory is left below the limits of cgroups, by files as the kernel shows them."""

from pathlib import Path

import pytest

from biotrail.recorder.host import memory_limit

MIB = 1 << 20
UNLIMITED_V1 = 9223372036854771712


def group(directory: Path, v2: bool, limit: object, used: int, files: int = 0) -> None:
    """Make a cgroup's files of memory. files: bytes of pages of files, half of them active."""
    directory.mkdir(parents=True, exist_ok=True)
    names = ("max", "current") if v2 else ("limit_in_bytes", "usage_in_bytes")
    for name, value in zip(names, (limit, used), strict=True):
        (directory / f"memory.{name}").write_text(f"{value}\n")
    own = files if v2 else 0  # v1 has those of groups below under other names
    half = files // 2
    stat = f"anon 1\ninactive_file {own // 2}\nactive_file {own - own // 2}\n"
    stat += "" if v2 else f"total_inactive_file {half}\ntotal_active_file {files - half}\n"
    (directory / "memory.stat").write_text(stat)


def room(tmp_path: Path, mount: str, own: str, available: int | None = None) -> int | None:
    """Return the room of a process with these lines of mountinfo and /proc/self/cgroup."""
    (tmp_path / "mountinfo").write_text(mount)
    (tmp_path / "own").write_text(own)
    meminfo = tmp_path / "meminfo"
    line = "" if available is None else f"MemAvailable: {available} kB\n"
    meminfo.write_text(f"MemFree: 1 kB\n{line}")
    found = memory_limit.room(str(tmp_path / "mountinfo"), str(tmp_path / "own"), str(meminfo))
    return None if found is None else found.bytes


@pytest.mark.parametrize("v2", [True, False])
def test_the_tightest_limit_of_all_groups_counts(tmp_path: Path, v2: bool) -> None:
    # GIVEN a process in a group of its own, below one with less room, whose pages of files go first
    root = tmp_path / "with space"
    group(root, v2, "max" if v2 else UNLIMITED_V1, 900 * MIB)
    group(root / "user", v2, 300 * MIB, 250 * MIB, files=20 * MIB)
    group(root / "user" / "app", v2, 100 * MIB, 10 * MIB)
    point = str(root).replace(" ", r"\040")
    kind, options = ("cgroup2", "rw") if v2 else ("cgroup", "rw,cpu,memory")
    mount = f"35 31 0:32 / {point} rw,nosuid shared:7 - {kind} cgroup {options}\n"
    own = "0::/user/app\n" if v2 else "5:cpu,memory:/user/app\n1:name=systemd:/\n0::/\n"
    # WHEN it asks for its room THEN it is that of the group with the least
    assert room(tmp_path, mount, own) == 70 * MIB


def test_a_mounted_part_of_the_hierarchy_is_looked_at(tmp_path: Path) -> None:
    # GIVEN a container, in which its own group is mounted as the root
    group(tmp_path / "cgroup" / "job", False, 64 * MIB, 60 * MIB)
    group(tmp_path / "cgroup", False, 64 * MIB, 62 * MIB)
    mount = f"35 31 0:32 /box/7 {tmp_path}/cgroup rw - cgroup cgroup rw,memory\n"
    # WHEN a process of it asks THEN it is its room
    assert room(tmp_path, mount, "4:memory:/box/7/job\n") == 2 * MIB
    # AND another container's limits are not its own
    assert room(tmp_path, mount, "4:memory:/box/77\n") is None


@pytest.mark.parametrize("own", ["", "0::/\n", "4:memory:/\n", "0::/gone\n"])
def test_without_a_limit_there_is_none(tmp_path: Path, own: str) -> None:
    # GIVEN hierarchies without limits, or without files of memory WHEN it is asked for THEN none
    group(tmp_path / "v1", False, UNLIMITED_V1, 5)
    (tmp_path / "v2").mkdir()
    mount = (
        f"35 31 0:32 / {tmp_path}/v1 rw - cgroup cgroup rw,memory\n"
        f"36 31 0:33 / {tmp_path}/v2 rw - cgroup2 cgroup2 rw\n"
    )
    assert room(tmp_path, mount, own) is None


def test_what_cannot_be_read_is_no_limit(tmp_path: Path) -> None:
    # GIVEN a machine without these files WHEN it is asked for THEN there is no limit
    none = str(tmp_path / "none")
    assert memory_limit.room(none, none, none) is None


def test_what_limits_is_named(tmp_path: Path) -> None:
    # GIVEN a group with 100 MiB left, on a machine with more, or with less
    group(tmp_path / "v2", True, 300 * MIB, 200 * MIB)
    mount = f"36 31 0:33 / {tmp_path}/v2 rw - cgroup2 cgroup2 rw\n"
    assert room(tmp_path, mount, "0::/\n", 200 << 10) == 100 * MIB
    found = memory_limit.room(*(str(tmp_path / name) for name in ("mountinfo", "own", "meminfo")))
    # WHEN it is asked for THEN the tighter one counts, and a message can say which it is
    assert found is not None
    assert found.limit == f"are left below the limit of {tmp_path}/v2, 300 MiB"
    assert room(tmp_path, mount, "0::/\n", 50 << 10) == 50 * MIB
    found = memory_limit.room(*(str(tmp_path / name) for name in ("mountinfo", "own", "meminfo")))
    assert found is not None
    assert found.limit == "of this machine's memory are available"
