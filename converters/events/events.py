# SPDX-License-Identifier: Apache-2.0
"""A log's records as time-sorted columns; `decoding` makes them of a chunk.

Each event keeps its raw record (`Events.raw`, padded to eight words): columns are derived from it
when first used, and windows pass events on without decoding them again.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events import decoding_loops as loops
from biotrail.converters.events.path_column import PathColumn
from biotrail.converters.events.tables import (
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    EventRows,
)
from biotrail.recorder.schema.records import BY_KIND, RECORDS, TIMESTAMP_BITS, Kind

RAW_WORDS = 8
_RAW_BYTES = 8 * RAW_WORDS
NO_STACK = -1
_NEAR = 4
"""Rows after its Q or C in which a record that says more of it mostly is."""
_LOW = np.uint64(0xFFFFFFFF)
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


def kind_table(kinds: Iterable[int]) -> Bool:
    table = np.zeros(256, dtype=np.bool_)
    table[list(kinds)] = True
    return table


_IS_RQ = kind_table(_RQ_KINDS)
_IS_BIO = kind_table(_BIO_KINDS)
_NO_DEV = kind_table({Kind.CHAIN, *range(Kind.STACK, Kind.PAD + 1)} - {Kind.LIGHT})
"""Kinds without a device: names, stacks, files, the path beside the block layer, CHAIN."""


_PADDED = {
    r.kind: np.dtype([*r.dtype.descr, ("", f"V{_RAW_BYTES - r.size}")])[[f.name for f in r.fields]]
    for r in RECORDS
}
"""A record's dtype as long as a row of `Events.raw`, which can be viewed as it."""


class Events:
    """Events of all kinds as columns of one length, sorted by (ts, arrival).

    ts: int64 ns of CLOCK_MONOTONIC. cpu: uint16. number: int64, the event's index in the
    whole log. raw: uint64 of shape (rows, 8), the records, stored column by column because
    readers take one field of many rows. stack: per row, stack ids of a Q (kernel << 32 | user,
    signed), else NO_STACK; None: no stacks. file: per row, row in FileNames of a Q's file, else -1;
    None: no event has a file. path: per row, what is known of the path beside the block layer;
    None: nothing.
    """

    def __init__(
        self,
        ts: I64,
        cpu: U16,
        number: I64,
        raw: U64 | tuple[I64, I64],
        stack: I64 | None = None,
        file: I32 | None = None,
        path: PathColumn | None = None,
    ) -> None:
        """raw: or (a chunk's words, with seven more behind the last record; each record's first).

        Most of these are copied once, into the window that they are joined to.
        """
        self.ts, self.cpu, self.number = ts, cpu, number
        self.stack, self.file, self.path = stack, file, path
        if isinstance(raw, tuple):
            self._in_chunk = raw
        else:
            self.raw = raw

    def __len__(self) -> int:
        return len(self.ts)

    @cached_property
    def raw(self) -> U64:
        words = np.empty((RAW_WORDS, len(self)), np.uint64)
        loops.gather(*self._in_chunk, words.view(np.int64), 0)
        return words.T

    @cached_property
    def kind(self) -> U8:
        return (self.raw[:, 0] >> np.uint64(TIMESTAMP_BITS)).astype(np.uint8)

    @cached_property
    def _present(self) -> frozenset[int]:
        return frozenset(np.flatnonzero(np.bincount(self.kind, minlength=1)).tolist())

    @cached_property
    def _is_rq(self) -> Bool:
        return _IS_RQ[self.kind]

    def _shifted(self, word: int) -> U64:
        return np.where(self._is_rq, self.raw[:, word + 1], self.raw[:, word])

    @cached_property
    def rq(self) -> U64:
        """Request pointer; for G, M and F the request that the bio joined. 0: not recorded."""
        joins = (self.kind == Kind.M) | (self.kind == Kind.F) | (self.kind == Kind.G)
        other = np.where(joins, self.raw[:, 5], np.uint64(0))
        return np.where(self._is_rq | (self.kind == Kind.LIGHT), self.raw[:, 1], other)

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
        return (self._length & _LOW).astype(np.int64)

    @cached_property
    def opf(self) -> U32:
        return (self._length >> np.uint64(32)).astype(np.uint32)

    @cached_property
    def dev(self) -> U32:
        """dev_t of the event's disk, uint32; 0 for kinds without a device (_NO_DEV)."""
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

    def rows(self, *kinds: int) -> EventRows:
        """Return the indices of all events of the given kinds, ascending."""
        if not self._present.issuperset(kinds):
            kinds = tuple(kind for kind in kinds if kind in self._present)
            if not kinds:
                return np.zeros(0, np.int64)
        return np.flatnonzero(kind_table(kinds)[self.kind])

    def fields(self, kind: Kind, rows: EventRows) -> NDArray[np.void]:
        records: NDArray[np.void] = np.ascontiguousarray(self.raw[rows]).view(_PADDED[kind])
        return records.reshape(len(rows))

    def field(self, kind: Kind, name: str, rows: EventRows) -> NDArray[Any]:
        """Return a field of the records at `rows`, all of `kind`, in the field's dtype; a copy.

        name: a field of one number (1 to 8 bytes; no text, no array). Raises KeyError: the kind has
        no such field.
        """
        fields: Mapping[str, Any] = BY_KIND[kind].dtype.fields or {}
        dtype, offset = fields[name][:2]
        words: U64 = self.raw.T[offset // 8]
        if words.flags.c_contiguous and offset % dtype.itemsize == 0:
            parts: NDArray[Any] = words.view(dtype)
            step = 8 // dtype.itemsize
            return np.asarray(parts[offset // dtype.itemsize % step :: step][rows])
        word = words[rows] >> np.uint64(offset % 8 * 8)
        width = dtype.itemsize * 8
        value = word if width == 64 else word & np.uint64((1 << width) - 1)
        return value.astype(f"u{dtype.itemsize}").view(dtype)

    def followed(self, kind: Kind, rows: EventRows) -> EventRows:
        """Return per record at `rows` the row of the Q or C that it follows, (n,); -1: none.

        That has the record's time (all leave the kernel together) and first field, the address of
        the bio or request. The events must hold all events of each time.
        """
        found = np.full(len(rows), -1, dtype=np.int64)
        for distance in range(1, _NEAR + 1):
            unmatched = np.flatnonzero(found < 0)
            row = rows[unmatched]
            before = np.maximum(row - distance, 0)
            near = (row >= distance) & (self.kind[before] == kind)
            near &= self.raw[before, 1] == self.raw[row, 1]
            near &= self.ts[before] == self.ts[row]
            found[unmatched[near]] = before[near]
        far = np.flatnonzero(found < 0)
        if len(far):  # other CPUs' records come between
            among = self.rows(kind)
            keys = zip(self.ts[among].tolist(), self.raw[among, 1].tolist(), strict=True)
            row_of = dict(zip(keys, among.tolist(), strict=True))
            wanted = zip(self.ts[rows[far]].tolist(), self.raw[rows[far], 1].tolist(), strict=True)
            found[far] = [row_of.get(key, -1) for key in wanted]
        return found

    def take(self, rows: EventRows | Bool | slice) -> "Events":
        """Return the given rows as new Events: a copy for indices and masks, views for a slice."""
        raw: U64 | tuple[I64, I64]
        if "raw" in vars(self):
            raw = self.raw.T[:, rows].T
        else:
            raw = self._in_chunk[0], self._in_chunk[1][rows]
        return Events(
            self.ts[rows],
            self.cpu[rows],
            self.number[rows],
            raw,
            None if self.stack is None else self.stack[rows],
            None if self.file is None else self.file[rows],
            None if self.path is None else self.path.take(rows),
        )

    def split(self, at: int) -> tuple["Events", "Events"]:
        return self.take(slice(None, at)), self.take(slice(at, None))

    @staticmethod
    def empty() -> "Events":
        return Events(
            np.zeros(0, np.int64),
            np.zeros(0, np.uint16),
            np.zeros(0, np.int64),
            np.zeros((0, RAW_WORDS), np.uint64),
        )

    @staticmethod
    def join(parts: Sequence["Events"]) -> "Events":
        """Return all rows of the parts, sorted by time; at equal times earlier parts come first."""
        parts = [p for p in parts if len(p)]
        if len(parts) <= 1:
            return parts[0] if parts else Events.empty()
        words = np.empty((RAW_WORDS, sum(map(len, parts))), np.uint64)
        at = 0
        for part in parts:
            if "raw" in vars(part):
                words[:, at : at + len(part)] = part.raw.T
            else:
                loops.gather(*part._in_chunk, words.view(np.int64), at)
            at += len(part)
        joined = Events(
            np.concatenate([p.ts for p in parts]),
            np.concatenate([p.cpu for p in parts]),
            np.concatenate([p.number for p in parts]),
            words.T,
            path=PathColumn.joined([p.path for p in parts], [len(p) for p in parts]),
        )
        if any(p.stack is not None for p in parts):
            none = [np.full(len(p), NO_STACK, np.int64) for p in parts]
            stacks = [n if p.stack is None else p.stack for p, n in zip(parts, none, strict=True)]
            joined.stack = np.concatenate(stacks)
        if any(p.file is not None for p in parts):
            absent = [np.full(len(p), -1, np.int32) for p in parts]
            files = [n if p.file is None else p.file for p, n in zip(parts, absent, strict=True)]
            joined.file = np.concatenate(files)
        for first, last in _disordered([p.ts for p in parts]):
            rows = slice(first, last)
            order = np.argsort(joined.ts[rows], kind="stable")
            words[:, rows] = words[:, rows][:, order]
            at_path = None if joined.path is None else joined.path.at
            for column in (
                joined.ts,
                joined.cpu,
                joined.number,
                joined.stack,
                joined.file,
                at_path,
            ):
                if column is not None:
                    column[rows] = column[rows][order]
        return joined


def _disordered(times: Sequence[I64]) -> list[tuple[int, int]]:
    """Return the stretches [first, last) of joined rows that have to be sorted, ascending.

    times: ns, of each part, none empty, each sorted. All rows outside of a stretch are in order
    with each other and with it: parts overlap at their borders only, as the chunks of a log do.
    """
    lasts = np.maximum.accumulate([t[-1] for t in times])
    firsts = np.minimum.accumulate([t[0] for t in reversed(times)])[::-1]
    stretches: list[tuple[int, int]] = []
    base = 0
    for number, time in enumerate(times):
        early = int(np.searchsorted(time, lasts[number - 1])) if number else 0
        late = len(time)
        if number + 1 < len(times):
            late = int(np.searchsorted(time, firsts[number + 1], side="right"))
        dirty = [(0, early), (late, len(time))] if early < late else [(0, len(time))]
        for first, last in dirty:
            if first == last:
                continue
            if stretches and stretches[-1][1] == base + first:
                stretches[-1] = (stretches[-1][0], base + last)
            else:
                stretches.append((base + first, base + last))
        base += len(time)
    return stretches
