# SPDX-License-Identifier: Apache-2.0
"""Recordings below tight limits of memory: they record, or say in one message that they cannot."""

from pathlib import Path

import pytest

from biotrail.recorder.log import LogReader
from tests.support.record_command import in_memory_of

EVENTS = {
    "all": [],
    "light": ["--events", "light"],
    "path": ["--path"],
    "filtered": ["--op", "write", "--files"],
    "stacks": ["--stacks", "--user-stacks"],
}
ENOUGH = {"all": 64, "light": 64, "path": 96, "filtered": 96, "stacks": 128}
"""From so many MiB on it has to record."""


@pytest.mark.parametrize("events", EVENTS)
@pytest.mark.parametrize("limit", [48, 64, 80, 96, 128])
def test_it_is_never_killed(tmp_path: Path, needs_bpf: None, events: str, limit: int) -> None:
    # GIVEN a limit of memory
    log = tmp_path / "x.biotrail"
    # WHEN it is recorded
    done = in_memory_of(limit << 20, "record", *EVENTS[events], "-o", log, "--", "true")
    # THEN there is a whole log, or one message that says what is needed, and what there is
    if done.returncode == 0:
        assert not LogReader(log).interrupted
        return
    assert limit < ENOUGH[events]
    assert done.returncode == 1, done.stderr
    [said] = [line for line in done.stderr.splitlines() if "error" in line]
    assert "no room in memory: this recording needs" in said
    assert f"{limit} MiB: raise that (MemoryMax= of a service), or record less" in said
    assert not log.exists()
