# SPDX-License-Identifier: Apache-2.0
"""Draw who slowed whom: culprits of the slowest I/Os, and how much of victims' I/O waits."""

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    CounterDescriptor,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

from biotrail.converters.events.tables import I64
from biotrail.converters.outputs.perfetto.tracks.tree import Tree
from biotrail.recorder.schema.strings import shown

GROUP = "waiting because of others"
RANK = 2
_MOST = 5
"""Culprits that an I/O has as arguments."""
_DESCRIPTION = (
    "How many I/Os of this container, unit, cgroup or process wait because of others' I/O, on "
    "average: the time that others cost each of them, spread from its queue to its completion."
)


class Blame(Protocol):
    """Who slowed whom, once all windows were taken in (`analysis.blame.timeline`)."""

    def finish(self) -> None:
        """Take in what is left, after the last window."""

    def behind(self, number: int) -> list[tuple[str, int]]:
        """Return (culprit, ns) of a bio, the most first."""

    def waiting(self) -> Iterable[tuple[str, I64, NDArray[np.float64]]]:
        """Return (victim, times in ns, how many of its I/Os wait for others from then on)."""


def mark(event: TrackEvent, behind: list[tuple[str, int]], latency: int) -> None:
    """Add the argument `behind`: for each culprit its name, ns, and share of the latency in %."""
    if not behind:
        return
    told = event.debug_annotations.add(name="behind")
    for culprit, ns in behind[:_MOST]:
        one = told.array_values.add()
        one.dict_entries.add(name="culprit", string_value=shown(culprit))
        one.dict_entries.add(name="wait_ns", uint_value=ns)
        one.dict_entries.add(name="percent", double_value=round(100 * ns / latency, 1))


def counters(blame: Blame, tree: Tree, begin: int, end: int) -> Iterator[TracePacket]:
    """Yield victims' tracks, below the log's root, and their samples from begin to end, ns."""
    group = tree.identity.uuid(GROUP)
    for number, (victim, times, values) in enumerate(blame.waiting()):
        if not number:
            above = TrackDescriptor(uuid=group, parent_uuid=tree.root, name=GROUP)
            above.sibling_order_rank = RANK
            yield TracePacket(track_descriptor=above)
        track = TrackDescriptor(
            uuid=tree.identity.uuid(f"{GROUP} {victim}"),
            parent_uuid=group,
            name=shown(victim),
            description=_DESCRIPTION,
            counter=CounterDescriptor(unit_name="I/Os", y_axis_share_key=GROUP),
        )
        yield TracePacket(track_descriptor=track)
        for at, value in zip(times.tolist(), values.tolist(), strict=True):
            packet = TracePacket(timestamp=min(max(at, begin), end))
            packet.track_event.type = TrackEvent.TYPE_COUNTER
            packet.track_event.track_uuid = track.uuid
            packet.track_event.double_counter_value = value
            yield packet
