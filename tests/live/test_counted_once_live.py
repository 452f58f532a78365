# SPDX-License-Identifier: Apache-2.0
"""What a program writes through a stacked device counts once for it, and by device each."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import devices
from tests.support.path_disks import mounted
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")

WRITES = 200
SIZE = 4096 * WRITES
LOAD = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
for number in range(int(sys.argv[2])):
    os.pwrite(fd, page, number * 4096)
"""


def test_what_a_loop_device_splits_counts_once(
    make_loop: Callable[..., devices.LoopDevice], tmp_path: Path
) -> None:
    # GIVEN a file system on a loop device with direct I/O over a file on another one
    lower = make_loop(size=256 << 20)
    log = tmp_path / "x.biotrail"
    size = 64 << 20
    with (
        mounted(lower, "ext4", tmp_path / "disk") as on,
        devices.loop(128 << 20, True, on.mount) as upper,
        mounted(upper, "ext4", tmp_path / "upper") as above,
    ):
        # WHEN a program writes, in bios larger than its requests may be
        dd = ["dd", "if=/dev/zero", f"of={above.mount}/big", "bs=1M", "count=64", "conv=fsync"]
        chosen = ["-d", upper.path, "-d", lower.path]
        biotrail("record", "--files", "--path", "-o", log, *chosen, "--", *dd)
    # THEN its data is what it wrote
    report = json.loads(biotrail("report", "--json", "--by", "writer", log).stdout)
    written = {
        op["operation"]: op["bytes"]
        for group in report["groups"]
        if group["process"] == "dd"
        for op in group["by_operation"]
    }
    assert size <= written["write"] < size + (1 << 20)


def test_a_write_through_a_loop_device_counts_once(
    make_loop: Callable[..., devices.LoopDevice], tmp_path: Path
) -> None:
    # GIVEN a loop device with direct I/O over a file on a file system of another
    lower = make_loop(size=64 << 20)
    log = tmp_path / "x.biotrail"
    with (
        mounted(lower, "ext4", tmp_path / "disk") as on,
        devices.loop(16 << 20, True, on.mount) as upper,
    ):
        # WHEN a program writes to it, and both are recorded
        command = [sys.executable, "-c", LOAD, upper.path, str(WRITES)]
        chosen = ["-d", upper.path, "-d", lower.path]
        biotrail("record", "--path", "-o", log, *chosen, "--", *command)
        name = upper.name
    # THEN each device has its own writes
    report = json.loads(biotrail("report", "--json", "--by", "writer", log).stdout)
    written = {
        (one["device"], op["operation"]): op["bytes"]
        for one in report["devices"]
        for op in one["operations"]
    }
    assert written[name, "write"] == SIZE
    assert written[lower.name, "write"] >= SIZE
    # AND the program has them once, as a submitter and as a writer
    for groups in (report["processes"], report["groups"]):
        mine = [g for g in groups if str(g["process"]).startswith("python")]
        ops = {op["operation"]: op["bytes"] for g in mine for op in g["by_operation"]}
        assert ops["write"] == SIZE
    # AND the total leaves out what the loop device queued for them
    assert report["lower"]["bios"] >= WRITES and report["lower"]["bytes"] >= SIZE
    # AND the lower device alone has its own
    alone = json.loads(biotrail("report", "--json", "-d", lower.name, log).stdout)
    assert alone["lower"]["bios"] == 0
    writes = sum(
        op["bytes"] for op in alone["devices"][0]["operations"] if op["operation"] == "write"
    )
    assert alone["total"]["bytes"] >= writes >= SIZE
