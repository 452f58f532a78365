# SPDX-License-Identifier: Apache-2.0
"""A load whose waits for a CPU the scheduler itself counts: run as a program, it prints JSON.

Threads that never sleep share one CPU for a while and are then stopped; the counters of the
scheduler (/proc/PID/schedstat) are read while none of them can change.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def spin() -> None:
    """Never sleep."""
    while True:
        pass


def state(pid: int) -> str:
    """The state letter in /proc/PID/stat: behind the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def main(tasks: int, seconds: float) -> None:
    """Print {"until": ns, "tasks": {PID: [waited ns, times run]}}, and end all that was started."""
    cpu = max(os.sched_getaffinity(0))
    pids = []
    for _ in range(tasks):
        pid = os.fork()
        if pid == 0:
            os.sched_setaffinity(0, {cpu})
            spin()
        pids.append(pid)
    try:
        time.sleep(seconds)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        while any(state(pid) != "T" for pid in pids):
            time.sleep(0.01)
        counted = {pid: Path(f"/proc/{pid}/schedstat").read_text().split() for pid in pids}
        until = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    tasks_found = {pid: [int(words[1]), int(words[2])] for pid, words in counted.items()}
    print(json.dumps({"until": until, "tasks": tasks_found}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
