# SPDX-License-Identifier: Apache-2.0
"""What a trace has to be known by for another to stand beside it: ids, clocks, time, kernel.

Field numbers are those of protos/perfetto/trace/ (trace_packet.proto, track_descriptor.proto,
clock_snapshot.proto, system_info.proto, ftrace_event_bundle.proto).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from biotrail.converters.events.tables import I64
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
"""Fields of a TracePacket that are looked at."""
_IDS = (SEQUENCE, _EVENT, _DEFAULTS, _DESCRIPTOR)
"""Those with ids, which the packets of all machines share."""
Watcher = Callable[[Fields, Ftrace], None]
"""A callback that gets each block of packets in their order: PACKET_FIELDS and ftrace events."""
_BLOCKED_REASON, _BLOCK_IO_START = 18, 546
"""Numbers of these events in an FtraceEvent."""
_UTSNAME = {1: "sysname", 2: "version", 3: "release", 4: "machine"}
_MOST_READINGS = 4096
_LATEST = 1 << 62
"""ns: later times are of no clock."""


@dataclass
class Survey:
    """What a reading of all packets of a trace has found."""

    path: str
    packets: int = 0
    whole: int = 0
    """Bytes, decompressed, up to the end of the last whole packet."""
    problem: str | None = None
    """Why nothing behind `whole` can be read; None: nothing is there."""
    not_inflated: int = 0
    """Number of packets whose compressed packets cannot be read."""
    nested: int = 0
    """Number of packets that are compressed in compressed packets; they are not read."""
    beside: int = 0
    """Bytes of fields beside the trace's packets."""
    misplaced: int = 0
    """Number of bundles of ftrace events under another field's number; they are not read."""
    misplaced_span: tuple[int, int] = (1 << 62, -1)
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
    first: int = _LATEST
    """Earliest time on the primary clock (ns); above `last` where the trace has none."""
    last: int = -1
    read_on: bool = False
    """Whether buffers were read while it recorded: a reader may have sorted a part of its events
    before the trace's end."""
    blocked_reasons: bool = False
    """Whether ftrace recorded sched_blocked_reason."""
    block_io: bool = False
    """Whether ftrace recorded block_io_start."""
    _named: int = 0
    """Id of the clock that a snapshot named as the primary one; 0: none has so far."""
    unplaced: int = 0
    """Number of packets whose times are on clocks that no snapshot has beside the primary one."""
    _defaults: dict[int, int] = field(default_factory=dict)
    """By sequence: the clock that its packets' times are on by default, where one is named."""

    def problems(self) -> list[str]:
        """Return what cannot be read of the trace, a sentence each."""
        found = []
        if self.problem:
            found.append(
                f"{self.path}: after {self.whole} bytes {self.problem}: that part is left out"
            )
        if self.not_inflated:
            found.append(
                f"{self.path}: {self.not_inflated} compressed packets cannot be decompressed: what "
                "is in them is left out"
            )
        if self.nested:
            found.append(
                f"{self.path}: {self.nested} packets are compressed within compressed ones, as "
                "Perfetto's never are: what is in them is left out"
            )
        if self.beside:
            found.append(
                f"{self.path}: {self.beside} bytes lie beside the packets, in fields that a trace "
                "does not have: the file is damaged; they are left out"
            )
        if self.misplaced:
            found.append(
                f"{self.path}: {self.misplaced} bundles of ftrace events stand in fields of other "
                "kinds: the file is damaged; they are left out"
            )
        if self.damaged:
            found.append(f"{self.path}: {self.damaged} packets are damaged, and read up to there")
        return found

    @property
    def span(self) -> tuple[int, int] | None:
        """The earliest and the latest time on the primary clock (ns); None: no time is known."""
        return (self.first, self.last) if self.first <= self.last else None


def survey(stream: BinaryIO, path: str, watch: Watcher | None = None) -> Survey:
    """Read all packets of a trace once and return what they say. Memory is bounded by the ids.

    stream: at its beginning. path: for messages. watch: called for each block of packets. Raises
    LogFormatError: it is no Perfetto trace.
    """
    found = Survey(path)
    packets = Packets(stream)
    for block in packets.blocks():
        fields, elsewhere = fields_of_host(block)
        packets.use(block, fields)
        ftrace = ftrace_of(fields)
        found.packets += len(block)
        found.elsewhere += elsewhere
        found.damaged += fields.broken
        _add_misplaced(found, block)
        _add(found, fields, ftrace)
        if watch is not None:
            watch(fields, ftrace)
    found.whole, found.problem = packets.whole, packets.problem
    found.not_inflated = packets.not_inflated
    found.nested, found.beside = packets.nested, packets.elsewhere
    says = len(found.sequences) or len(found.uuids) or found.readings or found.span
    if not found.packets or not says:
        raise LogFormatError(
            f"{path}: is no Perfetto trace (a file of TracePackets): give a trace that Perfetto's "
            "recorder or trace_processor's formats call proto"
        )
    return found


def _add_misplaced(found: Survey, block: Messages) -> None:
    """Count what is a bundle of ftrace events in all but its field's number."""
    span = np.array([1 << 62, -1], dtype=np.int64)
    scratch = np.zeros(4, dtype=np.int64)
    found.misplaced += loops.misplaced_bundles(
        block.data, block.begin, block.end, FTRACE, span, scratch
    )
    first, last = found.misplaced_span
    found.misplaced_span = min(first, int(span[0])), max(last, int(span[1]))


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


def _add(found: Survey, fields: Fields, ftrace: Ftrace) -> None:
    sequences = fields.values(SEQUENCE)
    found.sequences = np.union1d(found.sequences, sequences[sequences != 0])
    _add_defaults(found, fields, sequences)
    _add_tracks(found, fields)
    _, snapshots = fields.messages(_SNAPSHOT)
    for row in range(len(snapshots)):
        _add_snapshot(found, snapshots.take(np.array([row])))
    _, systems = fields.messages(_SYSTEM)
    if len(systems):
        found.kernel.update(kernel_of(systems))
    _, services = fields.messages(_SERVICE)
    found.read_on |= bool(services.fields([4]).values(4).any())
    found.blocked_reasons |= bool((ftrace.kind == _BLOCKED_REASON).any())
    found.block_io |= bool((ftrace.kind == _BLOCK_IO_START).any())
    _add_times(found, fields, sequences, ftrace)


def _add_defaults(found: Survey, fields: Fields, sequences: I64) -> None:
    rows, defaults = fields.messages(_DEFAULTS)
    inner = defaults.fields([_CLOCK, 11])
    clocks = inner.values(_CLOCK)
    named = clocks != 0
    found._defaults.update(
        zip(sequences[rows[named]].tolist(), clocks[named].tolist(), strict=True)
    )
    _, tracks = inner.messages(11)
    _add_uuids(found, tracks.fields([11]).values(11))


def _add_tracks(found: Survey, fields: Fields) -> None:
    _, descriptors = fields.messages(_DESCRIPTOR)
    described = descriptors.fields([1, 5])
    for number in (1, 5):
        _add_uuids(found, described.values(number))
    _, events = fields.messages(_EVENT)
    _add_uuids(found, events.fields([11]).values(11))


def _add_uuids(found: Survey, uuids: I64) -> None:
    if len(uuids):
        found.uuids = np.union1d(found.uuids, uuids[uuids != 0])


def _add_snapshot(found: Survey, snapshot: Messages) -> None:
    if not found._named:
        found._named = int(snapshot.fields([2]).values(2)[0])
        found.primary = found._named or BOOTTIME
    reading = clock_reading(snapshot)
    if not reading:
        return
    found.readings.append(reading)
    if len(found.readings) > _MOST_READINGS:
        found.readings = [*found.readings[:-1:2], reading]
    if found.primary in reading:
        _add_span(found, np.array([reading[found.primary]]))


def clock_reading(snapshot: Messages) -> dict[int, int]:
    """Return the times (ns) of a ClockSnapshot's builtin clocks by their ids."""
    _, clocks = snapshot.repeated(1)
    parts = clocks.fields([1, 2, 4])
    ids, times, units = (parts.values(number) for number in (1, 2, 4))
    return {
        int(clock): int(time) * max(int(unit), 1)
        for clock, time, unit in zip(ids, times, units, strict=True)
        if 0 < clock < BUILTIN and time >= 0
    }


def kernel_of(systems: Messages) -> dict[str, str]:
    """Return sysname, release, version and machine (utsname) of the last SystemInfo."""
    _, names = systems.fields([1]).messages(1)
    if not len(names):
        return {}
    last = names.take(np.array([len(names) - 1]))
    fields = last.fields(list(_UTSNAME))
    texts = {name: fields.texts(number, 256).tobytes() for number, name in _UTSNAME.items()}
    return {
        name: text.rstrip(b"\0").decode("utf-8", "replace")
        for name, text in texts.items()
        if text.rstrip(b"\0")
    }


def _add_times(found: Survey, fields: Fields, sequences: I64, ftrace: Ftrace) -> None:
    """Widen `found`'s span by the times of packets and of ftrace's events; count those unplaced.

    Times on another builtin clock are moved by the last snapshot that has both: near enough to
    compare spans, and exact for MONOTONIC and BOOTTIME until the machine sleeps.
    """
    times = fields.values(TIME)
    clocks = _clocks(found, fields.values(_CLOCK), sequences)
    timed = times > 0
    for clock in np.unique(clocks[timed]).tolist():
        here = times[timed & (clocks == clock)]
        moved = 0 if clock == found.primary else _distance(found, clock)
        if moved is None:
            found.unplaced += len(here)
        else:
            _add_span(found, here + moved)
    if found.primary == BOOTTIME:
        _add_span(found, ftrace.time[ftrace.time > 0])


def _clocks(found: Survey, named: I64, sequences: I64) -> I64:
    """Return the clock of each packet's time: named by it, else its sequence's default.

    named: 0 where the packet names none.
    """
    clocks = np.where(named != 0, named, found.primary)
    unnamed = np.flatnonzero(named == 0)
    if found._defaults and len(unnamed):
        distinct, of = np.unique(sequences[unnamed], return_inverse=True)
        default = [found._defaults.get(sequence, found.primary) for sequence in distinct.tolist()]
        clocks[unnamed] = np.array(default, dtype=np.int64)[of]
    return clocks


def _distance(found: Survey, clock: int) -> int | None:
    """Return what makes a time of a builtin clock one of the primary clock (ns); None: unknown."""
    for reading in reversed(found.readings):
        if clock in reading and found.primary in reading:
            return reading[found.primary] - reading[clock]
    return None


def _add_span(found: Survey, times: I64) -> None:
    times = times[(times >= 0) & (times < _LATEST)]
    if len(times):
        found.first = min(found.first, int(times.min()))
        found.last = max(found.last, int(times.max()))
