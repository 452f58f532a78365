# SPDX-License-Identifier: Apache-2.0
"""The kernel's blk tracer for `record_cost.py`: set up, and put back as it was."""

import fcntl
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cost_figures import parse_ring_stats

TRACEFS = Path("/sys/kernel/tracing")
LOCK = Path(tempfile.gettempdir()) / "biotrail-ftrace.lock"
"""The lock of the live tests: there is one blk tracer."""


class BlkFtrace:
    """A blk tracer that runs on one device. root: of the tracefs."""

    def __init__(self, root: Path, device: str) -> None:
        self.root = root
        self._enable = Path("/sys/block") / device / "trace" / "enable"

    def on(self) -> None:
        """Trace the device."""
        self._enable.write_text("1")

    def off(self) -> None:
        """Trace no more; may be called again."""
        self._enable.write_text("0")

    def lost(self) -> int:
        """Events that found the buffers full."""
        stats = self.root.glob("per_cpu/cpu*/stats")
        return sum(parse_ring_stats(path.read_text()) for path in stats)


@contextmanager
def blk_ftrace(device: str, buffer_kib: int) -> Iterator[BlkFtrace]:
    """Trace the device in binary form. Raises OSError where ftrace cannot be had."""
    with ExitStack() as stack:
        lock = stack.enter_context(open(LOCK, "w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        root = stack.enter_context(_tracefs())
        if (root / "current_tracer").read_text().strip() != "nop":
            raise OSError(0, "another tracer is in use")
        for name, value in (
            ("trace_clock", "mono"),
            ("buffer_size_kb", str(buffer_kib)),
            ("options/bin", "1"),
            ("options/context-info", "0"),
            ("current_tracer", "blk"),
        ):
            stack.enter_context(_set(root / name, value))
        tracer = BlkFtrace(root, device)
        stack.callback(tracer.off)
        tracer.on()
        yield tracer


@contextmanager
def _tracefs() -> Iterator[Path]:
    if (TRACEFS / "current_tracer").exists():
        yield TRACEFS
        return
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            ["mount", "-t", "tracefs", "none", directory], capture_output=True, check=False
        )
        if done.returncode != 0:
            raise OSError(0, "tracefs cannot be mounted")
        try:
            yield Path(directory)
        finally:
            subprocess.run(["umount", directory], check=True)


@contextmanager
def _set(path: Path, value: str) -> Iterator[None]:
    """The file holds `value`, and then again what it held."""
    before = path.read_text().strip()
    # `local [mono] boot`; `7 (expanded: 1408)`: what the buffer has once it is in use.
    chosen = re.search(r"\[(.+?)\]", before) or re.search(r"expanded: (\d+)", before)
    path.write_text(value)
    try:
        yield
    finally:
        path.write_text(chosen[1] if chosen else before.split()[0])
