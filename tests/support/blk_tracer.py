# SPDX-License-Identifier: Apache-2.0
"""The kernel's ftrace `blk` tracer in binary form, and the tools that read blktrace's data."""

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.blktrace_records import split
from tests.support.btt_tables import (
    needs_tools,
    run_tool,
)
from tests.support.devices import Fio, LoopDevice
from tests.support.ftrace_setup import NoTracerError, binary_blk_tracer, holding, tracefs

BUFFER_KIB = 32768


def _copy(pipe: int, out: Path, stop: threading.Event) -> None:
    with open(out, "wb") as stream:
        while True:
            ended = stop.is_set()
            try:
                data = os.read(pipe, 1 << 16)
            except BlockingIOError:
                if ended:
                    return
                stop.wait(0.01)
                continue
            stream.write(data)


@contextmanager
def blk_tracer(names: Sequence[str], out: Path) -> Iterator[None]:
    """Trace these devices into a stream of records, times of CLOCK_MONOTONIC."""
    if "blk" not in _tracers():
        pytest.skip("needs the kernel's blk tracer (CONFIG_BLK_DEV_IO_TRACE)")
    with ExitStack() as stack:
        try:
            root = stack.enter_context(binary_blk_tracer(BUFFER_KIB))
        except NoTracerError as why:
            pytest.skip(str(why))
        pipe = os.open(root / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
        stack.callback(os.close, pipe)
        stop = threading.Event()
        copier = threading.Thread(target=_copy, args=(pipe, out, stop))
        copier.start()
        try:
            with ExitStack() as devices:
                for name in names:
                    enable = Path("/sys/block") / name / "trace" / "enable"
                    devices.enter_context(holding(enable, "1"))
                yield
        finally:
            stop.set()
            copier.join()


def _tracers() -> list[str]:
    try:
        with tracefs() as root:
            return (root / "available_tracers").read_text().split()
    except NoTracerError as why:
        pytest.skip(str(why))


def blkparse_set(prefix: Path) -> list[str]:
    """blkparse's lines of a set. (It wants the set's name without a directory.)"""
    return _events(run_tool("blkparse", "-q", "-i", prefix.name, cwd=prefix.parent))


def blkparse_stream(path: Path) -> list[str]:
    """blkparse's lines of a stream."""
    return _events(run_tool("blkparse", "-q", "-i", "-", stdin=path))


def _events(text: str) -> list[str]:
    line = re.compile(r" *\d+,\d+ +\d+ +\d+ +\d+\.\d{9} ")
    return [found for found in text.splitlines() if line.match(found)]


def in_order(lines: Sequence[str]) -> list[str]:
    """Lines with those of one nanosecond by CPU and number: the tools order these differently."""

    def key(line: str) -> tuple[str, int, int]:
        words = line.split()
        return words[3].zfill(30), int(words[1]), int(words[2])

    return sorted(lines, key=key)


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
