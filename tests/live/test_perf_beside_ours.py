# SPDX-License-Identifier: Apache-2.0
"""One load, recorded by perf and by biotrail at once: every bio is equal, or said to be inexact."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.pipeline import Trace
from tests.support import block_loads, devices, record_command
from tests.support.beside_others import Bio, bios, compare, held
from tests.support.devices import LoopDevice
from tests.support.perf_recording import needs_perf, perf_record
from tests.support.tool_tries import done_again_where_tools_failed

pytestmark = pytest.mark.usefixtures("needs_bpf")

Fio = Callable[..., dict[str, Any]]


@contextmanager
def both(tmp_path: Path, *paths: str, options: tuple[str, ...] = ()) -> Iterator[tuple[Path, Path]]:
    """Record some devices with biotrail, and everything with perf; gives (log, perf.data)."""
    needs_perf()
    log, data = tmp_path / "ours.biotrail", tmp_path / "perf.data"
    chosen = [word for path in paths for word in ("-d", path)]
    with record_command.recorder("-o", log, *chosen, "--events", "all") as process:
        with perf_record(data, *options):
            yield log, data
        record_command.stop(process, record_command.signal.SIGINT)


@pytest.mark.parametrize("options", [(), ("-z",), ("-g",)])
@done_again_where_tools_failed
def test_random_reads(
    fio: Fio, loop_device: LoopDevice, tmp_path: Path, options: tuple[str, ...]
) -> None:
    # GIVEN a recording by both, of perf also compressed, or with call chains
    with both(tmp_path, loop_device.path, options=options) as (log, data):
        # WHEN many reads are in flight
        block_loads.random_reads(fio, loop_device.path)
    # THEN all are equal, but for those that are said to be inexact
    assert held(log, data, loop_device.dev).equal > 1500


@pytest.mark.parametrize("scheduler", ["none", "mq-deadline"])
@done_again_where_tools_failed
def test_merges_and_splits(
    fio: Fio, loop_device: LoopDevice, tmp_path: Path, scheduler: str
) -> None:
    # GIVEN a device with small requests
    block_loads.schedule(loop_device, scheduler)
    with both(tmp_path, loop_device.path) as (log, data):
        # WHEN small writes come in order in batches, and large ones are over the limit
        block_loads.merges_and_splits(fio, loop_device.path)
    # THEN merges and splits are the same
    assert held(log, data, loop_device.dev).equal > 500


@done_again_where_tools_failed
def test_flushes_and_a_file_system(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a file system
    devices.make_ext4(loop_device.path)
    with both(tmp_path, loop_device.path) as (log, data):
        # WHEN files are written and made durable
        block_loads.durable_files(loop_device.path, tmp_path / "mounted")
    # THEN flushes, metadata and the journal are the same
    assert held(log, data, loop_device.dev).equal > 60


@done_again_where_tools_failed
def test_a_partition(fio: Fio, tmp_path: Path, needs_root: None) -> None:
    # GIVEN a disk with a partition
    with block_loads.partitioned() as (loop, path):
        with both(tmp_path, loop.path) as (log, data):
            # WHEN the partition is read
            fio(path, rw="randread", bs="4k", size="4m", ioengine="psync")
        # THEN its bios are the disk's, at the disk's sectors
        assert held(log, data, loop.dev).equal > 900


@done_again_where_tools_failed
def test_a_device_below_dm(fio: Fio, loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a linear mapping
    with block_loads.linear(loop_device) as path:
        with both(tmp_path, path, loop_device.path) as (log, data):
            # WHEN it is read and written
            fio(path, rw="randrw", bs="4k", size="4m", ioengine="libaio", iodepth=4)
        # THEN the bios of both devices are equal
        assert held(log, data, devices.dev_of(path), loop_device.dev).equal > 900


@pytest.mark.parametrize(
    "events",
    [
        "block:block_rq_issue,block:block_rq_complete",
        "block:block_rq_insert,block:block_rq_issue,block:block_rq_complete",
        "block:block_bio_queue,block:block_rq_issue,block:block_rq_complete",
    ],
)
@done_again_where_tools_failed
def test_a_few_events(fio: Fio, loop_device: LoopDevice, tmp_path: Path, events: str) -> None:
    # GIVEN a recording of perf with some events alone
    needs_perf()
    data = tmp_path / "perf.data"
    with perf_record(data, events=events):
        report = fio(loop_device.path, rw="randread", bs="4k", size="4m", ioengine="psync")
    trace = Trace(data)
    tables = list(trace.lifecycles())
    # THEN every read is a request with both its times
    ours = [(t.requests, t.requests.dev == loop_device.dev) for t in tables]
    ended = sum(int(((r.issue > 0) & (r.complete > r.issue) & rows).sum()) for r, rows in ours)
    done = report["jobs"][0]["read"]["total_ios"]
    assert ended == done
    # AND a bio, for which the request stands if block_bio_queue was not recorded
    assert sum(int((t.bios.dev == loop_device.dev).sum()) for t in tables) == done
    # AND what is missing is said
    missing = any("block_bio_queue" in r for r in trace.reader.remarks)
    assert missing == ("bio_queue" not in events)


def test_what_was_lost_makes_nothing_wrong(
    fio: Fio, loop_device: LoopDevice, tmp_path: Path
) -> None:
    # GIVEN a recording of perf with rings of a few pages
    few = ("-m", "4")
    began = time.monotonic_ns()
    with both(tmp_path, loop_device.path, options=few) as (log, data):
        # WHEN there is more I/O than they hold
        fio(loop_device.path, rw="randread", bs="4k", size="16m", ioengine="io_uring", iodepth=16)
    # THEN the bios that it has are right, or said to be inexact
    found = compare(bios(log, [loop_device.dev]), bios(data, [loop_device.dev]))
    assert not found.wrong, found.wrong[:3]
    # AND those that it lacks were lost
    trace = Trace(data)
    list(trace.events())
    assert trace.losses or not found.numbers
    # AND that is dated, perhaps after the last event: by the first record that had room again
    dates = [(loss["start"], loss["end"]) for loss in trace.losses]
    ended = time.monotonic_ns()
    assert [d for d in dates if not began <= d[0] <= d[1] <= ended] == []


QUEUE_TO_END = "block:block_bio_queue,block:block_rq_issue,block:block_rq_complete"


@pytest.mark.parametrize(
    "others",
    [
        "",
        ",block:block_rq_insert",
        ",block:block_getrq",
        ",block:block_bio_backmerge,block:block_bio_frontmerge,block:block_split",
    ],
)
@done_again_where_tools_failed
def test_bios_of_a_few_events(
    fio: Fio, loop_device: LoopDevice, tmp_path: Path, others: str
) -> None:
    # GIVEN a recording of perf without some or all of merges, splits, allocations, insertions
    needs_perf()
    block_loads.schedule(loop_device, "mq-deadline")
    log, data = tmp_path / "ours.biotrail", tmp_path / "perf.data"
    chosen = ("-d", loop_device.path, "--events", "all")
    with record_command.recorder("-o", log, *chosen) as process:
        with perf_record(data, events=QUEUE_TO_END + others):
            # WHEN bios are merged and split
            block_loads.random_reads(fio, loop_device.path)
            block_loads.merges_and_splits(fio, loop_device.path)
        record_command.stop(process, record_command.signal.SIGINT)
    # THEN all that is told of their issue, end and request is right
    found = compare(*(_issue_and_end(bios(one, [loop_device.dev])) for one in (log, data)))
    assert not found.wrong, found.wrong[:3]
    assert not found.numbers, found.numbers[:3]
    assert found.equal > 1500


def _issue_and_end(found: list[Bio]) -> list[Bio]:
    """Return the bios with the last two of their steps alone, which all recordings have."""
    return [replace(bio, steps=bio.steps[-2:]) for bio in found]
