# SPDX-License-Identifier: Apache-2.0
"""What long runs share: how long they take (BIOTRAIL_SOAK_SECONDS), and a look at memory."""

import os
import threading
from pathlib import Path

LOAD_SECONDS = int(os.environ.get("BIOTRAIL_SOAK_SECONDS", "8"))
MEBIBYTE = 1 << 20


def resident(pid: int) -> int:
    """Bytes of the process's own memory; the rings, which are mapped, left out."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def rounds() -> list[int]:
    """Seconds of each of fio's runs: at most a minute, so that a hanging one is noticed."""
    return [min(60, LOAD_SECONDS - start) for start in range(0, LOAD_SECONDS, 60)]


class Watch(threading.Thread):
    """Looks at a process's memory now and then."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.seen: list[int] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(max(0.25, LOAD_SECONDS / 400)):
            self.seen.append(resident(self.pid))
