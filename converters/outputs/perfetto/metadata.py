# SPDX-License-Identifier: Apache-2.0
"""Facts about the recording, shown in the UI: a metadata track, and `trace_attributes`."""

import shlex
from collections.abc import Mapping
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from biotrail.converters.events.context import Context
from biotrail.recorder.schema.strings import characters

Facts = Mapping[str, str | int]
"""Name → text or number."""


def recording_facts(context: Context) -> dict[str, str | int]:
    """Return name → text or number: host, kernel, command and versions from the log's header.

    Also the backend and the events recorded and missing. Versions are named `version_<program>`.
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

    facts: name → text or number. number: of the log in the trace, from 1; from the second on the
    names begin `trace_attribute.biotrail.<number>.`.
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
    """Return a packet with an instant event, a mark without a duration.

    track: uuid of its track. at: ns of the default clock of the sequence that it is written on; its
    id is not set here. name: the event's. facts: its arguments, name → text or number.
    """
    packet = TracePacket(timestamp=at)
    event = packet.track_event
    event.type = TrackEvent.TYPE_INSTANT
    event.track_uuid, event.name = track, name
    event.categories.append("metadata")
    for key, value in facts.items():
        annotation = event.debug_annotations.add(name=key)
        if isinstance(value, int):
            annotation.int_value = value
        else:
            annotation.string_value = characters(value)
    return packet
