# SPDX-License-Identifier: Apache-2.0
"""Write a location's event file: records in chunks, as the OTF2 library lays them out."""

import errno
import os
import tempfile
from pathlib import Path

import numpy as np

from biotrail.converters.outputs.otf2.records import TIME_STAMP_BYTES, Records
from biotrail.recorder.schema.errors import OutputError

CHUNK_BYTES = 1 << 20
"""Size of a chunk. Readers load one chunk at a time; no record crosses a border."""

_CHUNK, _LITTLE_ENDIAN, _TIME_STAMP = 3, 0x42, 5
"""First bytes of a chunk, and of a time stamp record."""
_END = bytes((2, 1))
"""Last bytes: end of the file, and of the library's buffer."""
_HEADER_BYTES = 18
"""Bytes of a chunk's header: two, and the numbers of its first and last event."""
_LAST_EVENT = 10
"""Offset in the header of the number of the chunk's last event."""


class EventFile:
    """Events of one location. Up to a chunk is in memory; the file is open only during a write."""

    def __init__(self, path: Path) -> None:
        """Begin a file without events; `path` is created at the first full chunk or by `close`.

        No file may be there before: its bytes would stay in front of the events.
        """
        self.events = 0
        """Number of events written."""
        self.time: int | None = None
        """Time of the newest event, ns; None: no event yet."""
        self._path = path
        self._chunk = bytearray()
        self._begin_chunk()

    def write(self, records: Records) -> None:
        """Append encoded records of the location's next events, in order of time.

        Writes each chunk that becomes full to the file; the rest waits for the next call or
        `close`. The first record of a further chunk gets a time stamp record before it, in place of
        its own. Sets `events` and `time`. Raises OSError where the file cannot be written.
        """
        # Per record: offset in `data` up to which the chunk must have room for the library to put
        # the record there; the library sets aside `most` bytes whatever the record takes.
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
        """Write the last chunk. Raises OSError."""
        self._chunk += _END
        self._flush()

    def _begin_chunk(self) -> None:
        """Append a chunk's header, without the number of its last event."""
        self._chunk += bytes((_CHUNK, _LITTLE_ENDIAN))
        self._chunk += (self.events + 1).to_bytes(8, "little") + bytes(8)

    def _stamp(self, time: int) -> None:
        """Append a time stamp record (ns)."""
        self._chunk.append(_TIME_STAMP)
        self._chunk += time.to_bytes(8, "little")

    def _end_chunk(self) -> None:
        """Pad the chunk to its full size and write it."""
        self._chunk += bytes(CHUNK_BYTES - len(self._chunk))
        self._flush()

    def _flush(self) -> None:
        """Append the chunk to the file, with the number of its last event."""
        self._chunk[_LAST_EVENT:_HEADER_BYTES] = self.events.to_bytes(8, "little")
        with self._path.open("ab") as file:
            file.write(self._chunk)
        self._chunk.clear()


def check_room(directory: Path, size: int) -> None:
    """Raise OutputError unless a file of `size` bytes can be allocated in `directory`.

    The file is temporary: the room is free again afterwards.
    """
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            if size:  # posix_fallocate(3) refuses a length of 0
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OutputError(f"{directory}: {error.strerror}") from error
        raise OutputError(
            f"{directory}: {error.strerror}, {size >> 20} MiB more are needed there: "
            "free some space, or convert to another disk"
        ) from error
