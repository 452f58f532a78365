# SPDX-License-Identifier: Apache-2.0
"""Where a recording goes: one log, a series of logs of which each is readable alone, or memory.

The writer thread writes to a sink; the poll loop calls `due` meanwhile.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, BinaryIO, NamedTuple

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.loss import Losses, Window
from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.log import LogWriter, Segment, names
from biotrail.recorder.log.chunks import first_time
from biotrail.recorder.log.names import NameRecords
from biotrail.recorder.log.writer import Packed, Packer
from biotrail.recorder.output.folders import explain
from biotrail.recorder.output.output import NewFile
from biotrail.recorder.output.series import Background, Facts, Series, removed, shifted
from biotrail.recorder.probes.backend import ProgramInfo
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.payloads import Clock, End, Header, Note

Programs = Callable[[], list[ProgramInfo]]
"""Returns the probes' programs with their counters."""


@dataclass(frozen=True)
class Limit:
    """A limit of bytes, seconds, or both: whichever is reached first. None: not limited by that."""

    bytes: int | None = None
    seconds: float | None = None


class SeriesSink:
    """What sinks have in common that write several files."""

    def __init__(
        self, series: Series, header: Header, limit: Limit, programs: Programs, level: int
    ) -> None:
        """`header`: the recording's, of which each file's is a copy with changes."""
        self.series = series
        self._limit = limit
        self._programs = programs
        self._level = level
        self._packer = self.new_packer()
        self._background = Background(header)
        self._run = header["log_id"]
        self._clock: Clock = header["clocks"]
        self._began = cost.read(programs())

    def _begin(self, new: NewFile, header: Header, facts: Facts, *, sync: bool) -> LogWriter:
        """Write the header to a new file, give the file its name, repeat the facts in it."""
        try:
            name = self.series.next
            log = LogWriter(new.stream, header, level=self._level, sync=sync, name=name)
            self.series.publish(new)
        except (OSError, OutputError):
            new.give_up()
            raise
        facts.write(log)
        return log

    def new_packer(self) -> Packer:
        return Packer(self._level)


class RotatingLog(SeriesSink):
    """A sink that writes a series of logs, of which each is readable alone.

    After `rotate` the next file is made when its first chunk comes, so that the header's time is
    not later than any event in the file.
    """

    def __init__(
        self,
        series: Series,
        header: Header,
        limit: Limit,
        programs: Programs,
        level: int,
        sync: bool,
    ) -> None:
        """Make the first file of `series`. `limit`: of each file. Raises OutputError or OSError."""
        super().__init__(series, header, limit, programs, level)
        self._sync = sync
        self._waiting: list[Window] = []
        self._log: LogWriter | None = None
        self._stream: BinaryIO | None = None
        self._open(self._clock)

    def _open(self, clock: Clock) -> LogWriter:
        """Begin the next file: header, repeated facts, and losses that wait for a file."""
        self.release()
        new = self.series.create()
        self._stream = new.stream
        number: Header = {"series": {"run": self._run, "number": self.series.made + 1}}
        header, facts = self._background.begin(clock, number)
        self._log = log = self._begin(new, header, facts, sync=self._sync)
        self._losses = Losses()
        self.series.delete_old()
        if self._waiting:
            self.write_loss(self._waiting)
            self._waiting = []
        return log

    def write_chunk(
        self, segments: Sequence[Segment], clock: Clock, packed: Sequence[Packed] | None = None
    ) -> int:
        """Write a chunk to the present file, or to a new one after `rotate`; return its bytes.

        A new file begins at the border between both, or earlier if a record is older.
        """
        if packed is None:
            packed = self._packer.chunks(segments, clock)
        log = self._log
        if log is None:
            border = first_time(segments, self._clock["monotonic"])
            log = self._open(shifted(self._clock, border))
        size = log.write_chunk(segments, clock, packed)
        for records in names.repeatable([one.names for one in packed], segments):
            self._background.names.update(records)
        self._clock = clock
        return size

    def write_loss(self, windows: list[Window]) -> None:
        """Write loss windows to the present file; between two files keep them for the next."""
        if self._log is None:
            self._waiting += windows
        else:
            self._log.write_loss(windows)
            self._losses.add(windows)

    def write_note(self, name: str, payload: Note) -> None:
        """Write a note to the present file, if any; every later file repeats its facts."""
        if self._log is not None:
            self._log.write_note(name, payload)
        self._background.note(name, payload)

    def due(self) -> bool:
        """Return whether the present file has reached its limit, or was deleted by others."""
        log, stream, limit = self._log, self._stream, self._limit
        if log is None or stream is None:  # between two files
            return False
        if limit.bytes is not None and log.size >= limit.bytes:
            return True
        return time.monotonic_ns() >= self.due_ns() or removed(stream)

    def due_ns(self) -> float:
        """Return when the present file is too old (CLOCK_MONOTONIC); inf: it has no such limit."""
        age = self._limit.seconds
        return float("inf") if age is None else self._began.monotonic + age * 1e9

    def rotate(self, clock: Clock | None = None) -> None:
        """End the present file, if any, at `clock` (None: the last chunk's). Raises OutputError."""
        self._clock = clock or self._clock
        if self._log is not None:
            self._end(self._log, "rotated", self._clock, {})

    def _end(self, log: LogWriter, reason: str, stopped: Clock, run: dict[str, Any]) -> None:
        now = cost.read(self._programs())
        facts = cost.end_facts(reason, self._began, now, self._losses, stopped)
        log.close({**facts, **run})
        self._began = now
        self._log = None
        self.release()

    def close(self, end: End) -> None:
        """End the last file, whose END frame has `end` as "run"; make one if there is none."""
        log = self._log or self._open(self._clock)
        self._end(log, end["reason"], end["stopped"], {"run": end})

    def release(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class _Kept(NamedTuple):
    """The records of one write_chunk call."""

    chunks: Sequence[Packed]
    size: int
    """Bytes of the compressed chunks."""
    names: list[NameRecords]
    """What later files repeat of them."""
    meter: Meter
    last_ns: int
    """Time of the newest record (CLOCK_MONOTONIC), or of the call if there is none."""


class _Dump(NamedTuple):
    """A snapshot of all that one dump is made of, which recording does not change."""

    header: Header
    opening: Facts
    chunks: list[Packed]
    losses: list[Window]
    end: Mapping[str, Any]
    events: int
    """Number of events in `chunks`."""
    exact: bool
    """Whether it was counted; else it is estimated."""


class FlightBuffer(SeriesSink):
    """A sink that keeps the newest chunks, compressed, in memory, and dumps them on request.

    Each dump is written by a thread of its own, so that a slow disk, which may be the very reason
    for the dump, delays neither chunks nor recording.
    """

    def __init__(
        self, series: Series, header: Header, limit: Limit, programs: Programs, level: int
    ) -> None:
        """Begin without chunks; no file is made. `limit`: of the chunks in memory."""
        super().__init__(series, header, limit, programs, level)
        self._first_clock = self._clock
        self._kept: deque[_Kept] = deque()
        self._losses: deque[Window] = deque()
        self._thread: threading.Thread | None = None
        self.hold_from: int | None = None
        """Keep records from this time on (CLOCK_MONOTONIC, ns), up to twice the limit of bytes, as
        they show what hangs; None: nothing hangs. Set by the poll loop."""
        self.size = 0
        """Bytes of compressed chunks in memory."""
        self.messages: SimpleQueue[str] = SimpleQueue()
        """Messages for the user: a dump was written, or failed."""

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def write_chunk(
        self, segments: Sequence[Segment], clock: Clock, packed: Sequence[Packed] | None = None
    ) -> int:
        """Add records to the memory, drop the oldest beyond the limit; return the bytes added.

        What one call added is dropped as a whole; the newest call's stays in any case.
        """
        chunks = self._packer.chunks(segments, clock) if packed is None else packed
        size = sum(len(chunk.stored) for chunk in chunks)
        meter = Meter()
        meter.add(segments)
        last = max((chunk.last_ns for chunk in chunks), default=clock["monotonic"])
        named = names.repeatable([chunk.names for chunk in chunks], segments)
        self._kept.append(_Kept(chunks, size, named, meter, last))
        self.size += size
        self._clock = clock
        most, hold = self._limit.bytes, self.hold_from
        while most is not None and self.size > most and len(self._kept) > 1:
            if hold is not None and self._kept[0].last_ns >= hold and self.size <= 2 * most:
                break
            self._drop_oldest()
        self._drop_old()
        return size

    def _drop_old(self) -> None:
        """Drop what is older than the limit of seconds."""
        # From `_clock`: from the newest event on, an idle host would keep old chunks.
        seconds = self._limit.seconds
        if seconds is None:
            return
        begins = self._clock["monotonic"] - round(seconds * 1e9)
        if self.hold_from is not None:
            begins = min(begins, self.hold_from)
        while self._kept and self._kept[0].last_ns < begins:
            self._drop_oldest()
        if not self._kept:
            self._drop_losses(begins)

    def _drop_oldest(self) -> None:
        oldest = self._kept.popleft()
        self.size -= oldest.size
        for records in oldest.names:
            self._background.names.update(records)
        self._first_clock = oldest.chunks[-1].clock
        self._drop_losses(self._kept[0].chunks[0].first_ns if self._kept else 0)

    def _drop_losses(self, before_ns: int) -> None:
        while self._losses and self._losses[0]["end"] < before_ns:
            self._losses.popleft()

    def write_loss(self, windows: list[Window]) -> None:
        """Add loss windows, which are kept as long as the chunks of their time."""
        self._losses.extend(windows)

    def write_note(self, name: str, payload: Note) -> None:
        """Add a note's facts (devices, cgroups, mounts, stacks), which every later dump repeats."""
        self._background.note(name, payload)

    def dump(self, facts: dict[str, Any], clock: Clock | None = None) -> None:
        """Start a thread that writes the chunks in memory to a new file; not while `busy`.

        `facts`: for the header's key "kept". `clock`: the dump's end; None: that of the last chunk.
        """
        made = self._snapshot(facts, clock or self._clock)

        def write() -> None:
            try:
                self._write(made)
            except OutputError as error:
                self.messages.put(f"a dump failed: {error}")

        self._thread = threading.Thread(target=write, name="biotrail-dump", daemon=True)
        self._thread.start()

    def close(self, end: End) -> None:
        """Wait for the file being written, then write the last one from memory, in this thread."""
        if self._thread is not None:
            self._thread.join()
        keys = ("reason", "trigger", "triggers_let_pass")
        why: dict[str, Any] = {key: value for key, value in end.items() if key in keys}
        made = self._snapshot(why, end["stopped"])
        self._write(made._replace(end={**made.end, "run": end}))

    def _snapshot(self, facts: dict[str, Any], moment: Clock) -> _Dump:
        if moment["monotonic"] > self._clock["monotonic"]:
            self._clock = moment
        self._drop_old()
        chunks = [chunk for kept in self._kept for chunk in kept.chunks]
        # All records since the last dropped chunk are there, earlier ones only in chunks.
        begin, period = self._first_clock["monotonic"], self._limit.seconds
        if period is not None:
            begin = max(begin, self._clock["monotonic"] - round(period * 1e9))
        begin = min([begin, *(chunk.first_ns for chunk in chunks)])
        readings = [self._first_clock, *(chunk.clock for chunk in chunks[:1]), self._clock]
        nearest = next(reading for reading in readings if reading["monotonic"] >= begin)
        clock = shifted(nearest, begin)
        windows, losses = list(self._losses), Losses()
        losses.add(windows)
        now = cost.read(self._programs())
        kept = {
            **facts,
            "seconds": (self._clock["monotonic"] - clock["monotonic"]) / 1e9,
            "limit": {"bytes": self._limit.bytes, "seconds": self._limit.seconds},
            "run": self._run,
        }
        return _Dump(
            *self._background.begin(clock, {"kept": kept}),
            chunks,
            windows,
            cost.end_facts("dumped", self._began, now, losses, self._clock),
            round(sum(kept.meter.events for kept in self._kept)),
            all(kept.meter.exact for kept in self._kept),
        )

    def _write(self, dump: _Dump) -> None:
        """Write a dump to the series' next file, and delete the oldest files beyond the limit.

        Raises OutputError; the file then stays if it has its final name already.
        """
        log: LogWriter | None = None
        kept = dump.header["kept"]
        last = f"the last {kept['seconds']:.1f} s"
        about = "" if dump.exact else "about "
        events = f"{about}{dump.events:,} event{'' if dump.events == 1 else 's'}"
        try:
            new = self.series.create()
            with new.stream:
                header: Header = {**dump.header, "kept": {**kept, "number": self.series.made + 1}}
                log = self._begin(new, header, dump.opening, sync=False)
                for chunk in dump.chunks:
                    log.write_packed(chunk)
                if dump.losses:
                    log.write_loss(dump.losses)
                log.close(dump.end)
            self.series.delete_old()
        except (OSError, OutputError) as error:
            failed = explain(error, self.series.next) if isinstance(error, OSError) else error
            # The share of events that is in the file is that of the records' bytes.
            total = sum(chunk.records for chunk in dump.chunks)
            named = sum(len(segment.data) for segment in dump.opening.names)
            written = 0 if log is None else log.raw_bytes - named
            missing = f"none of its {events} ({last}) is in it"
            if written > 0:
                left = round(dump.events * (1 - written / total)) if total else 0
                missing = f"about {left:,} of its {events} ({last}) are not in it"
            raise OutputError(f"{failed}; {missing}") from error
        what = events if dump.events else "no event in them"
        self.messages.put(f"wrote {self.series.next}: {last}, {what} ({kept['reason']})")


LogSink = LogWriter | RotatingLog | FlightBuffer
"""What the writer thread calls; all methods may raise OutputError or OSError."""
