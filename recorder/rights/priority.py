# SPDX-License-Identifier: Apache-2.0
"""The recorder's own scheduling: as everybody's, until the rings fill; then it must not be late.

A better nice value all the time would cost the host: it is a weight within the group (of a
session, of a control group), and a group's weight is shared out over the CPUs by what its
members weigh there. A thread of nice -15 on one CPU takes most of it, and the recorded command,
of the same session, is left with little on another CPU against everybody else: three times as
many context switches were seen, and a tenth less throughput. The real-time class is no better:
its threads wake up on the CPU where they ran last, busy or not.
"""

import os
import resource
import threading
import time
from collections.abc import Callable
from contextlib import suppress

PRIORITY = 1
"""The lowest of the real-time class."""
FILLED = 0.25
"""Share of a ring at which the recorder hurries."""
LONG_NS = 10_000_000_000
"""How long the rings must have been emptier before it goes back."""


class Urgency:
    """Makes the threads that empty the rings real-time while a ring is a quarter full."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._threads: list[int] = []
        self._since: int | None = None
        self.times = 0
        """How often it had to hurry."""

    def concerns(self, thread: int | None = None) -> None:
        """Adds a thread of this process by its kernel id; the calling one by default."""
        self._threads.append(threading.get_native_id() if thread is None else thread)

    def found(self, fill: float) -> None:
        """Takes in how full the fullest ring is, 0 to 1."""
        if fill >= FILLED:
            if self._since is None:
                self.times += 1
                self._schedule(os.SCHED_RR | os.SCHED_RESET_ON_FORK, PRIORITY)
            self._since = self._clock()
        elif self._since is not None and self._clock() - self._since > LONG_NS:
            self.relax()

    def relax(self) -> None:
        """As they were; where they hurry no more, nothing."""
        if self._since is not None:
            self._since = None
            # Taking the flag back takes a right that the recorder may have given up: it stays.
            self._schedule(os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, 0)

    def _schedule(self, policy: int, priority: int) -> None:
        for thread in self._threads:
            # Without the right to it, or where groups have no real-time share, it goes on as it is.
            with suppress(PermissionError, ProcessLookupError):
                os.sched_setscheduler(thread, policy, os.sched_param(priority))


def permitted() -> bool:
    """Whether this process may hurry without a capability."""
    limit, _ = resource.getrlimit(resource.RLIMIT_RTPRIO)
    return limit == resource.RLIM_INFINITY or limit >= PRIORITY


def permit() -> None:
    """Have the capability not be needed, where the limit can be raised."""
    if not permitted():
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_RTPRIO, (PRIORITY, PRIORITY))
