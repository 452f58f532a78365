# SPDX-License-Identifier: Apache-2.0
"""Perfetto traces as Perfetto's recorder writes them, made by the published protobuf classes."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    FtraceEvent,
    FtraceEventBundle,
    FtraceStats,
    Trace,
    TracePacket,
)

from tests.support.hosts_logs import Machine

REALTIME, MONOTONIC, BOOTTIME = 1, 3, 6
SERVICE, PROBES = 1, 2
"""Sequences of the recorder's service, and of its probes."""
Event = tuple[int, int, str, dict[str, Any]]
"""Time (ns, BOOTTIME), thread id, tracepoint, its fields."""


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@dataclass
class SystemTrace:
    """A trace that grows packet by packet."""

    packets: list[TracePacket] = field(default_factory=list)

    def add(self, sequence: int = SERVICE, **fields: Any) -> TracePacket:
        packet = TracePacket(trusted_packet_sequence_id=sequence, **fields)
        self.packets.append(packet)
        return packet

    def clocks(self, reading: dict[str, int], primary: int | None = None) -> None:
        """A snapshot, in the order in which the recorder reads its clocks."""
        snapshot = self.add(timestamp=reading["boottime"]).clock_snapshot
        snapshot.primary_trace_clock = primary or BOOTTIME
        names = {BOOTTIME: "boottime", REALTIME: "realtime", MONOTONIC: "monotonic"}
        for clock, name in names.items():
            if name in reading:
                snapshot.clocks.add(clock_id=clock, timestamp=reading[name])

    def kernel(self, release: str, version: str = "#1 SMP", machine: str = "x86_64") -> None:
        names = self.add().system_info.utsname
        names.sysname, names.release = "Linux", release
        names.version, names.machine = version, machine

    def events(self, cpu: int, events: Iterable[Event], lost: bool = False) -> None:
        """A bundle of one CPU's events, in order."""
        bundle = self.add(PROBES).ftrace_events
        bundle.cpu, bundle.lost_events = cpu, lost
        for at, tid, name, fields in events:
            add_event(bundle, at, tid, name, fields)

    def overruns(self, end: bool, by_cpu: dict[int, tuple[int, int]]) -> None:
        """The kernel's counts of (overrun, dropped) events by CPU, at the begin or the end."""
        stats = self.add(PROBES).ftrace_stats
        stats.phase = FtraceStats.END_OF_TRACE if end else FtraceStats.START_OF_TRACE
        for cpu, (overrun, dropped) in by_cpu.items():
            stats.cpu_stats.add(cpu=cpu, overrun=overrun, dropped_events=dropped)

    def threads(self, names: dict[int, tuple[int, str]]) -> None:
        """Processes and threads: thread id → (process id, name)."""
        tree = self.add(PROBES).process_tree
        for pid in sorted({pid for pid, _ in names.values()}):
            tree.processes.add(pid=pid, ppid=1, cmdline=[names.get(pid, (pid, "?"))[1]])
        for tid, (pid, name) in names.items():
            tree.threads.add(tid=tid, tgid=pid, name=name)

    def describe(self, number: int, name: str, fields: dict[str, int], damage: bytes = b"") -> None:
        """A descriptor of an event without a message of its own: its fields' numbers by name."""
        message = DescriptorProto(name=name)
        for key, at in fields.items():
            text = key in ("comm", "rwbs")
            message.field.add(name=key, number=at, type="TYPE_STRING" if text else "TYPE_UINT64")
        bundle = self.add(PROBES).ftrace_events
        bundle.generic_event_descriptors.add(
            field_id=number, event_descriptor=damage or message.SerializeToString()
        )

    def described(self, at: int, tid: int, number: int, fields: dict[int, int | str]) -> None:
        """An event by such a descriptor's number: its values by their fields' numbers."""
        body = b""
        for key, value in fields.items():
            data = value.encode() if isinstance(value, str) else None
            body += varint(key << 3 | (data is not None) * 2)
            body += varint(value) if data is None else varint(len(data)) + data
        event = FtraceEvent(timestamp=at, pid=tid)
        event.MergeFromString(varint(number << 3 | 2) + varint(len(body)) + body)
        self.add(PROBES).ftrace_events.event.append(event)

    def compressed(self) -> "SystemTrace":
        """The same packets in one that holds them compressed."""
        packed = zlib.compress(self.bytes())
        return SystemTrace([TracePacket(compressed_packets=packed)])

    def bytes(self) -> bytes:
        return Trace(packet=self.packets).SerializeToString()

    def write(self, path: Path) -> Path:
        path.write_bytes(self.bytes())
        return path


def add_event(
    bundle: FtraceEventBundle, at: int, tid: int, name: str, fields: dict[str, Any]
) -> None:
    """Add an event by its own message, or where it has none as a generic one."""
    event = bundle.event.add(timestamp=at, pid=tid)
    if name not in event.DESCRIPTOR.fields_by_name:
        event.generic.event_name = name
        for key, value in fields.items():
            kind = "str_value" if isinstance(value, str) else "int_value"
            event.generic.field.add(name=key, **{kind: value})
        return
    message = getattr(event, name)
    message.SetInParent()
    for key, value in fields.items():
        setattr(message, key, value)


def of_machine(machine: Machine, span: tuple[int, int], **more: Any) -> SystemTrace:
    """A trace of a machine from span[0] to span[1] (true times, ns) with some scheduling."""
    trace = SystemTrace()
    trace.clocks(machine.reading(span[0]), **more)
    trace.kernel("6.1.0")
    trace.threads({42: (42, "reader")})
    step = (span[1] - span[0]) // 20
    events = [
        (machine.boottime(at), 42, "sched_waking", {"comm": "reader", "pid": 42, "success": 1})
        for at in range(span[0], span[1], step)
    ]
    trace.events(0, events)
    trace.clocks(machine.reading(span[1]), **more)
    return trace


def reads(begin: int = 10**12) -> SystemTrace:
    """A trace of four reads with all that a recorder says besides, from `begin` (ns) on."""
    trace = SystemTrace()
    trace.clocks({"boottime": begin, "monotonic": begin, "realtime": 17 * 10**17})
    trace.kernel("6.1.0")
    trace.threads({7: (7, "reader"), 8: (7, "other")})
    config = trace.add().trace_config.data_sources.add().config
    config.ftrace_config.ftrace_events.extend(["block/*", "sched/sched_waking"])
    trace.overruns(False, {0: (1, 0), 1: (0, 0)})
    place = {"dev": 7 << 8 | 2, "nr_sector": 8, "rwbs": "RS", "comm": "reader"}
    ended = {name: value for name, value in place.items() if name != "comm"}
    for number in range(4):
        at, where = begin + 9000 * number, {"sector": 16 * number}
        queued: list[Event] = [
            (at, 7, "block_bio_queue", {**place, **where}),
            (at + 10, 7, "block_getrq", {**place, **where}),
            (at + 20, 7, "block_rq_issue", {**place, **where, "bytes": 4096}),
            (at + 30, 7, "block_rq_merge", {**place, **where, "bytes": 4096}),
        ]
        trace.events(0, queued)
        done: list[Event] = [(at + 5000, 0, "block_rq_complete", {**ended, **where, "error": 0})]
        done.append((at + 5010, 0, "sched_waking", {"comm": "reader", "pid": 7}))
        trace.events(1, done, lost=number == 2)
    trace.overruns(True, {0: (1, 0), 1: (3, 1)})
    trace.add().service_event.all_data_sources_flushed = True
    trace.clocks({"boottime": begin + 50_000, "monotonic": begin + 50_000})
    return trace
