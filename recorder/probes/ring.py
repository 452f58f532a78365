# SPDX-License-Identifier: Apache-2.0
"""The kernel's rings, mapped: committed bytes are copied out in bulk, no Python per event.

One element of a mapped BPF array per possible CPU (`bpf/ring.h`):

    | header page | ring of level 0 | ring of level 1 | ring of level 2 |

Positions run for ever; a position's place in its ring is `position % ring size`. The kernel
publishes a ring's head when all below it is written; only this side moves the tail.
"""

import ctypes
import mmap
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.log import Segment
from biotrail.recorder.schema.errors import ProbeError

LEVELS = 3
"""Nesting levels: what an interrupt's program may interrupt, and that again."""

KINDS = 64
"""Record kinds that the kernel counts losses of."""

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
_OLD_RING_BYTES = 2 << 20  # what old kernels allow is no shortage
_LARGEST_RING_BYTES = 128 << 20
_TOTAL_BYTES = 256 << 20

_MEMBARRIER = {"aarch64": 283, "x86_64": 324, "riscv64": 283, "ppc64le": 365, "s390x": 356}
"""The system call's number by machine."""


@dataclass(frozen=True)
class RingSizes:
    """Bytes of one CPU's rings: level 0, and each of the levels above it."""

    ring_bytes: int
    upper_bytes: int

    @property
    def area_bytes(self) -> int:
        """One CPU's element: header page and rings."""
        return _HEADER_BYTES + self.ring_bytes + (LEVELS - 1) * self.upper_bytes

    @property
    def by_level(self) -> tuple[int, ...]:
        """Ring size in bytes by level."""
        return (self.ring_bytes, *[self.upper_bytes] * (LEVELS - 1))

    def offset(self, level: int) -> int:
        """Where the ring of `level` begins in its CPU's element."""
        return _HEADER_BYTES + sum(self.by_level[:level])

    def halved(self) -> "RingSizes":
        """The next smaller sizes."""
        return RingSizes(self.ring_bytes // 2, self.upper_bytes // 2)

    @classmethod
    def choose(cls, cpus: int, ring_bytes: int | None = None) -> "RingSizes":
        """Sizes for `cpus` possible CPUs: powers of two, together at most about 256 MiB.

        `ring_bytes` asks for a size of level 0, rounded up to a power of two. Raises
        ProbeError where it is out of range.
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
    """What to tell where the kernel gave smaller rings than wanted; `levels`: their bytes."""
    least = RingSizes.choose(os.cpu_count() or 1, wanted).ring_bytes
    if not levels or levels[0] >= (least if wanted else min(least, _OLD_RING_BYTES)):
        return ""
    return (
        f"rings are {levels[0] >> 10} KiB per CPU: the kernel has no memory for larger ones, so "
        "events may be lost under load; raise the memory limit of this service or login"
    )


class Barrier(Protocol):
    """Orders this side's reads against the kernel's plain stores."""

    def acquire(self) -> None:
        """Between reading heads and reading what lies below them."""

    def release(self) -> None:
        """Between reading records and giving their place back."""


class NoBarrier:
    """x86-64: loads and stores are not reordered in the ways that matter here."""

    def acquire(self) -> None:
        """Nothing to do."""

    def release(self) -> None:
        """Nothing to do."""


class Membarrier:
    """Other machines (arm64): the kernel's programs use plain stores, so we pay for the order.

    MEMBARRIER_CMD_GLOBAL lets every CPU run a full barrier: a store made before the head
    that was read is visible after it. Kernels with nohz_full CPUs refuse that command; a pause
    in which every store buffer empties by itself stands in for it.
    """

    _GLOBAL = 1
    _GLOBAL_EXPEDITED = 2
    _PAUSE_SECONDS = 0.001

    def __init__(self) -> None:
        """Asks the kernel what it offers; raises ProbeError where that is nothing."""
        libc = ctypes.CDLL(None, use_errno=True)
        number = _MEMBARRIER.get(platform.machine())
        if number is None:
            raise ProbeError(f"rings cannot be read on {platform.machine()}: use another machine")
        self._call: Callable[[int], int] = lambda command: int(libc.syscall(number, command, 0, 0))
        offered = self._call(0)
        if offered < 0 or not offered & self._GLOBAL_EXPEDITED:
            raise ProbeError("the kernel lacks membarrier(2): enable CONFIG_MEMBARRIER")
        self._has_global = bool(offered & self._GLOBAL)

    def acquire(self) -> None:
        """Once per drain that found something."""
        if self._has_global:
            self._call(self._GLOBAL)
        else:
            time.sleep(self._PAUSE_SECONDS)
            self._call(self._GLOBAL_EXPEDITED)

    def release(self) -> None:
        """Orders our reads before the store of the tail."""
        self._call(self._GLOBAL_EXPEDITED)


def machine_barrier() -> Barrier:
    """What this machine's memory model needs."""
    return NoBarrier() if platform.machine() in ("x86_64", "AMD64") else Membarrier()


class Rings:
    """All rings of one recording, over a mapping (or any writable buffer, in tests)."""

    def __init__(
        self, buffer: mmap.mmap | bytearray, cpus: int, sizes: RingSizes, barrier: Barrier
    ) -> None:
        """`buffer` holds `cpus` elements of `sizes.area_bytes`, from its start."""
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
        self._capacity = np.array(sizes.by_level, dtype=np.uint64)
        self._done = self._tails.copy()

    @classmethod
    def map(cls, fd: int, cpus: int, sizes: RingSizes) -> "Rings":
        """Maps the BPF array `fd`. Raises ProbeError where the kernel refuses."""
        length = -(-cpus * sizes.area_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            mapping = mmap.mmap(fd, length)
        except OSError as error:
            raise ProbeError(
                f"the rings ({length} bytes) cannot be mapped: {os.strerror(error.errno or 0)}; "
                "choose smaller rings"
            ) from error
        return cls(mapping, cpus, sizes, machine_barrier())

    def _words(
        self, shape: tuple[int, ...], offset: int, strides: tuple[int, ...]
    ) -> NDArray[np.uint64]:
        return np.ndarray(shape, np.dtype("<u8"), self._bytes, offset, strides)

    def drain(self) -> list[Segment]:
        """Copies all committed records and gives their place back to the kernel.

        One Segment per (cpu, level) that had any, in that order; empty where nothing
        happened, which costs one look at every CPU's heads.
        """
        heads = self._heads.copy()
        busy = np.argwhere(heads != self._done)
        if not len(busy):
            return []
        self._barrier.acquire()
        segments = []
        for cpu, level in busy.tolist():
            head, tail = int(heads[cpu, level]), int(self._done[cpu, level])
            segments.append(Segment(cpu, level, tail, self._copy(cpu, level, tail, head)))
            self._barrier.release()
            self._tails[cpu, level] = head
        self._done = heads
        return segments

    def _copy(self, cpu: int, level: int, tail: int, head: int) -> bytes:
        size = self.sizes.by_level[level]
        base = cpu * self.sizes.area_bytes + self.sizes.offset(level)
        first, last = base + tail % size, base + head % size
        if head - tail > size:
            raise ProbeError(
                f"the ring of CPU {cpu} level {level} is damaged (head {head}, tail {tail}): "
                "another process wrote to it; start the recording again"
            )
        if first < last:
            return bytes(self._bytes[first:last])
        return b"".join((self._bytes[first : base + size], self._bytes[base:last]))

    def fill(self) -> float:
        """The fullest ring's share in use, 0 to 1."""
        used = (self._heads - self._done) / self._capacity
        return float(used.max())

    def lost(self) -> NDArray[np.uint64]:
        """Records that found their ring full: shape (cpus, LEVELS, 256), running totals."""
        totals = np.zeros((self.cpus, LEVELS, 256), dtype=np.uint64)
        totals[:, :, :KINDS] = self._lost
        return totals

    def too_deep(self) -> NDArray[np.uint64]:
        """Events that found all levels in use: shape (cpus, 256), running totals."""
        totals = np.zeros((self.cpus, 256), dtype=np.uint64)
        totals[:, :KINDS] = self._too_deep
        return totals

    def left_out(self) -> tuple[list[int], list[int]]:
        """What the filters did not want: bios by reason, events by kind; running totals."""
        return self._left_out.sum(axis=0).tolist(), self._left_events.sum(axis=0).tolist()

    def close(self) -> None:
        """Unmaps; nothing else may be called afterwards."""
        del self._heads, self._tails, self._lost, self._too_deep
        del self._left_out, self._left_events
        self._bytes.release()
        if isinstance(self._buffer, mmap.mmap):
            self._buffer.close()
