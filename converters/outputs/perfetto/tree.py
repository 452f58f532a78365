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
from typing import Any

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    CounterDescriptor,
    TracePacket,
    TrackDescriptor,
)

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Stage, Tasks
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
from biotrail.converters.outputs.perfetto.packets import PacketFile
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


_LANES = {
    SLOWEST: (SLOWEST_TRACK, 1, SLOW),
    SLOW_CALL: (SLOW_CALLS_TRACK, 1, SLOW_CALLS),
    LOSS: (LOST, 2, LOSSES),
    STATE: ("state", 9, STATES),
    BIO: ("bios", 10, BIOS),
    REQUEST: ("requests", 11, REQUESTS),
    INTERRUPT: ("interrupts", 14, INTERRUPTS),
}
"""Per category of slices: name, which is the merge key, rank and description of its lanes."""
_OF_DEVICE = (STATE, BIO, REQUEST, INTERRUPT)
"""Categories of slices that are below their device's group."""
_MORE = {
    BIO: ("more bios", 12, MORE.format(SCREEN, "bios")),
    REQUEST: ("more requests", 13, MORE.format(SCREEN, "requests")),
}
_LATENCY = (
    "of the latencies, Q to C, of the I/Os that completed in each 10 ms (less in a trace of under "
    "half a second). 0: none did."
)
COUNTERS = {
    QUEUED: (0, "bios", "depth", "Q to D: bios that are queued and not yet issued."),
    IN_DEVICE: (1, "bios", "depth", "D to C: bios that are issued, not yet complete."),
    # "bytes" is a unit that the UI knows: 3.5 GB.
    READS: (2, "bytes", "throughput", "Bytes that reads completed, per second."),
    WRITES: (3, "bytes", "throughput", "Bytes that writes completed, per second."),
    LATENCIES[0]: (4, "µs", "latency", f"Half {_LATENCY}"),
    LATENCIES[1]: (4, "µs", "latency", f"99 % {_LATENCY}"),
    LOST: (5, "events", "lost", "Records lost so far, on all devices together."),
}
"""Per counter of a device: rank, unit, the key of those that share their y axis, description."""


@dataclass
class Tree:
    """Makes the descriptors of a log's tracks; writes that of a group before its first child's."""

    file: PacketFile
    identity: Identity
    context: Context
    place: Place
    threads: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Process id and name by thread id, of threads with calls; whoever writes calls fills it."""
    processes: dict[int, str] = field(default_factory=dict)
    """Name by process id, of processes with submissions; whoever writes submissions fills it."""
    pairs: dict[int, PairTrack] = field(default_factory=dict)
    """Tracks of pairs of events by number; whoever writes pairs fills it."""
    devices: dict[int, int] = field(default_factory=dict)
    """Per device (dev_t) that has a group, in the order of their creation: the group's uuid."""
    _names: dict[int, str] = field(default_factory=dict)
    """Name by process id, as by `name_processes`."""
    _groups: dict[str, int] = field(default_factory=dict)
    """Per group that was written, by its path within the log: its uuid."""

    def begin(self) -> None:
        """Write the log's root, below the one that it may share with others, and "recording".

        Before any lane, group or counter.
        """
        place, above = self.place, None
        if place.above:
            above = Identity(place.above_key, beside=place.beside).uuid("host")
            shared = TrackDescriptor(uuid=above, name=place.above, child_ordering=_EXPLICIT)
            self.file.packets([TracePacket(track_descriptor=shared)])
        self.root = self._group(
            "host",
            name=place.label,
            description=ROOT,
            parent_uuid=above,
            sibling_order_rank=place.number if above else None,
            child_ordering=_EXPLICIT,
        )
        self.recording = self._group(
            "recording", name="recording", parent_uuid=self.root, sibling_order_rank=0
        )

    def _group(self, path: str, **descriptor: Any) -> int:
        """Return the uuid of a group, which is written at its first use."""
        if path not in self._groups:
            uuid = self._groups[path] = self.identity.uuid(path)
            track = TrackDescriptor(uuid=uuid, **descriptor)
            self.file.packets([TracePacket(track_descriptor=track)])
        return self._groups[path]

    def name_processes(self, tasks: Tasks) -> None:
        """Note processes' names: their first threads', or where that is not known the title."""
        for row in np.flatnonzero(tasks.tid == tasks.tgid).tolist():
            self._names[int(tasks.tgid[row])] = str(tasks.comm[row])
        for row in range(len(tasks)):
            pid = tasks.pid(row)
            if pid is not None and pid not in self._names:
                title = self.context.titles.title(pid, str(tasks.comm[row]))
                if title:
                    self._names[pid] = title

    def _process(self, pid: int, name: str) -> int:
        """Return the uuid of a process's track. name: where none was noted.

        Other data sources of the machine have the process, too; its first name is what is shown.
        """
        name = self._names.get(pid, name)
        return self._group(f"process {pid}", process={"pid": pid, "process_name": name})

    def device(self, dev: int) -> int:
        """Return the uuid of a device's group."""
        known = list(self.context.devices)
        self.devices[dev] = self._group(
            f"device {dev}",
            name=self.context.device_label(dev),
            parent_uuid=self.root,
            sibling_order_rank=_FIRST_DEVICE + (known.index(dev) if dev in known else len(known)),
            child_ordering=_EXPLICIT,
        )
        return self.devices[dev]

    def lane(self, category: str, dev: int, lane: int) -> TrackDescriptor:
        """Return the track of a lane, from 0, one of those that slices of a category are drawn on.

        dev: the device (dev_t), with CALL the thread's id, with SUBMISSION the process's, with PAIR
        the key of `pairs`. From SCREEN on, lanes of bios and requests are part of "more bios" and
        "more requests".
        """
        uuid, parent = self.identity.uuid(f"{category} {dev} {lane}"), self.root
        rank: int | None
        description: str | None = None
        # Alone in a trace, threads and processes have the tracks that other data sources of the
        # machine have, too; ids of several logs can be equal, so theirs are below the logs' roots.
        alone = self.place.number == 1 and not self.place.host
        if category == CALL:
            pid, name = self.threads.get(dev, (dev, ""))
            if alone and not lane:  # a further lane is needed where the thread's id was reused
                self._process(pid, name)
                thread = {"pid": pid, "tid": dev, "thread_name": name}
                return TrackDescriptor(uuid=uuid, thread=thread)
            name = f"{name or 'thread'} {dev}"
            return TrackDescriptor(
                uuid=uuid, parent_uuid=parent, name=name, sibling_order_rank=_CALLS
            )
        if category == COMMIT:
            name, rank = f"journal of {self.context.device_name(dev)}", _JOURNALS
            description = JOURNAL
        elif category == SUBMISSION:
            process = self.processes.get(dev, "")
            if alone:
                name, rank, parent = RINGS, None, self._process(dev, process)
            else:
                name, rank = f"{process or 'process'} {dev}: {RINGS}", _CALLS
        elif category == PAIR:
            track = self.pairs[dev]
            name, rank = track.key or track.name, track.rank
            parent = self._group(
                f"pairs {track.pair}",
                name=f"pairs: {track.name}",
                parent_uuid=self.root,
                sibling_order_rank=_PAIRS,
                child_ordering=_EXPLICIT,
            )
        else:
            more = category in _MORE and lane >= SCREEN
            name, rank, description = (_MORE if more else _LANES)[category]
            # Lanes are drawn as one track: one description, at the lane with the first slice.
            if lane != (SCREEN if more else 0):
                description = None
            if category in (SLOWEST, SLOW_CALL) and self.place.host:  # pinned, no host is above
                name = f"{name} of {self.place.host}"
            if category in _OF_DEVICE:
                parent = self.device(dev)
        return TrackDescriptor(
            uuid=uuid,
            parent_uuid=parent,
            name=name,
            description=description,
            sibling_order_rank=rank,
            sibling_merge_behavior=_BY_KEY,
            sibling_merge_key=name,
        )

    def counter(self, name: str, dev: int) -> TrackDescriptor:
        """Return the track of a device's counter, one of COUNTERS, below the device's group."""
        rank, unit, share, description = COUNTERS[name]
        return TrackDescriptor(
            uuid=self.identity.uuid(f"counter {name} {dev}"),
            parent_uuid=self.device(dev),
            name=name,
            description=description,
            sibling_order_rank=rank,
            counter=CounterDescriptor(unit_name=unit, y_axis_share_key=share),
        )
