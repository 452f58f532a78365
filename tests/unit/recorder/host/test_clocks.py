# SPDX-License-Identifier: Apache-2.0
"""Clock readings and host facts that a log carries."""

import os
import time
from pathlib import Path

import pytest

from biotrail.recorder.host import clocks, host, memory_limit
from biotrail.recorder.host.host import processors


def test_host_facts_and_readings_of_the_clocks(tmp_path: Path) -> None:
    # GIVEN the three clocks
    names = {"monotonic": time.CLOCK_MONOTONIC, "boottime": time.CLOCK_BOOTTIME}
    before = {name: time.clock_gettime_ns(clock) for name, clock in names.items()}
    # WHEN they are read together
    taken = clocks.reading()
    # THEN each time is one that its clock had in between, in whole ns
    after = {name: time.clock_gettime_ns(clock) for name, clock in names.items()}
    assert set(taken) == {"monotonic", "boottime", "realtime", "uncertainty"}
    for name in names:
        assert before[name] <= taken[name] <= after[name]
    assert all(type(value) is int for value in taken.values())
    # GIVEN this host WHEN its facts are taken THEN they are what the system says
    facts = host.facts()
    assert facts["name"] == os.uname().nodename
    assert facts["kernel"] == {"release": os.uname().release, "version": os.uname().version}
    assert facts["machine"] == os.uname().machine
    assert facts["cpus"] >= 1
    # AND of a host without any of the files that facts come from nothing is made up
    assert set(host.facts(tmp_path)) == {"name", "machine", "cpus", "memory_bytes", "kernel"}
    # GIVEN lines that are cut or no numbers  WHEN they are read  THEN no processor is made up
    assert processors("CPU part\t: 0xd08\nCPU implementer\t: 0x41\n") is None
    assert processors("CPU implementer\t: arm\nCPU part\t: 0xd08\n") is None


def test_the_tightest_of_several_brackets_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a machine that is interrupted in most readings: brackets of 900, 40, 700, ... ns
    widths = iter([900, 40, 700, 800, 600, 500, 300])
    now = 1_000_000
    ends: list[int] = []

    def clock_gettime_ns(clock: int) -> int:
        nonlocal now
        if clock != time.CLOCK_MONOTONIC:
            return 5 if clock == time.CLOCK_BOOTTIME else 6
        if ends:
            now = ends.pop()
        else:
            now += 10_000
            ends.append(now + next(widths))
        return now

    monkeypatch.setattr(time, "clock_gettime_ns", clock_gettime_ns)
    # WHEN a reading is taken
    taken = clocks.reading()
    # THEN it is that of 40 ns: its middle, and half its width as uncertainty
    assert taken == {"monotonic": 1_020_920, "boottime": 5, "realtime": 6, "uncertainty": 20}


def cpu(number: int, implementer: str, part: str) -> str:
    """Lines of one CPU as arm64's /proc/cpuinfo has them."""
    return (
        f"processor\t: {number}\nBogoMIPS\t: 125.00\nFeatures\t: fp asimd\n"
        f"CPU implementer\t: {implementer}\nCPU architecture: 8\nCPU variant\t: 0x0\n"
        f"CPU part\t: {part}\nCPU revision\t: 3\n\n"
    )


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        # A Raspberry Pi of 32 bits.
        (
            {
                "proc/sys/kernel/random/boot_id": "8a6e\n",
                "proc/cpuinfo": "processor\t: 0\n\nModel\t\t: Raspberry Pi 4\n",
                "usr/lib/os-release": 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
            },
            {"boot_id": "8a6e", "cpu_model": "Raspberry Pi 4",
             "os": "Debian GNU/Linux 12 (bookworm)"},
        ),
        # An arm64 board without DMI: the core's name, and the product of the device tree.
        (
            {
                "proc/cpuinfo": cpu(0, "0x41", "0xd08") + "Model\t\t: Raspberry Pi 4 Model B\n",
                "proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\0",
            },
            {"cpu_model": "Arm Cortex-A72", "product": "Raspberry Pi 4 Model B Rev 1.4"},
        ),
        # A server with both: DMI comes first.
        (
            {
                "sys/class/dmi/id/product_name": "c7g.metal\n",
                "proc/device-tree/model": "linux,dummy-virt\0",
            },
            {"product": "c7g.metal"},
        ),
    ],
)  # fmt: skip
def test_host_facts_from_files(
    tmp_path: Path, files: dict[str, str], facts: dict[str, str]
) -> None:
    # GIVEN the files of a host
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    # WHEN its facts are taken THEN they are in them
    assert host.facts(tmp_path).items() >= facts.items()


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([("0x41", "0xd08")] * 2, "Arm Cortex-A72"),
        ([("0x41", "0xd05")] * 4 + [("0x41", "0xd0b")] * 4, "Arm Cortex-A55 + Arm Cortex-A76"),
        ([("0xc0", "0xac3")], "Ampere AmpereOne"),
        ([("0x41", "0xfff")], "Arm part 0xfff"),
        ([("0x50", "0x000")], "APM X-Gene"),
        ([("0x12", "0x03")], "implementer 0x12 part 0x003"),
        ([], None),
    ],
)
def test_processors_by_number(parts: list[tuple[str, str]], name: str | None) -> None:
    # GIVEN cpuinfo of arm64, which names no model
    text = "".join(cpu(number, *part) for number, part in enumerate(parts))
    # WHEN its processors are named  THEN each kind is there once, in hexadecimal if not known
    assert processors(text) == name


# How much memory is left below the limits of cgroups, by files as the kernel shows them.

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


def limit_of(
    tmp_path: Path, mount: str, own: str, available: int | None = None
) -> memory_limit.Room | None:
    """The room of a process with these lines of mountinfo and /proc/self/cgroup."""
    line = "" if available is None else f"MemAvailable: {available} kB\n"
    files = {"mountinfo": mount, "own": own, "meminfo": f"MemFree: 1 kB\n{line}"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return memory_limit.room(*(str(tmp_path / name) for name in files))


def room(tmp_path: Path, mount: str, own: str) -> int | None:
    found = limit_of(tmp_path, mount, own)
    return None if found is None else found.bytes


@pytest.mark.parametrize(
    ("available", "left", "limit"),
    [
        (200 << 10, 100, "are left below the limit of {}/v2, 300 MiB"),
        (50 << 10, 50, "of this machine's memory are available"),
    ],
)
def test_what_limits_is_named(tmp_path: Path, available: int, left: int, limit: str) -> None:
    # GIVEN a group with 100 MiB left, on a machine with more, or with less
    group(tmp_path / "v2", True, 300 * MIB, 200 * MIB)
    mount = f"36 31 0:33 / {tmp_path}/v2 rw - cgroup2 cgroup2 rw\n"
    # WHEN it is asked for THEN the tighter one counts, and a message can say which it is
    found = limit_of(tmp_path, mount, "0::/\n", available)
    assert found == memory_limit.Room(left * MIB, limit.format(tmp_path))


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
    # AND what cannot be read is no limit
    assert memory_limit.room(*[str(tmp_path / "none")] * 3) is None
