# SPDX-License-Identifier: Apache-2.0
"""Events printed by ftrace, trace-cmd or perf as a Source."""

import os
import re
from collections.abc import Iterator

import numpy as np

from biotrail.converters.inputs import unpacking
from biotrail.converters.inputs.beginning import Given
from biotrail.converters.inputs.ftrace.line_loops import KINDS
from biotrail.converters.inputs.ftrace.lines import LineReader, Lines, OtherLine
from biotrail.converters.inputs.text_file import Examples, TextFile
from biotrail.converters.inputs.tracepoints.rows import Batch, Loss
from biotrail.converters.inputs.tracepoints.source import TracepointSource
from biotrail.recorder.schema.errors import LogFormatError

_RECOGNISED = 1 << 12
"""Bytes of the text by which it is recognised."""
_NS_DIGITS = 9
_STEPS = {3: "1 ms", 6: "1 µs"}
_LOST = re.compile(rb"(?:\S+: +)?CPU:(\d+) \[(?:LOST )?(?:(\d+) )?EVENTS(?: DROPPED)?\]")
_STARTED = re.compile(rb"#+ CPU (\d+) buffer started #+")
_ENTRIES = re.compile(rb"# entries-in-buffer/entries-written: (\d+)/(\d+)")
_EVENT = re.compile(
    rb"^[^\n]{1,200}?(?:\[\d+\]|\d[^\s\[\]]{4,})[^\n]{0,20}? +\d+(?:\.\d{1,9})?: +(?:\w+:)?\w+:",
    re.MULTILINE,
)
"""A line with an event, as far as one can tell from a few lines."""
_COMMENTS = (b"#", b"cpus=", b"version = ", b"CPU ")
"""Beginnings of lines that the tools write beside events."""
_BEGINNINGS = (b"# tracer: ", b"cpus=", b"CPU:", b"#           TASK-PID")


def is_text(first: bytes) -> bool:
    """Return whether these first bytes are printed events, perhaps of a gzip or zstd file."""
    first = unpacking.beginning(first, _RECOGNISED)
    if b"\0" in first:
        return False
    return first.startswith(_BEGINNINGS) or _EVENT.search(first) is not None


class TextSource(TracepointSource):
    """Printed events, by the path of a file, which may be a gzip or zstd file, or as a stream."""

    def __init__(self, path: Given) -> None:
        """Open the file. Raises LogFormatError: it cannot be opened."""
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        super().__init__(name or str(getattr(path, "name", "the stream")), "ftrace text")
        self._text = TextFile(path, self.name)
        self.size = self._text.size
        self._reader = LineReader()
        self._lines = 0
        self._first = -1
        self._last: dict[int, int] = {}
        self._digits = _NS_DIGITS
        self._overwritten = 0
        self._left_out_lines = Examples()
        self._bad_lines = Examples()

    def batches(self) -> Iterator[Batch]:
        """Yield the events of each block of lines, in the order of the lines.

        Raises LogFormatError: times are counts of a clock that does not count seconds.
        """
        held: Batch | None = None
        for data in self._text.blocks():
            lines = self._reader.read(data, self._lines)
            self._text.use(len(lines.time))
            self._check_times(lines)
            batch = self._batch(lines)
            if held is not None:
                held.complete_to = min(held.complete_to, _first_time(lines, held.complete_to))
                yield held
            held = batch
            self._lines += lines.lines
        if held is not None:
            yield held
        self._report()

    def _check_times(self, lines: Lines) -> None:
        """Note how exact times are. Raises LogFormatError: they are no seconds."""
        if lines.decimals == 0:
            raise LogFormatError(
                f"{self.name}: times are counts, of the trace clock 'counter' or 'x86-tsc', not "
                "seconds: record with trace_clock 'mono'"
            )
        if lines.decimals > 0:
            self._digits = min(self._digits, lines.decimals)

    def _batch(self, lines: Lines) -> Batch:
        """Return the events of a block as a batch, complete up to its newest event."""
        newest = max([*self._last.values(), *lines.time.max(initial=0, keepdims=True).tolist()])
        batch = Batch(lines.rows, newest, self._text.offset)
        if self._first < 0 and len(lines.time):
            self._first = int(lines.time[0])
        for other in lines.others:
            number = self._lines + other.line + 1
            if other.kind == KINDS["other event"]:
                batch.passed_over[other.text.decode("utf-8", "replace")] += 1
            elif other.kind == KINDS["bad event"]:
                self._bad_lines.add(number, other.text)
            elif (loss := self._loss(other, lines)) is not None:
                batch.losses.append(loss)
            elif entries := _ENTRIES.match(other.text):
                self._overwritten = max(int(entries[2]) - int(entries[1]), 0)
            elif not other.text.startswith(_COMMENTS):
                self._left_out_lines.add(number, other.text)
        self._last |= dict(zip(lines.cpu.tolist(), lines.time.tolist(), strict=True))
        return batch

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
        self.problems += self._text.problems
        self.unreadable_bytes += self._text.unreadable
        if self._bad_lines.count:
            self.problems.append(
                f"{self.name}: left out: {self._bad_lines.count} lines of block events whose "
                f"fields are not understood, {self._bad_lines.first}"
            )
        if self._left_out_lines.count:
            self.remarks.append(
                f"{self.name}: {self._left_out_lines.count} lines are no events, "
                f"{self._left_out_lines.first}"
            )
        if self._overwritten:
            self.remarks.append(
                f"{self.name}: {self._overwritten} older events were overwritten before the "
                "buffer was read: record with a larger one (buffer_size_kb)"
            )
        if self._digits < _NS_DIGITS:
            step = _STEPS.get(self._digits, f"{10 ** (_NS_DIGITS - self._digits)} ns")
            self.remarks.append(
                f"{self.name}: times have {self._digits} digits behind the point: durations are "
                f"inexact by {step}; events of the same time are in the order of their lines"
            )


def _first_time(lines: Lines, otherwise: int) -> int:
    """Return the earliest time (ns) of a block's events; `otherwise` if it has none."""
    return int(lines.time.min()) if len(lines.time) else otherwise
