# SPDX-License-Identifier: Apache-2.0
"""A recording under way: its poll loop, and the state that the loop works on.

The poll loop copies committed bytes out of the rings and passes them to the writer thread.
It decodes no event; a round takes a constant number of steps per ring.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

from biotrail.recorder.accounting import cost
from biotrail.recorder.filters.triggers import Hit
from biotrail.recorder.notes.cpus import CpuWatch
from biotrail.recorder.notes.hotplug import DeviceWatch, Watch
from biotrail.recorder.notes.stacks import HURRIED_NS
from biotrail.recorder.output.series import removed
from biotrail.recorder.output.sinks import FlightBuffer, LogSink, RotatingLog
from biotrail.recorder.output.writer import WriterThread
from biotrail.recorder.probes.rings.ring import rings_note
from biotrail.recorder.rights.priority import RealtimeBoost
from biotrail.recorder.schema.errors import OutputError, ProbeError, TraceError
from biotrail.recorder.schema.payloads import Clock
from biotrail.recorder.session.cost_watch import (
    ADVICE,
    LOOK_NS,
    SITES_ADVICE,
    CallBudget,
    CostWatch,
)
from biotrail.recorder.session.intake import Intake
from biotrail.recorder.session.opening import Opened
from biotrail.recorder.session.session_types import Status

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


def next_sleep(last: float, fill: float, slept: float, longest: float) -> float:
    """Return the next sleep (s), after which the fullest ring shall be at TARGET_FILL.

    `last`: the sleep that this was asked for before. `fill`: the fullest ring's used share, 0 to 1,
    after a sleep of `slept` seconds. `longest`: LONGEST, or NAP if programs wake the recorder.
    """
    wanted = slept * TARGET_FILL / fill if fill > 0 else longest
    return min(max(min(wanted, 2 * last), SHORTEST), longest)


class FileOrders:
    """Orders one file at a time: the next of a rotation, or a dump of a flight recorder."""

    def __init__(
        self, sink: LogSink, writer: WriterThread, after: float = 0.0, every: float = 0.0
    ) -> None:
        """`after`: seconds recorded after a trigger. `every`: least between two with a dump."""
        self._sink, self._writer = sink, writer
        self._after_ns, self._every_ns = round(after * 1e9), round(every * 1e9)
        self.asked_by = ""
        """Name of the signal that asked for a dump, for its header; "": none did."""
        self.waiting_hit: Hit | None = None
        """The trigger whose dump is not ordered yet."""
        self._next_trigger_ns = 0
        self._ordered = False
        self.let_pass = 0
        """Triggers ignored because they came within `every` seconds of one that made a dump.

        At least: of those of one CPU between two polls only the first is known.
        """

    def request_dump_after(self, hit: Hit) -> None:
        """Request a dump `after` seconds behind a trigger's time.

        Not too soon after the last one (`every`; counted in `let_pass`), nor while one waits, which
        covers it too.
        """
        if hit.monotonic < self._next_trigger_ns:
            self.let_pass += 1
        elif self.waiting_hit is None:
            self.waiting_hit = hit

    def hold_from(self, begin_ns: int | None) -> None:
        """Keep records from `begin_ns` on (CLOCK_MONOTONIC); None: as the limits have it."""
        # While a dump is waiting or begun, it may be the one that needs them.
        if isinstance(self._sink, FlightBuffer) and self.waiting_hit is None and not self._ordered:
            self._sink.hold_from = begin_ns

    def due(self, now_ns: int) -> bool:
        """Return whether to order a file: not while another one is ordered or being written."""
        sink, hit = self._sink, self.waiting_hit
        if self._ordered:
            return False
        if isinstance(sink, RotatingLog):
            return sink.due()
        if not isinstance(sink, FlightBuffer) or sink.busy:
            return False
        return bool(self.asked_by) or (hit is not None and now_ns >= hit.monotonic + self._after_ns)

    def order(self, clock: Clock) -> None:
        """Queue what ends the present file, or dumps all that is queued, up to `clock`.

        Nothing changes if the queue is full. One dump is for a user's request and a trigger's, and
        its header's "kept" then has the trigger.
        """
        hit = self.waiting_hit
        facts: dict[str, Any] = {"reason": f"asked for ({self.asked_by})"}
        if hit is not None:
            facts = {"reason": f"trigger {hit.trigger}", "trigger": asdict(hit)}
        facts["triggers_let_pass"] = self.let_pass

        def begin_file(_log: LogSink) -> None:
            try:
                if isinstance(self._sink, FlightBuffer):
                    self._sink.dump(facts, clock)
                elif isinstance(self._sink, RotatingLog) and self._writer.error is None:
                    self._sink.rotate(clock)
            finally:
                self._ordered = False

        self._ordered = True  # first: the job may have run when `offer` returns
        if not self._writer.offer(begin_file):
            self._ordered = False
            return
        self.asked_by = ""
        if hit is not None:
            self._next_trigger_ns = hit.monotonic + self._every_ns
            self.waiting_hit = None


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

        `undo` ends the thread where this fails. `kept`: capabilities that were kept when others
        were given up; None: none were. Raises OSError or TraceError.
        """
        self.options = options = opened.options
        self.opened, self.stop, self.child = opened, opened.stop, opened.child
        self.probes = probes = opened.probes
        self.kept = kept
        self._on_status = on_status
        self.began = cost.read(probes.programs())
        now_ns = self.began.monotonic
        self.failure: OSError | TraceError | None = None
        """Why the recorder itself could not go on, the first error; None: it could."""
        self.writer = writer = WriterThread(opened.sink)
        undo.callback(writer.finish, lambda _log: None, lambda: False)
        self.intake = Intake(opened, writer, now_ns)
        self.watches: dict[str, Watch] = {
            "devices": DeviceWatch(opened.header["devices"], opened.seen),
            "cgroups": opened.cgroups.watch,
            "containers": opened.cgroups.containers,
        }
        """By the name of their notes; the writer thread looks."""
        if opened.mounts is not None:
            self.watches["mounts"] = opened.mounts
        if "wait" in opened.header.get("path", {}).get("parts", ()):
            self.watches["cpus"] = CpuWatch()
        for name in ("cgroups", "containers", "mounts"):  # all that is there already
            if (watch := self.watches.get(name)) is not None:
                writer.submit(writer.note(name, watch.changes))
        self.files = FileOrders(opened.sink, writer, options.after, options.every)
        advice = SITES_ADVICE if options.max_cpu_ends else ADVICE
        self.watch = CostWatch(probes, opened.count_runs, options.max_cpu, now_ns, advice)
        self.call_budget = CallBudget(probes, options.call_budget, now_ns)
        self.boost = RealtimeBoost(writer.threads)  # they hold locks that the poll loop waits for
        stack.callback(self.boost.relax)
        polled = (
            probes.waker is None
            or (self.child is not None and self.child.pidfd is None)
            or options.max_events is not None
            or options.max_bytes is not None
            or opened.guard is not None
            or options.triggers.pressure
            or options.triggers.stuck_ns
        )
        self._longest = LONGEST if polled else NAP
        self._pause = self._slept = SHORTEST
        """Seconds of the coming sleep, and of the last one."""
        self._armed = False
        """Whether the programs wake the recorder from the coming sleep."""
        self._due_ns: dict[str, int] = {}
        """When what is done at intervals is due next (CLOCK_MONOTONIC)."""
        opened.cgroups.start()
        stack.callback(opened.cgroups.stop)
        small = rings_note(options.ring_bytes, opened.header["rings"]["bytes"])
        messages = [*opened.messages, *opened.stacks.nameless, small, probes.short_of_memory()]
        for message in ("", *filter(None, messages)):
            self.report(message)
        opened.messages.clear()
        if opened.guard is not None:
            opened.guard.go()

    def report(self, note: str = "") -> None:
        """Call `on_status` with the figures of now, and a message for the user."""
        if self._on_status is not None:
            self._on_status(
                Status(
                    seconds=(time.monotonic_ns() - self.began.monotonic) / 1e9,
                    events=round(self._events()),
                    lost=self.intake.loss.total,
                    log_bytes=self.writer.log_bytes,
                    note=note,
                )
            )

    def _events(self) -> float:
        """Return about how many events were copied from the rings: those written, scaled."""
        writer = self.writer
        return writer.meter.events * self.intake.taken_bytes / max(writer.meter.bytes, 1)

    def loop(self) -> None:
        """Poll until there is a `stop.reason`. Raises OSError or TraceError of the probes."""
        sink, files = self.opened.sink, self.files
        while self.stop.reason is None:
            left = float("inf")
            if self.options.duration is not None:
                passed_ns = time.monotonic_ns() - self.began.monotonic
                left = self.options.duration - passed_ns / 1e9
            if left <= 0:
                self.stop.request("duration")
            elif self.child is not None and not self.child.running:
                self.stop.request("command ended")
            elif self.writer.error is not None:
                self.stop.request("output failed")
            elif reached := self.intake.limit_reached():
                self.stop.request(reached)
            else:
                age_ns = sink.due_ns() if isinstance(sink, RotatingLog) else float("inf")
                due_ns = min(self.intake.due_ns, self.watch.due_ns, age_ns)
                due = (due_ns - time.monotonic_ns()) / 1e9
                if due <= 0 or files.asked_by or files.waiting_hit is not None:
                    due = LONGEST
                elif self.opened.stacks.hurried:
                    due = min(due, HURRIED_NS / 1e9)
                self._sleep(min(left, due))
                self._round(time.monotonic_ns())

    def _sleep(self, left: float) -> None:
        began_ns = time.monotonic_ns()
        pidfd = None if self.child is None else self.child.pidfd
        seconds = min(self._pause, left)
        if (waker := self.probes.waker) is not None:
            if self._armed:
                self.stop.sleep(seconds, pidfd, waker.descriptor)
            else:
                self.stop.sleep(min(seconds, GLANCE), pidfd)
            waker.disarm()
        else:
            self.stop.sleep(min(seconds, GLANCE), pidfd)
            asked = self.stop.reason or self.stop.dump_signal
            if seconds > GLANCE and not asked and self.probes.fill() < TARGET_FILL:
                self.stop.sleep(seconds - GLANCE, pidfd)
        self._slept = (time.monotonic_ns() - began_ns) / 1e9

    def _is_due(self, what: str, period_ns: int, now_ns: int) -> bool:
        """Return whether something is to be done again; what is late moves all later times."""
        due = now_ns >= self._due_ns.setdefault(what, self.began.monotonic + period_ns)
        if due:
            self._due_ns[what] = now_ns + period_ns
        return due

    def _round(self, now_ns: int) -> None:
        waker = self.probes.waker
        # The next sleep may be twice as long.
        self._armed = waker is not None and 2 * self._pause > GLANCE
        if waker is not None and self._armed:
            waker.arm()  # before all that is looked at: what comes later wakes
        fill = self.probes.fill()
        self._pause = next_sleep(self._pause, fill, self._slept, self._longest)
        self.boost.adapt(fill)
        self.intake.poll(now_ns)
        self.watch.end_full_sample(self.intake.taken_bytes)
        if now_ns >= self.watch.due_ns:
            # Each event of the block layer is a run of its programs.
            meter = self.writer.meter
            events = self._events() * (1 - meter.path_events / max(meter.events, 1))
            warning = self.watch.tick(now_ns, events)
            if warning and self.options.max_cpu_ends:
                self.fail(ProbeError(warning))
            elif warning:
                self.report(warning)
        self._do_periodic(now_ns)
        self.check_triggers()
        if (guard := self.opened.guard) is not None:
            guard.read_messages()
            self.note_periods()
            if guard.over and self.options.duration is None and self.child is None:
                self.stop.request("pauses done")
        self.report_messages()
        if self.files.due(now_ns):
            # Behind all records and losses so far.
            self.intake.drain()
            self.intake.offer_chunk(now_ns)
            self.intake.sample_rings(now_ns)
            if self.intake.empty and self.opened.stacks.put(self.writer):
                self.files.order(self.intake.clock)

    def _do_periodic(self, now_ns: int) -> None:
        opened, stacks, writer = self.opened, self.opened.stacks, self.writer
        if self._is_due("rings", LOSS_NS, now_ns):
            self.intake.sample_rings(now_ns)
        if self._is_due("programs", PROGRAMS_NS, now_ns):
            self.intake.sample_programs(now_ns)
        if self._is_due("notes", NOTES_NS, now_ns):
            for name, watch in self.watches.items():
                if watch.due(now_ns):
                    writer.offer(writer.note(name, watch.changes))
            if opened.new_file is not None and removed(opened.new_file.stream):
                self.stop.request("output removed")
        if self._is_due("stacks", HURRIED_NS, now_ns) and stacks.hurried and stacks.due(now_ns):
            stacks.put(writer)
        if self._is_due("calls", LOOK_NS, now_ns) and (ended := self.call_budget.look(now_ns)):
            note, words = ended
            writer.submit(writer.note("call_timing", lambda: note))
            self.report(words)
        if self._is_due("status", STATUS_NS, now_ns):
            self.report()

    def check_triggers(self) -> None:
        """Pass signals and triggers that request a dump to the flight recorder."""
        if self.stop.dump_signal:
            self.files.asked_by, self.stop.dump_signal = self.stop.dump_signal, ""
        triggers = self.options.triggers
        hits = self.probes.triggered() if triggers.in_kernel else []
        now_ns, stuck = time.monotonic_ns(), self.opened.stuck
        if triggers.pressure:
            hits += self.opened.pressure.hits(now_ns, self.opened.messages)
        if stuck is not None:
            hits += stuck.hits(now_ns)
        for hit in hits:
            self.files.request_dump_after(hit)
        if stuck is not None:  # last: a dump that is waiting now holds what it needs
            self.files.hold_from(stuck.hold_from())

    def note_periods(self) -> None:
        """Queue a note for each period of the experiment that has ended since the last call."""
        if self.opened.guard is not None:
            for note in self.opened.guard.take_periods():
                self.writer.submit(self.writer.note("paused", partial(dict, note)))

    def report_messages(self) -> None:
        """Report to the user dumps that were written or failed, then all of `opened.messages`."""
        sink = self.opened.sink
        while isinstance(sink, FlightBuffer) and not sink.messages.empty():
            self.report(sink.messages.get())
        while self.opened.messages:
            self.report(self.opened.messages.pop(0))

    def fail(self, error: OSError | TraceError | MemoryError) -> None:
        """Keep the error why recording cannot go on (the first stays), and request the stop."""
        if isinstance(error, MemoryError):
            error = OutputError(_NO_MEMORY)
        self.failure = self.failure or error
        self.stop.request("recorder failed")
