# SPDX-License-Identifier: Apache-2.0
"""Reads the one ring of all sites' programs (`bt_site_ring` of bpf/sites.h), without a loop.

An entry has the CPU's number, and a record of 64 bytes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.host.memory_limit import Room
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.maps.fitting import RECORDER_BYTES
from biotrail.recorder.probes.rings.entries import EntryRing
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import TIMESTAMP_BITS

SITE_LEVEL = 3
"""Segment.level of sites' records: behind the nesting levels of the mapped rings."""
_RECORD_BYTES = 64
"""Size of every record of a site (HIT, PAIR). A block holds a whole number of them."""
_DEFAULT_RING_BYTES = 16 << 20
"""Room for 200,000 records, which a recorder that polls 20 times a second has to copy in 50 ms."""
SMALLEST_RING_BYTES = 64 << 10

SITE_ENTRY = np.dtype(
    [("cpu", "<u4"), ("zero", "<u4"), ("head", "<u8"), ("rest", f"V{_RECORD_BYTES - 8}")]
)
"""`struct bt_site_entry`: a record of a site and its CPU."""
_TIME_MASK = np.uint64((1 << TIMESTAMP_BITS) - 1)


def ring_bytes(wanted: int | None = None, room: Room | None = None) -> int:
    """Return the size of the ring, a power of two. Raises ProbeError: `wanted` cannot be.

    room: without one, memory is not limited. Else the size is halved until it leaves the recorder
    32 MiB of it, or to SMALLEST_RING_BYTES: the recorder's own memory comes from the same limit.
    """
    size = _DEFAULT_RING_BYTES
    if wanted is not None:
        if not SMALLEST_RING_BYTES <= wanted <= 512 << 20:
            raise ProbeError(
                f"a ring of {wanted} bytes cannot be used: choose between {SMALLEST_RING_BYTES} "
                f"and {512 << 20}"
            )
        size = 1 << (wanted - 1).bit_length()
    while room is not None and size > SMALLEST_RING_BYTES and size > room.bytes - RECORDER_BYTES:
        size //= 2
    return size


class SiteRing(EntryRing):
    payload = SITE_ENTRY

    def __init__(self, *parts: Any, **others: Any) -> None:
        super().__init__(*parts, **others)
        self._positions: dict[int, int] = {}

    def drain(self, more: NDArray[np.void] | None = None) -> list[Segment]:
        """Copy all complete records up to the first one that is being written; free their space.

        more: records that were kept elsewhere (n,), as SITE_ENTRY: they go into the same segments.
        Returns a Segment for each CPU that wrote, by CPU: level SITE_LEVEL, records by time.
        Positions go on where the CPU's last segment ended, so no record crosses a block. Raises
        ProbeError: an entry has another size than these programs write.
        """
        entries = self.take()
        if more is not None and len(more):
            kept = np.zeros(len(more), self.entry)
            for name in ("cpu", "head", "rest"):
                kept[name] = more[name]
            entries = np.concatenate([kept, entries])
        if not len(entries):
            return []
        entries = entries.take(np.lexsort((entries["head"] & _TIME_MASK, entries["cpu"])))
        cpus, starts = np.unique(entries["cpu"], return_index=True)
        segments = []
        for cpu, part in zip(cpus.tolist(), np.split(entries, starts[1:]), strict=True):
            position = self._positions.get(cpu, 0)
            raw = part.view(np.uint8).reshape(len(part), self.entry.itemsize)
            data = raw[:, -_RECORD_BYTES:].tobytes()
            segments.append(Segment(cpu, SITE_LEVEL, position, data))
            self._positions[cpu] = position + len(data)
        return segments
