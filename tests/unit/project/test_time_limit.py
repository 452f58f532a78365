# SPDX-License-Identifier: Apache-2.0
"""A test that hangs fails by itself, with its stacks, and the next ones run."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support import time_limit
from tests.support.paths import ROOT

pytest_plugins = ["pytester"]

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
