# SPDX-License-Identifier: Apache-2.0
"""A long recording with rotation: nothing lost, constant memory, every file whole.

Short by default; `make soak` runs it for an hour (BIOTRAIL_SOAK_SECONDS).
"""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.log import LogReader
from tests.support.record_command import read, recorder, stop

pytestmark = pytest.mark.usefixtures("needs_bpf")

LOAD_SECONDS = int(os.environ.get("BIOTRAIL_SOAK_SECONDS", "12"))
ROTATE = "1s" if LOAD_SECONDS < 60 else "30s"
IOPS = 2000
MEBIBYTE = 1 << 20


def resident(pid: int) -> int:
    """Bytes of the process's own memory; the rings, which are mapped, left out."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def rounds() -> list[int]:
    """Seconds of each of fio's runs: at most a minute, so that a hanging one is noticed."""
    return [min(60, LOAD_SECONDS - start) for start in range(0, LOAD_SECONDS, 60)]


class Watch(threading.Thread):
    """Looks at the recorder's memory now and then."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.seen: list[int] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(max(0.25, LOAD_SECONDS / 400)):
            self.seen.append(resident(self.pid))


@pytest.mark.long
@pytest.mark.limit(2 * LOAD_SECONDS + 900)
def test_a_long_recording_rotates_and_loses_nothing(
    tmp_path: Path, loop_device: Any, fio: Callable[..., Any]
) -> None:
    # GIVEN a recorder that rotates while a moderate load runs
    with recorder("-d", loop_device.name, "-o", tmp_path / "soak", "--rotate", ROTATE) as process:
        watch = Watch(process.pid)
        watch.start()
        job = {"rw": "randread", "bs": "4k", "ioengine": "psync", "rate_iops": IOPS}
        reads = 0
        for seconds in rounds():
            report = fio(loop_device.path, time_based=True, runtime=seconds, **job)
            reads += report["jobs"][0]["read"]["total_ios"]
        watch.over.set()
        # WHEN it is stopped
        status, said = stop(process, signal.SIGINT)
    assert status == 0, said
    # THEN every file is whole, and none lost anything
    files = sorted(tmp_path.iterdir())
    assert len(files) > 3
    bios: Counter[str] = Counter()
    for number, path in enumerate(files, 1):
        reader = LogReader(path)
        assert reader.header["series"]["number"] == number
        assert (reader.interrupted, reader.problems, reader.losses) == (False, [], [])
        log = read(path)
        assert log.account.unreadable_bytes == log.account.late == 0
        bios.update(log.comms.tolist())
    # AND together they have every read, under its task's name in each of them; one that a
    # border cuts is in two of them
    assert reads <= bios["fio"] <= reads + len(files)
    assert bios[""] <= len(files)
    # AND the recorder needs no more memory at the end than when it had warmed up
    third = len(watch.seen) // 3
    assert max(watch.seen[-third:]) <= max(watch.seen[: 2 * third]) + 16 * MEBIBYTE, watch.seen
