# SPDX-License-Identifier: Apache-2.0
"""io_uring and aio of real I/O: fio's I/Os, each with its bios, its submission, its completion."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.path_tables import BioPaths
from biotrail.converters.events.submission_tables import Joined, Runner, Submissions
from biotrail.converters.events.tables import NEVER
from biotrail.converters.pipeline import Trace
from biotrail.recorder.accounting.loss import NOT_ONE_CPU
from biotrail.recorder.log import LogReader
from biotrail.recorder.schema.records import Kind
from tests.support import devices
from tests.support.devices import LoopDevice
from tests.support.path_disks import Disk
from tests.support.record_command import biotrail, fio_command
from tests.support.submission_logs import submissions_of

pytestmark = pytest.mark.usefixtures("needs_bpf")

KIB = 1024
HOLE, BETWEEN_HOLES = 4 * KIB, 512 * KIB
READ, FSYNC = 22, 3
"""Operations of io_uring."""


@dataclass
class Recorded:
    """What was recorded of a load of fio, and what fio says of it."""

    rows: Submissions
    paths: BioPaths
    log: Path
    account: dict[str, Any]


@dataclass
class Place:
    """A loop device, or a file of 8 MiB on ext4 on one."""

    device: devices.LoopDevice
    path: str
    directory: Path

    def record(self, *arguments: str, **job: Any) -> Recorded:
        """Record fio's load. arguments: further ones of `record`; job: fio's."""
        report, log = self.directory / "fio.json", self.directory / "log"
        load = {"rw": "randread", "bs": "4k", "size": "8m", "thread": True, "direct": 1, **job}
        command = fio_command(self.path, report, **load)
        on = ("record", "-f", "-d", self.device.path, "-o", log)
        # Calls of other processes, whatever they cost, must not end the timing.
        path = ("--path=call,time,uring", "--call-budget=0")
        biotrail(*on, *path, *arguments, "--", *command)
        reader = LogReader(log)
        # (Programs that the kernel skips where they run already may be of others' submissions.)
        assert all(loss["cpu"] == NOT_ONE_CPU for loss in reader.losses)
        assert reader.header["path"] == {"parts": ["call", "time", "uring"], "missing": []}
        (account,) = devices.read_fio_report(report)["jobs"]
        return Recorded(*submissions_of(log), log, account)


@pytest.fixture
def raw(loop_device: LoopDevice, tmp_path: Path) -> Place:
    return Place(loop_device, loop_device.path, tmp_path)


@pytest.fixture
def file(disk: Disk, tmp_path: Path) -> Place:
    return Place(disk.device, str(disk.prepare("file", 8 << 20)), tmp_path)


def check_times(rows: Submissions) -> None:
    """Submission, Q, end, completion and return are in this order, where they are known."""
    for first, second in (
        (rows.submitted, rows.queued),
        (rows.queued, rows.ended),
        (rows.ended, rows.completed),
        (rows.queued, rows.completed),
        (rows.completed, rows.reaped),
    ):
        known = (first != NEVER) & (second != NEVER)
        assert (first <= second)[known].all()


def check_each(found: Recorded, runner: Runner, count: int, length: int) -> None:
    """Each of `count` I/Os of fio has a submission, its completion with all bytes, and one bio."""
    rows = found.rows
    assert len(rows) == count == len(np.unique(rows.number))
    assert set(rows.runner.tolist()) == {runner}
    assert (rows.bios == 1).all()
    assert (rows.bytes == length).all()
    assert (rows.completed != NEVER).all()
    assert (rows.result == length).all()
    mine = found.paths.submission[found.paths.submission >= 0]
    assert sorted(mine.tolist()) == sorted(rows.number.tolist())
    check_times(rows)


def test_a_hundred_in_flight_are_kept_apart(raw: Place) -> None:
    # GIVEN fio with 128 direct reads in flight on a loop device WHEN its submissions are read
    found = raw.record(ioengine="io_uring", iodepth=128, io_size="32m")
    rows = found.rows
    # THEN each of its I/Os is one, with one bio, known by its iocb
    check_each(found, Runner.INLINE, found.account["read"]["total_ios"], 4 * KIB)
    assert set(rows.opcode.tolist()) == {READ}
    assert set(rows.joined.tolist()) == {Joined.IOCB}
    assert (rows.submitted != NEVER).all()
    # AND the length is the bio's, descriptor and ring are the same for all
    assert (rows.length == 4 * KIB).all()
    assert len(np.unique(rows.fd)) == len(np.unique(rows.ring)) == 1
    # AND user data tells apart what is in flight: each is used again only after its completion
    for data in np.unique(rows.user_data):
        mine = rows.take(rows.user_data == data)
        mine = mine.take(np.argsort(mine.submitted))
        assert (mine.submitted[1:] >= mine.completed[:-1]).all()
    # AND many are in flight at once
    assert most_in_flight(rows) > 64
    # AND within what fio saw, from before the submission to after the completion
    seen = found.account["read"]["lat_ns"]
    assert (rows.completed - rows.submitted).mean() <= seen["mean"]
    assert (rows.completed - rows.submitted).max() <= seen["max"]
    # AND each one's offset is the place of its bio
    windows = list(Trace(found.log).lifecycles())
    sector = np.concatenate([window.bios.sector for window in windows]).astype(np.int64)
    number = np.concatenate([window.bios.number for window in windows])
    order = np.argsort(number)
    place = order[np.searchsorted(number, rows.number, sorter=order)]
    assert (sector[place] * 512 == rows.offset).all()
    # AND report and table have fio's I/Os
    text = " ".join(biotrail("report", found.log).stdout.split())
    lines = biotrail("export", "--what", "submissions", "--format", "csv", "-o", "-", found.log)
    assert "io_uring and aio, from submission to completion" in text
    assert len(lines.stdout.splitlines()) == found.account["read"]["total_ios"] + 1


def most_in_flight(rows: Submissions) -> int:
    """The largest number of submissions between submission and completion at one time."""
    times = np.concatenate([rows.submitted, rows.completed])
    steps = np.repeat([1, -1], len(rows))
    return int(np.cumsum(steps[np.lexsort((steps, times))]).max())


@pytest.mark.parametrize(
    ("runner", "how"),
    [
        (Runner.WORKER, {"force_async": 1}),
        (Runner.SQPOLL, {"sqthread_poll": 1}),
    ],
)
def test_workers_and_polling_threads_queue_for_the_program(
    file: Place, runner: Runner, how: dict[str, int]
) -> None:
    # GIVEN fio whose requests io_uring's own threads run WHEN its submissions are read
    found = file.record(ioengine="io_uring", iodepth=32, **how)
    # THEN each is known by its iocb, with the thread that queued it
    check_each(found, runner, found.account["read"]["total_ios"], 4 * KIB)
    assert (found.rows.submitted != NEVER).all()
    assert set(found.rows.joined.tolist()) == {Joined.IOCB}


def test_a_request_of_several_bios_is_one(file: Place) -> None:
    # GIVEN a file with a hole every 512 KiB, and so an extent and a bio for what is between them
    for offset in range(0, 8 << 20, BETWEEN_HOLES):
        where = ("--offset", str(offset), "--length", str(HOLE))
        devices.run("fallocate", "--punch-hole", *where, file.path)
    devices.run("sync", file.path)
    # WHEN it is read, 2 MiB at a time
    found = file.record(ioengine="io_uring", iodepth=4, bs="2m", io_size="32m")
    # THEN each is one submission with all bios
    rows = found.rows
    assert len(rows) == found.account["read"]["total_ios"] == 16
    holes = (2 << 20) // BETWEEN_HOLES
    assert (rows.bios >= holes).all()
    assert (rows.bytes == (2 << 20) - holes * HOLE).all()
    assert (rows.result == 2 << 20).all()
    assert int(rows.bios.sum()) == (found.paths.submission >= 0).sum()
    check_times(rows)


def test_reads_through_the_page_cache_are_of_the_thread_that_issues_them(file: Place) -> None:
    # GIVEN random reads of a file that is not cached, through the page cache
    found = file.record(ioengine="io_uring", iodepth=16, direct=0, invalidate=1, io_size="4m")
    rows = found.rows
    # WHEN they are read THEN submissions with bios are fio's reads, fewer than all: some hit
    assert 0 < len(rows) <= found.account["read"]["total_ios"]
    assert set(rows.joined.tolist()) <= {Joined.THREAD, Joined.WORKER}
    assert (rows.completed != NEVER).all()
    check_times(rows)
    # AND what is cached has no record
    again = file.record(ioengine="io_uring", iodepth=16, direct=0, invalidate=0, loops=2)
    kinds = np.concatenate([events.kind for events, _ in Trace(again.log).events()])
    reads = again.account["read"]["total_ios"]
    assert (kinds == Kind.RING_COMPLETE).sum() == len(again.rows) < reads


def test_an_fsync_of_a_worker_is_a_submission(file: Place) -> None:
    # GIVEN writes to the page cache with fsync, by io_uring WHEN they are read
    job = {"rw": "randwrite", "direct": 0, "fsync": 8, "io_size": "1m"}
    found = file.record(ioengine="io_uring", iodepth=4, **job)
    rows = found.rows.take(found.rows.opcode == FSYNC)
    # THEN fsyncs that wrote are known by the worker, with what they wrote
    assert 0 < len(rows) <= found.account["sync"]["total_ios"]
    assert set(rows.joined.tolist()) == {Joined.WORKER}
    assert (rows.result == 0).all()
    assert rows.bytes.sum() > 0
    check_times(rows)


def test_filters_hold_for_submissions(file: Place) -> None:
    # GIVEN reads and writes, of which writes alone are recorded WHEN they are read
    found = file.record("--op", "write", ioengine="io_uring", iodepth=8, rw="randrw")
    kinds = np.concatenate([events.kind for events, _ in Trace(found.log).events()])
    # THEN the submissions are fio's writes, and so are the completions
    writes = found.account["write"]["total_ios"]
    assert len(found.rows) == writes == (kinds == Kind.RING_COMPLETE).sum()
    assert found.rows.writes.all()


def test_iocbs_of_aio_on_a_file(file: Place) -> None:
    # GIVEN direct reads and writes by libaio of a file WHEN they are read
    found = file.record(ioengine="libaio", iodepth=64, rw="randrw")
    rows = found.rows
    # THEN each is one, with its call's entry as submission
    assert rows.aio.all()
    writes = int(rows.writes.sum())
    assert writes == found.account["write"]["total_ios"]
    assert len(rows) - writes == found.account["read"]["total_ios"]
    assert set(rows.joined.tolist()) == {Joined.IOCB}
    assert (rows.submitted != NEVER).all()
    check_times(rows)
    # AND those have a completion that a program could see: not all of a loop device's
    done = rows.take(rows.completed != NEVER)
    assert len(done) > 0
    assert (done.result == 4 * KIB).all()


def test_iocbs_of_aio_on_a_device(raw: Place) -> None:
    # GIVEN direct reads by libaio of a device, of several bios each WHEN they are read
    found = raw.record(ioengine="libaio", iodepth=8, bs="2m", io_size="32m")
    rows = found.rows
    # THEN each is one; nothing is said of completions, which the kernel does not report
    assert len(rows) == found.account["read"]["total_ios"] == 16
    assert (rows.bytes == 2 << 20).all()
    assert (rows.completed == NEVER).all()
