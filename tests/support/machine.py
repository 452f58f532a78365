# SPDX-License-Identifier: Apache-2.0
"""The machine as something that tests share, or that one of them has to itself.

Live tests run several at once. One that changes what all others stand on (a CPU goes), or that
judges the whole machine (every device there is), is `@pytest.mark.alone`: it waits until no
other live test runs, and none begins until it ends. Such tests run in a row, on one worker
(tests/live/conftest.py). Tests of other processes, and of other checkouts on the same machine, are
waited for as well.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

# Directories that every machine has, and that nobody else locks.
MACHINE = Path("/sys/devices/system/cpu")
"""Locked by whoever runs a live test: shared, or exclusively."""
GATE = Path("/sys/devices/system")
"""Locked by whoever waits for MACHINE, so that nobody overtakes a test that waits to be alone."""


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    """Hold a directory's lock (fcntl.LOCK_SH, LOCK_EX); waits for who else has it."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, how)
        try:
            yield
        finally:
            # Closing alone would not do: a child has the descriptor, too, until it calls exec.
            fcntl.flock(directory, fcntl.LOCK_UN)
    finally:
        os.close(directory)


@contextmanager
def taken(alone: bool) -> Iterator[None]:
    """Share the machine with other live tests, or have it alone, while the block runs."""
    with ExitStack() as stack:
        with _locked(GATE, fcntl.LOCK_EX):
            stack.enter_context(_locked(MACHINE, fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        yield
