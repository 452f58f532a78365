# SPDX-License-Identifier: Apache-2.0
"""Boots kernels side by side, each in a virtual machine that goes through the cases."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MACHINE_CPUS = 1
"""It has two, and keeps two thirds of one busy."""
MACHINE_BYTES = 4 << 30
"""What a machine of 3 GiB takes, with the emulation's own memory."""
CONSOLE = "console.txt"
"""In a machine's directory, once it has booted and ended."""
CONSOLE_SO_FAR = "console.part"


def at_once() -> int:
    """How many machines run side by side: VMTEST_PARALLEL, or what cores and memory bear."""
    if chosen := os.environ.get("VMTEST_PARALLEL"):
        return max(1, int(chosen))
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores // MACHINE_CPUS, _available_bytes() // MACHINE_BYTES))


def _available_bytes() -> int:
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    (kib,) = [line.split()[1] for line in text.splitlines() if line.startswith("MemAvailable:")]
    return int(kib) << 10


class Boots:
    """Machines that run and are to run; the first started are the first to run."""

    def __init__(self, number: int) -> None:
        """`number`: of machines that run at once."""
        self._pool = ThreadPoolExecutor(number)
        self._lock = Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def start(self, directory: Path, command: Sequence[str | Path]) -> "Future[float]":
        """Runs the command once there is room, its output in `directory`; gives its seconds."""
        return self._pool.submit(self._run, directory, command)

    def stop(self) -> None:
        """Ends the machines that run, forgets those to come."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                os.killpg(process.pid, signal.SIGTERM)
        self._pool.shutdown(cancel_futures=True)

    def _run(self, directory: Path, command: Sequence[str | Path]) -> float:
        start = time.monotonic()
        with (directory / CONSOLE_SO_FAR).open("wb") as console:
            with self._lock:
                if self._stopped:
                    return 0.0
                process = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # ended as a whole, by stop() alone
                )
                self._running.add(process)
            process.wait()
            with self._lock:
                self._running.remove(process)
        return time.monotonic() - start
