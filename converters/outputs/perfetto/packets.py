# SPDX-License-Identifier: Apache-2.0
"""Packets made one by one, facts about the recording among them, and the file that they go to."""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from biotrail.converters.events.context import Context
from biotrail.converters.outputs.perfetto.summary import PerfettoSummary
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.strings import characters

Facts = Mapping[str, str | int]
"""Name → text or number."""


def begin_packet(track: int, at: int, name: str, category: str) -> TracePacket:
    """Return the packet that begins a slice on the track with that uuid. at: ns."""
    packet = TracePacket(timestamp=at)
    event = packet.track_event
    event.type, event.track_uuid, event.name = TrackEvent.TYPE_SLICE_BEGIN, track, name
    event.categories.append(category)
    return packet


def end_packet(track: int, at: int) -> TracePacket:
    """Return the packet that ends the track's innermost slice. at: ns."""
    packet = TracePacket(timestamp=at)
    packet.track_event.type, packet.track_event.track_uuid = TrackEvent.TYPE_SLICE_END, track
    return packet


def add_facts(event: TrackEvent, facts: Mapping[str, int | str | None]) -> None:
    """Add arguments to an event; those that are None or empty are left out."""
    for key, value in facts.items():
        if isinstance(value, int):
            event.debug_annotations.add(name=key, int_value=value)
        elif value:
            event.debug_annotations.add(name=key, string_value=characters(value))


def recording_facts(context: Context) -> dict[str, str | int]:
    """Return name → text or number: host, kernel, command and versions from the log's header.

    Facts that the header lacks, or that are empty or 0, are left out.
    """
    header = context.header
    host, kernel = header.get("host", {}), header.get("kernel", {})
    events = header.get("events", {})
    facts: dict[str, Any] = {
        "log_id": context.log_id,
        "host": host.get("name"),
        "machine": host.get("machine"),
        "os": host.get("os"),
        "cpus": host.get("cpus"),
        "kernel": kernel.get("release"),
        "kernel_version": kernel.get("version"),
        "command": shlex.join(str(word) for word in header.get("command", [])),
        "created_by": header.get("created_by"),
        "backend": header.get("backend"),
        "events": events.get("set"),
        "events_missing": ", ".join(
            f"{m.get('letter')}: {m.get('reason')}" for m in events.get("missing", [])
        ),
    }
    for name, version in header.get("versions", {}).items():
        facts[f"version_{name}"] = str(version)
    return {k: v if isinstance(v, int) else str(v) for k, v in facts.items() if v}


def system_info(context: Context) -> TracePacket:
    """Return a packet with the kernel and the machine, which the UI shows as facts of the trace."""
    host, kernel = context.header.get("host", {}), context.header.get("kernel", {})
    packet = TracePacket()
    info = packet.system_info
    info.tracing_service_version = str(context.header.get("created_by") or "biotrail")
    info.utsname.sysname = "Linux"
    for field, value in (
        ("release", kernel.get("release")),
        ("version", kernel.get("version")),
        ("machine", host.get("machine")),
    ):
        if value:
            setattr(info.utsname, field, characters(str(value)))
    if host.get("cpus"):
        info.num_cpus = int(host["cpus"])
    return packet


def attributes(facts: Facts, number: int = 1) -> TracePacket:
    """Return a packet with `trace_attributes`: metadata `trace_attribute.biotrail.<name>` in SQL.

    number: of the log in the trace, from 1; from the second on the names begin
    `trace_attribute.biotrail.<number>.`.
    """
    where = "biotrail" if number == 1 else f"biotrail.{number}"
    packet = TracePacket()
    for name, value in facts.items():
        attribute = packet.trace_attributes.attribute.add(key=f"{where}.{name}")
        if isinstance(value, int):
            attribute.long_value = value
        else:
            attribute.string_value = characters(value)
    return packet


def instant(track: int, at: int, name: str, facts: Facts) -> TracePacket:
    """Return a packet with an instant event of category `metadata` on a track. at: ns."""
    packet = begin_packet(track, at, name, "metadata")
    packet.track_event.type = TrackEvent.TYPE_INSTANT
    add_facts(packet.track_event, facts)
    return packet


class PacketFile:
    """The file of a trace, or of one log's part of it; raises OutputError where it fails.

    sequence: id of the log's own packet sequence, which has all packets but those of lanes and
    counters. summary: its `bytes` counts what was written.
    """

    def __init__(self, out: BinaryIO, sequence: int, summary: PerfettoSummary) -> None:
        self._out = out
        self._sequence = sequence
        self._summary = summary

    def packets(self, packets: Iterable[TracePacket]) -> None:
        """Write packets: on the log's own sequence, unless they say which one.

        Where their flags are 0, they get SEQ_NEEDS_INCREMENTAL_STATE.
        """
        trace = Trace(packet=packets)
        for packet in trace.packet:
            if not packet.trusted_packet_sequence_id:
                packet.trusted_packet_sequence_id = self._sequence
            if not packet.sequence_flags:
                packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        self.write(trace.SerializeToString())

    def write(self, data: bytes | memoryview) -> None:
        """Write encoded packets, `Trace.packet` fields one after the other; may be empty."""
        try:
            self._out.write(data)
        except OSError as error:
            raise OutputError(
                f"The trace cannot be written after {self._summary.bytes} bytes: {error.strerror}. "
                "Make room or choose another place."
            ) from error
        self._summary.bytes += len(data)
