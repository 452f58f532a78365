# SPDX-License-Identifier: Apache-2.0
"""Waits in state D that no I/O ends, of real calls: RCU for a cgroup, vfork."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")

LOAD = """
import os, sys, time
with open("/proc/self/comm", "w") as comm:
    comm.write("mover")
for _ in range(3):
    time.sleep(0.1)
    with open(sys.argv[1], "w") as procs:
        procs.write(str(os.getpid()))
    time.sleep(0.1)
    with open(sys.argv[2], "w") as procs:
        procs.write(str(os.getpid()))
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup of version 2 without processes."""
    roots = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
    root = next((one for one in roots if (one / "cgroup.procs").exists()), None)
    if root is None:
        pytest.skip("needs cgroup v2")
    made = root / "biotrail-no-io"
    made.mkdir()
    yield made
    made.rmdir()


def test_moving_between_cgroups_is_no_io(group: Path, tmp_path: Path) -> None:
    # GIVEN a process that moves between cgroups, which waits for RCU in state D
    log = tmp_path / "log"
    places = (group / "cgroup.procs", group.parent / "cgroup.procs")
    load = [sys.executable, "-c", LOAD, *map(str, places)]
    biotrail("record", "--path", "-o", log, "--call-budget", "0", "--", *load)
    # WHEN its calls are shown
    rows = biotrail("export", "--what", "calls", "--format", "jsonl", "-o", "-", log).stdout
    calls = [json.loads(row) for row in rows.splitlines()]
    moves = [call for call in calls if call["call"] == "write" and call["comm"] == "mover"]
    # THEN none of these writes waited for I/O, though they waited in state D
    assert any(call["waits"] for call in moves)
    assert {(call["own_io_ns"], call["other_io_ns"]) for call in moves} == {(0, 0)}
    found = biotrail("export", "--what", "waits", "--format", "jsonl", "-o", "-", log).stdout
    entries = {(call["tid"], call["entry_ns"]) for call in moves}
    waits = [json.loads(row) for row in found.splitlines()]
    waits = [wait for wait in waits if (wait["tid"], wait["entry_ns"]) in entries]
    assert {wait["reason"] for wait in waits} <= {"RCU", "cgroup"}
    assert {wait["cause"] for wait in waits} == {"otherwise"}
