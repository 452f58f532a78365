# SPDX-License-Identifier: Apache-2.0
"""The recorder's scheduling: normal, and real-time while a ring is about to overflow.

A better nice value all the time would cost the host. It is a weight within a group (a session, a
control group), and the group's weight is distributed over the CPUs by its members' weights there.
A thread of nice -15 on one CPU takes most of the group's weight, and the recorded command, of the
same session, competes on another CPU with little of it: measured, three times as many context
switches and a tenth less throughput. Real-time all the time is no better: a real-time thread
wakes up on the CPU where it ran last, busy or not.
"""

import os
import resource
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

PRIORITY = 1
"""Real-time priority while a ring is filling: the lowest there is."""
FILLED = 0.25
"""Fill level of a ring, 0 to 1, from which the threads run as real-time."""
LONG_NS = 10_000_000_000
"""Time (ns) below FILLED after which the threads return to normal scheduling."""


class RealtimeBoost:
    """Makes the threads that drain the rings real-time while a ring is at least a quarter full."""

    def __init__(
        self, threads: Sequence[int], clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`threads`: their kernel ids, beside the calling thread's."""
        self._clock = clock
        self._threads = [threading.get_native_id(), *threads]
        self._since: int | None = None
        self.times = 0
        """How often the threads were made real-time."""

    def adapt(self, fill: float) -> None:
        """Make the threads real-time or normal, given the fullest ring's used share, 0 to 1."""
        if fill >= FILLED:
            if self._since is None:
                self.times += 1
                self._schedule(os.SCHED_RR | os.SCHED_RESET_ON_FORK, PRIORITY)
            self._since = self._clock()
        elif self._since is not None and self._clock() - self._since > LONG_NS:
            self.relax()

    def relax(self) -> None:
        if self._since is not None:
            self._since = None
            # SCHED_RESET_ON_FORK stays set: clearing it needs CAP_SYS_NICE, which may be given up.
            self._schedule(os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, 0)

    def _schedule(self, policy: int, priority: int) -> None:
        for thread in self._threads:
            # Not permitted, or the control group has no real-time bandwidth: scheduling stays.
            with suppress(PermissionError, ProcessLookupError):
                os.sched_setscheduler(thread, policy, os.sched_param(priority))


def permitted() -> bool:
    """Return whether RLIMIT_RTPRIO permits PRIORITY without CAP_SYS_NICE."""
    limit, _ = resource.getrlimit(resource.RLIMIT_RTPRIO)
    return limit == resource.RLIM_INFINITY or limit >= PRIORITY


def permit() -> None:
    """Raise RLIMIT_RTPRIO to PRIORITY, if possible, so that CAP_SYS_NICE is not needed later."""
    if not permitted():
        _, hard = resource.getrlimit(resource.RLIMIT_RTPRIO)
        if hard != resource.RLIM_INFINITY:
            hard = max(hard, PRIORITY)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_RTPRIO, (PRIORITY, hard))
