# SPDX-License-Identifier: Apache-2.0
"""A flight recorder's log: the newest chunks, compressed, in memory; dumped to files on request.

The writer thread adds chunks; each dump is written by a thread of its own, so that a slow disk,
which may be the very reason for the dump, delays neither chunks nor recording.
"""

import threading
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.loss import Window
from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.log.names import NameRecords, repeatable
from biotrail.recorder.log.packing import Packed
from biotrail.recorder.output.folders import explain
from biotrail.recorder.output.series import Facts, Series, shifted
from biotrail.recorder.output.sinks import Limit, Programs, SeriesSink
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.payloads import Clock, End, Header, Note


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
    end: dict[str, Any]
    events: int
    """Number of events in `chunks`."""
    exact: bool
    """Whether it was counted; else it is estimated."""


class FlightBuffer(SeriesSink):
    """A sink that keeps the newest chunks in memory, within a limit of bytes, seconds, or both."""

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

        Bytes, also those of the limit, are of compressed chunks. What one call added is dropped as
        a whole. The newest call's chunks stay even if they alone are larger than the limit of
        bytes.
        """
        chunks = self._packer.chunks(segments, clock) if packed is None else packed
        size = sum(len(chunk.stored) for chunk in chunks)
        meter = Meter()
        meter.add(segments)
        last = max((chunk.last_ns for chunk in chunks), default=clock["monotonic"])
        named = repeatable([chunk.names for chunk in chunks], segments)
        self._kept.append(_Kept(chunks, size, named, meter, last))
        self.size += size
        self._clock = clock
        while len(self._kept) > 1 and self._too_large():
            self._drop_oldest()
        self._drop_old()
        return size

    def _too_large(self) -> bool:
        most = self._limit.bytes
        if most is None or self.size <= most:
            return False
        hold = self.hold_from
        return hold is None or self._kept[0].last_ns < hold or self.size > 2 * most

    def _drop_old(self) -> None:
        """Drop what is older than the limit of seconds, reckoned from `_clock`.

        Counting from the newest event would keep old chunks on a host that has become idle.
        """
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
            self._background.update(records)
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

        `facts`: for the header's key "kept". `clock`: the dump's end, up to which all records were
        passed to write_chunk; None: that of the last chunk. The thread puts a message about success
        or failure into `messages`.
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
        """Wait for the file being written, then write the last one from memory, in this thread.

        `end`: facts of the whole recording, for "run" in the END frame. Raises OutputError.
        """
        if self._thread is not None:
            self._thread.join()
        keys = ("reason", "trigger", "triggers_let_pass")
        why: dict[str, Any] = {key: value for key, value in end.items() if key in keys}
        made = self._snapshot(why, end["stopped"])
        self._write(made._replace(end={**made.end, "run": end}))

    def release(self) -> None:
        """No file is open between dumps."""

    def discard(self) -> None:
        """No file is made before the first dump."""

    def removed(self) -> bool:
        """Dumps may be deleted or moved away without harm to the recording."""
        return False

    def _snapshot(self, facts: dict[str, Any], moment: Clock) -> _Dump:
        if moment["monotonic"] > self._clock["monotonic"]:
            self._clock = moment
        self._drop_old()
        chunks = [chunk for kept in self._kept for chunk in kept.chunks]
        clock = self._begin_of(chunks)
        windows, losses = list(self._losses), cost.Losses()
        losses.add(windows)
        now = cost.read(self._programs())
        kept = {
            **facts,
            "seconds": (self._clock["monotonic"] - clock["monotonic"]) / 1e9,
            "limit": {"bytes": self._limit.bytes, "seconds": self._limit.seconds},
            "run": self._run,
        }
        return _Dump(
            self._background.header(clock, {"kept": kept}),
            self._background.facts(clock),
            chunks,
            windows,
            cost.end_facts("dumped", self._began, now, losses, self._clock),
            round(sum(kept.meter.events for kept in self._kept)),
            all(kept.meter.exact for kept in self._kept),
        )

    def _begin_of(self, chunks: list[Packed]) -> Clock:
        """Return the clocks at the beginning of the period that a file of `chunks` covers.

        Since the last dropped chunk all records are there; earlier only if a chunk has an older
        event.
        """
        begin, seconds = self._first_clock["monotonic"], self._limit.seconds
        if seconds is not None:
            begin = max(begin, self._clock["monotonic"] - round(seconds * 1e9))
        begin = min([begin, *(chunk.first_ns for chunk in chunks)])
        readings = [self._first_clock, *(chunk.clock for chunk in chunks[:1]), self._clock]
        nearest = next(reading for reading in readings if reading["monotonic"] >= begin)
        return shifted(nearest, begin)

    def _write(self, dump: _Dump) -> None:
        """Write a dump to the series' next file, and delete the oldest files beyond the limit.

        Raises OutputError, which says how many events are not in the file; the file then stays if
        it has its final name already.
        """
        log: LogWriter | None = None
        kept = dump.header["kept"]
        last = f"the last {kept['seconds']:.1f} s"
        about = "" if dump.exact else "about "
        events = f"{about}{dump.events:,} event{'' if dump.events == 1 else 's'}"
        try:
            with self._series.create() as stream:
                header: Header = {
                    **dump.header,
                    "kept": {**kept, "number": self._series.made + 1},
                }
                log = LogWriter(stream, header, level=self._level, name=self._series.next)
                self._series.publish()
                dump.opening.write(log)
                for chunk in dump.chunks:
                    log.write_packed(chunk)
                if dump.losses:
                    log.write_loss(dump.losses)
                log.close(dump.end)
            self._series.delete_old()
        except (OSError, OutputError) as error:
            self._series.give_up()
            failed = explain(error, self._series.next) if isinstance(error, OSError) else error
            # The share of events that is in the file is that of the records' bytes.
            total = sum(chunk.records for chunk in dump.chunks)
            names = sum(len(segment.data) for segment in dump.opening.names)
            written = 0 if log is None else log.raw_bytes - names
            missing = f"none of its {events} ({last}) is in it"
            if written > 0:
                left = round(dump.events * (1 - written / total)) if total else 0
                missing = f"about {left:,} of its {events} ({last}) are not in it"
            raise OutputError(f"{failed}; {missing}") from error
        what = events if dump.events else "no event in them"
        self.messages.put(f"wrote {self._series.next}: {last}, {what} ({kept['reason']})")
