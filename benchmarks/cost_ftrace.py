# SPDX-License-Identifier: Apache-2.0
"""The kernel's blk tracer for `record_cost.py`: set up, and put back as it was."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.cost_figures import parse_ring_stats
from tests.support.ftrace_setup import binary_blk_tracer


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
    with binary_blk_tracer(buffer_kib) as root, ExitStack() as stack:
        tracer = BlkFtrace(root, device)
        stack.callback(tracer.off)
        tracer.on()
        yield tracer
