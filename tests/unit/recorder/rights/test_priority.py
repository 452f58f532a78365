# SPDX-License-Identifier: Apache-2.0
"""When the recorder's threads hurry."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from biotrail.recorder.rights import priority
from biotrail.recorder.rights.priority import FILLED, LONG_NS, RealtimeBoost

TOLD = "import os; print(os.sched_getscheduler(0))"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def in_a_thread(work: Callable[[], list[object]]) -> list[object]:
    """What `work` gives, run in a thread of its own, so that no test changes pytest's."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.extend(work()))
    thread.start()
    thread.join()
    return found


def policy() -> int:
    return os.sched_getscheduler(threading.get_native_id()) & ~os.SCHED_RESET_ON_FORK


def test_a_ring_that_fills_makes_it_hurry_until_it_was_emptier_for_long() -> None:
    """GIVEN root WHEN a ring fills and empties THEN the thread is real-time as long as needed."""
    if os.geteuid() != 0:
        pytest.skip("needs root: the real-time class")

    def work() -> list[object]:
        clock = Clock()
        boost = RealtimeBoost(clock)
        boost.add_thread()
        told = []
        for fill, now in (
            (0.0, 1),
            (FILLED, 2),
            (0.0, 3),
            (0.9, 4),
            (0.0, LONG_NS),
            (0.0, LONG_NS + 5),
        ):
            clock.now = now
            boost.adapt(fill)
            told.append(policy())
        return [*told, boost.times]

    other, hurried = os.SCHED_OTHER, os.SCHED_RR
    assert in_a_thread(work) == [other, hurried, hurried, hurried, hurried, other, 1]


def test_a_command_does_not_inherit_the_hurry() -> None:
    """GIVEN a thread that hurries WHEN it starts a command THEN that is scheduled as usual."""

    def work() -> list[object]:
        boost = RealtimeBoost()
        boost.add_thread()
        boost.adapt(1.0)
        done = subprocess.run(
            [sys.executable, "-c", TOLD], capture_output=True, text=True, check=True
        )
        return [done.stdout.strip()]

    assert in_a_thread(work) == [str(os.SCHED_OTHER)]


def test_without_the_right_it_goes_on_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a kernel that refuses WHEN a ring fills THEN nothing happens, and it is counted."""

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)

    def work() -> list[object]:
        boost = RealtimeBoost()
        boost.add_thread()
        boost.adapt(1.0)
        boost.relax()
        return [policy(), boost.times]

    assert in_a_thread(work) == [os.SCHED_OTHER, 1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((0, 0), (1, 1)),
        ((0, 7), (1, 7)),
        ((3, 7), (3, 7)),
        ((0, resource.RLIM_INFINITY), (1, resource.RLIM_INFINITY)),
    ],
)
def test_the_limit_is_raised_and_never_lowered(
    before: tuple[int, int], after: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN limits (soft, hard) WHEN hurrying is permitted THEN the soft one is, no less else."""
    limits = [before]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    priority.permit()
    assert limits[-1] == after
