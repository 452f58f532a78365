# SPDX-License-Identifier: Apache-2.0
"""Switches the kernel's counting of BPF programs' runs and run time (BPF_ENABLE_STATS)."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from biotrail.recorder.probes.kernel.libbpf import load_library
from biotrail.recorder.rights import helpers
from biotrail.recorder.schema.errors import ProbeError

_BPF_STATS_RUN_TIME = 0
_CHILD = Path(__file__).with_name("stats_child.py")
RIGHT = "CAP_SYS_ADMIN"
"""The capability that BPF_ENABLE_STATS requires."""


class RunStats:
    """The kernel's counting, on while a descriptor is open: off at the latest with this process."""

    def __init__(self) -> None:
        self._fd = -1  # -1: off

    def switch(self, on: bool) -> None:
        """Switch the counting of runs of all BPF programs of the host, where that is allowed."""
        if on and self._fd < 0:
            with suppress(ProbeError):
                self._fd = load_library().call(
                    "run statistics", "bpf_enable_stats", _BPF_STATS_RUN_TIME
                )
        elif not on and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class StatsChild:
    """As RunStats, by a child process (stats_child.py), so that this one can give up the right."""

    def __init__(self, report: Callable[[str], None]) -> None:
        """`report` gets a message for the user once the child turns out to have ended."""
        self._report = report
        self._on = False
        self._process = helpers.begin(_CHILD, answers=False)

    def switch(self, on: bool) -> None:
        if on == self._on or self._process.stdin is None:
            return
        self._on = on
        try:
            self._process.stdin.write(b"1" if on else b"0")
        except OSError:
            self._process.stdin = None
            self._report("run time of programs: not known, the process that switches it has ended")

    def close(self) -> None:
        """End the child and the counting: by the end of its input, after a second by SIGKILL."""
        helpers.end(self._process)
