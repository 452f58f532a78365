# SPDX-License-Identifier: Apache-2.0
"""Reads a BPF ring buffer whose entries all have one size, without a loop.

A BPF ring buffer (Documentation/bpf/ringbuf.rst) is one that any CPU writes to. A position counts
bytes since loading; the bytes are mapped twice, one behind the other, so that no entry wraps
around. Each entry has a header of 8 bytes.
"""

import mmap
import os
from typing import Self

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.probes.rings.barriers import Barrier, machine_barrier
from biotrail.recorder.schema.errors import ProbeError

_BUSY, _DISCARDED = 1 << 31, 1 << 30
"""BPF_RINGBUF_BUSY_BIT: being written; BPF_RINGBUF_DISCARD_BIT: to be skipped."""


class EntryRing:
    def __init__(
        self,
        payload: "np.dtype[np.void]",
        consumer: mmap.mmap | bytearray,
        produced: mmap.mmap | bytearray,
        size: int,
        barrier: Barrier,
        page: int = mmap.PAGESIZE,
    ) -> None:
        """payload: what an entry has behind its header.

        consumer, produced: pages that begin with these positions; behind `produced` the data.
        """
        behind = [(name, payload[name]) for name in payload.names or ()]
        self.entry = np.dtype([("length", "<u4"), ("page", "<u4"), *behind])
        self.size = size
        self._buffers = (consumer, produced)
        self._consumer: NDArray[np.uint64] = np.ndarray((1,), "<u8", consumer)
        self._producer: NDArray[np.uint64] = np.ndarray((1,), "<u8", produced)
        self._data = memoryview(produced)[page : page + 2 * size]
        self._barrier = barrier
        self._done = int(self._consumer[0])

    @classmethod
    def map(cls, fd: int, size: int, payload: "np.dtype[np.void]") -> Self:
        """Return the ring of a BPF map of `size` bytes; its descriptor may be closed then."""
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
        return cls(payload, consumer, produced, size, machine_barrier(ordered=True))

    def take(self) -> NDArray[np.void]:
        """Copy all complete entries up to the first that is being written; free their space."""
        produced = int(self._producer[0])
        if produced == self._done:
            return np.zeros(0, self.entry)
        count, rest = divmod(produced - self._done, self.entry.itemsize)
        entries: NDArray[np.void] = np.ndarray(
            (count,), self.entry, self._data, self._done & (self.size - 1)
        )
        # Loads of headers come after that of the position below which they are written.
        self._barrier.acquire()
        lengths = entries["length"].copy()
        # Loads of records come after those of the headers that say that they are complete.
        self._barrier.acquire()
        busy = np.flatnonzero(lengths & _BUSY)
        kept = entries[: busy[0] if len(busy) else count].copy()
        sizes = lengths[: len(kept)] & ~np.uint32(_BUSY | _DISCARDED)
        if rest or (sizes != self.entry.itemsize - 8).any():
            raise ProbeError(
                "a ring of the programs holds something else than their records: "
                "start the recording again, and report it"
            )
        self._barrier.release()
        self._done += len(kept) * self.entry.itemsize
        self._consumer[0] = self._done
        whole: NDArray[np.void] = kept[(kept["length"] & _DISCARDED) == 0]
        return whole

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
