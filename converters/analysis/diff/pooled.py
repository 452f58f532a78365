# SPDX-License-Identifier: Apache-2.0
"""Several recordings as one side of a comparison: their slots of time one behind the other."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from biotrail.converters.analysis.distributions.blocks import Recording, Slots
from biotrail.converters.analysis.distributions.keys import OP_BITS
from biotrail.converters.events.tables import I64


@dataclass
class Pool(Recording):
    """Recordings of one state of things. A device is what has one name (and host) in all of them.

    A device that one of them does not have is idle nowhere in that one: it was not there.
    """

    parts: list[Recording] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Of devices, by their number in `slots`."""
    operations: list[str] = field(default_factory=list)
    seconds: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """ns of each slot."""
    owners: list[str] = field(default_factory=list)
    """Of each slot, the host whose recording it is of."""
    machines: list[str] = field(default_factory=list)
    """Of each device, the host that it is of; empty: of any."""

    @property
    def span_ns(self) -> int:
        """How long all of them are together."""
        return sum(part.span_ns for part in self.parts)

    @property
    def hosts(self) -> list[str]:
        """Where they were made, each once."""
        return list(dict.fromkeys(chain.from_iterable(part.hosts for part in self.parts)))

    @property
    def kernels(self) -> list[str]:
        """Releases, each once."""
        return list(dict.fromkeys(chain.from_iterable(part.kernels for part in self.parts)))

    @property
    def log_id(self) -> str:
        """Theirs, with a + between two."""
        return "+".join(part.log_id for part in self.parts)

    @property
    def begin(self) -> str | None:
        """When the first event of the earliest was."""
        return min((part.begin for part in self.parts if part.begin is not None), default=None)

    @property
    def lost_records(self) -> int:
        """Records that were counted as lost in any of them."""
        return sum(part.lost_records for part in self.parts)

    def device_name(self, dev: int) -> str:
        """The name of a device of `slots`."""
        return self.names[dev]

    def operation_name(self, place: int) -> str:
        """The operation of a place of `slots`."""
        return self.operations[place & ((1 << OP_BITS) - 1)]

    def slot_times(self) -> I64:
        """ns of each slot."""
        return self.seconds

    def device_times(self, dev: int) -> I64:
        """ns of each slot; 0 in recordings of other hosts than the device's."""
        machine = self.machines[dev]
        if not machine:
            return self.seconds
        return np.where(np.array([owner == machine for owner in self.owners]), self.seconds, 0)


def pooled(parts: Sequence[Recording], by_host: bool = False) -> Recording:
    """Return the recordings as one; one alone as it is.

    by_host: a device's name has its host before it, so that those of two hosts stay apart. The
    slots of the parts are widened to the widest of them.
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
    return pool


def _place(pool: Pool, part: Recording, place: int, by_host: bool) -> int:
    """The pool's number of a part's device and operation; noted in `names` and `operations`."""
    name = part.device_name(place >> OP_BITS)
    name = f"{part.hosts[0]}:{name}" if by_host else name
    operation = part.operation_name(place)
    if name not in pool.names:
        pool.names.append(name)
        pool.machines.append(part.hosts[0] if by_host else "")
    if operation not in pool.operations:
        pool.operations.append(operation)
    return pool.names.index(name) << OP_BITS | pool.operations.index(operation)
