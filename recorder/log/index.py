# SPDX-License-Identifier: Apache-2.0
"""Reads the index of a whole log: INDEX frames list all other frames, the TRAILER is its end."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.log.frames import (
    FRAME_BYTES,
    DamagedError,
    Frame,
    FrameType,
    unpack_payload,
)
from biotrail.recorder.log.source import Source, frame_at

ENTRY = np.dtype(
    [
        ("offset", "<u8"),
        ("word0", "<u8"),
        ("word1", "<u8"),
        ("sequence", "<u4"),
        ("type", "u1"),
        ("zero", "V3"),
    ]
)
"""frames.INDEX_ENTRY: a frame's file offset, the words of its header, its number and type."""


class Index(NamedTuple):
    """The frames that a log's INDEX frames list: all but INDEX and TRAILER, in file order.

    entries: (n,) of dtype ENTRY. ends: (n,) file offset of the next frame of any type.
    """

    entries: NDArray[np.void]
    ends: NDArray[np.uint64]


def read_index(source: Source, tag: int, problems: dict[int, str]) -> Index | None:
    """Return the log's index, by following its INDEX frames backwards from the trailer.

    `tag`: CRC-32 of the log's header JSON, which all frames repeat. None: the log has no trailer at
    its end (its last FRAME_BYTES), an INDEX frame is damaged or not where it should be, entries and
    INDEX frames together are not as many as the frames that the trailer counts, or the frames
    listed would overlap. The INDEX frame at fault, and an overlap, is added to `problems`: a
    sentence by file offset; the other two causes are not.
    """
    trailer = frame_at(source, source.size - FRAME_BYTES, tag)
    if trailer is None or trailer.type != FrameType.TRAILER:
        return None
    parts: list[NDArray[np.void]] = []
    borders = [trailer.offset]
    offset, below, room = trailer.word0, trailer.offset, source.size // FRAME_BYTES
    while offset:
        part = _read_part(source, tag, offset, below, room)
        if part is None:
            problems[offset] = f"index at offset {offset} is damaged or not there: read without it"
            return None
        frame, rows = part
        parts.append(rows)
        borders.append(offset)
        room -= len(rows)
        offset, below = frame.word0, offset
    entries = np.concatenate(parts[::-1]) if parts else np.empty(0, dtype=ENTRY)
    if len(entries) + len(parts) != trailer.word1:
        return None
    ends = _ends(entries["offset"], borders)
    if ends is None:
        problems[trailer.word0] = (
            f"index at offset {trailer.word0} has frames that overlap: read without it"
        )
        return None
    return Index(entries, ends)


def _read_part(
    source: Source, tag: int, offset: int, below: int, room: int
) -> tuple[Frame, NDArray[np.void]] | None:
    """Return the INDEX frame at file offset `offset` and its entries (n,), of dtype ENTRY.

    `below`: offset of the next INDEX frame or the trailer, where it must end at the latest, and
    the last INDEX frame exactly. `room`: most entries that its header may declare: as many as
    frames may fit. None where no intact INDEX frame is there, it ends elsewhere, its header
    declares more entries, or its payload is no whole number of entries.
    """
    frame = frame_at(source, offset, tag)
    if frame is None or frame.type != FrameType.INDEX or frame.word1 > room:
        return None
    if frame.next > below or (below == source.size - FRAME_BYTES and frame.next != below):
        return None
    try:
        payload = unpack_payload(frame, source.read_at(frame.payload, frame.stored))
        return frame, np.frombuffer(payload, dtype=ENTRY)
    except (DamagedError, ValueError):
        return None


def _ends(offsets: NDArray[np.uint64], borders: list[int]) -> NDArray[np.uint64] | None:
    """Return per frame (n,) the file offset of the next frame; None where frames would overlap.

    `offsets`: file offsets (n,) of the frames in the index. `borders`: offsets, in any order, of
    the INDEX frames and the TRAILER, which the index does not list. None: `offsets` do not ascend,
    two frames, listed or not, are closer than FRAME_BYTES, or one of the index is behind all of
    `borders`.
    """
    starts = np.sort(np.concatenate([offsets, np.array(borders, dtype=np.uint64)]))
    ascending = (np.diff(offsets.astype(np.int64)) > 0).all() if len(offsets) else True
    if not ascending or (len(starts) > 1 and np.diff(starts).min() < FRAME_BYTES):
        return None
    ends = starts[np.minimum(np.searchsorted(starts, offsets) + 1, len(starts) - 1)]
    return ends if (ends > offsets).all() else None
