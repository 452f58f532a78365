# SPDX-License-Identifier: Apache-2.0
"""blktrace's records as a source of events: sets `DEV.blktrace.CPU`, merged streams, and text."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import Bool
from biotrail.converters.inputs.beginning import PathOrStream
from biotrail.converters.inputs.blktrace.files import RecordBatch, RecordFile, find, set_name
from biotrail.converters.inputs.blktrace.format import Category, categories, has
from biotrail.converters.inputs.blktrace.rows import Translator, realtime_of
from biotrail.converters.inputs.foreign import (
    MAX_NS,
    WITHOUT_BIOS,
    ForeignSource,
    without_block_events,
)
from biotrail.recorder.schema.records import Kind

Key = tuple[int, int]


_WRAP, _HALF = 1 << 32, 1 << 31


class Step(NamedTuple):
    """A jump of a CPU's numbers for a device (ns). missing: -1 where they go back."""

    key: Key
    start: int
    end: int
    missing: int


class Numbers:
    """Checker that remembers the newest number and its time for each CPU and device."""

    def __init__(self) -> None:
        self._newest: dict[Key, tuple[int, int]] = {}

    def check(self, head: NDArray[np.void]) -> tuple[Bool, list[Step]]:
        """Compare the sequence numbers of records with those of earlier calls.

        Returns (which are no repeats, (n,); steps). head: HEAD, in their file's order. Each number
        of a CPU and device should be one above the newest before it. If not, the record is a repeat
        if neither its number nor its time is above those of the newest; else there is a step before
        it. The first record of a CPU and device begins the count. Notes, and the records of the
        ftrace tracer, have no numbers and are kept.
        """
        keep, steps = np.ones(len(head), dtype=np.bool_), list[Step]()
        counted = ~has(categories(head["action"]), Category.NOTIFY) & (head["sequence"] != 0)
        rows = np.flatnonzero(counted)
        keys = head["device"][rows].astype(np.uint64) << np.uint64(32) | head["cpu"][rows]
        for key in np.unique(keys).tolist():
            here = rows[keys == key]
            number = head["sequence"][here].astype(np.int64)
            time = head["time"][here].astype(np.int64)
            device_cpu = key >> 32, key & 0xFFFFFFFF
            first = int(number[0]) - 1, int(time[0])
            before, since = self._newest.setdefault(device_cpu, first)
            step = np.diff(number, prepend=before)
            if (step <= 0).any():
                # Numbers wrap at 2^32. A record that is not ahead in number and not later is a
                # repeat; not ahead but later, it is of another trace: a step of unknown length.
                newest, at = before, since
                columns = here.tolist(), number.tolist(), time.tolist()
                for row, now, ts in zip(*columns, strict=True):
                    ahead = (now - newest + _HALF) % _WRAP - _HALF
                    if ahead <= 0 and ts <= at:
                        keep[row] = False
                        continue
                    if ahead != 1:
                        missing = ahead - 1 if ahead > 0 else -1
                        steps.append(Step(device_cpu, at, max(at, ts), missing))
                    newest, at = now, ts
                self._newest[device_cpu] = newest, at
                continue
            times = np.concatenate([[since], time])
            for row in np.flatnonzero(step > 1).tolist():
                start, end = times[row : row + 2].tolist()
                steps.append(Step(device_cpu, start, end, int(step[row]) - 1))
            self._newest[device_cpu] = int(number[-1]), int(time[-1])
        return keep, steps


MESSAGES_KEPT = 10_000
LETTERS = "QGMFXAcIRmDCPU"


def kept_of(batch: RecordBatch, keep: Bool) -> RecordBatch:
    """Return the batch's records of the mask `keep`, (n,)."""
    places = np.concatenate([[0], np.cumsum(keep)]).tolist()
    lost = [(places[row], cpu, count) for row, cpu, count in batch.lost]
    return replace(batch, head=batch.head[keep], payload=batch.payload[keep], lost=lost)


class RecordSource(ForeignSource):
    """A Source of blktrace's records: their translation, and what their numbers tell.

    The first MESSAGES_KEPT of `messages_met` messages become notes. left_out: number of records
    that have no kind in a log, by action.
    """

    def __init__(self, given: PathOrStream, tool: str) -> None:
        super().__init__(given, tool)
        self.messages_met = 0
        self.left_out: Counter[str] = Counter()
        self.numbers_tell = True
        """Whether a gap in the records' numbers is a loss."""
        self._translator = Translator(Context(self.header))
        self._numbers = Numbers()
        self._repeats: Counter[str] = Counter()
        self._begun_again: Counter[str] = Counter()
        self._met: set[int] = set()

    def report_rest(self) -> None:
        for name, count in self._repeats.items():
            self.problems.append(
                f"{name}: {count} records have numbers and times that were there before: a part "
                "of the file is there twice, or another trace follows; left out"
            )
        for name, count in self._begun_again.items():
            self.problems.append(
                f"{name}: the sequence numbers of a CPU's records go back {count} times, at later "
                "times: other traces follow; kept, but how many records are missing between them "
                "is not known"
            )
        if Kind.D in self._met and Kind.Q not in self._met:
            self.remark(f"Q (queue) does not occur: {WITHOUT_BIOS}")
        if self.left_out:
            what = ", ".join(f"{name} {count}" for name, count in sorted(self.left_out.items()))
            self.remark(f"records left out, as a log has no such kind: {what}")
        if (met := self.messages_met) > len(self.notes):
            self.remark(f"{met} messages, of which the first {len(self.notes)} were kept")

    def events_of(self, batch: RecordBatch, name: str, offset: int, reached: int) -> Events:
        """Return a batch's events without repeated records.

        name, offset, reached: of the file that the batch comes from, for messages, with the bytes
        read of it and the newest time (ns). Missing numbers are losses, and times at which the
        numbers go back are damaged.
        """
        keep, steps = self._numbers.check(batch.head)
        for step in steps:
            if step.missing < 0:
                self._begun_again[name] += 1
                self.add_damage(offset, step.start, step.end)
            elif self.numbers_tell:
                self.add_loss(step.start, step.end, step.key[1], step.missing)
        if not keep.all():
            self._repeats[name] += int(np.count_nonzero(~keep))
            batch = kept_of(batch, keep)
        events, messages, left_out = self._translator.rows(batch)
        self.left_out += left_out
        self.messages_met += len(messages)
        kept = messages[: MESSAGES_KEPT - len(self.notes)]
        self.notes += [("message", message) for message in kept]
        times = batch.head["time"]
        for row, cpu, count in batch.lost:
            # Between the records around the line; the newest of the file if the batch has none.
            after = int(times[min(row, len(times) - 1)]) if len(times) else max(reached, 0)
            self.add_loss(int(times[row - 1]) if row else after, after, cpu, count)
        self._met.update(np.unique(events.kind).tolist())
        return events


BLOCK_BYTES = 1 << 20
_ALL_BLOCKS_BYTES = 32 << 20
_LEAST_BLOCK_BYTES = 1 << 16
_CLOCK_UNCERTAINTY_NS = 1_000


class BlktraceSource(RecordSource):
    """A set of blktrace's files, by its prefix or one of its files, or one stream, as a Source."""

    def __init__(self, path: str | os.PathLike[str] | BinaryIO) -> None:
        """path: the prefix of a set, one of its files, another file, or a stream."""
        super().__init__(path, "blktrace")
        self.set_name: str | None = None
        """Name of the set, which is its device's; None: the data are no set."""
        found = {} if not isinstance(path, str | os.PathLike) else find(path)
        # Of another file, or a FIFO, that is beside a set, the set is not meant.
        exists = bool(found) and os.path.exists(self.name) and not os.path.isdir(self.name)
        if exists and Path(self.name) not in found.values():  # a Path knows ./sda as sda
            found = {}
        if found:
            self.set_name = set_name(self.name)
            share = _ALL_BLOCKS_BYTES // len(found)
            block = min(BLOCK_BYTES, max(_LEAST_BLOCK_BYTES, share))
            files = found.items()
            self._files = [RecordFile(file, block, self.problems, cpu) for cpu, file in files]
        else:
            self._files = [RecordFile(path, BLOCK_BYTES, self.problems)]
        if all(file.empty for file in self._files):
            raise without_block_events(self.name, self.tool, "empty: there is not one record")
        if absent := sorted(set(range(max(found, default=0))) - set(found)):
            heads = [file.first.head for file in self._files if file.first is not None]
            begin = min((int(head["time"].min()) for head in heads if len(head)), default=0)
            end = max(begin, *(file.newest() for file in self._files))
            for cpu in absent:
                self.add_loss(begin, end, cpu, -1)
            self.remark(
                f"no file for CPU {', '.join(map(str, absent))}: it was offline, or its events are "
                "missing; all I/O counts as recorded while events were lost (blkparse stops "
                "reading at the first CPU without a file)"
            )
        for file in self._files:
            if file.cut:
                self.remarks.append(
                    f"{file.name}: the ftrace blk tracer of Linux 6.19 and later leaves out a part "
                    "of each record: errors, unplug depths, split sectors and the sources of "
                    "remaps are not known; blktrace and biotrail record them"
                )
        sizes = [file.size for file in self._files]
        self.size = -1 if -1 in sizes else sum(sizes)
        self._describe()

    def _describe(self) -> None:
        """Take clocks and device into the header, by the first batch of each file."""
        first: list[tuple[int, int]] = []
        devices: set[int] = set()
        self.header["events"]["letters"] = list(LETTERS)
        for file in self._files:
            batch = file.first
            if batch is None:
                continue
            notes = has(categories(batch.head["action"]), Category.NOTIFY)
            devices.update(np.unique(batch.head["device"]).tolist())
            if (clock := realtime_of(batch)) is not None:
                noted, realtime = clock
                begin = int(batch.head["time"][~notes].min(initial=np.uint64(MAX_NS)))
                if begin < noted:
                    # It subtracts the first event's time from events, but not from notes.
                    self.remark(
                        "blkparse -d made all times relative to the first event; wall-clock times "
                        "are early by the time between the trace's start and that event"
                    )
                first.append((min(noted, begin), realtime))
        if first:
            self.set_clocks(*min(first), _CLOCK_UNCERTAINTY_NS)
        if self.set_name is not None and len(devices) == 1:
            self.header["devices"] = [{"dev": devices.pop(), "name": self.set_name}]

    def pieces(self) -> Iterator[tuple[Events, int, int]]:
        """Yield each batch's events; the file furthest behind in time is read next."""
        readers = {index: file.batches() for index, file in enumerate(self._files)}
        while readers:
            index = min(readers, key=lambda i: self._files[i].reached)
            file = self._files[index]
            batch = next(readers[index], None)
            self.unreadable_bytes = sum(f.unreadable for f in self._files)
            if batch is None:
                del readers[index]
                continue
            events = self.events_of(batch, file.name, file.offset, file.reached)
            yield events, min(self._files[i].reached for i in readers), self._offset()
        self.report_rest()
        if not self._met - {int(Kind.TASK)}:
            raise self.without_block_events()
        yield Events.empty(), max(file.reached for file in self._files), self._offset()

    def _offset(self) -> int:
        return sum(file.offset for file in self._files)
