# SPDX-License-Identifier: Apache-2.0
"""No test can hang: each of its phases (set-up, call, teardown) fails when its time is over."""

import faulthandler
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

SECONDS = 900
"""Of a phase of a test: many times what the slowest takes beside a load on every core."""
AGAIN_SECONDS = 60
"""What a test's own cleaning up may take before that, too, is interrupted."""


class TooLongError(Exception):
    """A phase of a test took longer than its limit; has the stack of every thread."""


def _stacks() -> str:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TooLongError in the block when it lasts longer, and again each AGAIN_SECONDS.

    In the main thread only. What waits (a system call, a lock) is interrupted by SIGALRM.
    """

    def over(number: int, frame: FrameType | None) -> None:
        raise TooLongError(f"took longer than {seconds:g} s\n{_stacks()}")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _seconds(item: pytest.Item) -> float:
    marker = item.get_closest_marker("limit")
    return float(marker.args[0]) if marker else SECONDS


class TimeLimit:
    """The plugin: a limit for each phase; another than SECONDS by `pytest.mark.limit(seconds)`."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        with limited(_seconds(item)):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        with limited(_seconds(item)):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        with limited(_seconds(item)):
            return (yield)


def signals_as_usual() -> None:
    """Have child processes begin with default signals where this process was told to ignore some.

    A shell ignores SIGINT for what it runs in the background, nohup SIGHUP; programs inherit
    that. A handler is ours alone: exec sets it back to the default.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)
