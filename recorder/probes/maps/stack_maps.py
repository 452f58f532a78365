# SPDX-License-Identifier: Apache-2.0
"""Sizes the kernel's maps of call stacks (bpf/stacks.h), and reads new stacks from them."""

import ctypes
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.probes.kernel.libbpf import BpfObject

KERNEL_STACKS = 16384
USER_STACKS = 8192
"""Buckets of each map. A stack's bucket is its hash, so collisions begin long before it is full."""
WAIT_STACKS = 16384
"""Buckets of the map of the stacks with which threads waited (bpf/wait_stacks.h)."""
WAIT_DEPTH = 16
"""Frames of these stacks: what a thread waits for is in the innermost ones."""
_KERNEL_MAP, _USER_MAP, _WAIT_MAP = "bt_kernel_stacks", "bt_user_stacks", "bt_wait_stacks"
_MAX_DEPTH = 127
_MAX_STACK = Path("/proc/sys/kernel/perf_event_max_stack")

BUILD_ID_FRAME = np.dtype([("status", "<i4"), ("build_id", "u1", (20,)), ("ip", "<u8")])
"""`struct bpf_stack_build_id` (include/uapi/linux/bpf.h), 32 bytes; ip: offset or address."""


BY_BUILD_ID = 1
"""BPF_STACK_BUILD_ID_VALID: `ip` is an offset in the file of `build_id`; else it is an address."""


class Stacks(IntEnum):
    """Which call stacks are recorded at Q: none, the kernel's, or the kernel's and user space's."""

    NONE = 0
    KERNEL = 1
    USER = 2


class FreshStacks(NamedTuple):
    """New stacks by their id in STACK records, innermost frame first.

    kernel: return addresses, u64 of shape (frames,). user: BUILD_ID_FRAME of shape (frames,).
    wait: as kernel, by the id in WAIT_STACK records. site: as kernel, by the id in HIT records;
    None: such stacks are not recorded.
    """

    kernel: dict[int, NDArray[np.uint64]]
    user: dict[int, NDArray[np.void]]
    wait: dict[int, NDArray[np.uint64]]
    site: dict[int, NDArray[np.uint64]] | None = None


def max_depth() -> int:
    """Return the most frames that are recorded of a stack, by the sysctl, from 1 to 127."""
    try:
        return max(1, min(_MAX_DEPTH, int(_MAX_STACK.read_text())))
    except (OSError, ValueError):
        return _MAX_DEPTH


class StackMaps:
    """The stack maps of one object. No stack is removed, so an id never changes its meaning."""

    def __init__(self, bpf: BpfObject, wanted: Stacks, waits: bool = False) -> None:
        """Size the maps before loading; `waits`: stacks of waits are recorded."""
        self._bpf = bpf
        depth = max_depth()
        self._frames: dict[str, int] = {}
        if wanted >= Stacks.KERNEL:
            bpf.set_map_size(_KERNEL_MAP, depth * 8, KERNEL_STACKS)
            self._frames[_KERNEL_MAP] = depth
        if wanted >= Stacks.USER:
            bpf.set_map_size(_USER_MAP, depth * BUILD_ID_FRAME.itemsize, USER_STACKS)
            self._frames[_USER_MAP] = depth
        if waits:
            self._frames[_WAIT_MAP] = min(depth, WAIT_DEPTH)
            bpf.set_map_size(_WAIT_MAP, self._frames[_WAIT_MAP] * 8, WAIT_STACKS)
        self._known: dict[str, set[int]] = {name: set() for name in self._frames}
        self._value = ctypes.create_string_buffer(depth * BUILD_ID_FRAME.itemsize)

    def fresh(self) -> FreshStacks:
        """Return the stacks that are new in the kernel's maps since the last call.

        A stack ends before its first unused entry (kernel: address 0; user: status 0).
        """
        user: dict[int, NDArray[np.void]] = {}
        if _USER_MAP in self._known:
            for key, data in new_stacks(self._bpf, _USER_MAP, self._known[_USER_MAP], self._value):
                frames = np.frombuffer(data, BUILD_ID_FRAME)
                unused = np.flatnonzero(frames["status"] == 0)
                user[key] = frames[: unused[0]] if len(unused) else frames
        return FreshStacks(self._addresses(_KERNEL_MAP), user, self._addresses(_WAIT_MAP))

    def _addresses(self, name: str) -> dict[int, NDArray[np.uint64]]:
        if name not in self._known:
            return {}
        found = new_stacks(self._bpf, name, self._known[name], self._value)
        return {n: before_zero(np.frombuffer(b, "<u8", self._frames[name])) for n, b in found}


def new_stacks(
    bpf: BpfObject, name: str, known: set[int], value: "ctypes.Array[ctypes.c_char]"
) -> list[tuple[int, bytes]]:
    """Return (id, bytes of `value`) of a map's stacks that are not `known`, which then has them."""
    found = []
    for key in bpf.keys(name):
        if key.value not in known and bpf.get(name, key, value):
            found.append((key.value, value.raw))
    known.update(key for key, _ in found)
    return found


def before_zero(addresses: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a view of the addresses before the first 0: the kernel zeroes unused entries."""
    empty = np.flatnonzero(addresses == 0)
    return addresses[: empty[0]] if len(empty) else addresses
