# SPDX-License-Identifier: Apache-2.0
"""Streams of events, and how the fields of an event become a record."""

import struct
from collections.abc import Callable
from typing import Any

import bt2

from biotrail.converters.inputs.lttng.child.frames import DISK_NAME

_COMM_BYTES = 16
Taken = tuple[int, Callable[[Any], int | bytes]]
"""Index of a field in its structure, and the function that returns its value."""
Getter = tuple[Any, tuple[str, Callable[[Any], int | bytes]]]
"""Class of a field, numpy's type of its values, and the function that returns one."""
_CONTEXT = {"tid": "thread", "pid": "process", "procname": "procname"}
"""Names of the records' fields by that of the context's."""
_SAME = {"tid": "thread", "comm": "procname"}
"""Fields of events that say what the context does, where that is recorded."""


class Layout:
    """How an event class's fields become a record, and the records of the present batch.

    name: the event's. fields: (name, numpy's type) of the record. context, payload: (index in the
    structure, function that returns the field's value) of its values. pack: None if events of this
    class are counted only. count: events of the present batch.
    """

    def __init__(self, native: Any, event_class: Any) -> None:
        """native: the functions of the C API. event_class: the public API's."""
        self.name = event_class.name or f"event {event_class.id}"
        self.count = 0
        self.records: list[bytes] = []
        self.pack: Callable[..., bytes] | None = None
        self.fields = [("number", "<i8"), ("time", "<u8"), ("cpu", "<i8")]
        self.context: list[Taken] = []
        self.payload: list[Taken] = []
        if not self.name.startswith("block_") and self.name != DISK_NAME:
            return
        context = event_class.stream_class.event_common_context_field_class
        getters = _getters(native)
        self.context = self._add(context, getters, _CONTEXT)
        self.payload = self._add(event_class.payload_field_class, getters, None)
        codes = {"<u8": "Q", "<i8": "q", f"S{_COMM_BYTES}": f"{_COMM_BYTES}s"}
        self.pack = struct.Struct("<" + "".join(codes[t] for _, t in self.fields)).pack

    def _add(
        self, structure: Any, getters: tuple[Getter, ...], names: dict[str, str] | None
    ) -> list[Taken]:
        """Add a structure's fields to `fields`; return (index, getter) of each.

        structure: its class, or None. getters: as `_getters` returns them. names: the names of the
        fields to take by those in the structure; None: all, under their own. Fields of other types
        (sequences, structures) are left out.
        """
        taken = []
        for index, (own, member) in enumerate((structure or {}).items()):
            name = own if names is None else names.get(own)
            getter = next((g for kind, g in getters if isinstance(member.field_class, kind)), None)
            known = dict(self.fields)
            if name is None or getter is None or name in known or _SAME.get(name) in known:
                continue
            self.fields.append((name, getter[0]))
            taken.append((index, getter[1]))
        return taken

    def take(self) -> tuple[dict[str, Any], bytes]:
        """Return the batch's records and what describes them; begin the next batch."""
        table = {"event": self.name, "count": len(self.records), "fields": self.fields}
        payload = b"".join(self.records)
        self.records, self.count = [], 0
        return table, payload


def _getters(native: Any) -> tuple[Getter, ...]:
    """Return (class of the field, (numpy's type, function that returns a value)) by precedence."""
    text = native.field_string_get_value
    return (
        (bt2._UnsignedIntegerFieldClassConst, ("<u8", native.field_integer_unsigned_get_value)),
        (bt2._SignedIntegerFieldClassConst, ("<i8", native.field_integer_signed_get_value)),
        (
            bt2._StringFieldClassConst,
            (f"S{_COMM_BYTES}", lambda field: text(field).encode("utf-8", "surrogateescape")),
        ),
    )


class Stream:
    """A data stream: the messages of one port, with the CPU and time of its newest packet."""

    def __init__(self, iterator: Any, name: str) -> None:
        """iterator: over the messages. name: the port's, which names the stream."""
        self.iterator = iterator
        self.name = name
        self.cpu = -1
        self.reached = 0
        self.began: int | None = None

    def begin_packet(self, message: Any) -> None:
        """Take over the CPU and time of a packet that begins."""
        context = message.packet.context_field
        if context is not None and "cpu_id" in context:
            self.cpu = int(context["cpu_id"])
        if message.packet.stream.cls.packets_have_beginning_default_clock_snapshot:
            self.reached = max(self.reached, message.default_clock_snapshot.value)
            self.began = self.reached if self.began is None else self.began
