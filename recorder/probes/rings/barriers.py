# SPDX-License-Identifier: Apache-2.0
"""Memory barriers of the rings' reader, by the machine and by how the programs publish a head.

docs/architecture.md ("Order") says why each pair is enough.
"""

import ctypes
import platform
import time

from biotrail.recorder.schema.errors import ProbeError

_MEMBARRIER = {"aarch64": 283, "x86_64": 324, "riscv64": 283, "ppc64le": 365, "s390x": 356}
"""Number of the system call membarrier(2) by machine."""
_GLOBAL = 1
_GLOBAL_EXPEDITED = 2


class Barrier:
    """Memory barriers of the rings' reader: none on x86-64, which reorders neither of these."""

    def acquire(self) -> None:
        """Order the load of the heads before the loads of the records below them."""

    def release(self) -> None:
        """Order the loads of records before the store of the tail that frees their space."""


class Fence(Barrier):
    """Weakly ordered machines whose programs publish a head by a full barrier: one here as well.

    MEMBARRIER_CMD_GLOBAL_EXPEDITED begins and ends with a full barrier on this CPU; it interrupts
    only CPUs that run processes which registered for it. Python has no barrier of its own.
    """

    def __init__(self) -> None:
        """Raise ProbeError where the kernel lacks membarrier(2)."""
        self._number = _MEMBARRIER.get(platform.machine())
        if self._number is None:
            raise ProbeError(f"rings cannot be read on {platform.machine()}: use another machine")
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._offered = self._call(0)
        if self._offered < 0 or not self._offered & _GLOBAL_EXPEDITED:
            raise ProbeError("the kernel lacks membarrier(2): enable CONFIG_MEMBARRIER")

    def _call(self, command: int) -> int:
        return int(self._syscall(self._number, command, 0, 0))

    def acquire(self) -> None:
        self._call(_GLOBAL_EXPEDITED)

    def release(self) -> None:
        self._call(_GLOBAL_EXPEDITED)


class Membarrier(Fence):
    """Weakly ordered machines whose programs publish a head by a plain store.

    MEMBARRIER_CMD_GLOBAL has every CPU execute a full barrier, after which the records stored
    before the head that was read are visible; it waits for an RCU grace period, 13 to 41 ms.
    Kernels with nohz_full CPUs lack that command; a pause of 1 ms, in which every store buffer
    drains, stands in for it.
    """

    _PAUSE_SECONDS = 0.001

    def acquire(self) -> None:
        if self._offered & _GLOBAL:
            self._call(_GLOBAL)
        else:
            time.sleep(self._PAUSE_SECONDS)
            self._call(_GLOBAL_EXPEDITED)


def is_strongly_ordered() -> bool:
    """Return whether this machine (x86-64) needs no barriers: the others here are for the rest."""
    return platform.machine() in ("x86_64", "AMD64")


def machine_barrier(ordered: bool = False) -> Barrier:
    """Return this machine's; `ordered`: the writer publishes its head by a barrier or release."""
    if is_strongly_ordered():
        return Barrier()
    return Fence() if ordered else Membarrier()
