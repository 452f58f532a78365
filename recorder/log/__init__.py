# SPDX-License-Identifier: Apache-2.0
"""The `.biotrail` log file: LogWriter writes it front to back, LogReader reads it.

The format is drawn in `recorder/log/frames.py` (framing) and `recorder/log/chunks.py` (a chunk's
payload), and explained for writers of other readers in `docs/log-format.md`.

An interrupted log is read up to its last whole frame. In a damaged log, only the damaged frames
are lost: LogReader reports their file offsets, and the windows of time with missing events.
"""

from biotrail.recorder.log.chunks import Chunk, Segment
from biotrail.recorder.log.frames import major_of, most_raw
from biotrail.recorder.log.reader import LogReader
from biotrail.recorder.log.validation import (
    Facts,
    pack_facts,
    pack_json,
    unpack_facts,
    unpack_json,
)
from biotrail.recorder.log.writer import LogWriter

__all__ = [
    "Chunk",
    "Facts",
    "LogReader",
    "LogWriter",
    "Segment",
    "major_of",
    "most_raw",
    "pack_facts",
    "pack_json",
    "unpack_facts",
    "unpack_json",
]
