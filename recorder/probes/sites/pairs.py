# SPDX-License-Identifier: Apache-2.0
"""Records pairs of events: loads a program for each event, and reads what they count."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from biotrail.recorder.filters.filters import Filters, check_tasks
from biotrail.recorder.probes.backend import ProgramInfo
from biotrail.recorder.probes.capability import require_rights
from biotrail.recorder.probes.core import allow_locked_memory
from biotrail.recorder.probes.kernel.btf import KernelBtf, kernel_enums
from biotrail.recorder.probes.kernel.libbpf import BpfObject
from biotrail.recorder.probes.maps.cgroup_maps import TRACEPOINT
from biotrail.recorder.probes.programs import is_preemptible
from biotrail.recorder.probes.sites import attaching, constants, pair_maps
from biotrail.recorder.probes.sites.attaching import Descriptors
from biotrail.recorder.probes.sites.base import SiteProbes, ensure_start, object_path
from biotrail.recorder.probes.sites.follow import ALL_TEMPLATES
from biotrail.recorder.probes.sites.latencies import Latencies
from biotrail.recorder.probes.sites.loading import AttachType, Place, ProgramType, Template
from biotrail.recorder.probes.sites.pair_facts import function_names, needs_symbols, pair_facts
from biotrail.recorder.probes.sites.pair_maps import PairCounts
from biotrail.recorder.probes.sites.ring import SMALLEST_RING_BYTES, SiteRing, ring_bytes
from biotrail.recorder.probes.sites.tracepoints import TYPED, Tracepoint, Tracepoints
from biotrail.recorder.schema.errors import ProbeError, SiteError
from biotrail.recorder.schema.limits import MAX_BEGINS, MAX_CONDITIONS, MAX_PAIRS, VALUE_STEPS
from biotrail.recorder.schema.payloads import BackendFacts, End
from biotrail.recorder.schema.payloads import PairCounts as EndCounts
from biotrail.recorder.schema.records import BY_KIND, Kind
from biotrail.recorder.sites.declared import Pair
from biotrail.recorder.sites.resolving import ResolvedPair, ResolvedSide, resolve
from biotrail.recorder.sites.types import TypeTable
from biotrail.recorder.symbols.kallsyms import LiveKernelSymbols

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
        self.counts_skips = False
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
        require_rights()
        ensure_start()
        check_tasks(self.config.filters)
        known = Tracepoints(TypeTable.kernel())
        self.pairs = resolve_all(self.config, known)
        # Now, as the right to see addresses is given up later.
        self.symbols = LiveKernelSymbols() if needs_symbols(self.pairs) else None
        allow_locked_memory()
        try:
            with KernelBtf() as btf:
                self.enums = kernel_enums(btf)
                self.counts_skips = btf.has_function("bpf_prog_inc_misses_counter")
                preemptible = is_preemptible(btf)
                hold_irqs = btf.has_function("bpf_local_irq_save")
                tells_made = btf.parameters(TRACEPOINT) is not None
            events = [
                event
                for index, pair in enumerate(self.pairs)
                for event in _events(pair, index, known, preemptible)
            ]
            self._load(events, hold_irqs=hold_irqs, tells_made=tells_made)
        except (OSError, ProbeError):
            self.close()
            raise

    def _load(self, events: list[_Event], *, hold_irqs: bool, tells_made: bool) -> None:
        """Load the object's maps and templates, then a copy for each event. Raises ProbeError."""
        config = self.config
        bpf = self._object = BpfObject(object_path())
        used = {event.template for event in events}
        for name in ALL_TEMPLATES:
            bpf.set_autoload(name, name in used)
        cgroups = self._cgroups = constants.set_filters(
            bpf,
            config.filters,
            config.devices,
            hold_irqs=hold_irqs,
            tells_made=tells_made,
            record=config.record,
            count=True,
        )
        bpf.set_initial_value(".rodata.pairs", pair_maps.section(self.pairs))
        pair_maps.size_maps(bpf, self.pairs, config.max_open, config.by_values)
        wanted = ring_bytes(config.ring_bytes) if config.record else SMALLEST_RING_BYTES
        size = self._size_ring(wanted)
        bpf.load()
        constants.fill_ids(bpf, config.filters)
        cgroups.open()
        self._ring = SiteRing.map(bpf.map_fd("bt_site_ring"), size)
        for event in events:
            with Descriptors() as modules:
                place = _place(event, modules)
                descriptor = Template.of(bpf, event.template).load(place, event.cookie)
            self._programs.add(descriptor)
            self._events.append(replace(event, descriptor=descriptor))

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
                    link = attaching.tracepoint(event.descriptor, point.format.number)
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
        waiting, by = pair_maps.open_begins(bpf), pair_maps.latencies_by(bpf)
        return [
            PairReading(
                replace(pair_maps.counts(bpf, index), open=waiting[index]),
                pair_maps.latencies(bpf, index),
                {value: found for (pair, value), found in by.items() if pair == index},
            )
            for index in range(len(self.pairs))
        ]

    def runs(self) -> int | None:
        """Return how often the programs ran since open, about, by what they counted."""
        bpf, total = self._opened(), 0
        by = pair_maps.latencies_by(bpf)
        for index in range(len(self.pairs)):
            counts = pair_maps.counts(bpf, index)
            pairs = pair_maps.latencies(bpf, index).count
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
            info = self.info(event.descriptor)
        except PermissionError:
            raise
        except OSError as error:
            raise ProbeError(f"counters of {event.template} cannot be read: {error}") from error
        return ProgramInfo(
            event.template,
            _LETTER,
            event.tracepoint.full_name,
            self._attached,
            "",
            int(info.run_cnt),
            int(info.run_time_ns),
            int(info.recursion_misses),
        )

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
    """Raise SiteError for a pair that programs have no room for, or that no device is known of."""
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

    Where an event is a begin and the end, its program for the end runs first, which is attached
    first: it looks for the begin before this one.
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
    """Return an event with the name of its template. half: 0: a begin, 1: the end."""
    name = _RECORD_TEMPLATES[half]
    if side.way == TYPED:
        name = _TYPED_TEMPLATES[half] + ("_p" if preemptible else "")
    return _Event(side, known.find(side.event), name, cookie)


def _place(event: _Event, modules: Descriptors) -> Place:
    """Return what a program is loaded for; `modules` keeps the descriptor of a module's BTF.

    Raises ProbeError: the module's types cannot be reached.
    """
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
