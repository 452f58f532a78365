# SPDX-License-Identifier: Apache-2.0
"""Several recordings as one side of a comparison, with their slots one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from biotrail.converters.analysis.distributions.blocks import Recording, Slots
from biotrail.converters.analysis.distributions.keys import OP_BITS
from biotrail.converters.events.tables import I64


@dataclass
class Pool(Recording):
    """Recordings that are compared together, as one Recording.

    Devices and operations have numbers of the pool's own. A device is identified by its name (and
    host) in all parts. In a part that does not have a device, the device's depth has no time,
    rather than idle time.
    """

    parts: list[Recording] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Names of the devices, by their number in `slots`."""
    operations: list[str] = field(default_factory=list)
    """Names of the operations, by their number in `slots`."""
    seconds: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(slots,): length of each slot, ns."""
    call_seconds: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(slots,): that of each slot as far as calls were timed, ns."""
    owners: list[str] = field(default_factory=list)
    """Per slot: host of the recording that the slot is of."""
    machines: list[str] = field(default_factory=list)
    """Per device: its host; "" if devices of all hosts with that name are pooled."""

    @property
    def span_ns(self) -> int:
        """Sum of the parts' lengths, ns."""
        return sum(part.span_ns for part in self.parts)

    @property
    def hosts(self) -> list[str]:
        """Names of the recording hosts, each once."""
        return list(dict.fromkeys(chain.from_iterable(part.hosts for part in self.parts)))

    @property
    def kernels(self) -> list[str]:
        """Kernel releases of the recording hosts, each once."""
        return list(dict.fromkeys(chain.from_iterable(part.kernels for part in self.parts)))

    @property
    def log_id(self) -> str:
        """Ids of the parts' logs, joined by "+"."""
        return "+".join(part.log_id for part in self.parts)

    @property
    def begin(self) -> str | None:
        """Wall-clock time of the parts' first event, ISO 8601 in UTC; None if no part has one."""
        return min((part.begin for part in self.parts if part.begin is not None), default=None)

    @property
    def lost_records(self) -> int:
        """Number of records that were counted as lost, in all parts."""
        return sum(part.lost_records for part in self.parts)

    def device_name(self, dev: int) -> str:
        """Return the name of a device of `slots`."""
        return self.names[dev]

    def operation_name(self, place: int) -> str:
        """Return the name of the operation of a place of `slots`."""
        return self.operations[place & ((1 << OP_BITS) - 1)]

    def slot_times(self) -> I64:
        """Return the length of each slot, ns; not a copy."""
        return self.seconds

    def call_times(self) -> I64:
        """Return the length of each slot as far as calls were timed, ns."""
        return self.call_seconds

    def device_times(self, dev: int) -> I64:
        """Return the length of each slot, ns; 0 for slots of other hosts than the device's."""
        machine = self.machines[dev]
        if not machine:
            return self.seconds
        return np.where(np.array([owner == machine for owner in self.owners]), self.seconds, 0)


def pooled(parts: Sequence[Recording], by_host: bool = False) -> Recording:
    """Return several recordings as one; a single one is returned as it is, unless by_host.

    The slots (stretches of time) of the result are those of each part, one part after the other.
    Devices of the same name count as one device, and operations of the same name as one operation.
    by_host: device names become `host:device`, so that devices of two hosts stay apart. First the
    slots of the parts themselves are doubled in width until all are as wide as the widest. parts:
    at least one, each read to its end; other than that they are not changed.
    """
    if len(parts) == 1 and not by_host:
        return parts[0]
    width = max(part.slots.width for part in parts)
    pool = Pool(parts[0].trace, Slots(width, 0), list(parts))
    times: list[I64] = []
    for part in parts:
        while part.slots.width < width:
            part.slots.widen()
        places = {place: _place(pool, part, place, by_host) for place in part.slots.places()}
        pool.slots.add_all(part.slots, sum(map(len, times)), places)
        times.append(part.slot_times())
        pool.owners += part.hosts * len(times[-1])
    pool.seconds = np.concatenate(times)
    pool.call_seconds = np.concatenate([part.call_times() for part in parts])
    return pool


def _place(pool: Pool, part: Recording, place: int, by_host: bool) -> int:
    """Return the pool's number for a pair of device and operation of a part.

    place: the part's own number of the pair, device << OP_BITS | operation. The pool's device and
    operation numbers are indices of `pool.names` and `pool.operations`. A new device is appended to
    `names` and, with its host (by_host; else ""), to `machines`; a new operation to `operations`.
    by_host: device names become `host:device`.
    """
    name = part.device_name(place >> OP_BITS)
    name = f"{part.hosts[0]}:{name}" if by_host else name
    operation = part.operation_name(place)
    if name not in pool.names:
        pool.names.append(name)
        pool.machines.append(part.hosts[0] if by_host else "")
    if operation not in pool.operations:
        pool.operations.append(operation)
    return pool.names.index(name) << OP_BITS | pool.operations.index(operation)
