# SPDX-License-Identifier: Apache-2.0
"""Runs one recording from start to stop: from probes by rings to the log.

The poll loop copies committed bytes out of the rings and passes them to the writer thread.
It decodes no event; a round takes a constant number of steps per ring.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.loss import LossCounters, Window
from biotrail.recorder.filters.filters import with_below
from biotrail.recorder.host import clocks, devices
from biotrail.recorder.host.device_paths import with_paths
from biotrail.recorder.log import Segment
from biotrail.recorder.notes.files import FileWatch
from biotrail.recorder.notes.hotplug import CgroupWatch, DeviceWatch
from biotrail.recorder.notes.stacks import HURRIED_NS, NAMELESS, StackWatch
from biotrail.recorder.output.memory import keep_freed_memory
from biotrail.recorder.output.rotation import Rotation
from biotrail.recorder.output.sinks import LogSink, Sink
from biotrail.recorder.output.writer import Job, WriterThread
from biotrail.recorder.probes.backend import ProbeConfig, Probes
from biotrail.recorder.probes.choice import make_probes
from biotrail.recorder.probes.programs import EVENT_SETS
from biotrail.recorder.probes.ring import rings_note
from biotrail.recorder.probes.run_stats import RIGHT as STATS_RIGHT
from biotrail.recorder.probes.run_stats import StatsChild
from biotrail.recorder.rights import capabilities
from biotrail.recorder.rights.priority import Urgency
from biotrail.recorder.schema.errors import TraceError
from biotrail.recorder.session import facts, rights_kept
from biotrail.recorder.session.child import Child
from biotrail.recorder.session.cost_watch import TICK_NS, CostWatch
from biotrail.recorder.session.flight import Flight
from biotrail.recorder.session.limits import StopLimits
from biotrail.recorder.session.pace import Pace
from biotrail.recorder.session.session_end import Account, see_off, stuck
from biotrail.recorder.session.session_types import RecordOptions, Status, Summary
from biotrail.recorder.session.sinks_open import open_sink, reserve
from biotrail.recorder.session.stop import Every, StopRequests

__all__ = ["Probes", "RecordOptions", "Session", "Status", "Summary", "record"]

STDERR = 2
CHUNK_BYTES = 4 << 20
CHUNK_NS = 900_000_000
"""A chunk is closed at this size or age, so that kill -9 costs about a second."""
LOSS_NS = 250_000_000
PROGRAMS_NS = 1_000_000_000
NOTES_NS = 500_000_000
STATUS_NS = 1_000_000_000
STUCK_NS = 5_000_000_000
"""After a second signal, an output is given up if no write has ended for so long."""


def record(
    options: RecordOptions,
    on_status: Callable[[Status], None] | None = None,
    probes: Probes | None = None,
) -> Summary:
    """Record until the duration is over, the command ends, a signal comes or the output fails.

    `on_status`: called about once a second, and with messages for the user. `probes`: None: made
    by `options.backend`. Returns a summary; its `error` is set if the recording had to stop, and
    what was written before is readable. Raises TraceError: recording could not begin; then no
    file is left behind.
    """
    keep_freed_memory()
    with ExitStack() as stack:
        session = Session(options, on_status, stack, probes)
        session.begin()
        try:
            session.loop()
        except (OSError, TraceError) as error:  # the log shall get its END frame all the same
            session.fail(error)
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
        """Resolve devices and command, and make the probes; `stack` closes what is opened.

        Raises TraceError: a device, the command or the backend does not exist.
        """
        self._options = options
        self._on_status = on_status
        self._stack = stack
        self._stop = stack.enter_context(StopRequests())
        self._child = self._find_command()
        wanted = [(spec, devices.resolve(spec)) for spec in options.devices]
        self._filters = [{"spec": s, "disk": disk, "part": part} for s, (disk, part) in wanted]
        pairs = [pair for _, pair in wanted]
        if options.filters.below:
            pairs = with_below(pairs)
        pairs = with_paths(pairs)
        self._filters += [{"disk": d, "part": p} for d, p in pairs[len(wanted) :]]
        config = ProbeConfig(
            options.events,
            pairs,
            options.ring_bytes,
            options.filters,
            triggers=options.triggers,
            stacks=options.stacks,
            files=options.files,
        )
        self._probes = probes or make_probes(options.backend, config)
        self._count_runs = self._probes.count_runs
        self._notes: list[str] = []
        self._pending: list[Segment] = []
        self._pending_bytes = self._taken_bytes = 0
        self._windows: list[Window] = []
        self._failure: OSError | TraceError | None = None
        self._pace = Pace()
        self._urgency = Urgency()

    def _find_command(self) -> Child | None:
        """Return the command, not started; its output goes to stderr if stdout takes the log."""
        if not self._options.command:
            return None
        to_stderr = STDERR if self._options.output is None else None
        child = Child(self._options.command, stdout=to_stderr)
        self._stack.callback(child.close)
        return child

    def begin(self) -> None:
        """Open the output, attach the probes, write the header, start the command.

        Raises TraceError or OSError, after deleting the files made.
        """
        with ExitStack() as undo:
            options = self._options
            place = reserve(options, self._stack, undo)
            self._stack.callback(self._probes.close)
            self._probes.open()
            if options.give_up_rights and capabilities.holds(STATS_RIGHT):
                self._count_apart()
            self._stacks = StackWatch(options.stacks, self._probes, options.command)
            self._files = FileWatch(options.files, self._probes)
            self._notes += [self._files.lacking] if self._files.lacking else []
            clock = clocks.reading()
            self._probes.attach()
            self._missing = [
                {"letter": p.letter, "tracepoint": p.tracepoint, "reason": p.reason}
                for p in self._probes.programs()
                if not p.attached and p.letter in EVENT_SETS.get(options.events, "")
            ]
            self._lacking = rights_kept.lacking(options)
            self._notes += [str(lack) for lack in self._lacking if lack.key == "processes"]
            header = self._header(clock)
            sink = open_sink(options, place, header, self._probes)
            self._stack.callback(sink.release)
            undo.callback(sink.discard)
            if self._child is not None:
                self._child.start()
            undo.pop_all()
        # Before the first thread is started, as threads inherit capabilities.
        kept = self._give_up_rights() if options.give_up_rights else None
        began = cost.read(self._probes.programs())
        self._start_clocks(sink, header, began.monotonic)
        self._account = Account(
            options=options,
            probes=self._probes,
            sink=sink,
            writer=self._writer,
            loss=self._loss,
            rotation=self._rotation,
            flight=self._flight,
            watch=self._watch,
            urgency=self._urgency,
            began=began,
            missing=self._missing,
            lacking=self._lacking,
            kept=kept,
        )

    def _count_apart(self) -> None:
        """Have a child process switch the counting of runs, so that this one may drop the right."""
        try:
            child = StatsChild(self._tell)
        except OSError as error:
            self._notes.append(f"run time of programs: not known, no process for it: {error}")
            return
        self._stack.callback(child.close)
        self._count_runs = child.switch

    def _give_up_rights(self) -> list[str] | None:
        """Return the capabilities that are kept; None: giving up the others failed."""
        kept, warning = rights_kept.reduce(self._options, self._probes)
        if warning:
            self._notes.append(warning)
        return kept

    def _header(self, clock: dict[str, int]) -> dict[str, Any]:
        """Return the log's header. `clock`: read before the programs were attached."""
        options, sizes = self._options, self._probes.sizes
        levels = [] if sizes is None else list(sizes.by_level)
        letters = sorted({p.letter for p in self._probes.programs() if p.attached})
        return facts.header(
            created_by=options.created_by,
            clock=clock,
            command=options.argv,
            filters={"devices": self._filters, **options.filters.header()},
            events={"set": options.events, "letters": letters, "missing": self._missing},
            stacks=options.stacks,
            files=self._files.facts,
            kernel_enums=self._probes.kernel_enums(),
            backend=self._probes.backend_facts(),
            rings={"levels": len(levels), "bytes": levels},
            rights=rights_kept.facts(self._lacking),
        )

    def _start_clocks(self, sink: Sink, header: dict[str, Any], now_ns: int) -> None:
        """Start the writer thread and all that runs periodically; report the notes so far."""
        self._began_ns = self._chunk_ns = now_ns
        self._sink = sink
        self._loss = LossCounters(int(header["clocks"]["monotonic"]))
        self._writer = WriterThread(sink)
        self._limits = StopLimits(self._options, self._writer)
        self._rotation = Rotation(sink, self._writer)
        self._flight = Flight(sink, self._writer, self._options.after, self._options.every)
        self._devices = DeviceWatch(header["devices"])
        self._cgroups = CgroupWatch()
        self._writer.submit(self._writer.note("cgroups", self._cgroups.changes))
        for job in self._files.jobs(self._writer):
            self._writer.submit(job)
        self._watch = CostWatch(
            self._probes.programs,
            self._count_runs,
            self._options.max_cpu,
            self._began_ns,
        )
        self._periodic = [
            Every(TICK_NS, self._watch_cost, self._began_ns),
            Every(LOSS_NS, self._sample_rings, self._began_ns),
            Every(PROGRAMS_NS, self._sample_programs, self._began_ns),
            Every(NOTES_NS, self._look_around, self._began_ns),
            Every(HURRIED_NS, self._stacks.hurry(self._writer), self._began_ns),
            Every(STATUS_NS, self._tell_status, self._began_ns),
        ]
        self._urgency.concerns()
        self._urgency.concerns(self._writer.thread)  # holds locks that the poll loop waits for
        self._stack.callback(self._urgency.relax)
        if self._stacks.nameless:
            self._notes.append(NAMELESS)
        if smaller := rings_note(self._options.ring_bytes, header["rings"]["bytes"]):
            self._notes.append(smaller)
        for note in ("", *self._notes):
            self._tell_status(self._began_ns, note)

    def loop(self) -> None:
        """Poll until there is a reason to stop, which is then in `_stop.reason`."""
        while self._stop.reason is None:
            left = self._seconds_left()
            if left <= 0:
                self._stop.request("duration")
            elif self._child is not None and not self._child.running:
                self._stop.request("command ended")
            elif self._writer.error is not None:
                self._stop.request("output failed")
            elif reached := self._limits.reached(self._taken_bytes):
                self._stop.request(reached)
            else:
                self._sleep(left)
                self._round(time.monotonic_ns())

    def _sleep(self, left: float) -> None:
        pidfd = None if self._child is None else self._child.pidfd
        for seconds in self._pace.naps(left):
            self._stop.sleep(seconds, pidfd)
            if self._stop.reason or self._stop.dumps or self._pace.enough(self._probes.fill()):
                return

    def _seconds_left(self) -> float:
        if self._options.duration is None:
            return float("inf")
        return self._options.duration - (time.monotonic_ns() - self._began_ns) / 1e9

    def _round(self, now_ns: int) -> None:
        """Do one round of the poll loop: drain, queue a chunk, run what is due, rotate or dump."""
        fill = self._probes.fill()
        self._pace.found(fill)
        self._urgency.found(fill)
        if self._pending_bytes < CHUNK_BYTES and self._writer.ready():
            self._drain()
        if self._pending_bytes >= CHUNK_BYTES or now_ns - self._chunk_ns >= CHUNK_NS:
            self._offer_chunk(now_ns)
        self._watch.took(self._taken_bytes)
        for periodic in self._periodic:
            periodic.run(now_ns)
        self._listen()
        self._pass_on()
        for border in (self._rotation, self._flight):
            if border.due(now_ns):
                self._put_border(border, now_ns)

    def _listen(self) -> None:
        """Pass signals and triggers that request a dump to the flight recorder."""
        if self._stop.dumps:
            self._stop.dumps = 0
            self._flight.ask(self._stop.asked_by)
        if self._options.triggers:
            for hit in self._probes.triggered():
                self._flight.hit(hit)

    def _pass_on(self) -> None:
        """Report dumps that were written or failed to the user."""
        for message in self._flight.messages():
            self._tell(message)

    def _put_border(self, border: Rotation | Flight, now_ns: int) -> None:
        """Queue all records and losses so far, then a rotation or dump.

        Not ordered if the queue is full; then the next round tries again.
        """
        self._drain()
        self._offer_chunk(now_ns)
        self._sample_rings(now_ns)
        if not self._pending and not self._windows and self._stacks.put(self._writer):
            border.order(self._clock)

    def _drain(self) -> bool:
        """Add the rings' records to `_pending`, read `_clock`; return whether there were any."""
        segments = self._probes.drain()
        self._clock = clocks.reading()  # right after the copy: later events go to the next chunk
        size = sum(len(segment.data) for segment in segments)
        self._pending.extend(segments)
        self._pending_bytes += size
        self._taken_bytes += size
        self._limits.took(segments)
        return bool(segments)

    def _offer_chunk(self, now_ns: int) -> None:
        """Queue the pending segments as a chunk; they stay pending if the queue is full."""
        if self._pending and self._stacks.due(now_ns):
            self._stacks.put(self._writer)  # before the events that have the stacks' ids
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
        """Queue notes of new devices, cgroups and mounts; stop if the output was removed."""
        if self._devices.due(now_ns):
            self._writer.offer(self._writer.note("devices", self._devices.changes))
        if self._cgroups.due(now_ns):
            self._writer.offer(self._writer.note("cgroups", self._cgroups.changes))
        self._files.look(self._writer, now_ns)
        if self._sink.removed() and not self._rotation.possible:
            self._stop.request("output removed")

    def _watch_cost(self, now_ns: int) -> None:
        if warning := self._watch.tick(now_ns, self._events()):
            self._tell_status(now_ns, warning)

    def _events(self) -> float:
        """Return about how many events were copied from the rings so far."""
        return self._writer.meter.events * self._taken_bytes / max(self._writer.raw_bytes, 1)

    def _tell(self, note: str) -> None:
        self._tell_status(time.monotonic_ns(), note)

    def _tell_status(self, now_ns: int, note: str = "") -> None:
        if self._on_status is None:
            return
        self._on_status(
            Status(
                seconds=(now_ns - self._began_ns) / 1e9,
                events=round(self._events()),
                lost=self._loss.total,
                log_bytes=self._writer.log_bytes,
                note=note,
            )
        )

    def fail(self, error: OSError | TraceError) -> None:
        """Keep the error why recording cannot go on (the first stays), and request the stop."""
        self._failure = self._failure or error
        self._stop.request("recorder failed")

    def finish(self) -> Summary:
        """Detach, copy out the remaining records, end the log, and wait for the command's end."""
        self._stopped = clocks.reading()  # programs are detached one by one: later events have gaps
        try:
            self._take_rest()
        except (OSError, TraceError) as error:
            self.fail(error)
        ended = self._writer.finish(
            self._last_job(), lambda: stuck(self._writer, self._stop, STUCK_NS)
        )
        self._pass_on()
        reason = self._stop.reason
        summary = self._account.summary(reason, self._stopped, self._taken_bytes)
        summary.error = self._account.error(ended, reason, self._failure)
        if self._child is not None:
            name = self._options.command[0]
            summary.command_status = see_off(self._child, name, self._stop, self._tell)
        return summary

    def _take_rest(self) -> None:
        """Detach the programs; copy out their last records, losses and triggers."""
        self._watch.end()
        self._probes.detach()
        while self._drain():
            pass
        now = time.monotonic_ns()
        self._sample_rings(now)
        self._sample_programs(now)
        self._listen()

    def _last_job(self) -> Job:
        """Return the job that writes all that is pending, then the END frame."""
        writer = self._writer
        jobs = self._stacks.jobs(writer)
        jobs += [writer.chunk(self._pending, self._clock)] if self._pending else []
        jobs += [writer.loss(self._windows)] if self._windows else []
        jobs.append(writer.note("devices", self._devices.changes))
        jobs.append(writer.note("cgroups", self._cgroups.changes))
        jobs += self._files.jobs(writer)

        def last(log: LogSink) -> None:
            for job in jobs:
                job(log)
            # A log that lacks a chunk gets no END frame, so that it reads as interrupted. A flight
            # recorder still tries to write what is in memory.
            if writer.error is None or self._flight.possible:
                log.close(self._account.end(self._stop.reason, self._stopped))

        return last
