# SPDX-License-Identifier: Apache-2.0
"""The kernel's ring-buffer pages: read from a trace.dat, and events found in many at once.

A page is a header (time, committed bytes and flags), and events without gaps. An event begins with
a word: 5 bits for its type or length in words, 27 bits for the ns since the event before. Sources:
tracefs's events/header_event, and kernel/trace/ring_buffer.c.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U8
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
_TIME_STAMP_HIGH = -1 << 59
"""Bits of a time (int64) that an absolute time stamp leaves out."""
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
    """Return the layout of a text of `header_page`, or by user space's `long_bytes` without one."""
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
    read.
    """

    at: I64
    size: I64
    time: I64
    page: I64
    lost: I64
    begin: I64
    unreadable: int


def find_events(data: U8, layout: PageLayout) -> PageEvents:
    """Return the events of whole pages, which are walked together, one event in each per step.

    data: (pages * page_bytes,) uint8. What cannot be an event ends its page, and is counted.
    """
    big = layout.order == "big"
    order = ">" if big else "<"
    count = len(data) // layout.page_bytes
    words: NDArray[np.uint32] = data.view(f"{order}u4").astype(np.uint32)
    words = np.concatenate([words, np.zeros(1, np.uint32)])
    # By word of the block: an event's bytes (0: none begins there), and its time.
    sizes, times = np.zeros(len(words) - 1, np.uint32), np.zeros(len(words) - 1, np.int64)

    rows = data.reshape(count, layout.page_bytes)
    begin = np.ascontiguousarray(rows[:, :_TIME_BYTES]).view(f"{order}i8")[:, 0].astype(np.int64)
    commit = _longs(rows, np.full(count, _TIME_BYTES), layout)
    room = layout.page_bytes - layout.data_at
    length = np.minimum(commit & _COMMIT, room)
    unreadable = ((commit & _COMMIT) > room).astype(np.int64)

    # Of the pages in which there is more: the word of the next event, their end, the time so far.
    first = np.arange(count) * (layout.page_bytes // 4) + layout.data_at // 4
    last = first + length // 4
    pages = np.flatnonzero(first < last)
    at, end, now = first[pages], last[pages], begin[pages]
    while len(pages):
        head, after = words[at].astype(np.int64), words[at + 1].astype(np.int64)
        if big:
            kind, delta = head >> _DELTA_BITS, head & ((1 << _DELTA_BITS) - 1)
        else:
            kind, delta = head & 31, head >> 5
        is_event = kind < _PADDING
        long, padding = kind == 0, kind == _PADDING
        sized = long | padding
        taken = np.where(is_event, 1 + kind, 2)
        taken[sized] = 1 + (after[sized] + 3) // 4

        extended = delta + (after << _DELTA_BITS)
        stamped = kind == _TIME_STAMP
        high = now[stamped] & _TIME_STAMP_HIGH
        now = now + np.where(kind == _TIME_EXTEND, extended, delta)
        now[stamped] = high | extended[stamped]

        following = at + taken
        # An event of no bytes, one that leaves its page, and padding up to the page's end.
        rest = padding & (delta == 0)
        bad = ((following > end) | (long & (after <= 4))) & ~rest
        good = is_event & ~bad
        place = (at + 1 + long)[good]
        sizes[place] = np.where(long, after - 4, (taken - 1) * 4)[good]
        times[place] = now[good]
        unreadable[pages[bad]] += ((end - at) * 4)[bad]
        going = ~bad & ~rest & (following < end)
        at, end, now, pages = following[going], end[going], now[going], pages[going]

    # Events lost before each page: their number stands behind the last event, or is not known.
    lost = np.where(commit & _MISSED != 0, np.int64(-1), np.int64(0))
    behind = layout.data_at + length
    there = behind + layout.commit_bytes <= layout.page_bytes
    stored = (lost != 0) & (commit & _MISSED_STORED != 0) & there
    counts = _longs(rows[stored], behind[stored], layout)
    lost[stored] = np.where(counts > 0, counts, -1)

    found = np.flatnonzero(sizes)  # the mask keeps the order of the pages
    return PageEvents(
        found * 4,
        sizes[found].astype(np.int64),
        times[found],
        found * 4 // layout.page_bytes,
        lost,
        begin,
        int(unreadable.sum()),
    )


def _longs(rows: U8, at: I64, layout: PageLayout) -> I64:
    kind = "<" if layout.order == "little" else ">"
    columns = at[:, None] + np.arange(layout.commit_bytes)
    taken = np.take_along_axis(rows, columns, axis=1)
    longs: I64 = taken.view(f"{kind}i{layout.commit_bytes}")[:, 0].astype(np.int64)
    return longs


BLOCK_BYTES = 1 << 20
_PAGES_AT_LEAST = 64
"""Pages of a block: many are walked as fast as one."""
_CHUNK_HEAD_BYTES = 8
"""A chunk's stored size and that of its content, which precede it."""
COUNT_BYTES = 4
"""Size of the number of chunks, which the size of a CPU's compressed data leaves out."""


@dataclass
class CpuPages:
    """One CPU's pages of one buffer.

    read: bytes of the file read. missing: bytes that the file should have and has not. Left for the
    caller to set: reached, ns of the newest event that was read; events, how many; dated, which of
    the unreadable bytes are dated; damage, (offset, begin in ns) of damage whose end is not known.
    """

    fields: Fields
    recording: Recording
    buffer: Buffer
    where: CpuData
    read: int = 0
    missing: int = 0
    unreadable: int = 0
    problems: list[str] = field(default_factory=list)
    """Where these are added: the source's own list."""
    reached: int = int(np.iinfo(np.int64).min)
    events: int = 0
    dated: int = 0
    damage: tuple[int, int] | None = None

    def problem(self, text: str) -> None:
        self.problems.append(f"{self.fields.name}: {text}")

    def blocks(self) -> Iterator[U8]:
        """Yield the pages as uint8, about BLOCK_BYTES at a time; a last part is a problem."""
        page = self.buffer.page_bytes
        wanted = max(BLOCK_BYTES, _PAGES_AT_LEAST * page)
        rest = b""
        for piece in self.pieces(wanted):
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
            self.problem(
                f"{len(rest) - whole} bytes before offset {self.where.offset + self.read} "
                f"(CPU {self.where.cpu}) are no whole page; left out"
            )

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield the pages' bytes: chunks where they are compressed, else `size` at a time."""
        fields, compressed = self.fields, self.buffer.compressed
        end = self.where.offset + COUNT_BYTES * compressed + self.where.size
        if end > fields.size:
            self.missing = min(end - fields.size, self.where.size)
            self.problem(
                f"cut off: {self.missing} of {self.where.size} bytes of CPU {self.where.cpu} are "
                "missing; copy the file again, or record again"
            )
            end = fields.size
        if compressed:
            yield from self._chunks(end)
            return
        while (at := self.where.offset + self.read) < end:
            fields.seek(at)
            data = fields.take(min(size, end - at))
            self.read += len(data)
            yield data

    def _chunks(self, end: int) -> Iterator[bytes]:
        fields = self.fields
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
                yield self.recording.decompress(data, size, f"{fields.name}: chunk at offset {at}")
            except LogFormatError as error:
                self.unreadable += len(data)
                self.problems.append(f"{error}; left out")
        if found != announced and not self.missing:
            self.problem(
                f"CPU {self.where.cpu} has {announced} chunks by its count at offset "
                f"{self.where.offset}, {found} by its size: the file is damaged; these were read"
            )
