# SPDX-License-Identifier: Apache-2.0
"""What a log says equals what fio did, from the command line to the lifecycles."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.tables import NEVER
from tests.support import devices
from tests.support.kernel_completions import SERVICE_THREADS, Completions
from tests.support.record_command import assert_ended, biotrail, count_events, fio_command, read

pytestmark = pytest.mark.usefixtures("needs_bpf", "fio")

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
    tmp_path: Path, unmerged: Any, completions: Completions, engine: str, depth: int, rw: str
) -> None:
    # GIVEN a direct job of a known size on a loop device
    loop_device = unmerged
    log, report = tmp_path / "job.biotrail", tmp_path / "fio.json"
    job = fio_command(
        loop_device.path, report, rw=rw, bs="4k", size="16m", ioengine=engine, iodepth=depth
    )
    # WHEN it is recorded and its log is associated
    truth = completions(loop_device.dev)
    biotrail("record", "-d", loop_device.name, "-o", log, "--", *job)
    result = devices.read_fio_report(report)["jobs"][0]
    found = read(log, truth.unseen_by(log))
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
    # AND completed, known from its pointers, but for those that no program was run for
    assert_ended(found)
    assert int((bios.complete == NEVER).sum()) == found.unseen.with_data()
    assert found.account.completions_not_seen <= len(found.unseen)
    # AND all that completed did so without an error
    whole = bios.take(bios.complete != NEVER)
    assert (whole.status == 0).all()
    assert (whole.done_bytes == whole.bytes).all()
    # AND nothing was lost, and every event has its place in the account
    assert not found.trace.reader.losses
    assert found.account.late == 0
    assert sum(found.account.by_reason().values()) == count_events(log)


@pytest.mark.long
def test_150_000_io_per_second_for_ten_seconds_without_a_loss(
    tmp_path: Path, loop_device: Any, completions: Completions
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
    truth = completions(loop_device.dev, tasks=SERVICE_THREADS)
    done = biotrail("record", "-d", loop_device.name, "-o", log, "--", *job)
    # THEN nothing was lost, and the log is small
    assert "LOST" not in done.stderr
    ios = devices.read_fio_report(report)["jobs"][0]["read"]["total_ios"]
    events = count_events(log)
    assert events >= 4 * ios - len(truth.in_service_threads())
    assert log.stat().st_size <= BYTES_PER_EVENT * events
