# SPDX-License-Identifier: Apache-2.0
"""Families in Prometheus' protobuf format, the only one that has native histograms.

prometheus_client writes text alone. Classic buckets whose ends are powers of the square root of 2
(BOUNDS_NS) are the buckets of a native histogram, too: the same counts are written as both.
"""

import io
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from google.protobuf import proto
from prometheus_client.core import Metric
from prometheus_client.samples import Exemplar, Sample

from biotrail.cli.measuring.protobuf_messages import (
    COUNTER,
    FAMILY,
    GAUGE,
    HISTOGRAM,
    MetricFamily,
)
from biotrail.recorder.schema.measure_structs import FIRST_BOUND, SCHEMA

MEDIA_TYPE = "application/vnd.google.protobuf"
CONTENT_TYPE = f"{MEDIA_TYPE}; proto={FAMILY}; encoding=delimited"
ZERO_THRESHOLD = 2 ** (FIRST_BOUND / 2)
"""Seconds: what is not longer is in the native zero bucket, as it is in the first classic one."""
_TYPES = {"counter": COUNTER, "gauge": GAUGE, "info": GAUGE, "histogram": HISTOGRAM}


def generate(families: Iterable[Metric]) -> bytes:
    """Return families in the protobuf format, each with its length before it; empty ones left out.

    families: of the types in _TYPES.
    """
    out = io.BytesIO()
    for family in families:
        if family.samples:
            proto.serialize_length_prefixed(_family(family), out)
    return out.getvalue()


def _family(family: Metric) -> Any:
    """Return a family as MetricFamily, named as its samples; a histogram without their endings."""
    kind = _TYPES[family.type]
    if kind == HISTOGRAM:
        return _histograms(family)
    found = MetricFamily(name=family.samples[0].name, help=family.documentation, type=kind)
    for sample in family.samples:
        metric = found.metric.add()
        _add_labels(metric.label, sample.labels)
        value = metric.counter if kind == COUNTER else metric.gauge
        value.value = sample.value
        if sample.exemplar:
            _fill_exemplar(value.exemplar, sample.exemplar)
    return found


def _histograms(family: Metric) -> Any:
    """Return a family of histograms: samples of one are one after the other, buckets first."""
    found = MetricFamily(name=family.name, help=family.documentation, type=HISTOGRAM)
    for labels, same in groupby(family.samples, key=_labels_of_histogram):
        metric = found.metric.add()
        _add_labels(metric.label, dict(labels))
        by_part: dict[str, list[Sample]] = {"_bucket": [], "_count": [], "_sum": []}
        for sample in same:
            by_part[sample.name.removeprefix(family.name)].append(sample)
        metric.histogram.sample_count = int(by_part["_count"][0].value)
        metric.histogram.sample_sum = by_part["_sum"][0].value
        _add_buckets(metric.histogram, by_part["_bucket"])
    return found


def _labels_of_histogram(sample: Sample) -> tuple[tuple[str, str], ...]:
    """Return a sample's labels without its bucket's."""
    return tuple(one for one in sample.labels.items() if one[0] != "le")


def _add_buckets(histogram: Any, samples: list[Sample]) -> None:
    """Add buckets in both manners. samples: of each bucket, ascending, cumulative counts."""
    counts, before = [], 0
    for sample in samples:
        total = int(sample.value)
        bucket = histogram.bucket.add(
            cumulative_count=total, upper_bound=float(sample.labels["le"])
        )
        counts.append(total - before)
        before = total
        if sample.exemplar:
            _fill_exemplar(bucket.exemplar, sample.exemplar)
            _fill_exemplar(histogram.exemplars.add(), sample.exemplar)
    _add_native(histogram, counts)


def _add_native(histogram: Any, counts: list[int]) -> None:
    """Add the native buckets. counts: number of values in each classic bucket.

    The first has the values up to the zero bucket's threshold. The last, which has no end, becomes
    the native bucket behind the last bound.
    """
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
    """Add labels to a repeated LabelPair."""
    for name, value in labels.items():
        into.add(name=name, value=value)


def _fill_exemplar(into: Any, exemplar: Exemplar) -> None:
    """Fill an Exemplar; its time is in ns since 1970."""
    _add_labels(into.label, exemplar.labels)
    into.value = exemplar.value
    if exemplar.timestamp is not None:
        into.timestamp.FromNanoseconds(round(float(exemplar.timestamp) * 1e9))
