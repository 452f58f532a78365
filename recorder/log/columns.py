# SPDX-License-Identifier: Apache-2.0
"""The column layout of a segment's records, which compresses to about half the size of rows.

In rows, zstd needs a match for every field that repeats an earlier one, and finds none for a time
stamp. In columns, repeated values (a bio's address and sector, when it is queued, started, issued
and completed) are one long match, and times are small differences. numpy handles all records at
once: no record crosses a multiple of 4096 bytes, so all blocks of a segment are parsed in parallel.
"""

import struct
from collections.abc import Collection, Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.log.frames import DamagedError
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import BLOCK_BYTES, TIMESTAMP_BITS, Kind, sizes

try:
    from biotrail.recorder.log import column_loops as _column_loops
except ImportError:  # not compiled, and no Cython to run it uncompiled
    loops: ModuleType | None = None
else:
    loops = _column_loops if _column_loops.COMPILED else None

# A segment as columns:
#
#   0            4           8
#   | records n  | kinds m   |
#   8, m times 8 bytes, ascending by kind:
#   | kind (1) | words w (1) | zero (2) | records of the kind c (4) |
#   then for each kind, in this order: w - 1 columns of c times 8 bytes: the second word of all
#       its records, then the third, ...; for PAD: the low 56 bits of its head, then the words
#       from it to the next record
#   then n bytes: the kind of every record
#   then 7 planes of n' bytes, n' = n without PADs: byte 0 (lowest), 1, .. 6 of every time
#       difference: low 56 bits of a head less those of the one before, modulo 2^56 (first: less 0)
_HEAD = struct.Struct("<II")
_KIND = struct.Struct("<BBHI")
_PAD_WORDS = 3
_BLOCK_WORDS = BLOCK_BYTES // 8
_WORDS = (sizes() // 8).astype(np.int64)
_STEPS = np.where((_WORDS == 0) | (np.arange(256) == Kind.PAD), _BLOCK_WORDS, _WORDS)
"""By kind number (256,) int64: 8-byte words from a record to the next one. A whole block for PAD
and unknown kinds, which ends the walk of their block."""
_TIME_MASK = np.uint64((1 << TIMESTAMP_BITS) - 1)
_TIME_BYTES = TIMESTAMP_BITS // 8

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Index = NDArray[np.int64]


class Found(NamedTuple):
    """Where records of some kinds are: indices of their first words, ascending, in `words`."""

    words: Words
    starts: Index


def pack(data: bytes | memoryview, position: int) -> list[bytes | memoryview] | None:
    """Return the records of one ring as columns, in byte strings to be written one after the other.

    By numpy, as `Plan` does by the compiled loops. `position`: running byte position of `data[0]`
    in its ring. None: no bytes, a length or position that is no multiple of 8, an unknown kind, or
    records that do not fill `data` exactly. The bytes between a PAD's head and the end of its block
    are not stored.
    """
    if len(data) % 8 or position % 8 or not len(data):
        return None
    words: Words = np.frombuffer(data, dtype="<u8")
    tops = np.ascontiguousarray(words.view(np.uint8)[7::8])
    starts = record_starts(tops, position // 8)
    kinds = tops.take(starts)
    # Records have to fill the segment; a PAD ends with its block, or with the segment.
    ends = starts + _WORDS.take(kinds)
    pads = kinds == Kind.PAD
    rest = _BLOCK_WORDS - (starts + position // 8) % _BLOCK_WORDS
    ends[pads] = np.minimum(starts + rest, len(words))[pads]
    if ends[-1] != len(words) or not np.array_equal(ends[:-1], starts[1:]):
        return None
    table: list[bytes] = []
    columns: list[bytes | memoryview] = []
    # numpy sorts single bytes by counting, which is cheaper than a mask for every kind.
    by_kind = starts.take(np.argsort(kinds, kind="stable"))
    counts = np.bincount(kinds, minlength=256)
    last = np.cumsum(counts)
    for kind in np.flatnonzero(counts):
        of_kind = by_kind[last[kind] - counts[kind] : last[kind]]
        if kind == Kind.PAD:
            gaps = (ends - starts)[pads].astype("<u8")
            columns += [(words[of_kind] & _TIME_MASK).tobytes(), gaps.tobytes()]
            table.append(_KIND.pack(kind, _PAD_WORDS, 0, len(of_kind)))
        else:
            behind = [words[i:].take(of_kind) for i in range(1, int(_WORDS[kind]))]
            columns += [column.view(np.uint8).data for column in behind]
            table.append(_KIND.pack(kind, _WORDS[kind], 0, len(of_kind)))
    times = words.take(starts[~pads]) & _TIME_MASK
    deltas = np.diff(times, prepend=np.uint64(0)).astype("<u8", copy=False)
    planes = deltas.view(np.uint8).reshape(-1, 8)[:, :_TIME_BYTES].T.tobytes()
    return [_HEAD.pack(len(kinds), len(table)), *table, *columns, kinds.data, planes]


class Plan:
    """A run of records, counted and about to be written as columns, in `size` bytes."""

    def __init__(
        self, loops: ModuleType, pieces: Sequence[bytes | memoryview], position: int
    ) -> None:
        """Count the records of `pieces`, from `position` on. Raises ValueError: these are none."""
        self._loops = loops
        self._pieces: list[tuple[Index, int]] = []
        self._counts = counts = np.zeros(256, dtype=np.int64)
        self._records = 0
        for piece in pieces:
            words: Index = np.frombuffer(piece, dtype="<i8")
            found = loops.count_records(words, position // 8, _WORDS, counts)
            if found < 0 or position % 8:
                raise ValueError("no whole records")
            self._records += found
            self._pieces.append((words, position // 8))
            position += len(piece)
        self._kinds = kinds = np.flatnonzero(counts)
        self._widths = _WORDS[kinds]
        self._widths[kinds == Kind.PAD] = _PAD_WORDS
        self._lengths = (self._widths - 1) * counts[kinds]
        self._columns_at = _HEAD.size + len(kinds) * _KIND.size
        self._kinds_at = self._columns_at + 8 * int(self._lengths.sum())
        self._timed = self._records - int(counts[Kind.PAD])
        self.size = self._kinds_at + self._records + _TIME_BYTES * self._timed

    def write(self, out: Bytes, sought: Collection[int]) -> list[Found]:
        """Write the segment into `out`, (size,) uint8; return where `sought` kinds are."""
        _HEAD.pack_into(out.data, 0, self._records, len(self._kinds))
        counts = self._counts[self._kinds].tolist()
        table = zip(self._kinds.tolist(), self._widths.tolist(), counts, strict=True)
        for row, (kind, width, count) in enumerate(table):
            _KIND.pack_into(out.data, _HEAD.size + row * _KIND.size, kind, width, 0, count)
        columns: Index = out[self._columns_at : self._kinds_at].view(np.int64)
        # Behind other segments the columns need not begin at a multiple of 8 bytes.
        cells = columns if columns.flags.aligned else np.empty(len(columns), dtype=np.int64)
        planes_at = self._kinds_at + self._records
        planes = out[planes_at:].reshape(_TIME_BYTES, self._timed)
        planes[3:] = 0  # all but a few differences are less than 2^24 ns
        places, state = np.zeros(256, dtype=np.int64), np.zeros(3, dtype=np.int64)
        places[self._kinds] = np.cumsum(self._lengths) - self._lengths
        sizes = (_WORDS, self._counts)
        kinds = out[self._kinds_at : planes_at]
        wanted = _mask(sought)
        rest = np.empty(int(self._counts[list(sought)].sum()), dtype=np.int64)
        found = []
        for words, position in self._pieces:
            number = self._loops.fill_columns(
                words, position, *sizes, places, state, cells, kinds, planes, wanted, rest
            )
            if number:
                found.append(Found(words.view("<u8"), rest[:number]))
                rest = rest[number:]
        if cells is not columns:
            columns[:] = cells
        return found


def plan(
    pieces: Sequence[bytes | memoryview], position: int
) -> Plan | list[bytes | memoryview] | None:
    """Return a ring's pieces, each of whole records, as one segment of columns.

    As `pack` where the loops are not compiled. None: as of `pack`.
    """
    if loops is None:
        return pack(b"".join(pieces), position)
    try:
        return Plan(loops, pieces, position) if any(map(len, pieces)) else None
    except ValueError:
        return None


def counts_of(data: bytes | memoryview, position: int) -> Index | None:
    """Return the number of records in `data` by kind, (256,); None: that is not known."""
    if loops is None or len(data) % 8 or position % 8:
        return None
    counts = np.zeros(256, dtype=np.int64)
    if loops.count_records(np.frombuffer(data, dtype="<i8"), position // 8, _WORDS, counts) < 0:
        return None
    return counts


def _mask(kinds: Collection[int]) -> Bytes:
    wanted = np.zeros(256, dtype=np.uint8)
    wanted[list(kinds)] = 1
    return wanted


def starts_of(words: Words, position: int, kinds: Collection[int]) -> Index:
    """Return the indices of words at which records of some kinds start, ascending, int64.

    `position`: of the words in their ring, in words. Of words that are no whole records as
    `record_starts` has it.
    """
    wanted = _mask(kinds)
    if loops is not None:
        starts = np.empty(len(words) // int(_WORDS[list(kinds)].min()), dtype=np.int64)
        found = loops.find_records(words.view(np.int64), position, _WORDS, wanted, starts)
        if found >= 0:
            return starts[:found].copy()
    tops = np.ascontiguousarray(words.view(np.uint8)[7::8])
    if not wanted.take(tops).any():  # no need to walk over all records
        return np.empty(0, dtype=np.int64)
    all_starts = record_starts(tops, position)
    return all_starts[wanted.take(tops.take(all_starts)) > 0]


def kinds_of(body: memoryview) -> set[int]:
    """Return the kinds in a segment of columns, as far as its table of kinds is there."""
    if len(body) < _HEAD.size:
        return set()
    kinds = int(_HEAD.unpack_from(body)[1])
    return set(body[_HEAD.size : _HEAD.size + kinds * _KIND.size : _KIND.size].tolist())


def record_starts(tops: Bytes, position: int) -> Index:
    """Return the indices of the words at which a record starts, ascending, int64.

    `tops`: the top byte of every word (n,), n > 0, uint8: the kind where the word is a record's
    head. `position`: of word 0 in its ring, in words. All blocks of 4096 bytes are walked in
    parallel: the first word of each (in a partial first block, word 0) is taken for a head, and
    each kind's size leads to the next; a PAD or an unknown kind is the block's last. Whether they
    are whole records is for the caller to check.
    """
    count = len(tops)
    ends = np.arange(_BLOCK_WORDS - position % _BLOCK_WORDS, count + _BLOCK_WORDS, _BLOCK_WORDS)
    word = np.concatenate(([0], ends[:-1]))
    ends[-1] = count
    parts = []
    while len(word):
        parts.append(word)
        word = word + _STEPS.take(tops.take(word))
        inside = word < ends
        if not inside.all():
            word, ends = word[inside], ends[inside]
    # A boolean mask yields the indices in order without a sort.
    marked = np.zeros(count, dtype=bool)
    marked[np.concatenate(parts)] = True
    starts: Index = np.flatnonzero(marked)
    return starts


def unpack(packed: memoryview, length: int) -> memoryview:
    """Return the `length` bytes of records that `pack` encoded, zeros behind PADs.

    Raises DamagedError; LogFormatError: the loops are not compiled, and only recording can do
    without them.
    """
    if loops is None:
        raise LogFormatError(
            "this installation has no compiled modules: it records, reads no log; install biotrail "
            "again where a C compiler and Python's headers are"
        )
    try:
        count, kind_count = _HEAD.unpack_from(packed)
        table = [_KIND.unpack_from(packed, _HEAD.size + i * _KIND.size) for i in range(kind_count)]
        begin = _HEAD.size + kind_count * _KIND.size
        behind = begin + 8 * sum((width - 1) * number for _, width, _, number in table)
        kinds = np.frombuffer(packed, np.uint8, count, behind)
        pads = sum(number for kind, _, _, number in table if kind == Kind.PAD)
        least: dict[int, int] = {Kind.PAD: _PAD_WORDS}
        if pads > count or any(width < least.get(kind, 1) for kind, width, _, _ in table):
            raise ValueError("the table of kinds makes no sense")
        planes = np.frombuffer(packed, np.uint8, _TIME_BYTES * (count - pads), behind + count)
        if behind + count + planes.size != len(packed):
            raise ValueError("they end too soon")
        widths, counts, places = np.zeros((3, 256), dtype=np.int64)
        at = 0
        for kind, width, _, number in table:
            widths[kind], counts[kind], places[kind] = width, number, at
            at += (width - 1) * number
        # Behind other segments the columns need not begin at a multiple of 8 bytes.
        cells = np.require(np.frombuffer(packed[begin:behind], "<i8"), requirements="A")
        words = np.zeros(length // 8, dtype=np.int64)
        timed = planes.reshape(_TIME_BYTES, -1)
        left = counts.copy()
        used = loops.fill_records(kinds, widths, counts, places, cells, timed, words, left)
        if used != len(words) or not len(kinds):
            raise ValueError("the counts of kinds or the lengths of records differ")
    except (ValueError, struct.error) as error:
        raise DamagedError(f"has columns that do not fit together ({error})") from None
    if words.nbytes != length:
        raise DamagedError("has a segment that is no whole number of words")
    return words.view(np.uint8).data
