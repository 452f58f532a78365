# SPDX-License-Identifier: Apache-2.0
"""What happens to a recording when the host around it misbehaves."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.recorder.log import LogReader
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema.records import Kind
from tests.support import devices
from tests.support.devices import Fio, MakeLoop
from tests.support.file_systems import small_disk
from tests.support.record_command import (
    SECONDS,
    biotrail,
    busy,
    in_memory_of,
    logs_in,
    read,
    recorder,
    stop,
    wait_until,
)

pytestmark = pytest.mark.usefixtures("needs_bpf")

READS: dict[str, Any] = {"rw": "randread", "bs": "4k", "ioengine": "psync"}
CPU = Path("/sys/devices/system/cpu")


def test_a_stopped_recorder_counts_what_it_missed(
    tmp_path: Path, loop_device: Any, fio: Fio
) -> None:
    # GIVEN a recorder with small rings
    log = tmp_path / "x.biotrail"
    with recorder("-d", loop_device.name, "-o", log, "--buffer-size", "64K") as process:
        # WHEN it is stopped (SIGSTOP) while more is read than its rings hold, and goes on
        process.send_signal(signal.SIGSTOP)
        report = fio(loop_device.path, number_ios=5000, **READS)
        process.send_signal(signal.SIGCONT)
        status, said = stop(process, signal.SIGINT)
    assert status == 0, said
    # THEN what is not there was counted, with its time, and nothing is damaged
    found = read(log)
    lost = sum(w["count"] for w in found.trace.reader.losses if w["kind"] == Kind.Q)
    assert lost > 0
    assert "LOST" in said
    assert found.trace.reader.problems == []
    assert found.account.unreadable_bytes == 0
    seen = found.account.by_letter()["Q"]
    assert seen + lost >= report["jobs"][0]["read"]["total_ios"]


def test_a_killed_rotation_leaves_files_that_read(
    tmp_path: Path, loop_device: Any, fio: Fio
) -> None:
    # GIVEN a rotating recording with a few files
    where = ("-d", loop_device.name, "-o", tmp_path / "x")
    with busy(loop_device.path), recorder(*where, "--rotate", "300ms") as process:
        wait_until(lambda: len(logs_in(tmp_path)) >= 3, "no further file is begun")
        # WHEN it is killed
        process.kill()
        process.wait(SECONDS)
    # THEN all but the last are complete, that one may lack its end, and each converts
    paths = logs_in(tmp_path)
    for path in paths:
        reader = LogReader(path)
        assert reader.problems == [] or path == paths[-1]
        assert not reader.interrupted or path == paths[-1]
        biotrail("convert", path)


def test_a_removed_log_ends_the_recording(tmp_path: Path) -> None:
    # GIVEN a recorder at work
    log = tmp_path / "x.biotrail"
    with recorder("-o", log) as process:
        # WHEN its log is removed
        log.unlink()
        _, said = process.communicate(timeout=SECONDS)
    # THEN it stops by itself and says so
    assert process.returncode == 1
    assert "was removed while recording" in said


def test_devices_that_vanish_and_appear_are_told(
    tmp_path: Path, make_loop: MakeLoop, fio: Fio
) -> None:
    # GIVEN a flight recorder, and a device that goes while it records
    with recorder("-o", tmp_path / "x", "--keep", "60s") as process:
        with devices.loop(size=4 << 20) as gone:
            fio(gone.path, number_ios=100, **READS)
        # WHEN another one comes, and the recorder is stopped
        come = make_loop(size=8 << 20)
        fio(come.path, number_ios=100, **READS)
        status, said = stop(process, signal.SIGINT)
    # THEN the reads of both are there, and the one that is still there is described
    assert status == 0, said
    (path,) = logs_in(tmp_path)
    log = read(path)
    ours = np.isin(log.bios.dev, [gone.dev, come.dev])
    assert np.sum((log.comms == "fio") & ours) >= 200
    entries = {int(e["dev"]): e for e in LogReader(path).header["devices"]}
    assert entries[come.dev]["sectors"] == (8 << 20) // 512


def test_recording_needs_no_tracefs(tmp_path: Path) -> None:
    # GIVEN a mount namespace without tracefs and debugfs
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    log = tmp_path / "x.biotrail"
    places = "/sys/kernel/debug/tracing /sys/kernel/tracing /sys/kernel/debug"
    hide = f'for m in {places}; do umount -l $m 2>/dev/null; done; exec "$@"'
    # WHEN it is recorded there
    by = ("unshare", "--mount", "sh", "-c", hide, "sh")
    biotrail("record", "-o", log, "--", "sync", by=by)
    # THEN it works
    assert not LogReader(log).interrupted


JUST_FITTING = os.sysconf("SC_NPROCESSORS_CONF") * RingSizes(64 << 20, 8 << 20).area_bytes
"""Bytes of rings half as large as those asked for below."""


@pytest.mark.parametrize("limit", [160 << 20, JUST_FITTING + (39 << 20)])
def test_rings_shrink_where_memory_is_limited(tmp_path: Path, loop_device: Any, limit: int) -> None:
    # GIVEN a memory limit that leaves no room for the rings asked for, or for rings alone: the
    # kernel would grant them, and kill the recorder for the memory that it takes after that
    log = tmp_path / "x.biotrail"
    # WHEN it is recorded
    options = ("--buffer-size", "128M", "-d", loop_device.name, "-o", log)
    done = in_memory_of(limit, "record", *options, "--", "true")
    # THEN it works with smaller rings, and says so
    assert done.returncode == 0, done.stderr
    assert LogReader(log).header["rings"]["bytes"][0] < 128 << 20
    assert "no memory for larger ones" in done.stderr


def test_the_ring_of_pairs_shrinks_where_memory_is_limited(tmp_path: Path) -> None:
    # GIVEN a memory limit below the ring asked for
    log = tmp_path / "x.biotrail"
    # WHEN pairs are recorded
    options = ("softirq", "--buffer-size", "128M", "-o", log)
    done = in_memory_of(160 << 20, "pairs", *options, "--", "true")
    # THEN it works with a smaller ring, and says so
    assert done.returncode == 0, done.stderr
    assert not LogReader(log).interrupted
    assert "instead of 131072: a memory limit" in done.stderr


@contextmanager
def offline(cpu: str) -> Iterator[None]:
    switch = CPU / cpu / "online"
    switch.write_text("0")
    try:
        yield
    finally:
        switch.write_text("1")


@pytest.mark.alone  # other recordings have that CPU, too
def test_a_cpu_that_goes_and_comes_back_loses_nothing(
    tmp_path: Path, loop_device: Any, fio: Fio
) -> None:
    # GIVEN a recorder on a machine with a CPU that can be switched off
    if not os.access(CPU / "cpu1" / "online", os.W_OK):
        pytest.skip("needs a CPU that can be taken offline")
    log = tmp_path / "x.biotrail"
    total = 0
    with recorder("-d", loop_device.name, "-o", log) as process:
        # WHEN it is read from before, while, and after that CPU is off
        total += fio(loop_device.path, number_ios=300, **READS)["jobs"][0]["read"]["total_ios"]
        with offline("cpu1"):
            total += fio(loop_device.path, number_ios=300, **READS)["jobs"][0]["read"]["total_ios"]
        total += fio(loop_device.path, number_ios=300, **READS)["jobs"][0]["read"]["total_ios"]
        status, said = stop(process, signal.SIGINT)
    # THEN every read is there
    assert status == 0, said
    assert np.sum(read(log).comms == "fio") == total


def test_a_rotation_on_a_full_disk_stops_and_keeps_what_is_there(
    tmp_path: Path, loop_device: Any, fio: Fio
) -> None:
    # GIVEN a rotating recording to a disk that is too small for the load
    with small_disk(tmp_path / "small", "700k") as disk:
        options = ["--level", "0", "--rotate", "100K", "-o", disk / "x"]
        with recorder("-d", loop_device.name, *options) as process:
            # WHEN it is full
            for _ in range(20):
                fio(loop_device.path, number_ios=300, **READS)
                if process.poll() is not None:
                    break
            _, said = process.communicate(timeout=SECONDS)
        # THEN it stopped by itself, said why, and every file reads
        assert process.returncode == 1
        assert "No space left" in said
        assert ".part" not in said
        paths = logs_in(disk)
        assert len(paths) > 1
        assert all(not LogReader(path).interrupted for path in paths[:-1])
        assert all(read(path).account.unreadable_bytes == 0 for path in paths)


def test_a_dump_on_a_full_disk_fails_and_recording_goes_on(
    tmp_path: Path, loop_device: Any, fio: Fio
) -> None:
    # GIVEN a flight recorder whose dumps go to a disk that is full
    with small_disk(tmp_path / "small", "1M") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes((1 << 20) - 16384))
        with recorder("-d", loop_device.name, "-o", disk / "x", "--keep", "8M") as process:
            fio(loop_device.path, number_ios=3000, **READS)
            # WHEN it is asked for one, and again when there is room
            process.send_signal(signal.SIGUSR1)
            assert process.stderr is not None
            said = process.stderr.readline()
            ballast.unlink()
            status, _ = stop(process, signal.SIGINT)
        # THEN it said that the first failed, and the second has all
        assert "a dump failed" in said
        assert "No space left" in said
        assert status == 0
        assert np.sum(read(logs_in(disk)[-1]).comms == "fio") == 3000
