# SPDX-License-Identifier: Apache-2.0
"""Memory barriers of the rings' reader, by the machine and by how the programs publish a head.

docs/architecture.md ("Order") says why each pair is enough.
"""

import ctypes
import platform
import time
from collections.abc import Callable
from typing import Protocol

from biotrail.recorder.schema.errors import ProbeError

_MEMBARRIER = {"aarch64": 283, "x86_64": 324, "riscv64": 283, "ppc64le": 365, "s390x": 356}
"""Number of the system call membarrier(2) by machine."""
_GLOBAL = 1
_GLOBAL_EXPEDITED = 2


class Barrier(Protocol):
    """Memory barriers of the ring's reader, paired with what the BPF programs do."""

    def acquire(self) -> None:
        """Order the load of the heads before the loads of the records below them."""

    def release(self) -> None:
        """Order the loads of records before the store of the tail that frees their space."""


class NoBarrier:
    """x86-64: neither two loads, nor two stores, nor a load and a later store are reordered."""

    def acquire(self) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""


class Fence:
    """Weakly ordered machines whose programs publish a head by a full barrier: one here as well.

    MEMBARRIER_CMD_GLOBAL_EXPEDITED begins and ends with a full barrier on this CPU; it interrupts
    only CPUs that run processes which registered for it. Python has no barrier of its own.
    """

    def __init__(self) -> None:
        """Query whether the kernel has the command. Raises ProbeError: as `_membarrier`."""
        self._call, _ = _membarrier()

    def acquire(self) -> None:
        """Execute a full barrier on this CPU; no other CPU is waited for."""
        self._call(_GLOBAL_EXPEDITED)

    def release(self) -> None:
        """Execute a full barrier on this CPU: the records are read before the tail is stored."""
        self._call(_GLOBAL_EXPEDITED)


class Membarrier(Fence):
    """Weakly ordered machines whose programs publish a head by a plain store.

    MEMBARRIER_CMD_GLOBAL has every CPU execute a full barrier, after which the records stored
    before the head that was read are visible; it waits for an RCU grace period, 13 to 41 ms.
    Kernels with nohz_full CPUs lack that command; a pause of 1 ms, in which every store buffer
    drains, stands in for it.
    """

    _PAUSE_SECONDS = 0.001

    def __init__(self) -> None:
        """Query which commands of membarrier(2) the kernel has. Raises ProbeError: as Fence."""
        self._call, offered = _membarrier()
        self._has_global = bool(offered & _GLOBAL)

    def acquire(self) -> None:
        """Have every CPU execute a full barrier, or wait until each must have; once per drain.

        GLOBAL where the kernel has it; else a pause of 1 ms and GLOBAL_EXPEDITED.
        """
        if self._has_global:
            self._call(_GLOBAL)
        else:
            time.sleep(self._PAUSE_SECONDS)
            self._call(_GLOBAL_EXPEDITED)


def _membarrier() -> tuple[Callable[[int], int], int]:
    """Return (membarrier(2) as a function of its command, bits of the commands offered)."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = _MEMBARRIER.get(platform.machine())
    if number is None:
        raise ProbeError(f"rings cannot be read on {platform.machine()}: use another machine")

    def call(command: int) -> int:
        return int(libc.syscall(number, command, 0, 0))

    offered = call(0)
    if offered < 0 or not offered & _GLOBAL_EXPEDITED:
        raise ProbeError("the kernel lacks membarrier(2): enable CONFIG_MEMBARRIER")
    return call, offered


def is_strongly_ordered() -> bool:
    """Return whether this machine (x86-64) needs no barriers: the others here are for the rest."""
    return platform.machine() in ("x86_64", "AMD64")


def machine_barrier(ordered: bool = False) -> Barrier:
    """Return the reader's barriers for this machine. Raises ProbeError: as `_membarrier`.

    `ordered`: where machines reorder, the writer publishes its head by a full barrier or a release.
    """
    if is_strongly_ordered():
        return NoBarrier()
    return Fence() if ordered else Membarrier()
