# SPDX-License-Identifier: Apache-2.0
"""The tree of tracks of one log, below its host's root.

db1: block I/O
  recording                       metadata
  slowest I/Os                    lanes
  waiting because of others       a counter per victim, where any waited
  slowest calls                   lanes, where calls were timed
  lost events                     lanes: a slice per loss window, where there are any
  journal of nvme0n1p2            a slice per commit, where they were recorded
  nvme0n1 (259:0)                 one per device with I/O, in the header's order
    queued · in device · reads · writes · latency p50 and p99 · lost events, where there are any
    state                         idle, busy, flushing
    bios                          lanes
    requests                      lanes
    more bios                     lanes beyond what a screen holds
    more requests
    interrupts                    lanes, where they were recorded
"""

from dataclasses import dataclass, field

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    CounterDescriptor,
    TracePacket,
    TrackDescriptor,
)

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Stage
from biotrail.converters.outputs.perfetto.names import (
    BIO,
    CALL,
    COMMIT,
    IN_DEVICE,
    INTERRUPT,
    LOSS,
    PAIR,
    QUEUED,
    REQUEST,
    SLOW_CALL,
    SLOW_CALLS_TRACK,
    SLOWEST,
    SLOWEST_TRACK,
    STAGE_TITLES,
    STATE,
    SUBMISSION,
)
from biotrail.converters.outputs.perfetto.place import Place
from biotrail.converters.outputs.perfetto.tracks import Identity

# Descriptions of tracks, which the UI shows behind each track's help button.

_STAGES = {
    Stage.Q2G: "waits for a request",
    Stage.G2I: "has a request, which is not in the scheduler yet (plugged)",
    Stage.I2D: "waits in the scheduler",
    Stage.G2D: "has a request, which is not issued yet (no scheduler)",
    Stage.Q2D: "waits until it is issued; no event lies between",
    Stage.D2C: "in the device",
    Stage.Q2M: "waits until it is merged into another's request",
    Stage.M2I: "merged; that request is not in the scheduler yet (plugged)",
    Stage.M2D: "merged; that request is not issued yet (no scheduler)",
    Stage.R2D: "given back by the driver (requeue), until it is issued again",
    Stage.PRE_FLUSH: "waits for the flush before its data",
    Stage.POST_FLUSH: "its data is written, and waits for the flush after that",
    Stage.FLUSH: "a flush without data (fsync), until the device has flushed",
    Stage.BIO_BASED: "in a device that takes bios as they are (dm, md, zram)",
    Stage.FAILED: "failed before it was issued",
    Stage.UNKNOWN: "its issue was not seen",
}
_OF_LANES = "A lane has no meaning: what overlaps in time lies on different lanes."
_LINES = "\n".join(f"{STAGE_TITLES[stage]}: {text}." for stage, text in _STAGES.items())

ROOT = "Block I/O as the kernel saw it, recorded by biotrail. Below: a group for each device."
SLOW = (
    "The I/Os with the longest latency, of those that the trace shows whole and whose end is not "
    "in doubt, named by operation, size and process, with their stages; `why` says what they "
    f"waited for. At most three overlap, so that not all are of one burst. {_OF_LANES}"
)
SLOW_CALLS = (
    "The system calls that took longest, of those that queued I/O or waited for it, with their "
    f"waits. At most three overlap, so that not all are of one burst. {_OF_LANES}"
)
LOSSES = "Records were lost meanwhile: what was in flight then is marked."
BIOS = (
    "A slice is a bio, from queue (Q) to completion (C). Its stages lie in it and fill it without "
    f"gaps, so a sum over an area has each moment twice. {_OF_LANES}\n{_LINES}"
)
STATES = (
    "idle: no I/O was queued or in flight. flushing: a flush was in flight (fsync, or the flush "
    "before or after data that asks for it). busy: other I/O alone. Gaps that are short beside the "
    "trace are not drawn: at most 250 stretches of a kind are told apart."
)
REQUESTS = (
    "A slice is a request, from allocation (G) to completion (C): what the driver saw. Its stages "
    f"lie in it, as those of bios do. {_OF_LANES}"
)
MORE = "What was beyond the first {} lanes of {}, more than a screen holds. A lane has no meaning."
JOURNAL = (
    "A slice is a commit of the file system's journal (jbd2), with its phases in it. Starting: the "
    "transaction is chosen. Locking: it waits for calls that still change it. Flushing: data of "
    "files that has to precede is written. Logging: metadata and the commit block are written."
)
INTERRUPTS = (
    "A slice is an interrupt of the device, or a BLOCK softirq without one, up to the last request "
    "that it completed. Only what led to a recorded completion is drawn, and by default the "
    "longest of them. "
    f"{_OF_LANES}"
)


@dataclass(frozen=True)
class PairTrack:
    """A track of pairs: the pair's number and name, and the key as text, or OTHERS."""

    pair: int
    name: str
    key: str
    rank: int
    """Place among the tracks of the pair."""


SCREEN = 16
"""Lanes of bios, or of requests, that are drawn together: with stages, 36 pixels each."""

_EXPLICIT = TrackDescriptor.EXPLICIT
_BY_KEY = TrackDescriptor.SIBLING_MERGE_BEHAVIOR_BY_SIBLING_MERGE_KEY
_CALLS, _JOURNALS, _PAIRS = 3, 4, 5
_FIRST_DEVICE = 10
"""Rank of the first device's group, below the lanes of the whole log."""

READS, WRITES = "read bytes/s", "written bytes/s"
LATENCIES = ("latency p50", "latency p99")
LOST = "lost events"
RINGS = "io_uring and aio"
"""Name of the lanes of submissions."""


@dataclass(frozen=True)
class _Lanes:
    """A stack of lanes with one name and merge key, which the UI draws as one track."""

    name: str
    rank: int
    description: str


_LANES = {
    SLOWEST: _Lanes(SLOWEST_TRACK, 1, SLOW),
    SLOW_CALL: _Lanes(SLOW_CALLS_TRACK, 1, SLOW_CALLS),
    LOSS: _Lanes(LOST, 2, LOSSES),
    STATE: _Lanes("state", 9, STATES),
    BIO: _Lanes("bios", 10, BIOS),
    REQUEST: _Lanes("requests", 11, REQUESTS),
    INTERRUPT: _Lanes("interrupts", 14, INTERRUPTS),
}
_OF_DEVICE = (STATE, BIO, REQUEST, INTERRUPT)
"""Categories of slices that are below their device's group."""
_MORE = {
    BIO: _Lanes("more bios", 12, MORE.format(SCREEN, "bios")),
    REQUEST: _Lanes("more requests", 13, MORE.format(SCREEN, "requests")),
}


@dataclass(frozen=True)
class _Counter:
    """A device's counter. share: counters with the same key share their y axis in the UI."""

    name: str
    rank: int
    unit: str
    share: str
    description: str


COUNTERS = {
    c.name: c
    for c in (
        _Counter(QUEUED, 0, "bios", "depth", "Q to D: bios that are queued and not yet issued."),
        _Counter(IN_DEVICE, 1, "bios", "depth", "D to C: bios that are issued, not yet complete."),
        # "bytes" is a unit that the UI knows: 3.5 GB.
        _Counter(READS, 2, "bytes", "throughput", "Bytes that reads completed, per second."),
        _Counter(WRITES, 3, "bytes", "throughput", "Bytes that writes completed, per second."),
        *(
            _Counter(
                name,
                4,
                "µs",
                "latency",
                f"{what} of the latencies, Q to C, of the I/Os that completed in each 10 ms (less "
                "in a trace of under half a second). 0: none did.",
            )
            for name, what in zip(LATENCIES, ("Half", "99 %"), strict=True)
        ),
        _Counter(LOST, 5, "events", "lost", "Records lost so far, on all devices together."),
    )
}


@dataclass
class Tree:
    """Makes the descriptors of a log's tracks; a device's group is created with its first child."""

    identity: Identity
    context: Context
    place: Place
    _groups: list[TracePacket] = field(default_factory=list)
    """Packets of groups that `announcements` has not returned yet."""
    threads: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Process id and name by thread id, of threads with calls; whoever writes calls fills it."""
    processes: dict[int, str] = field(default_factory=dict)
    """Name by process id, of processes with submissions; whoever writes submissions fills it."""
    process_names: dict[int, str] = field(default_factory=dict)
    """Name by process id, that of its first thread or its title, where they are known; whoever
    writes calls and submissions fills it."""
    pairs: dict[int, PairTrack] = field(default_factory=dict)
    """Tracks of pairs of events by number; whoever writes pairs fills it."""
    _of_pair: dict[int, int] = field(default_factory=dict)
    """Per pair that has a group: the group's uuid."""
    _devices: dict[int, int] = field(default_factory=dict)
    """Per device that has a group: the group's uuid."""
    _of_process: dict[int, int] = field(default_factory=dict)
    """Per process with calls or submissions: its track's uuid."""

    def __post_init__(self) -> None:
        """Create the log's root and its group "recording", as packets for `announcements`.

        The root is below one that several logs of a host share, if there is one, which is created
        first. Sets `root` and `recording`, their uuids.
        """
        self.root = self.identity.uuid("host")
        self.recording = self.identity.uuid("recording")
        shared = self._shared_root()
        root = self._group(self.root, self.place.label)
        root.child_ordering = _EXPLICIT
        root.description = ROOT
        if shared:
            root.parent_uuid, root.sibling_order_rank = shared, self.place.number
        recording = self._group(self.recording, "recording")
        recording.parent_uuid = self.root
        recording.sibling_order_rank = 0

    def _shared_root(self) -> int:
        """Create the root that several logs of a host share; return its uuid."""
        if not self.place.above:
            return 0
        uuid = Identity(self.place.above_key, beside=self.place.beside).uuid("host")
        self._group(uuid, self.place.above).child_ordering = _EXPLICIT
        return uuid

    def announcements(self) -> list[TracePacket]:
        """Return descriptors of groups created since the last call; they precede their children."""
        given, self._groups = self._groups, []
        return given

    def devices(self) -> list[int]:
        """Return the dev_t of each device that has a group, in the order of their creation."""
        return list(self._devices)

    def lane(self, category: str, dev: int, lane: int) -> TrackDescriptor:
        """Return the track of a lane, one of those that slices of a category are drawn on.

        category: lanes of `_OF_DEVICE` are below their device's group, which is created
        if it is new; SLOWEST, SLOW_CALL and LOSS lanes are below the root, and `dev` (dev_t) only
        enters their uuid. A CALL lane is a thread's track, and `dev` the thread's id; a SUBMISSION
        lane is below its process, and `dev` the process's id; a COMMIT lane is a journal's,
        and `dev` its file system's. lane: from 0; from SCREEN on, lanes of bios and
        requests are part of "more bios" and "more requests". Only the first lane of
        such a part has the description.
        """
        if category == CALL:
            return self._thread(dev, lane)
        if category == COMMIT:
            return self._journal(dev, lane)
        if category == SUBMISSION:
            return self._submissions(dev, lane)
        if category == PAIR:
            return self._pairs(dev, lane)
        lanes, first = _LANES[category], 0
        if category in _MORE and lane >= SCREEN:
            lanes, first = _MORE[category], SCREEN
        name = lanes.name
        if category in (SLOWEST, SLOW_CALL) and self.place.host:  # pinned, no host is above
            name = f"{name} of {self.place.host}"
        return TrackDescriptor(
            uuid=self.identity.uuid(f"{category} {dev} {lane}"),
            parent_uuid=self._device(dev) if category in _OF_DEVICE else self.root,
            name=name,
            # Lanes are drawn as one track: one description, at the lane with the first slice.
            description=lanes.description if lane == first else None,
            sibling_order_rank=lanes.rank,
            sibling_merge_behavior=_BY_KEY,
            sibling_merge_key=name,
        )

    def _thread(self, tid: int, lane: int) -> TrackDescriptor:
        """Return the track of a thread's calls. Its process and name are those in `threads`.

        Without them the process has the thread's id, and the name is empty. Alone in a trace it is
        the thread's own track, which other data sources of the machine have too; of several logs it
        is a track below the log's root, as their thread ids can be equal. Lanes beyond the first,
        which only a reused thread id needs, are below the root as well.
        """
        pid, name = self.threads.get(tid, (tid, ""))
        descriptor = TrackDescriptor(uuid=self.identity.uuid(f"{CALL} {tid} {lane}"))
        if lane or self.place.number != 1 or self.place.host:
            descriptor.parent_uuid = self.root
            descriptor.name = f"{name or 'thread'} {tid}"
            descriptor.sibling_order_rank = _CALLS
        else:
            self._process(pid, self.process_names.get(pid, name))
            descriptor.thread.pid, descriptor.thread.tid = pid, tid
            descriptor.thread.thread_name = name
        return descriptor

    def _process(self, pid: int, name: str) -> int:
        """Return the uuid of a process's track, which is created, with the name, at its first use.

        Other data sources of the machine have the process, too; its first name is what is shown.
        """
        uuid = self._of_process.get(pid)
        if uuid is None:
            uuid = self._of_process[pid] = self.identity.uuid(f"process {pid}")
            group = self._group(uuid, "")
            group.ClearField("name")
            group.process.pid, group.process.process_name = pid, name
        return uuid

    def _journal(self, dev: int, lane: int) -> TrackDescriptor:
        """Return the track of a lane of the commits of a file system's journal, below the root."""
        name = f"journal of {self.context.device_name(dev)}"
        return TrackDescriptor(
            uuid=self.identity.uuid(f"{COMMIT} {dev} {lane}"),
            parent_uuid=self.root,
            name=name,
            description=JOURNAL,
            sibling_order_rank=_JOURNALS,
            sibling_merge_behavior=_BY_KEY,
            sibling_merge_key=name,
        )

    def _pairs(self, code: int, lane: int) -> TrackDescriptor:
        """Return the track of a lane of a key's pairs, below the group of its pair."""
        track = self.pairs[code]
        above = self._of_pair.get(track.pair)
        if above is None:
            above = self._of_pair[track.pair] = self.identity.uuid(f"pairs {track.pair}")
            group = self._group(above, f"pairs: {track.name}")
            group.parent_uuid, group.sibling_order_rank = self.root, _PAIRS
            group.child_ordering = _EXPLICIT
        name = track.key or track.name
        return TrackDescriptor(
            uuid=self.identity.uuid(f"{PAIR} {code} {lane}"),
            parent_uuid=above,
            name=name,
            sibling_order_rank=track.rank,
            sibling_merge_behavior=_BY_KEY,
            sibling_merge_key=name,
        )

    def _submissions(self, pid: int, lane: int) -> TrackDescriptor:
        """Return the track of a lane of a process's submissions, named as in `processes`."""
        name = self.processes.get(pid, "")
        descriptor = TrackDescriptor(
            uuid=self.identity.uuid(f"{SUBMISSION} {pid} {lane}"),
            name=RINGS,
            sibling_merge_behavior=_BY_KEY,
            sibling_merge_key=RINGS,
        )
        if self.place.number != 1 or self.place.host:
            descriptor.parent_uuid = self.root
            descriptor.name = f"{name or 'process'} {pid}: {RINGS}"
            descriptor.sibling_merge_key = descriptor.name
            descriptor.sibling_order_rank = _CALLS
            return descriptor
        descriptor.parent_uuid = self._process(pid, self.process_names.get(pid, name))
        return descriptor

    def counter(self, name: str, dev: int) -> TrackDescriptor:
        """Return the track of a device's counter, below the device's group.

        name: of COUNTERS. dev: dev_t; its group is created if it is new, as a packet for
        `announcements`. The same name and dev have the same uuid.
        """
        counter = COUNTERS[name]
        return TrackDescriptor(
            uuid=self.identity.uuid(f"counter {name} {dev}"),
            parent_uuid=self._device(dev),
            name=name,
            description=counter.description,
            sibling_order_rank=counter.rank,
            counter=CounterDescriptor(unit_name=counter.unit, y_axis_share_key=counter.share),
        )

    def _device(self, dev: int) -> int:
        """Return the uuid of a device's group; create the group on first use."""
        uuid = self._devices.get(dev)
        if uuid is None:
            uuid = self._devices[dev] = self.identity.uuid(f"device {dev}")
            group = self._group(uuid, self.context.device_label(dev))
            group.parent_uuid = self.root
            group.child_ordering = _EXPLICIT
            devices = list(self.context.devices)
            place = devices.index(dev) if dev in devices else len(devices)
            group.sibling_order_rank = _FIRST_DEVICE + place
        return uuid

    def _group(self, uuid: int, name: str) -> TrackDescriptor:
        """Add a group's descriptor to `_groups` and return it, to be completed by the caller."""
        packet = TracePacket()
        packet.track_descriptor.uuid, packet.track_descriptor.name = uuid, name
        self._groups.append(packet)
        return packet.track_descriptor
