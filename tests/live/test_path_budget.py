# SPDX-License-Identifier: Apache-2.0
"""Timing of system calls ends on a load of many short ones, and everything else goes on."""

import sys
from pathlib import Path

import numpy as np
import pytest

from biotrail.recorder.log import LogReader
from tests.support import devices
from tests.support.path_tables import number_of, recorded_path
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")

LOAD = """
import mmap, os, sys, time
cached = os.open(sys.argv[1], os.O_RDONLY)
end = time.monotonic() + 4
while time.monotonic() < end:
    for _ in range(1000):
        os.pread(cached, 4096, 0)
direct, memory = os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
for at in range(32):
    assert os.preadv(direct, [memory], at * 4096) == 4096
"""
READS = 32


def test_timing_ends_where_it_costs_more_than_its_budget(
    tmp_path: Path, loop_device: devices.LoopDevice
) -> None:
    # GIVEN a program that reads a cached page for seconds, then a device directly
    cached, log = tmp_path / "cached", tmp_path / "log"
    cached.write_bytes(b"x" * 4096)
    load = [sys.executable, "-c", LOAD, str(cached), loop_device.path]
    # WHEN it is recorded with a budget of a per cent
    done = biotrail("record", "--path", "--call-budget", "1", "-o", log, "--", *load)
    # THEN timing ended, which the user, the log and info say
    assert "timing system calls ended: it took about " in done.stderr
    reader = LogReader(log)
    list(reader.chunks())
    (note,) = [payload for name, payload in reader.notes if name == "call_timing"]
    assert note["percent"] > note["budget"] == 1
    info = " ".join(biotrail("info", log).stdout.split())
    assert ", then no longer: it took about " in info
    # AND later calls have no times, but each bio has its call, as before, and each wait its own
    found = recorded_path(log)
    preadv = [number_of("preadv"), number_of("preadv2")]
    mine = (found.bios.dev == loop_device.dev) & (found.bios.bytes == 4096)
    bios, paths = found.with_paths(mine)
    by_call = np.isin(paths.call, preadv)
    assert int(by_call.sum()) == READS
    (tid,) = set(bios.tid[by_call].tolist())
    reads = found.calls.take((found.calls.tid == tid) & np.isin(found.calls.number, preadv))
    assert not reads.timed.any()
    assert len(reads) == len(found.waits.take(np.isin(found.waits.entry, reads.entry))) > 0
    # AND what it cost is in the log's end
    assert reader.end is not None
    assert reader.end["path"]["timed"] > 0
    assert reader.end["path"]["seconds"]["time"] > 0
