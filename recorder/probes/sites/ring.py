# SPDX-License-Identifier: Apache-2.0
"""Reads the one ring of all sites' programs (`bt_site_ring` of bpf/sites.h), without a loop.

A BPF ring buffer (Documentation/bpf/ringbuf.rst) that any CPU writes to. A position counts bytes
since loading; the bytes are mapped twice, one behind the other, so that no entry wraps around. All
entries have one size: a header of 8 bytes, then the CPU's number, and a record of 64 bytes.
"""

import mmap
import os

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.host.memory_limit import Room
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.maps.fitting import RECORDER_BYTES
from biotrail.recorder.probes.rings.barriers import Barrier, machine_barrier
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import TIMESTAMP_BITS

SITE_LEVEL = 3
"""Segment.level of sites' records: behind the nesting levels of the mapped rings."""
RECORD_BYTES = 64
"""Size of every record of a site (HIT, PAIR). A block holds a whole number of them."""
DEFAULT_RING_BYTES = 16 << 20
"""Room for 200,000 records, which a recorder that polls 20 times a second has to copy in 50 ms."""
SMALLEST_RING_BYTES = 64 << 10

_BUSY, _DISCARDED = 1 << 31, 1 << 30
"""BPF_RINGBUF_BUSY_BIT: being written; BPF_RINGBUF_DISCARD_BIT: to be skipped."""
_ENTRY = np.dtype(
    [
        ("length", "<u4"),
        ("page", "<u4"),
        ("cpu", "<u4"),
        ("zero", "<u4"),
        ("head", "<u8"),
        ("rest", f"V{RECORD_BYTES - 8}"),
    ]
)
SITE_ENTRY = np.dtype(
    [("cpu", "<u4"), ("zero", "<u4"), ("head", "<u8"), ("rest", f"V{RECORD_BYTES - 8}")]
)
"""`struct bt_site_entry`: a record of a site and its CPU."""
_PAYLOAD_BYTES = _ENTRY.itemsize - 8
_TIME_MASK = np.uint64((1 << TIMESTAMP_BITS) - 1)


def ring_bytes(wanted: int | None = None) -> int:
    """Return the size of the ring in bytes: `wanted` rounded up to a power of two, or the default.

    Raises ProbeError: `wanted` is not between SMALLEST_RING_BYTES and 512 MiB.
    """
    if wanted is None:
        return DEFAULT_RING_BYTES
    if not SMALLEST_RING_BYTES <= wanted <= 512 << 20:
        raise ProbeError(
            f"a ring of {wanted} bytes cannot be used: choose between {SMALLEST_RING_BYTES} "
            f"and {512 << 20}"
        )
    return 1 << (wanted - 1).bit_length()


def fitting(size: int, room: Room | None) -> int:
    """Return `size` (bytes of the ring), halved until it leaves the recorder 32 MiB of `room`.

    At least SMALLEST_RING_BYTES. `room`: None: without limit. As for the mapped rings (Demand), the
    recorder's own memory comes from the same limit.
    """
    while room is not None and size > SMALLEST_RING_BYTES and size > room.bytes - RECORDER_BYTES:
        size //= 2
    return size


_NOTHING: NDArray[np.void] = np.zeros(0, _ENTRY)
"""No entries."""


class SiteRing:
    """The ring, mapped: `drain` repeatedly, then `close`."""

    def __init__(
        self,
        consumer: mmap.mmap | bytearray,
        produced: mmap.mmap | bytearray,
        size: int,
        barrier: Barrier,
        page: int = mmap.PAGESIZE,
    ) -> None:
        """Make views of the ring's parts; reading goes on from the consumer's position.

        consumer: a page that begins with the consumer's position. produced: a page that begins with
        the producer's position, then the data of `size` bytes, twice. barrier: this machine's.
        """
        self.size = size
        self._buffers = (consumer, produced)
        self._consumer: NDArray[np.uint64] = np.ndarray((1,), "<u8", consumer)
        self._producer: NDArray[np.uint64] = np.ndarray((1,), "<u8", produced)
        self._data = memoryview(produced)[page : page + 2 * size]
        self._barrier = barrier
        self._done = int(self._consumer[0])
        self._positions: dict[int, int] = {}

    @classmethod
    def map(cls, fd: int, size: int) -> "SiteRing":
        """Return the ring of a BPF map of `size` bytes; its descriptor may be closed then.

        Raises ProbeError: it cannot be mapped, or the machine has no barriers (machine_barrier).
        """
        page = mmap.PAGESIZE
        try:
            consumer = mmap.mmap(fd, page)
            produced = mmap.mmap(fd, page + 2 * size, prot=mmap.PROT_READ, offset=page)
        except OSError as error:
            raise ProbeError(
                f"the ring ({size} bytes) cannot be mapped: {os.strerror(error.errno or 0)}; "
                "choose a smaller one"
            ) from error
        # The kernel publishes positions by a release, lengths by an exchange.
        return cls(consumer, produced, size, machine_barrier(ordered=True))

    def drain(self, more: NDArray[np.void] | None = None) -> list[Segment]:
        """Copy all complete records up to the first one that is being written; free their space.

        more: records that were kept elsewhere (n,), as SITE_ENTRY: they go into the same segments.
        Returns a Segment for each CPU that wrote, by CPU: level SITE_LEVEL, records by time.
        Positions go on where the CPU's last segment ended, so no record crosses a block. Raises
        ProbeError: an entry has another size than these programs write.
        """
        produced = int(self._producer[0])
        entries = self._complete(produced) if produced != self._done else _NOTHING
        if not len(entries):
            return self._segments(_as_entries(more)) if more is not None else []
        kept = entries.copy()
        self._barrier.release()
        self._done += len(entries) * _ENTRY.itemsize
        self._consumer[0] = self._done
        kept = kept[(kept["length"] & _DISCARDED) == 0]
        if more is not None and len(more):
            kept = np.concatenate([_as_entries(more), kept])
        return self._segments(kept)

    def _complete(self, produced: int) -> NDArray[np.void]:
        """Return a view (n,) of the entries below `produced` up to the first that is busy."""
        count, rest = divmod(produced - self._done, _ENTRY.itemsize)
        entries: NDArray[np.void] = np.ndarray(
            (count,), _ENTRY, self._data, self._done & (self.size - 1)
        )
        # Loads of headers come after that of the position below which they are written.
        self._barrier.acquire()
        lengths = entries["length"].copy()
        # Loads of records come after those of the headers that say that they are complete.
        self._barrier.acquire()
        busy = np.flatnonzero(lengths & _BUSY)
        entries = entries[: busy[0]] if len(busy) else entries
        sizes = lengths[: len(entries)] & ~np.uint32(_BUSY | _DISCARDED)
        if rest or (sizes != _PAYLOAD_BYTES).any():
            raise ProbeError(
                "the ring of the sites' programs holds something else than their records: "
                "start the recording again, and report it"
            )
        return entries

    def _segments(self, entries: NDArray[np.void]) -> list[Segment]:
        """Return the records of entries (n,), by CPU, then time, and advance the positions."""
        if not len(entries):
            return []
        order = np.lexsort((entries["head"] & _TIME_MASK, entries["cpu"]))
        entries = entries.take(order)
        cpus, starts = np.unique(entries["cpu"], return_index=True)
        segments = []
        for cpu, part in zip(cpus.tolist(), np.split(entries, starts[1:]), strict=True):
            position = self._positions.get(cpu, 0)
            data = _records(part)
            segments.append(Segment(cpu, SITE_LEVEL, position, data))
            self._positions[cpu] = position + len(data)
        return segments

    def fill(self) -> float:
        """Return the used share of the ring, 0 to 1."""
        return (int(self._producer[0]) - self._done) / self.size

    def close(self) -> None:
        """Unmap the ring; no method may be called afterwards, nor this one again."""
        del self._consumer, self._producer
        self._data.release()
        for buffer in self._buffers:
            if isinstance(buffer, mmap.mmap):
                buffer.close()


def _as_entries(records: NDArray[np.void]) -> NDArray[np.void]:
    """Return records (n,) of SITE_ENTRY as entries of the ring."""
    entries = np.zeros(len(records), _ENTRY)
    for name in ("cpu", "head", "rest"):
        entries[name] = records[name]
    return entries


def _records(entries: NDArray[np.void]) -> bytes:
    """Return the records of entries (n,), without what precedes them: 64 n bytes."""
    raw = entries.view(np.uint8).reshape(len(entries), _ENTRY.itemsize)
    return raw[:, _ENTRY.itemsize - RECORD_BYTES :].tobytes()
