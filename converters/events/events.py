# SPDX-License-Identifier: Apache-2.0
"""A log's records as time-sorted columns.

Each event keeps its raw record (`Events.raw`, padded to eight words): columns are derived from it
when first used, and windows pass events on without decoding them again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import (
    I32,
    I64,
    NO_PATH,
    SECTOR_BYTES,
    U8,
    U16,
    U32,
    U64,
    Bool,
)
from biotrail.recorder.log import Chunk, Segment
from biotrail.recorder.schema.records import BLOCK_BYTES, BY_KIND, RECORDS, TIMESTAMP_BITS, Kind

RAW_WORDS = 8
NO_STACK = -1
_BLOCK_WORDS = BLOCK_BYTES // 8
_LOW = np.uint64(0xFFFFFFFF)
_TIME_MASK = np.uint64((1 << TIMESTAMP_BITS) - 1)
_PAD = int(Kind.PAD)
_RQ_KINDS = (
    Kind.START,
    Kind.I,
    Kind.R,
    Kind.RQ_MERGE,
    Kind.D,
    Kind.C,
    Kind.E,
    Kind.RQ_REMAP,
    Kind.CHAIN,
    Kind.DONE,
)
_BIO_KINDS = (Kind.Q, Kind.G, Kind.M, Kind.F, Kind.X, Kind.A, Kind.BIO_COMPLETE)


def _kind_table(kinds: Iterable[int]) -> Bool:
    """Return a (256,) mask, indexed by record kind, that is True for `kinds`."""
    table = np.zeros(256, dtype=np.bool_)
    table[list(kinds)] = True
    return table


_IS_RQ = _kind_table(_RQ_KINDS)
_IS_BIO = _kind_table(_BIO_KINDS)
_KNOWN = _kind_table(r.kind for r in RECORDS)
_NO_DEV = _kind_table([Kind.CHAIN, *range(Kind.STACK, Kind.PAD + 1)])
"""Kinds without a device: names, stacks, files, the path beside the block layer, CHAIN."""


def _padded(dtype: np.dtype[np.void]) -> np.dtype[np.void]:
    """Return the record's dtype with its item size extended to RAW_WORDS words."""
    names = list(dtype.names or ())
    fields: dict[str, Any] = dict(dtype.fields or {})
    return np.dtype(
        {
            "names": names,
            "formats": [fields[n][0] for n in names],
            "offsets": [fields[n][1] for n in names],
            "itemsize": RAW_WORDS * 8,
        }
    )


def _fields(kind: Kind) -> dict[str, Any]:
    return dict(BY_KIND[kind].dtype.fields or {})


_PADDED = {r.kind: _padded(r.dtype) for r in RECORDS}


@dataclass
class Events:
    """Events of all kinds as columns of one length, sorted by (ts, arrival).

    ts: int64 ns of CLOCK_MONOTONIC. cpu: uint16. number: int64, the event's index in the
    whole log. raw: uint64 of shape (rows, 8), the records, stored column by column because
    readers take one field of many rows.
    """

    ts: I64
    cpu: U16
    number: I64
    raw: U64
    doubt: U8 | None = None
    """Per row: Certainty of its bio and request; None: they are the kernel's pointers."""
    members: dict[int, list[int]] = field(default_factory=dict)
    """Bios that interval association put into an event's request, by the event's number."""
    stack: I64 | None = None
    """Per row: stack ids of a Q (kernel << 32 | user, signed), else NO_STACK; None: no stacks."""
    file: I32 | None = None
    """Per row: row in FileNames of a Q's file, else -1; None: no event has a file."""
    path: NDArray[np.void] | None = None
    """Per row: what is known of the path beside the block layer (`path.PATH`); None: nothing."""

    def __len__(self) -> int:
        return len(self.ts)

    def end(self, rows: I64) -> U64:
        """Return per given row the first sector past the event's range, uint64."""
        return self.sector[rows] + self.bytes[rows].astype(np.uint64) // np.uint64(SECTOR_BYTES)

    def lie_within(self, inner: I64, outer: I64) -> Bool:
        """Return per pair whether the range of event `inner` lies within that of event `outer`."""
        inside = self.sector[inner] >= self.sector[outer]
        return np.asarray(inside & (self.end(inner) <= self.end(outer)), dtype=np.bool_)

    @cached_property
    def kind(self) -> U8:
        """Record kind (`Kind`), uint8."""
        return (self.raw[:, 0] >> np.uint64(TIMESTAMP_BITS)).astype(np.uint8)

    @cached_property
    def _is_rq(self) -> Bool:
        return _IS_RQ[self.kind]

    def _shifted(self, word: int) -> U64:
        """Return a word of the prefix that bio records and, after `rq`, request records have."""
        return np.where(self._is_rq, self.raw[:, word + 1], self.raw[:, word])

    @cached_property
    def rq(self) -> U64:
        """Request pointer; for G, M and F the request that the bio joined. 0: not recorded."""
        joins = (self.kind == Kind.M) | (self.kind == Kind.F) | (self.kind == Kind.G)
        other = np.where(joins, self.raw[:, 5], np.uint64(0))
        return np.where(self._is_rq, self.raw[:, 1], other)

    @cached_property
    def bio(self) -> U64:
        """Bio pointer; for request records the first bio of the request (rq->bio). 0: none."""
        kind = self.kind
        known = _IS_BIO[kind] | (self._is_rq & (kind != Kind.CHAIN) & (kind != Kind.DONE))
        return np.where(known, self._shifted(1), np.uint64(0))

    @cached_property
    def sector(self) -> U64:
        """First sector (512 bytes); meaningful for bio and request records only."""
        return self._shifted(2)

    @cached_property
    def _length(self) -> U64:
        return self._shifted(3)

    @cached_property
    def bytes(self) -> I64:
        """Length in bytes, int64."""
        return (self._length & _LOW).astype(np.int64)

    @cached_property
    def opf(self) -> U32:
        """bi_opf or cmd_flags."""
        return (self._length >> np.uint64(32)).astype(np.uint32)

    @cached_property
    def dev(self) -> U32:
        """dev_t of the disk; 0 for kinds without a device (names, stacks, files, CHAIN)."""
        low = self._shifted(4)
        kind = self.kind
        early = (kind == Kind.P) | (kind == Kind.U)
        low = np.where(early, self.raw[:, 1], low)
        low = np.where(kind == Kind.DONE, self.raw[:, 2], low)
        return np.where(_NO_DEV[kind], np.uint64(0), low & _LOW).astype(np.uint32)

    @cached_property
    def status(self) -> I32:
        """blk_status_t, or negative errno, of C, E and c; meaningless for other kinds."""
        high = self._shifted(4) >> np.uint64(32)
        return high.astype(np.uint32).view(np.int32)

    def rows(self, *kinds: int) -> I64:
        """Return the indices of all events of the given kinds, ascending."""
        return np.flatnonzero(_kind_table(kinds)[self.kind])

    def fields(self, kind: Kind, rows: I64) -> NDArray[np.void]:
        """Return the records at `rows`, all of `kind`, as a structured array; a copy."""
        records: NDArray[np.void] = np.ascontiguousarray(self.raw[rows]).view(_PADDED[kind])
        return records.reshape(len(rows))

    def field(self, kind: Kind, name: str, rows: I64) -> NDArray[Any]:
        """Return one scalar field of the records at `rows`, all of `kind`, in the field's dtype."""
        dtype, offset = _fields(kind)[name][:2]
        word = self.raw[:, offset // 8][rows] >> np.uint64(offset % 8 * 8)
        width = dtype.itemsize * 8
        value = word if width == 64 else word & np.uint64((1 << width) - 1)
        return value.astype(f"u{dtype.itemsize}").view(dtype)

    def take(self, rows: I64 | Bool | slice) -> "Events":
        """Return the given rows as new Events; columns are copies, or views for a slice."""
        doubt = None if self.doubt is None else self.doubt[rows]
        return Events(
            self.ts[rows],
            self.cpu[rows],
            self.number[rows],
            self.raw.T[:, rows].T,
            doubt,
            self.members,
            None if self.stack is None else self.stack[rows],
            None if self.file is None else self.file[rows],
            None if self.path is None else self.path[rows],
        )

    def split(self, at: int) -> tuple["Events", "Events"]:
        """Return the rows before `at` and those from `at` on, as views."""
        return self.take(slice(None, at)), self.take(slice(at, None))

    @staticmethod
    def empty() -> "Events":
        """Return Events without rows."""
        return Events(
            np.zeros(0, np.int64),
            np.zeros(0, np.uint16),
            np.zeros(0, np.int64),
            np.zeros((0, RAW_WORDS), np.uint64),
        )

    @staticmethod
    def join(parts: Sequence["Events"]) -> "Events":
        """Return all rows of the parts, sorted by time; at equal times earlier parts come first.

        A single part with rows is returned itself, not copied.
        """
        parts = [p for p in parts if len(p)]
        if len(parts) <= 1:
            return parts[0] if parts else Events.empty()
        doubts = [p.doubt for p in parts if p.doubt is not None]
        joined = Events(
            np.concatenate([p.ts for p in parts]),
            np.concatenate([p.cpu for p in parts]),
            np.concatenate([p.number for p in parts]),
            np.concatenate([p.raw.T for p in parts], axis=1).T,
            np.concatenate(doubts) if len(doubts) == len(parts) else None,
            parts[-1].members,
            _joined([p.stack for p in parts], parts, np.int64(-1)),
            _joined([p.file for p in parts], parts, np.int32(-1)),
            _joined([p.path for p in parts], parts, NO_PATH),
        )
        if (joined.ts[1:] >= joined.ts[:-1]).all():
            return joined
        return joined.take(np.argsort(joined.ts, kind="stable"))


def _joined(
    columns: Sequence[NDArray[Any] | None], parts: Sequence[Events], absent: Any
) -> NDArray[Any] | None:
    """Return the concatenated column, with `absent` in rows of parts that lack it; None if all do.

    columns: one for each of `parts`. absent: a numpy scalar, which has the column's dtype.
    """
    if all(column is None for column in columns):
        return None
    return np.concatenate(
        [
            np.full(len(part), absent, absent.dtype) if column is None else column
            for column, part in zip(columns, parts, strict=True)
        ]
    )


@dataclass
class Decoded:
    """One chunk's events in time order, with `number` still 0, and counts of undecoded data."""

    events: Events
    unknown: dict[int, int]
    """Records of kinds that the log's schema has but this reader does not know, by kind."""
    unreadable_bytes: int
    """Bytes skipped up to the next block because no record of the schema begins there."""


class Decoder:
    """Decoder of chunks, by the record sizes of the log's own schema (None: this reader's)."""

    def __init__(self, schema: Sequence[dict[str, Any]] | None = None) -> None:
        """Keep sizes and absent fields. schema: per kind a dict of kind, size (bytes), fields."""
        sizes = {int(r.kind): r.size for r in RECORDS}
        sizes.update({int(str(e["kind"])): int(str(e["size"])) for e in schema or ()})
        self._words = np.zeros(256, dtype=np.int64)
        for kind, size in sizes.items():
            self._words[kind] = size // 8
        self._words[_PAD] = 0
        self._absent_fields = _absent_fields(schema or ())
        self._shorter = {
            int(r.kind): int(self._words[r.kind])
            for r in RECORDS
            if r.kind != _PAD and self._words[r.kind] * 8 < r.size
        }

    def decode(self, chunk: Chunk) -> Decoded:
        """Return all records of a chunk, sorted by (ts, arrival)."""
        # The recorder writes whole words; a partial word occurs in damaged or fuzzed logs only.
        parts = sum(len(s.data) % 8 for s in chunk.segments)
        segments = [s for s in chunk.segments if len(s.data) >= 8]
        if not segments:
            return Decoded(Events.empty(), {}, parts)
        words = np.concatenate(
            [np.frombuffer(s.data, "<u8", len(s.data) // 8) for s in segments]
            + [np.zeros(RAW_WORDS, dtype=np.uint64)]
        )
        starts, ends = _blocks(segments)
        at, unreadable = self._walk(words, starts, ends)
        kind = words.view(np.uint8)[7::8].take(at)
        unknown = ~_KNOWN[kind]
        names, counts = np.unique(kind[unknown], return_counts=True)
        at = at[~unknown] if unknown.any() else at
        events = _gather(words, at, segments, int(chunk.clock["monotonic"]))
        self._blank(events)
        kinds = dict(zip(names.tolist(), counts.tolist(), strict=True))
        return Decoded(events, kinds, unreadable + parts)

    def _blank(self, events: Events) -> None:
        """Set to zero in `events.raw` the fields that the log's older schema does not have."""
        for kind, words in self._shorter.items():
            rows = events.rows(kind)
            events.raw[rows, words:] = 0
        for kind, word, mask in self._absent_fields:
            events.raw[events.rows(kind), word] &= mask

    def _walk(self, words: U64, starts: I64, ends: I64) -> tuple[I64, int]:
        """Return (word index of every record, ascending; bytes that could not be parsed).

        starts, ends: word bounds of the blocks. All blocks advance together, one record per step.
        """
        kinds = np.ascontiguousarray(words.view(np.uint8)[7::8])
        # A boolean mask keeps the indices ordered without a sort.
        marked = np.zeros(len(words), dtype=np.bool_)
        unreadable = 0
        at = starts
        while len(at):
            kind = kinds.take(at)
            size = self._words.take(kind)
            good = (size > 0) & (at + size <= ends)
            if not good.all():
                bad = ~good & (kind != _PAD)
                unreadable += int((ends[bad] - at[bad]).sum()) * 8
                at, ends, size = at[good], ends[good], size[good]
            marked[at] = True
            at = at + size
            more = at < ends
            if not more.all():
                at, ends = at[more], ends[more]
        return np.flatnonzero(marked), unreadable


def _absent_fields(schema: Sequence[dict[str, Any]]) -> list[tuple[int, int, np.uint64]]:
    """Return (kind, word, mask of bits to keep) per field that the log's schema does not list.

    Such fields lie in bytes that were padding or part of another field when the log was written.
    """
    masks = []
    for entry in schema:
        if int(entry["kind"]) not in set(Kind):
            continue
        listed = {str(field["name"]) for field in entry.get("fields", ())}
        for name, (dtype, offset) in _fields(Kind(int(entry["kind"]))).items():
            if listed and name not in listed and dtype.itemsize < 8:
                bits = ((1 << dtype.itemsize * 8) - 1) << offset % 8 * 8
                masks.append((int(entry["kind"]), offset // 8, np.uint64(~bits & (1 << 64) - 1)))
    return masks


def _blocks(segments: Sequence[Segment]) -> tuple[I64, I64]:
    """Return the first and end word index of every ring block in the concatenated segments."""
    starts, ends, base = [], [], 0
    for segment in segments:
        length = len(segment.data) // 8
        first = (-(segment.position // 8)) % _BLOCK_WORDS
        cuts = np.arange(first or _BLOCK_WORDS, length, _BLOCK_WORDS, dtype=np.int64)
        starts.append(np.concatenate([[0], cuts]) + base)
        ends.append(np.concatenate([cuts, [length]]) + base)
        base += length
    return np.concatenate(starts), np.concatenate(ends)


def _gather(words: U64, at: I64, segments: Sequence[Segment], now: int) -> Events:
    """Return the records at word indices `at` as time-sorted Events.

    now: CLOCK_MONOTONIC (ns) of the chunk, which completes the records' 56-bit timestamps.
    """
    head = words.take(at) & _TIME_MASK
    kind = words.view(np.uint8)[7::8].take(at)
    # Signed distance from the chunk's clock, modulo 2^56 ns (834 days).
    shift = np.uint64(64 - TIMESTAMP_BITS)
    distance = ((head - np.uint64(now & int(_TIME_MASK))) << shift).view(np.int64)
    ts = now + (distance >> np.int64(int(shift)))
    order = np.argsort(ts, kind="stable")
    lengths = [len(s.data) // 8 for s in segments]
    counts = np.diff(np.searchsorted(at, np.cumsum([0, *lengths])))
    cpus = np.repeat(np.array([s.cpu for s in segments], dtype=np.uint16), counts)
    at, kind = at.take(order), kind.take(order)
    raw = np.empty((RAW_WORDS, len(at)), dtype=np.uint64)
    for word in range(RAW_WORDS):
        # All indices are valid; mode="clip" writes to `out` without a temporary buffer.
        words[word:].take(at, out=raw[word], mode="clip")
    # Events.rq and RQ_MERGE read these words, which lie past the record: what was copied there
    # belongs to the next record. Interval association fills them in.
    raw[5, kind == Kind.G] = 0
    raw[6, kind == Kind.RQ_MERGE] = 0
    return Events(ts.take(order), cpus.take(order), np.zeros(len(at), np.int64), raw.T)


def letters() -> dict[int, str]:
    """Return each kind's letter (`Q`, `G`, …) by kind number."""
    return {int(kind): record.letter for kind, record in BY_KIND.items()}
