# SPDX-License-Identifier: Apache-2.0
"""Run as a program of its own: switches run statistics, so that the recorder needs no right to.

BPF_ENABLE_STATS takes CAP_SYS_ADMIN, the largest right there is. This process keeps that
one alone and does nothing else: each byte on standard input switches, "1" on and any other
off. It ends with the recorder, when standard input does.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

RIGHT = "CAP_SYS_ADMIN"


class StatsChild:
    """The recorder's side."""

    def __init__(self) -> None:
        """Starts it. Raises OSError."""
        self._on = False
        self._process = subprocess.Popen(
            # -I, -S: nothing of the environment, the current directory or site-packages.
            [sys.executable, "-I", "-S", "-B", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the recorder
        )

    def switch(self, on: bool) -> None:
        """Have the kernel count, or not; nothing happens where that process has ended."""
        if on != self._on and self._process.stdin is not None:
            self._on = on
            with suppress(OSError):
                self._process.stdin.write(b"1" if on else b"0")

    def close(self) -> None:
        """Ends it, and the counting."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:  # somebody has stopped it
            self._process.kill()
            self._process.wait()


def _main() -> None:
    # Neither a virtual environment nor an installation is on the path here.
    sys.path.append(str(Path(__file__).parents[2]))
    from recorder import rights
    from recorder.probes.run_stats import RunStats

    rights.give_up({RIGHT})
    stats = RunStats()
    while order := os.read(0, 1):
        stats.switch(order == b"1")


if __name__ == "__main__":
    _main()
