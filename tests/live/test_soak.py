# SPDX-License-Identifier: Apache-2.0
"""A long recording with rotation: nothing lost, constant memory, every file whole.

Short by default; `make soak` runs it for an hour (BIOTRAIL_SOAK_SECONDS).
"""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.log import LogReader
from tests.support.record_command import read, recorder, stop
from tests.support.soaking import LOAD_SECONDS, MEBIBYTE, Watch, rounds

pytestmark = pytest.mark.usefixtures("needs_bpf")

ROTATE = "1s" if LOAD_SECONDS < 60 else "30s"
IOPS = 2000


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
