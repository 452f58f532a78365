# SPDX-License-Identifier: Apache-2.0
"""Records of perf.data that do not add up, and those that are there twice.

A record's type and size are held against what perf and the kernel write, and records of other types
against the samples: one that is a sample in every field, but for its type, is damaged.
"""

from collections.abc import Sequence

import numpy as np

from biotrail.converters.events.tables import I64, Bool
from biotrail.converters.inputs.perf.layout import (
    FIRST_OF_PERF,
    HEADER_BYTES,
    LAST_OF_KERNEL,
    LAST_OF_PERF,
    RecordType,
)
from biotrail.converters.inputs.perf.records import PACKED, Block
from biotrail.converters.inputs.perf.samples import EventReader
from biotrail.converters.inputs.translate import TracepointRows

# Records that a recording has twice.
#
# `perf record` (seen with 6.1, mostly with -z) now and then writes the last records of a ring again
# at the beginning of the next round, byte for byte, so that `perf script` shows them twice as well.
# Two records of one CPU, time (ns), thread and event with the same fields are one: the kernel does
# not get through two of them in a nanosecond.

_KEPT = 256


class Repeats:
    """Finds repeated records, block after block. count: how many were left out."""

    def __init__(self) -> None:
        self.count = 0
        self._newest: dict[tuple[str, int], TracepointRows] = {}
        """The last _KEPT records of an event and CPU in the blocks before."""

    def without(self, rows: TracepointRows) -> TracepointRows:
        repeated = np.zeros(len(rows), np.bool_)
        times = np.sort(rows.time)
        twice = times[1:][times[1:] == times[:-1]]
        if len(twice):
            among = np.flatnonzero(np.isin(rows.time, twice))
            keys = [column[among] for column in (rows.arrival, rows.pid, rows.cpu, rows.time)]
            order = among[np.lexsort(keys)]
            one, other = order[:-1], order[1:]
            alike = (rows.time[one] == rows.time[other]) & (rows.cpu[one] == rows.cpu[other])
            pairs = np.flatnonzero(alike & (rows.pid[one] == rows.pid[other]))
            for column in rows.columns.values():
                pairs = pairs[column[one[pairs]] == column[other[pairs]]]
            repeated[other[pairs]] = True
        for (event, cpu), newest in self._newest.items():
            if event == rows.event:
                late = (rows.cpu == cpu) & (rows.time <= newest.time.max())
                at = np.flatnonzero(late & np.isin(rows.time, newest.time))
                if len(at):
                    known = set(_records(newest, np.arange(len(newest))))
                    repeated[at] |= [record in known for record in _records(rows, at)]
        found = int(np.count_nonzero(repeated))
        self.count += found
        kept = rows.without(repeated) if found else rows
        for cpu in np.unique(kept.cpu).tolist():
            older = np.ones(len(kept), np.bool_)
            older[np.flatnonzero(kept.cpu == cpu)[-_KEPT:]] = False
            self._newest[rows.event, cpu] = kept.without(older)
        return kept


def _records(rows: TracepointRows, at: I64) -> list[tuple[object, ...]]:
    columns = (rows.time, rows.cpu, rows.pid, *rows.columns.values())
    return list(zip(*(column[at].tolist() for column in columns), strict=True))


# Types that do not exist, and samples under another type.

_SIZES: dict[int, tuple[int, int]] = {
    RecordType.FINISHED_ROUND: (8, 8),
    RecordType.FINISHED_INIT: (8, 8),
    RecordType.TRACING_DATA: (12, 16),
    RecordType.STAT_ROUND: (24, 24),
    RecordType.STAT: (40, 40),
    RecordType.TIME_CONV: (32, 56),
    RecordType.AUXTRACE: (48, 48),
}
_FIRST_WORD: dict[int, int] = {
    RecordType.FEATURE: 255,
    RecordType.EVENT_UPDATE: 4,
    RecordType.AUXTRACE_INFO: 255,
    RecordType.AUXTRACE_ERROR: 255,
    RecordType.CPU_MAP: 0xFFFF,
}
_EACH: dict[int, int] = {
    RecordType.ID_INDEX: 32,
    RecordType.THREAD_MAP: 24,
    RecordType.STAT_CONFIG: 16,
}
"""Bytes of each entry, of which the first 8 bytes of a record's body say the number."""
_UNALIGNED = (RecordType.TRACING_DATA, RecordType.FEATURE)
"""Records whose sizes need not be multiples of 8, but for packed ones."""
_ANY_END = (RecordType.SAMPLE, 17, 18)
"""A sample, and KSYMBOL and BPF_EVENT: where several events get one of these, the kernel adds the
trailer's size anew for each (perf_event_ksymbol_output), so bytes follow the trailer."""
Window = tuple[int, int]


class Strays:
    """Finds such records, block after block. count, bytes: of all so far; types: of those, some."""

    def __init__(self, events: EventReader) -> None:
        self._events = events
        self._newest = 0
        self.count = self.bytes = 0
        self.first = -1
        """Bytes of the recording that were read when the first was met; -1: there is none."""
        self.types: dict[int, None] = {}

    def find(self, block: Block, types: I64, rows: Sequence[TracepointRows]) -> list[Window]:
        """Return when what such records held was recorded, a window for each run of them.

        It reaches from the sample before to the one behind, and takes in the times of those that
        are samples by all but their types. Rings of several CPUs follow each other, so either may
        be the older.
        """
        # A type that is none, or a size or number that none has. Packed records stand in blocks
        # only if they cannot be unpacked.
        kernel = (types > 0) & (types <= LAST_OF_KERNEL)
        odd: Bool = ~(kernel | ((types >= FIRST_OF_PERF) & (types <= LAST_OF_PERF)))
        size = block.size(block.at)
        for kind in np.flatnonzero(np.bincount(types[~odd], minlength=1)).tolist():
            if kind == RecordType.SAMPLE:
                continue
            of = np.flatnonzero(types == kind)
            least, most = _SIZES.get(kind, (2 * HEADER_BYTES, 1 << 16))
            odd[of] = (size[of] < least) | (size[of] > most)
            odd[of] |= (size[of] & 7 != 0) & (kind not in _UNALIGNED)
            of = of[~odd[of]]
            if kind in _FIRST_WORD:
                odd[of] = block.half(block.at[of] + HEADER_BYTES) > _FIRST_WORD[kind]
            if kind in _EACH:
                count = block.wide(block.at[of] + HEADER_BYTES)
                odd[of] = (count < 0) | (count > size[of] // _EACH[kind])
        odd |= np.isin(types, PACKED)
        hidden, time = np.zeros(len(types), np.bool_), np.zeros(len(types), np.int64)
        others = np.flatnonzero(types != RecordType.SAMPLE)
        hidden[others], time[others] = self._events.hidden(block, block.at[others])
        odd |= hidden
        others = np.flatnonzero((types < FIRST_OF_PERF) & ~np.isin(types, _ANY_END) & ~odd)
        odd[others] = ~self._events.has_trailer(block, block.at[others])
        found: list[Window] = []
        if odd.any():
            self.first = block.offset if self.first < 0 else self.first
            self.count += int(np.count_nonzero(odd))
            self.bytes += int(block.size(block.at[odd]).sum())
            self.types |= dict.fromkeys(types[odd][:64].tolist())
            none = np.zeros(0, np.int64)
            arrival = np.concatenate([none, *(part.arrival for part in rows)])
            times = np.concatenate([none, *(part.time for part in rows)])
            order = np.argsort(arrival)
            arrival, times = arrival[order], times[order]
            edges = np.flatnonzero(np.diff(odd.astype(np.int8), prepend=0, append=0)).tolist()
            for begin, end in zip(edges[::2], edges[1::2], strict=True):
                at = int(np.searchsorted(arrival, block.start + int(block.at[begin])))
                near = times[max(at - 1, 0) : at + 1].tolist() + ([] if at else [self._newest])
                near += time[begin:end][hidden[begin:end]].tolist()
                near = [one for one in near if one > 0] or [0]
                found.append((min(near), max(near)))
        newest = [int(part.time.max()) for part in rows if len(part)]
        self._newest = max([self._newest, *newest])
        return found
