# SPDX-License-Identifier: Apache-2.0
"""Has the kernel count runs and time of BPF programs for a while (BPF_ENABLE_STATS)."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from biotrail.recorder.probes.libbpf import load_library
from biotrail.recorder.schema.errors import ProbeError

_BPF_STATS_RUN_TIME = 0
_CHILD = Path(__file__).with_name("stats_child.py")
RIGHT = "CAP_SYS_ADMIN"
"""What BPF_ENABLE_STATS takes."""


class RunStats:
    """On or off; off again with this process, however it ends."""

    def __init__(self) -> None:
        self._fd = -1

    def switch(self, on: bool) -> None:
        """Where the kernel does not permit it (it takes CAP_SYS_ADMIN), nothing happens."""
        if on and self._fd < 0:
            with suppress(ProbeError):
                self._fd = load_library().call(
                    "run statistics", "bpf_enable_stats", _BPF_STATS_RUN_TIME
                )
        elif not on and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class StatsChild:
    """As RunStats, in a process of its own, so that this one needs no right to (stats_child.py)."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Starts it. `tell`: hears where it does not work. Raises OSError."""
        self._tell = tell
        self._on = False
        self._process = subprocess.Popen(
            # -I, -S: nothing of the environment, the current directory or site-packages.
            [sys.executable, "-I", "-S", "-B", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the recorder
        )

    def switch(self, on: bool) -> None:
        """Have the kernel count, or not; where that process has ended, that is told once."""
        if on == self._on or self._process.stdin is None:
            return
        self._on = on
        try:
            self._process.stdin.write(b"1" if on else b"0")
        except OSError:
            self._process.stdin = None
            self._tell("run time of programs: not known, the process that switches it has ended")

    def close(self) -> None:
        """Ends it, and the counting."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:  # somebody has stopped it
            self._process.kill()
            self._process.wait()
