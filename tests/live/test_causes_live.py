# SPDX-License-Identifier: Apache-2.0
"""Provoked causes are named: floods, few requests, plugged batches, shared flushes, requeues."""

import csv
import mmap
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support import devices
from tests.support.devices import MEBIBYTE, Fio, LoopDevice, MakeLoop
from tests.support.held_batch import BLOCK, COPIED, held_writes
from tests.support.holding import (
    frozen,
    in_flight,
    on_a_file_system,
    waits_for_the_disk,
    write,
)
from tests.support.kernel_completions import done_again
from tests.support.record_command import (
    SECONDS,
    biotrail,
    in_json,
    recorded,
    recorder,
    stop,
    wait_until,
)

pytestmark = pytest.mark.usefixtures("needs_bpf")

HELD_NS = 200_000_000
FEW = 4
FSYNCS = 8
INDIRECT = 28
"""VIRTIO_RING_F_INDIRECT_DESC: with it, a request takes one descriptor of the ring."""


@pytest.fixture
def held(tmp_path: Path, make_loop: MakeLoop) -> Iterator[tuple[LoopDevice, Path]]:
    """A loop device, and the file system below it that can be frozen."""
    where = tmp_path / "lower"
    with on_a_file_system(make_loop, where) as device:
        yield device, where


def report_of(log: Path) -> Any:
    """The only device's part of the report."""
    [found] = in_json("report", log)["devices"]
    return found


def stages_of(device: dict[str, Any], operation: str) -> dict[str, Any]:
    [one] = [o for o in device["operations"] if o["operation"] == operation]
    return {stage["stage"]: stage for stage in one["stages"]}


def slow_ios(log: Path, *options: str) -> list[dict[str, Any]]:
    told: dict[str, list[dict[str, Any]]]
    told = in_json("slow", *options, log)
    return told["ios"]


def longest(slow: dict[str, Any]) -> Any:
    return max(slow["io"]["stages"], key=lambda span: span["ns"])


@done_again
def test_a_write_flood_under_a_scheduler_is_named(
    tmp_path: Path, held: tuple[LoopDevice, Path]
) -> None:
    # GIVEN a device with mq-deadline that does not answer, and more writes than it has tags
    (device, where), log = held, tmp_path / "a.biotrail"
    sysfs = Path("/sys/block") / device.name
    (sysfs / "queue" / "scheduler").write_text("mq-deadline")
    tags = int((sysfs / "mq" / "0" / "nr_tags").read_text())
    options = {"rw": "write:4k", "bs": "4k", "ioengine": "libaio", "iodepth": tags + 32}
    flood = ["fio", *devices.fio_arguments(device.path, number_ios=tags + 32, **options)]
    one_read = ["dd", f"if={device.path}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"]
    with recorded("-d", device.name, "-o", log):
        with frozen(where):
            writing = subprocess.Popen(flood, stdout=subprocess.DEVNULL, cwd=tmp_path)
            wait_until(lambda: in_flight(device.name) == tags, "not all tags are in use")
            # WHEN a block is read that lies behind them
            reading = subprocess.Popen([*one_read, "skip=2000", "status=none"])
            wait_until(lambda: waits_for_the_disk(reading), "the read does not wait")
            time.sleep(2 * HELD_NS / 1e9)
        assert [p.wait(SECONDS) for p in (reading, writing)] == [0, 0]
    # THEN the read waited in the scheduler
    chosen = ("--op", "read", "--over", f"{HELD_NS}ns")
    [slow] = slow_ios(log, *chosen)
    assert longest(slow)["stage"] == "I2D"
    # AND it is told what had the device, and that nothing of it was done
    issued_before, queued = slow["surroundings"]["ahead"], slow["surroundings"]["when_queued"]
    assert queued["requests_in_device"] == queued["in_device"]["operations"]["write"]["ios"] == tags
    assert queued["waiting"]["ios"] <= 32 and issued_before["ios"] <= 32
    # AND people are told so
    text = biotrail("slow", *chosen, log).stdout
    assert "waited in the scheduler" in text
    assert "scheduler mq-deadline" in text
    assert f"{tags} in the device ({tags} write" in text
    # AND the report has most of the reads' time there
    stages = stages_of(report_of(log), "read")
    assert max(stages, key=lambda name: stages[name]["share"]) == "I2D"


@done_again
def test_the_scheduler_is_where_a_flood_waits(
    tmp_path: Path, loop_device: LoopDevice, fio: Fio
) -> None:
    # GIVEN a device with mq-deadline, which has twice as many requests as tags
    sysfs = Path("/sys/block") / loop_device.name
    (sysfs / "queue" / "scheduler").write_text("mq-deadline")
    tags = int((sysfs / "mq" / "0" / "nr_tags").read_text())
    job = {"rw": "randwrite", "bs": "64k", "ioengine": "libaio", "number_ios": 3000}
    means = {}
    for depth in (4, 2 * tags):
        # WHEN few writes, or a flood of them are queued at once
        log = tmp_path / f"{depth}.biotrail"
        with recorded("-d", loop_device.name, "-o", log):
            fio(loop_device.path, iodepth=depth, norandommap=True, **job)
        means[depth] = stages_of(report_of(log), "write")["I2D"]["mean_ns"]
    # THEN the report has the difference in the scheduler
    assert means[2 * tags] > 10 * means[4]


@done_again
def test_writes_that_joined_a_request_wait_in_the_scheduler(
    tmp_path: Path, held: tuple[LoopDevice, Path]
) -> None:
    # GIVEN a device with mq-deadline that does not answer, and requests for two blocks each
    (device, where), log = held, tmp_path / "a.biotrail"
    sysfs = Path("/sys/block") / device.name
    (sysfs / "queue" / "scheduler").write_text("mq-deadline")
    (sysfs / "queue" / "nr_requests").write_text("1024")
    (sysfs / "queue" / "max_sectors_kb").write_text("8")
    tags = int((sysfs / "mq" / "0" / "nr_tags").read_text())
    writes = 12 * tags
    # WHEN adjacent writes are submitted in batches, six times as many requests as it has tags
    options = {"rw": "write", "bs": "4k", "ioengine": "libaio", "iodepth": writes}
    batches = {"iodepth_batch_submit": 16, "number_ios": writes}
    with recorded("-d", device.name, "-o", log):
        with frozen(where):
            arguments = devices.fio_arguments(device.path, **batches, **options)
            writing = subprocess.Popen(["fio", *arguments], stdout=subprocess.DEVNULL, cwd=tmp_path)
            wait_until(lambda: in_flight(device.name) == tags, "not all tags are in use")
            time.sleep(2 * HELD_NS / 1e9)
        assert writing.wait(SECONDS) == 0
    # THEN those that joined another's request waited in the scheduler, not in the task's plug
    text = biotrail("export", "-f", "-o", tmp_path / "bios.csv", log).stdout
    with (tmp_path / "bios.csv").open() as file:
        merged = [row for row in csv.DictReader(file) if row["merge_ns"] and row["d2c_ns"]]
    assert len(merged) > writes / 4, text
    plugged, scheduled = (
        sum(int(row[name] or 0) for row in merged for name in names)
        for names in (("m2i_ns", "m2d_ns"), ("i2d_ns",))
    )
    assert scheduled > 10 * plugged
    # AND the first sentence says the scheduler's queue
    [first, *_] = in_json("report", log)["verdict"]
    assert (first["rule"], first["figures"]["stages"]) == ("main-part", ["I2D"])


@done_again
def test_a_plugged_batch_is_named(tmp_path: Path, loop_device: LoopDevice) -> None:
    # GIVEN a file in memory, whose reading takes a while
    log, cached = tmp_path / "a.biotrail", devices.SHM / f"{loop_device.backing.name}.cached"
    writes = 8
    try:
        devices.run("fallocate", "-l", str(COPIED), cached)
        with recorded("-d", loop_device.name, "-o", log):
            # WHEN a batch has adjacent writes first and then such reads; and one without reads
            held_writes(loop_device.path, writes, cached, reads=16)
            held_writes(loop_device.path, writes, cached, reads=0)
    finally:
        cached.unlink(missing_ok=True)
    # THEN the writes of the first, one request, waited for their issue alone
    slow = slow_ios(log, "--op", "write")
    assert [s["io"]["bytes"] for s in slow] == [BLOCK] * (2 * writes)
    held = sorted(slow[:writes], key=lambda s: int(s["io"]["sector"]))
    assert {len(s["mates"]) for s in held} == {writes - 1}
    assert [longest(s)["stage"] for s in held] == ["G2D"] + ["M2D"] * (writes - 1)
    # AND for much longer than those of the second
    waits = [next(x["ns"] for x in s["io"]["stages"] if x["stage"] in ("M2D", "G2D")) for s in slow]
    assert min(waits[:writes]) > 4 * max(waits[writes:])
    # AND people are told why
    text = biotrail("slow", "--top", str(writes), log).stdout
    assert text.count("had joined a request that was held back (plugged)") == writes - 1
    # AND the report has most of the writes' time there
    stages = stages_of(report_of(log), "write")
    assert max(stages, key=lambda name: stages[name]["share"]) == "M2D"


@done_again
def test_flushes_that_share_are_named(tmp_path: Path, held: tuple[LoopDevice, Path]) -> None:
    # GIVEN a write that the device does not answer, and that ends with a flush (FUA)
    (device, where), log = held, tmp_path / "a.biotrail"
    write = ["dd", "if=/dev/zero", f"of={device.path}", "bs=4k", "count=1", "status=none"]
    with recorded("-d", device.name, "-o", log):
        with frozen(where):
            writing = subprocess.Popen([*write, "oflag=direct,dsync"])
            wait_until(lambda: in_flight(device.name) == 1, "the write does not begin")
            # WHEN several tasks fsync the device meanwhile: the kernel has them wait for the data
            syncing = [subprocess.Popen(["sync", "--data", device.path]) for _ in range(FSYNCS)]
            wait_until(lambda: all(map(waits_for_the_disk, syncing)), "not all tasks wait")
        assert [p.wait(SECONDS) for p in (writing, *syncing)] == [0] * (1 + FSYNCS)
    # THEN one flush served all of them, and the write
    found = report_of(log)
    flushes = found["flushes"]
    assert flushes["waits"] >= 1 + FSYNCS
    assert max(map(int, flushes["shared"])) >= 1 + FSYNCS
    assert flushes["requests"] < flushes["waits"] - FSYNCS + 1
    # AND the fsyncs' time is told as waiting for a flush
    assert stages_of(found, "flush")["flush"]["count"] >= FSYNCS
    # AND people are told so
    text = biotrail("report", log).stdout
    assert "Flush requests, and how many bios waited for each" in text
    assert f"{1 + FSYNCS}: 1" in text
    assert "waited for a flush" in biotrail("slow", "--op", "flush", log).stdout


@done_again
def test_a_request_that_the_driver_gave_back_is_named(tmp_path: Path, make_loop: MakeLoop) -> None:
    # GIVEN a loop device with direct I/O, whose file ends in the midst of what is read
    device = make_loop(size=2 * MEBIBYTE, direct_io=True)
    if Path(f"/sys/block/{device.name}/loop/dio").read_text().strip() != "1":
        pytest.skip("no direct I/O on a loop device here")
    os.truncate(device.backing, MEBIBYTE)
    log = tmp_path / "a.biotrail"
    with recorded("-d", device.name, "-o", log):
        # WHEN it is read: the driver completes a part, and gives the request back for the rest
        disk = os.open(device.path, os.O_RDONLY | os.O_DIRECT)
        with mmap.mmap(-1, 2 * BLOCK) as memory, pytest.raises(OSError, match="Input/output"):
            os.preadv(disk, [memory], MEBIBYTE - BLOCK)
        os.close(disk)
    # THEN the I/O is told with its requeue, and how long it waited for its next issue
    [slow] = slow_ios(log, "--failed")
    assert [s["stage"] for s in slow["io"]["stages"]][-3:] == ["D2C", "R2D", "D2C"]
    assert slow["io"]["requeues"] == 1
    assert [r["requeues"] for r in slow["requests"]] == [1]
    # AND people are told so
    text = biotrail("slow", "--failed", log).stdout
    assert "ended with IOERR, 4.0 KiB done; 1 requeue" in text
    # AND the report counts it, and has the time of it
    found = report_of(log)
    assert found["events"]["requeues"] == 1
    assert stages_of(found, "read")["R2D"]["count"] == 1


def disk_whose_ring_fills(directory: Path) -> str:
    """The disk below the directory: virtio, and each request takes several places of its ring."""
    dev = os.stat(directory).st_dev
    disk = Path(f"/sys/dev/block/{os.major(dev)}:{os.minor(dev)}").resolve()
    disk = disk.parent if (disk / "partition").exists() else disk
    features = disk / "device" / "features"
    if disk.name.startswith("vd") and features.read_text()[INDIRECT] == "0":
        return disk.name
    pytest.skip("needs a virtio disk whose ring fills before its tags do")


def test_a_full_ring_is_named(tmp_path: Path, fio: Fio) -> None:
    # GIVEN a file on a disk with more tags than its ring has room for
    disk, log = disk_whose_ring_fills(tmp_path), tmp_path / "a.biotrail"
    file = tmp_path / "file"
    devices.run("dd", "if=/dev/zero", f"of={file}", "bs=1M", "count=16", "conv=fsync")
    with recorded("-d", disk, "-o", log):
        # WHEN many of its blocks are read at once
        job = {"rw": "randread", "bs": "64k", "size": "16m", "loops": 4}
        fio(file, ioengine="libaio", iodepth=128, **job)
    # THEN the report counts the requests that the driver gave back, and has their time
    found = report_of(log)
    [reads] = [o for o in found["operations"] if o["operation"] == "read"]
    [again] = [s["count"] for s in reads["requests"]["stages"] if s["stage"] == "R2D"]
    assert 0 < again <= found["events"]["requeues"]
    assert stages_of(found, "read")["R2D"]["count"] >= again
    # AND some I/O is told with its own
    text = biotrail("slow", "--op", "read", "--top", "500", "--brief", log).stdout
    assert " requeue" in text


@done_again
def test_a_queue_with_few_requests_is_named(tmp_path: Path, held: tuple[LoopDevice, Path]) -> None:
    # GIVEN a device with four requests, which does not answer for a while
    (device, where), log = held, tmp_path / "a.biotrail"
    Path(f"/sys/block/{device.name}/queue/nr_requests").write_text(str(FEW))
    with recorded("-d", device.name, "-o", log):
        with frozen(where):
            # WHEN eight writes are sent at once
            writing = [write(device.path, 8 * n) for n in range(2 * FEW)]
            wait_until(lambda: in_flight(device.name) == FEW, "not all requests are in use")
            wait_until(lambda: all(map(waits_for_the_disk, writing)), "not all writes wait")
            time.sleep(2 * HELD_NS / 1e9)
        assert [w.wait(SECONDS) for w in writing] == [0] * len(writing)
    slow = slow_ios(log, "--over", f"{HELD_NS}ns", "--op", "write")
    # THEN half of them waited for the device, the others for a request, all of which were in use
    spans = [{s["stage"] for s in one["io"]["stages"] if s["ns"] >= HELD_NS} for one in slow]
    assert len(slow) == 2 * FEW
    assert sum("D2C" in stages for stages in spans) == FEW
    waited = [one for one, stages in zip(slow, spans, strict=True) if "Q2G" in stages]
    assert len(waited) == FEW
    queued = [s["surroundings"]["when_queued"] for s in waited]
    assert max(q["requests_allocated"] for q in queued) == FEW
    # AND people are told so
    text = biotrail("slow", "--over", "200ms", "--op", "write", log).stdout
    assert "waited for a request" in text
    assert f"{FEW} requests in use (all that nr_requests allows)" in text


@done_again
def test_a_slow_device_below_is_named(tmp_path: Path, make_loop: MakeLoop) -> None:
    # GIVEN a loop device with direct I/O over a file system on a device that does not answer
    first, second, log = tmp_path / "first", tmp_path / "second", tmp_path / "a.biotrail"
    with ExitStack() as stack:
        lower = stack.enter_context(on_a_file_system(make_loop, first, 32 * MEBIBYTE))
        devices.make_ext4(lower.path)
        stack.enter_context(devices.mounted(lower.path, second))
        upper = stack.enter_context(devices.loop(4 * MEBIBYTE, True, second))
        if Path(f"/sys/block/{upper.name}/loop/dio").read_text().strip() != "1":
            pytest.skip("no direct I/O on a loop device here")
        # Written once: later writes need no change of the file system.
        devices.run("dd", "if=/dev/zero", f"of={upper.path}", "bs=1M", "count=4", "oflag=direct")
        devices.run("sync")
        with recorder("-d", upper.name, "--below", "-o", log) as process:
            # WHEN a write to the upper one waits for the lower one
            with frozen(first):
                writing = write(upper.path, 800)
                wait_until(lambda: in_flight(upper.name) > 0, "the write does not begin")
                time.sleep(2 * HELD_NS / 1e9)
            assert writing.wait(SECONDS) == 0
            status, said = stop(process, signal.SIGINT)
    assert status == 0, said
    # THEN the upper one's I/O is told with the lower one's, which took the time
    chosen = ("slow", "--over", "200ms", "--op", "write")
    slow = slow_ios(log, *chosen[1:])
    ours = next(s for s in slow if s["io"]["device"] == upper.name)
    assert longest(ours)["stage"] == "D2C"
    below = [child for child in ours["children"] if child["device"] == lower.name]
    assert max(child["waited_ns"] for child in below) >= HELD_NS
    assert "most of that was the lower device's" in biotrail(*chosen, log).stdout
