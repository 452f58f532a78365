# SPDX-License-Identifier: Apache-2.0
"""A long recording with rotation, and metrics of a long run that Prometheus scrapes.

Short by default; `make soak` runs it for an hour (BIOTRAIL_SOAK_SECONDS).
"""

import os
import shutil
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from biotrail.cli.measuring.flight_logs import bucket_of
from biotrail.recorder.log import LogReader
from tests.support.devices import Fio, LoopDevice
from tests.support.metrics_scrapes import LATENCY, STAGE, Prometheus, prometheus, serving
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.record_command import in_json, read, recorder, stop, wait_until

pytestmark = pytest.mark.usefixtures("needs_bpf")

LOAD_SECONDS = int(os.environ.get("BIOTRAIL_SOAK_SECONDS", "12"))
MEBIBYTE = 1 << 20


def resident(pid: int) -> int:
    """Bytes of the process's own memory; the rings, which are mapped, left out."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def rounds() -> list[int]:
    """Seconds of each of fio's runs: at most a minute, so that a hanging one is noticed."""
    return [min(60, LOAD_SECONDS - start) for start in range(0, LOAD_SECONDS, 60)]


class Watch(threading.Thread):
    """Looks at a process's memory now and then."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.seen: list[int] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(max(0.25, LOAD_SECONDS / 400)):
            self.seen.append(resident(self.pid))


ROTATE = "1s" if LOAD_SECONDS < 60 else "30s"
IOPS = 2000


@pytest.mark.long
@pytest.mark.limit(2 * LOAD_SECONDS + 900)
def test_a_long_recording_rotates_and_loses_nothing(
    tmp_path: Path, loop_device: Any, fio: Fio
) -> None:
    # GIVEN a recorder that rotates while a moderate load runs
    with recorder("-d", loop_device.name, "-o", tmp_path / "soak", "--rotate", ROTATE) as process:
        watch = Watch(process.pid)
        watch.start()
        job = {"rw": "randread", "bs": "4k", "ioengine": "psync", "rate_iops": IOPS}
        reads = 0
        for seconds in rounds():
            report = fio(loop_device.path, time_based=True, runtime=seconds, **job)
            reads += report["jobs"][0]["read"]["total_ios"]
        watch.over.set()
        # WHEN it is stopped
        status, said = stop(process, signal.SIGINT)
    assert status == 0, said
    # THEN every file is whole, and none lost anything
    files = sorted(tmp_path.iterdir())
    assert len(files) > 3
    bios: Counter[str] = Counter()
    for number, path in enumerate(files, 1):
        reader = LogReader(path)
        assert reader.header["series"]["number"] == number
        assert (reader.interrupted, reader.problems, reader.losses) == (False, [], [])
        log = read(path)
        assert log.account.unreadable_bytes == log.account.late == 0
        bios.update(log.comms.tolist())
    # AND together they have every read, under its task's name in each of them; one that a
    # border cuts is in two of them
    assert reads <= bios["fio"] <= reads + len(files)
    assert bios[""] <= len(files)
    # AND the recorder needs no more memory at the end than when it had warmed up
    third = len(watch.seen) // 3
    assert max(watch.seen[-third:]) <= max(watch.seen[: 2 * third]) + 16 * MEBIBYTE, watch.seen


RULES = ROOT / "docs" / "metrics" / "rules.yml"
JOB = {"rw": "randrw", "bs": "4k", "ioengine": "psync", "rate_iops": 500}
OPERATIONS = ("read", "write")
UNSEEN = 0.01
"""Share of completions at most that no BPF program is run for."""


@pytest.mark.long
@pytest.mark.limit(2 * LOAD_SECONDS + 900)
def test_what_prometheus_has_of_a_long_run_is_what_fio_did_and_report_has(
    loop_device: LoopDevice, fio: Fio, tmp_path: Path
) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    (Path("/sys/block") / loop_device.name / "queue" / "nomerges").write_text("2")
    log, device = tmp_path / "a.biotrail", ("-d", loop_device.path)
    with serving(*device) as metrics, recorder(*device, "--events", "light", "-o", log) as beside:
        host = metrics.url.removeprefix("http://").removesuffix("/metrics")
        features = "native-histograms"
        with prometheus(tmp_path, host, RULES, free_port(), features) as server:
            # GIVEN a Prometheus that scrapes, and a log of the same run
            watch = Watch(metrics.process.pid)
            watch.start()
            jobs = []
            for seconds in rounds():
                # WHEN fio reads and writes at a limited rate
                report = fio(loop_device.path, time_based=True, runtime=seconds, **JOB)
                jobs.append(report["jobs"][0])
                # THEN the counters grew at its rate
                for op in OPERATIONS:
                    assert_rate(server, loop_device, op, jobs[-1], seconds)
            watch.over.set()
            stop(beside, signal.SIGINT)
            found = in_json("report", log)["devices"][0]
            for reported in found["operations"]:
                if reported["operation"] not in OPERATIONS:
                    continue
                # AND all in all by what it did, and as report has it
                assert_same(server, loop_device, reported, jobs)
            assert [rule["name"] for rule in server.rules() if rule["health"] == "err"] == []
        # AND memory did not grow since it had warmed up
        third = len(watch.seen) // 3
        assert max(watch.seen[-third:]) <= max(watch.seen[: 2 * third]) + 4 * MEBIBYTE, watch.seen


def assert_rate(
    server: Prometheus, device: LoopDevice, op: str, job: dict[str, Any], seconds: int
) -> None:
    """In a round of `seconds` the counter grew at fio's rate."""
    counter = f'biotrail_ios_total{{device="{device.name}", operation="{op}"}}'
    slope = server.slope(counter, f"{seconds + 10}s")  # the query may come late
    print(f"{op}: {slope:.2f} I/Os a second, of fio {job[op]['iops']:.2f}")
    assert slope == pytest.approx(job[op]["iops"], rel=0.1)


def assert_same(
    server: Prometheus,
    device: LoopDevice,
    reported: dict[str, Any],
    jobs: list[dict[str, Any]],
) -> None:
    """Of one operation: fio's number, report's, and quantiles within a bucket of report's."""
    op = reported["operation"]
    place = f'device="{device.name}", operation="{op}"'
    counter = f"biotrail_ios_total{{{place}}}"
    wait_until(lambda: server.number(counter) >= reported["ios"], "all is scraped")
    assert op == "read" or server.number(counter) == reported["ios"]
    done = sum(job[op]["total_ios"] for job in jobs)
    assert done * (1 - UNSEEN) <= reported["ios"]
    assert reported["ios"] <= done or op == "read"  # udev reads, too
    stage = next(one for one in reported["stages"] if one["stage"] == "D2C")
    for name, labels, times in (
        (LATENCY, "", reported["latency"]),
        (STAGE, ', stage="D2C"', stage),
    ):
        for share, percentile in ((0.5, "p50_ns"), (0.9, "p90_ns"), (0.99, "p99_ns")):
            # what Prometheus has at the end is of the whole run: figures begin at 0
            asked = f"histogram_quantile({share}, {name}{{{place}{labels}}})"
            ours, theirs = server.number(asked) * 1e9, times[percentile]
            print(f"{op} {name} {share}: {ours:.0f} ns, by report {theirs} ns")
            assert abs(bucket_of(round(ours)) - bucket_of(theirs)) <= 1, (place, name, share)
