# SPDX-License-Identifier: Apache-2.0
"""A flight recorder's log: the newest chunks, compressed, in memory; written out when asked.

Written by the writer thread; a dump goes to its file in a thread of its own, so that a slow
disk, which may be the very reason for the dump, holds nothing up.
"""

import threading
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.loss import Window
from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.log import LogWriter, Segment, names
from biotrail.recorder.log.packing import Packed, Packer
from biotrail.recorder.output.output import explain
from biotrail.recorder.output.series import Background, Clock, Facts, Series, shifted
from biotrail.recorder.output.sinks import Limit, Programs
from biotrail.recorder.schema.errors import OutputError


class _Kept(NamedTuple):
    """What one drain gave: chunks, their bytes in memory, the names found in them.

    events: how many, about. last_ns: time of the newest.
    """

    chunks: list[Packed]
    size: int
    found: names.Found
    events: float
    last_ns: int


class _Dump(NamedTuple):
    """All that one dump needs: what goes on being recorded does not touch it."""

    header: dict[str, Any]
    opening: Facts
    chunks: list[Packed]
    losses: list[Window]
    end: dict[str, Any]
    facts: dict[str, Any]
    events: int
    """About how many."""


class KeptLog:
    """The newest chunks within a limit of bytes, seconds, or both."""

    def __init__(
        self, series: Series, header: dict[str, Any], limit: Limit, programs: Programs, level: int
    ) -> None:
        """`series`: the dumps' files. Nothing is written yet."""
        self._series = series
        self._limit = limit
        self._programs = programs
        self._level = level
        self._packer = Packer(level)
        self._background = Background(header)
        self._run = header["log_id"]
        self._clock: Clock = header["clocks"]
        self._first_clock = self._clock
        self._kept: deque[_Kept] = deque()
        self._losses: deque[Window] = deque()
        self._began = cost.read(programs())
        self._thread: threading.Thread | None = None
        self.size = 0
        """Bytes in memory."""
        self.messages: SimpleQueue[str] = SimpleQueue()
        """What the user is to be told."""

    @property
    def files(self) -> list[str]:
        """The dumps that are there."""
        return self._series.files

    @property
    def deleted(self) -> int:
        """Dumps that were deleted for being the oldest."""
        return self._series.deleted

    @property
    def gone(self) -> int:
        """Dumps that others deleted or moved away."""
        return self._series.gone

    @property
    def busy(self) -> bool:
        """Whether a dump is being written."""
        return self._thread is not None and self._thread.is_alive()

    def write_chunk(self, segments: Sequence[Segment], clock: Clock) -> int:
        """Keep what a drain gave, and let go of what is too old; returns its bytes."""
        chunks = self._packer.chunks(segments, clock)
        size = sum(len(chunk.stored) for chunk in chunks)
        meter = Meter()
        meter.add(segments)
        last = max((chunk.last_ns for chunk in chunks), default=clock["monotonic"])
        self._kept.append(_Kept(chunks, size, names.find(segments), meter.events, last))
        self.size += size
        self._clock = clock
        most = self._limit.bytes
        while len(self._kept) > 1 and most is not None and self.size > most:
            self._let_go()
        self._forget_old()
        return size

    def _forget_old(self) -> None:
        """Let go of drains, and losses, before the time that is kept, which the clock tells.

        Going by the newest event would keep what is long past on a host that has become idle.
        """
        seconds = self._limit.seconds
        if seconds is None:
            return
        begins = self._clock["monotonic"] - round(seconds * 1e9)
        while self._kept and self._kept[0].last_ns < begins:
            self._let_go()
        if not self._kept:
            self._forget_losses(begins)

    def _let_go(self) -> None:
        oldest = self._kept.popleft()
        self.size -= oldest.size
        self._background.learn(oldest.found)
        self._first_clock = oldest.chunks[-1].clock
        self._forget_losses(self._kept[0].chunks[0].first_ns if self._kept else 0)

    def _forget_losses(self, before_ns: int) -> None:
        while self._losses and self._losses[0]["end"] < before_ns:
            self._losses.popleft()

    def write_loss(self, windows: list[Window]) -> None:
        """Keep loss windows as long as the chunks of their time."""
        self._losses.extend(windows)

    def write_note(self, name: str, payload: dict[str, Any]) -> None:
        """Every dump has what is known of devices and cgroups."""
        self._background.note(name, payload)

    def dump(self, facts: dict[str, Any], clock: Clock | None = None) -> None:
        """Write what is kept to a new file, in a thread; not while `busy`.

        facts: why. clock: the reading up to which all that was recorded was handed over, so
        the dump's end; None: that of the last chunk.
        """
        made = self._snapshot(facts, clock or self._clock)
        self._thread = threading.Thread(
            target=self._write_and_tell, args=(made,), name="biotrail-dump", daemon=True
        )
        self._thread.start()

    def close(self, end: dict[str, Any]) -> None:
        """Write the last dump. Raises OutputError where it fails."""
        if self._thread is not None:
            self._thread.join()
        told = ("reason", "trigger", "triggers_let_pass")
        why: dict[str, Any] = {key: end[key] for key in told if key in end}
        made = self._snapshot(why, end["stopped"])
        self._write(made._replace(end={**made.end, "run": end}))

    def release(self) -> None:
        """Nothing is open between dumps."""

    def discard(self) -> None:
        """Nothing was made."""

    def removed(self) -> bool:
        """Dumps may be moved away at any time."""
        return False

    def _snapshot(self, facts: dict[str, Any], moment: Clock) -> _Dump:
        if moment["monotonic"] > self._clock["monotonic"]:
            self._clock = moment
        self._forget_old()
        chunks = [chunk for kept in self._kept for chunk in kept.chunks]
        clock = self._begin_of(chunks)
        losses = cost.Losses()
        losses.add(list(self._losses))
        now = cost.read(self._programs())
        limit = {"bytes": self._limit.bytes, "seconds": self._limit.seconds}
        seconds = (self._clock["monotonic"] - clock["monotonic"]) / 1e9
        kept = {**facts, "seconds": seconds, "limit": limit}
        end = cost.end_facts("dumped", self._began, now, losses, self._clock)
        return _Dump(
            self._background.header(clock, {"kept": {**kept, "run": self._run}}),
            self._background.facts(clock),
            chunks,
            list(self._losses),
            end,
            kept,
            round(sum(kept.events for kept in self._kept)),
        )

    def _begin_of(self, chunks: list[Packed]) -> Clock:
        """Return the clocks when the period that these chunks cover began.

        Everything since the last chunk that was let go is here; of that at most the time asked
        for is claimed, or as far back as the oldest event lies.
        """
        begin, seconds = self._first_clock["monotonic"], self._limit.seconds
        if seconds is not None:
            begin = max(begin, self._clock["monotonic"] - round(seconds * 1e9))
        begin = min([begin, *(chunk.first_ns for chunk in chunks)])
        readings = [self._first_clock, *(chunk.clock for chunk in chunks[:1]), self._clock]
        nearest = next(reading for reading in readings if reading["monotonic"] >= begin)
        return shifted(nearest, begin)

    def _write_and_tell(self, dump: _Dump) -> None:
        """Runs in the dump's thread."""
        try:
            self._write(dump)
        except OutputError as error:
            self.messages.put(f"a dump failed: {error}")

    def _write(self, dump: _Dump) -> None:
        """Runs in the dump's thread, or in the writer's at the end. Raises OutputError."""
        log: LogWriter | None = None
        try:
            with self._series.create() as stream:
                number = {**dump.header["kept"], "number": self._series.made + 1}
                header = {**dump.header, "kept": number}
                log = LogWriter(stream, header, level=self._level, name=self._series.next)
                self._series.publish(stream)
                _write_all(log, dump)
            self._series.delete_old()
        except (OSError, OutputError) as error:
            self._series.give_up()
            failed = explain(error, self._series.next) if isinstance(error, OSError) else error
            raise OutputError(f"{failed}; {_missing(dump, log)}") from error
        self.messages.put(f"wrote {self._series.next}: {_period(dump)} ({dump.facts['reason']})")


def _period(dump: _Dump) -> str:
    """`the last 5.0 s, 1,204 events`."""
    events = "event" if dump.events == 1 else "events"
    count = f"{dump.events:,} {events}" if dump.events else "no event in them"
    return f"the last {dump.facts['seconds']:.1f} s, {count}"


def _missing(dump: _Dump, log: LogWriter | None) -> str:
    """How much of a dump that failed is not in its file; in all of it, if there is no file."""
    total = sum(chunk.records for chunk in dump.chunks)
    written = 0 if log is None else log.raw_bytes - sum(len(s.data) for s in dump.opening.names)
    left = round(dump.events * (1 - max(0, written) / total)) if total else 0
    return f"about {left:,} of its {dump.events:,} events ({_period(dump)}) are not in it"


def _write_all(log: LogWriter, dump: _Dump) -> None:
    dump.opening.write(log)
    for chunk in dump.chunks:
        log.write_packed(chunk)
    if dump.losses:
        log.write_loss(dump.losses)
    log.close(dump.end)
