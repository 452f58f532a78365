# SPDX-License-Identifier: Apache-2.0
"""perf's records beside samples: names of threads, and what was lost."""

import numpy as np

from biotrail.converters.events.tables import I64
from biotrail.converters.inputs.perf.layout import (
    HEADER_BYTES,
    RecordType,
    SampleLayout,
    SampleType,
)
from biotrail.converters.inputs.perf.records import Block
from biotrail.converters.inputs.perf.samples import Words
from biotrail.converters.inputs.tracepoints.rows import THREAD_NAMES, Loss, TracepointRows

_COMM_AT = HEADER_BYTES + 8
_MOST_COUNT = 1 << 62
_MISC_BPF_FILTER = 1 << 15
"""misc of LOST_SAMPLES: a filter left the samples out (PERF_RECORD_MISC_LOST_SAMPLES_BPF)."""
READ = (
    RecordType.LOST,
    RecordType.COMM,
    RecordType.THROTTLE,
    RecordType.UNTHROTTLE,
    RecordType.LOST_SAMPLES,
)
"""Types of the records that `OtherRecords` reads."""


class OtherRecords:
    """What records beside samples say, from block to block.

    lost: number of records that LOST records reported. lost_samples: of samples that LOST_SAMPLES
    records reported, which perf writes at the end, for the same losses and those after the last
    LOST record.
    """

    def __init__(self) -> None:
        self.lost = self.lost_samples = 0
        self._newest: dict[int, int] = {}
        """Time (ns) of the newest sample so far, by CPU."""
        self._throttled: dict[int, int] = {}
        """Time (ns) since when a CPU's events are throttled."""
        self._early: list[tuple[int, int, bytes]] = []
        """Names without a time, of threads that there were before: (process, thread, name)."""

    def read(
        self, block: Block, words: Words, at: I64, layout: SampleLayout, rows: list[TracepointRows]
    ) -> tuple[list[TracepointRows], list[Loss]]:
        """Return (names of threads, losses) by the records at `at`, of the types READ.

        rows: the block's samples; names without a time are given the time of the first. layout: by
        which the records' last fields are laid out.
        """
        names: list[tuple[int, int, int, int, bytes]] = []
        losses: list[Loss] = []
        for start in at.tolist():
            record = _Record(block, words, start, layout)
            if record.type == RecordType.COMM:
                self._add_name(record, block.start + start, names)
            else:
                losses += self._losses(record, block.start + start, rows)
        for part in rows:
            for cpu in np.unique(part.cpu).tolist():
                newest = int(part.time[part.cpu == cpu].max())
                self._newest[cpu] = max(self._newest.get(cpu, newest), newest)
        return self._names(names, rows), losses

    def _add_name(
        self, record: "_Record", arrival: int, names: list[tuple[int, int, int, int, bytes]]
    ) -> None:
        """Add a COMM's (arrival, time, process, thread, name) to `names`, or keep it for later."""
        if record.size < _COMM_AT:
            return
        pid, tid = record.half(HEADER_BYTES), record.half(HEADER_BYTES + 4)
        name = record.text(_COMM_AT)
        if record.time:
            names.append((arrival, record.time, pid, tid, name))
        else:
            self._early.append((pid, tid, name))

    def _names(
        self, names: list[tuple[int, int, int, int, bytes]], rows: list[TracepointRows]
    ) -> list[TracepointRows]:
        """Return the names as rows; those without a time as soon as there are samples."""
        first = min((int(part.time.min()) for part in rows if len(part)), default=None)
        if first is not None:
            names = [(-1, first, *early) for early in self._early] + names
            self._early = []
        if not names:
            return []
        arrival, time, pid, tid, comm = zip(*names, strict=True)
        return [
            TracepointRows(
                THREAD_NAMES,
                np.array(time, np.int64),
                np.zeros(len(names), np.int64),
                np.array(tid, np.int64),
                np.array(arrival, np.int64),
                {"comm": np.array(comm, "S16")},
                tgid=np.array(pid, np.int64),
            )
        ]

    def _losses(self, record: "_Record", arrival: int, rows: list[TracepointRows]) -> list[Loss]:
        """Return the loss that a record reports, if it does; counts what it says.

        LOST comes with the first record that had room again: the loss was between that and the
        CPU's record before.
        """
        cpu, time = record.cpu, record.time
        if record.type == RecordType.LOST_SAMPLES:
            if not record.misc & _MISC_BPF_FILTER:
                self.lost_samples += min(record.wide(HEADER_BYTES), _MOST_COUNT)
            return []
        if record.type == RecordType.THROTTLE:
            self._throttled.setdefault(cpu, record.wide(HEADER_BYTES))
            return []
        if record.type == RecordType.UNTHROTTLE:
            end = record.wide(HEADER_BYTES)
            start = self._throttled.pop(cpu, end)
            return [Loss(min(start, end), end, cpu, -1)]
        count = min(record.wide(HEADER_BYTES + 8), _MOST_COUNT)
        self.lost += count
        before = self._before(cpu, arrival, rows)
        time = time or before
        return [Loss(min(before, time) or time, time, cpu, count)]

    def _before(self, cpu: int, arrival: int, rows: list[TracepointRows]) -> int:
        """Return the time (ns) of the newest sample of a CPU before a record; 0: there is none."""
        times = [
            int(part.time[mask].max())
            for part in rows
            if (mask := (part.cpu == cpu) & (part.arrival < arrival)).any()
        ]
        return max([self._newest.get(cpu, 0), *times])

    def rest(self, first: int, last: int) -> list[Loss]:
        """Return the losses of which no record says when: samples that LOST records do not cover.

        first, last: of the recording (ns). Throttled events that were not resumed are lost to its
        end.
        """
        found = [Loss(min(since, last), last, cpu, -1) for cpu, since in self._throttled.items()]
        if self.lost_samples > self.lost:
            found.append(Loss(first, last, -1, self.lost_samples - self.lost))
        return found


class _Record:
    """One record of the kernel, with what its last fields say: time (ns) and CPU, 0 if unknown."""

    def __init__(self, block: Block, words: Words, at: int, layout: SampleLayout) -> None:
        self._data, self._words, self._at = block.data, words, at
        one = np.array([at])
        self.type, self.size = int(words.type(one)[0]), int(words.size(one)[0])
        self.misc = int(words.misc(one)[0])
        time, cpu = layout.trailer_at.get(SampleType.TIME), layout.trailer_at.get(SampleType.CPU)
        self.time = 0 if time is None else self.wide(self.size + time)
        self.cpu = 0 if cpu is None else self.half(self.size + cpu)

    def wide(self, place: int) -> int:
        """Return the 8 bytes at a place in the record; 0 behind its end."""
        if not HEADER_BYTES <= place <= self.size - 8:
            return 0
        return max(int(self._words.wide(np.array([self._at + place]))[0]), 0)

    def half(self, place: int) -> int:
        """Return the 4 bytes at a place in the record; 0 behind its end."""
        if not HEADER_BYTES <= place <= self.size - 4:
            return 0
        return int(self._words.half(np.array([self._at + place]))[0])

    def text(self, place: int) -> bytes:
        """Return the bytes from a place in the record up to the first NUL."""
        data = self._data[self._at + place : self._at + self.size].tobytes()
        return data.split(b"\0")[0]
