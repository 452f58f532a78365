# SPDX-License-Identifier: Apache-2.0
"""Reads that a cgroup's limit holds before they are queued, on this machine's cgroups."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import record_command
from tests.support.block_loads import partitioned
from tests.support.devices import Fio, LoopDevice, read_fio_report
from tests.support.file_systems import mounted
from tests.support.record_command import biotrail, in_json, recorder
from tests.support.throttling import NAME, limiting, throttled

pytestmark = [
    pytest.mark.alone,  # or most of what calls wait for is other tests' I/O
    pytest.mark.usefixtures("needs_bpf", "fio"),
    pytest.mark.skipif(limiting() is None, reason="this machine's cgroups limit no I/O"),
]

READS, A_SECOND = 40, 20


def recorded(loop: LoopDevice, place: Path, *options: str, **job: object) -> dict[str, Any]:
    """fio's report of reads in a limited cgroup, which `place`/log is the recording of."""
    words = {
        **{"name": "job", "filename": loop.path, "rw": "randread", "bs": "4k", "direct": 1},
        **{"size": f"{4 * READS}k", "ioengine": "psync", "output-format": "json"},
        **{"output": place / "fio.json", "randseed": 7, **job},
    }
    line = " ".join(["read go; exec fio", *(f"--{key}={value}" for key, value in words.items())])
    with (
        subprocess.Popen(["bash", "-c", line], stdin=subprocess.PIPE) as load,
        throttled([load.pid], loop.dev, A_SECOND),
        recorder("-d", loop.path, "-o", place / "log", *options) as recording,
    ):
        load.communicate(b"\n", timeout=120)
        recording.terminate()
        recording.communicate(timeout=120)
    assert load.returncode == 0
    return dict(read_fio_report(place / "fio.json")["jobs"][0]["read"])


def reported(place: Path) -> dict[str, Any]:
    return dict(in_json("report", place / "log"))


def test_how_long_a_limit_held_direct_reads_is_what_fio_waited(
    loop_device: LoopDevice, tmp_path: Path
) -> None:
    # GIVEN direct reads, one after the other, of a cgroup that may do 20 a second
    of_fio = recorded(loop_device, tmp_path, "--path=call,time,wait,fs", "--call-budget", "0")
    # WHEN a report is made
    whole = reported(tmp_path)
    (held,) = whole["held"]
    # THEN it names the limit, and for how long it held those reads that a worker queued
    assert (held["cgroup"], held["device"]) == (f"/{NAME}", loop_device.name)
    assert (held["operation"], held["bps"], held["iops"]) == ("read", None, A_SECOND)
    assert 0 < held["bios"] <= READS
    assert held["process"] == "fio"
    # AND that is what fio measured, but for what followed
    (device,) = whole["devices"]
    queued = device["total"]["latency"]["sum_ns"]
    of_fio_ns = of_fio["clat_ns"]["mean"] * of_fio["total_ios"]
    unknown = held["bios"] - held["time"]["count"]
    assert unknown <= 1  # a completion that no program was run for leaves a wait unexplained
    if not unknown:
        assert held["time"]["sum_ns"] == pytest.approx(of_fio_ns - queued, rel=0.05)
    # AND the first sentences say so
    said = {one["rule"]: one["figures"] for one in whole["verdict"]}
    assert said["held"]["cgroup"] == f"/{NAME}"
    told = (said["waits"], *said["waits"]["others"])  # other tests' fio may run beside this one
    (calls,) = [one for one in told if one.get("limit") == f"/{NAME}"]
    assert (calls["process"], calls["call"]) == ("fio", "pread64")
    assert calls["causes"][0]["cause"] == "limit"


def test_reads_through_the_page_cache_are_held_too(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN reads of single pages through the page cache, under the same limit
    of_fio = recorded(
        loop_device, tmp_path, "--path=call,time,wait,fs", "--call-budget", "0", direct=0,
        fadvise_hint="random", invalidate=1,
    )  # fmt: skip
    # WHEN a report is made THEN what they waited for is the limit
    whole = reported(tmp_path)
    reads = [one for one in whole["waits"] if one["call"] == "pread64"]
    # (of a thread that waits for a CPU as well, the end of its wait no longer tells for what)
    assert "cgroup limit" in {one["reason"] for one in reads}
    known = sum(one["time"]["sum_ns"] for one in whole["held"])
    assert 0 < known <= 1.1 * of_fio["clat_ns"]["mean"] * of_fio["total_ios"]


def test_of_a_partition_the_length_is_known_without_the_path(tmp_path: Path) -> None:
    # GIVEN reads of a partition, four at once by io_uring, recorded without the path
    with partitioned() as (loop, parts):
        of_fio = recorded(loop, tmp_path, filename=parts[0], ioengine="io_uring", iodepth=4)
    # WHEN a report is made  THEN each one's remap says since when it was held, and for whom
    (held,) = reported(tmp_path)["held"]
    assert held["time"]["count"] == held["bios"] > READS / 2
    assert held["process"] == "fio"
    # AND that is what fio measured
    assert held["time"]["sum_ns"] == pytest.approx(
        of_fio["clat_ns"]["mean"] * of_fio["total_ios"], rel=0.05
    )


@pytest.mark.parametrize("options", [(), ("--events", "minimal")])
def test_without_the_path_the_limit_is_known_alone(
    loop_device: LoopDevice, tmp_path: Path, options: tuple[str, ...]
) -> None:
    # GIVEN the same, recorded without the path
    recorded(loop_device, tmp_path, *options)
    # WHEN a report is made THEN it says how many the limit held, and that the length is not known
    whole = reported(tmp_path)
    (held,) = whole["held"]
    assert held["cgroup"] == f"/{NAME}"
    assert held["bios"] > READS / 4
    assert held["time"]["count"] == 0
    # AND for whom, as such a read's own fields say who waits for it
    assert held["process"] == "fio"
    (fio,) = whole["processes"]
    assert (fio["process"], fio["ios"], fio["by_workers"]) == ("fio", READS, held["bios"])
    text = " ".join(biotrail("slow", tmp_path / "log").stdout.split())
    assert f"held by the limit of cgroup /{NAME} (20/s) before it was queued, length not" in text


def test_direct_reads_of_a_file_name_their_waiter(loop_device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN direct reads of a file, one after the other, under the same limit
    with mounted("ext4", [loop_device.path], tmp_path / "mount") as mount:
        (mount / "file").write_bytes(bytes(4096 * READS))
        os.sync()
        recorded(loop_device, tmp_path, filename=mount / "file")
    # WHEN a report is made of the reads, recorded without the path
    whole = in_json("report", "--op", "read", tmp_path / "log")
    # THEN all are fio's, also those that a worker queued: iomap's struct says who waits
    (held,) = whole["held"]
    (fio,) = [one for one in whole["processes"] if one["process"] == "fio"]
    assert held["bios"] > READS / 4
    assert (held["process"], fio["by_workers"]) == ("fio", held["bios"])
    assert fio["ios"] >= READS


def test_what_is_not_limited_is_not_held(loop_device: LoopDevice, fio: Fio, tmp_path: Path) -> None:
    # GIVEN reads, and writes that workers write back, without a limit
    with record_command.recorded("-d", loop_device.path, "-o", tmp_path / "log"):
        fio(loop_device.path, rw="randread", bs="4k", size="1m")
        fio(loop_device.path, rw="write", bs="4k", size="1m", direct=False)
    # WHEN a report is made THEN no limit held any of them
    whole = reported(tmp_path)
    assert whole["total"]["ios"] >= 256
    assert whole["held"] == []
