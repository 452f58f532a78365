# SPDX-License-Identifier: Apache-2.0
"""Keeps freed memory in the process, so that building a chunk causes no new page faults."""

import ctypes
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGEST_BLOCK = 32 << 20  # what glibc accepts
_KEPT = 256 << 20


def keep_freed_memory() -> None:
    """Set glibc's malloc to keep freed memory; do nothing with another C library.

    Blocks of less than 32 MiB come from one heap, of which up to 256 MiB stay at its end when
    freed; there is one arena for all threads. Copies of the rings are megabytes long. By default
    each is a mapping of its own, and the page faults of a fresh mapping cost five times what the
    copy itself does. With a single arena the poll loop reuses what the writer thread freed. Applies
    to this process until it ends.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
        mallopt(_M_ARENA_MAX, 1)
