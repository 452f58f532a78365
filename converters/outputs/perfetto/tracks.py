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
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackDescriptor

from biotrail.converters.events.tables import I64, U64, Bool
from biotrail.converters.inputs.perfetto.clocks import MONOTONIC
from biotrail.converters.outputs.perfetto.callstacks import CallStacks, Defined
from biotrail.converters.outputs.perfetto.clocks import ClockBook
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
from biotrail.converters.outputs.perfetto.packets import framed
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

    Logs of one trace share the ranges of sequence ids, which begin where `trace` says. Two-byte ids
    are so few that sequences of two traces sometimes have the same. Each sequence therefore begins
    with cleared state, and lanes have a clock whose id is hashed too: a sequence of another trace
    is not understood wrongly unless that is also the same.
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
        self._uuids = beside.uuids
        while self._has(_hash(f"{key} track host") >> 1 | 1):
            key = f"{key} again"  # The other trace has this log, too: flows have to differ as well.
        self._key = key
        self._taken = taken
        first = _hash(f"{trace or key} sequences")
        self._short = _Range(_SHORT, _SHORTS, first, beside.sequences)
        self._long = _Range(_LONG, _LONGS, first, beside.sequences)
        self.flow = _hash(f"{key} flows")
        """Id of the log's first flow, below 2^64, from which on they are numbered."""
        self.clock = _CLOCK + _hash(f"{trace or key} clock") % _CLOCKS
        """Id of the clocks of lanes and counters, which are scoped to their sequences."""

    def uuid(self, path: str) -> int:
        """Return a track's uuid, 63 bits and not zero. path: its name within the log."""
        uuid = _hash(f"{self._key} track {path}") >> 1 | 1
        while self._has(uuid):
            uuid = _hash(f"{self._key} track {path} not {uuid}") >> 1 | 1
        return uuid

    def _has(self, uuid: int) -> bool:
        at = int(np.searchsorted(self._uuids, uuid))
        return at < len(self._uuids) and int(self._uuids[at]) == uuid

    def sequence(self, index: int) -> int:
        """Return the packet sequence id of the log's sequence number `index`; 0: its own."""
        number = self._taken + index
        ids = self._short if index and number < len(self._short) else self._long
        return ids.id(number)


class _Range:
    """Sequence ids from `start` on, `count` of them, in an order that begins at a hash.

    Those that the trace beside has are left out.
    """

    def __init__(self, start: int, count: int, first: int, used: I64) -> None:
        self._start, self._count, self._first = start, count, first
        used = used[(used >= start) & (used < start + count)]
        self._free: I64 | None = None
        if len(used):
            ids = start + (first % count + np.arange(count)) % count
            self._free = ids[~np.isin(ids, used)]

    def __len__(self) -> int:
        return self._count if self._free is None else len(self._free)

    def id(self, number: int) -> int:
        """Return the id of a number from 0; numbers beyond the range begin anew."""
        if self._free is None:
            return self._start + (self._first + number) % self._count
        return int(self._free[number % len(self._free)])


def _hash(text: str) -> int:
    digest = hashlib.blake2b(f"biotrail {text}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


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
    _tracks: list[tuple[TrackDescriptor, str]] = field(default_factory=list)
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
        index = len(self._tracks)
        self._tracks.append((descriptor, category))
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

    def __len__(self) -> int:
        return len(self._tracks)

    def forget_strings(self) -> None:
        """Empty the table of strings; every stream redefines those that it uses."""
        self.drawing.strings.known.clear()
        self._defined[:] = False
        self._current += 1

    def use(self, category: str, arguments: Iterable[int], stages: Iterable[int]) -> None:
        """Note arguments and stages (interned ids) of the next slices; others are not interned."""
        self._used.update((category, iid) for iid in arguments)
        self._used.update((STAGE, iid) for iid in stages)

    def prepare(
        self,
        used: I64,
        strings: Iterable[tuple[I64, U64]] = (),
        callstacks: tuple[I64, U64] | None = None,
    ) -> bytes:
        """Return, encoded, the packets that must precede new packets of the streams `used`.

        used: distinct indices of streams. These packets are a reset, with names and clocks, of each
        stream whose names or clocks are outdated, and definitions of strings and call stacks that a
        stream uses for the first time since its reset. strings, callstacks: (n,), the stream and
        the interned id of each use; id 0: none.
        """
        # Every sequence has to repeat names and clocks when any of them changes.
        counts = (len(self.drawing.names.known), self.clocks.offset_changes, len(self._used))
        if counts != self._counts:
            self._counts, self._current = counts, self._current + 1
        packets: list[TracePacket] = []
        for index in used[self._state[used] != self._current].tolist():
            packets += self._begin(index)
        packets += self._define(strings)
        if callstacks is not None:
            packets += self._define_stacks(*callstacks)
        return framed(packets)

    def _begin(self, index: int) -> list[TracePacket]:
        """Return a stream's reset packet, with its track if it is new, and its clock snapshot."""
        (descriptor, category), sequence = self._tracks[index], int(self.sequence[index])
        first = bool(self._state[index] < 0)
        self._state[index] = self._current
        self._defined[index] = False
        self._defined_stacks.pop(index, None)
        head = TracePacket(
            trusted_packet_sequence_id=sequence,
            sequence_flags=_CLEARED,
            first_packet_on_sequence=first or None,
            track_descriptor=descriptor if first else None,
        )
        defaults = head.trace_packet_defaults
        defaults.timestamp_clock_id = self.identity.clock
        defaults.track_event_defaults.track_uuid = descriptor.uuid
        if category:
            self._intern(head, category)
        clock = self._packet(index)
        snapshot, at = clock.clock_snapshot, int(self.last[index])
        snapshot.clocks.add(clock_id=self.identity.clock, timestamp=at, is_incremental=True)
        for own_clock, time in self.clocks.at(at):
            snapshot.clocks.add(clock_id=own_clock, timestamp=time)
        if self.clocks.primary:
            snapshot.primary_trace_clock = MONOTONIC
        return [head, clock]

    def _intern(self, packet: TracePacket, category: str) -> None:
        data = packet.interned_data
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

    def _define(self, strings: Iterable[tuple[I64, U64]]) -> Iterator[TracePacket]:
        wanted = np.zeros((len(self._tracks), len(self.drawing.strings.known) + 1), dtype=np.bool_)
        for stream, ids in strings:
            wanted[stream, ids.astype(np.int64)] = True
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
            yield packet

    def _define_stacks(self, stream: I64, ids: U64) -> Iterator[TracePacket]:
        pairs = np.unique(stream << 32 | ids.astype(np.int64))
        for part in np.split(pairs, np.flatnonzero(np.diff(pairs >> 32)) + 1):
            index = int(part[0] >> 32)
            packet = self._packet(index)
            defined = self._defined_stacks.setdefault(index, set())
            self.callstacks.define(packet.interned_data, (part & 0xFFFFFFFF).tolist(), defined)
            if packet.interned_data.callstacks:
                yield packet

    def _packet(self, index: int) -> TracePacket:
        sequence = int(self.sequence[index])
        return TracePacket(trusted_packet_sequence_id=sequence, sequence_flags=_NEEDED)
