# SPDX-License-Identifier: Apache-2.0
"""`biotrail slow --calls` of real fsyncs on ext4: time, waits, wakers and bios of each."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.path_disks import Disk
from tests.support.record_command import biotrail, in_json

pytestmark = pytest.mark.usefixtures("needs_bpf")

FSYNCS = 25
LOAD = f"""
import os, sys
with open("/proc/self/comm", "w") as comm:
    comm.write("syncer")
with open(sys.argv[1], "wb", buffering=0) as stream:
    for n in range({FSYNCS}):
        stream.write(b"x" * 16384)
        os.fsync(stream.fileno())
print(stream.name)
"""


def check(one: dict[str, Any], device: str, file: str) -> None:
    """An fsync: its parts are its time, its waits follow each other, its bios are the file's."""
    call = one["call"]
    assert (call["result"], call["error"], call["comm"]) == (0, None, "syncer")
    assert sum(call["parts"].values()) == call["duration_ns"]
    ends = [0]
    for wait in one["waits"]:
        assert wait["start_ns"] >= ends[-1]
        ends.append(wait["start_ns"] + wait["blocked_ns"] + wait["runnable_ns"])
    assert ends[-1] <= call["duration_ns"]
    blocked = sum(wait["blocked_ns"] for wait in one["waits"])
    assert blocked <= sum(call["parts"][part] for part in ("own_io", "other_io", "otherwise"))
    assert len(one["bios"]) + one["bios_left_out"] == call["bios"]
    for io in one["bios"]:
        assert io["device"] == device
        assert 0 <= io["queue_ns"] - call["entry_ns"] <= call["duration_ns"]
        assert io["file"] in (None, file)
    for io in one["journal"]:
        assert io["comm"].startswith("jbd2/")
        assert io["queue_ns"] <= call["entry_ns"] + call["duration_ns"]


def reasons_of_the_journals_waits(fsyncs: list[dict[str, Any]]) -> set[str]:
    """What the waits that a journal's thread ended were for."""
    waits = [wait for one in fsyncs for wait in one["waits"]]
    return {wait["reason"] for wait in waits if (wait["waker_comm"] or "").startswith("jbd2/")}


def test_slow_fsyncs(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a program that writes and syncs a file again and again, while its path is recorded
    log, file = tmp_path / "a.biotrail", disk.mount / "file"
    disk.record(log, [sys.executable, "-c", LOAD, str(file)], "--path=all", "--files")
    # WHEN its slowest calls are asked for
    every = in_json("slow", "--calls", "--comm", "syncer", "-n", "0", log)["calls"]
    fsyncs: list[dict[str, Any]] = [one for one in every if one["call"]["call"] == "fsync"]
    # THEN each fsync is there once, with its descriptor, and the slowest calls come first
    assert len(fsyncs) == FSYNCS
    durations = [one["call"]["duration_ns"] for one in every]
    assert durations == sorted(durations, reverse=True)
    assert len({one["call"]["fd"] for one in fsyncs}) == 1
    for one in fsyncs:
        check(one, disk.device.name, str(file))
    # AND fsyncs wrote the pages themselves, and waited for these and for the journal's thread
    assert sum(one["bio_bytes"] for one in fsyncs) >= FSYNCS * 16384
    assert all(str(file) in one["files"] for one in fsyncs if one["bio_bytes"])
    wakers = [w["waker_comm"] or "" for one in fsyncs for w in one["waits"]]
    assert any(comm.startswith("jbd2/") for comm in wakers)
    assert any(w["cause"] == "own I/O" for one in fsyncs for w in one["waits"])
    # AND what the journal's thread wrote meanwhile is there, which they waited for
    assert any(one["journal"] for one in fsyncs)
    assert "journal commit" in reasons_of_the_journals_waits(fsyncs)
    # AND the text says so of the slowest
    text = biotrail("slow", "--calls", "--comm", "syncer", "-n", "1", log).stdout
    assert f"this {every[0]['call']['call']} took" in text
