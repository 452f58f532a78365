# SPDX-License-Identifier: Apache-2.0
"""The kernel's one blk tracer in binary form: taken, set up, and put back as it was.

For live tests and for `benchmarks/`, which must not have it at once.
"""

import fcntl
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

TRACEFS = Path("/sys/kernel/tracing")


class NoTracerError(OSError):
    """ftrace cannot be had; says why."""


@contextmanager
def tracefs() -> Iterator[Path]:
    """The root of a tracefs, mounted for the while if need be. Raises NoTracerError."""
    if (TRACEFS / "current_tracer").exists():
        yield TRACEFS
        return
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            ["mount", "-t", "tracefs", "none", directory], capture_output=True, check=False
        )
        if done.returncode != 0:
            raise NoTracerError("needs tracefs")
        try:
            yield Path(directory)
        finally:
            subprocess.run(["umount", directory], check=True)


@contextmanager
def holding(path: Path, value: str) -> Iterator[None]:
    """The file holds `value`, and then again what it held."""
    before = path.read_text().strip()
    # `local [mono] boot`; `7 (expanded: 1408)`: what the buffer has once it is in use.
    chosen = re.search(r"\[(.+?)\]", before) or re.search(r"expanded: (\d+)", before)
    path.write_text(value)
    try:
        yield
    finally:
        path.write_text(chosen[1] if chosen else before.split()[0])


@contextmanager
def binary_blk_tracer(buffer_kib: int) -> Iterator[Path]:
    """The tracefs with the blk tracer on, times of CLOCK_MONOTONIC. Raises NoTracerError.

    Waits for who else has it.
    """
    with ExitStack() as stack:
        # Of the mount point itself: a file in /tmp could be anybody's.
        lock = os.open(TRACEFS.parent, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        root = stack.enter_context(tracefs())
        if (root / "current_tracer").read_text().strip() != "nop":
            raise NoTracerError("the machine's ftrace is in use")
        for name, value in (
            ("trace_clock", "mono"),
            ("buffer_size_kb", str(buffer_kib)),
            ("options/bin", "1"),
            ("options/context-info", "0"),
            ("current_tracer", "blk"),
        ):
            stack.enter_context(holding(root / name, value))
        yield root
