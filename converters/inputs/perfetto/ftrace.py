# SPDX-License-Identifier: Apache-2.0
"""Ftrace events of a block of packets: where each is, and what all have in common.

Field numbers are those of protos/perfetto/trace/ftrace/ftrace_event_bundle.proto and
ftrace_event.proto.
"""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.events.tables import I64, Bool
from biotrail.converters.inputs.perfetto import wire_loops as loops
from biotrail.converters.inputs.perfetto.wire import Fields, Messages

FTRACE = 1
"""TracePacket.ftrace_events."""
_DESCRIPTORS = 11
"""FtraceEventBundle.generic_event_descriptors, of Perfetto 50 and later."""


@dataclass(frozen=True)
class Ftrace:
    """Events (n,) of bundles (m,), each of one CPU."""

    packet: I64
    """(m,): row of the packet that each bundle is."""
    cpu: I64
    """(m,)"""
    lost: Bool
    """(m,): whether the kernel overwrote events before the bundle's."""
    owner: I64
    """(n,): each event's bundle."""
    time: I64
    """(n,): ns of BOOTTIME, as far as is known; -1: it has none."""
    tid: I64
    kind: I64
    """(n,): number of the event's own message in FtraceEvent; 0: it has none."""
    body: Messages
    """That message."""
    broken: int
    """Number of events that end in something that is no field, or have no time or no message of
    their own, and of bundles that do, whose further events are not known."""
    descriptors: Messages
    """Descriptions of events that Perfetto has no message for (GenericEventDescriptor)."""


def ftrace_of(fields: Fields) -> Ftrace:
    """Return the ftrace events of a block of packets, given by its fields."""
    packet, bundles = fields.messages(FTRACE)
    owner, events = bundles.repeated(2)
    heads = np.empty((5, len(events)), dtype=np.int64)
    scratch = np.zeros(4, dtype=np.int64)
    loops.ftrace_events(events.data, events.begin, events.end, heads, scratch)
    inner = bundles.fields([1, 3, 5, 6, 7, _DESCRIPTORS])
    # Those that are broken have no message of their own, either.
    broken = int(np.count_nonzero((heads[2] == 0) | (heads[0] < 0))) + inner.broken
    cpu, lost = inner.values(1), inner.values(3) != 0
    moved = _shifts(inner)
    time = heads[0]
    if moved.any():
        time = np.where(time >= 0, time + moved[owner], -1)
    body = Messages(fields.data, heads[3], heads[4])
    described, _ = inner.messages(_DESCRIPTORS)
    _, descriptors = bundles.take(described).repeated(_DESCRIPTORS)
    return Ftrace(packet, cpu, lost, owner, time, heads[1], heads[2], body, broken, descriptors)


def _shifts(bundles: Fields) -> I64:
    """Return what is to be added to each bundle's times to make them BOOTTIME (ns, int64).

    0 but where the bundle names another ftrace clock, with a reading of both.
    """
    clock, there, boot = (bundles.values(number) for number in (5, 6, 7))
    known = (clock != 0) & (there > 0) & (boot > 0)
    moved: I64 = np.where(known, boot - there, 0)
    return moved
