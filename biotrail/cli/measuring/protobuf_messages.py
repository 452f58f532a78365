# SPDX-License-Identifier: Apache-2.0
"""Messages of Prometheus' protobuf format: what of package io.prometheus.client is written here.

Names and numbers are those of metrics.proto in https://github.com/prometheus/client_model.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

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
    "Metric": (
        "1 label LabelPair*",
        "2 gauge Gauge",
        "3 counter Counter",
        "7 histogram Histogram",
    ),
    "MetricFamily": ("1 name string", "2 help string", "3 type int32", "4 metric Metric*"),
}
"""Message → its fields: number, name and type; a star: repeated."""


def _described() -> descriptor_pb2.FileDescriptorProto:
    """Return _MESSAGES as a file of protobuf's descriptions."""
    file = descriptor_pb2.FileDescriptorProto(
        name="biotrail/metrics.proto", package=PACKAGE, dependency=[_TIMESTAMP.file.name]
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields:
            number, field_name, kind = text.split()
            _add_field(message, int(number), field_name, kind)
    return file


def _add_field(message: descriptor_pb2.DescriptorProto, number: int, name: str, kind: str) -> None:
    """Add a field to a message's description. kind: a type as in _MESSAGES."""
    field = message.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
    kind = kind.removesuffix("*")
    if kind in _MESSAGES or kind == _TIMESTAMP.name:
        field.type = field.TYPE_MESSAGE
        package = PACKAGE if kind in _MESSAGES else _TIMESTAMP.file.package
        field.type_name = f".{package}.{kind}"
    else:
        field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")


def _classes() -> dict[str, Any]:
    """Return the class of each message, in a pool of its own: the process' may have the package."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_TIMESTAMP.file.serialized_pb)
    pool.AddSerializedFile(_described().SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _classes()
MetricFamily: Any = _CLASSES["MetricFamily"]
"""Class of a family with its metrics, as Prometheus reads them."""
