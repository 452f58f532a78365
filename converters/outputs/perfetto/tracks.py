# SPDX-License-Identifier: Apache-2.0
"""Define tracks, and the packet sequences that write to them.

Every lane and every counter has a packet sequence of its own. So a packet does not name its track
(the sequence's defaults do), its timestamp is the time since the packet before (an incremental
clock; a lane's slices are in order by construction), and it is small.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    ClockSnapshot,
    InternedData,
    TracePacket,
    TrackDescriptor,
)

from biotrail.converters.clocks.wall_clock import SLEPT
from biotrail.converters.events.stacks import Stack, StackNames
from biotrail.converters.events.tables import I32, I64, U64, Bool
from biotrail.converters.inputs.perfetto.clocks import BOOTTIME, MONOTONIC, REALTIME
from biotrail.converters.outputs.perfetto.columns import STRING, Slices
from biotrail.converters.outputs.perfetto.names import (
    ARGUMENT_IIDS,
    ARGUMENTS,
    ARROW,
    CALL,
    CATEGORY_IIDS,
    COMMIT,
    INTERRUPT,
    STAGE,
    STAGE_IIDS,
    STAGE_TITLES,
    Drawing,
)
from biotrail.converters.outputs.perfetto.place import Ids

_SHORT, _SHORTS = 1 << 12, (1 << 14) - (1 << 12)
"""First and number of the sequence ids of lanes and counters. They take two bytes as a varint;
Perfetto's own ids count up from 1."""
_LONG, _LONGS = 1 << 14, (1 << 21) - (1 << 14)
"""Those that take three bytes: of the log's own sequence, and of more lanes than the others are."""
_CLOCK, _CLOCKS = 70, 50
"""First and number of the ids of lanes' clocks. Perfetto's own begin with 64, biotrail's is 65."""
_CLEARED = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED | TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
_NEEDED = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
_STRINGS = 256
"""Columns that `Streams._defined` begins with; it grows with the number of strings."""


class Identity:
    """Hashes track uuids and sequence ids that are unique to a log, so that traces concatenate.

    Two-byte ids are so few that sequences of two traces sometimes have the same. So each sequence
    begins with cleared state, and lanes have a clock whose id is hashed too: a sequence of another
    trace is not understood wrongly unless that is also the same.
    """

    def __init__(
        self, key: str, trace: str | None = None, taken: int = 0, beside: Ids | None = None
    ) -> None:
        """Take the texts that this log's uuids and sequence ids are hashed from.

        key: of track uuids; no other log has it. trace: of the range of sequence ids, which all
        logs of one trace share; None: `key`. taken: how many ids of that range the logs before this
        one use. beside: ids of another trace in the same file; none of them is given out.
        """
        beside = beside or Ids()
        self._theirs = frozenset(beside.uuids.tolist())
        while _hash(f"{key} track host") >> 1 | 1 in self._theirs:
            key = f"{key} again"  # The other trace has this log, too: flows have to differ as well.
        self._key = key
        self._taken = taken
        self._ranges: list[tuple[int, int, int, I64]] = []
        """Per range of sequence ids its start and length, the place in it that the ids begin at, in
        a circle, and for each id of the trace beside how many others come before it."""
        for start, count in ((_SHORT, _SHORTS), (_LONG, _LONGS)):
            first = _hash(f"{trace or key} sequences") % count
            used = beside.sequences
            used = used[(used >= start) & (used < start + count)]
            before = np.sort((used - start - first) % count) - np.arange(len(used))
            self._ranges.append((start, count, first, before))
        self.flow = _hash(f"{key} flows")
        """Id of the log's first flow, below 2^64, from which on they are numbered."""
        self.clock = _CLOCK + _hash(f"{trace or key} clock") % _CLOCKS
        """Id of the clocks of lanes and counters, which are scoped to their sequences."""

    def uuid(self, path: str) -> int:
        """Return a track's uuid, 63 bits and not zero. path: its name within the log."""
        uuid = _hash(f"{self._key} track {path}") >> 1 | 1
        while uuid in self._theirs:
            uuid = _hash(f"{self._key} track {path} not {uuid}") >> 1 | 1
        return uuid

    def sequence(self, index: int) -> int:
        """Return the packet sequence id of the log's sequence number `index`; 0: its own."""
        number = self._taken + index
        short, long = self._ranges
        fits = index and number < short[1] - len(short[3])
        start, count, first, before = short if fits else long
        number %= count - len(before)  # numbers beyond the range begin anew
        number += int(np.searchsorted(before, number, side="right"))
        return start + (first + number) % count


def _hash(text: str) -> int:
    digest = hashlib.blake2b(f"biotrail {text}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


# Clocks of the trace, and call stacks of bios.

OWN_CLOCK = 65
"""Clock of the converter's own sequence, ns; those of lanes and counters: `Identity.clock`."""
_EVERY = 1_000_000_000
"""ns: least distance between two snapshots."""


@dataclass
class ClockBook:
    """Relates the log's MONOTONIC to the trace's clocks, by the readings taken so far.

    Perfetto keeps snapshots of different sets of clocks apart. Each of ours has a clock of its own
    sequence, so that those of another trace, appended with `cat`, do not contradict it. Readings of
    two clocks are some 100 ns apart, so the first one's offset stands until one differs by more
    than 1 ms, after a sleep: otherwise slices that span a snapshot would grow or shrink.
    """

    aligned: bool = False
    """Times are the trace's `clock` already; the log's readings are not used."""
    clock: int = BOOTTIME
    """The trace's primary clock, where `aligned`."""
    offset: int | None = None
    """BOOTTIME - MONOTONIC, ns; None before the first reading."""
    offset_changes: int = 0
    """How often the offset changed since the first reading."""
    _last: int | None = None
    """MONOTONIC of the last snapshot, ns."""
    _taken: int = 0
    """Readings of the list that `new_snapshots` has seen."""

    def at(self, monotonic: int) -> list[tuple[int, int]]:
        """Return (Perfetto's clock id, time in ns) pairs for one moment, the primary clock last.

        monotonic: ns of the log's CLOCK_MONOTONIC; of the trace's `clock` if `aligned`, which then
        is the only one. BOOTTIME follows if the offset is known; it is never below 0.
        """
        if self.aligned:
            return [(self.clock, monotonic)]
        pairs = [(MONOTONIC, monotonic)]
        if self.offset is not None:
            # A damaged reading may give a negative time, which Perfetto's uint64 cannot hold.
            pairs.append((BOOTTIME, max(monotonic + self.offset, 0)))
        return pairs

    def new_snapshots(self, readings: list[dict[str, int]]) -> Iterator[TracePacket]:
        """Yield clock snapshots of readings appended to the log's list since the last call.

        readings: clock name → ns, all so far, in order of time. One of less than a second after the
        last snapshot is left out, unless the machine slept in between (BOOTTIME - MONOTONIC grew by
        more than 1 ms): then only one that is not later. Updates `offset` and `offset_changes`.
        """
        new, self._taken = readings[self._taken :], len(readings)
        for reading in new:
            monotonic = int(reading["monotonic"])
            offset = int(reading["boottime"]) - monotonic
            slept = self.offset is not None and offset > self.offset + SLEPT
            if self._last is not None and monotonic < self._last + (0 if slept else _EVERY):
                continue
            if self.offset is None or slept:
                self.offset_changes += slept
                self.offset = offset
            self._last = monotonic
            snapshot = self.snapshot_at(monotonic)
            snapshot.clocks.add(clock_id=REALTIME, timestamp=int(reading["realtime"]))
            yield TracePacket(clock_snapshot=snapshot)

    def snapshot_at(
        self, at: int, clock_id: int = OWN_CLOCK, *, incremental: bool | None = None
    ) -> ClockSnapshot:
        """Return a snapshot of one moment (ns, as of `at`), without REALTIME."""
        snapshot = ClockSnapshot()
        snapshot.clocks.add(clock_id=clock_id, timestamp=at, is_incremental=incremental)
        for clock, time in self.at(at):
            snapshot.clocks.add(clock_id=clock, timestamp=time)
        without_boottime = self.clock == MONOTONIC if self.aligned else self.offset is None
        if without_boottime:
            snapshot.primary_trace_clock = MONOTONIC
        return snapshot


KERNEL, UNKNOWN = "[kernel]", "[unknown]"
"""Mappings of the kernel itself, and of code in no known file."""

Defined = set[tuple[str, int]]
"""(kind of interned data, id) of all that a sequence has defined."""
_Place = tuple[str, str]
"""A frame's function and mapping."""


@dataclass
class CallStacks:
    """Interns call stacks, which each sequence defines before use. Id: row plus one; 0: none."""

    names: StackNames | None
    """None where the log has none."""
    known: list[Stack] = field(default_factory=list)
    """The stacks that the log has recorded up to the window that is drawn."""
    _ids: dict[str, dict[str | _Place, int]] = field(default_factory=dict)

    def ids(self, rows: I32) -> U64:
        """Return the id of the stacks in rows of `known` (n,); 0 for -1, and without any frame."""
        known = [
            number if stack.kernel or stack.user else 0
            for number, stack in enumerate(self.known, 1)
        ]
        ids: U64 = np.array([0, *known], np.uint64)[rows + 1]
        return ids

    def define(self, data: InternedData, ids: Iterable[int], defined: Defined) -> None:
        """Add to `data` what call stacks take that is not in `defined`, which is updated.

        ids: of the stacks. defined: (kind of interned data, id) of all that the packet's sequence
        has.
        """
        for iid in ids:
            if not iid or ("callstack", iid) in defined:
                continue
            frames = []
            for function, mapping in _places(self.known[iid - 1]):
                keys = ("frame", (function, mapping)), ("name", function), ("mapping", mapping)
                new = {kind: self._id(kind, key) for kind, key in keys}
                frames.append(new["frame"])
                if ("name", new["name"]) not in defined:
                    data.function_names.add(iid=new["name"], str=function.encode())
                if ("mapping", new["mapping"]) not in defined:
                    data.mapping_paths.add(iid=new["mapping"], str=mapping.encode())
                    data.mappings.add(iid=new["mapping"], path_string_ids=[new["mapping"]])
                if ("frame", new["frame"]) not in defined:
                    data.frames.add(
                        iid=new["frame"], function_name_id=new["name"], mapping_id=new["mapping"]
                    )
                defined.update(new.items())
            data.callstacks.add(iid=iid, frame_ids=frames)
            defined.add(("callstack", iid))

    def _id(self, kind: str, key: str | _Place) -> int:
        known = self._ids.setdefault(kind, {})
        return known.setdefault(key, len(known) + 1)


def _places(stack: Stack) -> list[_Place]:
    """Return the (function, mapping) of a stack's frames: user, then kernel, outermost first.

    Without a symbol the function is `FILE+0xOFFSET`; without a file either, the address for kernel
    code. Adjacent user frames of which neither file nor function is known become one.
    """
    places: list[_Place] = []
    for frames, unknown in ((stack.user, UNKNOWN), (stack.kernel, KERNEL)):
        for frame in frames[::-1]:
            mapping = frame.where or unknown
            if frame.name:
                function = frame.name
            elif frame.where:
                function = f"{frame.where.rsplit('/', 1)[-1]}+{frame.offset:#x}"
            else:
                function = f"{frame.offset:#x}" if unknown == KERNEL else UNKNOWN
            if (function, mapping) != (UNKNOWN, UNKNOWN) or places[-1:] != [(UNKNOWN, UNKNOWN)]:
                places.append((function, mapping))
    return places


@dataclass
class Streams:
    """All packet sequences of a log, one per lane and per counter; an index numbers them from 0."""

    identity: Identity
    clocks: ClockBook
    drawing: Drawing
    callstacks: CallStacks
    sequence: U64 = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    """Per stream: its packet sequence id. Arrays may be longer than there are streams."""
    last: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Per stream: the time of its last packet, ns."""
    tracks: list[tuple[TrackDescriptor, str]] = field(default_factory=list)
    """Per stream: its track, and the category whose names it interns; empty for a counter."""
    _state: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Per stream: the `_current` for which its names and clock were written; -1 before its first
    packet."""
    _defined: Bool = field(default_factory=lambda: np.zeros((0, _STRINGS), dtype=np.bool_))
    """(streams, strings): whether the stream has defined the interned string."""
    _defined_stacks: dict[int, Defined] = field(default_factory=dict)
    """Per stream: the interned call stack data that it has defined."""
    _used: set[tuple[str, int]] = field(default_factory=set)
    """(category, interned id) of the arguments and stages that occurred so far."""
    _counts: tuple[int, int, int] = (-1, -1, -1)
    """Counts of names, clock offset changes and used arguments that `_current` stands for."""
    _current: int = 0
    """Version of the names and clocks; a stream with another one must write them again."""

    def add(self, descriptor: TrackDescriptor, category: str, start: int) -> int:
        """Add a packet sequence for a new track, and return its index.

        category: whose names (event names, arguments) the sequence interns, empty for a counter.
        start: ns; its first packet has this time or a later one.
        """
        index = len(self.tracks)
        self.tracks.append((descriptor, category))
        if index == len(self.sequence):
            more = (0, max(index, 64))  # doubled, so that adding stays linear
            self.sequence = np.pad(self.sequence, more)
            self.last, self._state = np.pad(self.last, more), np.pad(self._state, more)
            self._defined = np.pad(self._defined, (more, (0, 0)))
        # Number 0 is the converter's own sequence.
        self.sequence[index] = self.identity.sequence(index + 1)
        self.last[index] = start
        self._state[index] = -1
        return index

    def forget_strings(self) -> None:
        """Empty the table of strings; every stream redefines those that it uses."""
        self.drawing.strings.known.clear()
        self._defined[:] = False
        self._current += 1

    def prepare(self, stream: I64, slices: Slices | None = None) -> list[TracePacket]:
        """Return the packets that must precede new packets of streams.

        stream: distinct indices of streams, or with `slices` per slice (n,) that of its own. The
        packets reset each stream whose names or clocks are outdated, and define strings and call
        stacks that a stream has not used since its reset.
        """
        if slices is not None:
            iids = [(slices.category, column.iid) for column in slices.columns]
            named = () if slices.stages is None else np.flatnonzero(np.bincount(slices.stages.name))
            self._used.update(iids, [(STAGE, int(iid)) for iid in named])
        # Every sequence has to repeat names and clocks when any of them changes.
        counts = (len(self.drawing.names.known), self.clocks.offset_changes, len(self._used))
        if counts != self._counts:
            self._counts, self._current = counts, self._current + 1
        used = stream if slices is None else np.flatnonzero(np.bincount(stream))
        packets: list[TracePacket] = []
        for index in used[self._state[used] != self._current].tolist():
            packets += self._begin(index)
        if slices is None:
            return packets
        wanted = np.zeros((len(self.tracks), len(self.drawing.strings.known) + 1), dtype=np.bool_)
        for column in slices.columns:
            if column.tag == STRING:
                here = stream if column.at is None else stream[column.at]
                wanted[here, column.values.astype(np.int64)] = True
        wanted[:, 0] = False
        if wanted.shape[1] > self._defined.shape[1]:
            more = max(wanted.shape[1], 2 * self._defined.shape[1]) - self._defined.shape[1]
            self._defined = np.pad(self._defined, ((0, 0), (0, more)))
        known = self._defined[: len(wanted), : wanted.shape[1]]
        new = wanted & ~known
        known |= wanted
        texts = list(self.drawing.strings.known)
        for index in np.flatnonzero(new.any(axis=1)).tolist():
            packet = self._packet(index)
            for iid in np.flatnonzero(new[index]).tolist():
                packet.interned_data.debug_annotation_string_values.add(
                    iid=iid, str=texts[iid - 1].encode()
                )
            packets.append(packet)
        if slices.callstack is not None:
            pairs = np.unique(stream << 32 | slices.callstack.astype(np.int64))
            for part in np.split(pairs, np.flatnonzero(np.diff(pairs >> 32)) + 1):
                index = int(part[0] >> 32)
                packet = self._packet(index)
                defined = self._defined_stacks.setdefault(index, set())
                self.callstacks.define(packet.interned_data, (part & 0xFFFFFFFF).tolist(), defined)
                if packet.interned_data.callstacks:
                    packets.append(packet)
        return packets

    def _begin(self, index: int) -> list[TracePacket]:
        """Return a stream's reset packet, with its track if it is new, and its clock snapshot."""
        descriptor, category = self.tracks[index]
        first = bool(self._state[index] < 0)
        self._state[index] = self._current
        self._defined[index] = False
        self._defined_stacks.pop(index, None)
        head, clock = self._packet(index), self._packet(index)
        head.sequence_flags = _CLEARED
        if first:
            head.first_packet_on_sequence = True
            head.track_descriptor.CopyFrom(descriptor)
        defaults = head.trace_packet_defaults
        defaults.timestamp_clock_id = self.identity.clock
        defaults.track_event_defaults.track_uuid = descriptor.uuid
        at = int(self.last[index])
        snapshot = self.clocks.snapshot_at(at, self.identity.clock, incremental=True)
        clock.clock_snapshot.CopyFrom(snapshot)
        if not category:
            return [head, clock]
        data = head.interned_data
        data.event_categories.add(iid=CATEGORY_IIDS[category], name=category)
        stages = [stage for stage, iid in STAGE_IIDS.items() if (STAGE, iid) in self._used]
        if stages or category in (CALL, COMMIT, INTERRUPT):
            data.event_categories.add(iid=CATEGORY_IIDS[STAGE], name=STAGE)
        if self.drawing.options.detail.requests:  # slices may have marks
            data.event_categories.add(iid=CATEGORY_IIDS[ARROW], name=ARROW)
        for stage in stages:
            data.event_names.add(iid=STAGE_IIDS[stage], name=STAGE_TITLES[stage])
        for name, iid in self.drawing.names.known.items():
            data.event_names.add(iid=iid, name=name)
        for argument in ARGUMENTS[category]:
            iid = ARGUMENT_IIDS[argument.name]
            if (category, iid) in self._used:
                data.debug_annotation_names.add(iid=iid, name=argument.name)
        return [head, clock]

    def _packet(self, index: int) -> TracePacket:
        sequence = int(self.sequence[index])
        return TracePacket(trusted_packet_sequence_id=sequence, sequence_flags=_NEEDED)
