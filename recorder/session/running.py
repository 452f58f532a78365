# SPDX-License-Identifier: Apache-2.0
"""A recording under way: its poll loop, and the state that the loop works on.

The poll loop copies committed bytes out of the rings and passes them to the writer thread.
It decodes no event; a round takes a constant number of steps per ring.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.loss import LossCounters
from biotrail.recorder.notes.changes import ChangeNotes
from biotrail.recorder.notes.cpus import CpuWatch
from biotrail.recorder.notes.stacks import HURRIED_NS
from biotrail.recorder.notes.titles import TitleWatch
from biotrail.recorder.output.rotation import Rotation
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.pausing.guard import Guard
from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.probes.rings.ring import rings_note
from biotrail.recorder.rights.priority import Urgency
from biotrail.recorder.schema.errors import ProbeError, TraceError
from biotrail.recorder.schema.payloads import CallTimingNote
from biotrail.recorder.session.call_budget import LOOK_NS, CallBudget, end_message
from biotrail.recorder.session.child import Child
from biotrail.recorder.session.cost_watch import ADVICE, SITES_ADVICE, CostWatch
from biotrail.recorder.session.flight import Flight
from biotrail.recorder.session.intake import Intake, LossFeed
from biotrail.recorder.session.limits import StopLimits
from biotrail.recorder.session.opening import Opened
from biotrail.recorder.session.pace import GLANCE, LONGEST, NAP, SHORTEST, Pace
from biotrail.recorder.session.progress import Progress
from biotrail.recorder.session.session_types import RecordOptions, Status
from biotrail.recorder.session.stop import Every, StopRequests

LOSS_NS = 250_000_000
PROGRAMS_NS = 1_000_000_000
NOTES_NS = 500_000_000
STATUS_NS = 1_000_000_000


@dataclass
class Running:
    """A recording whose programs are attached and whose writer thread runs; `start` makes it."""

    options: RecordOptions
    stop: StopRequests
    child: Child | None
    """The command, started; None: no command is recorded."""
    probes: Probes
    opened: Opened
    kept: list[str] | None
    """Capabilities that were kept when others were given up; None: none were given up."""
    began: cost.Reading
    """The totals when the recording began."""
    writer: WriterThread
    loss: LossCounters
    intake: Intake
    loss_feed: LossFeed
    changes: ChangeNotes
    limits: StopLimits
    rotation: Rotation
    flight: Flight
    watch: CostWatch
    call_budget: CallBudget
    progress: Progress
    urgency: Urgency
    pace: Pace = field(init=False)
    failure: OSError | TraceError | None = None
    """Why the recorder itself could not go on, the first error; None: it could."""
    periodic: list[Every] = field(init=False)
    """What is done at its own intervals, in the order of a round."""
    slept: float = field(init=False, default=SHORTEST)
    """Seconds of the last sleep."""
    armed: bool = field(init=False, default=False)
    """Whether the programs wake the recorder from the coming sleep."""

    def __post_init__(self) -> None:
        """Set `pace`, and `periodic`: every action first one period after the beginning.

        Losses of rings, losses of programs, notes of devices and the like, user stacks, the
        budget of timed calls, status; each with its own period, from 0.1 s (stacks) to 1 s, or
        later where the recorder sleeps.
        """
        self.pace = Pace(self._longest_sleep())
        actions: list[tuple[int, Callable[[int], None]]] = [
            (LOSS_NS, self.loss_feed.sample_rings),
            (PROGRAMS_NS, self.loss_feed.sample_programs),
            (NOTES_NS, self._look_around),
            (HURRIED_NS, self.opened.stacks.hurried_look(self.writer)),
            (LOOK_NS, self._watch_calls),
            (STATUS_NS, self.progress.report),
        ]
        self.periodic = [Every(ns, action, self.began.monotonic) for ns, action in actions]

    def loop(self) -> None:
        """Poll until there is a reason to stop, which is then in `stop.reason`.

        Before each round, the first that applies: a reason that is set already (a signal, removed
        output), "duration", "command ended", "output failed", a limit of events or bytes. Raises
        OSError or TraceError: the probes cannot be read.
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
        """Return the seconds until the duration is over, 0 or less after it; inf without one."""
        if self.options.duration is None:
            return float("inf")
        return self.options.duration - (time.monotonic_ns() - self.began.monotonic) / 1e9

    def _longest_sleep(self) -> float:
        """Return the longest sleep (s): NAP where all that may need a poll wakes the recorder."""
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
        """Return the seconds until something is to be done, whatever comes from the rings.

        A chunk is old enough, and a live view waits for it; runs are to be counted, or no longer; a
        file is too old. A dump that waits, or a chunk that finds the queue full, is tried again
        after LONGEST, stacks of programs are looked for after HURRIED_NS.
        """
        now_ns = time.monotonic_ns()
        due_ns = min(self.intake.due_ns, self.watch.due_ns, self.rotation.due_ns)
        left = (due_ns - now_ns) / 1e9
        if left <= 0 or self.flight.waits:
            return LONGEST
        return min(left, HURRIED_NS / 1e9) if self.opened.stacks.hurried else left

    def _sleep(self, left: float) -> None:
        """Sleep until the next poll is due, for `left` seconds at most.

        Ends early with the command (where it has a pidfd), by a signal, by a request to stop or
        dump, or by a program; where none wakes the recorder, a sleep longer than GLANCE ends after
        that if the fullest ring is TARGET_FILL full. Sets `slept`.
        """
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
        """Sleep, with a look at the rings in between; arguments as of `_sleep`."""
        first, *rest = self.pace.split_sleep(left)
        self.stop.sleep(first, pidfd)
        for seconds in rest:
            if self.stop.reason or self.stop.dumps or self.pace.must_poll(self.probes.fill()):
                return
            self.stop.sleep(seconds, pidfd)

    def _round(self, now_ns: int) -> None:
        """Do one round of the poll loop: drain, queue a chunk, run what is due, rotate or dump.

        Adapts the pace and the threads' priority to the rings' fill first. Requests for dumps are
        heard, and messages reported, before a rotation or dump that is due is queued. `now_ns`:
        CLOCK_MONOTONIC. Raises OSError or TraceError: the probes cannot be read.
        """
        self.armed = (waker := self.probes.waker) is not None and self.pace.wants_waking
        if waker is not None and self.armed:
            waker.arm()  # before all that is looked at: what comes later wakes
        fill = self.probes.fill()
        self.pace.adapt(fill, self.slept)
        self.urgency.adapt(fill)
        self.intake.poll(now_ns)
        self.watch.end_full_sample(self.intake.taken_bytes)
        if now_ns >= self.watch.due_ns:
            self._watch_cost(now_ns)
        for periodic in self.periodic:
            periodic.run(now_ns)
        self.listen()
        self._hear_guard()
        self.pass_on()
        for border in (self.rotation, self.flight):
            if border.due(now_ns):
                self._put_border(border, now_ns)

    def listen(self) -> None:
        """Pass signals and triggers that request a dump to the flight recorder.

        Sets `stop.dumps` back to 0: several signals since the last call are one request, named by
        the last. Only what `options` have triggers for is looked at.
        """
        if self.stop.dumps:
            self.stop.dumps = 0
            self.flight.request_dump(self.stop.asked_by)
        triggers = self.options.triggers
        hits = self.probes.triggered() if triggers.in_kernel else []
        if triggers.pressure or triggers.stuck_ns:
            watches = self.opened.watches
            hits += watches.hits(time.monotonic_ns(), self.opened.messages)
        for hit in hits:
            self.flight.request_dump_after(hit)
        if triggers.stuck_ns:  # last: a dump that is waiting now holds what it needs
            self.flight.hold_from(self.opened.watches.hold_from())

    def _hear_guard(self) -> None:
        """Queue notes of periods in which the suspect stood; stop after the last, if nothing else.

        That is, without a duration and a command.
        """
        if (guard := self.opened.guard) is None:
            return
        guard.hear()
        note_periods(guard, self.writer)
        if guard.over and self.options.duration is None and self.child is None:
            self.stop.request("pauses done")

    def pass_on(self) -> None:
        """Report to the user dumps that were written or failed, then all of `opened.messages`.

        Each once: `opened.messages` is then empty.
        """
        for message in self.flight.messages():
            self.progress.tell(message)
        while self.opened.messages:
            self.progress.tell(self.opened.messages.pop(0))

    def _put_border(self, border: Rotation | Flight, now_ns: int) -> None:
        """Queue all records and losses so far, then the rotation or dump `border`.

        Its file then ends, or its dump is cut, at the clock readings of a drain that is made here.
        A job for new call stacks goes before it. If the writer's queue has no room for one of all
        these, nothing is ordered (though those before are queued); the next round tries again.
        `border`: is due.
        """
        self.intake.drain()
        self.intake.offer_chunk(now_ns)
        self.loss_feed.sample_rings(now_ns)
        if self.intake.empty and self.loss_feed.empty and self.opened.stacks.put(self.writer):
            border.order(self.intake.clock)

    def _look_around(self, now_ns: int) -> None:
        """Queue notes of new devices, cgroups and mounts; stop if the output was removed."""
        self.changes.look(now_ns)
        if self.opened.sink.removed() and not self.rotation.possible:
            self.stop.request("output removed")

    def _watch_cost(self, now_ns: int) -> None:
        """Let the cost be watched, and report its warning if there is one."""
        warning = self.watch.tick(now_ns, self.progress.block_events())
        if warning and self.options.max_cpu_ends:
            self.fail(ProbeError(warning))
        elif warning:
            self.progress.report(now_ns, warning)

    def _watch_calls(self, now_ns: int) -> None:
        """End the timing of calls where it exceeds its budget; say so to the user and the log."""
        self.call_budget.look(now_ns, self._note_end_of_timing)

    def _note_end_of_timing(self, note: CallTimingNote) -> None:
        """Queue the note `call_timing`, waiting for room, and report the end of timing."""
        self.writer.submit(self.writer.note("call_timing", lambda: dict(note)))
        self.progress.report(note["until"], end_message(note))

    def fail(self, error: OSError | TraceError) -> None:
        """Keep the error why recording cannot go on (the first stays), and request the stop."""
        self.failure = self.failure or error
        self.stop.request("recorder failed")


def note_periods(guard: Guard, writer: WriterThread) -> None:
    """Queue a note for each period that `guard` has told of since the last call."""
    for note in guard.take_periods():
        writer.submit(writer.note("paused", partial(dict, note)))


def start(
    opened: Opened,
    kept: list[str] | None,
    on_status: Callable[[Status], None] | None,
    stack: ExitStack,
    undo: ExitStack,
) -> Running:
    """Start the writer thread and make all that the poll loop works on; report messages so far.

    Returns the recording, whose duration counts from now. The caller has to run its `loop`, then
    `finish`, which ends the log and the thread; the end of `stack` only returns the threads to
    normal scheduling and ends the look for cgroups, and `undo` ends the thread where this fails.
    `kept`: capabilities that were kept when others were given up; None: none were given up.
    `on_status`: as in `record`; first called without a message. Empties `opened.messages`. Raises
    OSError or TraceError.
    """
    prepared, clock = opened.prepared, opened.header["clocks"]
    options, probes = prepared.options, prepared.probes
    began = cost.read(probes.programs())
    now_ns = began.monotonic
    loss = LossCounters(int(clock["monotonic"]))
    writer = WriterThread(opened.sink)
    undo.callback(writer.finish, lambda _log: None, lambda: False)
    limits = StopLimits(options, writer)
    titles = TitleWatch(options.command_lines)
    intake = Intake(probes, opened.stacks, titles, writer, limits, now_ns)
    running = Running(
        options=options,
        stop=prepared.stop,
        child=prepared.child,
        probes=probes,
        opened=opened,
        kept=kept,
        began=began,
        writer=writer,
        loss=loss,
        intake=intake,
        loss_feed=LossFeed(probes, loss, writer),
        changes=ChangeNotes(
            opened.header["devices"],
            opened.seen,
            opened.files,
            writer,
            opened.cgroups,
            CpuWatch() if "wait" in opened.header.get("path", {}).get("parts", ()) else None,
        ),
        limits=limits,
        rotation=Rotation(opened.sink, writer),
        flight=Flight(opened.sink, writer, options.after, options.every),
        watch=_cost_watch(opened, now_ns),
        call_budget=CallBudget(probes, options.call_budget, now_ns),
        progress=Progress(on_status, now_ns, intake, writer, loss),
        urgency=_urgency(writer, stack),
    )
    opened.cgroups.start()
    stack.callback(opened.cgroups.stop)
    for message in ("", *_first_messages(opened)):
        running.progress.report(now_ns, message)
    opened.messages.clear()
    if opened.guard is not None:
        opened.guard.go()
    return running


def _cost_watch(opened: Opened, now_ns: int) -> CostWatch:
    """Return the watch of the recording's cost, from `now_ns` on."""
    options = opened.prepared.options
    advice = SITES_ADVICE if options.max_cpu_ends else ADVICE
    return CostWatch(opened.prepared.probes, opened.count_runs, options.max_cpu, now_ns, advice)


def _urgency(writer: WriterThread, stack: ExitStack) -> Urgency:
    """Return the Urgency of this thread and the writer's; `stack` ends real-time scheduling.

    Both keep their scheduling until rings fill.
    """
    urgency = Urgency()
    urgency.add_thread()
    urgency.add_thread(writer.thread)  # holds locks that the poll loop waits for
    stack.callback(urgency.relax)
    return urgency


def _first_messages(opened: Opened) -> list[str]:
    """Return the messages to report when recording begins: `opened.messages` and others.

    What the kernel's hidden symbols mean for call stacks and for what waits are for, each if it is
    recorded; messages if rings are smaller than wanted. In this order;
    `opened.messages` is not changed.
    """
    options = opened.prepared.options
    small = rings_note(options.ring_bytes, opened.header["rings"]["bytes"])
    memory = [message for message in (small, opened.prepared.probes.short_of_memory()) if message]
    return [*opened.messages, *opened.stacks.nameless(), *memory]
