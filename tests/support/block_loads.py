# SPDX-License-Identifier: Apache-2.0
"""Loads of a block device that have merges, splits, flushes and remaps, for live tests."""

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import devices
from tests.support.devices import Fio, LoopDevice


def random_reads(fio: Fio, path: str) -> dict[str, Any]:
    """2048 reads of 4 KiB, 16 at a time; returns fio's report."""
    return fio(path, rw="randread", bs="4k", size="8m", ioengine="io_uring", iodepth=16)


def schedule(device: LoopDevice, scheduler: str) -> None:
    """Give the device a scheduler, or skip the test, and requests of at most 64 KiB."""
    queue = Path("/sys/block") / device.name / "queue"
    if scheduler not in (queue / "scheduler").read_text():
        pytest.skip(f"the kernel has no scheduler {scheduler}")
    (queue / "scheduler").write_text(scheduler)
    (queue / "max_sectors_kb").write_text("64")


def merges_and_splits(fio: Fio, path: str) -> None:
    """Small writes in batches, forwards and backwards, and writes of 1 MiB."""
    batches = {"ioengine": "libaio", "iodepth": 16, "iodepth_batch_submit": 16}
    batches["iodepth_batch_complete_min"] = 16
    fio(path, rw="write", bs="4k", size="4m", **batches)
    fio(path, rw="write", bs="1m", size="8m", ioengine="psync")
    fio(path, rw="write:-8k", bs="4k", size="4m", number_ios=64, **batches)


def durable_files(path: str, mounted: Path) -> None:
    """Mount a file system, write 20 files, each made durable, and unmount it."""
    with devices.mounted(path, mounted):
        for number in range(20):
            with open(mounted / f"file{number}", "wb") as file:
                file.write(b"x" * 50_000)
                file.flush()
                os.fsync(file.fileno())


@contextmanager
def partitioned() -> Iterator[tuple[LoopDevice, list[str]]]:
    """Give a loop device, and the paths of its partitions at sectors 2048 and 34816.

    Skips the test where there can be none.
    """
    if shutil.which("addpart") is None:
        pytest.skip("needs addpart (util-linux)")
    backing = devices.SHM / f"biotrail-test-{uuid.uuid4().hex}.img"
    with ExitStack() as stack:
        stack.callback(backing.unlink, missing_ok=True)
        backing.write_bytes(bytes(32 << 20))
        loop = stack.enter_context(devices.loop_over(backing, False, "--partscan"))
        for number, start in (("1", "2048"), ("2", "34816")):
            devices.run("addpart", loop.path, number, start, "30720")
            stack.callback(devices.run, "delpart", loop.path, number)
        parts = [f"{loop.path}p{number}" for number in (1, 2)]
        deadline = time.monotonic() + 5
        while not all(map(os.path.exists, parts)):
            if time.monotonic() > deadline:
                pytest.skip("needs device nodes of partitions, which nobody makes here")
            time.sleep(0.05)
        yield loop, parts


@contextmanager
def linear(device: LoopDevice) -> Iterator[str]:
    """Give the path of a dm-linear on the device; skips the test where there can be none."""
    if shutil.which("dmsetup") is None:
        pytest.skip("needs dmsetup")
    name = f"biotrail-test-{uuid.uuid4().hex[:8]}"
    table = f"0 {device.size // 512 - 4096} linear {device.path} 4096"
    made = subprocess.run(
        ["dmsetup", "create", name, "--table", table], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no dm-linear here: {made.stderr.strip()}")
    try:
        path = f"/dev/mapper/{name}"
        if not os.path.exists(path):
            devices.run("dmsetup", "mknodes", name)
        yield path
    finally:
        devices.run("dmsetup", "remove", "--retry", name)
