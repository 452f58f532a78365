# SPDX-License-Identifier: Apache-2.0
"""trace-cmd's trace.dat as a Source: the pages of all CPUs and buffers, merged by time."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, U8
from biotrail.converters.inputs.beginning import PathOrStream, open_file
from biotrail.converters.inputs.foreign import clocks_at
from biotrail.converters.inputs.ftrace.owners import Owners
from biotrail.converters.inputs.ftrace.pages import (
    COUNT_BYTES,
    CpuPages,
    PageEvents,
    PageLayout,
    find_events,
    page_layout,
)
from biotrail.converters.inputs.ftrace.recording import Buffer, Fields, Recording, read_recording
from biotrail.converters.inputs.tracepoints import (
    Batch,
    Loss,
    TracepointSource,
    parse_format,
    record_dtype,
)
from biotrail.converters.inputs.translate import TracepointRows
from biotrail.recorder.schema.block_events import KIND_OF
from biotrail.recorder.schema.errors import LogFormatError


class TraceDatSource(TracepointSource):
    """A trace.dat, by its path or as a stream that can seek."""

    def __init__(self, path: PathOrStream) -> None:
        """Open the file and read all but its pages.

        Raises LogFormatError: not readable, a pipe, of an unknown version or compression, damaged,
        without event formats, or with times that are no ns.
        """
        super().__init__(path, "trace-cmd")
        self._stream = open_file(path, "a file that trace-cmd wrote")
        self._owned = isinstance(path, str | os.PathLike)
        if not self._stream.seekable():
            raise LogFormatError(
                "a trace.dat cannot be read from a pipe, because it refers to places further on: "
                "give its path"
            )
        self.recording = read_recording(self._stream, self.name)
        self.size = self._stream.seek(0, os.SEEK_END)
        self._records = Records(self.recording, self.name)
        self.problems += [*self.recording.problems, *self._records.problems]
        self.problems += unclaimed(Fields(self._stream, self.name), self.recording)
        self._streams = [
            CpuPages(self._stream, self.name, self.recording, buffer, cpu)
            for buffer in self._buffers()
            for cpu in buffer.cpus
        ]
        self._unreadable: Counter[tuple[str, int]] = Counter()
        """By buffer and CPU: bytes that could not be read, as far as they are dated."""
        self._open_damage: dict[tuple[str, int], tuple[int, int]] = {}
        """By buffer and CPU: offset and begin (ns) of damage whose end is not known yet."""
        self._owners = Owners({stream.buffer.name for stream in self._streams})
        self._describe()

    def _buffers(self) -> list[Buffer]:
        """Return the buffers to read: those with pages, and with the clock of the first one.

        Adds remarks on the clock, and on buffers that are left out.
        """
        buffers = [buffer for buffer in self.recording.buffers if buffer.cpus]
        if not buffers:
            return []
        clock = buffers[0].clock
        self.remarks += clock_remark(self.name, clock, self.recording)
        for buffer in buffers:
            if buffer.clock != clock:
                self.remarks.append(
                    f"{self.name}: the buffer {_shown(buffer)} has the clock {buffer.clock!r}, not "
                    f"{clock!r} as {_shown(buffers[0])}: left out"
                )
        return [buffer for buffer in buffers if buffer.clock == clock]

    def _describe(self) -> None:
        """Add to the header what the file says of kernel and clocks, and remarks on what it lacks.

        Raises LogFormatError: the file has neither pages nor text.
        """
        if self.recording.kernel:
            self.header["kernel"] = {"release": self.recording.kernel}
        if self.recording.tool:
            self.header["created_by"] = f"trace-cmd {self.recording.tool}"
        if self.recording.has_text:
            self.remarks.append(
                f"{self.name}: has the text of a latency tracer, which is left out; "
                "`trace-cmd report` prints it"
            )
        if self.recording.guest:
            self.remarks.append(
                f"{self.name}: times are the guest's own; the offsets to the host's, which "
                "trace-cmd recorded, are not applied"
            )
        self._first = self._first_time()
        if self.recording.date_ns is None:
            return
        if any(not stream.buffer.name for stream in self._streams):
            realtime = self._first + self.recording.date_ns
            self.header["clocks"] = clocks_at(self._first, realtime, _DATE_UNCERTAINTY_NS)
        else:
            self.remarks.append(
                f"{self.name}: the wall-clock time that trace-cmd recorded (--date) is of the top "
                "buffer's clock, which an instance's need not be: not applied"
            )

    def _first_time(self) -> int:
        """Return the time (ns) at which the earliest first page of a CPU begins; 0 without any."""
        times = []
        for stream in self._streams:
            probe = CpuPages(self._stream, self.name, self.recording, stream.buffer, stream.where)
            page = probe.first_page()
            if len(page):
                events = find_events(page, self._layout(stream))
                times.append(in_ns(events.begin, self.recording)[0])
        return max(int(min(times, default=0)), 0)

    def _layout(self, stream: CpuPages) -> PageLayout:
        recording = self.recording
        return page_layout(
            recording.order,
            stream.buffer.page_bytes,
            recording.long_bytes,
            recording.header_page,
        )

    def batches(self) -> Iterator[Batch]:
        """Yield the events, each time of the CPU that is furthest behind."""
        readers = {index: stream.blocks() for index, stream in enumerate(self._streams)}
        while readers:
            index = min(readers, key=lambda i: self._streams[i].reached)
            stream = self._streams[index]
            block = next(readers[index], None)
            self._report(stream)
            if block is None:
                del readers[index]
                if stream.unreadable > self._unreadable[stream.buffer.name, stream.where.cpu]:
                    self._date_damage(stream, stream.reached)
                continue
            batch = self._batch(stream, block)
            batch.complete_to = min(self._streams[i].reached for i in readers)
            batch.offset = min(sum(s.read for s in self._streams), self.size)
            yield batch
        self.remarks += self._owners.remarks(self.name)
        for offset, start in self._open_damage.values():
            self._end_damage(offset, start, max([0, *(s.reached for s in self._streams)]))
        self.problems += uncounted(self.name, self.recording, self._streams)
        if self._owned:
            self._stream.close()

    def _date_damage(self, stream: CpuPages, since: int) -> None:
        """Note, or end, the window of a CPU's damage, after a block of its pages.

        It begins with what the CPU had reached before (`since`, ns), and ends with a block without
        damage: where in a block something could not be read is not known.
        """
        key = stream.buffer.name, stream.where.cpu
        if stream.unreadable > self._unreadable[key]:
            self._unreadable[key] = stream.unreadable
            offset = stream.where.offset + stream.read
            self._open_damage.setdefault(key, (offset, max(since, self._first)))
        elif key in self._open_damage:
            self._end_damage(*self._open_damage.pop(key), stream.reached)

    def _end_damage(self, offset: int, start: int, end: int) -> None:
        """Add a window of damage: bytes of the file read when it was met, and times (ns)."""
        self.damaged.append({"offset": offset, "start": start, "end": max(start, end)})

    def _batch(self, stream: CpuPages, block: U8) -> Batch:
        found = find_events(block, self._layout(stream))
        if found.unreadable:
            stream.unreadable += found.unreadable
            stream.problems.append(
                f"{self.name}: {found.unreadable} bytes of pages before offset "
                f"{stream.where.offset + stream.read} (CPU {stream.where.cpu}) cannot be read: "
                "the file is damaged; copy it again"
            )
            self._report(stream)
        time = in_ns(found.time, self.recording)
        losses = _losses(found, time, in_ns(found.begin, self.recording), stream, self._first)
        stream.events += len(time)
        since = stream.reached
        if len(time):
            stream.reached = max(stream.reached, int(time.max()))
        self._date_damage(stream, since)
        rows, passed_over = self._records.rows(block, found, time, stream.where.cpu)
        rows = [self._owners.kept(row, stream.buffer.name) for row in rows]
        self.recording.decompressor.allowance.use(sum(map(len, rows)))
        return Batch(rows, 0, 0, losses, passed_over)

    def _report(self, stream: CpuPages) -> None:
        self.problems += stream.problems
        stream.problems = []
        self.unreadable_bytes = sum(s.unreadable for s in self._streams)


def _losses(found: PageEvents, time: I64, begin: I64, stream: CpuPages, first: int) -> list[Loss]:
    """Return the losses before pages: from the last event before the page to its own beginning.

    time: ns of each event; begin: ns of each page. Before a CPU's first page events were
    overwritten; what other CPUs recorded before it, from `first` on (ns), lacks these.
    """
    losses = []
    for page in np.flatnonzero(found.lost).tolist():
        before = int(np.searchsorted(found.page, page))
        earlier = int(time[before - 1]) if before else max(stream.reached, first)
        end = max(int(begin[page]), 0)
        losses.append(Loss(min(max(earlier, 0), end), end, stream.where.cpu, int(found.lost[page])))
    return losses


def _shown(buffer: Buffer) -> str:
    return f"of instance {buffer.name!r}" if buffer.name else "at the top"


# Times of ftrace's clocks in ns, and what each clock means for the user.

_COUNTS = ("x86-tsc", "tsc2nsec", "counter", "ppc-tb")
_DATE_UNCERTAINTY_NS = 1_000_000
"""trace-cmd measures the wall clock (--date) by a marker that it writes: 161 µs off on an emulated
machine."""


def clock_remark(name: str, clock: str, recording: Recording) -> list[str]:
    """Return what to say of a trace clock. Raises LogFormatError: its times are no ns."""
    if clock in _COUNTS and recording.tsc is None:
        raise LogFormatError(
            f"{name}: recorded with the clock {clock!r}, whose counts cannot be converted to ns; "
            "record with `trace-cmd record -C mono`"
        )
    if clock == "local":
        return [f"{name}: trace clock 'local', which may differ between CPUs; `-C mono` does not"]
    if clock == "uptime":
        return [f"{name}: trace clock 'uptime', which advances a tick (1 to 10 ms) at a time"]
    return [f"{name}: trace clock {clock!r}"]


def in_ns(time: I64, recording: Recording) -> I64:
    """Return times of the trace's clock in ns, with the offset that trace-cmd adds on reading.

    Counts of the TSC are multiplied and shifted as the kernel does (mul_u64_u32_shr).
    """
    if recording.tsc is not None:
        factor, shift = map(np.uint64, recording.tsc)
        counts = time.view(np.uint64)
        high, low = counts >> np.uint64(32), counts & np.uint64(0xFFFFFFFF)
        time = ((high * factor << np.uint64(32) - shift) + (low * factor >> shift)).view(np.int64)
    return time + np.int64(recording.offset_ns) if recording.offset_ns else time


# What a trace.dat says of its own size and contents, held against what was read of it.

_PIECE = 1 << 20


def unclaimed(fields: Fields, recording: Recording) -> list[str]:
    """Return a sentence for each part of a buffer that no CPU's data reach to, though it has some.

    Data of CPUs follow each other, each from a page's begin on, with zeros between; the last ones
    reach to their section's end (version 7), or to the file's (version 6).
    """
    found = []
    for buffer in recording.buffers:
        ends = [cpu.offset + cpu.size + COUNT_BYTES * buffer.compressed for cpu in buffer.cpus]
        gaps = zip(ends, [cpu.offset for cpu in buffer.cpus][1:], strict=False)
        found += [_gap(fields, buffer, begin, end) for begin, end in gaps]
        if buffer.end:
            found.append(_gap(fields, buffer, max(ends, default=0), buffer.end))
    if recording.version == 6:
        every = [(cpu.offset + cpu.size, b) for b in recording.buffers for cpu in b.cpus]
        last = max(every, key=lambda one: one[0], default=None)
        found += [_gap(fields, last[1], last[0], fields.size)] if last else []
    return [text for text in found if text]


def _gap(fields: Fields, buffer: Buffer, begin: int, end: int) -> str:
    end = min(end, fields.size)
    for at in range(max(begin, 0), end, _PIECE):
        fields.seek(at)
        if any(fields.take(min(_PIECE, end - at))):
            return (
                f"{fields.name}: the data at offset {begin} to {end}{of_buffer(buffer.name)} are "
                "no CPU's by the file's table: the file is damaged; they are left out"
            )
    return ""


def uncounted(name: str, recording: Recording, streams: Iterable[CpuPages]) -> list[str]:
    """Return a sentence for each CPU with fewer events than the kernel counted as given out.

    streams: those that were read, to their ends.
    """
    streams = list(streams)
    found = {(s.buffer.name, s.where.cpu): s.events for s in streams}
    left_out = {b.name for b in recording.buffers if b.cpus} - {s.buffer.name for s in streams}
    return [
        f"{name}: of {counted} events of CPU {cpu}{of_buffer(buffer)} that the kernel gave out "
        f"{found.get((buffer, cpu), 0)} are here: the file is damaged, or others read the buffer"
        for (buffer, cpu), counted in recording.counted.read.items()
        if found.get((buffer, cpu), 0) < counted and buffer not in left_out
    ]


def of_buffer(buffer: str) -> str:
    """Return " of instance 'x'", or nothing for the top buffer."""
    return f" of instance {buffer!r}" if buffer else ""


# Records in ring-buffer pages as columns, by the formats that stand in a trace.dat.

_HEAD = re.compile(r"^name: *(\S+)\s*\nID: *(\d{1,5})\s*$", re.MULTILINE)
_IDS = 1 << 16
_ID_BYTES = 2
"""Size of common_type, with which every record begins."""


class Records:
    """Reader of records of the block layer's events; others are counted by name."""

    def __init__(self, recording: Recording, where: str) -> None:
        """Take the formats of the block layer's events; one that is damaged is left out, and noted.

        Raises LogFormatError: there is no format of an event.
        """
        self.problems: list[str] = []
        order: Literal["<", ">"] = "<" if recording.order == "little" else ">"
        self._id = np.dtype(f"{order}u2")
        self._names: dict[int, str] = {}
        self._dtypes: dict[int, np.dtype[np.void]] = {}
        for system, texts in recording.formats.items():
            for text in texts:
                if not (head := _HEAD.search(text)):
                    continue
                self._names[int(head[2])] = head[1]
                if system == "block" and head[1] in KIND_OF:
                    try:
                        form = parse_format(text, where)
                    except LogFormatError as error:
                        self.problems.append(f"{error}; {head[1]} is left out")
                        continue
                    self._dtypes[int(head[2])] = record_dtype(form, order)
        if not self._names:
            raise LogFormatError(
                f"{where}: has no formats of events: the file is damaged; copy it again"
            )

    def rows(
        self, block: U8, found: PageEvents, time: I64, cpu: int
    ) -> tuple[list[TracepointRows], Counter[str]]:
        """Return the block events as rows, and the number of other records by event.

        block: pages. found: the events in them. time: ns of each.
        """
        good = found.size >= _ID_BYTES
        ids = np.zeros(len(found.at), np.int64)
        ids[good] = _gather(block, found.at[good], _ID_BYTES).view(self._id)
        counts = np.bincount(ids, minlength=1)
        rows, passed_over = [], Counter[str]()
        for number in np.flatnonzero(counts).tolist():
            kind = self._dtypes.get(number)
            if kind is None:
                name = self._names.get(number, f"event {number}")
                passed_over[name] += int(counts[number])
                continue
            at = np.flatnonzero((ids == number) & (found.size >= kind.itemsize))
            short = int(counts[number]) - len(at)
            if short:
                passed_over[f"{self._names[number]} cut short"] += short
            rows.append(self._of_event(number, block, found.at[at], time[at], cpu))
        return rows, passed_over

    def _of_event(self, number: int, block: U8, at: I64, time: I64, cpu: int) -> TracepointRows:
        kind = self._dtypes[number]
        records = _gather(block, at, kind.itemsize).view(kind)
        names = kind.names or ()
        columns = {name: records[name] for name in names if not name.startswith("common_")}
        pid = records["common_pid"] if "common_pid" in names else np.full(len(at), -1)
        cpus = np.full(len(at), cpu, np.int64)
        return TracepointRows(self._names[number], time, cpus, pid, at, columns)


def _gather(data: U8, at: I64, count: int) -> NDArray[np.void]:
    windows: NDArray[np.void] = np.ndarray(
        (len(data) - count + 1,), np.dtype((np.void, count)), data.data, strides=(1,)
    )
    return windows[at]
