# SPDX-License-Identifier: Apache-2.0
"""What waits of real calls are for, and the commits of a real journal."""

import re
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.calls.reason_rules import WaitReason
from biotrail.converters.events.tables import NEVER, WaitCause
from tests.support import devices, wait_loads
from tests.support.path_disks import Disk
from tests.support.path_tables import of_process, reasons, whole

pytestmark = [
    pytest.mark.usefixtures("needs_bpf"),
    pytest.mark.alone,  # the limit of dirty memory is the whole machine's
    pytest.mark.xdist_group("waits"),
]


def transactions(device: devices.LoopDevice) -> int:
    """How many transactions the journal of the file system on a device has had, by /proc."""
    (info,) = Path("/proc/fs/jbd2").glob(f"{Path(device.path).name}-*/info")
    counted = re.match(r"(\d+) transactions", info.read_text())
    assert counted is not None
    return int(counted[1])


def test_waits_have_their_reasons_and_commits(disk: Disk, tmp_path: Path) -> None:
    # GIVEN processes that wait for one thing each, recorded with all parts of the path
    log, before = tmp_path / "log", transactions(disk.device)
    disk.record(log, [sys.executable, wait_loads.__file__, str(disk.mount)], "--path=all")
    counted, found = transactions(disk.device) - before, whole(log)
    # WHEN their waits are read
    syncs = of_process(found, "syncer", "fsync")
    direct = reasons(found, of_process(found, "direct", "preadv", "preadv2"))
    writes = reasons(found, of_process(found, "writer", "write"))
    # THEN the throttled writer waits as it is throttled, and direct reads wait for their bios
    assert writes.most_common(1)[0][0] == "throttled writing", writes
    assert not direct or direct.most_common(1)[0][0] == "bio", direct
    # AND each fsync waits for the journal's commit, with no bio of its own in flight; one whose
    # completion no BPF program saw seems to be
    commits = syncs.take(syncs.reason == WaitReason.JOURNAL_COMMIT)
    assert len(np.unique(commits.entry)) == wait_loads.FSYNCS
    assert (commits.cause != WaitCause.OTHER_IO).sum() <= 1
    # AND each wait names a commit that ended within it, on this file system
    table = found.commits.take(found.commits.dev == disk.device.dev)
    ends = dict(zip(table.transaction.tolist(), table.end.tolist(), strict=True))
    assert (commits.commit_dev == disk.device.dev).all()
    for commit, out, woken in zip(
        commits.commit.tolist(), commits.out.tolist(), commits.woken.tolist(), strict=True
    ):
        assert out <= ends[commit] <= woken
    # AND reasons take nothing from the sum of a call's time
    calls = found.calls.take(found.calls.entry != NEVER)
    parts = ("running", "runnable", "own_io", "other_io", "otherwise", "undivided")
    assert (sum(getattr(calls, part) for part in parts) == calls.exit - calls.entry).all()
    # AND no commit is missing that the kernel counted; one may have ended before the count
    assert counted - 1 <= len(table) <= counted + 1
    whole_ones = table.take(table.started != NEVER)
    assert len(whole_ones) >= len(table) - 1
    edges = [getattr(whole_ones, at) for at in ("started", "locking", "flushing", "logging", "end")]
    assert all((a <= b).all() for a, b in pairwise(edges))
