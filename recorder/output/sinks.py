# SPDX-License-Identifier: Apache-2.0
"""Where a recording goes: one log, or a series of logs that each read alone.

A sink is written by the writer thread; `due` and `removed` are asked by the poll loop.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.loss import Window
from biotrail.recorder.log import LogWriter, Segment, names
from biotrail.recorder.log.chunks import first_time
from biotrail.recorder.output.series import Background, Clock, Series, removed, shifted
from biotrail.recorder.probes.core import ProgramInfo
from biotrail.recorder.schema.errors import OutputError

Programs = Callable[[], list[ProgramInfo]]


@dataclass(frozen=True)
class Limit:
    """How much: whichever is reached first; None: no limit."""

    bytes: int | None = None
    seconds: float | None = None


class LogSink(Protocol):
    """What the writer thread needs of a log."""

    def write_chunk(self, segments: Sequence[Segment], clock: Clock) -> int:
        """As LogWriter's."""

    def write_loss(self, windows: list[Window]) -> None:
        """As LogWriter's."""

    def write_note(self, name: str, payload: dict[str, Any]) -> None:
        """As LogWriter's."""

    def close(self, end: dict[str, Any]) -> None:
        """As LogWriter's; `end` says what is true of the whole recording."""


class Sink(LogSink, Protocol):
    """What a session needs of its output."""

    @property
    def files(self) -> list[str]:
        """Paths of what was written and is still there, oldest first; empty for a pipe."""

    def release(self) -> None:
        """Close the files, whatever state they are in."""

    def discard(self) -> None:
        """Remove what was made: the recording could not begin."""

    def removed(self) -> bool:
        """Whether the file being written has been deleted by others."""


class PlainLog:
    """One log in one file, or down a pipe."""

    def __init__(
        self, stream: BinaryIO, path: str | None, header: dict[str, Any], level: int, sync: bool
    ) -> None:
        """`path`: None for a pipe, which cannot be removed."""
        self._stream = stream
        self._path = path
        name = path or "standard output"
        self._log = LogWriter(stream, header, level=level, sync=sync, name=name)
        self.write_chunk = self._log.write_chunk
        self.write_loss = self._log.write_loss
        self.write_note = self._log.write_note
        self.close = self._log.close

    @property
    def files(self) -> list[str]:
        """The one path."""
        return [] if self._path is None else [self._path]

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._log.size

    def release(self) -> None:
        """Closes the file, not standard output."""
        if self._path is not None:
            self._stream.close()

    def discard(self) -> None:
        """Nothing: who made the file removes it."""

    def removed(self) -> bool:
        """Whether the file has lost its name."""
        return self._path is not None and removed(self._stream)


class RotatingLog:
    """A series of logs, each with all that is needed to read it alone.

    After `rotate` the next file is made when its first chunk comes, so that its header can
    carry a time that no event in it is older than.
    """

    def __init__(
        self,
        series: Series,
        header: dict[str, Any],
        limit: Limit,
        programs: Programs,
        level: int,
        sync: bool,
    ) -> None:
        """Makes the first file. Raises OutputError."""
        self._series = series
        self._limit = limit
        self._programs = programs
        self._level, self._sync = level, sync
        self._background = Background(header)
        self._run = header["log_id"]
        self._clock: Clock = header["clocks"]
        self._waiting: list[Window] = []
        self._log: LogWriter | None = None
        self._stream: BinaryIO | None = None
        self._began = cost.read(programs())
        self._open(self._clock)

    @property
    def files(self) -> list[str]:
        """What was not deleted again."""
        return self._series.files

    @property
    def deleted(self) -> int:
        """How many were."""
        return self._series.deleted

    @property
    def gone(self) -> int:
        """How many others deleted or moved away."""
        return self._series.gone

    def _open(self, clock: Clock) -> LogWriter:
        facts = {"series": {"run": self._run, "number": self._series.made + 1}}
        self.release()
        self._stream = stream = self._series.create()
        header = self._background.header(clock, facts)
        try:
            name = self._series.next
            log = LogWriter(stream, header, level=self._level, sync=self._sync, name=name)
            self._series.publish(stream)
        except (OSError, OutputError):
            self._series.give_up()
            raise
        self._background.facts(clock).write(log)
        self._losses = cost.Losses()
        self._log = log
        self._series.delete_old()
        if self._waiting:
            self._put_losses(log, self._waiting)
            self._waiting = []
        return log

    def _put_losses(self, log: LogWriter, windows: list[Window]) -> None:
        log.write_loss(windows)
        self._losses.add(windows)

    def write_chunk(self, segments: Sequence[Segment], clock: Clock) -> int:
        """Writes to the present file, or the next; returns bytes written."""
        log = self._log
        if log is None:
            border = first_time(segments, self._clock["monotonic"])
            log = self._open(shifted(self._clock, border))
        size = log.write_chunk(segments, clock)
        self._background.learn(names.find(segments))
        self._clock = clock
        return size

    def write_loss(self, windows: list[Window]) -> None:
        """Writes to the present file, or keeps them for the next."""
        if self._log is None:
            self._waiting += windows
        else:
            self._put_losses(self._log, windows)

    def write_note(self, name: str, payload: dict[str, Any]) -> None:
        """Writes to the present file; every later one has it too."""
        if self._log is not None:
            self._log.write_note(name, payload)
        self._background.note(name, payload)

    def due(self) -> bool:
        """Whether the present file has reached its limit."""
        log, limit = self._log, self._limit
        if log is None:
            return False
        if limit.bytes is not None and log.size >= limit.bytes:
            return True
        age = (time.monotonic_ns() - self._began.monotonic) / 1e9
        return limit.seconds is not None and age >= limit.seconds

    def rotate(self) -> None:
        """End the present file; what comes goes to the next one."""
        if self._log is not None:
            self._end("rotated", self._clock, {})

    def _end(self, reason: str, stopped: Clock, run: dict[str, Any]) -> None:
        if self._log is None:
            raise OutputError("the log was ended already")  # never: callers look first
        now = cost.read(self._programs())
        facts = cost.end_facts(reason, self._began, now, self._losses, stopped)
        self._log.close({**facts, **run})
        self._began = now
        self._log = None
        self.release()

    def close(self, end: dict[str, Any]) -> None:
        """End the last file, whose END frame also has the whole run's facts as `run`."""
        if self._log is None:
            self._open(self._clock)
        self._end(end["reason"], end["stopped"], {"run": end})

    def release(self) -> None:
        """Closes the present file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def discard(self) -> None:
        """Removes the files."""
        self._series.discard()

    def removed(self) -> bool:
        """Whether the present file has lost its name."""
        stream = self._stream
        return stream is not None and not stream.closed and removed(stream)
