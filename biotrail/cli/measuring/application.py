# SPDX-License-Identifier: Apache-2.0
"""The application that answers scrapes, in the format that each asks for: text, or protobuf.

prometheus_client writes text alone, and only protobuf has native histograms. Classic buckets whose
ends are powers of the square root of 2 (BOUNDS_NS) are the buckets of a native histogram, too: the
same counts are written as both. Names and numbers of the messages are those of metrics.proto in
https://github.com/prometheus/client_model.
"""

import gzip
import io
from collections.abc import Iterable, Iterator
from contextlib import suppress
from http import HTTPStatus
from itertools import groupby
from typing import Any
from urllib.parse import parse_qs, urlsplit

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, proto, timestamp_pb2
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from biotrail.cli.serving.loopback_server import Answer, Request, Response
from biotrail.recorder.schema.measure_structs import FIRST_BOUND, SCHEMA

PACKAGE = "io.prometheus.client"
FAMILY = f"{PACKAGE}.MetricFamily"
"""Name of the message that a scrape has one of for each family."""
COUNTER, GAUGE, HISTOGRAM = 0, 1, 4
"""Values of the enum MetricType, which is an int32 to the format."""
_TIMESTAMP = timestamp_pb2.Timestamp.DESCRIPTOR
_MESSAGES = {
    "LabelPair": ("1 name string", "2 value string"),
    "Gauge": ("1 value double",),
    "Counter": ("1 value double", "2 exemplar Exemplar"),
    "Histogram": (
        "1 sample_count uint64",
        "2 sample_sum double",
        "3 bucket Bucket*",
        "5 schema sint32",
        "6 zero_threshold double",
        "7 zero_count uint64",
        "12 positive_span BucketSpan*",
        "13 positive_delta sint64*",
        "16 exemplars Exemplar*",
    ),
    "Bucket": ("1 cumulative_count uint64", "2 upper_bound double", "3 exemplar Exemplar"),
    "BucketSpan": ("1 offset sint32", "2 length uint32"),
    "Exemplar": ("1 label LabelPair*", "2 value double", "3 timestamp Timestamp"),
    "Metric": ("1 label LabelPair*", "2 gauge Gauge", "3 counter Counter", "7 histogram Histogram"),
    "MetricFamily": ("1 name string", "2 help string", "3 type int32", "4 metric Metric*"),
}
"""Message → its fields: number, name and type; a star: repeated."""


def _classes() -> dict[str, Any]:
    """Return the class of each message, in a pool of its own: the process' may have the package."""
    file = descriptor_pb2.FileDescriptorProto(
        name="biotrail/metrics.proto", package=PACKAGE, dependency=[_TIMESTAMP.file.name]
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields:
            number, field_name, kind = text.split()
            field = message.field.add(name=field_name, number=int(number))
            field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            if kind in _MESSAGES or kind == _TIMESTAMP.name:
                field.type = field.TYPE_MESSAGE
                package = PACKAGE if kind in _MESSAGES else _TIMESTAMP.file.package
                field.type_name = f".{package}.{kind}"
            else:
                field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_TIMESTAMP.file.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _classes()
MetricFamily: Any = _CLASSES["MetricFamily"]
"""Class of a family with its metrics, as Prometheus reads them."""

MEDIA_TYPE = "application/vnd.google.protobuf"
CONTENT_TYPE = f"{MEDIA_TYPE}; proto={FAMILY}; encoding=delimited"
ZERO_THRESHOLD = 2 ** (FIRST_BOUND / 2)
"""Seconds: what is not longer is in the native zero bucket, as it is in the first classic one."""
_TYPES = {"counter": COUNTER, "gauge": GAUGE, "info": GAUGE, "histogram": HISTOGRAM}


def generate(families: Iterable[Metric]) -> bytes:
    """Return families, each named as its samples, but a histogram without their endings."""
    out = io.BytesIO()
    for family in families:
        if not family.samples:
            continue
        kind = _TYPES[family.type]
        name = family.name if kind == HISTOGRAM else family.samples[0].name
        found = MetricFamily(name=name, help=family.documentation, type=kind)
        if kind == HISTOGRAM:
            _add_histograms(found, family)
        else:
            for sample in family.samples:
                metric = found.metric.add()
                _add_labels(metric.label, sample.labels)
                value = metric.counter if kind == COUNTER else metric.gauge
                value.value = sample.value
                if sample.exemplar:
                    _fill_exemplar(value.exemplar, sample.exemplar)
        proto.serialize_length_prefixed(found, out)
    return out.getvalue()


def _add_histograms(found: Any, family: Metric) -> None:
    for labels, same in groupby(family.samples, key=lambda one: {**one.labels, "le": ""}):
        metric = found.metric.add()
        histogram = metric.histogram
        _add_labels(metric.label, {name: labels[name] for name in labels if name != "le"})
        counts, before = [], 0
        for sample in same:  # buckets ascend, with cumulative counts
            part = sample.name.removeprefix(family.name)
            if part == "_count":
                histogram.sample_count = int(sample.value)
            elif part == "_sum":
                histogram.sample_sum = sample.value
            else:
                total = int(sample.value)
                end = float(sample.labels["le"])
                bucket = histogram.bucket.add(cumulative_count=total, upper_bound=end)
                counts.append(total - before)
                before = total
                if sample.exemplar:
                    _fill_exemplar(bucket.exemplar, sample.exemplar)
                    _fill_exemplar(histogram.exemplars.add(), sample.exemplar)
        _add_native(histogram, counts)


def _add_native(histogram: Any, counts: list[int]) -> None:
    """Add native buckets. counts: of classic ones; the last, which has no end, becomes one."""
    histogram.schema = SCHEMA
    histogram.zero_threshold = ZERO_THRESHOLD
    histogram.zero_count = counts[0]
    end, last = FIRST_BOUND, 0
    for at, count in enumerate(counts[1:], FIRST_BOUND + 1):
        if not count:
            continue
        if histogram.positive_span and at == end:
            histogram.positive_span[-1].length += 1
        else:
            offset = at - end if histogram.positive_span else at
            histogram.positive_span.add(offset=offset, length=1)
        histogram.positive_delta.append(count - last)
        end, last = at + 1, count


def _add_labels(into: Any, labels: dict[str, str]) -> None:
    for name, value in labels.items():
        into.add(name=name, value=value)


def _fill_exemplar(into: Any, exemplar: Exemplar) -> None:
    _add_labels(into.label, exemplar.labels)
    into.value = exemplar.value
    if exemplar.timestamp is not None:
        into.timestamp.FromNanoseconds(round(float(exemplar.timestamp) * 1e9))


_METHODS = [("Allow", "GET, HEAD, OPTIONS")]


def application(registry: CollectorRegistry) -> Answer:
    def answer(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(HTTPStatus.OK, _METHODS)
        query, accept = urlsplit(request.target).query, request.value("accept")
        if not query and wants_protobuf(accept):
            body = generate(registry.collect())
            return Response(HTTPStatus.OK, [("Content-Type", CONTENT_TYPE)], body)
        try:  # with a query, which chooses families, in text
            encoder, kind = choose_encoder(accept)
        except (TypeError, ValueError):  # by its release
            encoder, kind = choose_encoder("")
        names = parse_qs(query).get("name[]")
        body = encoder(_Chosen(registry, names) if names else registry)
        fields = [("Content-Type", kind)]
        coding = (word.partition(";")[0] for word in request.value("accept-encoding").split(","))
        if any(word.strip().lower() == "gzip" for word in coding):
            body = gzip.compress(body)
            fields.append(("Content-Encoding", "gzip"))
        return Response(HTTPStatus.OK, fields, body)

    return answer


class _Chosen(Collector):
    """The samples of these names; a registry's own choice needs families that are told before."""

    def __init__(self, registry: CollectorRegistry, names: list[str]) -> None:
        self._registry, self._names = registry, frozenset(names)

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [one for one in family.samples if one.name in self._names]
            if family.samples:
                yield family


def wants_protobuf(accept: str) -> bool:
    """Tell whether a request's header Accept has no format before the protobuf one."""
    shares = dict[bool, float]()
    for part in accept.split(","):
        media, *parameters = (word.strip() for word in part.split(";"))
        given = dict(word.partition("=")[::2] for word in parameters)
        known = media == MEDIA_TYPE
        if known and given.get("proto", FAMILY) != FAMILY:
            continue
        share = 0.0
        with suppress(ValueError):
            share = float(given.get("q", "1"))
        shares[known] = max(shares.get(known, 0.0), share)
    return shares.get(True, 0.0) > 0 and shares[True] >= shares.get(False, 0.0)
