# SPDX-License-Identifier: Apache-2.0
"""Bounds on what the OTF2 library holds back, in memory and before a full disk.

Left alone, it keeps up to 128 MiB of events per location, and a disk that fills up while
these are written at the end makes it free a buffer twice and abort.
"""

import ctypes
import errno
import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from recorder.errors import OutputError

CHUNK_BYTES = 1 << 20
CHUNKS = 2
"""Chunks of events per location: one that is filled, one that is flushed."""
FILE_BUFFER_BYTES = 4 << 20
"""What the library's files buffer once more (OTF2_File)."""
EVENT_BYTES = 96
"""No event that we write is longer: time stamp, record, five attributes."""
DEFINITION_BYTES = 1 << 20

_EVENT_FILE = 3
"""OTF2_FILETYPE_EVENTS."""

# The package's own types for these leave out the first argument.
_ALLOCATE = ctypes.CFUNCTYPE(
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_uint8,
    ctypes.c_uint64,
    ctypes.c_void_p,
    ctypes.c_uint64,
)
_FREE_ALL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint8, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_bool
)


class _Callbacks(ctypes.Structure):
    """OTF2_MemoryCallbacks."""

    _fields_ = (("allocate", _ALLOCATE), ("free_all", _FREE_ALL))


class Memory:
    """Chunks for an archive's buffers. It must live as long as the archive is open."""

    def __init__(self, archive: Any) -> None:
        """Registers with an archive (`_otf2`'s handle), before any of its files is opened."""
        self._chunks: dict[tuple[int, int], list[Any]] = {}
        self._used: dict[tuple[int, int], int] = {}
        self._callbacks = _Callbacks(_ALLOCATE(self._allocate), _FREE_ALL(self._free_all))
        function = import_module("_otf2.Config").conf.lib["OTF2_Archive_SetMemoryCallbacks"]
        function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        function.restype = ctypes.c_int
        handle = ctypes.cast(archive, ctypes.c_void_p)
        function(handle, ctypes.addressof(self._callbacks), None)

    def _allocate(self, _user: Any, kind: int, location: int, _data: Any, size: int) -> int | None:
        key = (kind, location)
        used = self._used.get(key, 0)
        if kind == _EVENT_FILE and used >= CHUNKS:
            return None  # which makes the library flush
        chunks = self._chunks.setdefault(key, [])
        if used == len(chunks):
            chunks.append(ctypes.create_string_buffer(size))
        self._used[key] = used + 1
        return ctypes.addressof(chunks[used])

    def _free_all(self, _user: Any, kind: int, location: int, _data: Any, final: bool) -> None:
        self._used[kind, location] = 0
        if final:
            self._chunks.pop((kind, location), None)


def unwritten_bytes(events: int, locations: int) -> int:
    """At most how many bytes the library still has to write after `events` events."""
    held = locations * (CHUNKS * CHUNK_BYTES + FILE_BUFFER_BYTES)
    return min(events * EVENT_BYTES, held) + DEFINITION_BYTES


def check_room(directory: Path, size: int) -> None:
    """Raises OutputError unless `size` bytes can be had there: allocates them, lets them go."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OutputError(f"{directory}: {error.strerror}") from error
        raise OutputError(
            f"{directory}: {error.strerror}, {size >> 20} MiB more are needed there: "
            "free some space, or convert to another disk"
        ) from error
