# SPDX-License-Identifier: Apache-2.0
"""How machines are started and ended; here they are shells."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vm.boots import CONSOLE_SO_FAR, Boots

TWO = 2


@pytest.fixture
def pool() -> Iterator[Boots]:
    boots = Boots(TWO)
    yield boots
    boots.stop()


def directories(tmp_path: Path, number: int) -> list[Path]:
    made = [tmp_path / str(index) for index in range(number)]
    for directory in made:
        directory.mkdir()
    return made


def said(directory: Path) -> list[str]:
    for _ in range(500):
        console = directory / CONSOLE_SO_FAR
        if console.exists() and (lines := console.read_text().splitlines()):
            return lines
        time.sleep(0.02)
    raise AssertionError("nothing was said")


def test_no_more_run_at_once_than_wanted(pool: Boots, tmp_path: Path) -> None:
    # GIVEN five machines that tell when they began and ended, of which two may run at once
    made = directories(tmp_path, 5)
    script = "cat /proc/uptime; sleep 0.2; cat /proc/uptime"
    # WHEN all have run
    for ended in [pool.start(directory, ["sh", "-c", script]) for directory in made]:
        assert ended.result(timeout=60) >= 0.2
    # THEN at each one's beginning it was one of two, or the only one
    times = [[float(line.split()[0]) for line in said(directory)] for directory in made]
    assert all(sum(begin <= at < end for begin, end in times) <= TWO for at, _ in times)


def test_stopping_ends_a_machine_with_all_that_it_started(pool: Boots, tmp_path: Path) -> None:
    # GIVEN a machine whose script waits for a program, and more than may run at once
    made = directories(tmp_path, 4)
    futures = [pool.start(d, ["sh", "-c", "sleep 1000 & echo $!; wait"]) for d in made]
    programs = [int(said(directory)[0]) for directory in made[:TWO]]
    # WHEN it is stopped
    pool.stop()
    # THEN the programs are gone, and what had not begun never does
    for _ in range(500):
        if not any(Path(f"/proc/{pid}").exists() for pid in programs):
            break
        time.sleep(0.02)
    assert not any(Path(f"/proc/{pid}").exists() for pid in programs)
    assert [future.cancelled() for future in futures] == [False, False, True, True]
