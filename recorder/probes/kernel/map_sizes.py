# SPDX-License-Identifier: Apache-2.0
"""How much memory the kernel takes for a map of BPF programs (kernel/bpf/)."""

from enum import IntEnum

_ELEMENT = 48
"""Bytes of an element of a hash beside its key and value: struct htab_elem."""
_BUCKET = 16
_STACK = 16
"""Bytes of a stack beside its frames: struct stack_map_bucket."""
_PAGE = 4096


SIZED_BY = ("type", "key_size", "value_size", "max_entries")
"""What libbpf tells of a map, in the order of the arguments of `map_bytes`."""


class MapType(IntEnum):
    """enum bpf_map_type (include/uapi/linux/bpf.h), those that biotrail's objects have."""

    HASH = 1
    ARRAY = 2
    PERCPU_HASH = 5
    PERCPU_ARRAY = 6
    STACK_TRACE = 7
    LRU_HASH = 9
    QUEUE = 22
    RINGBUF = 27


def map_bytes(kind: int, key: int, value: int, entries: int, cpus: int) -> int:
    """Return about how many bytes a map takes, all of which are taken when it is made.

    kind: of MapType; another one counts as an array. key, value: their bytes. entries: most
    elements, of a RINGBUF bytes. cpus: possible CPUs.
    """
    key, value = _even(key), _even(value)
    match kind:
        case MapType.HASH | MapType.LRU_HASH:
            # Each CPU may keep a few free elements; they are few beside the others.
            size = (entries + cpus) * (_ELEMENT + key + value) + _power(entries) * _BUCKET
        case MapType.PERCPU_HASH:
            each = _ELEMENT + key + 8 + value * cpus
            size = entries * each + _power(entries) * _BUCKET
        case MapType.PERCPU_ARRAY:
            size = entries * (8 + value * cpus)
        case MapType.STACK_TRACE:
            size = entries * (_STACK + value) + _power(entries) * 8
        case MapType.RINGBUF:
            size = entries + 3 * _PAGE
        case _:
            size = entries * value
    return -(-size // _PAGE) * _PAGE


def _even(size: int) -> int:
    """Return a size rounded up to 8 bytes, as the kernel lays keys and values out."""
    return -(-size // 8) * 8


def _power(entries: int) -> int:
    """Return the power of two that is not below a number: of buckets of a hash."""
    return 1 << max(0, entries - 1).bit_length()
