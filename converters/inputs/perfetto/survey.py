# SPDX-License-Identifier: Apache-2.0
"""What a trace has to be known by for another to stand beside it: ids, clocks, time, kernel.

Field numbers are those of protos/perfetto/trace/ (trace_packet.proto, track_descriptor.proto,
clock_snapshot.proto, system_info.proto, ftrace_event_bundle.proto).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from biotrail.converters.events.distinct import looked_up
from biotrail.converters.events.tables import I64
from biotrail.converters.inputs.foreign import MAX_NS
from biotrail.converters.inputs.perfetto import wire_loops as loops
from biotrail.converters.inputs.perfetto.clocks import BOOTTIME, BUILTIN
from biotrail.converters.inputs.perfetto.ftrace import FTRACE, Ftrace, ftrace_of
from biotrail.converters.inputs.perfetto.packets import MISSING, Fields, Messages, Packets
from biotrail.recorder.schema.errors import LogFormatError

TREE, _SNAPSHOT, TIME, SEQUENCE, _EVENT = 2, 6, 8, 10, 11
CONFIG, STATS, DROPPED, _SYSTEM, _CLOCK, _DEFAULTS, _DESCRIPTOR, _SERVICE, _MACHINE = (
    *(33, 34, 42, 45, 58, 59, 60, 69, 98),
)
PACKET_FIELDS = (
    *(FTRACE, TREE, _SNAPSHOT, TIME, SEQUENCE, _EVENT, CONFIG, STATS, DROPPED),
    *(_SYSTEM, _CLOCK, _DEFAULTS, _DESCRIPTOR, _SERVICE, _MACHINE),
)
_IDS = (SEQUENCE, _EVENT, _DEFAULTS, _DESCRIPTOR)
"""Those with ids, which the packets of all machines share."""
Watcher = Callable[[Fields, Ftrace], None]
"""A callback that gets each block of packets in their order: PACKET_FIELDS and ftrace events."""
_BLOCKED_REASON, _BLOCK_IO_START = 18, 546
"""Numbers of these events in an FtraceEvent."""
_UTSNAME = {1: "sysname", 2: "version", 3: "release", 4: "machine"}
_MOST_READINGS = 4096


@dataclass
class Survey:
    path: str
    packets: int = 0
    whole: int = 0
    """Bytes, decompressed, up to the end of the last whole packet."""
    problems: list[str] = field(default_factory=list)
    """What cannot be read, a sentence each."""
    misplaced: int = 0
    """Number of bundles of ftrace events under another field's number; they are not read."""
    misplaced_span: tuple[int, int] = (MAX_NS, -1)
    """First and last time (ns) of the events in them; the first above the last: none is known."""
    elsewhere: int = 0
    """Number of packets of other machines than the one that recorded; their ids alone are taken."""
    damaged: int = 0
    """Number of packets that end in something that is no field; they are read up to there."""
    sequences: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """trusted_packet_sequence_id of all packets, sorted."""
    uuids: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """uuids of all tracks, sorted as signed 64-bit numbers."""
    readings: list[dict[int, int]] = field(default_factory=list)
    """Clock snapshots: builtin clock's id → ns."""
    primary: int = BOOTTIME
    """Id of the primary trace clock: the first that a snapshot names."""
    kernel: dict[str, str] = field(default_factory=dict)
    """sysname, release, version, machine, as far as the trace has them."""
    first: int = MAX_NS
    """Earliest time on the primary clock (ns); above `last` where the trace has none."""
    last: int = -1
    read_on: bool = False
    """Whether buffers were read while it recorded: a reader may have sorted a part of its events
    before the trace's end."""
    blocked_reasons: bool = False
    block_io: bool = False
    unplaced: int = 0
    """Number of packets whose times are on clocks that no snapshot has beside the primary one."""
    _named: bool = False
    _defaults: dict[int, int] = field(default_factory=dict)
    """By sequence: the clock that its packets' times are on by default, where one is named."""

    @property
    def span(self) -> tuple[int, int] | None:
        return (self.first, self.last) if self.first <= self.last else None

    def add(self, block: Messages, fields: Fields, ftrace: Ftrace) -> None:
        self.packets += len(block)
        self.damaged += fields.broken
        span, scratch = np.array(self.misplaced_span), np.zeros(4, dtype=np.int64)
        self.misplaced += loops.misplaced_bundles(
            block.data, block.begin, block.end, FTRACE, span, scratch
        )
        self.misplaced_span = int(span[0]), int(span[1])
        sequences = fields.values(SEQUENCE)
        self.sequences = np.union1d(self.sequences, sequences[sequences != 0])
        rows, defaults = fields.messages(_DEFAULTS)
        inner = defaults.fields([_CLOCK, 11])
        clocks = inner.values(_CLOCK)
        told = clocks != 0
        self._defaults.update(
            zip(sequences[rows[told]].tolist(), clocks[told].tolist(), strict=True)
        )
        described = fields.messages(_DESCRIPTOR)[1].fields([1, 5])
        uuids = np.concatenate(
            [
                inner.messages(11)[1].fields([11]).values(11),
                *(described.values(1), described.values(5)),
                fields.messages(_EVENT)[1].fields([11]).values(11),
            ]
        )
        if len(uuids):
            self.uuids = np.union1d(self.uuids, uuids[uuids != 0])
        _, snapshots = fields.messages(_SNAPSHOT)
        for row in range(len(snapshots)):
            snapshot = snapshots.take(np.array([row]))
            if not self._named and (named := int(snapshot.fields([2]).values(2)[0])):
                self._named, self.primary = True, named
            parts = snapshot.repeated(1)[1].fields([1, 2, 4])
            ids, times, units = (parts.values(number) for number in (1, 2, 4))
            reading = {
                int(clock): int(time) * max(int(unit), 1)
                for clock, time, unit in zip(ids, times, units, strict=True)
                if 0 < clock < BUILTIN and time >= 0
            }
            if reading:
                self.readings.append(reading)
                if len(self.readings) > _MOST_READINGS:
                    self.readings = [*self.readings[:-1:2], reading]
                if self.primary in reading:
                    self._add_span(np.array([reading[self.primary]]))
        _, names = fields.messages(_SYSTEM)[1].fields([1]).messages(1)
        if len(names):
            utsname = names.take(np.array([len(names) - 1])).fields(list(_UTSNAME))
            for number, name in _UTSNAME.items():
                if text := utsname.texts(number, 256).tobytes().rstrip(b"\0"):
                    self.kernel[name] = text.decode("utf-8", "replace")
        _, services = fields.messages(_SERVICE)
        self.read_on |= bool(services.fields([4]).values(4).any())
        self.blocked_reasons |= bool((ftrace.kind == _BLOCKED_REASON).any())
        self.block_io |= bool((ftrace.kind == _BLOCK_IO_START).any())
        self._add_times(fields, sequences, ftrace)

    def _add_times(self, fields: Fields, sequences: I64, ftrace: Ftrace) -> None:
        """Widen the span by the times of packets and of ftrace's events; count those unplaced.

        Times on another builtin clock are moved by the last snapshot that has both: near enough to
        compare spans, and exact for MONOTONIC and BOOTTIME until the machine sleeps.
        """
        times = fields.values(TIME)
        named = fields.values(_CLOCK)
        clocks = np.where(named != 0, named, self.primary)
        unnamed = np.flatnonzero(named == 0)
        if self._defaults and len(unnamed):
            clocks[unnamed] = looked_up(self._defaults, sequences[unnamed], self.primary)
        timed = times > 0
        for clock in np.unique(clocks[timed]).tolist():
            here = times[timed & (clocks == clock)]
            both = [r for r in self.readings if clock in r and self.primary in r]
            if clock == self.primary:
                self._add_span(here)
            elif both:
                self._add_span(here + (both[-1][self.primary] - both[-1][clock]))
            else:
                self.unplaced += len(here)
        if self.primary == BOOTTIME:
            self._add_span(ftrace.time[ftrace.time > 0])

    def _add_span(self, times: I64) -> None:
        times = times[(times >= 0) & (times < MAX_NS)]
        if len(times):
            self.first = min(self.first, int(times.min()))
            self.last = max(self.last, int(times.max()))


def survey(stream: BinaryIO, path: str, watch: Watcher | None = None) -> Survey:
    """Read all packets of a trace once and return what they say. Memory is bounded by the ids."""
    found = Survey(path)
    packets = Packets(stream)
    for block in packets.blocks():
        fields, elsewhere = fields_of_host(block)
        packets.use(block, fields)
        ftrace = ftrace_of(fields)
        found.elsewhere += elsewhere
        found.add(block, fields, ftrace)
        if watch is not None:
            watch(fields, ftrace)
    found.whole = packets.whole
    texts = (
        (packets.problem, f"after {found.whole} bytes {packets.problem}: that part is left out"),
        (
            packets.not_inflated,
            f"{packets.not_inflated} compressed packets cannot be decompressed: what is in them is "
            "left out",
        ),
        (
            packets.nested,
            f"{packets.nested} packets are compressed within compressed ones, as Perfetto's never "
            "are: what is in them is left out",
        ),
        (
            packets.elsewhere,
            f"{packets.elsewhere} bytes lie beside the packets, in fields that a trace does not "
            "have: the file is damaged; they are left out",
        ),
        (
            found.misplaced,
            f"{found.misplaced} bundles of ftrace events stand in fields of other kinds: the file "
            "is damaged; they are left out",
        ),
        (found.damaged, f"{found.damaged} packets are damaged, and read up to there"),
    )
    found.problems = [f"{path}: {text}" for met, text in texts if met]
    says = len(found.sequences) or len(found.uuids) or found.readings or found.span
    if not found.packets or not says:
        raise LogFormatError(
            f"{path}: is no Perfetto trace (a file of TracePackets): give a trace that Perfetto's "
            "recorder or trace_processor's formats call proto"
        )
    return found


def fields_of_host(block: Messages) -> tuple[Fields, int]:
    """Return (PACKET_FIELDS of packets, number of packets of other machines).

    Perfetto's recorder also takes in what the recorders of other machines, such as virtual ones,
    send it, with a machine_id. Such packets have other clocks, CPUs and devices: of them the fields
    with ids alone are returned.
    """
    fields = block.fields(PACKET_FIELDS)
    elsewhere = fields.values(_MACHINE) != 0
    if elsewhere.any():
        rest = [row for row, number in enumerate(fields.numbers) if number not in _IDS]
        fields.length[np.ix_(rest, elsewhere)] = MISSING
    return fields, int(np.count_nonzero(elsewhere))
