# SPDX-License-Identifier: Apache-2.0
"""The figures of a recording in slots of time, for the block bootstrap of `diff`.

The width of a slot doubles as the recording goes on: there are never more than MOST_SLOTS slots,
and a recording of at least LEAST_SLOTS * LEAST_SLOT_NS ends with at least LEAST_SLOTS.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.call_figures import (
    CallFigures,
    by_pair,
    coded,
    named,
)
from biotrail.converters.analysis.distributions.depth import Depth, Flow
from biotrail.converters.analysis.distributions.groups import Group, Groups, add_to_all, merged
from biotrail.converters.analysis.distributions.keys import OP_BITS, operation
from biotrail.converters.analysis.distributions.samples import Samples, of_bios, of_requests
from biotrail.converters.analysis.distributions.sketch import Distribution, add_grouped
from biotrail.converters.analysis.figures import begin_text, extent
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.events.tables import I64, Lifecycles
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.pair_names import PairNames

WHOLE = "Q2C"
"""Name of the whole of a victim's time, beside its parts."""


@dataclass
class BlameSlots:
    """Victims' time by part and slot of time. Counters: slot → number, or ns, which may be < 0."""

    by: str = ""
    """What victims and culprits are; empty: nobody was blamed."""
    ios: dict[str, Counter[int]] = field(default_factory=dict)
    """Victim → I/Os that ended in each slot."""
    waits: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)
    """(victim, part) → ns of these I/Os; a part is a kind, or `behind` and a culprit's name."""

    def widen(self) -> None:
        """Merge slots 2i and 2i + 1 into slot i."""
        for slots in (*self.ios.values(), *self.waits.values()):
            found = list(slots.items())
            slots.clear()
            for slot, value in found:
                slots[slot >> 1] += value

    def add_all(self, other: "BlameSlots", offset: int) -> None:
        """Add the slots of another recording, of the same width, behind the first `offset`."""
        self.by = self.by or other.by
        for victim, slots in other.ios.items():
            ours = self.ios.setdefault(victim, Counter())
            ours.update({slot + offset: value for slot, value in slots.items()})
        for name, slots in other.waits.items():
            ours = self.waits.setdefault(name, Counter())
            ours.update({slot + offset: value for slot, value in slots.items()})

    def parts(self, victim: str) -> dict[str, int]:
        """Return a victim's parts with their ns, in all."""
        return {part: sum(of.values()) for (name, part), of in self.waits.items() if name == victim}


MOST_CALL_NAMES = 64
"""Names of calls, with and without I/O, that are kept; calls of later ones are `left_out`."""

CallName = tuple[str, bool]
"""(name of a call, whether the calls did I/O)"""


@dataclass
class CallSlots:
    """Figures of one recording's calls, by name and by the slot in which they returned."""

    by_name: dict[CallName, dict[int, CallFigures]] = field(default_factory=dict)
    """Name → slot → figures; slots without such a call are absent."""
    left_out: int = 0
    """Calls of names past the first MOST_CALL_NAMES."""

    def add(self, window: Lifecycles, context: Context, origin: int, width: int) -> None:
        """Add a window's timed calls to the slots in which they returned."""
        if window.path is None:
            return
        calls = window.path.calls.take(window.path.calls.timed)
        slot = np.maximum(calls.exit - origin, 0) // width
        for code, one, rows in by_pair(coded(calls), slot):
            known = named(code, context)
            if known not in self.by_name and len(self.by_name) >= MOST_CALL_NAMES:
                self.left_out += len(rows)
                continue
            slots = self.by_name.setdefault(known, {})
            slots.setdefault(one, CallFigures()).add(calls.take(rows), known[0])

    def widen(self) -> None:
        """Merge slots 2i and 2i + 1 into slot i."""
        for name, slots in self.by_name.items():
            merged: dict[int, CallFigures] = {}
            for slot, figures in slots.items():
                merged.setdefault(slot >> 1, CallFigures()).merge(figures)
            self.by_name[name] = merged

    def add_all(self, other: "CallSlots", offset: int) -> None:
        """Add other slots of the same width behind the first `offset`; `other` is not changed."""
        self.left_out += other.left_out
        for name, slots in other.by_name.items():
            ours = self.by_name.setdefault(name, {})
            for slot, figures in slots.items():
                ours.setdefault(slot + offset, CallFigures()).merge(figures)


MOST_PAIR_NAMES = 64
"""Values of --by, of all pairs together, that are kept; pairs of later ones are `left_out`."""

LatencySlots = dict[int, Distribution]
"""Slot → latencies (ns) of the pairs that ended in it; empty slots are absent."""
PairName = tuple[str, str]
"""(name of the declared pair, value of --by as text; "": all pairs of that name)"""


@dataclass
class PairSlots:
    """Latencies of one recording's pairs by declaration, by value of --by, and by slot."""

    by_name: dict[PairName, LatencySlots] = field(default_factory=dict)
    """Name → slots; empty until `name`."""
    left_out: int = 0
    """Pairs of values of --by past the first MOST_PAIR_NAMES; they are among all of their name."""
    _whole: dict[int, LatencySlots] = field(default_factory=dict)
    """Index of the declared pair → slots."""
    _groups: dict[tuple[int, int], LatencySlots] = field(default_factory=dict)
    """(index of the declared pair, value of --by) → slots."""

    def add(self, window: Lifecycles, names: PairNames, origin: int, width: int) -> None:
        """Add a window's pairs to the slots in which they ended; slot 0 if before `origin`."""
        if window.sites is None or not len(window.sites.pairs):
            return
        pairs = window.sites.pairs
        slot = np.maximum(pairs.ended - origin, 0) // width
        rows, of = distinct(pairs.pair, slot)
        into = [self._whole.setdefault(p, {}).setdefault(s, Distribution()) for p, s in rows]
        add_grouped(of, pairs.latency, into)
        numbers = np.unique(pairs.pair)
        told = numbers[[names.has_by(number) for number in numbers.tolist()]]
        chosen = np.isin(pairs.pair, told)
        self._add_groups(pairs.take(chosen), slot[chosen])

    def _add_groups(self, pairs: Pairs, slot: I64) -> None:
        rows, of = distinct(pairs.pair, pairs.by)
        for pair, value in rows:
            if (pair, value) not in self._groups and len(self._groups) < MOST_PAIR_NAMES:
                self._groups[pair, value] = {}
        known = np.array([(p, v) in self._groups for p, v in rows], dtype=np.bool_)[of]
        self.left_out += int((~known).sum())
        pairs, slot = pairs.take(known), slot[known]
        cells, of = distinct(pairs.pair, pairs.by, slot)
        into = [self._groups[p, v].setdefault(s, Distribution()) for p, v, s in cells]
        add_grouped(of, pairs.latency, into)

    def widen(self) -> None:
        """Merge slots 2i and 2i + 1 into slot i."""
        for held in (self._whole, self._groups, self.by_name):
            for slots in held.values():
                found = sorted(slots.items())
                slots.clear()
                for slot, times in found:
                    slots.setdefault(slot >> 1, Distribution()).merge(times)

    def name(self, names: PairNames) -> None:
        """Fill `by_name`; to be called once, after the last window.

        names: as the log's END has them: functions' names are known only then. Values that are
        shown alike are one.
        """
        for number, slots in sorted(self._whole.items()):
            self._merge((names.name(number), ""), slots, 0)
        for (number, value), slots in self._groups.items():
            self._merge((names.name(number), names.by(number, value)), slots, 0)
        self._whole, self._groups = {}, {}

    def add_all(self, other: "PairSlots", offset: int) -> None:
        """Add another recording's slots, of the same width, behind the first `offset`."""
        self.left_out += other.left_out
        for name, slots in other.by_name.items():
            self._merge(name, slots, offset)

    def _merge(self, name: PairName, slots: LatencySlots, offset: int) -> None:
        ours = self.by_name.setdefault(name, {})
        for slot, times in slots.items():
            ours.setdefault(slot + offset, Distribution()).merge(times)


LEAST_SLOT_NS = 10_000_000
"""Width of the slots of a short recording, ns."""
MOST_SLOTS = 128
LEAST_SLOTS = MOST_SLOTS // 2
MOST_PLACES = 64
"""Pairs of device and operation that are kept; I/O of later pairs is counted in `left_out`."""
_WIDTH = 44
"""Bits of a group's code below the slot's number: `slot << _WIDTH | place`."""


@dataclass
class DeviceDepths:
    """How many bios and requests of one device were in flight, by slot."""

    queue: Depth
    """Bios from Q to C."""
    issued: Depth
    """Requests from D to C."""

    @classmethod
    def empty(cls, width: int) -> "DeviceDepths":
        """Return depths without any slot; width: ns of a slot."""
        return cls(Depth(0, width), Depth(0, width))


@dataclass
class Slots:
    """Groups of bios and requests of one recording by slot, device and operation."""

    width: int = LEAST_SLOT_NS
    """ns of a slot."""
    origin: int = -1
    """ns where the first slot begins; -1 before the first window."""
    depths: dict[int, DeviceDepths] = field(default_factory=dict)
    """dev_t → in flight; of the first MOST_PLACES devices."""
    left_out: int = 0
    """Bios and requests of devices and operations past the first MOST_PLACES."""
    calls: CallSlots = field(default_factory=CallSlots)
    """Timed system calls; they are not among `places`."""
    pairs: PairSlots = field(default_factory=PairSlots)
    """Pairs of events, likewise; by name once the recording was read to its end."""
    blame: BlameSlots = field(default_factory=BlameSlots)
    """Who waited for whom, likewise; set after a second reading, where that was asked for."""
    _bios: Groups = field(default_factory=lambda: Groups(1 << 62))
    _requests: Groups = field(default_factory=lambda: Groups(1 << 62))
    _places: set[int] = field(default_factory=set)
    _flows: tuple[Flow, Flow] = field(default_factory=lambda: (Flow(), Flow()))

    def add(self, window: Lifecycles, context: Context) -> None:
        """Add the recording's next window: I/Os to the slots in which they ended, depths, calls.

        An I/O without a recorded completion is in the slot in which it began. `width` is doubled
        until nothing ends past MOST_SLOTS slots.
        """
        if window.begin < 0 or window.end <= 0:  # the log has no events
            return
        if self.origin < 0:
            self.origin = window.begin
        bios = of_bios(window.bios, window.bio_stages, context)
        requests = of_requests(window.requests, window.request_stages, context)
        last = max([window.end, *(int(s.end.max()) for s in (bios, requests) if len(s))])
        while (last - self.origin) // self.width >= MOST_SLOTS:
            self.widen()
        self._take(bios, self._bios)
        self._take(requests, self._requests)
        self._add_depths(window)
        self.calls.add(window, context, self.origin, self.width)
        self.pairs.add(window, PairNames(context), self.origin, self.width)

    def places(self) -> list[int]:
        """Return the devices and operations with I/O, as in Samples.place, ascending."""
        return sorted(self._places)

    def bios(self, place: int) -> dict[int, Group]:
        """Return slot → group of the bios of a device and operation; empty slots are absent."""
        return _of(self._bios, place)

    def requests(self, place: int) -> dict[int, Group]:
        """Return slot → group of the requests of a device and operation; empty slots are absent."""
        return _of(self._requests, place)

    def times(self, end: int) -> I64:
        """Return the length of each slot from `origin` to `end` (ns): (slots,).

        The last slot has what is left, which can be 0.
        """
        span = max(end - self.origin, 0) if self.origin >= 0 else 0
        whole, rest = divmod(span, self.width)
        return np.array([self.width] * whole + [rest], dtype=np.int64)

    def _take(self, samples: Samples, into: Groups) -> None:
        """Add samples (figures of single bios or requests) to the groups of their slots."""
        if not len(samples):
            return
        for place in np.unique(samples.place).tolist():
            if len(self._places) < MOST_PLACES:
                self._places.add(place)
        known = np.isin(samples.place, list(self._places))
        if not known.all():
            self.left_out += int((~known).sum())
            samples = samples.take(known)
        slot = np.maximum(samples.end - self.origin, 0) // self.width
        add_to_all(samples, [(into, (slot << _WIDTH) | samples.place)])

    def _add_depths(self, window: Lifecycles) -> None:
        """Add a window's beginnings and ends of bios and requests to `depths`, by device."""
        queue = self._flows[0].steps(window, window.bios, window.open_bios)
        issue = self._flows[1].steps(window, window.requests, window.open_requests)
        for dev in dict.fromkeys([*queue.devices(), *issue.devices()]):
            if dev not in self.depths and len(self.depths) < MOST_PLACES:
                both = (Depth.idle(self.origin, s.begin, self.width) for s in (queue, issue))
                self.depths[dev] = DeviceDepths(*both)
        for dev, device in self.depths.items():
            device.queue.add(queue, dev)
            device.issued.add(issue, dev)

    def add_all(self, other: "Slots", offset: int, places: Mapping[int, int]) -> None:
        """Add other slots of the same `width` behind the first `offset` slots.

        places: place in `other` → place in these slots. Of the depths only `spans` are taken, which
        are shared.
        """
        mask = (1 << _WIDTH) - 1
        for into, groups in ((self._bios, other._bios), (self._requests, other._requests)):
            for code, group in groups.by_code.items():
                slot, place = (code >> _WIDTH) + offset, places[code & mask]
                into.merge(slot << _WIDTH | place, group)
        self._places.update(places.values())
        self.left_out += other.left_out
        self.calls.add_all(other.calls, offset)
        self.pairs.add_all(other.pairs, offset)
        self.blame.add_all(other.blame, offset)
        devices = {old >> OP_BITS: new >> OP_BITS for old, new in places.items()}
        for dev, theirs in other.depths.items():
            if dev in devices:
                ours = self.depths.setdefault(devices[dev], DeviceDepths.empty(self.width))
                for depth, more in ((ours.queue, theirs.queue), (ours.issued, theirs.issued)):
                    depth.spans.update({slot + offset: s for slot, s in more.spans.items()})

    def widen(self) -> None:
        """Double `width`: merge slots 2i and 2i + 1 into slot i."""
        self.width *= 2
        self.calls.widen()
        self.pairs.widen()
        self.blame.widen()
        for groups in (self._bios, self._requests):
            found, groups.by_code = groups.by_code, {}
            for code, group in found.items():
                slot, place = code >> _WIDTH, code & ((1 << _WIDTH) - 1)
                groups.merge((slot >> 1) << _WIDTH | place, group)
        for device in self.depths.values():
            for depth in (device.queue, device.issued):
                depth.widen()


def _of(groups: Groups, place: int) -> dict[int, Group]:
    mask = (1 << _WIDTH) - 1
    return {code >> _WIDTH: g for code, g in groups.by_code.items() if code & mask == place}


@dataclass
class Recording:
    """One recording that was read to its end: its trace, and its figures by slot."""

    trace: Trace
    slots: Slots

    @property
    def begin_ns(self) -> int:
        """ns when recording began; as `extent`."""
        return extent(self.trace)[0]

    @property
    def end_ns(self) -> int:
        """ns when recording ended; as `extent`."""
        return extent(self.trace)[1]

    @property
    def span_ns(self) -> int:
        """Length of the recorded time, ns."""
        return self.end_ns - self.begin_ns

    @property
    def hosts(self) -> list[str]:
        """Name of the recording host, as the one item of a list."""
        return [self.trace.context.host]

    @property
    def kernels(self) -> list[str]:
        """Kernel release of the recording host, as the one item of a list; "" if not in the log."""
        return [str(self.trace.context.header.get("kernel", {}).get("release", ""))]

    @property
    def log_id(self) -> str:
        """Id of the log, 32 hex digits."""
        return self.trace.context.log_id

    @property
    def begin(self) -> str | None:
        """Wall-clock time of the first event, ISO 8601 in UTC; None as for `begin_text`."""
        return begin_text(self.trace)

    @property
    def lost_records(self) -> int:
        """Number of records that were counted as lost, without unknown numbers."""
        return sum(max(int(w.get("count", 0)), 0) for w in self.trace.losses)

    def device_name(self, dev: int) -> str:
        """Return the name of a device of `slots`."""
        return self.trace.context.device_name(dev)

    def operation_name(self, place: int) -> str:
        """Return the name of the operation of a place of `slots`."""
        return operation(self.trace.context, place)

    def slot_times(self) -> I64:
        """Return the length of each slot, ns."""
        return self.slots.times(self.end_ns)

    def device_times(self, dev: int) -> I64:
        """Return the length of each slot in which the device can have had I/O, ns; else 0.

        The device's rates are per the sum of these lengths.
        """
        return self.slot_times()

    def call_times(self) -> I64:
        """Return the length of each slot as far as calls were timed, ns; rates of calls are per it.

        All 0 if the log does not say how long calls took; 0 from when on the recorder ceased to
        time them (`--call-budget`).
        """
        times = self.slot_times()
        context = self.trace.context
        if "time" not in context.path_parts:
            return np.zeros_like(times)
        if context.calls_timed_until is None:
            return times
        begin = self.slots.origin + np.arange(len(times)) * self.slots.width
        return np.clip(context.calls_timed_until - begin, 0, times)

    def whole(self, place: int) -> tuple[Group, Group]:
        """Return (bios, requests) of a device and operation, all slots added up in new groups."""
        slots = self.slots
        return merged(slots.bios(place).values()), merged(slots.requests(place).values())


def read_slots(trace: Trace, windows: Iterable[Lifecycles] | None = None) -> Recording:
    """Read a trace to its end and return its figures by slot.

    windows: of the trace, of which I/Os may have been left out; None: all.
    """
    slots = Slots()
    read: Iterable[Lifecycles] | Iterator[Lifecycles] = (
        trace.lifecycles() if windows is None else windows
    )
    for window in read:
        slots.add(window, trace.context)
    names = PairNames(trace.context)
    names.finish(trace.reader.end)
    slots.pairs.name(names)
    return Recording(trace, slots)
