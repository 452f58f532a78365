# SPDX-License-Identifier: Apache-2.0
"""The kernel's maps of stacks (bpf/stacks.h): their sizes, and what is new in them."""

import ctypes
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.probes.libbpf import BpfObject

KERNEL_STACKS = 16384
USER_STACKS = 8192
"""Distinct stacks at most; a stack has a place by its hash, so that far fewer fit without clash."""
_KERNEL_MAP, _USER_MAP = "bt_kernel_stacks", "bt_user_stacks"
_MAX_DEPTH = 127
_MAX_STACK = Path("/proc/sys/kernel/perf_event_max_stack")

BUILD_ID_FRAME = np.dtype([("status", "<i4"), ("build_id", "u1", (20,)), ("ip", "<u8")])
"""`struct bpf_stack_build_id` (include/uapi/linux/bpf.h): 32 bytes a frame."""


BY_BUILD_ID = 1
"""BUILD_ID_FRAME.status: build id and offset; otherwise the kernel knows an address alone."""


class Stacks(IntEnum):
    """What is recorded of where a bio was queued from; the larger, the more."""

    NONE = 0
    KERNEL = 1
    USER = 2


class FreshStacks(NamedTuple):
    """Stacks by id, innermost frame first.

    kernel: addresses, u64 of shape (frames,). user: BUILD_ID_FRAME of shape (frames,).
    """

    kernel: dict[int, NDArray[np.uint64]]
    user: dict[int, NDArray[np.void]]


def max_depth() -> int:
    """Frames that the kernel takes of a stack at most: kernel.perf_event_max_stack, up to 127."""
    try:
        return max(1, min(_MAX_DEPTH, int(_MAX_STACK.read_text())))
    except (OSError, ValueError):
        return _MAX_DEPTH


class StackMaps:
    """Both maps of one loaded object. Nothing is removed from them."""

    def __init__(self, bpf: BpfObject, wanted: Stacks) -> None:
        """Sets their sizes, before the object is loaded."""
        self._bpf = bpf
        depth = max_depth()
        self._known: dict[str, set[int]] = {}
        if wanted >= Stacks.KERNEL:
            bpf.set_map_size(_KERNEL_MAP, depth * 8, KERNEL_STACKS)
            self._known[_KERNEL_MAP] = set()
        if wanted >= Stacks.USER:
            bpf.set_map_size(_USER_MAP, depth * BUILD_ID_FRAME.itemsize, USER_STACKS)
            self._known[_USER_MAP] = set()
        self._value = ctypes.create_string_buffer(depth * BUILD_ID_FRAME.itemsize)

    def fresh(self) -> FreshStacks:
        """What has come since the last call."""
        return FreshStacks(
            {n: _whole(np.frombuffer(data, "<u8")) for n, data in self._read(_KERNEL_MAP, 8)},
            {
                n: _with_frames(np.frombuffer(data, BUILD_ID_FRAME))
                for n, data in self._read(_USER_MAP, BUILD_ID_FRAME.itemsize)
            },
        )

    def _read(self, name: str, frame: int) -> list[tuple[int, bytes]]:
        known = self._known.get(name)
        if known is None:
            return []
        size = max_depth() * frame
        found = []
        for key in self._bpf.keys(name):
            if key not in known and self._bpf.read_value(name, key, self._value):
                found.append((key, self._value.raw[:size]))
        known.update(key for key, _ in found)
        return found


def _whole(addresses: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Up to the first empty place: the kernel clears what a stack does not fill."""
    empty = np.flatnonzero(addresses == 0)
    return addresses[: empty[0]] if len(empty) else addresses


def _with_frames(frames: NDArray[np.void]) -> NDArray[np.void]:
    empty = np.flatnonzero(frames["status"] == 0)
    return frames[: empty[0]] if len(empty) else frames
