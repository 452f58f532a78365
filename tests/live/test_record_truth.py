# SPDX-License-Identifier: Apache-2.0
"""What a log says equals what fio did, from the command line to the lifecycles."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import devices
import numpy as np
import pytest
from record_helpers import biotrail, count_events, fio_command, read

from converters.model.tables import NEVER, Certainty

pytestmark = pytest.mark.usefixtures("needs_bpf", "fio")

RARE_MISSES = 5e-4
"""Share of completions that no program on any tracepoint gets to see, at the most."""
BYTES_PER_EVENT = 8


@pytest.fixture
def unmerged(loop_device: Any) -> Iterator[Any]:
    """The loop device without a scheduler or merges, so that each I/O is one request."""
    queue = Path(f"/sys/block/{loop_device.name}/queue")
    wanted = {"scheduler": "none", "nomerges": "2"}
    before = {name: (queue / name).read_text() for name in wanted}
    # A loop device keeps these when its file is detached: give back what was there.
    before["scheduler"] = before["scheduler"].partition("[")[2].partition("]")[0]
    try:
        for name, value in wanted.items():
            (queue / name).write_text(value)
        yield loop_device
    finally:
        for name, value in before.items():
            (queue / name).write_text(value)


@pytest.mark.parametrize("loop_device", [{}, {"direct_io": True}], indirect=True)
@pytest.mark.parametrize(
    ("engine", "depth", "rw"),
    [("psync", 1, "randread"), ("libaio", 16, "randwrite"), ("io_uring", 32, "randrw")],
)
def test_bios_issues_and_bytes_equal_fio(
    tmp_path: Path, unmerged: Any, engine: str, depth: int, rw: str
) -> None:
    # GIVEN a direct job of a known size on a loop device
    loop_device = unmerged
    log, report = tmp_path / "job.biotrail", tmp_path / "fio.json"
    job = fio_command(
        loop_device.path, report, rw=rw, bs="4k", size="16m", ioengine=engine, iodepth=depth
    )
    # WHEN it is recorded and its log is associated
    biotrail("record", "-d", loop_device.name, "-o", log, "--", *job)
    result, found = devices.read_fio_report(report)["jobs"][0], read(log)
    ios = {way: result[way]["total_ios"] for way in ("read", "write")}
    size = {way: result[way]["io_bytes"] for way in ("read", "write")}
    # THEN there is a bio for each I/O, of the same bytes, by direction
    bios = found.by("fio")
    codes, names = found.context.op_codes(bios.opf)
    for way in ("read", "write"):
        rows = codes == names.index(way) if way in names else codes < 0
        assert int(rows.sum()) == ios[way]
        assert int(bios.bytes[rows].sum()) == size[way]
    # AND each was issued, as one request of its own
    assert (bios.issue != NEVER).all()
    assert (bios.requests == 1).all()
    assert len(np.unique(bios.request)) == sum(ios.values())
    # AND completed, but for the rare completions that no program sees: those are named
    unseen = bios.take(bios.complete == NEVER)
    assert len(unseen) <= max(1, RARE_MISSES * sum(ios.values()))
    assert (unseen.certainty == Certainty.LOST).all()
    assert found.account.completions_not_seen >= len(unseen)
    # AND all that completed did so without an error, known from its pointers
    whole = bios.take(bios.complete != NEVER)
    assert (whole.status == 0).all()
    assert (whole.done_bytes == whole.bytes).all()
    assert (whole.certainty == Certainty.EXACT).all()
    # AND nothing was lost, and every event has its place in the account
    assert not found.trace.reader.losses
    assert found.account.late == 0
    assert sum(found.account.by_reason().values()) == count_events(log)


def test_150_000_io_per_second_for_ten_seconds_without_a_loss(
    tmp_path: Path, loop_device: Any
) -> None:
    # GIVEN a job of random 4 KiB reads at 150,000 a second, as far as the machine can
    log, report = tmp_path / "fast.biotrail", tmp_path / "fio.json"
    job = fio_command(
        loop_device.path,
        report,
        rw="randread",
        bs="4k",
        ioengine="io_uring",
        iodepth=32,
        rate_iops=150_000,
        time_based=True,
        runtime=10,
    )
    # WHEN it is recorded
    done = biotrail("record", "-d", loop_device.name, "-o", log, "--", *job)
    # THEN nothing was lost, and the log is small
    assert "LOST" not in done.stderr
    ios = devices.read_fio_report(report)["jobs"][0]["read"]["total_ios"]
    events = count_events(log)
    assert events >= 4 * ios * (1 - RARE_MISSES)
    assert log.stat().st_size <= BYTES_PER_EVENT * events
