# SPDX-License-Identifier: Apache-2.0
"""Who woke a call has a name, though it did no I/O itself."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import devices
from tests.support.path_disks import mounted
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")

LOAD = """
import os, sys
with open("/proc/self/comm", "w") as comm:
    comm.write("syncer")
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.posix_fallocate(fd, 0, 16 << 20)
os.fsync(fd)
for n in range(100):
    os.pwrite(fd, b"x" * 4096, 8192 * (n * 997 % 2048))
    os.fsync(fd)
"""


def test_wakers_have_names(make_loop: Callable[..., devices.LoopDevice], tmp_path: Path) -> None:
    # GIVEN fsyncs that wait for write-back of preallocated blocks, which a worker ends that queues
    # no bio
    device, log = make_loop(), tmp_path / "log"
    with mounted(device, "ext4", tmp_path / "disk") as disk:
        load = [sys.executable, "-c", LOAD, str(disk.mount / "file")]
        options = ("-d", device.path, "--path", "--call-budget", "0")
        biotrail("record", *options, "-o", log, "--", *load)
    # WHEN the calls are shown
    said = biotrail("slow", "--calls", "--comm", "syncer", "-n", "0", "--json", log).stdout
    waits = [wait for one in json.loads(said)["calls"] for wait in one["waits"]]
    # THEN whoever woke one has a name, workers among them
    names = {wait["waker_tid"]: wait["waker_comm"] for wait in waits if wait["waker_tid"]}
    assert names
    assert None not in names.values()
    assert any(comm.startswith("kworker/") for comm in names.values()), names
