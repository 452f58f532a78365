# SPDX-License-Identifier: Apache-2.0
"""The kernel's ring-buffer pages: read from a trace.dat, and events found in many at once.

A page is a header (time, committed bytes and flags), and events without gaps. An event begins with
a word: 5 bits for its type or length in words, 27 bits for the ns since the event before. Sources:
tracefs's events/header_event, and kernel/trace/ring_buffer.c.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U8, Bool
from biotrail.converters.inputs.ftrace.recording import (
    Buffer,
    ByteOrder,
    CpuData,
    Fields,
    Recording,
)
from biotrail.recorder.schema.errors import LogFormatError

_PADDING = 29
_TIME_EXTEND = 30
_TIME_STAMP = 31
_DELTA_BITS = 27
_COMMIT = (1 << 27) - 1
_MISSED = 1 << 31
"""Flag of `commit`: events before the page were lost (RB_MISSED_EVENTS)."""
_MISSED_STORED = 1 << 30
"""Flag of `commit`: the number of lost events stands behind the last event (RB_MISSED_STORED)."""
_TIME_STAMP_HIGH = 0x1F << 59
"""Bits of a time that an absolute time stamp leaves out."""
_TIME_BYTES = 8
"""Size of the time at a page's beginning; `commit` follows it."""


@dataclass(frozen=True)
class PageLayout:
    """Sizes in bytes of a page, of its `commit`, and of what precedes its events."""

    order: ByteOrder
    page_bytes: int
    commit_bytes: int
    data_at: int


def page_layout(order: ByteOrder, page_bytes: int, long_bytes: int, header_page: str) -> PageLayout:
    """Return the layout that the text of `header_page` describes; by `long_bytes` where it lacks.

    long_bytes: of user space, which a 64-bit kernel's may exceed.
    """
    commit = re.search(r"\bcommit;\s*offset:8;\s*size:([48]);", header_page)
    commit_bytes = int(commit[1]) if commit else 4 if long_bytes == 4 else 8
    data = re.search(r"\bdata;\s*offset:(\d{1,3});", header_page)
    least = _TIME_BYTES + commit_bytes
    data_at = int(data[1]) if data else least
    return PageLayout(order, page_bytes, commit_bytes, data_at if data_at % 4 == 0 else least)


@dataclass(frozen=True)
class PageEvents:
    """Events of a block of pages, in the pages' order.

    at: offset (bytes) of each event's data in the block; size: its bytes; time: of the trace's
    clock, int64; page: index of its page. lost: number of events lost before each page, -1 unknown
    (pages,). begin: each page's own time (pages,). unreadable: bytes of pages that could not be
    read; bad_page: the first such page, -1 for none.
    """

    at: I64
    size: I64
    time: I64
    page: I64
    lost: I64
    begin: I64
    unreadable: int
    bad_page: int


def find_events(data: U8, layout: PageLayout) -> PageEvents:
    """Return the events of whole pages, which are walked together, one event in each per step.

    data: (pages * page_bytes,) uint8. What cannot be an event ends its page, and is counted.
    """
    walk = _Walk(data, layout)
    while len(walk.pages):
        walk.step()
    at = np.flatnonzero(walk.size)  # by word: the mask keeps the order of the pages
    size = walk.size[at].astype(np.int64)
    page = at * 4 // layout.page_bytes
    return PageEvents(
        at * 4,
        size,
        walk.time[at],
        page,
        walk.lost,
        walk.begin,
        int(walk.unreadable.sum()),
        int(np.argmax(walk.unreadable > 0)) if walk.unreadable.any() else -1,
    )


class _Walk:
    """Positions in pages, all advanced by `step`, and what was found.

    pages: (n,) the pages in which there is more. size, time: by word of the block, an event's bytes
    (0: none begins there) and time.
    """

    def __init__(self, data: U8, layout: PageLayout) -> None:
        kind = "<" if layout.order == "little" else ">"
        self._big = layout.order == "big"
        pages = len(data) // layout.page_bytes
        words: NDArray[np.uint32] = data.view(f"{kind}u4").astype(np.uint32)
        self._words = np.concatenate([words, np.zeros(1, np.uint32)])
        self.size = np.zeros(len(words), np.uint32)
        self.time = np.zeros(len(words), np.int64)
        self.unreadable = np.zeros(pages, np.int64)
        rows = data.reshape(pages, layout.page_bytes)
        self.begin = np.ascontiguousarray(rows[:, :_TIME_BYTES]).view(f"{kind}i8")[:, 0]
        self.begin = self.begin.astype(np.int64)
        commit = _longs(rows, np.full(pages, _TIME_BYTES), layout)
        room = layout.page_bytes - layout.data_at
        length = np.minimum(commit & _COMMIT, room)
        self.unreadable[(commit & _COMMIT) > room] += 1
        self.lost = _lost(rows, commit, length, layout)
        first = np.arange(pages) * (layout.page_bytes // 4) + layout.data_at // 4
        last = first + length // 4
        some = first < last
        self.pages = np.flatnonzero(some)
        self._now = self.begin[some].copy()
        self._at, self._end = first[some], last[some]

    def step(self) -> None:
        """Take the next event of each page in `pages`; drop the pages that are over from it."""
        head = self._words[self._at].astype(np.int64)
        after = self._words[self._at + 1].astype(np.int64)
        if self._big:
            kind, delta = head >> _DELTA_BITS, head & ((1 << _DELTA_BITS) - 1)
        else:
            kind, delta = head & 31, head >> 5
        is_event = kind < _PADDING
        words = np.where(is_event, 1 + kind, 2)
        long = kind == 0
        padding = kind == _PADDING
        sized = long | padding
        words[sized] = 1 + (after[sized] + 3) // 4
        self._advance_time(kind, delta, after)
        end = self._at + words
        # An event of no bytes, one that leaves its page, and padding up to the page's end.
        rest = padding & (delta == 0)
        bad = ((end > self._end) | (long & (after <= 4))) & ~rest
        self._put(is_event & ~bad, long, words, after)
        self.unreadable[self.pages[bad]] += ((self._end - self._at) * 4)[bad]
        going = ~bad & ~rest & (end < self._end)
        self._at, self._end = end[going], self._end[going]
        self._now, self.pages = self._now[going], self.pages[going]

    def _advance_time(self, kind: I64, delta: I64, after: I64) -> None:
        """Set `_now` to the time of the events at `_at`, which have these words."""
        extended = delta + (after << _DELTA_BITS)
        self._now = self._now + np.where(kind == _TIME_EXTEND, extended, delta)
        stamped = kind == _TIME_STAMP
        if stamped.any():
            high = (self._now - delta)[stamped] & _signed(_TIME_STAMP_HIGH)
            self._now[stamped] = high | extended[stamped]

    def _put(self, good: Bool, long: Bool, words: I64, after: I64) -> None:
        data = self._at + 1 + long
        size = np.where(long, after - 4, (words - 1) * 4)
        self.size[data[good]] = size[good]
        self.time[data[good]] = self._now[good]


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def _longs(rows: U8, at: I64, layout: PageLayout) -> I64:
    """Return the kernel's long at an offset of each page, as int64.

    rows: (pages, page_bytes). at: (pages,), such that the long is in the page.
    """
    kind = "<" if layout.order == "little" else ">"
    columns = at[:, None] + np.arange(layout.commit_bytes)
    taken = np.take_along_axis(rows, columns, axis=1)
    longs: I64 = taken.view(f"{kind}i{layout.commit_bytes}")[:, 0].astype(np.int64)
    return longs


def _lost(rows: U8, commit: I64, length: I64, layout: PageLayout) -> I64:
    """Return the number of events lost before each page, -1 for an unknown one, 0 for none."""
    lost = np.where(commit & _MISSED != 0, np.int64(-1), np.int64(0))
    at = layout.data_at + length
    stored = (lost != 0) & (commit & _MISSED_STORED != 0)
    stored &= at + layout.commit_bytes <= layout.page_bytes
    counts = _longs(rows[stored], at[stored], layout)
    lost[stored] = np.where(counts > 0, counts, -1)
    return lost


BLOCK_BYTES = 1 << 20
_PAGES_AT_LEAST = 64
"""Pages of a block: many are walked as fast as one."""
_CHUNK_HEAD_BYTES = 8
"""Size of a chunk's stored size and that of its content, which precede it."""
COUNT_BYTES = 4
"""Size of the number of chunks, which the size of a CPU's compressed data leaves out."""


@dataclass
class CpuPages:
    """One CPU's pages of one buffer.

    reached: ns of the newest event that was read, the least int64 before any; left for the caller
    to set. read: bytes of the file read. events: found so far, left for the caller to count, too.
    missing: bytes that the file should have and has not.
    """

    stream: BinaryIO
    name: str
    recording: Recording
    buffer: Buffer
    where: CpuData
    reached: int = int(np.iinfo(np.int64).min)
    read: int = 0
    events: int = 0
    missing: int = 0
    unreadable: int = 0
    problems: list[str] = field(default_factory=list)

    def blocks(self) -> Iterator[U8]:
        """Yield the pages, (pages * page_bytes,) uint8, about BLOCK_BYTES at a time.

        A last page that is not whole is left out, with a problem.
        """
        page = self.buffer.page_bytes
        wanted = max(BLOCK_BYTES, _PAGES_AT_LEAST * page)
        rest = b""
        for piece in self._chunks() if self.buffer.compressed else self._pieces(wanted):
            rest += piece
            if len(rest) >= wanted:
                whole = len(rest) // page * page
                yield np.frombuffer(rest[:whole], np.uint8)
                rest = rest[whole:]
        whole = len(rest) // page * page
        if whole:
            yield np.frombuffer(rest[:whole], np.uint8)
        if len(rest) > whole:
            self.unreadable += len(rest) - whole
            self.problems.append(
                f"{self.name}: {len(rest) - whole} bytes before offset "
                f"{self.where.offset + self.read} (CPU {self.where.cpu}) are no whole page; "
                "left out"
            )

    def first_page(self) -> U8:
        """Return the first page, (page_bytes,) uint8; empty if there is none.

        Advances as `blocks` does: for a CpuPages of its own.
        """
        page = self.buffer.page_bytes
        data = next(self._chunks() if self.buffer.compressed else self._pieces(page), b"")
        return np.frombuffer(data[:page] if len(data) >= page else b"", np.uint8)

    def _pieces(self, size: int) -> Iterator[bytes]:
        fields = Fields(self.stream, self.name, self.recording.order)
        end = self.where.offset + self.where.size
        self._note_missing(end - fields.size)
        end = min(end, fields.size)
        while (at := self.where.offset + self.read) < end:
            fields.seek(at)
            data = fields.take(min(size, end - at))
            self.read += len(data)
            yield data

    def _chunks(self) -> Iterator[bytes]:
        fields = Fields(self.stream, self.name, self.recording.order)
        end = self.where.offset + COUNT_BYTES + self.where.size
        self._note_missing(end - fields.size)
        end = min(end, fields.size)
        self.read = COUNT_BYTES
        announced = found = 0
        if self.where.offset + COUNT_BYTES <= fields.size:
            fields.seek(self.where.offset)
            announced = fields.number(COUNT_BYTES)
        while (at := self.where.offset + self.read) + _CHUNK_HEAD_BYTES <= end:
            fields.seek(at)
            stored, size = fields.number(4), fields.number(4)
            if not stored and not size and found >= announced:
                break  # zeros up to a page's end
            data = fields.take(min(stored, end - at - _CHUNK_HEAD_BYTES))
            self.read += _CHUNK_HEAD_BYTES + len(data)
            found += 1
            try:
                yield self.recording.decompressor.decompress(
                    data, size, f"{self.name}: chunk at offset {at}"
                )
            except LogFormatError as error:
                self.unreadable += len(data)
                self.problems.append(f"{error}; left out")
        if found != announced and not self.missing:
            self.problems.append(
                f"{self.name}: CPU {self.where.cpu} has {announced} chunks by its count at offset "
                f"{self.where.offset}, {found} by its size: the file is damaged; these were read"
            )

    def _note_missing(self, count: int) -> None:
        if count > 0:
            self.missing = min(count, self.where.size)
            self.problems.append(
                f"{self.name}: cut off: {self.missing} of {self.where.size} bytes of CPU "
                f"{self.where.cpu} are missing; copy the file again, or record again"
            )
