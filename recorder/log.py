# SPDX-License-Identifier: Apache-2.0
"""The `.biotrail` log: written front to back by LogWriter, read back by LogReader.

The format is drawn in `recorder/log_frames.py` (framing) and `recorder/log_chunks.py` (what a
chunk holds), and explained for writers of other readers in `docs/log-format.md`.

A log that was interrupted reads up to its last whole frame; damage costs the frames that it
hit, which are named by file offset, with the window of time in which events are missing.
"""

from recorder.log_chunks import Chunk, Segment
from recorder.log_facts import Facts, pack_facts, pack_json, unpack_facts, unpack_json
from recorder.log_frames import most_raw
from recorder.log_reader import LogReader
from recorder.log_writer import LogWriter

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
