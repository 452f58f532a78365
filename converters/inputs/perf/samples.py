# SPDX-License-Identifier: Apache-2.0
"""Samples of a block of records as columns, and the records of each tracepoint in them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U8, Bool
from biotrail.converters.inputs.perf.layout import ByteOrder, ReadFormat, SampleLayout, SampleType

_NONE = 0xFFFFFFFF
"""The kernel's -1, the thread of a sample in a process that has ended."""


@dataclass
class Samples:
    """Samples of one layout, in their order.

    at: offset of the record in the block. time: ns, int64. pid, tid: the process and thread. raw:
    offset of the tracepoint's record; raw_bytes: its size, 0 where the sample's fields go past its
    end. All int64, (n,); -1: a thread, process or CPU that the sample
    does not have.
    """

    at: I64
    time: I64
    cpu: I64
    pid: I64
    tid: I64
    raw: I64
    raw_bytes: I64

    def take(self, rows: Bool) -> "Samples":
        """Return the samples of the mask `rows`, (n,); these themselves if it is all of them."""
        if rows.all():
            return self
        return Samples(*(column[rows] for column in vars(self).values()))


class Words:
    """A block's bytes, read as numbers at many offsets at once."""

    def __init__(self, data: U8, order: ByteOrder) -> None:
        """data: of a multiple of 8 bytes."""
        self._wide = data.view(f"{order}u8")
        self._halves = data.view(f"{order}u4")
        self._quarters = data.view(f"{order}u2")

    def wide(self, at: I64) -> I64:
        """Return the 8 bytes at each offset, a multiple of 8, as int64."""
        found: I64 = self._wide[at >> 3].astype(np.int64)
        return found

    def half(self, at: I64) -> I64:
        """Return the 4 bytes at each offset, a multiple of 4."""
        found: I64 = self._halves[at >> 2].astype(np.int64)
        return found

    def size(self, at: I64) -> I64:
        """Return the size (bytes) of the record at each offset."""
        found: I64 = self._quarters[(at >> 1) + 3].astype(np.int64)
        return found

    def misc(self, at: I64) -> I64:
        """Return the field misc of the record at each offset."""
        found: I64 = self._quarters[(at >> 1) + 2].astype(np.int64)
        return found

    def type(self, at: I64) -> I64:
        """Return the type (RecordType) of the record at each offset."""
        return self.half(at)


def read_samples(words: Words, at: I64, layout: SampleLayout) -> Samples:
    """Return the samples at the offsets `at`, all of `layout`, which has TIME.

    Without those that are too short for the layout's fields of 8 bytes.
    """
    size = words.size(at)
    whole = size >= layout.fixed
    at, size = at[whole], size[whole]
    time = words.wide(at + layout.at[SampleType.TIME])
    cpu = _field(words, at, layout.at.get(SampleType.CPU))
    place = layout.at.get(SampleType.TID)
    pid = _field(words, at, place)
    tid = _field(words, at, None if place is None else place + 4)
    return Samples(at, time, cpu, pid, tid, *_raw(words, at, size, layout))


def _field(words: Words, at: I64, place: int | None) -> I64:
    """Return the 4 bytes at `place` of each sample; -1 where the samples do not have them."""
    if place is None:
        return np.full(len(at), -1)
    found = words.half(at + place)
    return np.where(found == _NONE, -1, found)


def _raw(words: Words, at: I64, size: I64, layout: SampleLayout) -> tuple[I64, I64]:
    """Return (offset, bytes) of each sample's RAW; 0 bytes where it has none within its size.

    Before it lie READ and CALLCHAIN, whose lengths vary.
    """
    if SampleType.RAW not in layout.has:
        return at, np.zeros(len(at), np.int64)
    place = np.full(len(at), layout.fixed, np.int64)
    good = np.ones(len(at), np.bool_)
    if SampleType.READ in layout.has:
        place, good = _behind_read(words, at, size, place, layout.read_format)
    if SampleType.CALLCHAIN in layout.has:
        count, good = _count(words, at, place, size, good)
        place = place + 8 + 8 * count
    good = good & (place + 4 <= size)
    length = words.half(np.where(good, at + place, at))
    good = good & (place + 4 + length <= size)
    return np.where(good, at + place + 4, 0), np.where(good, length, 0)


def _behind_read(words: Words, at: I64, size: I64, place: I64, has: ReadFormat) -> tuple[I64, Bool]:
    """Return (place behind READ, whether it ends within the sample) of each sample.

    place: of READ. It holds a value, or one for each event of a group, with its id and its losses,
    and times.
    """
    each = 1 + (ReadFormat.ID in has) + (ReadFormat.LOST in has)
    times = (ReadFormat.TIME_ENABLED in has) + (ReadFormat.TIME_RUNNING in has)
    if ReadFormat.GROUP not in has:
        place = place + 8 * (each + times)
        return place, place <= size
    count, good = _count(words, at, place, size, np.ones(len(at), np.bool_))
    place = place + 8 * (1 + times + each * count)
    return place, good & (place <= size)


def _count(words: Words, at: I64, place: I64, size: I64, good: Bool) -> tuple[I64, Bool]:
    """Return (number of 8-byte words announced at `place`, whether so many are in the sample).

    The number is 0 where they are not. good: samples that reach to `place`.
    """
    good = good & (place + 8 <= size)
    count = words.wide(np.where(good, at + place, at))
    good = good & (count >= 0) & (count <= (size - place - 8) >> 3)
    return np.where(good, count, 0), good


def records_at(data: U8, at: I64, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """Return the records of `dtype` at the offsets `at`, all within `data`: (n,), a copy."""
    places = len(data) - dtype.itemsize + 1
    if places <= 0:
        return np.zeros(0, dtype)
    # Every offset's record, without a copy: records overlap by all but a byte.
    every: NDArray[Any] = np.ndarray((places,), f"V{dtype.itemsize}", data, strides=(1,))
    return every[at].view(dtype)
