# SPDX-License-Identifier: Apache-2.0
"""Memory barriers of the rings' reader, by the machine and by how the programs publish a head.

docs/architecture.md ("Order") says why each pair is enough.
"""

import ctypes
import platform
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from biotrail.recorder.schema.errors import ProbeError

_MEMBARRIER = {"aarch64": 283, "x86_64": 324, "riscv64": 283, "ppc64le": 365, "s390x": 356}
"""Number of the system call membarrier(2) by machine."""
_GLOBAL = 1
_GLOBAL_EXPEDITED = 2


_PAUSE_SECONDS = 0.001


class Barrier(NamedTuple):
    """Memory barriers of the rings' reader: none on x86-64, which reorders neither of these."""

    acquire: Callable[[], object] = lambda: None
    """Order the load of the heads before the loads of the records below them."""
    release: Callable[[], object] = lambda: None
    """Order the loads of records before the store of the tail that frees their space."""


def is_strongly_ordered() -> bool:
    """Return whether this machine (x86-64) needs no barriers: the others here are for the rest."""
    return platform.machine() in ("x86_64", "AMD64")


def machine_barrier(ordered: bool = False) -> Barrier:
    """Return this machine's; `ordered`: the writer publishes its head by a barrier or release."""
    return Barrier() if is_strongly_ordered() else weak_barrier(ordered)


def weak_barrier(ordered: bool) -> Barrier:
    """Return that of machines that reorder. Raises ProbeError: the kernel lacks membarrier(2).

    ordered: the programs publish a head by a full barrier, so one is needed here as well.
    MEMBARRIER_CMD_GLOBAL_EXPEDITED begins and ends with a full barrier on this CPU; it interrupts
    only CPUs that run processes which registered for it. Python has no barrier of its own.

    Else they do by a plain store. MEMBARRIER_CMD_GLOBAL has every CPU execute a full barrier, after
    which the records stored before the head that was read are visible; it waits for an RCU grace
    period, 13 to 41 ms. Kernels with nohz_full CPUs lack that command; a pause of 1 ms, in which
    every store buffer drains, stands in for it.
    """
    number = _MEMBARRIER.get(platform.machine())
    if number is None:
        raise ProbeError(f"rings cannot be read on {platform.machine()}: use another machine")
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    offered = int(syscall(number, 0, 0, 0))
    if offered < 0 or not offered & _GLOBAL_EXPEDITED:
        raise ProbeError("the kernel lacks membarrier(2): enable CONFIG_MEMBARRIER")
    fence = partial(syscall, number, _GLOBAL_EXPEDITED, 0, 0)
    if ordered:
        return Barrier(fence, fence)
    if offered & _GLOBAL:
        return Barrier(partial(syscall, number, _GLOBAL, 0, 0), fence)

    def pause() -> None:
        time.sleep(_PAUSE_SECONDS)
        fence()

    return Barrier(pause, fence)
