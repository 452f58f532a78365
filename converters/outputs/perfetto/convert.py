# SPDX-License-Identifier: Apache-2.0
"""Convert lifecycles to a Perfetto trace: a group per device, lanes of bios and requests, counters.

docs/perfetto.md describes tracks, arguments and SQL. The trace is written window by window; memory
does not grow with its length.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import BinaryIO

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from biotrail.converters.events.context import Context
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tables import I64, Lifecycles, LossWindows
from biotrail.converters.lifecycles.lifecycles import FIRST_UNRECORDED
from biotrail.converters.outputs.counters import LossTotal, Samples
from biotrail.converters.outputs.perfetto.callstacks import CallStacks
from biotrail.converters.outputs.perfetto.clocks import OWN_CLOCK, ClockBook
from biotrail.converters.outputs.perfetto.columns import Slices
from biotrail.converters.outputs.perfetto.detail import seen_with, slice_maker
from biotrail.converters.outputs.perfetto.events import (
    Placed,
    encode_ends,
    encode_samples,
    encode_slices,
    last_packet,
)
from biotrail.converters.outputs.perfetto.gauges import Gauges, Passage
from biotrail.converters.outputs.perfetto.lanes import FOREVER, LanePool
from biotrail.converters.outputs.perfetto.metadata import (
    Facts,
    attributes,
    instant,
    recording_facts,
)
from biotrail.converters.outputs.perfetto.names import STAGE_IIDS, Colour, Detail, Interned
from biotrail.converters.outputs.perfetto.open import left_over, unended
from biotrail.converters.outputs.perfetto.place import Place
from biotrail.converters.outputs.perfetto.slowest import Slowest
from biotrail.converters.outputs.perfetto.summary import LARGE, PerfettoSummary, View
from biotrail.converters.outputs.perfetto.tracks import Identity, Streams, framed
from biotrail.converters.outputs.perfetto.tree import LOST, Tree
from biotrail.recorder.schema.errors import OutputError

__all__ = ["LARGE", "Converter", "PerfettoSummary", "convert"]

_MOST_STRINGS = 1 << 14
"""Interned strings after which interning starts anew, to bound their table."""
_NOT_IN_INSTANT = ("bytes", "sequences", "families", "view")
"""Fields of the summary that the "end of recording" instant leaves out."""
_CLEARED = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED | TracePacket.SEQ_NEEDS_INCREMENTAL_STATE


Progress = Callable[[PerfettoSummary], None]
"""A callback that gets a copy of the summary after each window."""


def convert(
    lifecycles: Iterable[Lifecycles],
    context: Context,
    out: BinaryIO,
    *,
    stacks: StackNames | None = None,
    facts: Facts | None = None,
    to_end: bool = False,
    detail: Detail = Detail.FULL,
    colour: Colour = Colour.AUTO,
    place: Place | None = None,
    on_progress: Progress | None = None,
) -> PerfettoSummary:
    """Write a Perfetto trace of the windows to `out` as they come, and return what was written.

    stacks: the log's call stacks; None: bios get none. facts: further trace attributes (name → text
    or number). to_end: draw the trace up to the last window's end, as for a cut, instead of up to
    its last event. detail: how much of each bio is drawn. colour: what slices of one colour have in
    common. place: where the log stands in a trace of several logs; None: alone. on_progress: called
    after every window with a copy of the summary so far. Raises OutputError when `out` cannot be
    written.
    """
    converter = Converter(context, out, stacks, facts, to_end, detail, colour, place)
    for window in lifecycles:
        converter.window(window)
        if on_progress is not None:
            on_progress(replace(converter.summary))
    converter.finish()
    return converter.summary


@dataclass
class _Pool:
    """The lanes of one device's bios or requests, or of the loss windows."""

    lanes: LanePool = field(default_factory=LanePool)
    streams: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Per lane (lanes,): its index in Streams, or -1 before the lane's first slice."""


class Converter:
    """Writes one trace: `window` for each window, then `finish`; `summary` counts the contents."""

    def __init__(
        self,
        context: Context,
        out: BinaryIO,
        stacks: StackNames | None = None,
        facts: Facts | None = None,
        to_end: bool = False,
        detail: Detail = Detail.FULL,
        colour: Colour = Colour.AUTO,
        place: Place | None = None,
    ) -> None:
        """Take the parameters of `convert`; nothing is written before the first window."""
        place = place or Place.alone(context)
        self._to_end = to_end
        self._detail = detail
        self.context = context
        self._facts = facts or {}
        self.summary = PerfettoSummary()
        self._out = out
        self._place = place
        identity = Identity(place.key, place.trace, place.sequences)
        self._sequence = identity.sequence(0)
        self._clocks = ClockBook(place.aligned)
        self._timed = bool(context.clocks) and not place.aligned
        # Stage names have the first ids.
        names, strings = Interned(len(STAGE_IIDS) + 1), Interned()
        self._stacks = CallStacks(stacks)
        self._maker = slice_maker(detail, context, names, strings, self._stacks, place, colour)
        self._streams = Streams(identity, self._clocks, names, strings, self._stacks)
        self._tree = Tree(identity, context, place)
        self._pools: dict[tuple[str, int], _Pool] = {}
        self._gauges: dict[int, Gauges] = {}
        self._counters: dict[tuple[str, int], int] = {}
        self._lost = LossTotal()
        self._slowest = Slowest(context, names, self._clocks)
        self._unended: list[int] = []
        """Streams whose last slice is open: `_finish_slices` writes its END at the trace's end."""
        self._last_window: Lifecycles | None = None
        self._begin: int | None = None
        self._shown_from = 0
        """The trace's begin on its primary clock, ns."""
        self._end = 0

    # The trace as a whole

    def window(self, window: Lifecycles) -> None:
        """Write the slices of bios, requests and losses that the window ended, and counter samples.

        Bios and requests in flight at the window's end get a lane now and their slice in a later
        window. Adds to `summary`.
        """
        window = seen_with(self._detail, window)
        self._stacks.refresh()
        self._maker.note_stacked(window)
        bios = self._maker.bios(window.bios, window.bio_stages, window.tasks)
        requests = self._maker.requests(window.requests, window.request_stages)
        open_bios = self._maker.under_way(window.open_bios)
        open_requests = self._maker.under_way(window.open_requests)
        losses = self._maker.losses(window.loss, self.summary.loss_windows)
        self._start(window, (bios, requests, open_bios, open_requests, losses))
        self._clock_readings()
        self._slices(bios, open_bios)
        self._slices(requests, open_requests)
        self._slowest.add(bios, window.bios, window.tasks)
        self._gauge(window, bios, open_bios)
        self._losses(window.loss, losses)
        self._count(window, bios, requests)
        self._last_window = window
        if len(self._maker.strings) > _MOST_STRINGS:
            self._maker.strings = self._streams.forget_strings()

    def finish(self, until: int = FOREVER) -> None:
        """End open slices and counters, and write the slowest I/Os and the summary.

        until: ns at which the next part of the trace begins (`convert_parts`). The trace then ends
        there, and bios and requests that have completed but are still in the open tables are left
        to the next part. FOREVER: nothing follows.
        """
        last = self._last_window
        if last is not None and until != FOREVER:
            last = unended(last)
        if last is None:
            self._start(None, ())
        else:
            if self._to_end or until != FOREVER:
                self._end = max(self._end, last.end - 1)
            if len(last.open_bios) or len(last.open_requests):
                self.window(left_over(last))
        begin = self._begin or 0
        readings = self.context.clocks if self._timed else []
        read_at = (int(reading["monotonic"]) for reading in readings)
        self._end = max([self._end, begin, *(at for at in read_at if at <= until)])
        self._clock_readings()
        self._finish_slices()
        for dev, gauges in self._gauges.items():
            self._samples(dev, gauges.finish(self._end))
        if self._lost.some:
            for dev in self._tree.devices():
                self._samples(dev, {LOST: self._lost.samples(begin)})
        self._packets(self._slowest.packets(self._tree, self._place.host))
        self.summary.lanes = sum(len(p.lanes) for p in self._pools.values())
        self.summary.devices = len(self._tree.devices())
        self.summary.sequences = 1 + len(self._streams)
        facts = {k: v for k, v in asdict(self.summary).items() if k not in _NOT_IN_INSTANT}
        self._packets([instant(self._tree.recording, self._end, "end of recording", facts)])
        self._look()

    def _look(self) -> None:
        """Set `summary.view` to the time around the slowest I/O, and write it as an attribute.

        It is the file's last packet, where readers look for it. Without a complete I/O nothing is
        written.
        """
        slowest = self._slowest.slowest()
        if slowest is None:
            return
        last = self._clocks.at(self._end)[-1][1]
        self.summary.view = View(
            slowest.latency,
            max(slowest.at - slowest.latency, self._shown_from),
            min(slowest.at + 2 * slowest.latency, last),
            self.context.device_label(slowest.dev),
        )
        self._packets([attributes({"view": str(self.summary.view)}, self._place.number)])

    def _start(self, window: Lifecycles | None, slices: Iterable[Slices]) -> None:
        """Advance `_end` to the last packet of `slices`; the first call writes the first packets.

        The trace begins at the earliest of: the first slice, the window's begin, or without a
        window the first clock reading. The first packets are the clocks, facts about the recording,
        and the first groups.
        """
        for some in slices:
            if len(some):
                self._end = max(self._end, int(last_packet(some).max()))
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
        self._packets([first])
        if not self._timed:
            self._packets([TracePacket(clock_snapshot=self._clocks.begun(self._begin))])
        self._clock_readings()
        self._shown_from = self._clocks.at(self._begin)[-1][1]
        facts = {**recording_facts(self.context), **self._place.facts, **self._facts}
        self._packets([attributes(facts, self._place.number), *self._tree.announcements()])
        self._packets([instant(self._tree.recording, self._begin, "recording", facts)])

    def _clock_readings(self) -> None:
        """Write snapshots for the clock readings that the log has gained since the last call."""
        if self._timed:
            taken = self._clocks.take(self.context.clocks)
            self._packets([TracePacket(clock_snapshot=snapshot) for snapshot in taken])

    def _count(self, window: Lifecycles, bios: Slices, requests: Slices) -> None:
        """Add a window's bios and requests to the summary."""
        total = self.summary
        total.bios += len(bios)
        total.families = max(total.families, _beyond(bios), _beyond(requests))
        total.requests += len(requests)
        total.not_drawn += len(window.bios) - len(bios) + len(window.requests) - len(requests)
        total.open_at_end += int((bios.end == FOREVER).sum() + (requests.end == FOREVER).sum())

    # Slices

    def _slices(self, slices: Slices, under_way: Slices) -> None:
        """Put slices on lanes and write them; slices in flight reserve a lane for later."""
        stream = np.zeros(len(slices), dtype=np.int64)
        groups = np.unique(np.concatenate([slices.group, under_way.group]))
        known = [dev for category, dev in self._pools if category == slices.category]
        for dev in sorted({*groups.tolist(), *known}):
            ours = np.flatnonzero(slices.group == dev)
            later = self._concurrent(slices, ours, under_way, dev)
            stream[ours] = self._lanes(slices, ours, under_way, later, dev)
        if len(slices):
            self._write_slices(slices, stream)

    def _concurrent(self, slices: Slices, ours: I64, under_way: Slices, dev: int) -> I64:
        """Return the rows (k,) of `under_way` on `dev` that need a lane in this window.

        Those are the ones that began no later than the pool's frontier or the last begin or end
        among the rows `ours` of `slices`; an end that is FOREVER does not count. Later ones overlap
        nothing in this window, so they can wait. Changes nothing.
        """
        pool = self._pools.get((slices.category, dev))
        ends = slices.end[ours]
        ended = int(ends[ends != FOREVER].max(initial=-1))
        until = max(
            ended, pool.lanes.frontier if pool else -1, int(slices.start[ours].max(initial=-1))
        )
        return np.flatnonzero((under_way.group == dev) & (under_way.start <= until))

    def _lanes(self, slices: Slices, ours: I64, under_way: Slices, later: I64, dev: int) -> I64:
        """Put the rows `ours` of `slices` on lanes of `dev`; return their streams (n,).

        The rows `later` of `under_way` reserve lanes. Makes the pool if `dev` has none, adds lanes
        to it, and adds streams for new lanes.
        """
        pool = self._pools.setdefault((slices.category, dev), _Pool())
        number = np.concatenate([slices.number[ours], under_way.number[later]])
        start = np.concatenate([slices.start[ours], under_way.start[later]])
        end = np.concatenate([slices.end[ours], under_way.end[later]])
        order = np.lexsort((number, start)) if len(later) else slice(None)
        lane = np.empty(len(number), dtype=np.int64)
        stays = np.concatenate([end[: len(ours)] == FOREVER, np.zeros(len(later), dtype=np.bool_)])
        lane[order] = pool.lanes.assign(number[order], start[order], end[order], stays[order])
        lane, start = lane[: len(ours)], start[: len(ours)]
        self._new_streams(pool, slices.category, dev, lane, start)
        return pool.streams[lane]

    def _new_streams(self, pool: _Pool, category: str, dev: int, lane: I64, start: I64) -> None:
        """Add a stream to `pool.streams` for each lane that has its first slice.

        lane, start: per slice (n,), its lane and begin (ns).
        """
        lanes = int(lane.max(initial=-1)) + 1
        more = np.full(max(lanes - len(pool.streams), 0), -1, dtype=np.int64)
        pool.streams = np.concatenate([pool.streams, more])
        first = np.full(len(pool.streams), FOREVER)
        np.minimum.at(first, lane, start)
        for new in np.flatnonzero((pool.streams < 0) & (first != FOREVER)).tolist():
            descriptor = self._tree.lane(category, dev, new)
            pool.streams[new] = self._streams.add(descriptor, category, int(first[new]))

    def _write_slices(self, slices: Slices, stream: I64) -> None:
        """Write slices, each on its `stream` (n,), and the interned data that must precede them.

        Updates the last packet's time of each stream, the open slices and the slice count.
        """
        order = np.argsort(_small(stream), kind="stable")
        ordered = stream[order]
        last = last_packet(slices)[order]
        change = np.flatnonzero(np.diff(ordered, prepend=-1))
        before = np.concatenate([[0], last[:-1]])
        before[change] = self._streams.last[ordered[change]]
        uses = [
            (stream, c.values if c.where is None else np.where(c.where, c.values, np.uint64(0)))
            for c in slices.columns
            if c.interned
        ]
        used = ordered[change]
        stages = [] if slices.stages is None else np.unique(slices.stages.name).tolist()
        self._streams.use(slices.category, [c.iid for c in slices.columns], stages)
        self._packets(self._tree.announcements())
        callstacks = [] if slices.callstack is None else [(stream, slices.callstack)]
        self._write(self._streams.prepare(used, uses, callstacks))
        for data in encode_slices(Placed(slices, order, self._streams.sequence[ordered], before)):
            self._write(data)
        final = np.append(change[1:], len(ordered)) - 1
        self._streams.last[used] = last[final]
        self._unended += stream[slices.end == FOREVER].tolist()
        nested = 0 if slices.stages is None else len(slices.stages.name)
        self.summary.slices += len(slices) + nested

    def _finish_slices(self) -> None:
        """Write an END at the trace's end for every open slice."""
        stream = np.array(sorted(self._unended), dtype=np.int64)
        self._write(self._streams.prepare(stream, ()))
        since = np.maximum(self._end - self._streams.last[stream], 0)
        self._write(encode_ends(since, self._streams.sequence[stream]))

    def _losses(self, table: LossWindows, losses: Slices) -> None:
        """Add loss windows to the counter of lost records, and write their slices."""
        self._lost.add(table.end, table.count)
        self.summary.loss_windows += len(losses)
        if len(losses):
            self._slices(losses, _nothing(losses))

    # Counters

    def _gauge(self, window: Lifecycles, bios: Slices, open_bios: Slices) -> None:
        """Update the counters of each device that has a group or a bio in flight; write samples."""
        origin = self._begin or 0
        begin = max(window.begin, origin)
        # A sample behind the last packet would extend the trace.
        end = max(min(window.end, self._end + 1), begin)
        under_way_on = np.unique(open_bios.group).tolist()
        for dev in dict.fromkeys([*self._tree.devices(), *under_way_on]):
            gauges = self._gauges.setdefault(dev, Gauges(origin, self._detail == Detail.FULL))
            over = Passage.of(self.context, bios, window.bios, dev)
            under_way = Passage.of(self.context, open_bios, window.open_bios, dev)
            self._samples(dev, gauges.update(begin, end, over, under_way))

    def _samples(self, dev: int, samples: dict[str, Samples]) -> None:
        """Write samples of a device's counters, adding a stream for a counter's first sample."""
        for name, (times, values) in samples.items():
            if not len(times):
                continue
            stream = self._counters.get((name, dev))
            if stream is None:
                descriptor = self._tree.counter(name, dev)
                stream = self._streams.add(descriptor, "", int(times[0]))
                self._counters[name, dev] = stream
                self._packets(self._tree.announcements())
            self._write(self._streams.prepare(np.array([stream]), ()))
            since = np.diff(times, prepend=self._streams.last[stream])
            sequence = np.full(len(times), self._streams.sequence[stream], dtype=np.uint64)
            self._end = max(self._end, int(times[-1]))
            self._write(encode_samples(since, sequence, values))
            self._streams.last[stream] = times[-1]
            self.summary.samples += len(times)

    # Bytes

    def _packets(self, packets: Iterable[TracePacket]) -> None:
        """Write packets on the converter's own sequence; sets their sequence id and flags."""
        ready = list(packets)
        for packet in ready:
            packet.trusted_packet_sequence_id = self._sequence
            if not packet.sequence_flags:
                packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        self._write(framed(ready))

    def _write(self, data: bytes) -> None:
        """Write bytes and count them; raises OutputError where `out` fails."""
        try:
            self._out.write(data)
        except OSError as error:
            raise OutputError(
                f"The trace cannot be written after {self.summary.bytes} bytes: {error.strerror}. "
                "Make room or choose another place."
            ) from error
        self.summary.bytes += len(data)


def _beyond(slices: Slices) -> int:
    """Return the largest number in the slices plus one, ignoring bios from before the log."""
    return int(slices.number[slices.number < FIRST_UNRECORDED].max(initial=-1)) + 1


def _small(stream: I64) -> I64 | np.ndarray:
    """Return the stream indices as int16 where they fit, which a stable argsort radix-sorts."""
    return stream.astype(np.int16) if int(stream.max(initial=0)) < 1 << 15 else stream


def _nothing(slices: Slices) -> Slices:
    """Return Slices of the same category without a row."""
    none = np.zeros(0, dtype=np.int64)
    return Slices(slices.category, none, none, none, none, none.astype(np.uint64), None)
