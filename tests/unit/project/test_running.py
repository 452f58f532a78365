# SPDX-License-Identifier: Apache-2.0
"""How tests run: skips that are not listed, tests that hang, tests that need the machine alone."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support import machine, time_limit
from tests.support.paths import ROOT
from tests.support.record_command import SECONDS, wait_until
from tests.support.skip_policy import Skip, forbidden, read_permissions

pytest_plugins = ["pytester"]
TESTS = ROOT / "tests"
SKIPPING = """
import pytest

def test_skips():
    pytest.skip("no disk: none here")

def test_passes():
    pass
"""
ENTRY = '[[skip]]\ntest = "test_it.py::*"\nreason = "no disk: *"\nwhy = "a reason"\n'


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the conftest imports what tests share

    def in_fresh_tree(may_skip: str, body: str, *arguments: str) -> pytest.RunResult:
        (pytester.path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
        (pytester.path / "may-skip.toml").write_text(may_skip)
        (pytester.path / "test_it.py").write_text(body)
        return pytester.runpytest_subprocess(*arguments)

    return in_fresh_tree


def test_listed_skip_passes(run) -> None:
    # GIVEN a list that permits the skip  WHEN the run is strict
    result = run(ENTRY, SKIPPING, "--strict-skips")
    # THEN it passes, and the skip is still shown
    assert result.ret == 0
    result.stdout.fnmatch_lines(["may skip*test_it.py::test_skips: no disk: none here"])


@pytest.mark.parametrize(
    "body",
    [SKIPPING, "import pytest\npytest.skip('no module', allow_module_level=True)\n"],
    ids=["one test", "whole module"],
)
def test_unlisted_skip_fails_a_strict_run(run, body: str) -> None:
    # GIVEN an empty list  WHEN the run is strict
    result = run("", body, "--strict-skips")
    # THEN it fails and names the test
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["NOT LISTED*test_it.py*: no *", "FAILED: 1 skipped that*"])


def test_unlisted_skip_passes_by_hand(run, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN an empty list and a developer's shell, where CI is not set
    monkeypatch.delenv("CI", raising=False)
    # WHEN the tests run  THEN they pass, and the skip is shown
    result = run("", SKIPPING)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["NOT LISTED*test_it.py::test_skips*"])


def test_permissions_are_for_one_reason_and_say_why(tmp_path: Path) -> None:
    # GIVEN a permission for one reason
    (tmp_path / "list.toml").write_text(ENTRY)
    permissions = read_permissions(tmp_path / "list.toml")
    # WHEN the same test skips for another  THEN it is forbidden
    skips = [Skip("test_it.py::test_a", "no disk: x"), Skip("test_it.py::test_a", "no root")]
    assert forbidden(skips, permissions) == [skips[1]]
    # GIVEN an entry that does not say why  WHEN it is read  THEN it is an error
    (tmp_path / "list.toml").write_text('[[skip]]\ntest = "*"\nreason = "*"\nwhy = ""\n')
    with pytest.raises(ValueError, match="needs test, reason and why"):
        read_permissions(tmp_path / "list.toml")


# A test that hangs fails by itself, with its stacks, and the next ones run.


SUPPORT = ROOT / "tests" / "support"
CONFTEST = """
from time_limit import TimeLimit

def pytest_configure(config):
    config.addinivalue_line("markers", "limit(seconds): of each phase")
    config.pluginmanager.register(TimeLimit())
"""
HANGS = """
import threading, time
import pytest

@pytest.fixture
def stuck():
    yield
    threading.Event().wait()

@pytest.mark.limit(1)
def test_hangs():
    try:
        where_it_hangs()
    finally:
        time.sleep(1000)

def where_it_hangs():
    threading.Event().wait()

@pytest.mark.limit(1)
def test_whose_teardown_hangs(stuck):
    pass

def test_after_it():
    pass
"""


def test_a_hanging_test_fails_with_its_stacks_and_the_next_one_runs(
    pytester: pytest.Pytester,
) -> None:
    # GIVEN a test that waits for ever, in its cleaning up too, and one whose teardown does
    (pytester.path / "time_limit.py").write_text(
        (SUPPORT / "time_limit.py").read_text().replace("AGAIN_SECONDS = 60", "AGAIN_SECONDS = 1")
    )
    (pytester.path / "conftest.py").write_text(CONFTEST)
    (pytester.path / "test_it.py").write_text(HANGS)
    # WHEN they run
    result = pytester.runpytest_subprocess()
    # THEN each is a failure that shows where it hung, and the test behind them ran
    result.assert_outcomes(failed=1, errors=1, passed=2)
    result.stdout.fnmatch_lines(["*TooLongError: took longer than 1 s*", "*where_it_hangs*"])


def test_nothing_is_left_of_the_limit() -> None:
    # GIVEN a handler of another's WHEN a block ends in time
    before = signal.getsignal(signal.SIGALRM)
    with time_limit.limited(100):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    # THEN no alarm will come, and the handler is back
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_children_do_not_ignore_what_this_process_was_told_to() -> None:
    # GIVEN a process that ignores SIGINT and SIGHUP, as one in the background does
    code = """
import signal, subprocess, sys, time_limit
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
time_limit.signals_as_usual()
signal.raise_signal(signal.SIGHUP)
signal.raise_signal(signal.SIGINT)
subprocess.run(["grep", "SigIgn", "/proc/self/status"], check=True)
"""
    # WHEN it starts another one, as tests do
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    # THEN that one does not ignore them, and the first does still: it came so far
    ignored = int(done.stdout.split()[1], 16)
    assert not ignored & (1 << (signal.SIGINT - 1) | 1 << (signal.SIGHUP - 1))


# A live test that needs the machine alone waits for the others, and they for it.


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
