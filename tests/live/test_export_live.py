# SPDX-License-Identifier: Apache-2.0
"""fio replays what was recorded, and a recorded log's archive gives what the log gives."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import record_command
from tests.support.devices import Fio, MakeLoop, fio_arguments
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")

DEPTH = 8


def ios_of(log: record_command.Log, comm: str) -> tuple[Counter[tuple[str, int, int]], Any]:
    """How often which operation was done where, and when, by a command."""
    bios = log.by(comm)
    names = [log.context.op_name(int(opf)) for opf in bios.opf]
    what = zip(names, bios.sector.tolist(), bios.bytes.tolist(), strict=True)
    return Counter(what), np.sort(bios.queue)


def test_fio_replays_what_was_recorded(make_loop: MakeLoop, fio: Fio, tmp_path: Path) -> None:
    # GIVEN a recording of reads and writes at a steady pace
    first, second = make_loop(), make_loop()
    load = {"rw": "randrw", "bsrange": "4k-32k", "ioengine": "io_uring", "iodepth": DEPTH}
    pace = {"number_ios": 400, "rate_iops": 1000, "size": "16m"}
    log = tmp_path / "first.biotrail"
    command = ["fio", "--output=/dev/null", *fio_arguments(first.path, **load, **pace)]
    biotrail("record", "-d", first.name, "-o", log, "--", *command)
    # WHEN it is exported, and fio replays it on another device
    biotrail("export", "-d", first.name, log, "-o", tmp_path / "x.iolog")
    arguments = [
        "--name=replay",
        f"--read_iolog={tmp_path / 'x.iolog'}",
        f"--replay_redirect={second.path}",
        "--direct=1",
        "--ioengine=io_uring",
        f"--iodepth={4 * DEPTH}",
        "--output=/dev/null",
    ]
    again = tmp_path / "second.biotrail"
    biotrail("record", "-d", second.name, "-o", again, "--", "fio", *arguments)
    # THEN the same I/Os are seen there
    before, queued = ios_of(record_command.read(log), "fio")
    after, replayed = ios_of(record_command.read(again), "fio")
    assert sum(before.values()) == 400
    assert after == before
    # AND they were spread over time as they had been, not done at once
    assert replayed[-1] - replayed[0] > (queued[-1] - queued[0]) // 2
