# SPDX-License-Identifier: Apache-2.0
"""blktrace's data as a source of events: sets `DEV.blktrace.CPU`, and merged streams."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.inputs.blktrace.files import RecordFile, find, set_name
from biotrail.converters.inputs.blktrace.format import Category, categories, has
from biotrail.converters.inputs.blktrace.records import LETTERS, RecordSource
from biotrail.converters.inputs.blktrace.rows import Translator
from biotrail.converters.inputs.foreign import MAX_NS, without_block_events
from biotrail.recorder.schema.records import Kind

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
            self._files = [RecordFile(file, block, cpu) for cpu, file in found.items()]
        else:
            self._files = [RecordFile(path, BLOCK_BYTES)]
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
        self._reported = [0] * len(self._files)

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
            clock = Translator(Context({})).rows(batch).clock if notes.any() else None
            if clock is not None:
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
            self.problems += file.problems[self._reported[index] :]
            self._reported[index] = len(file.problems)
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
