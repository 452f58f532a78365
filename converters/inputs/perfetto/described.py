# SPDX-License-Identifier: Apache-2.0
"""Ftrace events that a trace describes itself: those that Perfetto has no message for.

Since Perfetto 50 a bundle gives such an event's number in FtraceEvent, and a descriptor of its
message: its name and those of its fields.
"""

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.message import DecodeError

from biotrail.converters.inputs.perfetto.block_events import TEXTS
from biotrail.converters.inputs.perfetto.wire import Messages

_LEAST = 1 << 16
"""Lower numbers are those of Perfetto's own messages."""
_MOST_FIELDS = 32
"""Perfetto gives a field no higher number."""
_INTEGERS = (
    FieldDescriptorProto.TYPE_INT64,
    FieldDescriptorProto.TYPE_UINT64,
    FieldDescriptorProto.TYPE_INT32,
    FieldDescriptorProto.TYPE_UINT32,
)


def described(descriptors: Messages) -> dict[int, tuple[str, dict[str, int]]]:
    """Return the tracepoints that GenericEventDescriptors describe, as `MESSAGES` has its own.

    Left out are fields that are neither numbers nor the texts that are read, and descriptors that
    are damaged or whose number is one of Perfetto's own.
    """
    found = {}
    rows, bodies = descriptors.fields([1, 2]).messages(2)
    numbers = descriptors.fields([1, 2]).values(1)
    for row, at in enumerate(rows.tolist()):
        try:
            message = DescriptorProto.FromString(bodies.bytes(row))
        except DecodeError:
            continue
        if numbers[at] >= _LEAST and message.name:
            found[int(numbers[at])] = (message.name, _fields(message))
    return found


def _fields(message: DescriptorProto) -> dict[str, int]:
    """Return the numbers of the fields that can be read, by name."""
    return {
        field.name: field.number
        for field in message.field
        if 0 < field.number <= _MOST_FIELDS
        and field.type
        in ((FieldDescriptorProto.TYPE_STRING,) if field.name in TEXTS else _INTEGERS)
    }
