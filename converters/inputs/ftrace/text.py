# SPDX-License-Identifier: Apache-2.0
"""Events printed by ftrace, trace-cmd or perf as a Source."""

import os
import re
from collections.abc import Iterator
from itertools import chain, islice

import numpy as np

from biotrail.converters.events.tables import I64, NO_CPU, Bool
from biotrail.converters.inputs import unknown
from biotrail.converters.inputs.beginning import Given
from biotrail.converters.inputs.ftrace import layouts
from biotrail.converters.inputs.ftrace.line_loops import KINDS
from biotrail.converters.inputs.ftrace.lines import LineReader, Lines, OtherLine
from biotrail.converters.inputs.ftrace.owners import Owners
from biotrail.converters.inputs.ftrace.snapshots import Snapshots
from biotrail.converters.inputs.ftrace.text_damage import TextDamage
from biotrail.converters.inputs.lost_pages import Block, without_zeros
from biotrail.converters.inputs.text_file import Examples, TextFile
from biotrail.converters.inputs.tracepoints.rows import Batch, Loss, TracepointRows
from biotrail.converters.inputs.tracepoints.source import TracepointSource
from biotrail.converters.inputs.unpacking import beginning
from biotrail.recorder.schema.errors import LogFormatError

_LOOKED_AT = 1 << 12
"""Bytes of what nobody knows that are looked at."""
_NS_DIGITS = 9
_STEPS = {3: "1 ms", 6: "1 µs"}
_ZEROS = -1
"""Kind, beside those of KINDS, of a line with zeros."""
_LOST = re.compile(rb"(?:\S+: +)?CPU:(\d+) \[(?:LOST )?(?:(\d+) )?EVENTS(?: DROPPED)?\]")
_STARTED = re.compile(rb"#+ CPU (\d+) buffer started #+")
_COMMENTS = (b"#", b"cpus=", b"version = ", b"CPU ")
"""Beginnings of lines that the tools write beside events."""
_STACK = re.compile(rb"^(?: => |\s+[0-9a-f]{5,} )")
"""Lines of call chains."""


class TextSource(TracepointSource):
    """Printed events, by the path of a file, which may be a gzip or zstd file, or as a stream."""

    def __init__(self, path: Given) -> None:
        """Open the file.

        Raises LogFormatError: it cannot be opened, or is short and has no event.
        """
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        super().__init__(name or str(getattr(path, "name", "the stream")), "ftrace text")
        self._text = TextFile(path, self.name)
        self.size = self._text.size
        self._reader = LineReader()
        self._snapshots = Snapshots()
        self._damage = TextDamage(self.name)
        self._owners = Owners()
        self._lines = 0
        self._first = -1
        self._newest = -1
        self._before = -1
        """Time (ns) of the last line's event."""
        self._losses: set[Loss] = set()
        self._last: dict[int, int] = {}
        """By CPU: time (ns) of its last line's event."""
        self._digits = _NS_DIGITS
        self._left_out_lines = Examples()
        self._bad_lines = Examples()
        self._blocks = without_zeros(self._text.blocks())
        if name:
            self._refuse_short()

    def _refuse_short(self) -> None:
        """Raise LogFormatError if the file is short, and has no line that may be an event's."""
        begun = list(islice(self._blocks, 2))
        self._blocks = chain(begun, self._blocks)
        data = begun[0].data if begun else self._text.first
        if len(begun) < 2 and b"block_" not in data:
            lines = self._reader.read(data)
            if not any(other.kind != KINDS["no event"] for other in lines.others):
                raise self._nothing_read()

    def batches(self) -> Iterator[Batch]:
        """Yield the events of each block of lines, in the order of the lines.

        Raises LogFormatError: times are counts of a clock that does not count seconds, or
        differences.
        """
        held: Batch | None = None
        for block in self._blocks:
            lines = self._read(block)
            self._text.use(len(lines.time))
            repeats = self._snapshots.repeats(lines, self._lines)
            self._check_times(lines)
            batch = self._batch(block, lines, repeats)
            if held is not None:
                held.complete_to = min(held.complete_to, _earliest(lines.time[~repeats], held))
                yield held
            held = batch
            self._lines += lines.lines
        self.damaged += self._damage.end()
        if held is not None:
            yield held
        self._report()

    def _read(self, block: Block) -> Lines:
        """Return a block's lines, with those of other layouts as if they were of the usual one."""
        block.data = layouts.without_quotes(block.data)
        lines = self._reader.read(block.data)
        pieces, done = [], 0
        for other in lines.others:
            line, at = _whole(block.data, other)
            if not _may_be_unusual(other, line) or (usual := layouts.usual(line)) is None:
                continue
            pieces += [block.data[done:at], usual]
            done = at + len(line)
        if not pieces:
            return lines
        block.data = b"".join([*pieces, block.data[done:]])
        return self._reader.read(block.data)

    def _check_times(self, lines: Lines) -> None:
        """Note how exact times are. Raises LogFormatError: they are no times in seconds."""
        if lines.decimals == 0:
            raise LogFormatError(
                f"{self.name}: times are counts, of the trace clock 'counter' or 'x86-tsc', not "
                "seconds: record with trace_clock 'mono'"
            )
        if self._snapshots.are_differences(lines):
            raise LogFormatError(f"{self.name}: {layouts.DIFFERENCES}")
        if lines.decimals > 0:
            self._digits = min(self._digits, lines.decimals)

    def _batch(self, block: Block, lines: Lines, repeats: Bool) -> Batch:
        """Return the events of a block as a batch, complete up to its newest event."""
        kept = lines.time[~repeats]
        self._newest = max(self._newest, int(kept.max(initial=-1)))
        batch = Batch(self._rows(lines, repeats), self._newest, self._text.offset)
        if self._first < 0 and len(lines.time):
            self._first = int(lines.time[0])
        counted = 0
        for other in self._odd_lines(block, lines):
            up_to = int(np.searchsorted(lines.line, other.line))
            self._pass(lines, counted, up_to)
            self._take(other, lines, batch, block.offset)
            counted = up_to
        self._pass(lines, counted, len(lines.time))
        self._last |= dict(zip(lines.cpu.tolist(), lines.time.tolist(), strict=True))
        return batch

    def _rows(self, lines: Lines, repeats: Bool) -> list[TracepointRows]:
        """Return a block's events by tracepoint, without repeats and what another buffer has."""
        found = []
        names, of = lines.buffers()
        for number, name in enumerate(names):
            rows = lines.rows(self._lines, repeats | (of != number))
            found += [self._owners.kept(row, name.decode("utf-8", "replace")) for row in rows]
        return found

    def _odd_lines(self, block: Block, lines: Lines) -> list[OtherLine]:
        """Return a block's lines that are no events of the block layer's, in order."""
        zeros = [OtherLine(z.line, _ZEROS, bytes(z.size), z.offset) for z in block.zeros]
        return sorted([*lines.others, *zeros], key=lambda other: other.line)

    def _pass(self, lines: Lines, since: int, to: int) -> None:
        """Count the events of the rows since <= row < to; they date the damage before them."""
        if to > since:
            self.damaged += self._damage.dated(int(lines.time[since]))
            self._damage.entries(to - since)
            self._before = int(lines.time[to - 1])

    def _take(self, other: OtherLine, lines: Lines, batch: Batch, offset: int) -> None:
        """Take a line into the batch, or count it. offset: of the block (bytes of the text)."""
        number = self._lines + other.line + 1
        if other.kind == _ZEROS:
            self._damage.place(other.at, number, self._before, len(other.text))
            self.unreadable_bytes += len(other.text)
        elif other.kind == KINDS["other event"]:
            batch.passed_over[other.text.decode("utf-8", "replace")] += 1
            self._damage.entries(1)
        elif other.kind == KINDS["bad event"]:
            self._bad_lines.add(number, other.text)
            self._damage.place(offset + other.at, number, self._before)
            self._damage.entries(1)
        elif (loss := self._loss(other, lines)) is not None:
            self._damage.lost(loss.count)
            if loss not in self._losses:
                self._losses.add(loss)
                batch.losses.append(loss)
        elif (windows := self._damage.header(other.text, number)) is not None:
            self.damaged += windows
        elif not other.text.startswith(_COMMENTS):
            named = layouts.NAMES_BLOCK_EVENT.search(other.text) is not None
            (self._bad_lines if named else self._left_out_lines).add(number, other.text)
            if not _STACK.match(other.text):
                self._damage.place(offset + other.at, number, self._before)

    def _loss(self, other: OtherLine, lines: Lines) -> Loss | None:
        """Return the loss that a line reports; None if it reports none.

        It is between its CPU's events around it. Where a CPU's buffer begins in the middle of the
        text, what it had before was overwritten: a loss since the text's first event.
        """
        text = other.text.strip()
        lost, started = _LOST.fullmatch(text), _STARTED.fullmatch(text)
        match = lost or started
        if match is None:
            return None
        cpu = int(match[1])
        at = int(np.searchsorted(lines.line, other.line))
        own = np.flatnonzero(lines.cpu == cpu)
        place = int(np.searchsorted(own, at))
        before = int(lines.time[own[place - 1]]) if place else self._last.get(cpu, self._first)
        if started:
            before = self._first
        after = int(lines.time[at]) if at < len(lines.time) else before
        start, end = max(before, 0), max(after, 0)
        return Loss(min(start, end), end, cpu, int(match[2] or -1) if lost else -1)

    def _report(self) -> None:
        """Add what is known at the end to `problems` and `remarks`."""
        self.problems += self._text.problems + self._damage.problems()
        self.unreadable_bytes += self._text.unreadable
        if self._bad_lines.count:
            self.problems.append(
                f"{self.name}: left out: {self._bad_lines.count} lines of block events that are "
                f"not understood, {self._bad_lines.first}"
            )
        self._report_order()
        self._remark()

    def _report_order(self) -> None:
        """Add what is there twice, and what is older than the events before it."""
        if count := self._snapshots.repeated:
            self.remarks.append(
                f"{self.name}: {count} lines of events are repetitions of earlier ones, the first "
                f"in line {self._snapshots.first}, as where the same buffer was printed twice: "
                "left out"
            )
        if count := (back := self._snapshots.back).count:
            self.problems.append(
                f"{self.name}: {count} events are older than events of their CPU before them, by "
                f"up to {back.most_ns / 1e9:.6f} s, the first in line {back.first}: another "
                "recording follows there, or lines were put together; kept"
            )

    def _remark(self) -> None:
        """Add the limits of the text to `remarks`."""
        self.remarks += self._owners.remarks(self.name)
        if self._left_out_lines.count:
            self.remarks.append(
                f"{self.name}: {self._left_out_lines.count} lines are no events, "
                f"{self._left_out_lines.first}"
            )
        if self._damage.overwritten:
            self.remarks.append(
                f"{self.name}: {self._damage.overwritten} older events were overwritten before the "
                "buffer was read: record with a larger one (buffer_size_kb)"
            )
        if NO_CPU in self._last:
            self.remarks.append(
                f"{self.name}: CPUs are not printed, so they are not known "
                "(`perf script -F comm,tid,cpu,time,event,trace` prints them)"
            )
        if self._digits < _NS_DIGITS:
            step = _STEPS.get(self._digits, f"{10 ** (_NS_DIGITS - self._digits)} ns")
            self.remarks.append(
                f"{self.name}: times have {self._digits} digits behind the point: durations are "
                f"inexact by {step}; events of the same time are in the order of their lines"
            )

    def _nothing_read(self) -> LogFormatError:
        """Return the error that says why there is no block event, by the lines that there are."""
        odd = b"\n".join([*self._bad_lines.texts, *self._left_out_lines.texts])
        layout = layouts.unreadable(odd)
        names = (name.encode() for name in self.passed_over)
        if layout is None and any(map(layouts.BLK_TRACER.pattern.fullmatch, names)):
            layout = layouts.BLK_TRACER
        if layout is not None:
            return LogFormatError(
                f"{self.name}: its layout is {layout.name}, so no event can be read: "
                f"{layout.instead}"
            )
        if self._bad_lines.count:
            return LogFormatError(
                f"{self.name}: none of its {self._bad_lines.count} lines of block events is "
                f"understood, {self._bad_lines.first}; docs/inputs.md shows the layouts that are "
                "read"
            )
        if self.passed_over or self._damage.zero_bytes:
            return super()._nothing_read()
        return unknown.refusal(self.name, beginning(self._text.first, _LOOKED_AT))


def _earliest(times: I64, held: Batch) -> int:
    """Return the earliest of a block's times (ns); without any the time of the batch before."""
    return int(times.min()) if len(times) else held.complete_to


def _whole(data: bytes, other: OtherLine) -> tuple[bytes, int]:
    """Return the whole line of which `other` has a part, without its end, and its offset."""
    if other.kind != KINDS["other event"]:
        return other.text, other.at
    at = data.rfind(b"\n", 0, other.at) + 1
    return data[at : data.find(b"\n", at)].rstrip(b"\r "), at


def _may_be_unusual(other: OtherLine, line: bytes) -> bool:
    """Return whether a line may hold a block event, or an event's name behind something else."""
    if other.kind == KINDS["other event"]:
        return other.text[:1] == b"(" or other.text.isdigit()
    return other.kind == KINDS["bad event"] or b"block_" in line
