# SPDX-License-Identifier: Apache-2.0
"""Figures of a recording that is still going on, by stretch of time, and of the last minute.

Every bio and request counts once, in the stretch in which its window came from the pipeline. So
stretches add up to the report of the same log.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Self

import numpy as np

from biotrail.converters.analysis.blame import online
from biotrail.converters.analysis.blame.company import everybody_recorded
from biotrail.converters.analysis.blame.online import Online, Waits
from biotrail.converters.analysis.blame.tree import BASES, Blamed, Victim
from biotrail.converters.analysis.distributions.depth import Depth, Span, follow, in_window
from biotrail.converters.analysis.distributions.groups import (
    LEFT_OUT,
    Groups,
    add_to_all,
    merged_by_code,
)
from biotrail.converters.analysis.distributions.keys import OP_BITS, ByProcess, name_of
from biotrail.converters.analysis.distributions.samples import Samples, samples_of
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.figures import Summary, as_row
from biotrail.converters.analysis.live.tree import (
    Blame,
    Depths,
    DeviceNow,
    Slow,
    SlowCall,
    Snapshot,
    Stretch,
)
from biotrail.converters.analysis.report.calls import CallsByGroup, CallsByName
from biotrail.converters.analysis.report.devices import Device
from biotrail.converters.analysis.report.path import HeldByLimit
from biotrail.converters.analysis.report.report import (
    device_report,
    group_report,
    operation_report,
    operation_reports,
    time_and_number,
)
from biotrail.converters.analysis.report.tree import DepthReport, LossReport, Percentiles, Report
from biotrail.converters.analysis.report.waits import Callers, WaitsByReason
from biotrail.converters.analysis.slow.calls import call_at
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    STAGE_NAMES,
    Bios,
    Lifecycles,
    Requests,
    Stage,
)
from biotrail.converters.inputs.backlog import QUIET_NS, LiveSource
from biotrail.converters.lifecycles.windows import queued_below
from biotrail.converters.pipeline import Trace

MOST_SLOW = 10
_SLOWEST = attrgetter("latency_ns", "end_ns")
"""Among equals the one that ended last."""
_SLOWEST_CALL = attrgetter("duration_ns", "end_ns")


@dataclass
class CallsOfStretch(CallsByName):
    every: bool = False
    """Whether calls that neither queued a bio nor waited for I/O are among the slowest, too."""
    slowest: list[SlowCall] = field(default_factory=list)
    """The MOST_SLOW slowest, the slowest first; among equals the one that returned last."""

    def add_window(self, window: Lifecycles, context: Context) -> None:
        """Calls whose entry is not known are never among the slowest."""
        if window.path is None or not len(window.path.calls):
            return
        calls = window.path.calls
        self.add(calls, context)
        of_kernel = context.files.of_kernel(calls.file) & (calls.bios == 0)
        shown = (calls.entry != NEVER) & ((calls.with_io & ~of_kernel) | self.every)
        took = np.where(shown, calls.exit - calls.entry, -1)
        rows = np.argsort(-took, kind="stable")[:MOST_SLOW]
        one = calls.take(rows[took[rows] >= 0])
        for row in range(len(one)):
            call = call_at(one, row, window.tasks, context)
            slow = as_row(
                SlowCall,
                call,
                process=call.comm,
                end_ns=call.entry_ns + call.duration_ns,
                part=call.longest,
                part_ns=call.parts[call.longest],
            )
            self.slowest.append(slow)
        self.slowest = heapq.nlargest(MOST_SLOW, self.slowest, key=_SLOWEST_CALL)

    def merge(self, other: Self) -> None:
        super().merge(other)
        self.slowest = heapq.nlargest(MOST_SLOW, self.slowest, key=_SLOWEST_CALL)


_NOTHING_LOST = LossReport({}, 0, 0, 0, False, 0, 0, 0, 0, [], [])


class Recent:
    """What sentences need of a stretch beside its groups: calls that waited, and limits."""

    def __init__(self, context: Context) -> None:
        self._waits = WaitsByReason(context)
        self._calls = CallsByGroup(context, "process")
        self._callers = Callers(context, self._calls, self._waits)
        self._held = HeldByLimit(context)

    def add(self, window: Lifecycles) -> None:
        if window.path is None:
            return
        for part in (self._calls, self._waits, self._callers, self._held):
            part.add(window, window.path)

    def report(
        self, part: "_Part", now: Stretch, devices: list[DeviceNow], context: Context
    ) -> Report | None:
        """Return the stretch `now` as a report, with what sentences are made of; None: no I/O."""
        if not now.total.bios.ios:
            return None
        bios, requests = part.bios.by_code, part.requests.by_code
        span, nothing = max(now.end_ns - now.begin_ns, 0), Device(Depth(0), Depth(0))
        depths = {
            one.device: DepthReport(
                one.queue.mean,
                one.queue.max,
                one.queue.active_ns,
                one.queue.time_ns - one.queue.active_ns,
                Summary.of(Distribution()),
            )
            for one in devices
        }
        found = []
        for dev in sorted({place >> OP_BITS for place in (*bios, *requests) if place >= 0}):
            operations = operation_reports(bios, requests, span, context, dev)
            device = device_report(dev, nothing, None, [], [], operations, {}, span, context)
            found.append(replace(device, queue=depths.get(device.device, device.queue)))
        blamed = None
        if now.blame is not None:  # without what would be without a culprit
            victims = [as_row(Victim, one, p99_ns=0, without=[]) for one in now.blame.victims]
            blamed = Blamed(now.blame.by, now.blame.by, victims)
        return Report(
            log_id=context.log_id,
            host=context.host,
            kernel="",
            begin_ns=now.begin_ns,
            end_ns=now.end_ns,
            begin=None,
            total=now.total,
            devices=sorted(found, key=lambda one: time_and_number(one.total.bios)),
            processes=now.processes,
            loss=_NOTHING_LOST,
            percentiles=Percentiles(),
            waits=self._waits.reports(),
            held=self._held.reports(),
            callers=self._callers.reports(),
            path_parts=tuple(context.path_parts),
            blamed=blamed,
        )


MINUTE_NS = 60_000_000_000
MOST_GROUPS = 256
"""Groups of one kind in one stretch; I/O of later groups is added to `others`."""


class LiveTrace(Trace):
    """The trace of a log that is still being written; deletes what it has taken in."""

    def __init__(
        self, source: LiveSource, *, own_io: bool = False, include_ambiguous: bool = False
    ) -> None:
        super().__init__(source, own_io=own_io, include_ambiguous=include_ambiguous)
        self.source = source

    def windows(self) -> Iterator[Lifecycles]:
        """Yield the windows of the log while it is written, each about the events of one chunk.

        So that memory is bounded, old entries are deleted from the source's `losses` and `damaged`
        (as by LiveSource.forget), the notes that the trace has taken in from the source's `notes`,
        and all but the last two clock readings from `context.clocks`.
        """
        for window in self.lifecycles(window_events=1):
            yield window
            losses, damaged = self.source.forget()
            self._told_losses -= losses
            self._told_damage -= damaged
            del self.source.notes[: self._notes]
            self._notes = 0
            del self.context.clocks[:-2]


@dataclass
class _Part:
    begin: int = -1
    end: int = -1
    bios: Groups = field(default_factory=lambda: Groups(MOST_GROUPS))
    lower: Groups = field(default_factory=lambda: Groups(MOST_GROUPS))
    """Bios that stacked devices queued for others, which `bios` and `processes` leave out."""
    requests: Groups = field(default_factory=lambda: Groups(MOST_GROUPS))
    processes: Groups = field(default_factory=lambda: Groups(MOST_GROUPS))
    slowest: list[Slow] = field(default_factory=list)
    calls: CallsOfStretch = field(default_factory=CallsOfStretch)
    waits: Waits = field(default_factory=Waits)

    def merge(self, other: "_Part") -> None:
        self.begin = other.begin if self.begin < 0 else min(self.begin, other.begin)
        self.end = max(self.end, other.end)
        for name in ("bios", "lower", "requests", "processes"):
            for code, group in getattr(other, name).by_code.items():
                getattr(self, name).merge(code, group)
        self.slowest = heapq.nlargest(MOST_SLOW, self.slowest + other.slowest, key=_SLOWEST)
        self.calls.merge(other.calls)
        self.waits.merge(other.waits)


class Live:
    """Adds up windows, and makes a snapshot of each stretch of about `interval` ns.

    After each `add` (or `idle`), call `snapshot` if `ready`.
    """

    def __init__(
        self, context: Context, interval: int, blame: str | None = None, every_call: bool = False
    ) -> None:
        """Start the first stretch at the log's first clock reading, or without a begin.

        blame: what victims and culprits are; None: nobody is blamed. every_call: whether calls
        without I/O are among the slowest, too.
        """
        self._context, self._interval, self._every_call = context, interval, every_call
        self._by, self._online = blame, Online(context, blame) if blame else None
        self._processes = ByProcess(context)
        begin = context.clocks[0]["monotonic"] if context.clocks else -1
        self._part = _Part(begin, begin, calls=CallsOfStretch(every=every_call))
        self._recent = Recent(context)
        self._minute: deque[_Part] = deque()
        self._depths: dict[int, tuple[Depth, Depth]] = {}
        self._open = Bios.none(), Requests.none()
        """Of the last window."""
        self._given = 0

    def add(self, window: Lifecycles) -> None:
        """Bios and requests that are still open at the window's end only count in depths."""
        if window.begin < 0:
            return
        part = self._part
        part.begin = window.begin if part.begin < 0 else part.begin
        part.end = max(window.end, part.end)
        bios = samples_of(window.bios, window.bio_stages, self._context)
        codes = self._processes.codes(window, bios)
        ways = [(part.bios, bios.place), (part.processes, codes)]
        lower = queued_below(window)
        if lower.any():
            ways = [(groups, np.where(lower, LEFT_OUT, of)) for groups, of in ways]
            ways.append((part.lower, np.where(lower, bios.place, LEFT_OUT)))
        add_to_all(bios, ways)
        requests = samples_of(window.requests, window.request_stages, self._context)
        add_to_all(requests, [(part.requests, requests.place)])
        self._add_slow(window, bios, codes)
        part.calls.add_window(window, self._context)
        self._recent.add(window)
        if self._online is not None:
            part.waits.merge(self._online.add(window)[0])
        queue = in_window(window, window.bios, window.open_bios)
        issue = in_window(window, window.requests, window.open_requests)
        follow(self._depths, (queue, issue), window.begin)
        self._open = window.open_bios, window.open_requests

    def idle(self, now: int) -> None:
        """Extend the current stretch to QUIET_NS before `now`, because no window came."""
        self._part.end = max(self._part.end, now - QUIET_NS)

    def ready(self) -> bool:
        """Whether the stretch has 3/4 of the interval: a chunk of 0.9 s is enough for a second."""
        return self._part.end - self._part.begin >= self._interval * 3 // 4

    def snapshot(self, source: LiveSource, last: bool = False) -> Snapshot:
        """Return a snapshot of the current stretch and of the last minute; begin a new stretch.

        The last minute is the stretches that began within a minute before that end, at least the
        current one. `slowest` is of that minute, `devices` since the last snapshot: the devices'
        depths begin anew. source: of the trace, for its counts of losses. last: whether the
        recording has ended; blame then has what still waited for later windows.
        """
        if last and self._online is not None:
            self._part.waits.merge(self._online.add(None)[0])
        part, calls = self._part, CallsOfStretch(every=self._every_call)
        self._part = _Part(part.end, part.end, calls=calls)
        self._minute.append(part)
        while part.end - self._minute[0].begin > MINUTE_NS and len(self._minute) > 1:
            self._minute.popleft()
        minute = _Part()
        for one in self._minute:
            minute.merge(one)
        self._given += 1
        devices = []
        for dev, (queue, issued) in sorted(self._depths.items()):
            both = []
            bios, requests = self._open
            going_on = (
                (bios.dev == dev) & (bios.complete == NEVER) & (bios.queue != NEVER),
                (requests.dev == dev) & (requests.complete == NEVER) & (requests.issue != NEVER),
            )
            for depth, rows in zip((queue, issued), going_on, strict=True):
                in_flight = int(rows.sum())
                span, depth.whole = depth.whole, Span()
                # Without a window since the last call nothing began or ended.
                mean, most = (span.mean, span.most) if span.time_ns else (in_flight, in_flight)
                both.append(Depths(in_flight, mean, most, span.busy_ns, span.time_ns))
            devices.append(DeviceNow(self._context.device_name(dev), *both))
        now = self._stretch(part)
        recent, self._recent = self._recent, Recent(self._context)
        return Snapshot(
            number=self._given,
            last=last,
            devices=devices,
            now=now,
            minute=self._stretch(minute),
            slowest=minute.slowest,
            lost_records=source.lost_records,
            skipped_ns=source.skipped_ns,
            slowest_calls=minute.calls.slowest,
            calls_until_ns=self._context.calls_timed_until,
            report=recent.report(part, now, devices, self._context),
        )

    def _stretch(self, part: _Part) -> Stretch:
        span, context = max(part.end - part.begin, 0), self._context
        bios = merged_by_code(part.bios.by_code, part.lower.by_code)
        requests = part.requests.by_code
        places = sorted({*bios, *requests})
        found = []
        for place in places:
            device, operation = context.device_name(place >> OP_BITS), context.op_name(place)
            found.append(
                operation_report(
                    {"others": 1} if place < 0 else {"device": device, "operation": operation},
                    [bios[place]] if place in bios else [],
                    [requests[place]] if place in requests else [],
                    span,
                    context,
                )
            )
        processes = [
            group_report(name_of(self._processes, code), group, span, context)
            for code, group in part.processes.by_code.items()
        ]
        blame = None
        if self._by is not None:
            waits, everybody = part.waits, everybody_recorded(context)
            based = {name: waits.based.get(name, 0) for name in BASES}
            left_out = {name: waits.left_out.get(name, 0) for name in online.LEFT_OUT}
            blame = Blame(self._by, waits.victims(), based, left_out, everybody)
        return Stretch(
            begin_ns=max(part.begin, 0),
            end_ns=max(part.end, 0),
            total=operation_report(
                {}, part.bios.by_code.values(), requests.values(), span, context
            ),
            operations=sorted(found, key=lambda o: -o.bios.ios),
            processes=sorted(processes, key=lambda one: -one.ios),
            calls=part.calls.reports(context),
            blame=blame,
        )

    def _add_slow(self, window: Lifecycles, bios: Samples, codes: I64) -> None:
        found = self._part.slowest
        for row in np.argsort(-bios.latency, kind="stable")[:MOST_SLOW].tolist():
            if bios.latency[row] < 0:
                break
            stages = np.flatnonzero(bios.stage_owner == row)
            longest = int(stages[np.argmax(bios.stage_ns[stages])]) if len(stages) else -1
            place = int(bios.place[row])
            name: dict[str, Any] = {**self._processes.name(int(codes[row]))}
            found.append(
                Slow(
                    device=self._context.device_name(place >> OP_BITS),
                    operation=self._context.op_name(place),
                    process=name["process"],
                    pid=name["pid"],
                    sector=int(window.bios.sector[row]),
                    bytes=int(bios.size[row]),
                    end_ns=int(bios.end[row]),
                    latency_ns=int(bios.latency[row]),
                    stage=STAGE_NAMES[Stage(int(bios.stage[longest]))] if longest >= 0 else None,
                    stage_ns=int(bios.stage_ns[longest]) if longest >= 0 else 0,
                    title=name["title"],
                )
            )
        self._part.slowest = heapq.nlargest(MOST_SLOW, found, key=_SLOWEST)
