# SPDX-License-Identifier: Apache-2.0
"""Has the programs wake a recorder that sleeps for long (`bpf/ring.h`, bt_wake).

They do when a ring is an eighth full, or a trigger fires; once per sleep. Each run that leaves its
ring so full looks whether the recorder sleeps, so a run that does not see it yet is made good by
the next. What the last run of a burst misses waits in a ring that has room, until the sleep ends.
"""

import mmap
from typing import Self

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.probes.kernel.libbpf import BpfObject
from biotrail.recorder.probes.rings.barriers import Barrier
from biotrail.recorder.probes.rings.ring import mapping

_FLAG = ".data.asleep"
RING = "bt_wake_ring"
"""Sized before loading: a page, the least that the kernel allows."""

Buffer = mmap.mmap | bytearray


class Waker:
    """The flag that says that the recorder sleeps, and the ring whose descriptor wakes it."""

    def __init__(
        self, asleep: Buffer, consumer: Buffer, produced: Buffer, descriptor: int, barrier: Barrier
    ) -> None:
        """asleep: the flag. descriptor: readable while the positions in the others differ."""
        self.descriptor = descriptor
        self._buffers = (asleep, consumer, produced)
        words: list[NDArray[np.uint64]] = [np.ndarray((1,), "<u8", one) for one in self._buffers]
        self._asleep, self._consumer, self._produced = words
        self._barrier = barrier

    @classmethod
    def map(cls, bpf: BpfObject, barrier: Barrier) -> Self:
        ring, page = bpf.map_fd(RING), mmap.PAGESIZE
        with mapping("what wakes the recorder", "; free memory, and start the recording again"):
            asleep = mmap.mmap(bpf.map_fd(_FLAG), page)
            consumer = mmap.mmap(ring, page)
            produced = mmap.mmap(ring, page, prot=mmap.PROT_READ, offset=page)
        return cls(asleep, consumer, produced, ring, barrier)

    def arm(self) -> None:
        """Have the programs wake from now on; call it before looking at rings and triggers."""
        self._consumer[0] = self._produced[0]
        self._asleep[0] = 1
        self._barrier.release()  # a full one, where stores and later loads need it

    def disarm(self) -> None:
        self._asleep[0] = 0

    def close(self) -> None:
        del self._asleep, self._consumer, self._produced
        for buffer in self._buffers:
            if isinstance(buffer, mmap.mmap):
                buffer.close()
