# SPDX-License-Identifier: Apache-2.0
"""Records pairs of events: loads a program for each event, and reads what they count."""

import ctypes
import os
from collections.abc import Iterable, Iterator, Sequence
from ctypes import byref, c_uint32
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes.backend import ProgramInfo
from biotrail.recorder.probes.kernel.bpf_calls import attach_tracepoint, program_info
from biotrail.recorder.probes.kernel.libbpf import BpfObject, load_library
from biotrail.recorder.probes.sites import attaching
from biotrail.recorder.probes.sites.attaching import (
    AttachType,
    Descriptors,
    Place,
    ProgramType,
    Template,
)
from biotrail.recorder.probes.sites.base import (
    SiteProbes,
    fill_value,
    per_cpu,
)
from biotrail.recorder.probes.sites.latencies import Latencies
from biotrail.recorder.probes.sites.pair_facts import function_names, needs_symbols, pair_facts
from biotrail.recorder.probes.sites.ring import SMALLEST_RING_BYTES, ring_bytes
from biotrail.recorder.probes.sites.tracepoints import TYPED, Tracepoint, Tracepoints
from biotrail.recorder.schema import site_structs
from biotrail.recorder.schema.errors import ProbeError, SiteError
from biotrail.recorder.schema.limits import (
    HIST_SLOTS,
    MAX_BEGINS,
    MAX_CONDITIONS,
    MAX_PAIRS,
    VALUE_STEPS,
)
from biotrail.recorder.schema.payloads import BackendFacts, End
from biotrail.recorder.schema.payloads import PairCounts as EndCounts
from biotrail.recorder.schema.records import BY_KIND, Kind
from biotrail.recorder.sites.declarations import Pair
from biotrail.recorder.sites.resolving import ResolvedPair, ResolvedSide, resolve
from biotrail.recorder.sites.types import TypeTable
from biotrail.recorder.symbols.kallsyms import LiveKernelSymbols

BEGUN, BY_HISTS, HISTS, COUNTS = (
    *("bt_begun", "bt_pair_by_hists", "bt_pair_hists", "bt_pair_counts"),
)
_Begun, Hist = site_structs.PAIR_BEGUN.ctype, site_structs.PAIR_HIST.ctype


@dataclass(frozen=True)
class PairCounts:
    """What became of a pair's events that are in no histogram; running totals, but for `open`."""

    open: int = 0
    """Begins that wait for their end now."""
    no_begin: int = 0
    """Ends without a begin."""
    overwritten: int = 0
    """Begins that another with the same key replaced."""
    full: int = 0
    """Begins for which there was no room."""
    bad_begin: int = 0
    """Begins with a field that could not be read."""
    bad_end: int = 0
    """Ends likewise."""
    left_begin: int = 0
    """Begins that conditions and filters left out."""
    left_end: int = 0
    """Pairs that conditions on the end left out."""

    def account(self) -> dict[str, int]:
        """Return the counts by name, as JSON."""
        return asdict(self)

    def without_left_out(self) -> "PairCounts":
        """Return the counts without what conditions left out, as where no user asked for any.

        A declared pair's own conditions choose among a tracepoint's events: that is no loss.
        """
        return replace(self, left_begin=0, left_end=0)


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


def _keys(bpf: BpfObject, name: str, kind: type[Any]) -> Iterator[Any]:
    """Yield copies of the keys of a hash map while programs change it; some may come twice."""
    step, fd = load_library().get("bpf_map_get_next_key"), bpf.map_fd(name)
    key, following = kind(), kind()
    last = None
    while step(fd, last, byref(following)) == 0:
        key = kind.from_buffer_copy(following)
        last = byref(key)
        yield kind.from_buffer_copy(following)


def open_begins(bpf: BpfObject) -> list[int]:
    """Return by pair how many begins wait for their end, (MAX_PAIRS,)."""
    found = [0] * MAX_PAIRS
    for key in _keys(bpf, BEGUN, site_structs.PAIR_KEY.ctype):
        found[key.pair] += 1
    return found


def _counts(bpf: BpfObject, pair: int) -> PairCounts:
    """Return a pair's counts, summed over CPUs; `open` is 0."""
    values = per_cpu(bpf, COUNTS, c_uint32(pair), site_structs.PAIR_COUNTS.ctype)
    names = [one.name for one in fields(PairCounts) if one.name != "open"]
    return PairCounts(**{name: sum(getattr(one, name) for one in values) for name in names})


def latencies(bpf: BpfObject, pair: int) -> Latencies:
    """Return a pair's latencies that belong to no value of --by."""
    return _summed(per_cpu(bpf, HISTS, c_uint32(pair), Hist))


def latencies_by(bpf: BpfObject) -> dict[tuple[int, int], Latencies]:
    """Return latencies by (pair, value of --by)."""
    keys = {
        (int(key.pair), int(key.by)): key
        for key in _keys(bpf, BY_HISTS, site_structs.PAIR_BY.ctype)
    }
    return {at: _summed(per_cpu(bpf, BY_HISTS, key, Hist)) for at, key in keys.items()}


def _summed(hists: Sequence[Any]) -> Latencies:
    total = Latencies()
    for one in hists:
        if one.count:
            slots = np.frombuffer(bytes(one.slots), np.uint64)
            # From the slots: another program may count while this is read.
            total += Latencies(int(slots.sum()), int(one.sum), max(one.max), slots)
    assert len(total.slots) == HIST_SLOTS
    return total


MAX_OPEN = 65_536
"""Default number of begins that may wait for their end at once."""
BY_VALUES = 64
"""Values of --by with a histogram of their own; those of others are together in one."""
_LETTER = BY_KIND[Kind.PAIR].letter
_TYPED_TEMPLATES = ("bt_pair_begin", "bt_pair_end")
_RECORD_TEMPLATES = ("bt_pair_begin_f", "bt_pair_end_f")
_BEGIN_SHIFT = 8
"""Place of the begin's index in a program's cookie; below it that of the pair (bpf/pairs.h)."""


@dataclass(frozen=True)
class PairConfig:
    """What to pair. devices: (dev_t of the disk, dev_t of the partition or 0); empty: all.

    record: write PAIR records into the ring, of ring_bytes (None: chosen). max_open: begins that
    may wait at once. by_values: values of --by with a histogram of their own, for each pair.
    """

    pairs: Sequence[Pair]
    filters: Filters = field(default_factory=Filters)
    devices: Sequence[tuple[int, int]] = ()
    record: bool = False
    ring_bytes: int | None = None
    max_open: int = MAX_OPEN
    by_values: int = BY_VALUES


@dataclass(frozen=True)
class PairReading:
    """A pair's totals since open. by: latencies by value of --by; rest: of all other values."""

    counts: PairCounts
    rest: Latencies
    by: dict[int, Latencies]

    @property
    def total(self) -> Latencies:
        """All latencies."""
        return sum(self.by.values(), self.rest)


@dataclass(frozen=True)
class _Event:
    """An event of a pair and its program. template: its name. descriptor: -1: not loaded yet."""

    side: ResolvedSide
    tracepoint: Tracepoint
    template: str
    cookie: int
    descriptor: int = -1


class PairProbes(SiteProbes):
    """Programs of pairs: open(), attach(), readings() or drain() repeatedly, detach(), close()."""

    def __init__(self, config: PairConfig) -> None:
        """Keep what to pair; nothing is loaded or looked up before open()."""
        super().__init__()
        self.config = config
        self.pairs: list[ResolvedPair] = []
        """The pairs as this kernel has them; set by open()."""
        self.final: list[PairReading] = []
        """The totals after detach(), also once closed."""
        self.symbols: LiveKernelSymbols | None = None
        """Functions of the kernel if values are their addresses; set by open()."""
        self._events: list[_Event] = []
        self._attached = False

    def open(self) -> None:
        """Resolve the pairs' names, and load a program for each event.

        Raises SiteError: a tracepoint or field does not exist, or cannot be a key. ProbeError: no
        rights, no BTF, no tracefs, or the kernel refuses the programs; nothing stays loaded then.
        """
        config = self.config
        self._check_start(config.filters)
        known = Tracepoints(TypeTable.kernel())
        self.pairs = resolve_all(config, known)
        # Now, as the right to see addresses is given up later.
        self.symbols = LiveKernelSymbols() if needs_symbols(self.pairs) else None

        def fill(bpf: BpfObject) -> None:
            bpf.set_initial_value(".rodata.pairs", section(self.pairs))
            by_values = config.by_values * sum(bool(pair.by) for pair in self.pairs)
            bpf.set_map_size(BEGUN, ctypes.sizeof(_Begun), config.max_open)
            bpf.set_map_size(BY_HISTS, ctypes.sizeof(Hist), max(1, by_values))

        try:
            preemptible = self._read_kernel()
            events = [
                event
                for index, pair in enumerate(self.pairs)
                for event in _events(pair, index, known, preemptible)
            ]
            bpf = self._load(
                {event.template for event in events},
                config.filters,
                config.devices,
                fill,
                ring_bytes(config.ring_bytes) if config.record else SMALLEST_RING_BYTES,
                record=config.record,
                count=True,
            )
            for event in events:
                with Descriptors() as modules:
                    place = _place(event, modules)
                    descriptor = Template.of(bpf, event.template).load(place, event.cookie)
                self._programs.add(descriptor)
                self._events.append(replace(event, descriptor=descriptor))
        except (OSError, ProbeError):
            self.close()
            raise

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
                if event.side.way == TYPED:
                    link = attaching.typed(event.descriptor)
                else:
                    link = attach_tracepoint(event.descriptor, point.format.number)
            except OSError as error:
                raise ProbeError(
                    f"tracepoint {point.full_name} cannot be attached to: "
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
        """Return each pair's totals since open, in the order of `pairs`. Raises ProbeError."""
        bpf = self._opened()
        waiting, by = open_begins(bpf), latencies_by(bpf)
        return [
            PairReading(
                replace(_counts(bpf, index), open=waiting[index]),
                latencies(bpf, index),
                {value: found for (pair, value), found in by.items() if pair == index},
            )
            for index in range(len(self.pairs))
        ]

    def runs(self) -> int | None:
        """Return how often the programs ran since open, about, by what they counted."""
        bpf, total = self._opened(), 0
        by = latencies_by(bpf)
        for index in range(len(self.pairs)):
            counts = _counts(bpf, index)
            pairs = latencies(bpf, index).count
            pairs += sum(one.count for (pair, _), one in by.items() if pair == index)
            total += 2 * (pairs + counts.left_end) + counts.no_begin + counts.overwritten
            total += counts.left_begin + counts.full + counts.bad_begin + counts.bad_end
        return total

    def names(self, pair: ResolvedPair, values: Iterable[int]) -> dict[int, str]:
        """Return names of values of --by that are addresses of functions."""
        return function_names(pair, values, self.symbols)

    def backend_facts(self) -> BackendFacts:
        """Return the log header's entries: the backend, and `sites` with the pairs."""
        return {
            "backend": self.capabilities.backend,
            "counts_skips": self.counts_skips,
            "sites": {"pairs": [pair_facts(pair) for pair in self.pairs]},
        }

    def end_facts(self) -> End:
        """Return the END frame's entry `sites`: what became of events that are in no record."""
        readings = self.final or self.readings()
        both = zip(self.pairs, readings, strict=True)
        return {"sites": {"pairs": [self._end_of(pair, reading) for pair, reading in both]}}

    def _end_of(self, pair: ResolvedPair, reading: PairReading) -> EndCounts:
        names, counts = self.names(pair, reading.by), reading.counts
        return {
            "name": pair.pair.name,
            "pairs": reading.total.count,
            "begins_open": counts.open,
            "ends_alone": counts.no_begin,
            "overwritten": counts.overwritten,
            "full": counts.full,
            "bad_reads": counts.bad_begin + counts.bad_end,
            "others": counts.left_begin + counts.left_end,
            "names": {str(value): name for value, name in names.items()},
        }

    def programs(self) -> list[ProgramInfo]:
        """Return every event's program with its counters. Raises ProbeError."""
        return [self._program(event) for event in self._events]

    def _program(self, event: _Event) -> ProgramInfo:
        try:
            info = program_info(event.descriptor)
        except PermissionError:
            raise
        except OSError as error:
            raise ProbeError(f"counters of {event.template} cannot be read: {error}") from error
        return ProgramInfo(
            event.template, _LETTER, event.tracepoint.full_name, self._attached
        ).counted(info)

    def close(self) -> None:
        """Detach and unload everything. Closing again has no effect."""
        super().close()
        self._events = []


def resolve_all(config: PairConfig, known: Tracepoints) -> list[ResolvedPair]:
    """Return the pairs as this kernel has them.

    Raises SiteError: there are too many, a pair's names are not known here, or a pair is larger
    than a program can be; ProbeError: tracefs cannot be read.
    """
    if len(config.pairs) > MAX_PAIRS:
        raise SiteError(
            f"{len(config.pairs)} pairs were named, at most {MAX_PAIRS} can be: name fewer"
        )
    found = [resolve(pair, known.scopes) for pair in config.pairs]
    for pair in found:
        _check(pair, needs_device=bool(config.devices))
    return found


def _check(pair: ResolvedPair, *, needs_device: bool) -> None:
    name = pair.pair.name
    if len(pair.begins) > MAX_BEGINS:
        raise SiteError(f"pair {name}: {len(pair.begins)} begins, at most {MAX_BEGINS} can be")
    for side in (*pair.begins, pair.end):
        if len(side.conditions) > MAX_CONDITIONS:
            raise SiteError(
                f"pair {name}: {len(side.conditions)} conditions on {side.event}, at most "
                f"{MAX_CONDITIONS} can be"
            )
        tested = [condition.value for condition in side.conditions]
        for value in (*side.keys, side.by, side.device, side.process, *tested):
            if value.steps > VALUE_STEPS:
                raise SiteError(
                    f"pair {name}: '{value.text}' follows {value.steps - 1} pointers, at most "
                    f"{VALUE_STEPS - 1} can be"
                )
    if needs_device and not pair.device:
        raise SiteError(
            f"pair {name} does not say which field is the device, so -d cannot be used: name the "
            "field with --device-field, or leave events out with --where"
        )


def _events(pair: ResolvedPair, index: int, known: Tracepoints, preemptible: bool) -> list[_Event]:
    """Return a pair's events in the order of attaching: the begins, then the end.

    Of an event that is both, the end's program comes first: it looks for the begin before this one.
    """
    begins = [
        _event(side, 0, index | at << _BEGIN_SHIFT, known, preemptible)
        for at, side in enumerate(pair.begins)
    ]
    end = _event(pair.end, 1, index, known, preemptible)
    both = any(begin.tracepoint == end.tracepoint for begin in begins)
    return [end, *begins] if both else [*begins, end]


def _event(
    side: ResolvedSide, half: int, cookie: int, known: Tracepoints, preemptible: bool
) -> _Event:
    name = _RECORD_TEMPLATES[half]
    if side.way == TYPED:
        name = _TYPED_TEMPLATES[half] + ("_p" if preemptible else "")
    return _Event(side, known.find(side.event), name, cookie)


def _place(event: _Event, modules: Descriptors) -> Place:
    """Return what a program is loaded for; `modules` keeps the descriptor of a module's BTF."""
    prototype = event.tracepoint.prototype
    if event.side.way != TYPED or prototype is None:
        return Place(ProgramType.TRACEPOINT)
    btf = 0
    if prototype.module:
        try:
            btf = modules.add(attaching.module_btf(prototype.module))
        except OSError as error:
            raise ProbeError(
                f"the types of module {prototype.module} cannot be reached: "
                f"{os.strerror(error.errno or 0)}; is it still loaded?"
            ) from error
    return Place(ProgramType.TRACING, AttachType.RAW_TP, prototype.btf_id, btf)
