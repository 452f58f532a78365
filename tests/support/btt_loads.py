# SPDX-License-Identifier: Apache-2.0
"""Loads that blktrace and biotrail record at once."""

from collections.abc import Callable
from pathlib import Path

from tests.support.blk_tracer import blk_tracer
from tests.support.blktrace_records import split
from tests.support.btt_tables import (
    needs_tools,
)
from tests.support.devices import Fio, LoopDevice


def clean_load(fio: Fio, path: str) -> None:
    """I/O that btt can follow: no splits, no flushes, nothing twice at once."""
    common = {"direct": True, "iodepth": 16, "iodepth_batch": 16}
    fio(path, rw="randrw", bs="4k", size="16m", ioengine="io_uring", **common)
    # Submitted together, neighbours merge.
    fio(path, rw="write", bs="4k", size="8m", offset="16m", ioengine="libaio", **common)
    fio(path, rw="randread", bsrange="4k-16k", size="16m", offset="32m", ioengine="io_uring")


def traced(device: LoopDevice, directory: Path, load: Callable[[], None]) -> Path:
    """The set of files that the blk tracer makes of a load under mq-deadline."""
    needs_tools("blkparse", "btt")
    (Path("/sys/block") / device.name / "queue" / "scheduler").write_text("mq-deadline")
    stream = directory / "stream.bin"
    with blk_tracer([device.name], stream):
        load()
    (directory / "set").mkdir()
    [prefix] = split(stream.read_bytes(), directory / "set")
    return prefix
