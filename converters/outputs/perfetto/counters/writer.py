# SPDX-License-Identifier: Apache-2.0
"""Write counters (queue depths and throughput per device, and lost records) and states."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, Bool, Lifecycles, LossWindows
from biotrail.converters.outputs.counters import LEVEL_BIN, Samples
from biotrail.converters.outputs.perfetto.counters.gauges import Gauges, Passage
from biotrail.converters.outputs.perfetto.counters.states import States
from biotrail.converters.outputs.perfetto.names import DEVICE_FLUSH, FLUSH, Interned
from biotrail.converters.outputs.perfetto.packets.columns import Slices
from biotrail.converters.outputs.perfetto.summary import PerfettoSummary
from biotrail.converters.outputs.perfetto.tracks.tracks import Streams
from biotrail.converters.outputs.perfetto.tracks.tree import LOST, Tree
from biotrail.converters.outputs.perfetto.writing.encoding import encode_samples
from biotrail.converters.outputs.perfetto.writing.file import PacketFile

_LOSS_BINS = 1 << 16
"""Most bins of a LossTotal."""


@dataclass
class LossTotal:
    """Running total of lost records, from loss windows in any order.

    Memory is bounded: when there are too many bins, they become twice as wide.
    """

    _bin: int = LEVEL_BIN
    """Length of a bin, ns."""
    _lost: dict[int, int] = field(default_factory=dict)
    """Per bin number: records lost in it."""

    def add(self, end: I64, count: I64) -> None:
        """Add loss windows, the times in which a ring was full, to the records lost per bin.

        end (ns), count: per loss window its end, and how many records it lost; -1 (unknown) and 0
        add nothing. All count in the bin of `end`. Changes `_lost`; while it has more than 65,536
        bins, bins become twice as wide (`_bin`).
        """
        for at, lost in zip(end.tolist(), count.tolist(), strict=True):
            if lost > 0:
                key = at // self._bin
                self._lost[key] = self._lost.get(key, 0) + lost
        while len(self._lost) > _LOSS_BINS:
            self._bin *= 2
            wider: dict[int, int] = {}
            for key, lost in self._lost.items():
                wider[key // 2] = wider.get(key // 2, 0) + lost
            self._lost = wider

    @property
    def some(self) -> bool:
        """Whether any counted record was lost."""
        return bool(self._lost)

    def samples(self, at: int) -> Samples:
        """Return the whole counter as (times in ns, records lost so far), sorted by time.

        A zero at `at` (ns, the trace's begin), then a sample at the end of each bin in which a loss
        window ends: when within that window a record was lost is not known. Samples before `at` are
        moved to it, behind the zero.
        """
        keys = np.array(sorted(self._lost), dtype=np.int64)
        steps = np.array([self._lost[k] for k in keys.tolist()], dtype=np.int64)
        times = np.concatenate([[at], np.maximum((keys + 1) * self._bin, at)])
        return times, np.concatenate([[0.0], np.cumsum(steps).astype(float)])


_MOST_HELD = 1 << 20
"""Changes that are held back at most for a device's oldest bio in flight."""


class CounterWriter:
    """Writes the counters of one log, window by window, then the samples that were held back.

    fine: whether few changes within a short time are a sample each (`Gauges.fine`). Adds to
    `summary.samples`.
    """

    def __init__(
        self,
        context: Context,
        file: PacketFile,
        streams: Streams,
        tree: Tree,
        summary: PerfettoSummary,
        *,
        fine: bool,
        names: Interned,
    ) -> None:
        """Begin without counters; nothing is written.

        file, streams, tree, summary: those of the whole trace. fine: as of the class. names: of
        slices.
        """
        self._context = context
        self._file = file
        self._streams = streams
        self._tree = tree
        self._summary = summary
        self._fine = fine
        self._gauges: dict[int, Gauges] = {}
        """Per dev_t: its counters."""
        self._stream_of: dict[tuple[str, int], int] = {}
        """(name of a counter, dev_t) → index in Streams; from the counter's first sample on."""
        self._states: dict[int, States] = {}
        """Per dev_t, where `fine`."""
        self._flushes = [names.id(name) for name in (FLUSH, DEVICE_FLUSH)]
        self._lost = LossTotal()
        self.last = 0
        """ns: the latest sample written; 0 before the first."""

    def add_losses(self, table: LossWindows) -> None:
        """Add a window's loss windows to the counter of lost records, which `finish` writes."""
        self._lost.add(table.end, table.count)

    def update(
        self,
        window: Lifecycles,
        bios: Slices,
        open_bios: Slices,
        requests: Slices,
        origin: int,
        end: int,
    ) -> None:
        """Update the counters of each device with a group or a bio in flight; write their samples.

        The counter of lost records is not among them. bios, open_bios, requests: slices of the
        tables of `window`. origin: the trace's begin, ns, where each counter begins. end: when the
        trace's last packet is, ns: bins that end later are left to a later call, as their samples
        would extend the trace. How long a bio was in flight is known when it is over, so what
        follows the oldest open one's beginning is held back, unless that is too much. Sets `last`.
        Raises OutputError where writing fails.
        """
        known_until = max(min(window.end, end + 1), origin)
        in_flight_on = np.unique(open_bios.group).tolist()
        for dev in dict.fromkeys([*self._tree.devices(), *in_flight_on]):
            gauges = self._gauges.setdefault(dev, Gauges(origin, self._fine))
            until = known_until
            if gauges.held < _MOST_HELD:
                oldest = open_bios.start[open_bios.group == dev].min(initial=until)
                until = min(until, int(oldest))
            ended = Passage.of(self._context, bios, window.bios, dev)
            self._write(dev, gauges.update(ended, until))
            if self._fine:
                states = self._states.setdefault(dev, States())
                states.add(ended.start, ended.end, self._flush(bios, dev))
                here = requests.group == dev
                states.add(requests.start[here], requests.end[here], self._flush(requests, dev))

    def _flush(self, slices: Slices, dev: int) -> Bool:
        """Return which of the slices on a device are flushes."""
        return np.isin(slices.name[slices.group == dev], self._flushes)

    @property
    def held_bytes(self) -> int:
        """How many bytes `finish` will write of states, at most."""
        return sum(states.bytes for states in self._states.values())

    def finish(self, begin: int, end: int) -> None:
        """Write the samples that were held back, the states, and the counter of lost records.

        begin, end: the trace's, ns. Every device with a group gets the same counter of lost
        records, of all devices together; none is written where no loss has a known count. Sets
        `last`, which may be after `end`. Raises OutputError where writing fails.
        """
        for dev, gauges in self._gauges.items():
            self._write(dev, gauges.finish(end))
        for dev, states in self._states.items():
            packets = list(states.packets(self._tree, dev, begin, end))
            self._file.packets([*self._tree.announcements(), *packets])
        if self._lost.some:
            for dev in self._tree.devices():
                self._write(dev, {LOST: self._lost.samples(begin)})

    def _write(self, dev: int, samples: dict[str, Samples]) -> None:
        """Write samples of a device's counters, each on its own packet sequence, and count them.

        samples: per counter's name, (times in ns, values), sorted by time and not before the
        counter's last sample. A counter gets its track, and its device a group, at its first
        sample; one without samples is skipped. Sets `last`, the latest time of all. Raises
        OutputError where writing fails.
        """
        for name, (times, values) in samples.items():
            if not len(times):
                continue
            stream = self._stream_of.get((name, dev))
            if stream is None:
                descriptor = self._tree.counter(name, dev)
                stream = self._streams.add(descriptor, "", int(times[0]))
                self._stream_of[name, dev] = stream
                self._file.packets(self._tree.announcements())
            self._file.write(self._streams.prepare(np.array([stream]), ()))
            since = np.diff(times, prepend=self._streams.last[stream])
            sequence = np.full(len(times), self._streams.sequence[stream], dtype=np.uint64)
            self.last = max(self.last, int(times[-1]))
            self._file.write(encode_samples(since, sequence, values))
            self._streams.last[stream] = times[-1]
            self._summary.samples += len(times)
