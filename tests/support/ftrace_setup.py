# SPDX-License-Identifier: Apache-2.0
"""ftrace for live tests and `benchmarks/`: the one blk tracer, and instances of one's own.

The blk tracer is the kernel's only one, so it is taken, set up and put back as it was. An
instance has buffers, events and a clock that nobody else sees.
"""

import fcntl
import os
import re
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.support import devices

TRACEFS = Path("/sys/kernel/tracing")
INSTANCE = "biotrail-test-"
AS_TEXT = {"context-info": "1", "irq-info": "1"} | dict.fromkeys(
    ("bin", "hex", "raw", "fields", "stacktrace", "userstacktrace", "latency-format"), "0"
)
"""Options of a new instance, which has whatever the root has: its blk tracer writes in binary."""
BUFFERS = ("block_dirty_buffer", "block_touch_buffer")
"""Events of buffers, which can be very many: no bio needs them."""
NOT_A_DEVICES = ("block_plug", "block_unplug", *BUFFERS)
"""Events without a device, too."""


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
            devices.unmount(directory)


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
def root_lock() -> Iterator[None]:
    """The root's tracer is nobody else's; waits for who has it."""
    # Of the mount point itself: a file in /tmp could be anybody's.
    lock = os.open(TRACEFS.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def binary_blk_tracer(buffer_kib: int) -> Iterator[Path]:
    """The tracefs with the blk tracer on, times of CLOCK_MONOTONIC. Raises NoTracerError.

    Waits for who else has it.
    """
    with ExitStack() as stack:
        stack.enter_context(root_lock())
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


@contextmanager
def instance(buffer_kib: int) -> Iterator[Path]:
    """Make a tracefs instance with buffers of `buffer_kib` for each CPU; yield its directory.

    Times are CLOCK_MONOTONIC. The instance is removed at the end; one that a killed process
    left behind is removed by the next to call this. Raises NoTracerError.
    """
    with tracefs() as root:
        for old in (root / "instances").glob(f"{INSTANCE}*"):
            pid = old.name.removeprefix(INSTANCE).partition("-")[0]
            if not Path("/proc", pid).exists():
                with suppress(OSError):  # another run may do the same
                    old.rmdir()
        made = root / "instances" / f"{INSTANCE}{os.getpid()}-{uuid.uuid4().hex[:8]}"
        try:
            made.mkdir()
        except OSError as error:
            raise NoTracerError(f"needs instances of tracefs: {error}") from error
        try:
            for name, value in AS_TEXT.items():
                if (made / "options" / name).exists():
                    (made / "options" / name).write_text(value)
            (made / "trace_clock").write_text("mono")
            (made / "buffer_size_kb").write_text(str(buffer_kib))
            yield made
        finally:
            if made.exists():  # trace-cmd removes what it extracts
                (made / "tracing_on").write_text("0")
                made.rmdir()


def perf_block_events() -> str:
    """Return the kernel's block events as words of perf's -e, but for those of buffers.

    perf's own writing to a file system sets off buffers' events, without an end.
    """
    with tracefs() as root:
        names = sorted(path.name for path in (root / "events" / "block").glob("block_*"))
    return ",".join(f"block:{name}" for name in names if name not in BUFFERS)


def enable_block_events(instance: Path) -> None:
    """Enable an instance's block events, but for those of NOT_A_DEVICES."""
    for event in sorted((instance / "events" / "block").glob("*/enable")):
        if event.parent.name not in NOT_A_DEVICES:
            event.write_text("1")
