# SPDX-License-Identifier: Apache-2.0
"""blkparse's text as a Source: its lines become blktrace's records again."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, U64, Bool
from biotrail.converters.inputs.beginning import Given
from biotrail.converters.inputs.blkparse.layouts import Layout, layout_of
from biotrail.converters.inputs.blkparse.lines import LineReader, Lines, batch_of, names_of
from biotrail.converters.inputs.blkparse.requests import Requests
from biotrail.converters.inputs.blkparse.summary import Summary
from biotrail.converters.inputs.blktrace.files import Batch
from biotrail.converters.inputs.blktrace.format import CATEGORY_SHIFT, Act, Category
from biotrail.converters.inputs.blktrace.numbers import Numbers, kept_rows
from biotrail.converters.inputs.blktrace.records import PART_EVENTS, RecordSource
from biotrail.converters.inputs.foreign import MAX_NS, sorted_by_time, without_block_events
from biotrail.converters.inputs.log import Part
from biotrail.converters.inputs.text_file import Examples, TextFile
from biotrail.converters.inputs.tracepoints.names import ThreadNames
from biotrail.converters.inputs.tracepoints.translate import translate

_LETTERS = "QGMFXAcIRmDCPU"
_FEW_GAPS = 8
"""Gaps in the numbers of the first block, and of so many records one may follow a gap; where more
do, lines were selected."""
_TAIL_BYTES = 1 << 12
_MOST_CARRIED = 1 << 14
"""Bytes of lines that wait for the next block, for what a remap's device is."""
_UNTOLD = "action 255"
"""Records of a layout that does not print what they tell; `Layout` counts them."""
_OF_REQUEST = np.uint64(int(Category.FS) << CATEGORY_SHIFT)
_NAMED = re.compile(rb"^Events \(([^)\n]+)\): ", re.MULTILINE)


class BlkparseSource(RecordSource):
    """The text of blkparse or btrace, by the path of a file, or as a stream.

    reached: newest time met (ns), of the text, whose times count from the trace's first event.
    """

    def __init__(self, path: Given) -> None:
        """Open the text, read its first block, and make a log's header of what is there.

        Raises LogFormatError: it cannot be opened, or its layout does not tell what is needed.
        """
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        super().__init__(name or str(getattr(path, "name", "the stream")), "blktrace")
        self.header["created_by"] = "blkparse"
        self.header["events"]["letters"] = list(_LETTERS)
        self.end = {"reason": "end of blkparse's text"}
        self._text = TextFile(path, self.name)
        self.size = self._text.size
        self.reached = -1
        self._blocks = self._text.blocks()
        self._reader = LineReader()
        self._requests = Requests()
        self._names = ThreadNames()
        self._traced: set[int] = set()
        self._last: dict[int, int] = {}
        self._cpus: set[int] = set()
        self._unnumbered_repeats = 0
        self._lines = 0
        self._bad_lines = Examples()
        self._other_lines = Examples()
        self.summary = Summary(self.name)
        first = next(self._blocks, b"")
        self._layout: Layout | None = layout_of(first, self.name)
        self._first = self._plain(first)
        if self._layout is not None:
            self.remarks += [f"{self.name}: {remark}" for remark in self._layout.remarks]
        self._judge_beginning(path)

    @property
    def offset(self) -> int:
        """Bytes of the file that were read so far."""
        return self._text.offset

    def _judge_beginning(self, path: Given) -> None:
        """Judge by the first block whether numbers tell losses, and which device it is, if one."""
        lines = self._reader.read(self._first)
        if not len(lines):
            return
        head = batch_of(lines).head
        found = Numbers().check(head[lines.act != Act.REMAP])
        gaps = sum(step.count > 0 for step in found.steps)
        if gaps > _FEW_GAPS and gaps * _FEW_GAPS > len(lines):
            self.numbers_tell = False
            self.remarks.append(
                f"{self.name}: the numbers of its records have gaps everywhere: lines were "
                "selected, by blkparse -a or grep; what the trace lost is not known"
            )
        devices = np.unique(lines.column("dev")[lines.act != Act.REMAP]).tolist()
        names = set(_NAMED.findall(_tail(path)))
        if len(devices) == 1 and len(names) == 1 and b"," not in (name := names.pop()):
            text = name.decode("utf-8", "replace")
            self.header["devices"] = [{"dev": devices[0], "name": text}]

    def parts(self) -> Iterator[Part]:
        """Yield all events, in parts of about PART_EVENTS, with `clock` None; can be called once.

        Problems, remarks, notes and losses are added on the way, some only at the end. Raises
        LogFormatError at the end if there was no block event.
        """
        pending: list[Events] = []
        for events, following in self._read():
            pending.append(events)
            if sum(map(len, pending)) >= PART_EVENTS:
                complete_to = min(self.reached, following)
                yield Part(sorted_by_time(Events.join(pending)), complete_to, None, self.offset)
                pending = []
        self._report()
        if not self._met:
            raise without_block_events(self.name, "blktrace", problem="".join(self.problems[:1]))
        yield Part(
            sorted_by_time(Events.join(pending)), max(self.reached, 0), None, max(self.offset, 0)
        )

    def _read(self) -> Iterator[tuple[Events, int]]:
        """Yield (events, ns: the first time of what follows them) of each block."""
        held: Events | None = None
        carried = b""
        for block in self._all_blocks():
            lines = self._reader.read(carried + block)
            lines, carried = self._with_devices(lines)
            first = int(lines.column("time").min(initial=np.uint64(MAX_NS)))
            if held is not None:
                yield held, first
            held = self._events(lines)
        if carried:
            last = self._events(self._reader.read(carried))
            held = last if held is None else Events.join([held, last])
        if held is not None:
            yield held, self.reached

    def _all_blocks(self) -> Iterator[bytes]:
        """Yield the text, block by block, in blkparse's default format."""
        first, self._first = self._first, b""
        yield first
        for block in self._blocks:
            yield self._plain(block)

    def _plain(self, block: bytes) -> bytes:
        """Return a block in blkparse's default format."""
        return block if self._layout is None else self._layout.rewritten(block)

    def _with_devices(self, lines: Lines) -> tuple[Lines, bytes]:
        """Return (lines whose remaps are of the device that was traced, text that has to wait).

        blkparse prints a remap with the device that it goes to, which may be a partition. The
        remap is of the device whose Q the thread records next; without one yet, it waits.
        """
        act = lines.act
        others = act != Act.REMAP
        self._traced.update(np.unique(lines.column("dev")[others & (act >= 0)]).tolist())
        asked = ~others & ~np.isin(lines.column("dev"), list(self._traced))
        if not asked.any():
            return lines, b""
        following = _next_of_thread(lines, others & (act >= 0))
        known = asked & (following >= 0)
        known[known] = act[following[known]] == Act.QUEUE
        dev = lines.column("dev")
        dev[known] = dev[following[known]]
        open_rows = np.flatnonzero(asked & (following < 0))
        if not len(open_rows):
            return lines, b""
        start = int(lines.column("start")[open_rows[0]])
        if len(lines.data) - start > _MOST_CARRIED or not open_rows[0]:
            return lines, b""
        return lines.before(int(open_rows[0])), lines.data[start:]

    def _events(self, lines: Lines) -> Events:
        """Return a block's events without repetitions; takes in its other lines."""
        self._text.use(len(lines))
        self._take_others(lines)
        batch = batch_of(lines)
        of_request, size = self._requests.follow(
            lines.act,
            lines.column("action"),
            lines.column("dev"),
            lines.column("sector"),
            lines.column("bytes"),
            lines.column("first"),
            lines.column("command"),
        )
        batch.head["action"][of_request] |= _OF_REQUEST
        batch.head["bytes"] = size
        self._cpus.update(np.unique(lines.column("cpu")[~lines.is_message]).tolist())
        batch = self._in_order(batch, lines)
        names = translate([], self._names.rows(names_of(lines)))
        events = Events.join([names, self.events_of(batch, self)])
        self.reached = max(self.reached, int(batch.head["time"].max(initial=0)))
        return events

    def _in_order(self, batch: Batch, lines: Lines) -> Batch:
        """Return the batch without records that have no number and an earlier time than before.

        blkparse sorts by time: such lines are there twice, or of another trace.
        """
        bare = np.flatnonzero((batch.head["sequence"] == 0) & ~lines.is_message)
        keep = np.ones(len(batch.head), np.bool_)
        for cpu in np.unique(batch.head["cpu"][bare]).tolist():
            rows = bare[batch.head["cpu"][bare] == cpu]
            times = batch.head["time"][rows].astype(np.int64)
            newest = np.maximum.accumulate(np.maximum(times, self._last.get(cpu, 0)))
            keep[rows] = times >= newest
            self._last[cpu] = int(newest[-1])
        if keep.all():
            return batch
        self._unnumbered_repeats += int(np.count_nonzero(~keep))
        lost = kept_rows(keep, batch.lost)
        return replace(batch, head=batch.head[keep], payload=batch.payload[keep], lost=lost)

    def _take_others(self, lines: Lines) -> None:
        """Take in the lines that are no records: the summary, and what is left out."""
        for other in lines.others:
            number = self._lines + other.line + 1
            if other.bad:
                self._bad_lines.add(number, other.text)
            elif not self.summary.take(other.text):
                self._other_lines.add(number, other.text)
        self._lines += lines.lines
        self.summary.count(lines)

    def _report(self) -> None:
        """Add what is known at the end only to `problems` and `remarks`."""
        self.problems += self._text.problems
        self.unreadable_bytes += self._text.unreadable
        self.left_out.pop(_UNTOLD, None)
        self.report_rest()
        if self._unnumbered_repeats:
            self.problems.append(
                f"{self.name}: {self._unnumbered_repeats} lines have earlier times than the lines "
                "before: a part of the text is there twice, or another trace follows; left out"
            )
        if self._layout is not None:
            self.remarks += [f"{self.name}: {remark}" for remark in self._layout.left_out()]
            if self._layout.unread:
                self.problems.append(
                    f"{self.name}: left out: {self._layout.unread} lines with a time that do not "
                    "have the layout of the others"
                )
        if self._bad_lines.count:
            self.problems.append(
                f"{self.name}: left out: {self._bad_lines.count} lines of records that are not "
                f"understood, {self._bad_lines.first}"
            )
        if self._other_lines.count:
            self.remarks.append(
                f"{self.name}: {self._other_lines.count} lines are no records, "
                f"{self._other_lines.first}"
            )
        missing = sorted(set(range(max(self._cpus, default=0))) - self._cpus)
        if missing and (self._layout is None or self._layout.has_cpu):
            numbers = ", ".join(map(str, missing))
            self.remarks.append(
                f"{self.name}: no line of CPU {numbers}: it was idle or offline, or its file was "
                "missing when blkparse read the others"
            )
        self.problems += self.summary.problems()
        if self.summary.skipped and self._layout is not None and not self._layout.has_number:
            self.problems.append(
                f"{self.name}: its summary says that {self.summary.skipped} records are missing "
                "(Skips); its lines do not tell where"
            )


def _next_of_thread(lines: Lines, chosen: Bool) -> I64:
    """Return for each record the next chosen one of its CPU and thread, (n,); -1: there is none."""
    key: U64 = lines.column("cpu") << np.uint64(32) | lines.column("pid")
    order = np.argsort(key, kind="stable")
    count = len(order)
    place = np.where(chosen[order], np.arange(count), count)
    following = np.minimum.accumulate(place[::-1])[::-1]
    there = following < count
    there[there] = key[order][following[there]] == key[order][there]
    found = np.full(count, -1, np.int64)
    found[order[there]] = order[following[there]]
    return found


def _tail(path: Given) -> bytes:
    """Return the last bytes of a file; empty for a stream."""
    if not isinstance(path, str | os.PathLike):
        return b""
    try:
        with open(path, "rb") as stream:
            stream.seek(max(os.fstat(stream.fileno()).st_size - _TAIL_BYTES, 0))
            return stream.read()
    except OSError:
        return b""
