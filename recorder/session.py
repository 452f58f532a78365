# SPDX-License-Identifier: Apache-2.0
"""One recording from start to stop: probes to rings to log, with an account of its own cost.

The poll loop copies committed bytes out of the rings and hands them to one writer thread.
It never looks into an event; what it does per round is a constant number of steps per ring.
"""

import os
import resource
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, BinaryIO

from recorder import clocks, devices, facts
from recorder.child import Child
from recorder.errors import OutputError
from recorder.log import LogWriter, Segment
from recorder.loss import LossCounters, Window
from recorder.memory import keep_freed_memory
from recorder.output import create, explain
from recorder.pace import Pace
from recorder.priority import hurry, relax
from recorder.probes.core import CoreProbes, ProbeConfig
from recorder.probes.programs import EVENT_SETS
from recorder.session_types import Probes, RecordOptions, Status, Summary
from recorder.stop import Every, StopRequests
from recorder.surroundings import CgroupWatch, DeviceWatch
from recorder.writer import Job, WriterThread

__all__ = ["Probes", "RecordOptions", "Session", "Status", "Summary", "record"]

STDOUT, STDERR = 1, 2
CHUNK_BYTES = 4 << 20
CHUNK_NS = 900_000_000
"""A chunk is closed at this size or age, so that kill -9 costs about a second."""
LOSS_NS = 250_000_000
PROGRAMS_NS = 1_000_000_000
NOTES_NS = 500_000_000
STATUS_NS = 1_000_000_000
STUCK_NS = 5_000_000_000
"""After a second signal, an output that has taken nothing for so long is given up."""


def record(
    options: RecordOptions,
    on_status: Callable[[Status], None] | None = None,
    probes: Probes | None = None,
) -> Summary:
    """Record until the duration is over, the command ends, a signal comes or the output fails.

    Returns a summary, with `error` set when the output failed: what was written before is
    whole. Raises TraceError when recording could not begin; then no file is left behind.
    """
    keep_freed_memory()
    with ExitStack() as stack:
        session = Session(options, on_status, stack, probes)
        session.begin()
        session.loop()
        return session.finish()


class Session:
    """The state of one recording; `record` drives it."""

    def __init__(
        self,
        options: RecordOptions,
        on_status: Callable[[Status], None] | None,
        stack: ExitStack,
        probes: Probes | None = None,
    ) -> None:
        """Everything that can be wrong with the options is found here. Raises TraceError."""
        self._options = options
        self._on_status = on_status
        self._stack = stack
        self._stop = stack.enter_context(StopRequests())
        self._child = self._find_command()
        wanted = [(spec, devices.resolve(spec)) for spec in options.devices]
        self._filters = [{"spec": s, "disk": disk, "part": part} for s, (disk, part) in wanted]
        self._probes = probes or CoreProbes(
            ProbeConfig(options.events, [dev for _, dev in wanted], options.ring_bytes)
        )
        self._pending: list[Segment] = []
        self._pending_bytes = 0
        self._taken_bytes = 0
        self._windows: list[Window] = []
        self._pace = Pace()

    def _find_command(self) -> Child | None:
        if not self._options.command:
            return None
        to_stderr = STDERR if self._options.output is None else None
        child = Child(self._options.command, stdout=to_stderr)
        self._stack.callback(child.close)
        return child

    def begin(self) -> None:
        """Open the output, attach the probes, write the header, start the command."""
        with ExitStack() as undo:
            options = self._options
            stream = self._open_output(undo)
            self._stack.callback(self._probes.close)
            self._probes.open()
            clock = clocks.reading()
            self._probes.attach()
            self._missing = [
                {"letter": p.letter, "tracepoint": p.tracepoint, "reason": p.reason}
                for p in self._probes.programs()
                if not p.attached and p.letter in EVENT_SETS.get(options.events, "")
            ]
            header = self._header(clock)
            log = LogWriter(stream, header, level=options.level, sync=options.sync)
            if self._child is not None:
                self._child.start()
            undo.pop_all()
        self._start_clocks(log, header)

    def _open_output(self, undo: ExitStack) -> BinaryIO:
        path = self._options.output
        if path is None:
            return self._stack.enter_context(open(STDOUT, "wb", buffering=0, closefd=False))
        stream = self._stack.enter_context(create(path, force=self._options.force))
        undo.callback(os.unlink, path)
        return stream

    def _header(self, clock: dict[str, int]) -> dict[str, Any]:
        options, sizes = self._options, self._probes.sizes
        levels = [] if sizes is None else list(sizes.by_level)
        letters = sorted({p.letter for p in self._probes.programs() if p.attached})
        return facts.header(
            created_by=options.created_by,
            clock=clock,
            command=options.argv,
            filters={"devices": self._filters},
            events={"set": options.events, "letters": letters, "missing": self._missing},
            kernel_enums=self._probes.kernel_enums(),
            rings={"levels": len(levels), "bytes": levels},
        )

    def _start_clocks(self, log: LogWriter, header: dict[str, Any]) -> None:
        self._began_ns = self._chunk_ns = time.monotonic_ns()
        self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._loss = LossCounters(int(header["clocks"]["monotonic"]))
        self._writer = WriterThread(log)
        self._devices = DeviceWatch(header["devices"])
        self._cgroups = CgroupWatch()
        self._writer.submit(self._writer.note("cgroups", self._cgroups.changes))
        self._periodic = [
            Every(LOSS_NS, self._sample_rings, self._began_ns),
            Every(PROGRAMS_NS, self._sample_programs, self._began_ns),
            Every(NOTES_NS, self._look_around, self._began_ns),
            Every(STATUS_NS, self._tell_status, self._began_ns),
        ]
        self._stack.callback(relax, hurry())
        self._tell_status(self._began_ns)

    def loop(self) -> None:
        """Poll until something asks for the end."""
        while self._stop.reason is None:
            left = self._seconds_left()
            if left <= 0:
                self._stop.request("duration")
            elif self._child is not None and not self._child.running:
                self._stop.request("command ended")
            elif self._writer.error is not None:
                self._stop.request("output failed")
            else:
                pidfd = None if self._child is None else self._child.pidfd
                self._stop.sleep(min(self._pace.seconds, left), pidfd)
                self._round(time.monotonic_ns())

    def _seconds_left(self) -> float:
        if self._options.duration is None:
            return float("inf")
        return self._options.duration - (time.monotonic_ns() - self._began_ns) / 1e9

    def _round(self, now_ns: int) -> None:
        self._pace.found(self._probes.fill())
        if self._pending_bytes < CHUNK_BYTES and self._writer.ready():
            self._drain()
        if self._pending_bytes >= CHUNK_BYTES or now_ns - self._chunk_ns >= CHUNK_NS:
            self._offer_chunk(now_ns)
        for periodic in self._periodic:
            periodic.run(now_ns)

    def _drain(self) -> bool:
        segments = self._probes.drain()
        self._clock = clocks.reading()  # right here: what comes later is for the next chunk
        size = sum(len(segment.data) for segment in segments)
        self._pending.extend(segments)
        self._pending_bytes += size
        self._taken_bytes += size
        return bool(segments)

    def _offer_chunk(self, now_ns: int) -> None:
        """Hand on what is pending. When the writer is behind, it waits here, then in the rings."""
        if self._pending and not self._writer.offer_chunk(self._pending, self._clock):
            return
        self._pending, self._pending_bytes, self._chunk_ns = [], 0, now_ns

    def _sample_rings(self, now_ns: int) -> None:
        lost, too_deep = self._probes.lost(), self._probes.too_deep()
        self._put_loss(self._loss.sample_rings(lost, too_deep, now_ns))

    def _sample_programs(self, now_ns: int) -> None:
        misses: dict[str, int] = {}
        for program in self._probes.programs():
            misses[program.letter] = misses.get(program.letter, 0) + program.recursion_misses
        self._put_loss(self._loss.sample_programs(misses, now_ns))

    def _put_loss(self, windows: list[Window]) -> None:
        self._windows.extend(windows)
        if self._windows and self._writer.offer(self._writer.loss(self._windows)):
            self._windows = []

    def _look_around(self, now_ns: int) -> None:
        if self._devices.due(now_ns):
            self._writer.offer(self._writer.note("devices", self._devices.changes))
        if self._cgroups.due(now_ns):
            self._writer.offer(self._writer.note("cgroups", self._cgroups.changes))

    def _tell_status(self, now_ns: int, note: str = "") -> None:
        if self._on_status is None:
            return
        taken = self._taken_bytes / max(self._writer.raw_bytes, 1)
        self._on_status(
            Status(
                seconds=(now_ns - self._began_ns) / 1e9,
                events=round(self._writer.meter.events * taken),
                lost=self._loss.total,
                log_bytes=self._writer.log_bytes,
                note=note,
            )
        )

    def finish(self) -> Summary:
        """Detach, take what is left, end the log, and see the command off."""
        self._stopped = clocks.reading()  # programs go one by one: what follows has gaps
        self._seconds = (self._stopped["monotonic"] - self._began_ns) / 1e9
        self._probes.detach()
        while self._drain():
            pass
        now = time.monotonic_ns()
        self._sample_rings(now)
        self._sample_programs(now)
        ended = self._writer.finish(self._last_job(), self._given_up)
        summary = self._summary()
        if not ended:
            summary.error = OutputError(
                "the output takes no more data: the end of the log could not be written; "
                "what was written reads back as an interrupted log"
            )
        elif isinstance(self._writer.error, OSError):
            summary.error = explain(self._writer.error, self._options.output or "standard output")
        else:
            summary.error = self._writer.error
        summary.command_status = self._see_off_command()
        return summary

    def _last_job(self) -> Job:
        writer = self._writer
        jobs = [writer.chunk(self._pending, self._clock)] if self._pending else []
        jobs += [writer.loss(self._windows)] if self._windows else []
        jobs.append(writer.note("devices", self._devices.changes))
        jobs.append(writer.note("cgroups", self._cgroups.changes))

        def last(log: LogWriter) -> None:
            for job in jobs:
                job(log)
            log.close(self._end())

        return last

    def _given_up(self) -> bool:
        idle = time.monotonic_ns() - self._writer.progress_ns
        return self._stop.signals > 1 and idle > STUCK_NS

    def _cpu_seconds(self) -> float:
        now, then = resource.getrusage(resource.RUSAGE_SELF), self._usage
        return now.ru_utime + now.ru_stime - then.ru_utime - then.ru_stime

    def _end(self) -> dict[str, Any]:
        """Statistics for the END frame; the writer adds the log's size."""
        return {
            "reason": self._stop.reason,
            "seconds": self._seconds,
            "stopped": self._stopped,
            "clocks": clocks.reading(),
            "lost": {str(kind): count for kind, count in self._loss.by_kind.items()},
            "too_deep": self._loss.too_deep,
            "skipped": self._loss.skipped,
            "programs": [
                {
                    "name": p.name,
                    "letter": p.letter,
                    "attached": p.attached,
                    "run_count": p.run_count,
                    "run_ns": p.run_ns,
                    "recursion_misses": p.recursion_misses,
                }
                for p in self._probes.programs()
            ],
            "recorder": {
                "cpu_seconds": self._cpu_seconds(),
                "max_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            },
        }

    def _summary(self) -> Summary:
        return Summary(
            reason=self._stop.reason or "",
            seconds=self._seconds,
            events=round(self._writer.meter.events),
            events_exact=self._writer.meter.exact,
            raw_bytes=self._writer.raw_bytes,
            log_bytes=self._writer.log_bytes,
            chunks=self._writer.chunks,
            lost=self._loss.by_kind,
            too_deep=self._loss.too_deep,
            skipped=self._loss.skipped,
            unwritten_bytes=self._taken_bytes - self._writer.raw_bytes,
            cpu_seconds=self._cpu_seconds(),
            max_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            missing=self._missing,
        )

    def _see_off_command(self) -> int | None:
        """Wait for the command, asking it to end if a signal ended the recording."""
        if self._child is None:
            return None
        if self._stop.signals:
            self._child.terminate()
        if not self._child.wait(0.5):
            note = f"recording has ended; waiting for {self._options.command[0]} to end"
            self._tell_status(time.monotonic_ns(), note)
        seen = self._stop.signals
        while not self._child.wait(0.1):
            if self._stop.signals > seen:
                self._child.terminate()
                seen = self._stop.signals
        return self._child.status
