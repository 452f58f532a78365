# SPDX-License-Identifier: Apache-2.0
"""A live test that needs the machine alone waits for the others, and they for it."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from tests.support import machine
from tests.support.record_command import SECONDS, wait_until


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories of this test's own to lock: live tests may run beside it."""
    for name in ("MACHINE", "GATE"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(machine, name, tmp_path / name)


class Taker(threading.Thread):
    """A live test that takes the machine, until it is told to end.

    Locks are of open directories, so threads wait for each other as processes do.
    """

    def __init__(self, alone: bool) -> None:
        super().__init__(daemon=True)
        self.alone = alone
        self.has_it, self.over = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with machine.taken(self.alone):
            self.has_it.set()
            self.over.wait(SECONDS)

    def end(self) -> None:
        self.over.set()
        self.join(SECONDS)
        assert not self.is_alive()


def held(path: Path) -> bool:
    """Whether anybody has the lock of a directory, shared or not."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(directory)
    return False


def test_several_share_the_machine() -> None:
    # GIVEN a test that shares the machine WHEN another begins THEN both run at once
    one, other = Taker(alone=False), Taker(alone=False)
    assert one.has_it.wait(SECONDS) and other.has_it.wait(SECONDS)
    one.end()
    other.end()
    assert not held(machine.MACHINE) and not held(machine.GATE)


def test_one_that_is_alone_waits_and_is_not_overtaken() -> None:
    # GIVEN a test that runs, and one that waits to be alone
    first = Taker(alone=False)
    assert first.has_it.wait(SECONDS)
    alone = Taker(alone=True)
    wait_until(lambda: held(machine.GATE), "it does not wait")
    # WHEN a third would share the machine with the first
    third = Taker(alone=False)
    assert not alone.has_it.is_set() and not third.has_it.is_set()
    # THEN it begins when the first and the one that is alone have ended
    first.end()
    assert alone.has_it.wait(SECONDS)
    assert not third.has_it.is_set()
    alone.end()
    assert third.has_it.wait(SECONDS)
    third.end()


def test_a_test_that_fails_gives_the_machine_back() -> None:
    # GIVEN a test that has the machine alone WHEN it fails THEN nobody has it
    with pytest.raises(RuntimeError), machine.taken(alone=True):
        assert held(machine.MACHINE)
        raise RuntimeError
    assert not held(machine.MACHINE) and not held(machine.GATE)
