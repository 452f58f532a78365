# SPDX-License-Identifier: Apache-2.0
"""biotrail metrics on a live device: fio's counts, both sources alike, a real Prometheus."""

import json
import shutil
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.samples import Sample

from biotrail.cli.measuring.flight_logs import bucket_of
from tests.support import devices
from tests.support.devices import Fio, LoopDevice
from tests.support.kernel_completions import Completions
from tests.support.metrics_scrapes import (
    LATENCY,
    STAGE,
    Metrics,
    Prometheus,
    counts,
    prometheus,
    quantile_bucket,
    select,
    serving,
    value,
)
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.record_command import biotrail, in_json, recorder, stop, wait_until

pytestmark = pytest.mark.usefixtures("needs_bpf")

DOCS = ROOT / "docs" / "metrics"
LOAD = {"rw": "randrw", "bs": "4k", "size": "32m", "ioengine": "io_uring", "iodepth": 4}


def ios_of(report: dict[str, Any]) -> dict[str, int]:
    """What fio did, by operation."""
    job = report["jobs"][0]
    return {op: job[op]["total_ios"] for op in ("read", "write")}


def without_merges(device: LoopDevice) -> None:
    (Path("/sys/block") / device.name / "queue" / "nomerges").write_text("2")


def measured(metrics: Metrics, device: LoopDevice) -> dict[str, int]:
    samples = metrics.samples()
    return {
        op: int(value(samples, "biotrail_ios_total", device=device.name, operation=op))
        for op in ("read", "write")
    }


def wait_alike(sums: Callable[[], object], model: Callable[[], object]) -> None:
    """Wait until both return the same: the model gives out the newest I/O after a silence."""
    wait_until(lambda: model() == sums(), "the model has what the sums have")


def read_block(device: LoopDevice) -> None:
    devices.run("dd", f"if={device.path}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct")


def test_sums_and_model_have_what_fio_did_and_report_has(
    loop_device: LoopDevice, fio: Fio, completions: Completions, tmp_path: Path
) -> None:
    # GIVEN sums in the kernel, the model, and a log, of one device
    without_merges(loop_device)
    truth = completions(loop_device.dev)
    log = tmp_path / "a.biotrail"
    device, light = ("-d", loop_device.path), ("--events", "light")
    with (
        serving(*device) as sums,
        serving(*device, *light) as model,
        recorder(*device, *light, "-o", log) as recording,
    ):
        # WHEN fio does a known number of direct I/Os
        done = ios_of(fio(loop_device.path, **LOAD))
        unseen = truth.in_service_threads().with_data()
        wait_alike(lambda: measured(sums, loop_device), lambda: measured(model, loop_device))
        of_sums, of_model = sums.samples(), model.samples()
        counted = measured(sums, loop_device)
        stop(recording, signal.SIGINT)
    # THEN the sums have all of it but what no program was run for, and the model the same
    assert done["write"] - unseen <= counted["write"] <= done["write"]
    assert done["read"] - unseen <= counted["read"]  # udev reads, too, when fio has closed it
    # AND so has report of the log
    report = in_json("report", log)
    found = {one["operation"]: one for one in report["devices"][0]["operations"]}
    assert counted == {op: found[op]["ios"] for op in ("read", "write")}
    # AND quantiles are within a bucket of each other's, and of report's
    for op in ("read", "write"):
        place = {"device": loop_device.name, "operation": op}
        size = value(of_sums, "biotrail_io_bytes_total", **place)
        assert size == value(of_model, "biotrail_io_bytes_total", **place) == found[op]["bytes"]
        assert_alike(of_sums, of_model, place, found[op])


def assert_alike(
    of_sums: list[Sample], of_model: list[Sample], place: dict[str, str], reported: dict[str, Any]
) -> None:
    """Both have the reported number of times, and quantiles within a bucket of the reported."""
    for name, labels, times in (
        (LATENCY, {}, reported["latency"]),
        (STAGE, {"stage": "D2C"}, stage_of(reported, "D2C")),
        (STAGE, {"stage": "G2D"}, stage_of(reported, "G2D")),
    ):
        ours = counts(of_sums, name, **place, **labels)
        theirs = counts(of_model, name, **place, **labels)
        assert sum(ours) == sum(theirs) == reported["ios"]
        for share, percentile in ((0.5, "p50_ns"), (0.99, "p99_ns")):
            bucket = quantile_bucket(ours, share)
            assert abs(bucket - quantile_bucket(theirs, share)) <= 1, (place, name, share)
            assert abs(bucket - bucket_of(times[percentile])) <= 1, (place, name, share)


def stage_of(operation: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in operation["stages"] if one["stage"] == name)


def test_flushes_errors_and_ends_of_sequences_are_counted_once(
    loop_device: LoopDevice, fio: Fio, tmp_path: Path
) -> None:
    # GIVEN both sources WHEN writes with fsync run, and discards
    device = ("-d", loop_device.path)
    with serving(*device) as sums, serving(*device, "--events", "light") as model:
        fio(loop_device.path, rw="write", bs="16k", size="4m", ioengine="psync", fsync=4)
        devices.run("blkdiscard", "-o", "0", "-l", "1m", loop_device.path)

        def figures(metrics: Metrics) -> dict[tuple[str, str], float]:
            names = ("biotrail_ios_total", "biotrail_io_bytes_total", "biotrail_io_errors_total")
            found = [one for name in names for one in select(metrics.samples(), name)]
            known = {(one.name, one.labels["operation"]): one.value for one in found}
            return {name: one for name, one in known.items() if "read" not in name}

        # THEN they agree on all counts
        wait_alike(lambda: figures(sums), lambda: figures(model))
        found = figures(sums)
        assert found["biotrail_ios_total", "flush"] > 0
        assert found["biotrail_io_bytes_total", "write"] == 4 << 20
        assert found["biotrail_ios_total", "discard"] == 1


@pytest.mark.long
def test_prometheus_answers_every_query_of_the_dashboard(
    loop_device: LoopDevice, fio: Fio, tmp_path: Path
) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    without_merges(loop_device)
    target = tmp_path / "kept.biotrail"
    flight = ("--keep", "5s", "--trigger", "slow=1us", "--after", "0.5s", "--every", "3s")
    arguments = ("-d", loop_device.path, *flight, "-o", target)
    place = f'device="{loop_device.name}", operation="read"'
    total = f"biotrail_ios_total{{{place}}}"
    with serving(*arguments) as metrics, ExitStack() as stack:
        # GIVEN two Prometheus that have scraped the figures of a first I/O, with classic histograms
        # and native ones
        host = metrics.url.removeprefix("http://").removesuffix("/metrics")
        servers = []
        for features in ((), ("native-histograms",)):
            where = tmp_path / f"prometheus-{len(servers)}"
            where.mkdir()
            one = prometheus(where, host, DOCS / "rules.yml", free_port(), *features)
            servers.append(stack.enter_context(one))
        read_block(loop_device)
        for server in servers:
            wait_until(partial(server.query, total), "scraped")
        first = metrics.value("biotrail_ios_total", operation="read")
        # WHEN fio reads at a limited rate
        options = {"rw": "randread", "bs": "4k", "ioengine": "psync", "rate_iops": 500}
        report = fio(loop_device.path, time_based=True, runtime=8, **options)
        done = ios_of(report)["read"]
        for native, server in enumerate(servers):
            # THEN the counter that Prometheus has grows by what fio did (a reading serves 0.5 s),
            # but for completions that no program was run for
            wait_until(partial(grown, server, total, first + 0.99 * done), "scraped")
            assert server.number(total) - first <= done
            # AND it grew at fio's rate
            slope = server.slope(total, "60s")
            assert slope == pytest.approx(report["jobs"][0]["read"]["iops"], rel=0.1)
            # AND its histogram is that of the other format, stored in the wanted kind
            assert bool(server.query(f"{LATENCY}_bucket")) is not bool(native)
            if native:
                assert_stored(server, metrics, place)
            # AND every query of the dashboard has an answer
            assert empty(server) == EMPTY_WITH_SUMS
            # AND all rules were evaluated without an error, and the quantile is in D2C's bucket
            wait_until(partial(evaluated, server), "evaluated")
            assert_recorded(server, metrics, place)
        # AND an exemplar names an I/O in a log that is there
        wait_until(lambda: bool(marks(metrics)), "a log is named")
        log = tmp_path / marks(metrics)[-1].exemplar.labels["log"]
        assert "slow" in biotrail("info", log).stdout
        status, said = stop(metrics.process, signal.SIGTERM)
        assert status == 0, said


def grown(server: Prometheus, query: str, least: float) -> bool:
    return server.number(query) >= least


def evaluated(server: Prometheus) -> bool:
    return all(rule["health"] == "ok" for rule in server.rules())


EMPTY_WITH_SUMS = {"Behind", "Waiting behind others"}
"""Panels without data where the kernel adds up, and without --blame."""


def empty(server: Prometheus) -> set[str]:
    """Titles of the dashboard's panels none of whose queries has a sample."""
    dashboard = json.loads((DOCS / "dashboard.json").read_text())
    found = set()
    for panel in dashboard["panels"]:
        texts = [target["expr"] for target in panel["targets"]]
        for name, text in (("$instance", ".*"), ("$device", ".*"), ("$__rate_interval", "15s")):
            texts = [one.replace(name, text) for one in texts]
        if all(server.query(text) == [] for text in texts):
            found.add(panel["title"])
    return found


def assert_stored(server: Prometheus, metrics: Metrics, place: str) -> None:
    """The native histogram has the end and number of values of each bucket that text has."""
    (found,) = server.query(f"{LATENCY}{{{place}}}")
    stored = [(float(end), float(count)) for _, _, end, count in found["histogram"][1]["buckets"]]
    samples = metrics.samples()
    ends = [
        float(one.labels["le"]) for one in select(samples, f"{LATENCY}_bucket", operation="read")
    ]
    served = zip(ends, counts(samples, LATENCY, operation="read"), strict=True)
    assert stored == [(pytest.approx(end), count) for end, count in served if count]


def assert_recorded(server: Prometheus, metrics: Metrics, place: str) -> None:
    """The recorded median lies in the bucket of the served histogram's median, or beside it."""
    name = f"instance_device_operation:{LATENCY}:p50_5m{{{place}}}"
    wait_until(lambda: bool(server.query(name)), "recorded")
    buckets = counts(metrics.samples(), LATENCY, operation="read")
    recorded = bucket_of(round(server.number(name) * 1e9))
    assert abs(recorded - quantile_bucket(buckets, 0.5)) <= 1


def marks(metrics: Metrics) -> list[Any]:
    found = select(metrics.samples(), f"{STAGE}_bucket", stage="D2C")
    return [one for one in found if one.exemplar is not None]


def test_failures_have_one_message(tmp_path: Path) -> None:
    # GIVEN a port that is taken
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for source in ((), ("--events", "light")):
            # WHEN metrics shall listen there THEN it says so, and ends
            done = biotrail("metrics", "--listen", f"127.0.0.1:{port}", *source, status=1)
            assert f"127.0.0.1:{port} is in use" in done.stderr
            assert done.stderr.count("\n") == 1
    # GIVEN no rights WHEN it is started THEN it says which are missing
    for source in ((), ("--events", "light")):
        done = biotrail(
            *("metrics", "--listen", "127.0.0.1:0", *source),
            by=("setpriv", "--bounding-set=-all", "--inh-caps=-all"),
            status=1,
        )
        assert "CAP_BPF" in done.stderr and "Traceback" not in done.stderr
    # GIVEN a flight recorder that cannot write WHEN it is started THEN its message ends both
    done = biotrail(
        *("metrics", "--listen", "127.0.0.1:0", "--keep", "1s", "-o", tmp_path / "no" / "x"),
        status=1,
    )
    assert str(tmp_path / "no") in done.stderr and "Traceback" not in done.stderr


def test_a_scrape_that_breaks_off_hurts_nobody(loop_device: LoopDevice) -> None:
    # GIVEN metrics
    with serving("-d", loop_device.path) as metrics:
        host, port = metrics.url.removeprefix("http://").removesuffix("/metrics").split(":")
        # WHEN connections end within a request, before the answer, or only stay open
        open_ones = []
        for text in (b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b""):
            connection = socket.create_connection((host, int(port)))
            connection.sendall(text)
            if text:
                connection.close()
            else:
                open_ones.append(connection)
        # THEN others are answered, and nothing is printed
        assert metrics.value("process_start_time_seconds") > 0
        status, said = stop(metrics.process, signal.SIGINT)
        for one in open_ones:
            one.close()
    assert (status, said) == (0, "")


def test_memory_of_sums_does_not_grow_with_scrapes(loop_device: LoopDevice) -> None:
    # GIVEN metrics that has answered some scrapes
    with serving("-d", loop_device.path) as metrics:
        for _ in range(20):
            metrics.text()
        before = metrics.value("process_resident_memory_bytes")
        # WHEN it answers many THEN it takes no more memory than before, but for what malloc keeps
        for _ in range(300):
            metrics.text()
        assert metrics.value("process_resident_memory_bytes") < before + (4 << 20)
