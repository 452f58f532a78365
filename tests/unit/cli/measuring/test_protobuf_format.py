# SPDX-License-Identifier: Apache-2.0
"""Figures in Prometheus' protobuf format: native histograms beside classic ones, and exemplars."""

import gzip
import io
from itertools import accumulate
from typing import Any

import pytest
from google.protobuf import proto
from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.samples import Exemplar

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
from biotrail.cli.measuring.flight_logs import bucket_of
from biotrail.cli.serving.exchange import Request
from tests.support.measured_figures import exposed, spread

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


def test_a_histogram_without_times_is_native_nevertheless() -> None:
    # GIVEN no times WHEN served THEN the zero bucket's threshold shows that it is a native one
    histogram = served()
    assert (histogram.sample_count, native(histogram)) == (0, {})
    assert histogram.zero_threshold > 0


def test_exemplars_stand_in_both_kinds_of_buckets() -> None:
    # GIVEN an exemplar of a time WHEN it is served THEN it has its labels, value and time
    histogram = served(5_000_000, exemplar=Exemplar({"log": "a"}, 0.005, 12.25))
    (marked,) = [one for one in histogram.bucket if one.HasField("exemplar")]
    for one in (marked.exemplar, *histogram.exemplars):
        assert [(label.name, label.value) for label in one.label] == [("log", "a")]
        assert (one.value, one.timestamp.ToNanoseconds()) == (0.005, 12_250_000_000)


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
