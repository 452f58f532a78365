# SPDX-License-Identifier: Apache-2.0
"""How much memory `biotrail record` takes, by its cgroup, for each set of events; as root.

    .venv/bin/python -m benchmarks.record_memory

Prints the table of docs/recording.md: the most that the cgroup had, pages of files left out, with
the default rings and with the smallest, and the smallest limit below which it records.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

SETS: dict[str, list[str]] = {
    "`--events light`": ["--events", "light"],
    "no options": [],
    "`--files`": ["--files"],
    "a filter by I/O (`--op`, `--pid`, …)": ["--op", "write"],
    "`--stacks`": ["--stacks"],
    "`--stacks --user-stacks`": ["--stacks", "--user-stacks"],
    "`--trigger slow=1ms --keep 16M`": ["--trigger", "slow=1ms", "--keep", "16M"],
    "`--path`": ["--path"],
    "`--path --files --stacks --op write`": ["--path", "--files", "--stacks", "--op", "write"],
}
SMALLEST = ["--buffer-size", "64k"]
MIB = 1 << 20
STEP = 4
_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
_RUN = [sys.executable, "-m", "biotrail.cli.main", "record", "-q", "-f", "--duration", "500ms"]


def recorded(options: Sequence[str], limit: int | None = None) -> tuple[int, int]:
    """Record for half a second; return the exit status, and the most bytes of the cgroup.

    limit: bytes that the cgroup may have.
    """
    v1 = (_V1 / "memory.limit_in_bytes").exists()
    group = (_V1 if v1 else _V2) / f"biotrail-memory-{os.getpid()}"
    group.mkdir()
    try:
        if limit is not None:
            (group / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(limit))
        with tempfile.TemporaryDirectory() as directory:
            join = f'echo $$ > {group}/cgroup.procs; exec "$@"'
            command = ["sh", "-c", join, "sh", *_RUN, "-o", f"{directory}/x.biotrail", *options]
            done = subprocess.run(command, capture_output=True, check=False)
        peak = group / ("memory.max_usage_in_bytes" if v1 else "memory.peak")
        return done.returncode, int(peak.read_text())
    finally:
        for _ in range(100):  # until the kernel has forgotten its processes
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.05)


def least_limit(options: Sequence[str]) -> int:
    """Return the smallest limit, a multiple of STEP MiB, with which it records."""
    low, high = 0, 64
    while low + 1 < high:
        middle = (low + high) // 2
        status, _ = recorded(options, middle * STEP * MIB)
        low, high = (middle, high) if status else (low, middle)
    return high * STEP


def main() -> None:
    print("| recorded | default rings | smallest rings | records from a limit of |")
    print("|---|---|---|---|")
    for name, options in SETS.items():
        plain, small = recorded(options)[1], recorded([*options, *SMALLEST])[1]
        sizes = f"{plain / MIB:.0f} MiB | {small / MIB:.0f} MiB | {least_limit(options)} MiB"
        print(f"| {name} | {sizes} |", flush=True)


if __name__ == "__main__":
    main()
