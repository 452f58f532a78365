# SPDX-License-Identifier: Apache-2.0
"""Reads the programs' mapped rings: committed bytes are copied in bulk, without Python per event.

One element of a mapped BPF array per possible CPU (`bpf/ring.h`):

    | header page | ring of level 0 | ring of level 1 | ring of level 2 |

A position counts bytes since the recording began; its byte in the ring is `position % ring size`.
The programs advance a ring's head after the records below it are complete; only this module
advances the tail.
"""

import mmap
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.log import Segment
from biotrail.recorder.probes.rings.barriers import Barrier
from biotrail.recorder.schema.errors import ProbeError

LEVELS = 3
"""Nesting levels of programs on one CPU, each with a ring: task, softirq, hardirq (BT_LEVELS)."""

KINDS = 64
"""Record kinds for which the programs have a loss counter (BT_KINDS)."""

_HEADER_BYTES = 4096
_HEAD_OFFSET = 8
_LOST_OFFSET = 64
_TOO_DEEP_OFFSET = _LOST_OFFSET + LEVELS * KINDS * 8
_TAIL_OFFSET = _TOO_DEEP_OFFSET + KINDS * 8
_TAIL_STRIDE = 64
_REASONS = 16
_LEFT_OUT_OFFSET = _TAIL_OFFSET + LEVELS * _TAIL_STRIDE
_LEFT_EVENTS_OFFSET = _LEFT_OUT_OFFSET + _REASONS * 8

_DEFAULT_RING_BYTES = 16 << 20  # half a second of 600,000 events a second on one CPU
SMALLEST_RING_BYTES = 64 << 10
_OLD_RING_BYTES = 2 << 20  # the most that fits KMALLOC_MAX_SIZE of old kernels: no shortage
_LARGEST_RING_BYTES = 128 << 20
_TOTAL_BYTES = 256 << 20  # of all CPUs' rings, unless a ring size is asked for


@dataclass(frozen=True)
class RingSizes:
    """Sizes in bytes of one CPU's rings: `ring_bytes` at level 0, `upper_bytes` at each other."""

    ring_bytes: int
    upper_bytes: int

    @property
    def area_bytes(self) -> int:
        """Size of one CPU's array element: header page and rings."""
        return _HEADER_BYTES + self.ring_bytes + (LEVELS - 1) * self.upper_bytes

    @property
    def by_level(self) -> tuple[int, ...]:
        return (self.ring_bytes, *[self.upper_bytes] * (LEVELS - 1))

    def offset(self, level: int) -> int:
        """Return the byte offset of the ring of `level` in its CPU's element."""
        return _HEADER_BYTES + sum(self.by_level[:level])

    def halved(self) -> "RingSizes":
        return RingSizes(self.ring_bytes // 2, self.upper_bytes // 2)

    @classmethod
    def choose(cls, cpus: int, ring_bytes: int | None = None) -> "RingSizes":
        """Return ring sizes for `cpus` possible CPUs: powers of two, an eighth above level 0.

        ring_bytes: at level 0, at least; None: 16 MiB, halved until all areas take 256 MiB at most,
        or 64 KiB are reached. Raises ProbeError: it cannot be.
        """
        if ring_bytes is not None:
            if not SMALLEST_RING_BYTES <= ring_bytes <= _LARGEST_RING_BYTES:
                raise ProbeError(
                    f"a ring of {ring_bytes} bytes per CPU cannot be used: choose between "
                    f"{SMALLEST_RING_BYTES} and {_LARGEST_RING_BYTES}"
                )
            size = 1 << (ring_bytes - 1).bit_length()
        else:
            size = _DEFAULT_RING_BYTES
            while size > SMALLEST_RING_BYTES and cpus * cls(size, size // 8).area_bytes > (
                _TOTAL_BYTES
            ):
                size //= 2
        return cls(size, size // 8)


def rings_note(wanted: int | None, levels: list[int]) -> str:
    """Return a message for the user if the rings are smaller than wanted; "" if they are not.

    `wanted`: bytes at level 0; None: the default. `levels`: bytes of a CPU's rings, if any.
    """
    least = RingSizes.choose(os.cpu_count() or 1, wanted).ring_bytes
    if not levels or levels[0] >= (least if wanted else min(least, _OLD_RING_BYTES)):
        return ""
    return (
        f"rings are {levels[0] >> 10} KiB per CPU: the kernel has no memory for larger ones, so "
        "events may be lost under load; raise the memory limit of this service or login"
    )


class Rings:
    """All rings of one recording, in a mapping of the BPF array (or any writable buffer)."""

    def __init__(
        self, buffer: mmap.mmap | bytearray, cpus: int, sizes: RingSizes, barrier: Barrier
    ) -> None:
        """Draining goes on from the tails in `buffer`, whose n-th area is CPU n's."""
        self.sizes = sizes
        self.cpus = cpus
        self._buffer = buffer
        self._barrier = barrier
        self._bytes = memoryview(buffer)
        area = sizes.area_bytes
        self._heads = self._words((cpus, LEVELS), _HEAD_OFFSET, (area, 8))
        self._tails = self._words((cpus, LEVELS), _TAIL_OFFSET, (area, _TAIL_STRIDE))
        self._lost = self._words((cpus, LEVELS, KINDS), _LOST_OFFSET, (area, KINDS * 8, 8))
        self._too_deep = self._words((cpus, KINDS), _TOO_DEEP_OFFSET, (area, 8))
        self._left_out = self._words((cpus, _REASONS), _LEFT_OUT_OFFSET, (area, 8))
        self._left_events = self._words((cpus, KINDS), _LEFT_EVENTS_OFFSET, (area, 8))
        self._shares = 1 / np.array(sizes.by_level, dtype=np.float64)
        self._done = self._tails.copy()
        self._lost_seen = np.zeros((cpus, LEVELS, 256), np.uint64)
        self._deep_seen = np.zeros((cpus, 256), np.uint64)
        self._lost_seen.flags.writeable = self._deep_seen.flags.writeable = False

    @classmethod
    def map(cls, fd: int, cpus: int, sizes: RingSizes, barrier: Barrier) -> "Rings":
        """Return the rings of a BPF array, mapped; its descriptor `fd` may be closed then."""
        length = -(-cpus * sizes.area_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            mapping = mmap.mmap(fd, length)
        except OSError as error:
            raise ProbeError(
                f"the rings ({length} bytes) cannot be mapped: {os.strerror(error.errno or 0)}; "
                "choose smaller rings"
            ) from error
        return cls(mapping, cpus, sizes, barrier)

    def _words(
        self, shape: tuple[int, ...], offset: int, strides: tuple[int, ...]
    ) -> NDArray[np.uint64]:
        return np.ndarray(shape, np.dtype("<u8"), self._bytes, offset, strides)

    def drain(self) -> list[Segment]:
        """Copy all committed records, by CPU, then level; free their space. Raises ProbeError."""
        heads = self._heads.copy()
        cpus, levels = (heads != self._done).nonzero()
        if not len(cpus):
            return []
        self._barrier.acquire()
        segments = []
        for cpu, level in zip(cpus.tolist(), levels.tolist(), strict=True):
            head, tail = int(heads[cpu, level]), int(self._done[cpu, level])
            size = self.sizes.by_level[level]
            if head - tail > size:
                raise ProbeError(
                    f"the ring of CPU {cpu} level {level} is damaged (head {head}, tail {tail}): "
                    "another process wrote to it; start the recording again"
                )
            base = cpu * self.sizes.area_bytes + self.sizes.offset(level)
            first, last = base + tail % size, base + head % size
            if first < last:
                data = bytes(self._bytes[first:last])
            else:  # it wraps around
                data = b"".join((self._bytes[first : base + size], self._bytes[base:last]))
            segments.append(Segment(cpu, level, tail, data))
            self._barrier.release()
            self._tails[cpu, level] = head
        self._done = heads
        return segments

    def fill(self) -> float:
        """Return the used share of the fullest ring, 0 to 1."""
        used = (self._heads - self._done) * self._shares
        return float(np.maximum.reduce(used, axis=None))  # used.max() takes twice as long

    def lost(self) -> NDArray[np.uint64]:
        """Return (cpus, LEVELS, 256) records lost by kind; the same array while none is."""
        self._lost_seen = _seen(self._lost_seen, self._lost)
        return self._lost_seen

    def too_deep(self) -> NDArray[np.uint64]:
        """Return counts of events lost because all levels were in use, (cpus, 256) by kind."""
        self._deep_seen = _seen(self._deep_seen, self._too_deep)
        return self._deep_seen

    def left_out(self) -> tuple[list[int], list[int]]:
        """Return what filters left out: 16 counts of bios by reason, 64 of events by kind."""
        return self._left_out.sum(axis=0).tolist(), self._left_events.sum(axis=0).tolist()

    def close(self) -> None:
        """Unmap the rings; no method may be called afterwards, nor this one again."""
        del self._heads, self._tails, self._lost, self._too_deep
        del self._left_out, self._left_events
        self._bytes.release()
        if isinstance(self._buffer, mmap.mmap):
            self._buffer.close()


def _seen(before: NDArray[np.uint64], counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return counters as totals (…, 256): `before` itself where none of the 130,000 has grown."""
    if np.array_equal(before[..., :KINDS], counters):
        return before
    totals = np.zeros_like(before)
    totals[..., :KINDS] = counters
    totals.flags.writeable = False
    return totals
