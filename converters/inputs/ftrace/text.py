# SPDX-License-Identifier: Apache-2.0
"""Events printed by ftrace, trace-cmd or perf as a Source."""

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

import numpy as np

from biotrail.converters.inputs.beginning import Beginning, Given, begin
from biotrail.converters.inputs.ftrace.line_loops import KINDS
from biotrail.converters.inputs.ftrace.lines import LineReader, Lines, OtherLine
from biotrail.converters.inputs.tracepoints.rows import Batch, Loss
from biotrail.converters.inputs.tracepoints.source import TracepointSource
from biotrail.recorder.log.frames import most_raw
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.strings import shown

BLOCK_BYTES = 1 << 20
_LONGEST_LINE = 1 << 16
_GZIP = b"\x1f\x8b"
_NS_DIGITS = 9
_STEPS = {3: "1 ms", 6: "1 µs"}
_SHOWN = 60
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
    """Return whether these first bytes are printed events, perhaps of a gzip file."""
    if first.startswith(_GZIP):
        try:
            first = zlib.decompressobj(wbits=31).decompress(first, 1 << 12)
        except zlib.error:
            return False
    if b"\0" in first:
        return False
    return first.startswith(_BEGINNINGS) or _EVENT.search(first) is not None


class TextSource(TracepointSource):
    """Printed events, by the path of a file, which may be a gzip file, or as a stream."""

    def __init__(self, path: Given) -> None:
        """Open the file. Raises LogFormatError: it cannot be opened."""
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        super().__init__(name or str(getattr(path, "name", "the stream")), "ftrace text")
        beginning = begin(path)
        self._owned = beginning.path is not None
        self._file, self.size = _open(beginning, self.name)
        self._stream = _plain(self._file, beginning.first)
        self._reader = LineReader()
        self._gained = 0
        self._ended = False
        self._lines = 0
        self._first = -1
        self._last: dict[int, int] = {}
        self._digits = _NS_DIGITS
        self._overwritten = 0
        self._left_out_lines = _Examples()
        self._bad_lines = _Examples()

    def batches(self) -> Iterator[Batch]:
        """Yield the events of each block of lines, in the order of the lines.

        Raises LogFormatError: times are counts of a clock that does not count seconds.
        """
        held: Batch | None = None
        for data in self._blocks():
            lines = self._reader.read(data, self._lines)
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

    def _blocks(self) -> Iterator[bytes]:
        """Yield whole lines, about BLOCK_BYTES at a time; a last line without end is left out.

        A line that is longer than any event's is cut off, and counts as no event.
        """
        rest = b""
        while data := self._next():
            data = rest + data
            end = data.rfind(b"\n") + 1
            if not end and len(data) > _LONGEST_LINE:
                data, end = data + b"\n", len(data) + 1
            rest = data[end:]
            if end:
                yield data[:end]
        if rest:
            self.unreadable_bytes += len(rest)
            self.problems.append(
                f"{self.name}: line {self._lines + 1} has no end: the file is cut off there; left "
                "out"
            )

    def _next(self) -> bytes:
        """Return the next bytes, about BLOCK_BYTES; empty at the end.

        A gzip file that is damaged ends there, with a problem.
        """
        pieces: list[bytes] = []
        while not self._ended and sum(map(len, pieces)) < BLOCK_BYTES:
            try:
                pieces.append(self._piece())
            except (OSError, EOFError, zlib.error) as error:
                self._ended = True
                self.problems.append(
                    f"{self.name}: cannot be read on behind byte {self._gained} of the text "
                    f"({error}): copy the file again; what is before is kept"
                )
                break
            self._ended = not pieces[-1]
        return b"".join(pieces)

    def _piece(self) -> bytes:
        """Return the next bytes; empty at the end. Raises OSError, EOFError, zlib.error."""
        if not isinstance(self._stream, gzip.GzipFile):
            data = self._stream.read(BLOCK_BYTES)
        else:
            # Of a file that is cut off, `read` would return nothing.
            data = self._stream.read1(BLOCK_BYTES)
            if self._gained + len(data) > most_raw(self._file.tell()) + BLOCK_BYTES:
                raise zlib.error("more text than such a file can have")
        self._gained += len(data)
        return data

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
        batch = Batch(lines.rows, newest, self._offset())
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

    def _offset(self) -> int:
        """Return how many bytes of the file were read so far."""
        return self._gained if self._stream is self._file else self._file.tell()

    def _report(self) -> None:
        """Add what is known at the end to `problems` and `remarks`."""
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
        if self._owned:
            self._file.close()


class _Examples:
    """How many lines were left out, and the first one."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def add(self, number: int, text: bytes) -> None:
        """Count a line, of a number from 1 on."""
        if not self.count:
            words = text[:_SHOWN].decode("utf-8", "backslashreplace")
            self.first = f"the first in line {number}: {shown(words)!r}"
        self.count += 1


def _first_time(lines: Lines, otherwise: int) -> int:
    """Return the earliest time (ns) of a block's events; `otherwise` if it has none."""
    return int(lines.time.min()) if len(lines.time) else otherwise


def _open(beginning: Beginning, name: str) -> tuple[BinaryIO, int]:
    """Return the file or stream, and its size in bytes, -1 unknown. Raises LogFormatError."""
    path = beginning.path
    if path is None:
        return cast(BinaryIO, beginning.given), -1
    try:
        stream = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise LogFormatError(
            f"{name}: cannot be opened: {error.strerror or error}; give a file with printed events"
        ) from error
    return stream, os.fstat(stream.fileno()).st_size or -1


def _plain(stream: BinaryIO, first: bytes) -> BinaryIO | gzip.GzipFile:
    """Return a stream of the text in `stream`, which may be a gzip file and begins with `first`."""
    return gzip.GzipFile(fileobj=stream) if first.startswith(_GZIP) else stream
