# SPDX-License-Identifier: Apache-2.0
"""A thread that idles in io_getevents, until another one submits what it reaps."""

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import devices, idle_reaper
from tests.support.path_disks import mounted
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")


@pytest.mark.skipif(idle_reaper.SUBMIT == 0, reason=f"numbers of calls on {platform.machine()}")
def test_an_idle_thread_does_not_wait_for_io(
    make_loop: Callable[..., devices.LoopDevice], tmp_path: Path
) -> None:
    # GIVEN a thread that waits for three reads, of which each is submitted half a second after it
    # began to wait
    log = tmp_path / "log"
    device = make_loop()
    with mounted(device, "ext4", tmp_path / "disk") as disk:
        load = [sys.executable, idle_reaper.__file__, str(disk.mount / "file"), "0.5"]
        options = ("-d", device.path, "--path", "--call-budget", "0")
        biotrail("record", *options, "-o", log, "--", *load)
    # WHEN its calls are shown
    ours = ("--comm", idle_reaper.NAME)
    rows = biotrail("export", "--what", "calls", "--format", "jsonl", "-o", "-", *ours, log).stdout
    calls = [json.loads(row) for row in rows.splitlines()]
    waits = [call for call in calls if call["call"] == "io_getevents"]
    bios = biotrail("export", "--format", "jsonl", "-o", "-", *ours, log).stdout
    reads = [json.loads(row) for row in bios.splitlines()]
    reads = [bio for bio in reads if bio["call"] == "io_submit"]
    # THEN they wait for I/O for no longer than it was in flight, and otherwise for all else
    assert len(waits) == len(reads) == idle_reaper.READS
    for wait, read in zip(waits, reads, strict=True):
        assert 0 < wait["other_io_ns"] <= read["complete_ns"] - read["queue_ns"]
        assert wait["own_io_ns"] == 0
        idle = read["queue_ns"] - wait["entry_ns"]
        assert wait["otherwise_ns"] >= idle - wait["running_ns"] - wait["runnable_ns"] > 0
