# SPDX-License-Identifier: Apache-2.0
"""The C library's allocator of this process."""

import ctypes
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGEST_BLOCK = 32 << 20  # what glibc accepts
_KEPT = 256 << 20


def keep_freed_memory() -> None:
    """Set glibc's malloc to keep freed memory; do nothing with another C library.

    Copies of the rings, and columns of a window, are megabytes long. By default each is a mapping
    of its own, and the page faults of a fresh mapping cost five times what the copy itself does.
    With a single arena a thread reuses what another one freed.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
        mallopt(_M_ARENA_MAX, 1)
