# SPDX-License-Identifier: Apache-2.0
"""Sizes the kernel's maps of call stacks (bpf/stacks.h), and reads new stacks from them."""

import ctypes
from enum import IntEnum
from pathlib import Path
from typing import Any

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
_ADDRESS = np.dtype("<u8")
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


def max_depth() -> int:
    """Return the most frames that are recorded of a stack, by the sysctl, from 1 to 127."""
    try:
        return max(1, min(_MAX_DEPTH, int(_MAX_STACK.read_text())))
    except (OSError, ValueError):
        return _MAX_DEPTH


class StackMap:
    """A map of call stacks. None is removed, so an id never changes its meaning."""

    def __init__(
        self,
        bpf: BpfObject,
        name: str,
        depth: int,
        buckets: int,
        frame: "np.dtype[Any]" = _ADDRESS,
    ) -> None:
        """Size the map before loading. frame: addresses, or BUILD_ID_FRAME."""
        bpf.set_map_size(name, depth * frame.itemsize, buckets)
        self._bpf, self._name, self._frame = bpf, name, frame
        self._value = ctypes.create_string_buffer(depth * frame.itemsize)
        self._known: set[int] = set()

    def fresh(self) -> dict[int, NDArray[Any]]:
        """Return the stacks that are new in the kernel's map since the last call, by id.

        A stack ends before its first unused entry (kernel: address 0; user: status 0).
        """
        found = {}
        for key in self._bpf.keys(self._name):
            if key.value not in self._known and self._bpf.get(self._name, key, self._value):
                frames = np.frombuffer(self._value.raw, self._frame)
                words = frames["status"] if self._frame is BUILD_ID_FRAME else frames
                unused = np.flatnonzero(words == 0)
                found[key.value] = frames[: unused[0]] if len(unused) else frames
        self._known.update(found)
        return found
