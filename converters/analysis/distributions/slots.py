# SPDX-License-Identifier: Apache-2.0
"""The figures of a recording in slots of time, for the block bootstrap of `diff`.

The width of a slot doubles as the recording goes on: there are never more than MOST_SLOTS slots,
and a recording of at least LEAST_SLOTS * LEAST_SLOT_NS ends with at least LEAST_SLOTS.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from biotrail.converters.analysis.distributions.call_figures import (
    CallFigures,
    by_pair,
    coded,
    named,
)
from biotrail.converters.analysis.distributions.depth import Depth, Flow, follow
from biotrail.converters.analysis.distributions.groups import Group, gather
from biotrail.converters.analysis.distributions.keys import OP_BITS
from biotrail.converters.analysis.distributions.samples import Samples, samples_of
from biotrail.converters.analysis.distributions.sketch import BySlot, Distribution, add_grouped
from biotrail.converters.analysis.figures import begin_text, extent
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct
from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.events.tables import I64, Lifecycles
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.pair_names import PairNames

WHOLE = "Q2C"


@dataclass
class BlameSlots:
    by: str = ""
    """What victims and culprits are; empty: nobody was blamed."""
    ios: BySlot[str, int] = field(default_factory=BySlot)
    """Victim → slot → I/Os that ended in it."""
    waits: BySlot[tuple[str, str], int] = field(default_factory=BySlot)
    """(victim, part) → slot → ns of these I/Os, which may be < 0; a part is a kind, or `behind` and
    a culprit's name."""

    def parts(self, victim: str) -> dict[str, int]:
        return {part: sum(of.values()) for (name, part), of in self.waits.items() if name == victim}


LEAST_SLOT_NS = 10_000_000
MOST_SLOTS = 128
LEAST_SLOTS = MOST_SLOTS // 2
MOST_PLACES = 64
"""Pairs of device and operation that are kept; I/O of later pairs is counted in `left_out`."""
MOST_CALL_NAMES = 64
"""Names of calls, with and without I/O, that are kept; calls of later ones are `calls_left_out`."""
MOST_PAIR_NAMES = 64
"""Values of --by, of all pairs together, that are kept; those of later ones are among all pairs of
their name, and in `pairs_left_out`."""

CallName = tuple[str, bool]
PairName = tuple[str, str]
"""(name of the declared pair, value of --by as text; "": all pairs of that name)"""


@dataclass
class Slots:
    width: int = LEAST_SLOT_NS
    origin: int = -1
    """ns where the first slot begins; -1 before the first window."""
    bios: BySlot[int, Group] = field(default_factory=BySlot)
    """Device and operation, as in Samples.place → slot → bios that ended in it."""
    requests: BySlot[int, Group] = field(default_factory=BySlot)
    depths: dict[int, tuple[Depth, Depth]] = field(default_factory=dict)
    """dev_t → in flight, of the first MOST_PLACES devices: bios from Q to C, requests from D to C.
    """
    left_out: int = 0
    calls: BySlot[CallName, CallFigures] = field(default_factory=BySlot)
    calls_left_out: int = 0
    pairs: BySlot[PairName, Distribution] = field(default_factory=BySlot)
    """Latencies (ns) of pairs by the slot in which they ended; empty until `name_pairs`."""
    pairs_left_out: int = 0
    blame: BlameSlots = field(default_factory=BlameSlots)
    _pairs: BySlot[tuple[int, int | None], Distribution] = field(default_factory=BySlot)
    """(index of the declared pair, value of --by; None: all) → slot → latencies."""
    _flows: tuple[Flow, Flow] = field(default_factory=lambda: (Flow(), Flow()))

    def add(self, window: Lifecycles, context: Context) -> None:
        """An I/O without a recorded completion is in the slot in which it began."""
        if window.begin < 0 or window.end <= 0:  # the log has no events
            return
        if self.origin < 0:
            self.origin = window.begin
        bios = samples_of(window.bios, window.bio_stages, context)
        requests = samples_of(window.requests, window.request_stages, context)
        last = max([window.end, *(int(s.end.max()) for s in (bios, requests) if len(s))])
        while (last - self.origin) // self.width >= MOST_SLOTS:
            self.widen()
        self._add_samples(bios, self.bios)
        self._add_samples(requests, self.requests)
        steps = (
            self._flows[0].steps(window, window.bios, window.open_bios),
            self._flows[1].steps(window, window.requests, window.open_requests),
        )
        follow(self.depths, steps, self.origin, self.width, MOST_PLACES)
        if window.path is not None:
            calls = window.path.calls.take(window.path.calls.timed)
            for code, slot, rows in by_pair(coded(calls), self._slot(calls.exit)):
                name = named(code, context)
                if name not in self.calls and len(self.calls) >= MOST_CALL_NAMES:
                    self.calls_left_out += len(rows)
                    continue
                slots = self.calls.setdefault(name, {})
                slots.setdefault(slot, CallFigures()).add(calls.take(rows), name[0])
        if window.sites is not None:
            self._add_pairs(window.sites.pairs, PairNames(context))

    def places(self) -> list[int]:
        return sorted({*self.bios, *self.requests})

    def times(self, end: int) -> I64:
        """Return the length of each slot until `end` (ns); the last one can be 0."""
        span = max(end - self.origin, 0) if self.origin >= 0 else 0
        whole, rest = divmod(span, self.width)
        return np.array([self.width] * whole + [rest], dtype=np.int64)

    def _slot(self, times: I64) -> I64:
        return np.maximum(times - self.origin, 0) // self.width

    def _add_samples(self, samples: Samples, into: BySlot[int, Group]) -> None:
        places = set(self.places())
        for place in np.unique(samples.place).tolist():
            if len(places) < MOST_PLACES:
                places.add(place)
        known = np.isin(samples.place, list(places))
        if not known.all():
            self.left_out += int((~known).sum())
            samples = samples.take(known)
        if not len(samples):
            return
        cells, of = distinct(samples.place, self._slot(samples.end))
        for (place, slot), group in zip(cells, gather(of, samples, len(cells)), strict=True):
            into.add(place, slot, group)

    def _add_pairs(self, pairs: Pairs, names: PairNames) -> None:
        if not len(pairs):
            return
        slot = self._slot(pairs.ended)
        cells, of = distinct(pairs.pair, slot)
        into = [
            self._pairs.setdefault((p, None), {}).setdefault(s, Distribution()) for p, s in cells
        ]
        add_grouped(of, pairs.latency, into)
        numbers = np.unique(pairs.pair)
        with_by = numbers[[names.has_by(number) for number in numbers.tolist()]]
        chosen = np.isin(pairs.pair, with_by)
        pairs, slot = pairs.take(chosen), slot[chosen]
        rows, of = distinct(pairs.pair, pairs.by)
        many = sum(by is not None for _, by in self._pairs)
        for row in rows:
            if row not in self._pairs and many < MOST_PAIR_NAMES:
                self._pairs[row[0], row[1]] = {}
                many += 1
        known = np.array([row in self._pairs for row in rows], dtype=np.bool_)[of]
        self.pairs_left_out += int((~known).sum())
        pairs, slot = pairs.take(known), slot[known]
        cells, of = distinct(pairs.pair, pairs.by, slot)
        into = [self._pairs[p, by].setdefault(s, Distribution()) for p, by, s in cells]
        add_grouped(of, pairs.latency, into)

    def name_pairs(self, names: PairNames) -> None:
        """Fill `pairs`, once, after the last window: functions' names are known only then."""
        for (number, value), slots in self._pairs.items():
            by = "" if value is None else names.by(number, value)
            for slot, times in slots.items():
                self.pairs.add((names.name(number), by), slot, times)
        self._pairs.clear()

    def add_all(self, other: "Slots", offset: int, places: Mapping[int, int]) -> None:
        """Add slots of the same `width` behind the first `offset`; of depths `spans`, shared.

        places: place in `other` → place in these slots.
        """
        for into, more in ((self.bios, other.bios), (self.requests, other.requests)):
            for place, slots in more.items():
                into.add_all(BySlot({places[place]: slots}), offset=offset)
        self.left_out += other.left_out
        self.calls.add_all(other.calls, offset=offset)
        self.calls_left_out += other.calls_left_out
        self.pairs.add_all(other.pairs, offset=offset)
        self.pairs_left_out += other.pairs_left_out
        self.blame.by = self.blame.by or other.blame.by
        self.blame.ios.add_all(other.blame.ios, offset=offset)
        self.blame.waits.add_all(other.blame.waits, offset=offset)
        devices = {old >> OP_BITS: new >> OP_BITS for old, new in places.items()}
        for dev, theirs in other.depths.items():
            if dev in devices:
                none = Depth(0, self.width), Depth(0, self.width)
                ours = self.depths.setdefault(devices[dev], none)
                for depth, more_depth in zip(ours, theirs, strict=True):
                    depth.spans.update({s + offset: span for s, span in more_depth.spans.items()})

    def widen(self) -> None:
        self.width *= 2
        of: BySlot[Any, Any]
        for of in (
            *(self.bios, self.requests, self.calls, self.pairs, self._pairs),
            *(self.blame.ios, self.blame.waits),
        ):
            of.widen()
        for depth in chain.from_iterable(self.depths.values()):
            depth.widen()


@dataclass
class Recording:
    """A recording that was read to its end, or several that are compared together."""

    slots: Slots
    times: I64
    """(slots,): length of each slot, ns."""
    call_times: I64
    """(slots,): that as far as calls were timed; 0 if the log does not say how long calls took."""
    span_ns: int
    begin: str | None
    log_id: str
    hosts: list[str]
    kernels: list[str]
    lost_records: int
    """Records that were counted as lost, without unknown numbers."""
    header: Mapping[str, Any]
    end: Mapping[str, Any] | None
    """The log's header and END; of several recordings see `parts`."""
    device_name: Callable[[int], str]
    operation_name: Callable[[int], str]
    parts: list["Recording"] = field(default_factory=list)
    device_times: dict[int, I64] = field(default_factory=dict)
    """Device that cannot have had I/O in all slots → `times`, 0 for slots of other hosts."""

    @property
    def runs(self) -> list["Recording"]:
        return self.parts or [self]

    def widen(self, width: int) -> None:
        """Double the slots' width until it is this one."""
        while self.slots.width < width:
            self.slots.widen()
            pairs = np.arange(0, len(self.times), 2)
            self.times = np.add.reduceat(self.times, pairs)
            self.call_times = np.add.reduceat(self.call_times, pairs)


def read_slots(trace: Trace, windows: Iterable[Lifecycles] | None = None) -> Recording:
    """windows: of the trace, of which I/Os may have been left out; None: all."""
    slots, context = Slots(), trace.context
    for window in trace.lifecycles() if windows is None else windows:
        slots.add(window, context)
    names = PairNames(context)
    names.finish(trace.reader.end)
    slots.name_pairs(names)
    begin, end = extent(trace)
    times = slots.times(end)
    until = end if context.calls_timed_until is None else context.calls_timed_until
    if "time" not in context.path_parts:
        until = slots.origin
    begins = slots.origin + np.arange(len(times)) * slots.width
    return Recording(
        slots=slots,
        times=times,
        call_times=np.clip(until - begins, 0, times),
        span_ns=end - begin,
        begin=begin_text(trace),
        log_id=context.log_id,
        hosts=[context.host],
        kernels=[str(context.header.get("kernel", {}).get("release", ""))],
        lost_records=sum(max(int(w.get("count", 0)), 0) for w in trace.losses),
        header=context.header,
        end=trace.reader.end,
        device_name=context.device_name,
        operation_name=context.op_name,
    )
