# SPDX-License-Identifier: Apache-2.0
"""trace-cmd's trace.dat as a Source: the pages of all CPUs and buffers, merged by time."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Literal

import numpy as np

from biotrail.converters.events.tables import I64, U8
from biotrail.converters.inputs.beginning import PathOrStream, open_file
from biotrail.converters.inputs.foreign import records_at
from biotrail.converters.inputs.ftrace.pages import (
    COUNT_BYTES,
    CpuPages,
    PageEvents,
    PageLayout,
    find_events,
    page_layout,
)
from biotrail.converters.inputs.ftrace.recording import Buffer, Fields, read_recording
from biotrail.converters.inputs.tracepoints import (
    Batch,
    Loss,
    Owners,
    TracepointSource,
    parse_format,
    record_dtype,
)
from biotrail.converters.inputs.translate import TracepointRows
from biotrail.recorder.schema.block_events import KIND_OF
from biotrail.recorder.schema.errors import LogFormatError

_COUNTS = ("x86-tsc", "tsc2nsec", "counter", "ppc-tb")
_DATE_UNCERTAINTY_NS = 1_000_000
"""trace-cmd measures the wall clock (--date) by a marker that it writes: 161 µs off on an emulated
machine."""
_PIECE = 1 << 20
_HEAD = re.compile(r"^name: *(\S+)\s*\nID: *(\d{1,5})\s*$", re.MULTILINE)
_ID_BYTES = 2


class TraceDatSource(TracepointSource):
    """A trace.dat, by its path or as a stream that can seek."""

    def __init__(self, path: PathOrStream) -> None:
        """Read all but the pages. Raises LogFormatError."""
        super().__init__(path, "trace-cmd")
        self._stream = open_file(path, "a file that trace-cmd wrote")
        self._owned = isinstance(path, str | os.PathLike)
        if not self._stream.seekable():
            raise LogFormatError(
                "a trace.dat cannot be read from a pipe, because it refers to places further on: "
                "give its path"
            )
        self.recording = read_recording(self._stream, self.name)
        self._fields = Fields(self._stream, self.name, self.recording.order)
        self.size = self._fields.size
        self.problems += self.recording.problems
        self._order: Literal["<", ">"] = "<" if self.recording.order == "little" else ">"
        self._event_names: dict[int, str] = {}
        self._dtypes: dict[int, np.dtype[np.void]] = {}
        self._read_formats()
        self._check_unclaimed()
        self._cpus = [
            CpuPages(self._fields, self.recording, buffer, cpu, problems=self.problems)
            for buffer in self._buffers()
            for cpu in buffer.cpus
        ]
        self._owners = Owners({pages.buffer.name for pages in self._cpus})
        self._describe()

    def _read_formats(self) -> None:
        """Take the block layer's formats. Raises LogFormatError: there is none at all."""
        for system, texts in self.recording.formats.items():
            for text in texts:
                if not (head := _HEAD.search(text)):
                    continue
                number = int(head[2])
                self._event_names[number] = head[1]
                if system == "block" and head[1] in KIND_OF:
                    try:
                        form = parse_format(text, self.name)
                    except LogFormatError as error:
                        self.problems.append(f"{error}; {head[1]} is left out")
                        continue
                    self._dtypes[number] = record_dtype(form, self._order)
        if not self._event_names:
            raise LogFormatError(
                f"{self.name}: has no formats of events: the file is damaged; copy it again"
            )

    def _check_unclaimed(self) -> None:
        """Report the parts of buffers that no CPU's data reach to, though they are no zeros.

        Data of CPUs follow each other, each from a page's begin on, with zeros between; the last
        ones reach to their section's end (version 7), or to the file's (version 6).
        """
        last: tuple[int, Buffer] | None = None
        for buffer in self.recording.buffers:
            extra = COUNT_BYTES * buffer.compressed
            ends = [cpu.offset + cpu.size + extra for cpu in buffer.cpus]
            for end, following in zip(ends, buffer.cpus[1:], strict=False):
                self._check_gap(buffer, end, following.offset)
            if buffer.end:
                self._check_gap(buffer, max(ends, default=0), buffer.end)
            for end in ends:
                if last is None or end > last[0]:
                    last = end, buffer
        if self.recording.version == 6 and last is not None:
            self._check_gap(last[1], last[0], self.size)

    def _check_gap(self, buffer: Buffer, begin: int, end: int) -> None:
        end = min(end, self.size)
        for at in range(max(begin, 0), end, _PIECE):
            self._fields.seek(at)
            if any(self._fields.take(min(_PIECE, end - at))):
                self.problem(
                    f"the data at offset {begin} to {end}{_of_instance(buffer.name)} are no CPU's "
                    "by the file's table: the file is damaged; they are left out"
                )
                return

    def _buffers(self) -> list[Buffer]:
        """Return the buffers to read: those with pages, and with the clock of the first one."""
        buffers = [buffer for buffer in self.recording.buffers if buffer.cpus]
        if not buffers:
            return []
        clock = buffers[0].clock
        if clock in _COUNTS and self.recording.tsc is None:
            raise LogFormatError(
                f"{self.name}: recorded with the clock {clock!r}, whose counts cannot be converted "
                "to ns; record with `trace-cmd record -C mono`"
            )
        limits = {
            "local": ", which may differ between CPUs; `-C mono` does not",
            "uptime": ", which advances a tick (1 to 10 ms) at a time",
        }
        self.remark(f"trace clock {clock!r}{limits.get(clock, '')}")
        for buffer in buffers:
            if buffer.clock != clock:
                self.remark(
                    f"the buffer{_of_instance(buffer.name) or ' at the top'} has the clock "
                    f"{buffer.clock!r}, not {clock!r} as"
                    f"{_of_instance(buffers[0].name) or ' at the top'}: left out"
                )
        return [buffer for buffer in buffers if buffer.clock == clock]

    def _describe(self) -> None:
        if self.recording.kernel:
            self.header["kernel"] = {"release": self.recording.kernel}
        if self.recording.tool:
            self.header["created_by"] = f"trace-cmd {self.recording.tool}"
        if self.recording.has_text:
            self.remark(
                "has the text of a latency tracer, which is left out; `trace-cmd report` prints it"
            )
        if self.recording.guest:
            self.remark(
                "times are the guest's own; the offsets to the host's, which trace-cmd recorded, "
                "are not applied"
            )
        # The time (ns) at which the earliest first page of a CPU begins; 0 without any.
        times = []
        for pages in self._cpus:
            first = CpuPages(self._fields, self.recording, pages.buffer, pages.where)
            page = next(first.pieces(pages.buffer.page_bytes), b"")[: pages.buffer.page_bytes]
            if len(page) == pages.buffer.page_bytes:
                found = find_events(np.frombuffer(page, np.uint8), self._layout(pages))
                times.append(self._in_ns(found.begin)[0])
        self._first = max(int(min(times, default=0)), 0)
        if self.recording.date_ns is None:
            return
        if any(not pages.buffer.name for pages in self._cpus):
            realtime = self._first + self.recording.date_ns
            self.set_clocks(self._first, realtime, _DATE_UNCERTAINTY_NS)
        else:
            self.remark(
                "the wall-clock time that trace-cmd recorded (--date) is of the top buffer's "
                "clock, which an instance's need not be: not applied"
            )

    def _layout(self, pages: CpuPages) -> PageLayout:
        recording = self.recording
        return page_layout(
            recording.order,
            pages.buffer.page_bytes,
            recording.long_bytes,
            recording.header_page,
        )

    def _in_ns(self, time: I64) -> I64:
        """Return times in ns; the TSC's as the kernel makes them (mul_u64_u32_shr)."""
        if self.recording.tsc is not None:
            factor, shift = map(np.uint64, self.recording.tsc)
            counts, half = time.view(np.uint64), np.uint64(32)
            high, low = counts >> half, counts & np.uint64(0xFFFFFFFF)
            time = ((high * factor << half - shift) + (low * factor >> shift)).view(np.int64)
        offset = self.recording.offset_ns
        return time + np.int64(offset) if offset else time

    def batches(self) -> Iterator[Batch]:
        readers = {index: pages.blocks() for index, pages in enumerate(self._cpus)}
        while readers:
            index = min(readers, key=lambda i: self._cpus[i].reached)
            pages = self._cpus[index]
            block = next(readers[index], None)
            self.unreadable_bytes = sum(cpu.unreadable for cpu in self._cpus)
            if block is None:
                del readers[index]
                if pages.unreadable > pages.dated:
                    self._date_damage(pages, pages.reached)
                continue
            batch = self._batch(pages, block)
            batch.complete_to = min(self._cpus[i].reached for i in readers)
            batch.offset = min(sum(cpu.read for cpu in self._cpus), self.size)
            yield batch
        self.remarks += self._owners.remarks(self.name)
        last = max([0, *(pages.reached for pages in self._cpus)])
        for pages in self._cpus:
            if pages.damage is not None:
                self._end_damage(pages, last)
        if self._owned:
            self._stream.close()
        found = {(pages.buffer.name, pages.where.cpu): pages.events for pages in self._cpus}
        left_out = {buffer.name for buffer in self.recording.buffers if buffer.cpus}
        left_out -= {name for name, _ in found}
        for (buffer, cpu), counted in self.recording.counted.items():
            here = found.get((buffer, cpu), 0)
            if here < counted and buffer not in left_out:
                self.problem(
                    f"of {counted} events of CPU {cpu}{_of_instance(buffer)} that the kernel gave "
                    f"out {here} are here: the file is damaged, or others read the buffer"
                )

    def _date_damage(self, pages: CpuPages, since: int) -> None:
        """Note, or end, the window of a CPU's damage, after a block of its pages.

        It begins with what the CPU had reached before (`since`, ns), and ends with a block without
        damage: where in a block something could not be read is not known.
        """
        if pages.unreadable > pages.dated:
            pages.dated = pages.unreadable
            begun = pages.where.offset + pages.read, max(since, self._first)
            pages.damage = pages.damage or begun
        elif pages.damage is not None:
            self._end_damage(pages, pages.reached)

    def _end_damage(self, pages: CpuPages, end: int) -> None:
        assert pages.damage is not None
        (offset, start), pages.damage = pages.damage, None
        self.add_damage(offset, start, max(start, end))

    def _batch(self, pages: CpuPages, block: U8) -> Batch:
        found = find_events(block, self._layout(pages))
        if found.unreadable:
            pages.unreadable += found.unreadable
            pages.problem(
                f"{found.unreadable} bytes of pages before offset "
                f"{pages.where.offset + pages.read} (CPU {pages.where.cpu}) cannot be read: the "
                "file is damaged; copy it again"
            )
            self.unreadable_bytes += found.unreadable
        time = self._in_ns(found.time)
        # Losses are from the last event before a page to its own beginning. Before a CPU's first
        # page events were overwritten; what other CPUs recorded before it lacks these.
        begin, losses = self._in_ns(found.begin), []
        for page in np.flatnonzero(found.lost).tolist():
            before = int(np.searchsorted(found.page, page))
            earlier = int(time[before - 1]) if before else max(pages.reached, self._first)
            end = max(int(begin[page]), 0)
            start = min(max(earlier, 0), end)
            losses.append(Loss(start, end, pages.where.cpu, int(found.lost[page])))
        pages.events += len(time)
        since = pages.reached
        if len(time):
            pages.reached = max(pages.reached, int(time.max()))
        self._date_damage(pages, since)
        rows, passed_over = self._rows(block, found, time, pages.where.cpu)
        rows = [self._owners.kept(row, pages.buffer.name) for row in rows]
        self.recording.allowance.use(sum(map(len, rows)))
        return Batch(rows, 0, 0, losses, passed_over)

    def _rows(
        self, block: U8, found: PageEvents, time: I64, cpu: int
    ) -> tuple[list[TracepointRows], Counter[str]]:
        good = found.size >= _ID_BYTES
        ids = np.zeros(len(found.at), np.int64)
        ids[good] = records_at(block, found.at[good], np.dtype(f"{self._order}u2"))
        counts = np.bincount(ids, minlength=1)
        rows, passed_over = [], Counter[str]()
        for number in np.flatnonzero(counts).tolist():
            kind = self._dtypes.get(number)
            if kind is None:
                name = self._event_names.get(number, f"event {number}")
                passed_over[name] += int(counts[number])
                continue
            name, names = self._event_names[number], kind.names or ()
            mine = np.flatnonzero((ids == number) & (found.size >= kind.itemsize))
            if short := int(counts[number]) - len(mine):
                passed_over[f"{name} cut short"] += short
            at = found.at[mine]
            records = records_at(block, at, kind)
            columns = {n: records[n] for n in names if not n.startswith("common_")}
            pid = records["common_pid"] if "common_pid" in names else np.full(len(at), -1)
            cpus = np.full(len(at), cpu, np.int64)
            rows.append(TracepointRows(name, time[mine], cpus, pid, at, columns))
        return rows, passed_over


def _of_instance(buffer: str) -> str:
    return f" of instance {buffer!r}" if buffer else ""
