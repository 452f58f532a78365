# SPDX-License-Identifier: Apache-2.0
"""Convert lifecycles to a Perfetto trace: a group per device, lanes of bios and requests, counters.

docs/perfetto.md describes tracks, arguments and SQL. The trace is written window by window; memory
does not grow with its length.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from biotrail.converters.events.context import Context
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tables import NEVER, Lifecycles, LossWindows
from biotrail.converters.inputs.perfetto.clocks import BOOTTIME
from biotrail.converters.lifecycles.result import FIRST_UNRECORDED
from biotrail.converters.lifecycles.windows import restricted
from biotrail.converters.outputs.perfetto.columns import FOREVER, Slices
from biotrail.converters.outputs.perfetto.counters import CounterWriter
from biotrail.converters.outputs.perfetto.flows import FlowMaker, mark_crossing
from biotrail.converters.outputs.perfetto.names import (
    BIO,
    REQUEST,
    SLOW_CALL,
    SLOWEST,
    STANDARD,
    Drawing,
    Options,
)
from biotrail.converters.outputs.perfetto.packets import (
    BlockedReasons,
    Facts,
    PacketFile,
    attributes,
    block_io,
    instant,
    recording_facts,
    system_info,
)
from biotrail.converters.outputs.perfetto.place import Place
from biotrail.converters.outputs.perfetto.slices import BlockMaker
from biotrail.converters.outputs.perfetto.slowest import (
    Flights,
    Slowest,
    counters,
    slow_packets,
    slowest_of,
)
from biotrail.converters.outputs.perfetto.summary import PerfettoSummary, View
from biotrail.converters.outputs.perfetto.tracks import (
    OWN_CLOCK,
    CallStacks,
    ClockBook,
    Identity,
    Streams,
)
from biotrail.converters.outputs.perfetto.tree import Tree
from biotrail.converters.outputs.perfetto.writing import SliceWriter, last_packet
from biotrail.converters.sites.tables import follows

if TYPE_CHECKING:
    from biotrail.converters.analysis.blame.online import Timeline
    from biotrail.converters.outputs.perfetto.path_slices import PathMaker
    from biotrail.converters.outputs.perfetto.sites import SiteMaker
    from biotrail.converters.sites.lives import LifeReader

_END_BYTES = 24 << 10
"""Bytes that the slowest I/Os and calls and the summary take, which are written at a part's end."""
_MOST_STRINGS = 1 << 14
"""Interned strings after which interning starts anew, to bound their table."""
_NOT_IN_INSTANT = ("bytes", "sequences", "families", "view")
"""Fields of the summary that the "end of recording" instant leaves out."""
_CLEARED = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED | TracePacket.SEQ_NEEDS_INCREMENTAL_STATE


def convert(
    lifecycles: Iterable[Lifecycles],
    context: Context,
    out: BinaryIO,
    *,
    stacks: StackNames | None = None,
    facts: Facts | None = None,
    to_end: bool = False,
    options: Options = STANDARD,
    place: Place | None = None,
    blame: bool = False,
) -> PerfettoSummary:
    """Write a Perfetto trace of the windows to `out` as they come, and return what was written.

    lifecycles: windows in order of time. stacks: the log's call stacks; None: bios get none. facts:
    further trace attributes. to_end: draw the trace up to the last window's end, as for a cut,
    instead of up to its last event. place: where the log stands in a trace of several logs; None:
    alone. blame: draw who slowed whom, too, with requests. Raises OutputError when `out` cannot be
    written.
    """
    timeline = None
    if blame and options.detail.requests:
        from biotrail.converters.analysis.blame.online import Timeline

        timeline = Timeline(context)
    converter = _Converter(
        context, out, stacks, facts or {}, to_end=to_end, options=options, place=place,
        blame=timeline,
    )  # fmt: skip
    for window in lifecycles:
        if timeline is not None:
            timeline.add(window)
        converter.write_window(window)
        del window  # not kept while the next is made
    if timeline is not None:
        timeline.add(None)
    converter.finish()
    return converter.summary


class _Converter:
    """Writes one trace: `write_window` per window, then `finish`; `summary` counts the contents."""

    def __init__(
        self,
        context: Context,
        out: BinaryIO,
        stacks: StackNames | None,
        facts: Facts,
        *,
        to_end: bool,
        options: Options,
        place: Place | None = None,
        lives: "LifeReader | None" = None,
        blame: "Timeline | None" = None,
    ) -> None:
        """Lives are gathered by `lives`, the same for all parts of a trace; None: a new one."""
        self._to_end, self._detail = to_end, options.detail
        self.context, self._facts = context, facts
        self.summary = PerfettoSummary()
        self._place = place = place or Place.alone(context)
        self._drawing = drawing = Drawing(context, options, place)
        self._identity = Identity(place.key, place.trace, place.sequences, place.beside)
        self._file = PacketFile(out, self._identity.sequence(0), self.summary)
        self._clocks = ClockBook(place.aligned, place.clock)
        self._readings = context.clocks if context.clocks and not place.aligned else []
        self._stacks = CallStacks(stacks)
        self._blocks = BlockMaker(drawing, self._stacks)
        self._streams = Streams(self._identity, self._clocks, drawing, self._stacks)
        self._tree = tree = Tree(self._file, self._identity, context, place)
        self._slices = SliceWriter(self._streams, tree)
        self._flows: FlowMaker | None = None
        if options.detail.requests:
            flow = self._identity.flow
            self._flows = FlowMaker(flow, drawing.names, every=options.every_arrow)
        self._flights = Flights(context)
        self._path = self._path_maker() if context.path_parts else None
        """None: nothing was recorded beside the block layer so far."""
        self._lives = lives
        self._sites: SiteMaker | None = None
        """None: there were no pairs of events so far, and no object is followed."""
        self.counters = CounterWriter(drawing, self._streams, tree)
        self._slowest = Slowest(drawing, self._flights)
        self._blame = blame
        self._ftrace = options.ftrace
        self._reasons = BlockedReasons(context.wait_stacks) if place.reasons else None
        self._at_end: Lifecycles | None = None
        """What is open at the end of the last window; None: there was no window."""
        self._begin: int | None = None
        self._shown_from = 0
        """The trace's begin on its primary clock, ns."""
        self._end = 0

    def write_window(self, window: Lifecycles) -> None:
        """Write what the window ended, and counters; what is in flight only gets a lane."""
        if not self._detail.requests:
            every = np.ones(len(window.bios), np.bool_), np.ones(len(window.open_bios), np.bool_)
            none = (np.zeros(len(t), np.bool_) for t in (window.requests, window.open_requests))
            window = restricted(window, every[0], next(none), every[1], next(none))
        maker, path, tables = self._blocks, window.path, window.sites
        if path is not None:
            self._tree.name_processes(window.tasks)
            self._path = self._path or self._path_maker()
        met = self._lives is not None and self._lives.tally.hits > 0  # in an earlier part
        if self._sites is None and (tables is not None or met or follows(self.context.header)):
            from biotrail.converters.outputs.perfetto import sites

            drawing, identity = self._drawing, self._identity
            self._sites = sites.SiteMaker(drawing, identity, self._tree, self._lives)
        bios, requests = maker.bios(window), maker.requests(window)
        open_bios, *_ = maker.begin(BIO, window.open_bios)
        open_requests, *_ = maker.begin(REQUEST, window.open_requests)
        losses = maker.losses(window.loss)
        self._flights.add(window)
        slowest, shown = self._slowest.add(bios, window)
        if self._flows is not None:
            self._flows.add(window, bios, requests, slowest, shown)
            if self._sites is not None and tables is not None and tables.joined is not None:
                self._sites.mark(tables.joined, window.bios.request, bios, requests)
            if self._place.crossing is not None:
                mark_crossing(self._place.crossing, bios, requests, self._drawing.names)
        beside = []  # of categories of which none is in flight
        if self._path is not None:
            beside += self._path.slices(window)
        if self._sites is not None and tables is not None:
            beside.append(self._sites.pairs(tables.pairs))
        if self._path is not None and self._path.with_path and self._detail.requests:
            beside.append(self._path.interrupts(window))
        self._start(window, (bios, requests, open_bios, open_requests, losses, *beside))
        self._file.packets(self._clocks.new_snapshots(self._readings))
        if self._ftrace:
            self._file.packets(block_io(requests, window.requests, self._clocks.offset or 0))
        if self._reasons is not None and path is not None:
            self._file.packets(self._reasons.packets(path.waits, self._clocks.offset or 0))
        if self._sites is not None:
            self._file.packets(self._sites.packets(window))
            self._end = max(self._end, self._sites.end)
        self._slices.write(bios, open_bios)
        self._slices.write(requests, open_requests)
        for slices in beside:
            self._slices.write(slices)
        self.counters.update(window, bios, open_bios, requests, self._begin or 0, self._end)
        self._end = max(self._end, self.counters.last)

        self.summary.loss_windows += len(losses)
        self._slices.write(losses)
        total = self.summary
        total.bios += len(bios)
        total.requests += len(requests)
        total.not_drawn += len(window.bios) - len(bios) + len(window.requests) - len(requests)
        for slices in (bios, requests):
            total.open_at_end += int((slices.end == FOREVER).sum())
            recorded = slices.number[slices.number < FIRST_UNRECORDED]
            total.families = max(total.families, int(recorded.max(initial=-1)) + 1)
        self._at_end = _at_end(window)
        if len(self._drawing.strings.known) > _MOST_STRINGS:
            self._streams.forget_strings()

    def _path_maker(self) -> "PathMaker":
        from biotrail.converters.outputs.perfetto.path_slices import PathMaker

        return PathMaker(self._drawing, self._tree, self._flows, self._flights)

    def finish(self, until: int = FOREVER) -> None:
        """End open slices and counters, and write the slowest I/Os and the summary.

        until: ns at which the next part begins (`convert_parts`) and this one ends; what has ended
        though it is in the open tables is left to that. FOREVER: nothing follows; the trace ends
        with its last event or clock reading, or with `to_end` the last window. Without any window,
        also writes what a trace begins with.
        """
        last = self._at_end
        if last is None:
            self._start(None, ())
        else:
            if self._to_end or until != FOREVER:
                self._end = max(self._end, last.end - 1)
            if until != FOREVER:
                going_on = last.requests.complete == NEVER
                going_on &= last.requests.absorbed_by == NEVER
                bios = last.bios.take(last.bios.complete == NEVER)
                last = replace(last, bios=bios, requests=last.requests.take(going_on))
            if len(last.bios) or len(last.requests):
                self.write_window(last)
            rest = []
            if self._path is not None and self._path.with_path:
                rest = [self._path.calls(None, last.tasks, rest=True), self._path.interrupts(None)]
            self._start(last, rest)
            for slices in rest:
                self._slices.write(slices)
        sites = self._sites
        if sites is not None:
            if until == FOREVER:
                self._file.packets(sites.packets(None))
                self._end = max(self._end, sites.end)
            self.summary.lives = sites.lives
        begin = self._begin or 0
        read_at = (int(reading["monotonic"]) for reading in self._readings)
        self._end = max([self._end, begin, *(at for at in read_at if at <= until)])
        self._file.packets(self._clocks.new_snapshots(self._readings))
        self._slices.finish(self._end)
        self.counters.finish(begin, self._end)
        self._end = max(self._end, self.counters.last)
        if self._blame is not None:
            self._file.packets([*counters(self._blame, self._tree, begin, self._end)])
        ios, host = slowest_of(self._slowest.kept), self._place.host
        self._file.packets(slow_packets(self._tree, SLOWEST, ios, host, self._flows, self._blame))
        if self._path is not None:
            self._file.packets(slow_packets(self._tree, SLOW_CALL, self._path.slow.kept, host))
        self.summary.lanes = sum(len(one.last_end) for one in self._slices.pools.values())
        self.summary.devices = len(self._tree.devices)
        self.summary.sequences = 1 + len(self._streams.tracks)
        left_out = {*_NOT_IN_INSTANT, *(() if self.summary.lives else ("lives",))}
        facts = {k: v for k, v in asdict(self.summary).items() if k not in left_out}
        self._file.packets([instant(self._tree.recording, self._end, "end of recording", facts)])
        # The view is of the slowest I/O, or else of the longest pair of events or life, with its
        # length before and after it, in the trace.
        device = ""
        if self._slowest.kept:
            slowest = self._slowest.kept[0]
            begin, end = slowest.start, slowest.end
            device = self.context.device_label(slowest.dev)
        else:
            begin, end = (0, 0) if sites is None else sites.longest
        if begin == end:
            return
        last_shown, at = (self._clocks.at(time)[-1][1] for time in (self._end, begin))
        since = max(at - (end - begin), self._shown_from)
        stop = min(at + 2 * (end - begin), last_shown)
        self.summary.view = View(end - begin, since, stop, device)
        # The log's last packet, where readers look for it.
        view = {"view": f"{since} {stop} {device}"}
        self._file.packets([attributes(view, self._place.number)])

    def _start(self, window: Lifecycles | None, slices: Collection[Slices]) -> None:
        """Advance `_end` to the last packet of `slices`; at first write the trace's begin."""
        for drawn in slices:
            if len(drawn):
                self._end = max(self._end, int(last_packet(drawn).max()))
        if self._begin is not None:
            return
        starts = [int(s.start.min()) for s in slices if len(s)]
        readings = self.context.clocks
        if window is not None:
            starts.append(window.begin)
        elif readings:
            starts.append(int(readings[0]["monotonic"]))
        self._begin = max(min(starts, default=0), 0)
        first = TracePacket(sequence_flags=_CLEARED, first_packet_on_sequence=True)
        first.trace_packet_defaults.timestamp_clock_id = OWN_CLOCK
        self._file.packets([first])
        if not self._readings:
            snapshot = self._clocks.snapshot_at(self._begin)
            if self._ftrace and not self._place.aligned:  # ftrace's times are of BOOTTIME
                snapshot.clocks.add(clock_id=BOOTTIME, timestamp=self._begin)
            self._file.packets([TracePacket(clock_snapshot=snapshot)])
        self._file.packets(self._clocks.new_snapshots(self._readings))
        self._shown_from = self._clocks.at(self._begin)[-1][1]
        facts = {**recording_facts(self.context), **self._place.facts, **self._facts}
        if self._place.beside is None and self._place.number == 1:
            self._file.packets([system_info(self.context)])
        self._file.packets([attributes(facts, self._place.number)])
        self._tree.begin()
        self._file.packets([instant(self._tree.recording, self._begin, "recording", facts)])


def _at_end(window: Lifecycles) -> Lifecycles:
    """Return what is open at the window's end as a window that ends it there."""
    none, path = np.zeros(0, dtype=np.int64), window.path
    if path is not None:
        names = ["calls", "waits", "interrupts", "steps", "submissions", "commits"]
        names += ["open_bios", "open_held"]
        empty = {name: getattr(path, name).take(none) for name in names}
        path = replace(path, bios=path.open_bios, held=path.open_held, **empty)
    names = ["open_bios", "open_requests", "edges", "bio_stages", "request_stages", "loss"]
    empty = {name: getattr(window, name).take(none) for name in names}
    bios, requests = window.open_bios, window.open_requests
    return replace(
        window, begin=window.end, bios=bios, requests=requests, path=path, sites=None, **empty
    )


def convert_parts(
    lifecycles: Iterable[Lifecycles],
    context: Context,
    opened: Callable[[int], BinaryIO],
    limit: int,
    *,
    stacks: StackNames | None = None,
    facts: Facts | None = None,
    to_end: bool = False,
    options: Options = STANDARD,
) -> list[PerfettoSummary]:
    """Write a trace in parts of about `limit` bytes at most, and return their summaries in order.

    Each opens by itself, and ends where a window does. What is in flight there is in both parts: in
    the first drawn to the end and marked as open, in the other whole, with the same number. opened:
    called with a part's number 1, 2, …, returns the file to write; closing it is the caller's. A
    part ends when one more window as large as the largest so far would not fit; it exceeds the
    limit if the next is larger, or by slices still open at its end. A window without content begins
    no further part. The other parameters are those of `convert`.
    """
    from biotrail.converters.sites.lives import LifeReader

    converter = partial(_Converter, context, stacks=stacks, to_end=to_end, options=options)
    summaries: list[PerfettoSummary] = []
    part: _Converter | None = None
    lives = LifeReader(context)
    largest = 0
    for window in _losses_in_time(lifecycles):
        if part is None:
            tables = [window.bios, window.requests, window.open_bios, window.open_requests]
            tables.append(window.loss)
            if (path := window.path) is not None:
                tables += [path.calls, path.waits, path.submissions, path.commits]
            if window.sites is not None:
                tables += [window.sites.hits, window.sites.pairs]
            if summaries and not any(map(len, tables)):
                continue
            number = len(summaries) + 1
            part = converter(opened(number), facts={**(facts or {}), "part": number}, lives=lives)
            summaries.append(part.summary)
        before = part.summary.bytes
        part.write_window(window)
        largest = max(largest, part.summary.bytes - before)
        if part.summary.bytes + part.counters.held_bytes + largest + _END_BYTES > limit:
            part.finish(window.end)
            part = None
    if not summaries:
        part = converter(opened(1), facts=facts or {})
        summaries.append(part.summary)
    if part is not None:
        part.finish()
    return summaries


def _losses_in_time(windows: Iterable[Lifecycles]) -> Iterator[Lifecycles]:
    """Yield windows with the losses that began before their end: an index has all at once."""
    waiting: list[LossWindows] = []
    for window in windows:
        loss = LossWindows.concatenate([*waiting, window.loss])
        due = (loss.start < window.end) | (window.begin == window.end)
        waiting = [loss.take(~due)]
        found = [replace(window, loss=loss.take(due))]
        del window  # not kept while it is used
        yield found.pop()
