# SPDX-License-Identifier: Apache-2.0
"""biotrail metrics: options, the server's address, and figures as text and as protobuf."""

import gzip
import io
import json
import re
import shutil
import socket
import subprocess
import urllib.error
from http import HTTPStatus
from itertools import accumulate
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from google.protobuf import proto
from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.samples import Exemplar, Sample

from biotrail.cli.measuring.application import (
    CONTENT_TYPE,
    COUNTER,
    GAUGE,
    HISTOGRAM,
    MetricFamily,
    application,
    generate,
    wants_protobuf,
)
from biotrail.cli.measuring.exposition import LES
from biotrail.cli.measuring.figures import by_name
from biotrail.cli.measuring.flight_logs import Exemplars, FlightLogs, TriggerIO, bucket_of
from biotrail.cli.measuring.kernel import kernel_counts
from biotrail.cli.measuring.live_model import blamed, times
from biotrail.cli.measuring.server import Address, MetricsServer, parse_address
from biotrail.cli.serving.loopback_server import Request, Response, plain
from biotrail.converters.analysis.blame.tree import OTHERS
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.live.totals import BlameTotals
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.limits import (
    MEASURE_BUCKETS,
    MEASURE_HALF,
    MEASURE_OCTAVE,
    MEASURE_SCALE,
    MEASURE_WHOLE,
)
from biotrail.recorder.schema.measure_structs import BOUNDS_NS
from tests.support.hostile_places import KINDS, put
from tests.support.metrics_scrapes import (
    READ,
    SLOW_NS,
    counts,
    exposed,
    get,
    parse,
    select,
    spread,
    value,
)
from tests.support.paths import ROOT, SAMPLE
from tests.support.shipped_logs import write_log

# biotrail metrics: its options, and the server's address and answers.


def answer(request: Request) -> Response:
    """An application that says what was asked for, or that its source fails."""
    if request.target == "/fails":
        raise OutputError("the source ended")
    return plain(HTTPStatus.OK, request.target)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9477", ("127.0.0.1", 9477)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:80", ("127.0.0.1", 80)),
        (":80", ("127.0.0.1", 80)),
    ],
)
def test_loopback_addresses_are_taken(text: str, address: tuple[str, int]) -> None:
    # GIVEN an address of this machine alone WHEN it is read THEN it is that
    assert parse_address(text) == Address(*address)


@pytest.mark.parametrize(
    "text", ["0.0.0.0:1", "[::]:1", "db1:1", "127.0.0.1", "127.0.0.1:x", ":65536"]
)
def test_other_addresses_are_refused(text: str) -> None:
    # GIVEN an address that others reach, or none WHEN it is read THEN it is refused
    with pytest.raises(click.UsageError, match=r"no loopback address|is no address"):
        parse_address(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_server_answers_requests_to_its_own_name(host: str) -> None:
    # GIVEN a server on a free port
    with MetricsServer(Address(host, 0), answer) as server:
        url = f"http://{server.address}"
        # WHEN it is asked by its address, or as localhost THEN it answers
        assert get(f"{url}/metrics") == "/metrics\n"
        assert get(f"{url}/metrics", Host=f"localhost:{server.address.port}") == "/metrics\n"
        # WHEN another name led there THEN it refuses
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(f"{url}/metrics", Host="example.com")
        assert refused.value.code == 403
        # WHEN the source fails THEN the answer says why
        with pytest.raises(urllib.error.HTTPError) as failed:
            get(f"{url}/fails")
        assert (failed.value.code, failed.value.read()) == (500, b"the source ended\n")


def test_a_port_that_is_taken_is_named() -> None:
    # GIVEN a port in use
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # WHEN a server shall have it THEN the error says so, with a remedy
        with pytest.raises(OutputError, match=f"127.0.0.1:{port} is in use.*--listen"):
            MetricsServer(Address("127.0.0.1", port), answer)


# What others put where a flight recorder writes is neither waited for nor followed.


def test_what_is_no_log_of_the_recorder_is_left_out(tmp_path: Path) -> None:
    # GIVEN a directory that others may write to, watched for a flight recorder's logs
    elsewhere = write_log(tmp_path / "elsewhere.biotrail", 1)
    (tmp_path / "logs").mkdir()
    found = FlightLogs(str(tmp_path / "logs" / "slow.biotrail"))
    # WHEN there are links, FIFOs and the like by the names of its logs
    for number, kind in enumerate(KINDS):
        put(tmp_path / "logs" / f"slow-{number}.biotrail", kind, elsewhere)
    # THEN none is opened, nor waited for
    assert found.exemplars().logs == {}


# Figures as what Prometheus reads, checked by prometheus_client's own parser; and buckets.

DOCS = ROOT / "docs" / "metrics"


def samples(exemplars: Exemplars | None = None) -> list[Sample]:
    return parse(generate_openmetrics(exposed(exemplars)).decode())


def test_figures_become_samples_in_base_units() -> None:
    # GIVEN figures of a device, and of those that have none of their own
    found = samples()
    # WHEN they are served THEN counters, gauges and histograms have them
    assert value(found, "biotrail_ios_total", device="sda", operation="read") == 3
    assert value(found, "biotrail_ios_total", device="other", operation="other") == 7
    assert value(found, "biotrail_io_bytes_total", device="sda") == 12288
    assert value(found, "biotrail_io_errors_total", device="sda") == 1
    assert value(found, "biotrail_in_flight_ios", operation="read") == 1
    assert value(found, "biotrail_kernel_ios_total") == 9
    assert value(found, "biotrail_lost_events_total", reason="recursion") == 2
    assert value(found, "biotrail_unseen_completions_total") == 4
    assert value(found, "biotrail_skipped_seconds_total") == 1.5
    assert value(found, "biotrail_behind_seconds") == 0.25
    assert value(found, "biotrail_blame_seconds_total", victim="db", culprit="backup") == 1.5
    assert value(found, "biotrail_blame_waited_seconds_total", victim="db") == 4
    assert value(found, "biotrail_blame_untold_seconds_total", victim="db") == 0
    assert value(found, "biotrail_verdict", rule="waits") == 1
    assert value(found, "biotrail_verdict", rule="failed") == 0
    assert value(found, "biotrail_cpu_seconds_total", process="metrics") == 0.5
    assert value(found, "biotrail_program_sampled_run_seconds_total") == 2e-6
    name = "biotrail_io_duration_seconds"
    assert tuple(counts(found, name, device="sda")) == READ.latency.counts
    assert value(found, f"{name}_count", device="sda") == 3
    assert value(found, f"{name}_sum", device="sda") == pytest.approx(0.0050025)


def test_hostile_names_and_the_name_other_are_served() -> None:
    # GIVEN sums in which a program is called as the label of what is not kept apart
    totals = BlameTotals(Trace(SAMPLE).context, "process")
    totals.waited.update({"other": 2, OTHERS: 3})
    totals.behind.update({("other", "app"): 2, (OTHERS, "app"): 3})
    # WHEN labels are made THEN nothing is lost
    found = blamed(totals)
    assert (found.waited, found.behind) == ({"other": 5}, {("other", "app"): 5})
    # GIVEN a cgroup whose path is no UTF-8, with a line feed in it
    totals = BlameTotals(Trace(SAMPLE).context, "cgroup")
    totals.waited["/a\udc80\nb"] = 2
    # WHEN a label is made of it THEN it can be encoded, on one line
    [name] = blamed(totals).waited
    assert "\n" not in name and name.encode()


def test_an_exemplar_names_the_log_of_a_slow_io() -> None:
    # GIVEN a log of an I/O that was slow, and one whose name is too long for OpenMetrics
    slow = TriggerIO("host-1.biotrail", "sda", "read", 4096, SLOW_NS, 2_000_000_000)
    exemplars = Exemplars(
        {("sda", "read", bucket_of(SLOW_NS)): slow},
        {("sda", "read"): slow._replace(log="x" * 120)},
        {"slow": 1},
        {"slow": slow},
    )
    # WHEN figures are served
    found = samples(exemplars)
    # THEN the bucket of D2C in which it lies names its log and sector
    buckets = select(found, "biotrail_io_stage_duration_seconds_bucket", stage="D2C")
    marked = [(at, one.exemplar) for at, one in enumerate(buckets) if one.exemplar]
    assert [at for at, _ in marked] == [bucket_of(SLOW_NS)]
    assert marked[0][1].labels == {"log": "host-1.biotrail", "sector": "4096"}
    assert (marked[0][1].value, float(marked[0][1].timestamp)) == (0.005, 2.0)
    # AND the long name is left out, and all of them in the older format
    assert not [one for one in select(found, "biotrail_io_errors_total") if one.exemplar]
    assert b"host-1" not in generate_latest(exposed(exemplars))


def kernel_bucket(ns: int) -> int:
    """What bpf/measure.h's bt_measure_bucket returns."""
    if not ns >> MEASURE_OCTAVE:
        return 0
    octave = ns.bit_length() - 1
    if octave >= MEASURE_OCTAVE + MEASURE_BUCKETS // 2:
        return MEASURE_BUCKETS - 1
    behind = [ns > bound >> (MEASURE_SCALE - octave) for bound in (MEASURE_HALF, MEASURE_WHOLE)]
    return (octave - MEASURE_OCTAVE) * 2 + sum(behind)


def test_kernel_model_and_logs_divide_times_alike() -> None:
    # GIVEN times at, before and behind each bound, and far from all
    around = [bound + by for bound in BOUNDS_NS for by in (-1, 0, 1)]
    powers = [1 << octave for octave in range(63)]
    for ns in (0, *around, *powers):
        # WHEN they are put into buckets THEN the program and exemplars agree
        assert bucket_of(ns) == kernel_bucket(ns), ns
        # AND a bucket's times are at most its end, and longer than the end before
        ends = [0.0, *map(float, LES)]
        assert ends[bucket_of(ns)] < ns / 1e9 <= ends[bucket_of(ns) + 1] or not ns
    # GIVEN times that are as far from each bound as a distribution's error
    times_ns = [int(bound * (1 + by)) for bound in BOUNDS_NS for by in (-0.008, 0.008)]
    for ns in (0, 1, *times_ns, 1 << 62):
        # WHEN the model adds one up THEN it is in the kernel's bucket
        distribution = Distribution()
        distribution.add(np.array([ns]))
        assert times(distribution).counts.index(1) == kernel_bucket(ns), ns
    # GIVEN a device that took another's name WHEN figures are gathered THEN they are one
    added = by_name([READ, READ])
    assert [(one.ios, one.latency.sum_ns) for one in added] == [(6, 2 * READ.latency.sum_ns)]


def test_counts_of_the_kernel_are_those_of_sysfs(tmp_path: Path) -> None:
    # GIVEN a disk, one of dm without fields of flushes, and one that is not asked for
    stat = "1 0 8 0 2 0 16 0 0 0 0 3 0 0 0 4 0"
    for entry, text in (("sda", stat), ("dm-0", stat[:20]), ("sdb", stat)):
        (tmp_path / entry).mkdir()
        (tmp_path / entry / "inflight").write_text("  5 6\n")
        (tmp_path / entry / "stat").write_text(text)
    (tmp_path / "dm-0" / "dm").mkdir()
    (tmp_path / "dm-0" / "dm" / "name").write_text("data\n")
    # WHEN counts are read THEN they have what is there, under the mapper's name
    found = kernel_counts(["sda", "data", "gone"], str(tmp_path))
    assert [one.device for one in found] == ["data", "sda"]
    assert found[1].in_flight == {"read": 5, "write": 6}
    assert found[1].done == {"read": 1, "write": 2, "discard": 3, "flush": 4}
    assert found[0].done == {"read": 1, "write": 2}


def test_rules_and_dashboard_ask_for_what_is_served() -> None:
    # GIVEN all names that are served, with and without exemplars' logs
    slow = TriggerIO("a", "sda", "read", 0, SLOW_NS, 0)
    exemplars = Exemplars({}, {}, {"slow": 1}, {"slow": slow})
    served = {one.name for one in samples(exemplars)}
    served |= {one.name for one in exposed(exemplars).collect() if one.type == "histogram"}
    # WHEN rules and dashboard are read
    text = (DOCS / "rules.yml").read_text()
    expressions = re.findall(r"expr: *(?:>-\n)?((?:.|\n)*?)(?=\n +(?:for|labels|- )|$)", text)
    panels = json.loads((DOCS / "dashboard.json").read_text())["panels"]
    expressions += [target["expr"] for panel in panels for target in panel["targets"]]
    asked = set(re.findall(r"(?<![:\w])biotrail_\w+(?!\w|:)", "\n".join(expressions)))
    # THEN they ask for nothing else
    assert asked and asked <= served


@pytest.mark.parametrize(
    "arguments", [("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml")]
)
def test_rules_hold_by_promtool(arguments: tuple[str, ...]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    # GIVEN the rules and their tests WHEN promtool reads them THEN it finds nothing wrong
    done = subprocess.run(
        ["promtool", *arguments], cwd=DOCS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# Figures in Prometheus' protobuf format: native histograms beside classic ones, and exemplars.

PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def families(body: bytes) -> dict[str, Any]:
    """Families by name, as protobuf's own reader takes them apart."""
    stream, found = io.BytesIO(body), []
    while (one := proto.parse_length_prefixed(MetricFamily, stream)) is not None:
        found.append(one)
    return {one.name: one for one in found}


def served(*ns: int, exemplar: Exemplar | None = None) -> Any:
    """The histogram of these times, written and read; an exemplar belongs to the first."""
    buckets: list[Any] = list(zip(LES, accumulate(spread(*ns).counts), strict=True))
    if exemplar:
        at = bucket_of(ns[0])
        buckets[at] = (*buckets[at], exemplar)
    family = HistogramMetricFamily("times", "Times.", labels=("device",))
    family.add_metric(("sda",), buckets, sum(ns) / 1e9)
    return families(generate([family]))["times"].metric[0].histogram


def native(histogram: Any) -> dict[int, int]:
    """Bucket → its number of values, from spans and differences."""
    found, at, last = {}, 0, 0
    deltas = iter(histogram.positive_delta)
    for span in histogram.positive_span:
        at += span.offset
        for _ in range(span.length):
            last += next(deltas)
            found[at] = last
            at += 1
    assert list(deltas) == []
    return found


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(1.0, 0), (0.5, -2), (0.6, -1), (0.75, 0), (1e-6, -39), (2.0, 2), (128.0, 14), (1000.0, 15)],
)
def test_a_time_is_in_the_native_bucket_of_its_power(seconds: float, bucket: int) -> None:
    # GIVEN a time WHEN it is served THEN its bucket i ends at 2^(i/2) s; the last takes all above
    histogram = served(round(seconds * 1e9))
    assert histogram.schema == 1
    assert native(histogram) == {bucket: 1}
    assert seconds > 128 or 2 ** ((bucket - 1) / 2) < seconds <= 2 ** (bucket / 2)


def test_native_and_classic_buckets_have_the_same_counts() -> None:
    # GIVEN times in neighbouring buckets, far ones, and the shortest
    times = (0, 100, 700, 1000, 1000, 1400, 5_000_000, 5_000_000, 5_000_001, 200_000_000_000)
    # WHEN they are served
    histogram = served(*times)
    # THEN the classic buckets add up to the native ones: the first is the zero bucket
    classic, before = {}, 0
    for at, bucket in enumerate(histogram.bucket, -41):
        if bucket.cumulative_count > before:
            classic[at] = bucket.cumulative_count - before
        before = bucket.cumulative_count
    assert classic.pop(-41) == histogram.zero_count == 2
    assert native(histogram) == classic
    assert histogram.zero_threshold == histogram.bucket[0].upper_bound == 2**-20.5
    assert histogram.bucket[-1].upper_bound == float("inf")
    assert histogram.sample_count == len(times) == histogram.zero_count + sum(classic.values())
    assert histogram.sample_sum == sum(times) / 1e9


def test_buckets_exemplars_and_formats() -> None:
    # GIVEN an exemplar of a time WHEN it is served THEN it has its labels, value and time
    histogram = served(5_000_000, exemplar=Exemplar({"log": "a"}, 0.005, 12.25))
    (marked,) = [one for one in histogram.bucket if one.HasField("exemplar")]
    for one in (marked.exemplar, *histogram.exemplars):
        assert [(label.name, label.value) for label in one.label] == [("log", "a")]
        assert (one.value, one.timestamp.ToNanoseconds()) == (0.005, 12_250_000_000)
    # GIVEN no times WHEN served THEN the zero bucket's threshold shows that it is a native one
    histogram = served()
    assert (histogram.sample_count, native(histogram)) == (0, {})
    assert histogram.zero_threshold > 0


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (f"{PROTOBUF},{OPENMETRICS};q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        (f"{PROTOBUF};q=0.6,{OPENMETRICS};q=0.5,*/*;q=0.1", True),
        (f"{OPENMETRICS},{PROTOBUF};q=0.5", False),
        (f"{PROTOBUF};q=0,*/*;q=0", False),
        (f"{PROTOBUF};q=x,text/plain", False),
        ("application/vnd.google.protobuf;proto=other.Message", False),
        ("application/vnd.google.protobuf", True),
        ("*/*", False),
        ("", False),
    ],
)
def test_the_format_is_that_which_the_scraper_likes_best(accept: str, wanted: bool) -> None:
    assert wants_protobuf(accept) is wanted


def answered(
    registry: CollectorRegistry, target: str = "/metrics", **fields: str
) -> tuple[dict[str, str], bytes]:
    """What the application answers with status 200: header fields and body."""
    given = tuple((name.replace("_", "-"), value) for name, value in fields.items())
    response = application(registry)(Request("GET", target, given))
    assert response.status == 200
    assert isinstance(response.body, bytes)
    return dict(response.fields), response.body


def test_a_scrape_has_each_family_with_its_type() -> None:
    # GIVEN figures WHEN a scraper asks for protobuf
    headers, body = answered(exposed(), accept=PROTOBUF)
    # THEN it gets that format, with counters, gauges and histograms under their names
    assert headers["Content-Type"] == CONTENT_TYPE
    found = families(body)
    assert found["biotrail_ios_total"].type == COUNTER
    values = {one.label[0].value: one.counter.value for one in found["biotrail_ios_total"].metric}
    assert values == {"sda": 3, "other": 7}
    assert found["biotrail_in_flight_ios"].type == GAUGE
    assert found["biotrail_info"].metric[0].gauge.value == 1
    assert found["biotrail_io_duration_seconds"].type == HISTOGRAM
    assert len(found["biotrail_io_stage_duration_seconds"].metric) == 1
    # AND a request for some families is answered in text, with these alone
    headers, body = answered(exposed(), "/metrics?name[]=biotrail_ios_total", accept=PROTOBUF)
    assert headers["Content-Type"].startswith("text/plain")
    named = {line.split("{")[0] for line in body.decode().splitlines() if line[0] != "#"}
    assert named == {"biotrail_ios_total"}
    # AND text is compressed for who takes that
    headers, packed = answered(
        exposed(), "/metrics?name[]=biotrail_ios_total", accept_encoding="gzip"
    )
    assert (headers["Content-Encoding"], gzip.decompress(packed)) == ("gzip", body)


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text;version=abc;q=x",
        "application/openmetrics-text;version=" + "9" * 5000,
        "text/plain;version=1..0",
        "text/plain;q=nan",
        ";;;q=",
        ",",
    ],
)
def test_a_malformed_accept_gets_the_default_format(accept: str) -> None:
    # GIVEN a header Accept that says nothing WHEN figures are asked for THEN they come as text
    headers, body = answered(exposed(), accept=accept)
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"biotrail_ios_total{" in body
