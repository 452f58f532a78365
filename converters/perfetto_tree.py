# SPDX-License-Identifier: Apache-2.0
"""The tree of tracks, with its order spelt out.

host
  recording                       what was recorded, and how it went
  lost events                     lanes: a slice per loss window
  nvme0n1 (259:0)                 one per device with I/O, in the header's order
    queued · in device · reads · writes · lost events
    bios                          lanes
    requests                      lanes
"""

from dataclasses import dataclass, field

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    CounterDescriptor,
    TracePacket,
    TrackDescriptor,
)

from converters.model.context import Context
from converters.perfetto_names import BIO, LOSS, REQUEST
from converters.perfetto_place import Place
from converters.perfetto_tracks import Identity

_EXPLICIT = TrackDescriptor.EXPLICIT
_BY_KEY = TrackDescriptor.SIBLING_MERGE_BEHAVIOR_BY_SIBLING_MERGE_KEY
_FIRST_DEVICE = 10
_LANES = {BIO: ("bios", 10), REQUEST: ("requests", 11), LOSS: ("lost events", 1)}

QUEUED, IN_DEVICE = "queued", "in device"
READS, WRITES = "reads MB/s", "writes MB/s"
LOST = "lost events"


@dataclass(frozen=True)
class _Counter:
    name: str
    rank: int
    unit: str
    share: str
    description: str


COUNTERS = {
    c.name: c
    for c in (
        _Counter(QUEUED, 0, "bios", "depth", "Q to D: bios queued and not yet issued"),
        _Counter(IN_DEVICE, 1, "bios", "depth", "D to C: bios issued and not yet complete"),
        _Counter(READS, 2, "MB/s", "throughput", "bytes read, by completion, per 10 ms"),
        _Counter(WRITES, 3, "MB/s", "throughput", "bytes written, by completion, per 10 ms"),
        _Counter(LOST, 4, "events", "lost", "records lost so far, on all devices together"),
    )
}


@dataclass
class Tree:
    """Descriptors; groups are announced when their first child is asked for."""

    identity: Identity
    context: Context
    place: Place
    _groups: list[TracePacket] = field(default_factory=list)
    _devices: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = self.identity.uuid("host")
        self.recording = self.identity.uuid("recording")
        shared = self._shared()
        root = self._group(self.root, self.place.label)
        root.child_ordering = _EXPLICIT
        if shared:
            root.parent_uuid, root.sibling_order_rank = shared, self.place.number
        recording = self._group(self.recording, "recording")
        recording.parent_uuid = self.root
        recording.sibling_order_rank = 0

    def _shared(self) -> int:
        """The root that logs of one host share; 0: this one's is its own."""
        if not self.place.above:
            return 0
        uuid = Identity(self.place.above_key).uuid("host")
        self._group(uuid, self.place.above).child_ordering = _EXPLICIT
        return uuid

    def announcements(self) -> list[TracePacket]:
        """Descriptors of groups that have not been given yet."""
        given, self._groups = self._groups, []
        return given

    def devices(self) -> list[int]:
        """Devices that have a group."""
        return list(self._devices)

    def lane(self, category: str, dev: int, lane: int) -> TrackDescriptor:
        """A lane's track. Lanes share name and merge key: the UI stacks them as one group."""
        name, rank = _LANES[category]
        parent = self.root if category == LOSS else self._device(dev)
        return TrackDescriptor(
            uuid=self.identity.uuid(f"{category} {dev} {lane}"),
            parent_uuid=parent,
            name=name,
            sibling_order_rank=rank,
            sibling_merge_behavior=_BY_KEY,
            sibling_merge_key=name,
        )

    def counter(self, name: str, dev: int) -> TrackDescriptor:
        """A device's counter, one of COUNTERS."""
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
        uuid = self._devices.get(dev)
        if uuid is None:
            uuid = self._devices[dev] = self.identity.uuid(f"device {dev}")
            group = self._group(uuid, self.context.device_label(dev))
            group.parent_uuid = self.root
            group.child_ordering = _EXPLICIT
            known = list(self.context.devices)
            place = known.index(dev) if dev in known else len(known)
            group.sibling_order_rank = _FIRST_DEVICE + place
        return uuid

    def _group(self, uuid: int, name: str) -> TrackDescriptor:
        packet = TracePacket()
        packet.track_descriptor.uuid, packet.track_descriptor.name = uuid, name
        self._groups.append(packet)
        return packet.track_descriptor
