# SPDX-License-Identifier: Apache-2.0
"""Packets made one by one, facts about the recording among them, and the file that they go to."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import Waits
from biotrail.converters.events.tables import I64, Requests
from biotrail.converters.outputs.perfetto import loops
from biotrail.converters.outputs.perfetto.columns import FOREVER, Slices
from biotrail.converters.outputs.perfetto.summary import PerfettoSummary
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.records import NO_SECTOR
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
    """Return name → text or number of what the log's header says of the recording."""
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
    for name, value in (
        ("release", kernel.get("release")),
        ("version", kernel.get("version")),
        ("machine", host.get("machine")),
    ):
        if value:
            setattr(info.utsname, name, characters(str(value)))
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


@dataclass
class PacketFile:
    """The file of a trace, or of one log's part of it; raises OutputError where it fails."""

    out: BinaryIO
    sequence: int
    """The log's own packet sequence."""
    summary: PerfettoSummary

    def packets(self, packets: Iterable[TracePacket]) -> None:
        """Write packets, on the log's own sequence where they do not say which."""
        encoded = []  # one by one: a Trace of all would copy them
        for packet in packets:
            if not packet.trusted_packet_sequence_id:
                packet.trusted_packet_sequence_id = self.sequence
            if not packet.sequence_flags:
                packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            encoded.append(Trace(packet=[packet]).SerializeToString())
        self.write(b"".join(encoded))

    def write(self, data: bytes | memoryview) -> None:
        """Write encoded packets, `Trace.packet` fields one after the other; may be empty."""
        try:
            self.out.write(data)
        except OSError as error:
            raise OutputError(
                f"The trace cannot be written after {self.summary.bytes} bytes: {error.strerror}. "
                "Make room or choose another place."
            ) from error
        self.summary.bytes += len(data)


# What Perfetto's own SQL and UI make tables of: ftrace events, made of requests and waits. Field
# numbers are those of protos/perfetto/trace/ftrace/ (ftrace_event.proto, block.proto).

_EVENT_BYTES = 64
"""Most bytes of a block_io_start or block_io_done."""
_UNINTERRUPTIBLE = 2
_SCHEDULER = ("schedule", "__schedule", "io_schedule", "preempt_schedule")
"""Functions that begin so are how a thread waits, not where: the kernel passes over them, too."""


def block_io(requests: Slices, table: Requests, offset: int) -> list[TracePacket]:
    """Return a packet with block_io_start and block_io_done of each request; none without requests.

    requests: slices of rows of `table`; one that is open to the trace's end has no block_io_done.
    offset: what makes times of BOOTTIME of them (ns). The events are of no thread, and of CPU 0.
    """
    if not len(requests):
        return []
    few = table.take(requests.rows)
    ended = np.flatnonzero(requests.end != FOREVER)
    row = np.concatenate([np.arange(len(few)), ended])
    at = np.concatenate([requests.start, requests.end[ended]]) + offset
    done = np.arange(len(row)) >= len(few)
    order = np.lexsort((done, at))
    few, at, done = few.take(row[order]), at[order], done[order]
    major, minor = few.dev.astype(np.uint64) >> 20, few.dev.astype(np.uint64) & 0xFFFFF
    out = np.empty(_EVENT_BYTES * len(at), dtype=np.uint8)
    used = loops.encode_block_io(
        np.maximum(at, 0),
        done.view(np.uint8),
        (minor & 0xFF) | major << 8 | minor >> 8 << 20,
        np.where(few.sector == NO_SECTOR, 0, few.sector),
        few.bytes.astype(np.uint64),
        out,
    )
    packet = TracePacket()
    packet.ftrace_events.cpu = 0
    packet.ftrace_events.MergeFromString(out[:used].tobytes())
    return [packet]


@dataclass
class BlockedReasons:
    """Makes sched_blocked_reason of waits, by which an importer fills in states of threads."""

    stacks: Mapping[int, tuple[str, ...]]
    """Functions of the stacks of waits by their ids, the innermost first; grows."""
    _ids: dict[str, int] = field(default_factory=dict)
    """Interned names."""

    def packets(self, waits: Waits, offset: int) -> list[TracePacket]:
        """Return a packet with an event for each wait in state D or for I/O; none without any.

        It is at the wake-up, as the kernel's is, or where that was not seen within the wait.
        offset: as for `block_io`.
        """
        state = (waits.state & _UNINTERRUPTIBLE) != 0
        told = waits.take(np.flatnonzero(state | waits.io_wait))
        if not len(told):
            return []
        packet = TracePacket()
        packet.ftrace_events.cpu = 0
        reasons = {**WAIT_REASON_NAMES, WaitReason.UNKNOWN: ""}
        names = []  # of the function that a thread waited in, else of what it waited for
        for stack, reason in zip(told.stack.tolist(), told.reason.tolist(), strict=True):
            functions = self.stacks.get(stack, ())
            where = (one for one in functions if not one.startswith(_SCHEDULER))
            names.append(next(where, reasons[reason]))
        between = told.out + (told.run - told.out) // 2
        woken = np.where(told.woken < told.run, told.woken, between)
        at: I64 = np.maximum(woken + offset, 0)
        for time, tid, io_wait, name in zip(
            at.tolist(), told.tid.tolist(), told.io_wait.tolist(), names, strict=True
        ):
            event = packet.ftrace_events.event.add(timestamp=time, pid=tid)
            blocked = event.sched_blocked_reason
            blocked.pid, blocked.io_wait = tid, int(io_wait)
            if name and name not in self._ids:
                self._ids[name] = len(self._ids) + 1
                text = characters(name).encode("utf-8")
                packet.interned_data.kernel_symbols.add(iid=self._ids[name], str=text)
            if name:
                blocked.caller = self._ids[name]
        return [packet]
