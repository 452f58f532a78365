# SPDX-License-Identifier: Apache-2.0
"""A log as a stream of associated windows, in memory that does not grow with the log."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np

from biotrail.converters.calls.behalf import set_whom
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.files import attach_files
from biotrail.converters.events.path import RunningCalls, attach_path
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tables import SETTLE_NS, Lifecycles
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.inputs.log import Indexed, Part, Source
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.lifecycles.account import Account
from biotrail.converters.lifecycles.cutting import (
    ENDLESS,
    MARGIN_NS,
    Span,
    clipped,
    events_within,
    outside,
)
from biotrail.converters.lifecycles.losses import loss_windows, mark_lost
from biotrail.converters.lifecycles.own_io import (
    OwnEventFilter,
    without_own,
)
from biotrail.converters.lifecycles.result import Result
from biotrail.converters.match.tables import Matcher
from biotrail.converters.sites.tables import follows, site_tables
from biotrail.recorder.schema.records import Q_FLAG_OWN, Kind

if TYPE_CHECKING:
    from biotrail.converters.calls.division import CallDivider
    from biotrail.converters.sites.joining import LifeJoiner

_Window = TypeVar("_Window", bound=dict[str, Any])

WINDOW_EVENTS = 250_000
"""Events that are collected for a window, which takes about 200 MB of memory."""

MOST_WAITING = 4_000_000
"""Events that wait at most for a later chunk's clock; events read later, but older, are late."""

HOLD_NS = 20_000_000
"""Events of the newest 20 ms wait, as other CPUs' rings may still deliver events of that time."""


def split_ready(parts: Sequence[Events], edge: int, most: int) -> tuple[Events, Events, int]:
    """Return (the parts' events before `edge` (ns), the others, edge), joined.

    parts: each sorted by time. If none is before `edge` and more than `most` wait, all are returned
    as ready, with the last one's time + 1 as the edge: the chunks' clock readings do not advance,
    so the log is damaged or was made up.
    """
    parts = [part for part in parts if len(part)]
    counts = [int(np.searchsorted(part.ts, edge)) for part in parts]
    if not any(counts) and sum(map(len, parts)) > most:
        counts, edge = list(map(len, parts)), max(int(part.ts[-1]) for part in parts) + 1
    halves = [part.split(count) for part, count in zip(parts, counts, strict=True)]
    ready = Events.join([before for before, _ in halves])
    return ready, Events.join([after for _, after in halves]), edge


class Trace:
    """One log, opened for reading by the Source `reader`.

    Only one of `lifecycles`, `events` and `shown_events` can be used, and once, for a log can be a
    pipe. `account` and the context's clocks, devices and cgroups are complete when that iterator
    is exhausted.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | BinaryIO | Source,
        associate: str = "auto",
        *,
        own_io: bool = False,
        include_ambiguous: bool = False,
    ) -> None:
        """Open a log, archive or another tool's recording; `open_source` says what `path` may be.

        associate: "identity": by kernel pointers; "intervals": by sector ranges, without pointers;
        "auto": by pointers where the log has them. own_io: whether to include the recording's own
        I/O. include_ambiguous: whether latencies that are in doubt count as known. Raises
        LogFormatError: not of a known format, empty, of a newer format, or not readable.
        """
        self.reader: Source = open_source(path)
        self.context = Context(self.reader.header)
        self.context.end = self.reader.end
        self.account = Account()
        self.own_io = own_io
        self.include_ambiguous = include_ambiguous
        self.span: Span | None = None
        """The part of the log to read, for callers to set; None: all."""
        self.tasks = TaskNames()
        self.stacks = StackNames()
        # bcc's stable tracepoints, which other tools record too, and blktrace have no pointers.
        has_pointers = self.reader.header.get("backend", "core") == "core"
        self.by_intervals = not self.context.is_light and (
            associate == "intervals" or (associate == "auto" and not has_pointers)
        )
        self.covered: tuple[int, int] | None = None
        """(begin, end) of the windows of `lifecycles` so far, ns; None before the first."""
        self._reached = 0
        self._notes = 0
        self._told_losses = self._told_damage = 0
        """How many of the reader's loss windows, and of the damaged ones, windows had."""
        self._calls = RunningCalls()
        self._numbered = 0

    @property
    def start(self) -> int:
        """Time (ns) when recording began, from which offsets count; 0 if the source has none."""
        return int(self.reader.header.get("clocks", {}).get("monotonic", 0))

    @property
    def says_time(self) -> bool:
        """Whether the recording says from when to when it was: biotrail's own logs do.

        Other tools' clocks may be of their first event, and none of them has the end.
        """
        known = self.reader.header.get("backend", "core") in ("core", "bcc")
        return known and "monotonic" in self.reader.header.get("clocks", {})

    @property
    def losses(self) -> list[dict[str, Any]]:
        """The reader's loss windows that overlap the trace's part of the log."""
        return self._within_span(self.reader.losses)

    @property
    def damaged(self) -> list[dict[str, int]]:
        """The reader's unreadable windows that overlap the trace's part of the log."""
        return self._within_span(self.reader.damaged)

    def _within_span(self, windows: list[_Window]) -> list[_Window]:
        """Return those of the reader's windows that overlap the span; they include their ends."""
        if (span := self.span) is None:
            return windows
        return [one for one in windows if one["start"] < span.end and one["end"] >= span.begin]

    def events(
        self,
        window_events: int = WINDOW_EVENTS,
        on_progress: Callable[[int], None] | None = None,
        *,
        margin: int = 0,
        small: bool = False,
    ) -> Iterator[tuple[Events, int]]:
        """Yield (events, end): time-sorted events, and the time (ns) before which all were yielded.

        Each event of the log (or of `span`) comes once, with `number`, `stack`,
        `file` and `path`. Events read too late for that are counted in `account.late` and come in
        the next window. Memory is bounded by the window and MOST_WAITING.

        window_events: events that are collected before a window is made; the newest of them (see
        HOLD_NS) wait for the next. on_progress: called with the file offset reached (bytes) after
        each part. margin: time (ns) before a span whose events come too. small: split windows of
        twice `window_events` or more. At the end sets `account.unknown` and `unreadable_bytes`.
        Raises ConversionError: the log ends before the span begins (a source without an index).
        """
        pending = Events.empty()
        parts: list[Events] = []
        waiting = complete_to = read_to = 0
        last = ENDLESS if self.span is None else self.span.end
        stopped = (self.reader.end or {}).get("stopped", {}).get("monotonic")
        edges = min(last, stopped or ENDLESS)
        piece_size = window_events if small else sys.maxsize
        for part in self._parts(margin):
            if part.clock is not None:  # moved back to the span's end, if later
                moved = max(part.clock["monotonic"] - last, 0)
                clock = {k: v if k == "uncertainty" else v - moved for k, v in part.clock.items()}
                self.context.clocks.append(clock)
            self._apply_notes()
            read_to = max(read_to, part.complete_to)
            parts.append(part.events)
            late = part.events.take(slice(None, int(np.searchsorted(part.events.ts, complete_to))))
            self.account.late += len(late) - len(late.rows(Kind.HIT))  # hits come late
            waiting += len(part.events)
            if on_progress is not None:
                on_progress(part.offset)
            if waiting < window_events and not part.quiet:
                continue
            edge = max(min(part.complete_to - HOLD_NS, edges), complete_to)
            *ready, pending, edge = split_ready([pending, *parts], edge, MOST_WAITING)
            parts = []
            if not len(ready[0]) and not part.quiet:
                waiting = 0
                continue
            complete_to, waiting = edge, len(pending)
            yield from self._pieces(ready.pop(), edge, piece_size)
        pending = Events.join([pending, *parts])
        self._apply_notes()
        self.account.unknown = dict(self.reader.unknown)
        self.account.unreadable_bytes = self.reader.unreadable_bytes
        end = int(pending.ts[-1]) + 1 if len(pending) else complete_to
        if self.says_time:
            stopped = (self.reader.end or {}).get("stopped", {}).get("monotonic")
            end = max(end, stopped or max(read_to, self.start))
        end = min(max(end, complete_to, self._reached), last)
        yield from self._pieces(pending, end, piece_size)

    def _parts(self, margin: int) -> Iterator[Part]:
        """Yield the reader's parts (a chunk of a log each), with only the events within `span`.

        margin: ns that are added before the span. Thread and file names from before are taken in.
        `clock` is None in parts before and after these. Sets `_reached` to the time (ns) up to
        which the span was read. Without a span the parts are yielded unchanged. Raises
        ConversionError: the source has no index, and ends before the span begins.
        """
        span, reader = self.span, self.reader
        if span is None:
            yield from reader.parts()
            return
        begin = span.begin - margin
        indexed = reader if isinstance(reader, Indexed) else None
        bounds = None if indexed is None else indexed.bounds()
        if indexed is not None:
            self._add_names(indexed.names_before(begin))
        read_to = self.start
        for part in indexed.parts_between(begin, span.end) if indexed else reader.parts():
            over = read_to >= span.end
            read_to = max(read_to, part.complete_to)
            self._reached = min(read_to, span.end)
            if bounds is None:
                self._add_names(events_within(part.events, 0, begin))
            clock = None if over or part.complete_to < begin else part.clock
            events = events_within(part.events, begin, span.end)
            yield replace(part, events=events, clock=clock)
        if bounds is not None:
            self._reached = min(span.end, bounds[1] + 1)
        elif read_to < span.begin:
            raise outside(span, self.start, read_to, self.context)

    def lifecycles(
        self,
        window_events: int = WINDOW_EVENTS,
        on_progress: Callable[[int], None] | None = None,
        on_window: Callable[[Result, Lifecycles], None] | None = None,
        *,
        small: bool = False,
    ) -> Iterator[Lifecycles]:
        """Yield associated windows in time order; the last one closes all that is still open.

        window_events: new events that are collected before a window is made. on_progress: called
        with the file offset reached (bytes). on_window: called with (result, window) before each
        window is yielded; the result has what was matched, for callers that need the events behind
        the tables (`histories`). Windows that end before the span are left out. small: split
        windows that would hold twice `window_events` or more; the same I/Os end, but less is known
        of open bios that were split, so counters can differ. Fills `account`. Raises
        ConversionError: the log ends before the span begins (a source without an index).
        """
        events = self.events(window_events, on_progress, margin=MARGIN_NS, small=small)
        first = -1 if self.span is None else self.span.begin
        divider: CallDivider | None = None
        lives: LifeJoiner | None = None
        if follows(self.context.header):
            from biotrail.converters.sites import joining

            lives = joining.LifeJoiner(
                self.context.header, self.account.followed, not self.by_intervals
            )
        for fresh, result, begin, end in self._windows(events, tells_events=on_window is not None):
            # (The window before the last can be as short, and without new events, too.)
            final = begin == end and not len(fresh) and not len(result.open_bios)
            result.sites = site_tables(fresh, self.tasks)
            if lives is not None:
                result.sites = lives.joined(result.sites, result, end, final)
            if divider is None and result.path is not None:  # the first window of a path
                from biotrail.converters.calls import division
                from biotrail.converters.calls.names import with_ioctl_commands
                from biotrail.converters.submissions.joining import SubmissionJoiner

                divider = division.CallDivider(self.context)
                joiner = SubmissionJoiner(self.context)
            if divider is not None:
                result.path = divider.divide(result, self.tasks)
                path = joiner.join(result, self.tasks, end, final)
                result.path = with_ioctl_commands(path, self.context.machine)
            set_whom(result)
            if end <= first:  # the window lies in the margin before the span
                continue
            shown = max(begin, first)
            if shown >= 0:
                self.covered = shown if self.covered is None else self.covered[0], end
            window = self._close_window(result, shown, end)
            if on_window is not None:
                on_window(result, window)
            del fresh, result  # a window's events are gone while it is used,
            yield window
            del window  # and its tables while the next is made
            if self.span is not None:
                self.account.first_ns, self.account.last_ns = first, end

    def shown_events(self, window_events: int = WINDOW_EVENTS) -> Iterator[tuple[Events, int]]:
        """Yield (events, end) as `events` does, without the recording's own I/O.

        Until the first bio with Q_FLAG_OWN nothing is associated; from then on events are held
        until it is known whether they are own, so that a window may be empty and its events come
        later. With `own_io` all are yielded. end: ns, before which all events were read.
        """
        windows = self.events(window_events)
        if self.own_io:
            yield from windows
            return
        for events, end in windows:
            flags = events.field(Kind.Q, "flags", events.rows(Kind.Q))
            if (flags & Q_FLAG_OWN).any():
                windows = chain([(events, end)], windows)
                break
            yield events, end
        own_filter = OwnEventFilter()
        for fresh, result, _, end in self._windows(windows, tells_events=False):
            self.account.add_own(result.bios, result.requests)
            yield own_filter.release(fresh, result, MOST_WAITING), end

    def _windows(
        self, windows: Iterator[tuple[Events, int]], *, tells_events: bool
    ) -> Iterator[tuple[Events, Result, int, int]]:
        """Yield (new events, result, begin, end) of each window; begin, end in ns.

        windows: (events, end) as from `events`. begin: the end of the window before, first the
        beginning of the span or recording, or the time of the first event where that is not known
        or later. One window without new events follows the last, which closes all that is open.
        Adds thread names to `tasks`. tells_events: whether `Result.histories` will be asked.
        """
        self._apply_notes()
        if self.context.is_light:
            yield from self._light_windows(windows)
            return
        first = 0 if self.span is None else self.span.begin
        known = self.context, self.tasks, self.stacks
        matcher = Matcher(
            *known, begin=first, by_intervals=self.by_intervals, tells_events=tells_events
        )
        begin, end, lost = -1, -1, -1
        last: tuple[Events, int | None] = Events.empty(), None
        for fresh, until in chain(windows, [last]):
            if until is not None:
                self.tasks.add_records(fresh)
                begin, end = self._begin_of(fresh, begin), until
            if self.by_intervals and until is not None:
                self.context.records_bios |= len(fresh.rows(Kind.Q)) > 0
                losses = loss_windows(self.reader.losses, self.reader.damaged).end
                matcher.lose(losses[losses > lost])
                lost = int(losses.max(initial=lost))
            before = None if until is None else end - SETTLE_NS
            result = matcher.build(fresh, settle_ns=SETTLE_NS, before=before)
            if self.by_intervals:
                self.account.pairing = matcher.pairing()
            if self.by_intervals and not self.context.records_bios:
                from biotrail.converters.lifecycles.standing import with_standing

                result = with_standing(result, self.context)
            found = [(fresh, result, begin, end)]
            del fresh, result
            yield found.pop()
            begin = end

    def _begin_of(self, fresh: Events, begin: int) -> int:
        """Return when a window begins (ns). begin: the end of the window before; -1: none was."""
        if self.span is not None:
            return max(begin, self.span.begin)
        if begin >= 0:
            return begin
        times = [int(fresh.ts[0])] if len(fresh) else []
        times += [self.start] if self.says_time else []
        return min(times, default=begin)

    def _light_windows(
        self, windows: Iterator[tuple[Events, int]]
    ) -> Iterator[tuple[Events, Result, int, int]]:
        """As `_windows`, of a light log, whose windows end before the newest events."""
        from biotrail.converters.lifecycles.light import LightBuilder

        first = 0 if self.span is None else self.span.begin
        light = LightBuilder(self.context, self.tasks, first)
        begin = end = -1
        for fresh, end in windows:
            self.tasks.add_records(fresh)
            begin = self._begin_of(fresh, begin)
            until = light.take(fresh, end)
            del fresh
            if until > begin:
                found = [(*light.build(until, final=False), begin, until)]
                yield found.pop()
                begin = until
        if begin < end:
            yield *light.build(end, final=False), begin, end
        yield *light.build(end, final=True), end, end

    def _pieces(self, events: Events, edge: int, size: int) -> Iterator[tuple[Events, int]]:
        """Yield (events, end): the log's next events, sorted by time, in windows, as views.

        Sets their `number`, `stack`, `file` and `path`. Windows have at most `size` events, the
        last one fewer than twice as many, maybe none. Events of one time stay together: if more
        than `size` have the first time of what is left, all that is left is the last window. end:
        ns, before which all events were yielded; the last is `edge`.
        """
        self.stacks.attach(events)
        attach_files(events, self.context.files, self.context.flag_mask("META"))
        attach_path(events, self._calls, self.reader.damaged)
        events.number = np.arange(self._numbered, self._numbered + len(events), dtype=np.int64)
        self._numbered += len(events)
        while len(events) >= 2 * max(size, 1):
            end = int(events.ts[size])
            cut = int(np.searchsorted(events.ts, end))
            if not cut:
                break
            window, events = events.split(cut)
            yield window, end
        left = [events]
        del events
        yield left.pop(), edge

    def _add_names(self, events: Events) -> None:
        self._apply_notes()  # `mounts` notes come before the files on these mounts
        self.tasks.add_records(events)
        self.context.files.add_records(events)

    def _apply_notes(self) -> None:
        notes = self.reader.notes[self._notes :]  # a live log's reader may add more meanwhile
        self._notes += len(notes)
        for name, payload in notes:
            if name == "stacks":
                self.stacks.add_frames(payload)
            self.context.add_note(name, payload)

    def _close_window(self, result: Result, begin: int, end: int) -> Lifecycles:
        """Return the window of a result, and add its ended rows and closed events to `account`.

        begin, end: ns, of the window; its `loss` are those met since the last call. Ended rows that
        were in flight during any loss so far become LOST, in the tables of `result` itself. Left
        out are rows that ended before the span, events before it and, unless `own_io`, the
        recording's own I/O.
        """
        if self.include_ambiguous:
            for table in (result.bios, result.requests, result.open_bios, result.open_requests):
                table.doubtful[:] = False
        every = loss_windows(self.reader.losses, self.reader.damaged)
        for table in (result.bios, result.requests):
            mark_lost(table, every, by_intervals=self.by_intervals)
        losses = self.reader.losses[self._told_losses :]
        damaged = self.reader.damaged[self._told_damage :]
        self._told_losses += len(losses)
        self._told_damage += len(damaged)
        loss = loss_windows(losses, damaged)
        first = 0 if self.span is None else self.span.begin
        result.count_events(self.account, self.own_io)
        if (span := self.span) is not None:
            result = clipped(result, first)
            loss = loss.take((loss.start < span.end) & (loss.end >= span.begin))
            start, end_of_loss = np.maximum(loss.start, first), np.minimum(loss.end, span.end)
            loss = replace(loss, start=start, end=end_of_loss)
        bios, requests = result.bios, result.requests
        self.account.add_own(bios, requests)
        left_out = None
        if not self.own_io and (bios.own.any() or result.open_bios.own.any()):
            result, left_out = without_own(result)
            bios, requests = result.bios, result.requests
        self.account.add_tables(bios, requests, result.edges, self.context.is_light)
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
            loss=loss,
            path=result.path,
            sites=result.sites,
            own=left_out,
        )
