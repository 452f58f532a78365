# SPDX-License-Identifier: Apache-2.0
"""The report beside what fio measured itself, for each I/O of a live load."""

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.support.devices import MEBIBYTE, Fio, LoopDevice
from tests.support.kernel_completions import Completions
from tests.support.record_command import Log, assert_ended, biotrail, in_json, read, recorded

pytestmark = pytest.mark.usefixtures("needs_bpf")

BLOCK = 4096
SIZE = 16 * MEBIBYTE


def measured(prefix: Path) -> dict[tuple[int, int], int]:
    """fio's latency (submission and completion), ns, by (0 read or 1 write, offset)."""
    with Path(f"{prefix}_lat.1.log").open(encoding="utf-8", newline="") as log:
        rows = [[int(cell, 0) for cell in row[:5]] for row in csv.reader(log)]
    return {(direction, offset): latency for _, latency, direction, _, offset in rows}


def latencies(found: Log) -> dict[tuple[int, int], int]:
    """(0: read, 1: write; offset in bytes) → ns from Q to C, of the ended bios of one block."""
    bios = found.bios
    ended = (bios.queue >= 0) & (bios.complete >= 0) & (bios.bytes == BLOCK)
    codes, names = found.context.op_codes(bios.opf)
    direction = np.array([("read", "write").index(name) for name in names])[codes]
    return {
        (which, sector * 512): took
        for which, sector, took in zip(
            direction[ended].tolist(),
            bios.sector[ended].tolist(),
            (bios.complete - bios.queue)[ended].tolist(),
            strict=True,
        )
    }


@pytest.mark.parametrize("engine", ["io_uring", "libaio"])
def test_no_io_took_longer_than_fio_waited_for_it(
    loop_device: LoopDevice, fio: Fio, completions: Completions, tmp_path: Path, engine: str
) -> None:
    # GIVEN a load that reads or writes each block once, and fio's latency of each
    log, prefix = tmp_path / "disk.biotrail", tmp_path / "fio"
    truth = completions(loop_device.dev)
    with recorded("-d", loop_device.path, "-o", log):
        job = fio(
            loop_device.path,
            rw="randrw",
            bs=BLOCK,
            size=SIZE,
            ioengine=engine,
            iodepth=8,
            write_lat_log=prefix,
            log_offset=True,
            clocksource="clock_gettime",
        )["jobs"][0]
    theirs = measured(prefix)
    # WHEN it was recorded
    found = read(log, truth.unseen_by(log))
    mine = latencies(found)
    # THEN each bio is fio's I/O at that offset, and took no longer than fio waited
    assert len(theirs) == SIZE // BLOCK
    assert mine.keys() <= theirs.keys()
    # AND has its end, but for those whose completion no program was run for
    assert_ended(found)
    assert len(theirs) - len(mine) == found.unseen.with_data()
    differences = np.array([theirs[key] - took for key, took in mine.items()])
    print(f"\n{engine}: fio waited {differences.mean():,.0f} ns longer than Q2C, on average")
    assert differences.min() >= 0
    # AND the report has fio's numbers of I/Os and bytes
    told = in_json("report", log)
    [device] = told["devices"]
    operations = {one["operation"]: one for one in device["operations"]}
    for name in ("read", "write"):
        assert operations[name]["ios"] == job[name]["total_ios"]
        assert operations[name]["bytes"] == job[name]["io_bytes"]
        own = [took for (which, _), took in mine.items() if which == (name == "write")]
        latency = operations[name]["latency"]
        assert (latency["count"], latency["sum_ns"]) == (len(own), sum(own))
        for share, field in ((0.5, "p50_ns"), (0.99, "p99_ns"), (0.999, "p99_9_ns")):
            exact = np.quantile(own, share, method="inverted_cdf")
            assert abs(latency[field] - exact) <= exact * told["percentiles"]["relative_error"]


def test_tries_that_fail_at_once_are_none_of_fios_ios(
    loop_device: LoopDevice, fio: Fio, tmp_path: Path
) -> None:
    # GIVEN io_uring with more I/O at once than the device has requests
    queue = Path("/sys/block", loop_device.name, "queue")
    (queue / "scheduler").write_text("mq-deadline")
    (queue / "nr_requests").write_text("4")
    log = tmp_path / "disk.biotrail"
    with recorded("-d", loop_device.path, "-o", log):
        job = fio(
            loop_device.path,
            rw="randrw",
            bsrange="4k-64k",
            size=SIZE,
            ioengine="io_uring",
            iodepth=32,
        )["jobs"][0]
    # WHEN it is reported on
    told = in_json("report", log)
    # THEN there were tries that failed at once, and the I/Os and bytes are fio's all the same
    assert told["total"]["tries"] > 0
    [device] = told["devices"]
    for one in device["operations"]:
        assert one["ios"] == job[one["operation"]]["total_ios"]
        assert one["bytes"] == job[one["operation"]]["io_bytes"]
    assert "AGAIN" not in told["total"]["errors"]


def test_rates_are_of_the_recorded_time(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN a recording of one program's 100 writes with idle time before and after them
    log = tmp_path / "idle.biotrail"
    dd = f"dd if=/dev/zero of={loop_device.path} bs=4k count=100 oflag=direct status=none"
    command = ["sh", "-c", f"sleep 0.5; {dd}; sleep 0.5"]
    biotrail("record", "-q", "-d", loop_device.path, "--comm", "dd", "-o", log, "--", *command)
    # WHEN it is reported on
    found = in_json("report", log)
    # THEN its time is that for which the recorder ran, within what attaching takes, and the rates
    # are of that time
    end = read(log).trace.reader.end
    assert end is not None
    assert found["time"]["span_ns"] >= end["seconds"] * 1e9 >= 1e9
    writes = found["total"]["ios"]
    assert writes >= 100
    rate = writes * 1e9 / found["time"]["span_ns"]
    assert found["total"]["ios_per_s"] == pytest.approx(rate, abs=1e-2)
    # and the device was idle for most of it
    [device] = found["devices"]
    assert device["depth"]["queue"]["idle_ns"] >= 0.9e9
    assert "mostly-idle" in {one["rule"] for one in found["verdict"]}
