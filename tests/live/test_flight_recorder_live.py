# SPDX-License-Identifier: Apache-2.0
"""Triggers on real I/O: a slow one, a failed one, a deep queue; each dump holds what led to it."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.tables import NEVER
from biotrail.recorder.host.cgroups import unified
from biotrail.recorder.log import LogReader
from tests.support import devices
from tests.support.devices import Fio, MakeLoop
from tests.support.file_systems import small_disk
from tests.support.holding import (
    MEBIBYTE,
    frozen,
    held_in_flight,
    in_flight,
    on_a_file_system,
    write,
)
from tests.support.kernel_completions import done_again
from tests.support.record_command import (
    SECONDS,
    in_json,
    logs_in,
    read,
    recorder,
    remove_cgroup,
    stop,
    wait_until,
)

pytestmark = pytest.mark.usefixtures("needs_bpf")

SLOW_NS = 200_000_000
DEEP = 64


def wait_for_dump(directory: Path) -> Path:
    """The first dump, once it is whole."""
    wait_until(lambda: bool(logs_in(directory)), "no dump was written")
    path = logs_in(directory)[0]
    wait_until(lambda: not LogReader(path).interrupted, "the dump does not end")
    return path


def recording(device: str, directory: Path, *arguments: str) -> Any:
    after = ("--after", "100ms", "--keep", "60s", "-o", directory / "x")
    return recorder("-d", device, *after, *arguments)


@done_again
def test_a_slow_write_is_dumped_with_what_led_to_it(
    tmp_path: Path, make_loop: MakeLoop, fio: Fio
) -> None:
    # GIVEN a loop device over a file on a file system that can be frozen
    if shutil.which("mkfs.ext4") is None or shutil.which("fsfreeze") is None:
        pytest.skip("needs mkfs.ext4 and fsfreeze")
    where, out = tmp_path / "lower", tmp_path / "out"
    out.mkdir()
    with (
        on_a_file_system(make_loop, where) as upper,
        recording(upper.name, out, "--trigger", f"slow={SLOW_NS}ns") as process,
    ):
        # WHEN fast reads are followed by a write that waits for as long as it is frozen
        report = fio(upper.path, rw="randread", bs="4k", number_ios=200, ioengine="psync")
        with frozen(where):
            writing = write(upper.path, 800)
            wait_until(lambda: in_flight(upper.name) > 0, "the write does not begin")
            time.sleep(2 * SLOW_NS / 1e9)
        assert writing.wait(SECONDS) == 0
        path = wait_for_dump(out)
        status, said = stop(process, signal.SIGINT)
    assert status == 0, said
    # THEN the dump says which write it was, and how long it took
    hit = LogReader(path).header["kept"]["trigger"]
    assert (hit["trigger"], hit["dev"]) == ("slow", upper.dev)
    assert hit["value"] >= SLOW_NS
    # AND it holds that write, and the reads before it by their task's name
    log = read(path)
    assert log.bios.sector[log.comms == "dd"].tolist() == [hit["sector"]] == [800]
    assert np.sum(log.comms == "fio") == report["jobs"][0]["read"]["total_ios"]
    # AND there is the dump at the end, no third one
    assert [LogReader(p).header["kept"]["number"] for p in logs_in(out)] == [1, 2]


@pytest.mark.parametrize("events", ["light", "lifecycle"])
def test_a_slow_flush_is_named_a_flush(tmp_path: Path, make_loop: MakeLoop, events: str) -> None:
    # GIVEN a device with a write cache, and a trigger that the first I/O of a task fires: the
    # filter leaves out the flush machinery's own request, which has no bio
    loop = make_loop(size=8 * MEBIBYTE)
    options = ("--events", events, "--cgroup", "/", "--trigger", "slow=1us")
    with recording(loop.name, tmp_path, *options) as process:
        # WHEN it is flushed; opened for reading, so that udev does not look at it afterwards
        with open(loop.path, "rb", buffering=0) as stream:
            os.fsync(stream.fileno())
        header = LogReader(wait_for_dump(tmp_path)).header
        stop(process, signal.SIGINT)
    # THEN the dump's trigger is a flush, though the kernel takes that mark off the request
    assert header["kept"]["trigger"]["op"] == header["kernel"]["op_enum"]["FLUSH"]


@done_again
def test_a_failed_write_is_dumped(tmp_path: Path, needs_root: None) -> None:
    # GIVEN a loop device over a sparse file on a file system that has no room for it
    out = tmp_path / "out"
    out.mkdir()
    with small_disk(tmp_path / "small", "1M") as where:
        backing = where / "sparse"
        with backing.open("wb") as file:
            os.truncate(file.fileno(), 8 * MEBIBYTE)
        (where / "ballast").write_bytes(bytes(MEBIBYTE - 16384))
        with (
            devices.loop_over(backing) as loop,
            recording(loop.name, out, "--trigger", "failed") as process,
        ):
            # WHEN it is written to until that fails
            with pytest.raises(RuntimeError):
                devices.run("dd", "if=/dev/zero", f"of={loop.path}", "bs=64k", "oflag=direct")
            dump = wait_for_dump(out)
            stop(process, signal.SIGINT)
    # THEN the dump says that it failed, and holds the failed write
    hit = LogReader(dump).header["kept"]["trigger"]
    assert hit["trigger"] == "failed"
    assert hit["value"] != 0
    assert hit["sector"] in read(dump).requests.sector.tolist()


@done_again
def test_many_in_flight_are_dumped(tmp_path: Path, make_loop: MakeLoop, fio: Fio) -> None:
    # GIVEN a flight recorder that waits for 16 requests in flight
    out, where = tmp_path / "out", tmp_path / "lower"
    out.mkdir()
    job = {"bs": "4k", "ioengine": "libaio", "number_ios": DEEP}
    with on_a_file_system(make_loop, where) as device:
        many = ["fio", *devices.fio_arguments(device.path, rw="write", iodepth=DEEP, **job)]
        with recording(device.name, out, "--trigger", "depth=16") as process:
            # WHEN a load stays below, and then one goes beyond
            few = fio(device.path, rw="randread", iodepth=2, **job)
            with held_in_flight(where, device.name, DEEP):
                writing = subprocess.Popen(many, stdout=subprocess.DEVNULL, cwd=tmp_path)
            assert writing.wait(SECONDS) == 0
            path = wait_for_dump(out)
            stop(process, signal.SIGINT)
    # THEN the dump says how many there were
    hit = LogReader(path).header["kept"]["trigger"]
    assert (hit["trigger"], hit["dev"]) == ("depth", device.dev)
    assert hit["value"] >= 16
    # AND it was made for the second load: all of the first is in it
    log = read(path)
    reads = [log.context.op_name(int(opf)) == "read" for opf in log.bios.opf]
    assert sum(reads) >= few["jobs"][0]["read"]["total_ios"] == DEEP


def test_a_bio_without_a_request_is_timed_from_its_queueing(tmp_path: Path, zram: str) -> None:
    # GIVEN a flight recorder on a device without requests, for which every I/O is slow
    with recording(zram, tmp_path, "--trigger", "slow=1ns") as process:
        # WHEN a block is written
        assert write(f"/dev/{zram}", 80).wait(SECONDS) == 0
        path = wait_for_dump(tmp_path)
        stop(process, signal.SIGINT)
    # THEN that fires, and the write is in the dump
    hit = LogReader(path).header["kept"]["trigger"]
    assert (hit["trigger"], hit["value"] > 0) == ("slow", True)
    assert 80 in read(path).bios.sector.tolist()


def test_sigusr1_dumps_and_recording_goes_on(tmp_path: Path, loop_device: Any, fio: Fio) -> None:
    # GIVEN a flight recorder without triggers
    job = {"rw": "randread", "bs": "4k", "ioengine": "psync", "number_ios": 300}
    with recorder("-d", loop_device.name, "-o", tmp_path / "x", "--keep", "64M") as process:
        fio(loop_device.path, **job)
        # WHEN it is asked, and more is read before it ends
        process.send_signal(signal.SIGUSR1)
        first = wait_for_dump(tmp_path)
        fio(loop_device.path, **job)
        status, said = stop(process, signal.SIGTERM)
    # THEN the first dump has what was read before, the last all of it
    assert status == 0, said
    assert np.sum(read(first).comms == "fio") == 300
    assert np.sum(read(logs_in(tmp_path)[1]).comms == "fio") == 600


def test_a_write_that_hangs_is_dumped_while_it_hangs(tmp_path: Path, make_loop: MakeLoop) -> None:
    # GIVEN a loop device whose writes can be held, and a recorder that keeps one second
    where = tmp_path / "lower"
    options = ("--after", "100ms", "--keep", "1s", "--trigger", "stuck=4s", "-o", tmp_path / "x")
    with (
        on_a_file_system(make_loop, where) as upper,
        recorder("-d", upper.name, *options) as process,
    ):
        # WHEN a write hangs
        with frozen(where):
            writing = write(upper.path, 800)
            path = wait_for_dump(tmp_path)
        assert writing.wait(SECONDS) == 0
        stop(process, signal.SIGINT)
    # THEN the dump says which device hangs, and for how long at least
    hit = LogReader(path).header["kept"]["trigger"]
    assert (hit["trigger"], hit["dev"], hit["what"]) == ("stuck", upper.dev, "1 in flight")
    assert hit["value"] >= 4_000_000_000
    # AND holds the write, though it is older than what is kept, and that it did not end
    log = read(path)
    assert log.bios.sector[log.comms == "dd"].tolist() == [800]
    assert log.bios.complete[log.comms == "dd"].tolist() == [NEVER]
    # AND the report begins with it
    [first, *_] = in_json("report", path)["verdict"]
    assert (first["rule"], first["figures"]["device"]) == ("hangs", upper.name)
    assert (first["figures"]["count"], first["figures"]["process"]) == (1, "dd")
    assert first["figures"]["since_issue_ns"] >= 4_000_000_000
    # AND slow shows it first
    [slow] = in_json("slow", "--top", "1", path)["ios"]
    assert slow["io"]["under_way"] and slow["io"]["comm"] == "dd"


def test_tasks_of_a_cgroup_that_wait_for_io_are_dumped(tmp_path: Path, make_loop: MakeLoop) -> None:
    # GIVEN a cgroup v2 whose pressure is watched
    root = unified()
    if root is None or not Path("/proc/pressure/io").exists():
        pytest.skip("needs cgroup v2 and pressure stall information")
    where, group = tmp_path / "lower", Path(root.point) / f"biotrail-test-{os.getpid()}"
    group.mkdir()
    trigger = f"pressure=some-io:100ms/2s@/{group.name}"
    options = ("--after", "100ms", "--keep", "60s", "--trigger", trigger, "-o", tmp_path / "x")
    try:
        with (
            on_a_file_system(make_loop, where) as upper,
            recorder("-d", upper.name, *options) as process,
        ):
            # WHEN a task of it waits for a write
            with frozen(where):
                writing = write(upper.path, 800)
                (group / "cgroup.procs").write_text(str(writing.pid))
                path = wait_for_dump(tmp_path)
            assert writing.wait(SECONDS) == 0
            stop(process, signal.SIGINT)
    finally:
        remove_cgroup(group)
    # THEN the dump says what was exceeded, and holds the write
    hit = LogReader(path).header["kept"]["trigger"]
    assert (hit["trigger"], hit["what"]) == ("pressure", trigger.removeprefix("pressure="))
    log = read(path)
    assert log.bios.sector[log.comms == "dd"].tolist() == [800]
