# SPDX-License-Identifier: Apache-2.0
"""A recording while it is made: what each stretch of it held, and the last minute.

Every bio and request is told once, in the stretch in which the model gave it: stretches add
up to the report of the same log.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.depth import Depth, Span
from biotrail.converters.analysis.distributions.flow import Flow
from biotrail.converters.analysis.distributions.groups import Groups, add_to_all
from biotrail.converters.analysis.distributions.keys import OP_BITS, ByProcess, operation
from biotrail.converters.analysis.distributions.samples import Samples, of_bios, of_requests
from biotrail.converters.analysis.live.tree import Depths, DeviceNow, Slow, Snapshot, Stretch
from biotrail.converters.analysis.report.summaries import group_report, operation_report
from biotrail.converters.analysis.report.tree import GroupReport
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
from biotrail.converters.inputs.backlog import LiveSource
from biotrail.converters.pipeline import Trace

MINUTE_NS = 60_000_000_000
MOST_GROUPS = 256
"""Of a kind in one stretch; what comes after them is one more, `others`."""
MOST_SLOW = 10
MOST_DEVICES = 256
QUIET_NS = 1_500_000_000
"""What is younger may still be on its way here: a log's chunks are 0.9 s long."""


class LiveTrace(Trace):
    """A trace that never ends: what is old is forgotten."""

    def __init__(self, source: LiveSource, *, own_io: bool = False) -> None:
        super().__init__(source, own_io=own_io)
        self.source = source

    def windows(self) -> Iterator[Lifecycles]:
        """As the log is written: a window for each of its chunks."""
        for window in self.lifecycles(window_events=1):
            yield window
            losses, damaged = self.source.forget()
            self._loss -= losses
            self._damage -= damaged
            del self.context.clocks[:-2]


@dataclass
class _Part:
    """One stretch, to be added up with others."""

    begin: int = -1
    end: int = -1
    bios: Groups = field(default_factory=lambda: Groups(MOST_GROUPS))
    requests: Groups = field(default_factory=lambda: Groups(MOST_GROUPS))
    processes: Groups = field(default_factory=lambda: Groups(MOST_GROUPS))
    slowest: list[Slow] = field(default_factory=list)

    def merge(self, other: "_Part") -> None:
        self.begin = other.begin if self.begin < 0 else min(self.begin, other.begin)
        self.end = max(self.end, other.end)
        for name in ("bios", "requests", "processes"):
            for code, group in getattr(other, name).by_code.items():
                getattr(self, name).merge(code, group)
        self.slowest = slowest_of(self.slowest + other.slowest)


def slowest_of(found: list[Slow]) -> list[Slow]:
    """The MOST_SLOW slowest, in that order."""
    return heapq.nlargest(MOST_SLOW, found, key=lambda slow: (slow.latency_ns, slow.end_ns))


class Live:
    """Takes windows, gives a snapshot for each stretch of at least `interval` ns."""

    def __init__(self, context: Context, interval: int) -> None:
        self._context, self._interval = context, interval
        self._processes = ByProcess(context)
        begin = context.clocks[0]["monotonic"] if context.clocks else -1
        self._part = _Part(begin, begin)
        self._minute: deque[_Part] = deque()
        self._flows = Flow(), Flow()
        self._depths: dict[int, tuple[Depth, Depth]] = {}
        self._open: dict[int, tuple[int, int]] = {}
        self._given = 0

    def add(self, window: Lifecycles) -> None:
        """The next window."""
        if window.begin < 0:
            return
        part = self._part
        part.begin = window.begin if part.begin < 0 else part.begin
        part.end = max(window.end, part.end)
        bios = of_bios(window.bios, window.bio_stages, self._context)
        codes = self._processes.codes(window, bios)
        add_to_all(bios, [(part.bios, bios.place), (part.processes, codes)])
        requests = of_requests(window.requests, window.request_stages, self._context)
        add_to_all(requests, [(part.requests, requests.place)])
        self._add_slow(window, bios, codes)
        self._add_depths(window)

    def idle(self, now: int) -> None:
        """Nothing has come though it is `now` (ns): what is told reaches up to QUIET_NS before."""
        self._part.end = max(self._part.end, now - QUIET_NS)

    def ready(self) -> bool:
        """Whether a stretch is long enough. A log's chunks are about 0.9 s: that is a second."""
        return self._part.end - self._part.begin >= self._interval * 3 // 4

    def snapshot(self, source: LiveSource, last: bool = False) -> Snapshot:
        """The stretch that ends here; the next one begins."""
        part, self._part = self._part, _Part(self._part.end, self._part.end)
        self._minute.append(part)
        while part.end - self._minute[0].begin > MINUTE_NS and len(self._minute) > 1:
            self._minute.popleft()
        minute = _Part()
        for one in self._minute:
            minute.merge(one)
        self._given += 1
        return Snapshot(
            number=self._given,
            last=last,
            devices=self._devices(),
            now=self._stretch(part),
            minute=self._stretch(minute),
            slowest=minute.slowest,
            lost_records=source.lost_records,
            skipped_ns=source.skipped_ns,
        )

    def _stretch(self, part: _Part) -> Stretch:
        span, context = max(part.end - part.begin, 0), self._context
        bios, requests = part.bios.by_code, part.requests.by_code
        places = sorted({*bios, *requests})
        found = [
            operation_report(
                self._name(place),
                [bios[place]] if place in bios else [],
                [requests[place]] if place in requests else [],
                span,
                context,
            )
            for place in places
        ]
        return Stretch(
            begin_ns=max(part.begin, 0),
            end_ns=max(part.end, 0),
            total=operation_report({}, bios.values(), requests.values(), span, context),
            operations=sorted(found, key=lambda o: -o.bios.counters["ios"]),
            processes=self._process_reports(part, span),
        )

    def _name(self, place: int) -> dict[str, str | int | None]:
        if place < 0:
            return {"others": 1}
        return {
            "device": self._context.device_name(place >> OP_BITS),
            "operation": operation(self._context, place),
        }

    def _process_reports(self, part: _Part, span: int) -> list[GroupReport]:
        found = [
            group_report(
                self._processes.name(code) if code >= 0 else {"others": 1},
                group,
                span,
                self._context,
            )
            for code, group in part.processes.by_code.items()
        ]
        return sorted(found, key=lambda g: -g.counters["ios"])

    def _add_slow(self, window: Lifecycles, bios: Samples, codes: I64) -> None:
        rows = np.argsort(-bios.latency, kind="stable")[:MOST_SLOW]
        found = [
            self._slow(window, bios, codes, row) for row in rows.tolist() if bios.latency[row] >= 0
        ]
        self._part.slowest = slowest_of(self._part.slowest + found)

    def _slow(
        self,
        window: Lifecycles,
        bios: Samples,
        codes: I64,
        row: int,
    ) -> Slow:
        stages = np.flatnonzero(bios.stage_owner == row)
        longest = int(stages[np.argmax(bios.stage_ns[stages])]) if len(stages) else -1
        place = int(bios.place[row])
        name = self._processes.name(int(codes[row]))
        return Slow(
            device=self._context.device_name(place >> OP_BITS),
            operation=operation(self._context, place),
            process=None if name["process"] is None else str(name["process"]),
            pid=None if name["pid"] is None else int(name["pid"]),
            sector=int(window.bios.sector[row]),
            bytes=int(bios.size[row]),
            end_ns=int(bios.end[row]),
            latency_ns=int(bios.latency[row]),
            stage=STAGE_NAMES[Stage(int(bios.stage[longest]))] if longest >= 0 else None,
            stage_ns=int(bios.stage_ns[longest]) if longest >= 0 else 0,
        )

    def _add_depths(self, window: Lifecycles) -> None:
        queue, issue = self._flows[0].bios(window), self._flows[1].requests(window)
        for dev in np.unique(np.concatenate([queue.start_dev, issue.start_dev])).tolist():
            if dev not in self._depths and len(self._depths) < MOST_DEVICES:
                self._depths[dev] = Depth(window.begin), Depth(window.begin)
        for dev, depths in self._depths.items():
            for steps, depth in zip((queue, issue), depths, strict=True):
                up, down = steps.start[steps.start_dev == dev], steps.stop[steps.stop_dev == dev]
                depth.update(steps.begin, steps.end, up, down)
        self._open = {
            dev: (_under_way(window.open_bios, dev), _under_way(window.open_requests, dev))
            for dev in self._depths
        }

    def _devices(self) -> list[DeviceNow]:
        found = []
        for dev, (queue, issued) in sorted(self._depths.items()):
            told = []
            for depth, in_flight in zip((queue, issued), self._open[dev], strict=True):
                span, depth.whole = depth.whole, Span()
                # No window: nothing began or ended.
                mean, most = (span.mean, span.most) if span.time_ns else (in_flight, in_flight)
                told.append(Depths(in_flight, mean, most, span.busy_ns, span.time_ns))
            found.append(DeviceNow(self._context.device_name(dev), *told))
        return found


def _under_way(table: Bios | Requests, dev: int) -> int:
    """How many are in flight: begun (issued), and not ended."""
    begun = table.queue if isinstance(table, Bios) else table.issue
    return int(((table.dev == dev) & (table.complete == NEVER) & (begun != NEVER)).sum())
