# SPDX-License-Identifier: Apache-2.0
"""Logs of a running recorder, shipped to an S3-compatible server by a shipper that is killed."""

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from biotrail.cli.options.recordings import open_recordings
from biotrail.converters.events.tables import Bios
from biotrail.converters.inputs.parquet import locations
from tests.support.devices import Fio, LoopDevice
from tests.support.record_command import (
    BIOTRAIL,
    SECONDS,
    biotrail,
    environment,
    recorded,
    started,
    wait_until,
)
from tests.support.s3_server import s3_server

pytestmark = pytest.mark.usefixtures("needs_bpf")

TO = "s3://logs/fleet"
ARCHIVES = f"{TO}/**/*.parquet"
KILLS = 3
LOAD = {
    "rw": "randread",
    "bs": "4k",
    "ioengine": "psync",
    "time_based": True,
    "runtime": 3,
    "rate_iops": 3000,
}


@pytest.mark.long
def test_every_log_is_shipped_once_though_the_shipper_is_killed(
    loop_device: LoopDevice, fio: Fio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a recorder that rotates again and again while fio reads, and a bucket
    logs = tmp_path / "logs"
    logs.mkdir()
    command = [*BIOTRAIL, "archive", "--watch", logs, "--to", TO]
    with s3_server() as server:
        server.files().create_dir("logs")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        locations._filesystem.cache_clear()
        options = ("--rotate", "600ms", "-o", logs / "db")
        with recorded("-d", loop_device.name, *options):
            reads = 0
            for _ in range(KILLS):
                # WHEN a shipper works meanwhile, and is killed while it makes or stores an archive
                with (
                    ThreadPoolExecutor(1) as pool,
                    started(command, env=environment(), stderr=subprocess.DEVNULL) as shipper,
                ):
                    load = pool.submit(fio, loop_device.path, **LOAD)
                    wait_until(
                        partial(shipped, len(locations.expand(ARCHIVES))), "a log is shipped"
                    )
                    wait_until(lambda load=load: busy(logs) or load.done(), "it is at work")
                    shipper.send_signal(signal.SIGKILL)
                    reads += load.result(SECONDS)["jobs"][0]["read"]["total_ios"]
        # AND another one ships what is left
        done = biotrail(*command[len(BIOTRAIL) :], "--once")
        # THEN no log is left, each is in the bucket once, and every archive is whole
        assert list(logs.glob("*.biotrail")) == [], done.stderr
        urls = locations.expand(TO)
        assert biotrail("verify", TO).stdout.count(": whole: archive of") == len(urls)
        (recording,) = open_recordings([TO])
        numbers = [int(url.split("-")[-2]) for url in recording.paths]
        assert numbers == list(range(1, len(urls) + 1))
        assert len(urls) >= 2 * KILLS
        # AND together they have every read of fio, once
        windows = list(recording.trace.lifecycles())
        bios = Bios.concatenate([window.bios for window in windows])
        names = np.append(windows[-1].tasks.comm, "")
        assert int((names[bios.task] == "fio").sum()) == reads
        assert recording.trace.reader.problems == []
    locations._filesystem.cache_clear()


def shipped(before: int) -> bool:
    """Whether the bucket has more archives than before."""
    return len(locations.expand(ARCHIVES)) > before


def busy(logs: Path) -> bool:
    """Whether the shipper has an archive on its way from the directory."""
    return any(path.name != "lock" for path in (logs / ".shipping").iterdir())
