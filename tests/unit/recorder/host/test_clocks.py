# SPDX-License-Identifier: Apache-2.0
"""Clock readings and host facts that a log carries."""

import os
import time
from pathlib import Path

import pytest

from biotrail.recorder.host import clocks, host


def test_a_reading_lies_between_two_looks_at_the_clocks() -> None:
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


def test_host_facts_are_those_of_this_host() -> None:
    # GIVEN this host
    # WHEN its facts are taken
    facts = host.facts()
    # THEN they are what the system says
    assert facts["name"] == os.uname().nodename
    assert facts["kernel"] == {"release": os.uname().release, "version": os.uname().version}
    assert facts["machine"] == os.uname().machine
    assert facts["cpus"] >= 1


def test_absent_host_facts_are_absent_keys(tmp_path: Path) -> None:
    # GIVEN a host without any of the files that facts come from
    # WHEN its facts are taken
    facts = host.facts(tmp_path)
    # THEN nothing is made up
    assert set(facts) == {"name", "machine", "cpus", "memory_bytes", "kernel"}


def test_host_facts_from_files(tmp_path: Path) -> None:
    # GIVEN the files of a Raspberry Pi
    files = {
        "proc/sys/kernel/random/boot_id": "8a6e\n",
        "proc/cpuinfo": "processor\t: 0\n\nModel\t\t: Raspberry Pi 4\n",
        "usr/lib/os-release": 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    # WHEN its facts are taken
    facts = host.facts(tmp_path)
    # THEN they are in them
    assert facts["boot_id"] == "8a6e"
    assert facts["cpu_model"] == "Raspberry Pi 4"
    assert facts["os"] == "Debian GNU/Linux 12 (bookworm)"
