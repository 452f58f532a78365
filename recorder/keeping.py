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

from recorder import cost, names
from recorder.errors import OutputError
from recorder.log import LogWriter, Segment
from recorder.log_packing import Packed, Packer
from recorder.loss import Window
from recorder.output import explain
from recorder.series import Background, Clock, Facts, Series, shifted
from recorder.sinks import Limit, Programs


class _Kept(NamedTuple):
    """What one drain gave: chunks, their bytes in memory, the names found in them."""

    chunks: list[Packed]
    size: int
    found: names.Found


class _Dump(NamedTuple):
    """All that one dump needs: what goes on being recorded does not touch it."""

    header: dict[str, Any]
    opening: Facts
    chunks: list[Packed]
    losses: list[Window]
    end: dict[str, Any]
    facts: dict[str, Any]


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
        self.error: OutputError | None = None
        """Why the last dump is not whole."""

    @property
    def files(self) -> list[str]:
        """The dumps that are there."""
        return self._series.files

    @property
    def deleted(self) -> int:
        """Dumps that were deleted for being the oldest."""
        return self._series.deleted

    @property
    def busy(self) -> bool:
        """Whether a dump is being written."""
        return self._thread is not None and self._thread.is_alive()

    def write_chunk(self, segments: Sequence[Segment], clock: Clock) -> int:
        """Keep what a drain gave, and let go of what is too old; returns its bytes."""
        chunks = self._packer.chunks(segments, clock)
        size = sum(len(chunk.stored) for chunk in chunks)
        self._kept.append(_Kept(chunks, size, names.find(segments)))
        self.size += size
        self._clock = clock
        while len(self._kept) > 1 and self._too_much():
            self._let_go()
        return size

    def _too_much(self) -> bool:
        limit = self._limit
        if limit.bytes is not None and self.size > limit.bytes:
            return True
        # The second oldest must still reach back far enough.
        span = self._clock["monotonic"] - self._kept[0].chunks[-1].last_ns
        return limit.seconds is not None and span > limit.seconds * 1e9

    def _let_go(self) -> None:
        oldest = self._kept.popleft()
        self.size -= oldest.size
        self._background.learn(oldest.found)
        self._first_clock = oldest.chunks[-1].clock
        first = self._kept[0].chunks[0].first_ns
        while self._losses and self._losses[0]["end"] < first:
            self._losses.popleft()

    def write_loss(self, windows: list[Window]) -> None:
        """Keep loss windows as long as the chunks of their time."""
        self._losses.extend(windows)

    def write_note(self, name: str, payload: dict[str, Any]) -> None:
        """Every dump has what is known of devices and cgroups."""
        self._background.note(name, payload)

    def dump(self, facts: dict[str, Any]) -> None:
        """Write what is kept to a new file, in a thread. `facts`: why; not while `busy`."""
        made = self._snapshot(facts)
        self._thread = threading.Thread(
            target=self._write, args=(made,), name="biotrail-dump", daemon=True
        )
        self._thread.start()

    def close(self, end: dict[str, Any]) -> None:
        """Write the last dump. Raises OutputError where it fails."""
        if self._thread is not None:
            self._thread.join()
        told = ("reason", "trigger", "triggers_let_pass")
        why: dict[str, Any] = {key: end[key] for key in told if key in end}
        made = self._snapshot(why)
        self._write(made._replace(end={**made.end, "run": end}))
        if self.error is not None:
            raise self.error

    def release(self) -> None:
        """Nothing is open between dumps."""

    def discard(self) -> None:
        """Nothing was made."""

    def removed(self) -> bool:
        """Dumps may be moved away at any time."""
        return False

    def _snapshot(self, facts: dict[str, Any]) -> _Dump:
        chunks = [chunk for kept in self._kept for chunk in kept.chunks]
        first = min((chunk.first_ns for chunk in chunks), default=self._clock["monotonic"])
        clock = shifted(self._first_clock, min(first, self._first_clock["monotonic"]))
        losses = cost.Losses()
        losses.add(list(self._losses))
        now = cost.read(self._programs())
        limit = {"bytes": self._limit.bytes, "seconds": self._limit.seconds}
        seconds = (self._clock["monotonic"] - clock["monotonic"]) / 1e9
        kept = {**facts, "seconds": seconds, "limit": limit}
        return _Dump(
            self._background.header(clock, {"kept": {**kept, "run": self._run}}),
            self._background.facts(clock),
            chunks,
            list(self._losses),
            cost.end_facts("dumped", self._began, now, losses, self._clock),
            kept,
        )

    def _write(self, dump: _Dump) -> None:
        """Runs in the dump's thread, or in the writer's at the end."""
        self.error = None
        try:
            with self._series.create() as stream:
                number = {**dump.header["kept"], "number": self._series.made + 1}
                header = {**dump.header, "kept": number}
                log = LogWriter(stream, header, level=self._level, name=self._series.next)
                self._series.publish(stream)
                _write_all(log, dump)
            self._series.delete_old()
            self.messages.put(
                f"wrote {self._series.files[-1]}: {dump.facts['seconds']:.1f} s "
                f"({dump.facts['reason']})"
            )
        except (OSError, OutputError) as error:
            self._series.give_up()
            failed = explain(error, self._series.stem) if isinstance(error, OSError) else error
            self.error = failed
            self.messages.put(f"a dump failed: {failed}")


def _write_all(log: LogWriter, dump: _Dump) -> None:
    dump.opening.write(log)
    for chunk in dump.chunks:
        log.write_packed(chunk)
    if dump.losses:
        log.write_loss(dump.losses)
    log.close(dump.end)
