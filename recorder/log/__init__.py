# SPDX-License-Identifier: Apache-2.0
"""The `.biotrail` log: written front to back by LogWriter, read back by LogReader.

The format is drawn in `recorder/log/frames.py` (framing) and `recorder/log/chunks.py` (what a
chunk holds), and explained for writers of other readers in `docs/log-format.md`.

A log that was interrupted reads up to its last whole frame; damage costs the frames that it
hit, which are named by file offset, with the window of time in which events are missing.
"""

from biotrail.recorder.log.chunks import Chunk, Segment
from biotrail.recorder.log.facts import Facts, pack_facts, pack_json, unpack_facts, unpack_json
from biotrail.recorder.log.frames import most_raw
from biotrail.recorder.log.reader import LogReader
from biotrail.recorder.log.writer import LogWriter

__all__ = [
    "Chunk",
    "Facts",
    "LogReader",
    "LogWriter",
    "Segment",
    "most_raw",
    "pack_facts",
    "pack_json",
    "unpack_facts",
    "unpack_json",
]
