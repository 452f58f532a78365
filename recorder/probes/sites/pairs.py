# SPDX-License-Identifier: Apache-2.0
"""Records pairs of events: loads a program for each event, and reads what they count."""

import ctypes
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from ctypes import c_uint32
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes.backend import ProgramInfo
from biotrail.recorder.probes.kernel import tracefs
from biotrail.recorder.probes.kernel.bpf_calls import attach_tracepoint, program_info
from biotrail.recorder.probes.kernel.libbpf import BpfObject
from biotrail.recorder.probes.sites import attaching
from biotrail.recorder.probes.sites.attaching import (
    AttachType,
    Descriptors,
    Place,
    ProgramType,
    Template,
)
from biotrail.recorder.probes.sites.base import SMALLEST_RING_BYTES, SiteProbes, fill_value, per_cpu
from biotrail.recorder.schema import site_structs
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.errors import ProbeError, SiteError
from biotrail.recorder.schema.formats import Format
from biotrail.recorder.schema.limits import (
    HIST_SLOTS,
    MAX_BEGINS,
    MAX_CONDITIONS,
    MAX_PAIRS,
)
from biotrail.recorder.schema.payloads import BackendFacts, End, PairCounts, PairFacts
from biotrail.recorder.schema.records import BY_KIND, Kind
from biotrail.recorder.schema.site_values import value_text
from biotrail.recorder.sites.declarations import (
    FORMAT,
    TYPED,
    Pair,
    ResolvedPair,
    ResolvedSide,
    resolve,
)
from biotrail.recorder.sites.expressions import FormatScope, Scope, TypedScope, Value
from biotrail.recorder.sites.types import Prototype, TypeTable
from biotrail.recorder.symbols.kallsyms import KernelSymbols

_NEAR = 5
MAX_OPEN = 65_536
"""Default number of begins that may wait for their end at once."""
BY_VALUES = 64
"""Values of --by with a histogram of their own; those of others are together in one."""
_SYMBOL = "symbol"
"""Format of a value that is the address of a kernel function."""
_DEVICES = Path("/sys/dev/block")
_BEGUN, _BY_HISTS, _HISTS = "bt_begun", "bt_pair_by_hists", "bt_pair_hists"
_COUNTS = tuple(m.name for m in site_structs.PAIR_COUNTS.members if m.name != "pad")
_Hist = site_structs.PAIR_HIST.ctype
_LETTER = BY_KIND[Kind.PAIR].letter
_BEGIN_SHIFT = 8
"""Place of the begin's index in a program's cookie; below it that of the pair (bpf/pairs.h)."""

# Histograms of latencies as the programs count them (bpf/pairs.h): 16 slots to an octave.

_EXACT = 32
"""Latencies below this many ns have a slot of their own each."""
_PER_OCTAVE = 16
OCTAVES = (HIST_SLOTS - _EXACT) // _PER_OCTAVE + 5
"""Number of octaves: the last slots are those of [2^(OCTAVES-1), 2^OCTAVES) ns and more."""


BOUNDS: NDArray[np.int64] = np.concatenate(
    [
        np.arange(_EXACT),
        (_PER_OCTAVE + np.arange(_PER_OCTAVE) << np.arange(1, OCTAVES - 4)[:, None]).ravel(),
        [1 << OCTAVES],
    ]
)
"""The least latency (ns) of each slot, then the end of the last, (HIST_SLOTS + 1,)."""


@dataclass(frozen=True)
class Latencies:
    """Latencies in ns. slots: counts by slot, (HIST_SLOTS,). max: of all since the beginning."""

    count: int = 0
    sum: int = 0
    max: int = 0
    slots: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(HIST_SLOTS, np.uint64))

    @staticmethod
    def of(hists: Iterable[Any]) -> "Latencies":
        """Return the sum of all CPUs' histograms, each a struct bt_pair_hist."""
        total = Latencies()
        for one in hists:
            if one.count:
                slots = np.frombuffer(bytes(one.slots), np.uint64)
                # From the slots: another program may count while this is read.
                total += Latencies(int(slots.sum()), int(one.sum), max(one.max), slots)
        return total

    def __add__(self, other: "Latencies") -> "Latencies":
        return Latencies(
            self.count + other.count,
            self.sum + other.sum,
            max(self.max, other.max),
            self.slots + other.slots,
        )

    def since(self, before: "Latencies") -> "Latencies":
        """Return those that came after `before`, an earlier reading.

        The programs keep one maximum: unless it has grown since, that of the new ones is the end of
        the highest slot that they are in.
        """
        slots = self.slots - before.slots
        used = np.flatnonzero(slots)
        top = int(BOUNDS[used[-1] + 1]) - 1 if len(used) else 0
        most = self.max if self.max > before.max else min(top, self.max)
        return Latencies(self.count - before.count, self.sum - before.sum, most, slots)

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def percentiles(self, shares: Sequence[float]) -> list[float]:
        """Return latencies in ns below which these shares (0 to 1) are; zeros of none."""
        # Within a slot (1/16 of an octave at most) latencies are taken to be spread evenly.
        total = np.cumsum(self.slots.astype(np.int64))
        if not total[-1]:
            return [0.0] * len(shares)
        ranks = np.asarray(shares) * float(total[-1])
        at = np.searchsorted(total, np.maximum(ranks, 1e-9))
        inside = (ranks - (total[at] - self.slots[at])) / self.slots[at]
        # A slot of one ns holds that latency alone.
        width = np.diff(BOUNDS)[at] - 1
        found: list[float] = np.minimum(BOUNDS[at] + inside * width, self.max).tolist()
        return found

    def octaves(self) -> NDArray[np.int64]:
        """Return counts by powers of two, (OCTAVES,): 0 to 1 ns, 2 to 3, 4 to 7 and so on."""
        starts = np.concatenate([[0], 1 << np.arange(1, OCTAVES)])
        first = np.searchsorted(BOUNDS, starts)
        counts: NDArray[np.int64] = np.add.reduceat(self.slots.astype(np.int64), first)
        return counts


# Tracepoints by name: by their types (BTF), and by their formats (tracefs)


@dataclass(frozen=True)
class Tracepoint:
    """A tracepoint of this kernel. name: with its system; prototype: None: it has no types here."""

    name: str
    prototype: Prototype | None
    format: Format


class Tracepoints:
    def __init__(self, types: TypeTable, place: Path | None = None) -> None:
        """place: tracefs's directory; None: found, or mounted. Raises ProbeError."""
        self.types = types
        self._place = place or tracefs.find()
        self._found: dict[str, Tracepoint] = {}

    @cached_property
    def systems(self) -> dict[str, list[str]]:
        events = self._place / "events"
        try:
            return {
                entry.name: [one.name for one in os.scandir(entry) if one.is_dir()]
                for entry in os.scandir(events)
                if entry.is_dir()
            }
        except OSError as error:
            raise ProbeError(
                f"the tracepoints below {events} cannot be listed: {error.strerror}; run as root"
            ) from error

    def find(self, text: str) -> Tracepoint:
        """Return the tracepoint named as system:name, or by its name alone. Raises SiteError."""
        if text in self._found:
            return self._found[text]
        system, colon, name = text.strip().rpartition(":")
        holders = [one for one, names in self.systems.items() if name in names]
        if not colon and len(holders) > 1:
            raise SiteError(
                f"several systems have a tracepoint {name}: write one of "
                + ", ".join(f"{one}:{name}" for one in sorted(holders))
            )
        if (colon and system not in holders) or not holders:
            known = [f"{one}:{name}" for one, names in self.systems.items() for name in names]
            by_name = {one if colon else one.partition(":")[2]: one for one in known}
            near = [by_name[one] for one in get_close_matches(text, by_name, _NEAR)]
            hint = f"; near: {', '.join(near)}" if near else ""
            raise SiteError(
                f"this kernel has no tracepoint {text}{hint}; a module's are there once it is "
                "loaded (modprobe)"
            )
        system = system or holders[0]
        formats = tracefs.read(self._place, system, [name])
        found = Tracepoint(f"{system}:{name}", self.types.prototype(name), formats[name])
        self._found[text] = found
        return found

    def scopes(self, text: str) -> Mapping[str, Scope]:
        """Return what names mean at a tracepoint, by way. Raises as `find`."""
        found = self.find(text)
        scopes: dict[str, Scope] = {}
        if found.prototype is not None:
            scopes[TYPED] = TypedScope(found.prototype, found.name)
        scopes[FORMAT] = FormatScope(found.format, found.name, self.types)
        return scopes


@dataclass(frozen=True)
class PairReading:
    """A pair's totals since open. by: latencies by value of --by; rest: of all other values.

    counts: events that are in no histogram, by the names of struct bt_pair_counts, and "open":
    begins that wait for their end now.
    """

    counts: dict[str, int]
    rest: Latencies
    by: dict[int, Latencies]

    @property
    def total(self) -> Latencies:
        return sum(self.by.values(), self.rest)


@dataclass(frozen=True)
class _Event:
    """An event of a pair and its program. template: its name. descriptor: -1: not loaded yet."""

    typed: bool
    tracepoint: Tracepoint
    template: str
    cookie: int
    descriptor: int = -1


class PairProbes(SiteProbes):
    """Programs of pairs: open(), attach(), readings() or drain() repeatedly, detach(), close()."""

    def __init__(
        self,
        wanted: Sequence[Pair],
        filters: Filters = Filters(),  # noqa: B008 - frozen
        devices: Sequence[tuple[int, int]] = (),
        *,
        record: bool = False,
        ring: int | None = None,
        max_open: int = MAX_OPEN,
        by_values: int = BY_VALUES,
    ) -> None:
        """by_values: values of --by with a histogram of their own, for each pair."""
        ring = ring if record else SMALLEST_RING_BYTES
        super().__init__(filters, devices, ring, record=record, count=True)
        self._wanted, self._max_open, self._by_values = wanted, max_open, by_values
        self.pairs: list[ResolvedPair] = []
        """The pairs as this kernel has them; set by open()."""
        self.final: list[PairReading] = []
        """The totals after detach(), also once closed."""
        self._symbols: KernelSymbols | None = None
        """Functions of the kernel if values are their addresses; set by open()."""
        self._events: list[_Event] = []
        self._attached = False

    def _look_up(self) -> None:
        self._known = Tracepoints(TypeTable.kernel())
        self.pairs = resolve_all(self._wanted, self._known, needs_device=bool(self.devices))
        # Now, as the right to see addresses is given up later.
        if any(pair.by and pair.by_value.format == _SYMBOL for pair in self.pairs):
            self._symbols = KernelSymbols()

    def _fill(self, bpf: BpfObject, suffix: str) -> Collection[str]:
        bpf.set_initial_value(".rodata.pairs", section(self.pairs))
        by_values = self._by_values * sum(bool(pair.by) for pair in self.pairs)
        begun_size = ctypes.sizeof(site_structs.PAIR_BEGUN.ctype)
        bpf.set_map_size(_BEGUN, begun_size, self._max_open)
        bpf.set_map_size(_BY_HISTS, ctypes.sizeof(_Hist), max(1, by_values))
        for index, pair in enumerate(self.pairs):
            typed = pair.way == TYPED
            begin, end = (f"bt_pair_{half}{suffix if typed else '_f'}" for half in ("begin", "end"))
            events = []
            for at, side in enumerate(pair.begins):
                point = self._known.find(side.event)
                events.append(_Event(typed, point, begin, index | at << _BEGIN_SHIFT))
            point = self._known.find(pair.end.event)
            # In the order of attaching, the end last. But of an event that is both, its program
            # comes first: it looks for the begin before this one.
            both = any(event.tracepoint == point for event in events)
            events.insert(0 if both else len(events), _Event(typed, point, end, index))
            self._events += events
        return {event.template for event in self._events}

    def _loaded(self, bpf: BpfObject) -> None:
        with Descriptors() as modules:
            for at, event in enumerate(self._events):
                place, prototype = Place(ProgramType.TRACEPOINT), event.tracepoint.prototype
                if event.typed and prototype is not None:
                    try:
                        btf = modules.module_btf(prototype.module)
                    except OSError as error:
                        raise ProbeError(
                            f"the types of module {prototype.module} cannot be reached: "
                            f"{os.strerror(error.errno or 0)}; is it still loaded?"
                        ) from error
                    kind = AttachType.RAW_TP
                    place = Place(ProgramType.TRACING, kind, prototype.btf_id, btf)
                descriptor = Template.of(bpf, event.template).load(place, event.cookie)
                self._programs.add(descriptor)
                self._events[at] = replace(event, descriptor=descriptor)

    def attach(self) -> None:
        """Attach the programs, of each pair the begins first.

        So no end is recorded without its begin, but of those that began before. Raises ProbeError:
        the kernel refuses; detach() or close() detaches those before it.
        """
        self._opened()
        if self._cgroups is not None:
            self._cgroups.attach()
        for event in self._events:
            point = event.tracepoint
            try:
                if event.typed:
                    link = attaching.typed(event.descriptor)
                else:
                    link = attach_tracepoint(event.descriptor, point.format.number)
            except OSError as error:
                raise ProbeError(
                    f"tracepoint {point.name} cannot be attached to: "
                    f"{os.strerror(error.errno or 0)}; `biotrail doctor` says what is missing"
                ) from error
            self._links.add(link)
        self._attached = True

    def detach(self) -> None:
        """Detach the programs, of each pair the end first, and keep the totals in `final`."""
        super().detach()
        if self._object is not None:
            self.final = self.readings()

    def readings(self) -> list[PairReading]:
        bpf = self._opened()
        waiting = Counter(key.pair for key in bpf.keys(_BEGUN, site_structs.PAIR_KEY.ctype))
        return [
            replace(one, counts={"open": waiting[index], **one.counts})
            for index, one in enumerate(self._totals(bpf))
        ]

    def runs(self) -> int | None:
        """Return how often the programs ran since open, about, by what they counted."""
        total = 0
        for one in self._totals(self._opened()):
            # Each pair, and each end that a condition left out, has had its begin, too.
            total += 2 * one.total.count + one.counts["left_end"] + sum(one.counts.values())
        return total

    def _totals(self, bpf: BpfObject) -> list[PairReading]:
        """As readings(), without begins that wait."""
        keys = {
            (int(key.pair), int(key.by)): key
            for key in bpf.keys(_BY_HISTS, site_structs.PAIR_BY.ctype)
        }
        by: list[dict[int, Latencies]] = [{} for _ in self.pairs]
        for (pair, value), key in keys.items():
            by[pair][value] = Latencies.of(per_cpu(bpf, _BY_HISTS, key, _Hist))
        found = []
        for index, values in enumerate(by):
            key = c_uint32(index)
            rows = per_cpu(bpf, "bt_pair_counts", key, site_structs.PAIR_COUNTS.ctype)
            counts = {name: sum(getattr(row, name) for row in rows) for name in _COUNTS}
            rest = Latencies.of(per_cpu(bpf, _HISTS, key, _Hist))
            found.append(PairReading(counts, rest, values))
        return found

    def names(self, pair: ResolvedPair, values: Iterable[int]) -> dict[int, str]:
        """Return names of values of --by that are addresses of functions, of those known."""
        if self._symbols is None or not pair.by or pair.by_value.format != _SYMBOL:
            return {}
        found = {value: self._symbols.find(value) for value in values}
        return {value: symbol.name for value, symbol in found.items() if symbol is not None}

    def backend_facts(self) -> BackendFacts:
        return {
            **super().backend_facts(),
            "sites": {"pairs": [pair_facts(pair) for pair in self.pairs]},
        }

    def end_facts(self) -> End:
        found: list[PairCounts] = []
        for pair, reading in zip(self.pairs, self.final or self.readings(), strict=True):
            counts, names = reading.counts, self.names(pair, reading.by)
            found.append(
                {
                    "name": pair.pair.name,
                    "pairs": reading.total.count,
                    "begins_open": counts["open"],
                    "ends_alone": counts["no_begin"],
                    "overwritten": counts["overwritten"],
                    "full": counts["full"],
                    "bad_reads": counts["bad_begin"] + counts["bad_end"],
                    "others": counts["left_begin"] + counts["left_end"],
                    "names": {str(value): name for value, name in names.items()},
                }
            )
        return {"sites": {"pairs": found}}

    def programs(self) -> list[ProgramInfo]:
        found = []
        for event in self._events:
            try:
                info = program_info(event.descriptor)
            except PermissionError:
                raise
            except OSError as error:
                raise ProbeError(f"counters of {event.template} cannot be read: {error}") from error
            name = event.tracepoint.name
            program = ProgramInfo(event.template, _LETTER, name, self._attached)
            found.append(program.counted(info))
        return found

    def close(self) -> None:
        super().close()
        self._events = []


def resolve_all(
    pairs: Sequence[Pair], known: Tracepoints, *, needs_device: bool
) -> list[ResolvedPair]:
    """Return the pairs as this kernel has them. Raises SiteError, ProbeError."""
    if len(pairs) > MAX_PAIRS:
        raise SiteError(f"{len(pairs)} pairs were named, at most {MAX_PAIRS} can be: name fewer")
    found = [resolve(pair, known.scopes) for pair in pairs]
    for pair in found:
        name = pair.pair.name
        if len(pair.begins) > MAX_BEGINS:
            raise SiteError(f"pair {name}: {len(pair.begins)} begins, at most {MAX_BEGINS} can be")
        for side in (*pair.begins, pair.end):
            if len(side.conditions) > MAX_CONDITIONS:
                raise SiteError(
                    f"pair {name}: {len(side.conditions)} conditions on {side.event}, at most "
                    f"{MAX_CONDITIONS} can be"
                )
        if needs_device and not pair.device:
            raise SiteError(
                f"pair {name} does not say which field is the device, so -d cannot be used: name "
                "the field with --device-field, or leave events out with --where"
            )
    return found


def section(pairs: Sequence[ResolvedPair]) -> Any:
    """Return .rodata.pairs, `struct bt_pair_sites pairs[]`, for at most MAX_PAIRS pairs."""
    made = (site_structs.PAIR_SITES.ctype * MAX_PAIRS)()
    for place, pair in zip(made, pairs, strict=False):
        for begin, side in zip(place.begins, pair.begins, strict=False):
            _fill_side(begin, side)
        _fill_side(place.end, pair.end)
    return made


def _fill_side(to: Any, side: ResolvedSide) -> None:
    for place, value in zip(to.key, side.keys, strict=False):
        fill_value(place, value)
    fill_value(to.by, side.by)
    fill_value(to.dev, side.device)
    fill_value(to.process, side.process)
    to.nr_conditions, to.choosing = len(side.conditions), side.choosing
    for place, condition in zip(to.conditions, side.conditions, strict=False):
        fill_value(place.value, condition.value)
        place.operand, place.operator = condition.operand, condition.operator


def pair_facts(pair: ResolvedPair) -> PairFacts:
    values = dict(zip(("key0", "key1"), pair.begins[0].keys, strict=False))
    if pair.by:
        values["by"] = pair.by_value
    names = {
        name: {str(number): text for number, text in value.names.items()}
        for name, value in values.items()
        if value.names
    }
    own = [
        f"{side.event}: {condition.text}"
        for side in (*pair.begins, pair.end)
        for condition in side.conditions
        if condition.text not in pair.variant.where
    ]
    return {
        "name": pair.pair.name,
        "begin": " or ".join(dict.fromkeys(side.event for side in pair.begins)),
        "end": pair.end.event,
        "keys": [
            begin.text if begin.text == end.text else f"{begin.text}|{end.text}"
            for begin, end in zip(pair.begins[0].keys, pair.end.keys, strict=True)
        ],
        "by": pair.by,
        "where": [*pair.variant.where, *own],
        "way": pair.way,
        "formats": {name: value.format for name, value in values.items()},
        "names": names,
    }


def shown(value: Value, number: int, symbols: dict[int, str]) -> str:
    """symbols: names of functions by address, for values of the format "symbol"."""

    def device(dev: int) -> str:
        numbers = dev_text(dev)
        try:
            return f"{os.path.basename(os.readlink(_DEVICES / numbers))} ({numbers})"
        except OSError:
            return numbers

    if number in value.names:
        return f"{value.names[number]} ({number})"
    return value_text(number, value.format, device, symbols.get)
