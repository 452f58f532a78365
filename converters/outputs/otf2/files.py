# SPDX-License-Identifier: Apache-2.0
"""A location's event file: records in chunks, as the OTF2 library lays them out."""

import errno
import os
import tempfile
from pathlib import Path

import numpy as np

from biotrail.converters.outputs.otf2.records import TIME_STAMP_BYTES, Records
from biotrail.recorder.schema.errors import OutputError

CHUNK_BYTES = 1 << 20
"""Readers take a chunk at a time; no record crosses the border of two."""

_CHUNK, _LITTLE_ENDIAN, _TIME_STAMP = 3, 0x42, 5
_END = bytes((2, 1))
"""Of the file, and of the library's buffer."""
_HEADER_BYTES = 18
_LAST_EVENT = 10


class EventFile:
    """Events of one location, in memory up to a chunk; the file is open while it is written to."""

    def __init__(self, path: Path) -> None:
        self.events = 0
        """How many were written."""
        self.time: int | None = None
        """ns of the newest."""
        self._path = path
        self._chunk = bytearray()
        self._begin_chunk()

    def write(self, records: Records) -> None:
        """Adds records in order of time. Raises OSError."""
        # How much of the data has to fit into a chunk for the record to be in it.
        needs = records.start[:-1] + records.most + TIME_STAMP_BYTES
        slack = int(records.most.max(initial=0))
        data = records.data.data
        at, skip = 0, 0
        while at < len(records.time):
            begin = int(records.start[at]) + skip
            room = CHUNK_BYTES - len(self._chunk) + begin
            near = int(np.searchsorted(records.start[:-1], room - slack - TIME_STAMP_BYTES))
            near = max(near, at)
            full = np.flatnonzero(needs[near : near + slack + TIME_STAMP_BYTES + 1] >= room)
            stop = near + int(full[0]) if len(full) else len(records.time)
            self._chunk += data[begin : int(records.start[stop])]
            self.events += stop - at
            at, skip = stop, 0
            if at < len(records.time):
                self._end_chunk()
                self._begin_chunk()
                self._stamp(int(records.time[at]))
                skip = TIME_STAMP_BYTES if records.timed[at] else 0
        if len(records.time):
            self.time = int(records.time[-1])

    def close(self) -> None:
        """Writes what is left. Raises OSError."""
        self._chunk += _END
        self._flush()

    def _begin_chunk(self) -> None:
        self._chunk += bytes((_CHUNK, _LITTLE_ENDIAN))
        self._chunk += (self.events + 1).to_bytes(8, "little") + bytes(8)

    def _stamp(self, time: int) -> None:
        self._chunk.append(_TIME_STAMP)
        self._chunk += time.to_bytes(8, "little")

    def _end_chunk(self) -> None:
        self._chunk += bytes(CHUNK_BYTES - len(self._chunk))
        self._flush()

    def _flush(self) -> None:
        self._chunk[_LAST_EVENT:_HEADER_BYTES] = self.events.to_bytes(8, "little")
        with self._path.open("ab") as file:
            file.write(self._chunk)
        self._chunk.clear()


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
