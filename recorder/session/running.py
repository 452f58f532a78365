# SPDX-License-Identifier: Apache-2.0
"""A recording under way: its poll loop, and the state that the loop works on.

The poll loop copies committed bytes out of the rings and passes them to the writer thread.
It decodes no event; a round takes a constant number of steps per ring.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.loss import LossCounters
from biotrail.recorder.notes.changes import ChangeNotes
from biotrail.recorder.notes.cpus import CpuWatch
from biotrail.recorder.notes.stacks import HURRIED_NS
from biotrail.recorder.notes.titles import TitleWatch
from biotrail.recorder.output.sinks import RotatingLog
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.pausing.guard import Guard
from biotrail.recorder.probes.rings.ring import rings_note
from biotrail.recorder.rights.priority import RealtimeBoost
from biotrail.recorder.schema.errors import OutputError, ProbeError, TraceError
from biotrail.recorder.schema.payloads import CallTimingNote
from biotrail.recorder.session.cost_watch import (
    ADVICE,
    LOOK_NS,
    SITES_ADVICE,
    CallBudget,
    CostWatch,
    end_message,
)
from biotrail.recorder.session.dumps import Flight, Rotation
from biotrail.recorder.session.intake import Intake, LossFeed, StopLimits
from biotrail.recorder.session.opening import Opened
from biotrail.recorder.session.session_types import Status
from biotrail.recorder.session.stop import Every

SHORTEST = 0.005
LONGEST = 0.05
"""Where the programs do not wake the recorder, or what it looks for does not."""
NAP = 0.45
"""Where they do, twice in a chunk's time: what missed waking it up waits no longer."""
GLANCE = 0.025
"""A longer sleep is ended by programs, or interrupted after this time to check the rings: a sudden
load of five million events a second fills one of 16 MiB in 60 ms, and on a busy machine waking up
takes a while."""
TARGET_FILL = 0.1
"""Share of the fullest ring that may be in use on waking: a burst ten times the last fits."""

_NO_MEMORY = (
    "there was not enough memory to go on recording: what was recorded before is in the log; "
    "free some, or record less (-d, a smaller --buffer-size or --keep)"
)


class Pace:
    """The sleep between two polls, `seconds`, adapted to how full the rings were."""

    def __init__(self, longest: float = LONGEST) -> None:
        """Begin with the shortest sleep. longest: LONGEST, or NAP if programs wake the recorder."""
        self.longest = longest
        self.seconds = SHORTEST

    def adapt(self, fill: float, slept: float) -> None:
        """Set `seconds` so that the fullest ring reaches TARGET_FILL by the next poll at this load.

        `fill`: the fullest ring's used share, 0 to 1, after a sleep of `slept` seconds, which may
        have ended early. `seconds` at most doubles.
        """
        wanted = slept * TARGET_FILL / fill if fill > 0 else self.longest
        self.seconds = min(max(min(wanted, 2 * self.seconds), SHORTEST), self.longest)

    @property
    def wants_waking(self) -> bool:
        """Whether programs are to wake the recorder from the coming sleep: it may exceed GLANCE."""
        return 2 * self.seconds > GLANCE

    def split_sleep(self, left: float) -> list[float]:
        """Return the next sleep (s) in one part or two; between them `must_poll` is to be asked."""
        seconds = min(self.seconds, left)
        return [seconds] if seconds <= GLANCE else [GLANCE, seconds - GLANCE]

    def must_poll(self, fill: float) -> bool:
        """Return whether to empty the rings before the sleep is over, at this fill (0 to 1)."""
        return fill >= TARGET_FILL


class Progress:
    """Calls `on_status` with the recording's figures so far."""

    def __init__(
        self,
        on_status: Callable[[Status], None] | None,
        began_ns: int,
        intake: Intake,
        writer: WriterThread,
        loss: LossCounters,
    ) -> None:
        """`on_status`: called with each report. `began_ns`: CLOCK_MONOTONIC."""
        self._on_status = on_status
        self._began_ns = began_ns
        self._intake = intake
        self._writer = writer
        self._loss = loss

    def events(self) -> float:
        """Return about how many events were copied from the rings so far.

        The number of events written, scaled by bytes copied per byte written.
        """
        writer = self._writer
        return writer.meter.events * self._intake.taken_bytes / max(writer.raw_bytes, 1)

    def block_events(self) -> float:
        """Return about how many of `events` are of the block layer, each a run of its programs."""
        meter = self._writer.meter
        return self.events() * (1 - meter.path_events / max(meter.events, 1))

    def report(self, now_ns: int, note: str = "") -> None:
        """Call `on_status` with the figures at `now_ns` (CLOCK_MONOTONIC) and a message, or ""."""
        if self._on_status is None:
            return
        self._on_status(
            Status(
                seconds=(now_ns - self._began_ns) / 1e9,
                events=round(self.events()),
                lost=self._loss.total,
                log_bytes=self._writer.log_bytes,
                note=note,
            )
        )

    def tell(self, note: str) -> None:
        """Report a message to the user now."""
        self.report(time.monotonic_ns(), note)


LOSS_NS = 250_000_000
PROGRAMS_NS = 1_000_000_000
NOTES_NS = 500_000_000
STATUS_NS = 1_000_000_000


class Running:
    """A recording whose programs are attached and whose writer thread runs."""

    def __init__(
        self,
        opened: Opened,
        kept: list[str] | None,
        on_status: Callable[[Status], None] | None,
        stack: ExitStack,
        undo: ExitStack,
    ) -> None:
        """Start the writer thread and make all that the poll loop works on; report messages so far.

        The caller has to run `loop`, then `finish`, which ends the log and the thread; `undo` ends
        the thread where this fails. Raises OSError or TraceError.
        """
        self.options = options = opened.options
        self.opened, self.stop, self.child = opened, opened.stop, opened.child
        self.probes = probes = opened.probes
        self.kept = kept
        """Capabilities that were kept when others were given up; None: none were given up."""
        self.began = cost.read(probes.programs())
        """The totals when the recording began."""
        now_ns = self.began.monotonic
        self.failure: OSError | TraceError | None = None
        """Why the recorder itself could not go on, the first error; None: it could."""
        self.writer = writer = WriterThread(opened.sink)
        undo.callback(writer.finish, lambda _log: None, lambda: False)
        self.loss = LossCounters(int(opened.header["clocks"]["monotonic"]))
        self.loss_feed = LossFeed(probes, self.loss, writer)
        self.limits = StopLimits(options, writer)
        titles = TitleWatch(options.command_lines)
        self.intake = Intake(probes, opened.stacks, titles, writer, self.limits, now_ns)
        self.progress = Progress(on_status, now_ns, self.intake, writer, self.loss)
        self.changes = ChangeNotes(
            opened.header["devices"],
            opened.seen,
            opened.files,
            writer,
            opened.cgroups,
            CpuWatch() if "wait" in opened.header.get("path", {}).get("parts", ()) else None,
        )
        self.rotation = Rotation(opened.sink, writer)
        self.flight = Flight(opened.sink, writer, options.after, options.every)
        advice = SITES_ADVICE if options.max_cpu_ends else ADVICE
        self.watch = CostWatch(probes, opened.count_runs, options.max_cpu, now_ns, advice)
        self.call_budget = CallBudget(probes, options.call_budget, now_ns)
        self.boost = RealtimeBoost()
        self.boost.add_thread()
        for thread in writer.threads:  # they hold locks that the poll loop waits for
            self.boost.add_thread(thread)
        stack.callback(self.boost.relax)
        self.pace = Pace(self._longest_sleep())
        self.slept = SHORTEST
        """Seconds of the last sleep."""
        self.armed = False
        """Whether the programs wake the recorder from the coming sleep."""
        actions: list[tuple[int, Callable[[int], None]]] = [
            (LOSS_NS, self.loss_feed.sample_rings),
            (PROGRAMS_NS, self.loss_feed.sample_programs),
            (NOTES_NS, self._look_around),
            (HURRIED_NS, opened.stacks.hurried_look(writer)),
            (LOOK_NS, self._watch_calls),
            (STATUS_NS, self.progress.report),
        ]
        self.periodic = [Every(ns, action, now_ns) for ns, action in actions]
        """What is done at its own intervals, in the order of a round."""
        opened.cgroups.start()
        stack.callback(opened.cgroups.stop)
        small = rings_note(options.ring_bytes, opened.header["rings"]["bytes"])
        messages = [*opened.messages, *opened.stacks.nameless(), small, probes.short_of_memory()]
        for message in ("", *filter(None, messages)):
            self.progress.report(now_ns, message)
        opened.messages.clear()
        if opened.guard is not None:
            opened.guard.go()

    def loop(self) -> None:
        """Poll until there is a reason to stop, which is then in `stop.reason`.

        Raises OSError or TraceError: the probes cannot be read.
        """
        while self.stop.reason is None:
            left = self._seconds_left()
            if left <= 0:
                self.stop.request("duration")
            elif self.child is not None and not self.child.running:
                self.stop.request("command ended")
            elif self.writer.error is not None:
                self.stop.request("output failed")
            elif reached := self.limits.reached(self.intake.taken_bytes):
                self.stop.request(reached)
            else:
                self._sleep(min(left, self._until_due()))
                self._round(time.monotonic_ns())

    def _seconds_left(self) -> float:
        if self.options.duration is None:
            return float("inf")
        return self.options.duration - (time.monotonic_ns() - self.began.monotonic) / 1e9

    def _longest_sleep(self) -> float:
        options, command = self.options, self.child
        polled = (
            self.probes.waker is None
            or (command is not None and command.pidfd is None)
            or options.max_events is not None
            or options.max_bytes is not None
            or self.opened.guard is not None
            or options.triggers.pressure
            or options.triggers.stuck_ns
        )
        return LONGEST if polled else NAP

    def _until_due(self) -> float:
        now_ns = time.monotonic_ns()
        due_ns = min(self.intake.due_ns, self.watch.due_ns, self.rotation.due_ns)
        left = (due_ns - now_ns) / 1e9
        if left <= 0 or self.flight.waits:
            return LONGEST
        return min(left, HURRIED_NS / 1e9) if self.opened.stacks.hurried else left

    def _sleep(self, left: float) -> None:
        began_ns = time.monotonic_ns()
        pidfd = None if self.child is None else self.child.pidfd
        if (waker := self.probes.waker) is not None:
            longest = self.pace.longest if self.armed else GLANCE
            self.stop.sleep(
                min(self.pace.seconds, left, longest),
                pidfd,
                waker.descriptor if self.armed else None,
            )
            waker.disarm()
        else:
            self._sleep_with_glance(left, pidfd)
        self.slept = (time.monotonic_ns() - began_ns) / 1e9

    def _sleep_with_glance(self, left: float, pidfd: int | None) -> None:
        first, *rest = self.pace.split_sleep(left)
        self.stop.sleep(first, pidfd)
        for seconds in rest:
            if self.stop.reason or self.stop.dumps or self.pace.must_poll(self.probes.fill()):
                return
            self.stop.sleep(seconds, pidfd)

    def _round(self, now_ns: int) -> None:
        self.armed = (waker := self.probes.waker) is not None and self.pace.wants_waking
        if waker is not None and self.armed:
            waker.arm()  # before all that is looked at: what comes later wakes
        fill = self.probes.fill()
        self.pace.adapt(fill, self.slept)
        self.boost.adapt(fill)
        self.intake.poll(now_ns)
        self.watch.end_full_sample(self.intake.taken_bytes)
        if now_ns >= self.watch.due_ns:
            self._watch_cost(now_ns)
        for periodic in self.periodic:
            periodic.run(now_ns)
        self.check_triggers()
        self._read_guard()
        self.report_messages()
        for part in (self.rotation, self.flight):
            if part.due(now_ns):
                self._end_part(part, now_ns)

    def check_triggers(self) -> None:
        """Pass signals and triggers that request a dump to the flight recorder."""
        if self.stop.dumps:
            self.stop.dumps = 0
            self.flight.request_dump(self.stop.dump_signal)
        triggers = self.options.triggers
        hits = self.probes.triggered() if triggers.in_kernel else []
        if triggers.pressure or triggers.stuck_ns:
            watches = self.opened.watches
            hits += watches.hits(time.monotonic_ns(), self.opened.messages)
        for hit in hits:
            self.flight.request_dump_after(hit)
        if triggers.stuck_ns:  # last: a dump that is waiting now holds what it needs
            self.flight.hold_from(self.opened.watches.hold_from())

    def _read_guard(self) -> None:
        if (guard := self.opened.guard) is None:
            return
        guard.read_messages()
        note_periods(guard, self.writer)
        if guard.over and self.options.duration is None and self.child is None:
            self.stop.request("pauses done")

    def report_messages(self) -> None:
        """Report to the user dumps that were written or failed, then all of `opened.messages`."""
        for message in self.flight.messages():
            self.progress.tell(message)
        while self.opened.messages:
            self.progress.tell(self.opened.messages.pop(0))

    def _end_part(self, part: Rotation | Flight, now_ns: int) -> None:
        """Queue all records and losses so far, then the rotation or dump `part`."""
        self.intake.drain()
        self.intake.offer_chunk(now_ns)
        self.loss_feed.sample_rings(now_ns)
        if self.intake.empty and self.loss_feed.empty and self.opened.stacks.put(self.writer):
            part.order(self.intake.clock)

    def _look_around(self, now_ns: int) -> None:
        """Queue notes of new devices, cgroups and mounts; stop if the output was removed."""
        self.changes.look(now_ns)
        if self.opened.sink.removed() and not isinstance(self.opened.sink, RotatingLog):
            self.stop.request("output removed")

    def _watch_cost(self, now_ns: int) -> None:
        warning = self.watch.tick(now_ns, self.progress.block_events())
        if warning and self.options.max_cpu_ends:
            self.fail(ProbeError(warning))
        elif warning:
            self.progress.report(now_ns, warning)

    def _watch_calls(self, now_ns: int) -> None:
        self.call_budget.look(now_ns, self._note_end_of_timing)

    def _note_end_of_timing(self, note: CallTimingNote) -> None:
        self.writer.submit(self.writer.note("call_timing", lambda: dict(note)))
        self.progress.report(note["until"], end_message(note))

    def fail(self, error: OSError | TraceError | MemoryError) -> None:
        """Keep the error why recording cannot go on (the first stays), and request the stop."""
        if isinstance(error, MemoryError):
            error = OutputError(_NO_MEMORY)
        self.failure = self.failure or error
        self.stop.request("recorder failed")


def note_periods(guard: Guard, writer: WriterThread) -> None:
    """Queue a note for each period that `guard` has told of since the last call."""
    for note in guard.take_periods():
        writer.submit(writer.note("paused", partial(dict, note)))
