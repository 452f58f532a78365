# SPDX-License-Identifier: Apache-2.0
"""Events printed by ftrace, trace-cmd or perf as a Source."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np

from biotrail.converters.events.tables import I64, NO_CPU, U64, Bool
from biotrail.converters.inputs.beginning import UTF8_MARK, PathOrStream, refusal
from biotrail.converters.inputs.foreign import ForeignSource
from biotrail.converters.inputs.ftrace import text_layouts as layouts
from biotrail.converters.inputs.line_loops import KINDS
from biotrail.converters.inputs.lines import Examples, LineReader, Lines, OtherLine, TextFile, texts
from biotrail.converters.inputs.tracepoints import Batch, Loss, Owners, TracepointSource
from biotrail.converters.inputs.translate import Column, TracepointRows
from biotrail.converters.inputs.unpacking import beginning
from biotrail.recorder.schema.block_events import KIND_OF
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import Kind

_SHAPE_OF = {
    **dict.fromkeys((Kind.Q, Kind.G, Kind.M, Kind.F), "bio"),
    Kind.BIO_COMPLETE: "bio error",
    **dict.fromkeys((Kind.I, Kind.D, Kind.RQ_MERGE, Kind.START, Kind.DONE), "request"),
    **dict.fromkeys((Kind.C, Kind.E, Kind.R), "request error"),
    Kind.X: "split",
    **dict.fromkeys((Kind.A, Kind.RQ_REMAP), "remap"),
    Kind.P: "plug",
    Kind.U: "unplug",
}
SHAPES = {name: _SHAPE_OF[kind] for name, kind in KIND_OF.items() if kind in _SHAPE_OF}
_EVENTS = list(SHAPES)
_TEXTS = {"rwbs": 8, "comm": 16}
_WITH_RWBS = ("dev", "rwbs", "sector")
_COLUMNS: dict[str, tuple[str, ...]] = {
    "bio": (*_WITH_RWBS, "nr_sector", "comm"),
    "bio error": (*_WITH_RWBS, "nr_sector", "error"),
    "request": (*_WITH_RWBS, "nr_sector", "bytes", "comm"),
    "request error": (*_WITH_RWBS, "nr_sector", "error"),
    "split": (*_WITH_RWBS, "new_sector", "comm"),
    "remap": (*_WITH_RWBS, "nr_sector", "old_dev", "old_sector"),
    "plug": ("comm",),
    "unplug": ("comm", "nr_rq"),
}
_MOST_BUFFERS = 64
_LOST_OF_BUFFER = re.compile(rb"([^\s:\[\]]+): +CPU:\d+ \[")
_BUFFER = re.compile(rb"([^\s:\[\]]+): +(?=\S)")
_BUFFER_BELOW = re.compile(rb"\n([^\s:\[\]]+): +(?=\S)")
_PRIME = np.uint64(0x9E3779B97F4A7C15)
_IDENTIFYING = (
    *("time", "cpu", "pid", "event", "dev", "sector", "nr_sector"),
    *("bytes", "old_dev", "old_sector", "error"),
)


@dataclass
class EventLines(Lines):
    @property
    def decimals(self) -> int:
        return int(self.column("decimals").min()) if len(self) else -1

    def buffers(self) -> tuple[list[bytes], I64]:
        """Return the names of ftrace's buffers, and which one each event, (n,), is of.

        trace-cmd writes an instance's name and a colon before its lines, but not before the one
        that follows its line on lost events; the top buffer is b"".
        """
        of = np.zeros(len(self), np.int64)
        if _BUFFER.match(self.data) is None and _BUFFER_BELOW.search(self.data) is None:
            return [b""], of
        names: dict[bytes, int] = {}
        lines = self.data.split(b"\n")
        for row, line in enumerate(self.line.tolist()):
            match = _BUFFER.match(lines[line]) or _LOST_OF_BUFFER.match(lines[max(line - 1, 0)])
            of[row] = names.setdefault(match[1] if match else b"", len(names))
        if len(names) > _MOST_BUFFERS:
            return [b""], np.zeros_like(of)
        return list(names), of

    def rows(self, before: int, without: Bool) -> list[TracepointRows]:
        """Return the events by tracepoint, without those of the mask, (n,)."""
        event = np.where(without, len(_EVENTS), self.column("event").view(np.int64))
        rows = []
        for index in np.flatnonzero(np.bincount(event)[: len(_EVENTS)]).tolist():
            at = np.flatnonzero(event == index)
            tgid, pid = self.column("tgid")[at], self.column("pid")[at].view(np.int64)
            columns: dict[str, Column] = {}
            for name in _COLUMNS[SHAPES[_EVENTS[index]]]:
                if name in _TEXTS:
                    columns[name] = texts(self, name, _TEXTS[name], at)
                else:
                    number = self.column(name)[at]
                    columns[name] = number.view(np.int64) if name == "error" else number
            rows.append(
                TracepointRows(
                    _EVENTS[index],
                    self.time[at],
                    self.column("cpu")[at],
                    pid,
                    self.line[at] + before,
                    columns,
                    np.where(tgid == 0, pid, tgid) if tgid.any() else None,
                )
            )
        return rows


_LOOKED_AT = 1 << 12
_STEPS = {3: "1 ms", 6: "1 µs"}
_ZEROS = -1  # kind, beside those of KINDS, of a line with zeros
_LOST = re.compile(rb"(?:\S+: +)?CPU:(\d+) \[(?:LOST )?(?:(\d+) )?EVENTS(?: DROPPED)?\]")
_BEGINNING = 1 << 16
"""Bytes of a block within which a mail's own words end."""
_QUOTES = re.compile(rb"^(?:> ?)+", re.MULTILINE)
"""The marks by which mail quotes lines."""
_STARTED = re.compile(rb"#+ CPU (\d+) buffer started #+")
_COMMENTS = (b"#", b"cpus=", b"version = ", b"CPU ")
"""Beginnings of lines that the tools write beside events."""
_STACK = re.compile(rb"^(?: => |\s+[0-9a-f]{5,} )")


class TextSource(TracepointSource):
    """Printed events, by the path of a file, which may be a gzip or zstd file, or as a stream."""

    def __init__(self, path: PathOrStream) -> None:
        super().__init__(path, "ftrace text")
        self._text = TextFile(path, self)
        self._reader = LineReader(EventLines, SHAPES)
        self._snapshots = Snapshots()
        self._damage = TextDamage(self)
        self._owners = Owners()
        self._lines = self._events = 0
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
        if isinstance(path, str | os.PathLike):  # a short text without an event is refused
            begun = list(islice(self._blocks, 2))
            self._blocks = chain(begun, self._blocks)
            data = begun[0].data if begun else self._text.first
            if len(begun) < 2 and b"block_" not in data:
                others = self._reader.read(data).others
                if not any(other.kind != KINDS["no event"] for other in others):
                    raise self._nothing_read()

    def batches(self) -> Iterator[Batch]:
        """Yield the events of each block of lines, in the order of the lines."""
        held: Batch | None = None
        for block in self._blocks:
            lines = self._read(block)
            self._text.use(len(lines.time))
            repeats = self._snapshots.repeats(lines, self._lines)
            self._events += len(lines)
            if lines.decimals == 0:
                raise LogFormatError(
                    f"{self.name}: times are counts, of the trace clock 'counter' or 'x86-tsc', "
                    "not seconds: record with trace_clock 'mono'"
                )
            small = len(lines) > 0 and float(np.median(lines.time)) < _AS_DIFFERENCES_NS
            back = self._snapshots.older >= _SHARE_BACK * (self._events - 1)
            if self._events >= _SOME and back and small:
                raise LogFormatError(f"{self.name}: {layouts.DIFFERENCES}")
            if lines.decimals > 0:
                self._digits = min(self._digits, lines.decimals)
            batch = self._batch(block, lines, repeats)
            if held is not None:
                times = lines.time[~repeats]
                held.complete_to = int(times.min(initial=held.complete_to))
                yield held
            held = batch
            self._lines += lines.lines
        self._damage.date(-1)
        self._damage.end_section()
        if held is not None:
            yield held
        self._report()

    def _read(self, block: "Block") -> EventLines:
        """Return a block's lines, with those of other layouts as if they were of the usual one."""
        data = block.data
        quoted = data.startswith(b">") or b"\n>" in data[:_BEGINNING]
        if quoted and 2 * (data.count(b"\n>") + data.startswith(b">")) >= data.count(b"\n"):
            block.data = _QUOTES.sub(b"", data)
        lines = self._reader.read(block.data)
        pieces, done = [], 0
        for other in lines.others:
            line, at = other.text, other.at
            if other.kind == KINDS["other event"]:  # its text is the name alone
                at = block.data.rfind(b"\n", 0, other.at) + 1
                line = block.data[at : block.data.find(b"\n", at)].rstrip(b"\r ")
                unusual = other.text[:1] == b"(" or other.text.isdigit()
            else:
                unusual = other.kind == KINDS["bad event"] or b"block_" in line
            if unusual and (usual := layouts.usual(line)) is not None:
                pieces += [block.data[done:at], usual]
                done = at + len(line)
        if not pieces:
            return lines
        block.data = b"".join([*pieces, block.data[done:]])
        return self._reader.read(block.data)

    def _batch(self, block: "Block", lines: EventLines, repeats: Bool) -> Batch:
        kept = lines.time[~repeats]
        self._newest = max(self._newest, int(kept.max(initial=-1)))
        rows = []
        names, of = lines.buffers()
        for number, name in enumerate(names):
            buffer = name.decode("utf-8", "replace")
            found = lines.rows(self._lines, repeats | (of != number))
            rows += [self._owners.kept(row, buffer) for row in found]
        batch = Batch(rows, self._newest, self._text.offset)
        if self._first < 0 and len(lines.time):
            self._first = int(lines.time[0])
        counted = 0
        for other in sorted([*lines.others, *block.zeros], key=lambda other: other.line):
            up_to = int(np.searchsorted(lines.line, other.line))
            self._pass(lines, counted, up_to)
            self._take(other, lines, batch, block.offset)
            counted = up_to
        self._pass(lines, counted, len(lines.time))
        self._last |= dict(zip(lines.cpu.tolist(), lines.time.tolist(), strict=True))
        return batch

    def _pass(self, lines: EventLines, since: int, to: int) -> None:
        """Count the events of the rows since <= row < to; they date the damage before them."""
        if to > since:
            self._damage.date(int(lines.time[since]))
            self._damage.section.read += to - since
            self._before = int(lines.time[to - 1])

    def _take(self, other: OtherLine, lines: EventLines, batch: Batch, offset: int) -> None:
        """Take a line into the batch, or count it. offset: of the block (bytes of the text)."""
        number = self._lines + other.line + 1
        damage = self._damage
        if other.kind == _ZEROS:
            damage.place(other.at, number, self._before, len(other.text))
            self.unreadable_bytes += len(other.text)
        elif other.kind == KINDS["other event"]:
            batch.passed_over[other.text.decode("utf-8", "replace")] += 1
            damage.section.read += 1
        elif other.kind == KINDS["bad event"]:
            self._bad_lines.add(number, other.text)
            damage.place(offset + other.at, number, self._before)
            damage.section.read += 1
        elif (loss := self._loss(other, lines)) is not None:
            damage.section.lost += max(loss.lost, 0)
            if loss not in self._losses:
                self._losses.add(loss)
                batch.losses.append(loss)
        elif not damage.header(other.text, number) and not other.text.startswith(_COMMENTS):
            named = layouts.NAMES_BLOCK_EVENT.search(other.text) is not None
            (self._bad_lines if named else self._left_out_lines).add(number, other.text)
            if not _STACK.match(other.text):
                damage.place(offset + other.at, number, self._before)

    def _loss(self, other: OtherLine, lines: EventLines) -> Loss | None:
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
        snapshots, bad, left_out = self._snapshots, self._bad_lines, self._left_out_lines
        self._damage.report()
        if bad.count:
            self.problem(
                f"left out: {bad.count} lines of block events that are not understood, {bad.first}"
            )
        if snapshots.older:
            self.problem(
                f"{snapshots.older} events are older than events of their CPU before them, by up "
                f"to {snapshots.older_by / 1e9:.6f} s, the first in line {snapshots.first_older}: "
                "another recording follows there, or lines were put together; kept"
            )
        if snapshots.repeated:
            self.remark(
                f"{snapshots.repeated} lines of events are repetitions of earlier ones, the first "
                f"in line {snapshots.first}, as where the same buffer was printed twice: left out"
            )
        self.remarks += self._owners.remarks(self.name)
        if left_out.count:
            self.remark(f"{left_out.count} lines are no events, {left_out.first}")
        if self._damage.overwritten:
            self.remark(
                f"{self._damage.overwritten} older events were overwritten before the buffer was "
                "read: record with a larger one (buffer_size_kb)"
            )
        if NO_CPU in self._last:
            self.remark(
                "CPUs are not printed, so they are not known "
                "(`perf script -F comm,tid,cpu,time,event,trace` prints them)"
            )
        if self._digits < _NS_DIGITS:
            step = _STEPS.get(self._digits, f"{10 ** (_NS_DIGITS - self._digits)} ns")
            self.remark(
                f"times have {self._digits} digits behind the point: durations are inexact by "
                f"{step}; events of the same time are in the order of their lines"
            )

    def _nothing_read(self) -> LogFormatError:
        odd = b"\n".join([*self._bad_lines.texts, *self._left_out_lines.texts])
        layout = next((one for one in layouts.UNREADABLE if one.pattern.search(odd)), None)
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
        if self.passed_over or self._damage.zeros:
            return super()._nothing_read()
        return refusal(self.name, beginning(self._text.first, _LOOKED_AT))


# Zeros in a text: left by a page that was not written before the machine went down.


@dataclass
class Block:
    """Whole lines. offset: bytes of the text before them.

    zeros: lines with zeros, which are left empty here: `text` has these, `at` their offset in the
    text.
    """

    data: bytes
    offset: int
    zeros: list[OtherLine] = field(default_factory=list)


def without_zeros(blocks: Iterable[bytes]) -> Iterator[Block]:
    """Yield blocks whose lines with zeros are empty, and the text is without UTF-8's mark."""
    offset = 0
    for data in blocks:
        plain = data if offset else data.removeprefix(UTF8_MARK)
        block = Block(plain, offset + len(data) - len(plain))
        offset += len(data)
        pieces: list[bytes] = []
        line = done = 0
        at = plain.find(b"\0")
        while at >= 0:
            begin, end = plain.rfind(b"\n", 0, at) + 1, plain.find(b"\n", at)
            line += plain.count(b"\n", done, begin)
            zeros = bytes(plain.count(b"\0", at, end))
            block.zeros.append(OtherLine(line, _ZEROS, zeros, block.offset + at))
            pieces.append(plain[done:begin])
            done, at = end, plain.find(b"\0", end)
        if pieces:
            block.data = b"".join([*pieces, plain[done:]])
        yield block


# Events that a text has twice, and times that go back on a CPU.
#
# `cat trace >> all.txt` prints what is in the buffer anew each time. A CPU's events are printed in
# the order of their times, so a second copy begins where they go back; an event from there on that
# was there before, with all its fields, is the same one.

_MOST_KEPT = 1 << 23
"""Events that are remembered: more than the buffers of a machine hold."""
_MOST_IN_RUN = 1 << 20
_NS_DIGITS = 9
_SOME = 3
_SHARE_BACK = 0.25
_AS_DIFFERENCES_NS = 1_000_000_000


@dataclass
class _Seen:
    """Keys of the newest events: sorted runs, older first, and keys that are not sorted yet."""

    runs: list[U64] = field(default_factory=list)
    fresh: list[U64] = field(default_factory=list)
    count: int = 0

    def add(self, keys: U64) -> None:
        self.fresh.append(keys)
        self.count += len(keys)
        if sum(map(len, self.fresh)) >= _MOST_IN_RUN:
            self._sort()

    def has(self, keys: U64) -> Bool:
        self._sort()
        found = np.zeros(len(keys), np.bool_)
        for run in self.runs:
            at = np.minimum(np.searchsorted(run, keys), len(run) - 1)
            found |= run[at] == keys
        return found

    def _sort(self) -> None:
        """Make a run of the fresh keys, and one of neighbours that are of like size."""
        fresh = np.concatenate(self.fresh) if self.fresh else np.zeros(0, np.uint64)
        self.fresh = []
        if len(fresh):
            self.runs.append(np.sort(fresh))
        while len(self.runs) > 1:
            one, other = self.runs[-2:]
            if len(one) > 2 * len(other) or len(one) + len(other) > _MOST_IN_RUN:
                break
            self.runs[-2:] = [np.sort(np.concatenate([one, other]))]
        while self.count > _MOST_KEPT and len(self.runs) > 1:
            self.count -= len(self.runs.pop(0))


class Snapshots:
    """Finds events that are there twice, and events that are older than others before them.

    repeated: number of events that were there before; first: the line (from 1) of one. older,
    first_older: the same of events that are older than one of their CPU before them; older_by: ns,
    at most.
    """

    def __init__(self) -> None:
        self.repeated = 0
        self.first = 0
        self.older = self.older_by = self.first_older = 0
        self._newest: dict[int, int] = {}
        """By CPU: time (ns) of its newest event so far."""
        self._behind: set[int] = set()
        """CPUs whose newest event was there before their last line, in an earlier copy."""
        self._seen = _Seen()

    def repeats(self, lines: EventLines, before: int) -> Bool:
        """Return which events of a block, (n,), were there before.

        before: number of lines before the block. Of times with ns, two events of one CPU and time
        are one; others have to be behind a time that goes back.
        """
        by = np.zeros(len(lines.time), np.int64)
        again = np.zeros(len(lines.time), np.bool_)
        exact = lines.decimals == _NS_DIGITS
        for cpu in np.unique(lines.cpu).tolist():
            at = np.flatnonzero(lines.cpu == cpu)
            # By how much the CPU's events are older than its newest one before them. Those that are
            # may have been there before, as may those of the newest time behind an older one, or,
            # where times are exact, all of that time.
            newest = np.concatenate([[self._newest.get(cpu, -1)], lines.time[at]])
            newest = np.maximum.accumulate(newest)
            older = newest[:-1] - lines.time[at]
            self._newest[cpu] = int(newest[-1])
            if (older < 0).all():
                self._behind.discard(cpu)
                continue
            # A copy goes on with the events of the newest time; it is over with one that is newer.
            decided = np.maximum.accumulate(np.where(older != 0, np.arange(1, len(at) + 1), 0))
            behind = np.where(decided > 0, older[decided - 1] > 0, cpu in self._behind)
            if behind[-1]:
                self._behind.add(cpu)
            else:
                self._behind.discard(cpu)
            by[at] = np.maximum(older, 0)
            again[at] = (older > 0) | ((older == 0) & (behind | exact))
        # A number for each event, of all but its thread's name, which ftrace forgets.
        keys = np.zeros(len(lines), np.uint64)
        for name in _IDENTIFYING:
            keys = (keys ^ lines.column(name)) * _PRIME
            keys ^= keys >> np.uint64(29)
        self._seen.add(keys[~again])
        rows = np.flatnonzero(again)
        if len(rows):
            again[rows] = self._seen.has(keys[rows])
            kept = rows[~again[rows]]
            self._seen.add(keys[kept])
            late = kept[by[kept] > 0]
            if len(late):
                self.first_older = self.first_older or int(lines.line[late[0]]) + before + 1
                self.older += len(late)
                self.older_by = max(self.older_by, int(by[late].max()))
        if again.any():
            self.first = self.first or int(lines.line[again][0]) + before + 1
            self.repeated += int(np.count_nonzero(again))
        return again


# Damage of a text: zeros where a page was lost, and fewer events than ftrace's header counts.
#
# Damage is dated by the events before and behind it, so that it waits for the next event. Between
# two events there is one place, however many lines are damaged there.

_ENTRIES = re.compile(
    rb"# (?:entries-in-buffer/entries-written: (\d+)/(\d+)|latency: \d+ us, #(\d+)/(\d+),)"
)
_NAMED_AT_MOST = 8


@dataclass
class _Place:
    """A damaged place. line: from 1. zeros: bytes of zeros there, 0 for a line that is odd."""

    offset: int
    line: int
    start: int
    zeros: int = 0
    end: int = -1

    @property
    def where(self) -> str:
        if self.end < 0:
            return f"in line {self.line}"
        return f"between events at {self.start / 1e9:.6f} and {self.end / 1e9:.6f} s"


@dataclass
class _Section:
    """What follows a header of ftrace. counted: entries that it counts, -1: there is no header."""

    counted: int = -1
    line: int = 0
    read: int = 0
    lost: int = 0
    places: list[_Place] = field(default_factory=list)


class TextDamage:
    """The damaged places of a text, met line by line.

    zeros: places with zeros. overwritten: number of older events that ftrace says it had
    overwritten.
    """

    def __init__(self, source: ForeignSource) -> None:
        self._source = source
        self.overwritten = 0
        self.section = _Section()
        self.zeros: list[_Place] = []
        self._open: _Place | None = None
        self._short: list[str] = []

    def header(self, text: bytes, line: int) -> bool:
        """Return whether a line (from 1) is a header with counts, and begin a section then."""
        if (match := _ENTRIES.match(text)) is None:
            return False
        counted, written = int(match[1] or match[3]), int(match[2] or match[4])
        self.overwritten = max(written - counted, 0)
        self.end_section()
        self.section = _Section(counted, line)
        return True

    def place(self, offset: int, line: int, last: int, zeros: int = 0) -> None:
        """Note a damaged line at `offset`. last: time (ns) of the event before it, -1: none.

        zeros: how many of its bytes are zeros; without any it is odd, which matters where a header
        counts what there should be.
        """
        if not zeros and self.section.counted < 0:
            return
        if self._open is None:
            self._open = _Place(offset, line, last)
            self.section.places += [self._open] if self.section.counted >= 0 else []
        if zeros and not self._open.zeros:
            self._open.offset, self._open.line = offset, line
            self.zeros.append(self._open)
        self._open.zeros += zeros

    def date(self, first: int) -> None:
        """Date the last place by the next event's time (ns); -1: there is none."""
        place, self._open = self._open, None
        if place is None:
            return
        known = [time for time in (place.start, first) if time >= 0] or [0]
        place.start = known[0]
        place.end = max(known[-1], place.start)
        if place.zeros:
            self._source.add_damage(place.offset, place.start, place.end)

    def report(self) -> None:
        for place in self.zeros[:_NAMED_AT_MOST]:
            self._source.problem(
                f"{place.zeros:,} bytes of zeros at byte {place.offset:,} of the text "
                f"(line {place.line}), {place.where}: a part of the file was lost; copy it again"
            )
        if more := self.zeros[_NAMED_AT_MOST:]:
            self._source.problem(
                f"{sum(p.zeros for p in more):,} bytes of zeros at {len(more)} further places"
            )
        for text in self._short:
            self._source.problem(text)

    def end_section(self) -> None:
        one = self.section
        missing = one.counted - one.read - one.lost
        if one.counted < 0 or missing <= 0:
            return
        where = "where is not known"
        if len(one.places) == 1:
            where = one.places[0].where
        elif one.places:
            where = f"at {len(one.places)} places, the first in line {one.places[0].line}"
        self._short.append(
            f"ftrace's header in line {one.line} counts {one.counted:,} entries, and "
            f"{one.read:,} are here: {missing:,} are missing, {where}: the text was cut, or lines "
            "were taken out of it"
        )
        for place in one.places:
            if not place.zeros and place.end >= 0:
                self._source.add_damage(place.offset, place.start, place.end)
