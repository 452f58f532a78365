# SPDX-License-Identifier: Apache-2.0
"""A log as a stream of associated windows, in memory that does not grow with the log."""

import os
from collections.abc import Callable, Iterator
from itertools import chain
from typing import BinaryIO

import numpy as np

from .account import Account
from .context import Context
from .events import Events
from .files import attach_files
from .identify import Identifier
from .keeping import named_events
from .lifecycles import Builder, Result
from .loss import loss_windows, mark_lost, no_loss
from .opening import open_source
from .own_io import Held, has_own, own_events, without
from .sources import Part, Source
from .stacks import StackNames, attach_stacks
from .tables import Lifecycles, LossWindows
from .tasks import TaskNames

WINDOW_EVENTS = 250_000
"""Events associated at once: about 200 MB of memory."""

MOST_WAITING = 4_000_000
"""Events that wait at most for the log's clock to go on; later ones count as late."""

HOLD_NS = 20_000_000
"""Events of the newest 20 ms wait for what is still to come from other CPUs' rings."""

SETTLE_NS = 20_000_000
"""What ended less than this before a window's end goes on, for comments that follow it."""


class Trace:
    """One log, opened for reading; `reader` is what it is read from.

    `account` and the context's clocks, devices and cgroups are complete when `lifecycles`
    (or `events`) was exhausted; each may be called once, for a log can be a pipe.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | BinaryIO | Source,
        associate: str = "auto",
        *,
        own_io: bool = False,
    ) -> None:
        """Opens what holds events; raises LogFormatError: foreign, empty or newer.

        associate: "identity" by kernel pointers, "intervals" without them, "auto" by
        pointers where the log has them. own_io: the recording's own I/O is not left out.
        """
        self.reader: Source = open_source(path)
        self.context = Context(self.reader.header)
        self.account = Account()
        self.own_io = own_io
        self.tasks = TaskNames()
        self.stacks = StackNames()
        self.by_intervals = associate == "intervals" or (
            associate == "auto" and not _has_pointers(self.reader)
        )
        self._notes = 0
        self._loss = 0
        self._damage = 0
        self._numbered = 0

    def events(
        self, window_events: int = WINDOW_EVENTS, on_progress: Callable[[int], None] | None = None
    ) -> Iterator[tuple[Events, int]]:
        """Time-sorted events in windows, each with the time (ns) that it is complete up to.

        on_progress is given the file offset reached.
        """
        pending = Events.empty()
        parts: list[Events] = []
        waiting = 0
        complete_to = 0
        for part in self.reader.parts():
            self._take(part)
            parts.append(part.events)
            self.account.late += int(np.searchsorted(part.events.ts, complete_to))
            waiting += len(part.events)
            if on_progress is not None:
                on_progress(part.offset)
            if waiting < window_events:
                continue
            edge = max(part.complete_to - HOLD_NS, complete_to)
            pending = Events.join([pending, *parts])
            cut = int(np.searchsorted(pending.ts, edge))
            if not cut and len(pending) > MOST_WAITING:
                # The log's clock stands still: only a damaged or made-up log gets here.
                cut, edge = len(pending), int(pending.ts[-1]) + 1
            if not cut:
                parts = []
                waiting = 0
                continue
            ready, pending = pending.split(cut)
            yield self._number(ready), edge
            complete_to, parts, waiting = edge, [], len(pending)
        pending = Events.join([pending, *parts])
        self._learn()
        self.account.unknown = dict(self.reader.unknown)
        self.account.unreadable_bytes = self.reader.unreadable_bytes
        end = int(pending.ts[-1]) + 1 if len(pending) else complete_to
        yield self._number(pending), max(end, complete_to)

    def lifecycles(
        self,
        window_events: int = WINDOW_EVENTS,
        on_progress: Callable[[int], None] | None = None,
        on_window: Callable[[Result, Lifecycles], None] | None = None,
    ) -> Iterator[Lifecycles]:
        """Associated windows, in time order. The last one closes whatever is open.

        on_window is given each window before it is yielded, with the association that it was
        made of: for who wants to see the events behind the tables (`histories`).
        """
        for _, result, begin, end in self._associated(self.events(window_events, on_progress)):
            window = self._give(result, begin, end)
            if on_window is not None:
                on_window(result, window)
            yield window

    def shown_events(self, window_events: int = WINDOW_EVENTS) -> Iterator[tuple[Events, int]]:
        """As `events`, but for those that `lifecycles` leaves out as the recording's own.

        Nothing is associated before the first bio that is marked as such.
        """
        windows = self.events(window_events)
        if self.own_io:
            yield from windows
            return
        for events, end in windows:
            if has_own(events):
                windows = chain([(events, end)], windows)
                break
            yield events, end
        held = Held()
        for fresh, result, _, end in self._associated(windows):
            self.account.take_own(result.bios, result.requests)
            yield held.release(fresh, result, MOST_WAITING), end

    def _associated(
        self, windows: Iterator[tuple[Events, int]]
    ) -> Iterator[tuple[Events, Result, int, int]]:
        """Each window's own events, and what they and those kept before them make; its bounds."""
        self._learn()
        builder = Builder(self.context, self.tasks, self.stacks)
        identifier = Identifier(self.context) if self.by_intervals else None
        kept = Events.empty()
        begin = end = -1
        for fresh, end in windows:
            self.tasks.learn(fresh)
            begin = int(fresh.ts[0]) if begin < 0 and len(fresh) else begin
            told = identifier.identify(fresh) if identifier else fresh
            events = Events.join([kept, told])
            if identifier:
                identifier.mark(events)
            result = builder.build(events, settled=end - SETTLE_NS, final=False)
            kept = events.take(result.kept.events)
            if identifier:
                identifier.forget(events.number[~result.kept.events])
            yield fresh, result, begin, end
            begin = end
        yield Events.empty(), builder.build(kept, settled=end, final=True), end, end

    def _take(self, part: Part) -> None:
        if part.clock is not None:
            self.context.clocks.append(part.clock)
        self._learn()

    def _number(self, events: Events) -> Events:
        attach_stacks(events)
        self.stacks.count(events.stack)
        attach_files(events, self.context.files)
        events.number = np.arange(self._numbered, self._numbered + len(events), dtype=np.int64)
        self._numbered += len(events)
        return events

    def _learn(self) -> None:
        """Takes in notes that the reader has met since the last time."""
        for name, payload in self.reader.notes[self._notes :]:
            if name == "devices":
                self.context.add_devices(payload.get("devices", []))
            elif name == "cgroups":
                paths = payload.get("cgroups", payload)
                self.context.cgroups.update({int(k): str(v) for k, v in paths.items()})
            elif name == "stacks":
                self.stacks.learn(payload)
            elif name == "mounts":
                self.context.files.mounted(payload)
        self._notes = len(self.reader.notes)

    def _new_loss(self) -> LossWindows:
        losses = self.reader.losses[self._loss :]
        damaged = self.reader.damaged[self._damage :]
        self._loss += len(losses)
        self._damage += len(damaged)
        return loss_windows(losses, damaged)

    def _all_loss(self) -> LossWindows:
        if not self.reader.losses and not self.reader.damaged:
            return no_loss()
        return loss_windows(self.reader.losses, self.reader.damaged)

    def _give(self, result: Result, begin: int, end: int) -> Lifecycles:
        loss = self._all_loss()
        bios, requests = result.bios, result.requests
        mark_lost(bios, np.maximum(bios.queue, 0), loss)
        mark_lost(requests, requests.start, loss)
        events = result.association.events
        used, done = named_events(result.association), ~result.kept.events
        own = np.zeros_like(used) if self.own_io else own_events(result)
        self.account.take_events(events.take(done), (used & ~own)[done], own[done])
        self.account.take_own(bios, requests)
        if not self.own_io and result.own:
            result = without(result)
            bios, requests = result.bios, result.requests
        self.account.take_tables(bios, requests, result.edges)
        return Lifecycles(
            begin=begin,
            end=end,
            bios=bios,
            requests=requests,
            edges=result.edges,
            bio_stages=result.bio_stages,
            request_stages=result.request_stages,
            open_bios=result.open_bios,
            open_requests=result.open_requests,
            tasks=self.tasks.table(),
            loss=self._new_loss(),
        )


def _has_pointers(reader: Source) -> bool:
    """bcc's stable tracepoint formats and blktrace's records have none."""
    return bool(reader.header.get("backend", "core") == "core")
