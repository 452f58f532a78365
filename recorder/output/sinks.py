# SPDX-License-Identifier: Apache-2.0
"""Where a recording goes: one log, or a series of logs of which each is readable alone.

The writer thread writes to a sink; the poll loop calls `due` and `removed` meanwhile.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.loss import Window
from biotrail.recorder.log import LogWriter, Segment, names
from biotrail.recorder.log.chunks import first_time
from biotrail.recorder.log.packing import Packed, Packer
from biotrail.recorder.output.series import Background, Series, removed, shifted
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


class LogSink(Protocol):
    """What the writer thread calls. All may raise OutputError or OSError."""

    def new_packer(self) -> Packer:
        """Return what packs chunks for `write_chunk`, for a thread of its own."""

    def write_chunk(
        self, segments: Sequence[Segment], clock: Clock, packed: Sequence[Packed] | None = None
    ) -> int:
        """Write records as one or more chunks; return the bytes written.

        `clock`: read when the records were copied from the rings. `packed`: the chunks, by one of
        the sink's packers; None: they are packed here.
        """

    def write_loss(self, windows: list[Window]) -> None: ...

    def write_note(self, name: str, payload: Note) -> None: ...

    def close(self, end: End) -> None:
        """Write the END frame, with the facts `end` of the whole recording, and end the log."""


class Sink(LogSink, Protocol):
    """What a session calls on its output."""

    @property
    def files(self) -> list[str]:
        """Paths of the files written that still exist, oldest first; empty for a pipe."""

    @property
    def deleted(self) -> int:
        """Number of files that were deleted as the oldest beyond the limit."""

    @property
    def taken_away(self) -> int:
        """Number of files of several that others deleted, moved away or replaced."""

    def release(self) -> None:
        """Close open files, without ending the log. Calling again has no effect."""

    def discard(self) -> None:
        """Delete the files made so far, as the recording could not begin."""

    def removed(self) -> bool:
        """Return whether the file being written has been deleted by others."""


class PlainLog(LogWriter):
    """A sink that writes one log to one file or pipe."""

    deleted = taken_away = 0

    def __init__(
        self, stream: BinaryIO, path: str | None, header: Header, level: int, sync: bool
    ) -> None:
        """Write the header. `path`: None: standard output. Raises OSError, OutputError."""
        name = path or "standard output"
        super().__init__(stream, header, level=level, sync=sync, name=name)
        self._file = None if path is None else stream
        self.files = [] if path is None else [path]

    def release(self) -> None:
        if self._file is not None:
            self._file.close()

    def discard(self) -> None:
        """Do nothing: the caller that made the file removes it (session/opening.py)."""

    def removed(self) -> bool:
        return self._file is not None and removed(self._file)


class SeriesSink:
    """What sinks have in common that write several files."""

    def __init__(
        self, series: Series, header: Header, limit: Limit, programs: Programs, level: int
    ) -> None:
        """`header`: the recording's, of which each file's is a copy with changes."""
        self._series = series
        self._limit = limit
        self._programs = programs
        self._level = level
        self._packer = self.new_packer()
        self._background = Background(header)
        self._run = header["log_id"]
        self._clock: Clock = header["clocks"]
        self._began = cost.read(programs())

    def new_packer(self) -> Packer:
        return Packer(self._level)

    @property
    def files(self) -> list[str]:
        return self._series.files

    @property
    def deleted(self) -> int:
        return self._series.deleted

    @property
    def taken_away(self) -> int:
        return self._series.taken_away


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
        facts: Header = {"series": {"run": self._run, "number": self._series.made + 1}}
        self.release()
        self._stream = stream = self._series.create()
        header = self._background.header(clock, facts)
        try:
            name = self._series.next
            log = LogWriter(stream, header, level=self._level, sync=self._sync, name=name)
            self._series.publish()
        except (OSError, OutputError):
            self._series.give_up()
            raise
        self._background.facts(clock).write(log)
        self._losses = cost.Losses()
        self._log = log
        self._series.delete_old()
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
            self._background.update(records)
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
        """Return whether the present file has reached its limit of bytes or seconds."""
        log, limit = self._log, self._limit
        if log is None:
            return False
        if limit.bytes is not None and log.size >= limit.bytes:
            return True
        return time.monotonic_ns() >= self.due_ns()

    def due_ns(self) -> float:
        """Return when the present file is too old, reckoned from the end of the file before.

        CLOCK_MONOTONIC; inf: it has no limit.
        """
        age = self._limit.seconds
        return float("inf") if age is None else self._began.monotonic + age * 1e9

    def rotate(self, clock: Clock | None = None) -> None:
        """End the present file, if any; the next chunk begins a new one. Raises OutputError.

        `clock`: the border, up to which all records were passed to `write_chunk`; None: the last
        chunk's.
        """
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
        """End the last file, whose END frame also has `end`, of the whole recording, as "run".

        Between two files, makes one more, so that the recording has such an end.
        """
        log = self._log or self._open(self._clock)
        self._end(log, end["reason"], end["stopped"], {"run": end})

    def release(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def discard(self) -> None:
        self._series.discard()

    def removed(self) -> bool:
        """False also between two files."""
        stream = self._stream
        return stream is not None and not stream.closed and removed(stream)
