# SPDX-License-Identifier: Apache-2.0
"""The recorder's own scheduling: it does little, but it must not come too late for the rings."""

import os
import threading
from contextlib import suppress

URGENT = -15
"""Nice value of a thread that keeps rings from filling where all CPUs are busy."""


def hurry() -> int | None:
    """Raise the calling thread's priority; the nice value it had, None where it may not.

    Threads and commands that this thread starts later would inherit it: start them before.
    """
    thread = threading.get_native_id()
    before = os.getpriority(os.PRIO_PROCESS, thread)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, thread, min(before, URGENT))
        return before
    return None


def relax(before: int | None) -> None:
    """Give the calling thread the nice value that `hurry` returned."""
    if before is not None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), before)
