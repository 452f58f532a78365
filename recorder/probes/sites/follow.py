# SPDX-License-Identifier: Apache-2.0
"""Records lives of followed objects: programs at the functions and tracepoints that take them.

By themselves, or beside the block layer's events in one log.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.backend import Capabilities, Probes, ProgramInfo
from biotrail.recorder.probes.capability import require_rights
from biotrail.recorder.probes.kernel import tracefs
from biotrail.recorder.probes.kernel.bpf_calls import program_info
from biotrail.recorder.probes.kernel.libbpf import BpfObject, RefusedError
from biotrail.recorder.probes.maps.path_maps import PathRuns
from biotrail.recorder.probes.maps.stack_maps import FreshStacks
from biotrail.recorder.probes.sites import attaching, functions
from biotrail.recorder.probes.sites.attaching import (
    AttachType,
    ModuleBtfs,
    Place,
    ProgramType,
    Template,
    Way,
    all_ways,
)
from biotrail.recorder.probes.sites.base import SiteProbes
from biotrail.recorder.probes.sites.follow_maps import FollowMaps
from biotrail.recorder.probes.sites.follow_options import AUTO, PART, FollowOptions
from biotrail.recorder.probes.sites.functions import FunctionPrograms
from biotrail.recorder.probes.sites.ring import ring_bytes
from biotrail.recorder.schema.errors import ProbeError, SiteError
from biotrail.recorder.schema.payloads import BackendFacts, End
from biotrail.recorder.schema.records import BY_KIND, Kind, Role
from biotrail.recorder.sites import declarations, following
from biotrail.recorder.sites.declarations import ObjectType
from biotrail.recorder.sites.following import TYPED, FollowPlan, KernelFunctions
from biotrail.recorder.sites.types import TypeTable
from biotrail.recorder.symbols.kallsyms import addresses_by_module

_LETTER = BY_KIND[Kind.HIT].letter
_NO_ADDRESS = "its address is not known"
"""Reason of functions that kallsyms does not list, as a key of `unseen`."""


def planned(struct: str, way: str, max_functions: int) -> tuple[FollowPlan, Way]:
    """Return what is to be attached for a struct on this kernel, and how; nothing is attached yet.

    way: AUTO or one of WAYS. max_functions: more are refused. Takes up to a second. Raises
    TraceError: rights are missing, there is no such struct, or it cannot be followed so.
    """
    require_rights()
    types = TypeTable.kernel()
    known = declarations.load().types
    try:
        types.struct(struct)
    except SiteError as error:
        near = get_close_matches(struct, known, 3)
        raise SiteError(f"{error}; ready-made types: {', '.join(near or known)}") from error
    chosen, kernel = _chosen_way(way), None
    if chosen.name != TYPED:
        with tracefs.debugfs() as place:
            kernel = KernelFunctions.read(tracefs.find(), place / "kprobes" / "blacklist")
        if kernel.traceable is None and chosen.name != "kprobe":
            raise ProbeError(
                "which functions may be traced is not known "
                f"({'; '.join(kernel.unread)}): run as root, "
                "or follow tracepoints alone (--way typed)"
            )
    declared = known.get(struct, ObjectType(struct))
    plan = following.plan(types, declared, chosen.name, kernel, max_functions)
    return plan, chosen if plan.functions else Way(TYPED)


def _chosen_way(name: str) -> Way:
    if name == TYPED:
        return Way(TYPED)
    ways = all_ways()
    there = [way for way in ways if way.works] + [Way(TYPED)]
    if name == AUTO:
        return there[0]
    way = next(way for way in ways if way.name == name)
    if way.works:
        return way
    names = ", ".join(each.name for each in there)
    raise ProbeError(f"way {name}: {way.reason}; this kernel has {names}")


class FollowProbes(SiteProbes):
    """The programs of followed objects: open(), attach(), drain() repeatedly, detach(), close()."""

    capabilities = Capabilities("core", site_stacks=True)

    def __init__(
        self,
        plan: FollowPlan,
        way: Way,
        options: FollowOptions,
        filters: Filters,
        devices: Sequence[tuple[int, int]] = (),
        ring: int | None = None,
    ) -> None:
        """Keep the arguments; nothing is loaded or checked before open().

        devices: (dev_t of the disk, dev_t of the partition or 0); empty: all. ring: bytes of the
        one ring; None: chosen.
        """
        super().__init__()
        self.plan = plan
        """What is attached; after attach() with what the kernel refused."""
        self.options, self.filters, self.devices = options, filters, devices
        self._way, self._wanted_ring = way, ring
        self.attached = FunctionPrograms(self._programs, self._links)
        self._maps: FollowMaps | None = None
        self._counts: dict[str, int] = {}
        self._addresses: dict[tuple[str, str], int] = {}
        self._typed = functions.TYPED
        self._tracepoints: dict[str, int] = {}

    def open(self) -> None:
        """Load the templates and map the ring. Raises ProbeError; then nothing stays loaded."""
        self._check_start(self.filters)
        if self.devices and not self.plan.device.at:
            raise ProbeError(
                f"a struct {self.plan.struct} names no device: follow it without -d, or declare "
                "`device` (docs/follow.md)"
            )
        # Here, as it takes longer than attaching itself.
        if self.plan.functions:
            names = (site.taking.name for site in self.plan.functions)
            self._addresses = addresses_by_module(names)

        def fill(bpf: BpfObject) -> None:
            self._maps = FollowMaps(bpf, self.plan, self.options)
            bpf.set_initial_value(".rodata.follow", self._maps.constants())

        try:
            self._typed = functions.TYPED + ("_p" if self._read_kernel() else "")
            templates = {self._typed, *functions.templates(self._way)}
            ring = ring_bytes(self._wanted_ring)
            self._load(templates, self.filters, self.devices, fill, ring)
            if self._maps is not None:
                self._maps.map()
        except (OSError, ProbeError):
            self.close()
            raise

    def attach(self) -> None:
        """Attach functions and tracepoints, then let lives begin. Raises ProbeError.

        Sets `attached`, and in `plan` what the kernel refused.
        """
        bpf = self._opened()
        if self._cgroups is not None:
            self._cgroups.attach()
        sites, missing = [], []
        for site in self.plan.functions:
            address = self._addresses.get((site.taking.name, site.taking.module))
            if address is None:
                missing.append(site.taking.name)
            else:
                sites.append(replace(site, address=address))
        self.attached.attach(bpf, self._way, sites)
        refused = dict(self.attached.refused)
        self._attach_tracepoints(bpf, refused)
        if missing:
            refused[_NO_ADDRESS] = missing
        self.plan = self.plan.without(refused)
        if not self.attached.functions and not self._tracepoints:
            raise ProbeError(
                f"none of the sites of struct {self.plan.struct} could be attached: "
                + "; ".join(sorted(refused))
            )
        if self._maps is not None:
            self._maps.start()

    def _attach_tracepoints(self, bpf: BpfObject, refused: dict[str, list[str]]) -> None:
        template = Template.of(bpf, self._typed)
        with ModuleBtfs() as modules:
            for site in self.plan.tracepoints:
                taking = site.taking
                try:
                    btf = modules.of(taking.module)
                    place = Place(ProgramType.TRACING, AttachType.RAW_TP, taking.btf_id, btf)
                    cookie = functions.cookie(site, Role.EVENT)
                    program = self._programs.add(template.load(place, cookie))
                    self._links.add(attaching.typed(program))
                    self._tracepoints[taking.shown] = program
                except (OSError, RefusedError) as error:
                    said = str(error).splitlines()[0]
                    refused.setdefault(f"refused: {said}", []).append(taking.shown)

    def detach(self) -> None:
        """Let no life begin any more, then detach all programs; the ring stays readable."""
        if self._maps is not None and self._object is not None:
            self._maps.stop()
        super().detach()

    def close(self) -> None:
        """Detach and unload everything. Closing again has no effect."""
        if self._maps is not None:
            self._maps.close()
            self._maps = None
        self._tracepoints.clear()
        self.attached.programs.clear()
        super().close()

    def drain(self) -> list[Segment]:
        """Copy out all complete records, and those of long lives that ended (--slower)."""
        if self._maps is None or self._ring is None:
            return []
        self._maps.forget_idle(time.monotonic_ns())
        return self._ring.drain(self._maps.take_kept())

    def fresh_stacks(self) -> FreshStacks:
        """Return the stacks that are new since the last call. Raises RefusedError."""
        site = self._maps.fresh_stacks() if self._maps is not None else {}
        return FreshStacks({}, {}, {}, site)

    def counts(self) -> dict[str, int]:
        """Return what became of lives and calls: totals of struct bt_follow_counts by name.

        After close() those of the last call before; {} without one.
        """
        if self._maps is not None:
            self._counts = {**self._maps.counts(), "idle": self._maps.idle}
        return self._counts

    def runs(self) -> int | None:
        """Return about how often programs ran since open, most of them for other objects."""
        return self.counts().get("runs", 0)

    def end_facts(self) -> End:
        """Return the END frame's counts of lives and calls."""
        return {"sites": {"follow": self.counts()}}

    def backend_facts(self) -> BackendFacts:
        """Return the header's entries, with "sites"."""
        options = self.options
        follow = self.plan.facts()
        follow["every"], follow["max"] = options.every, options.at_once
        follow["slower_ns"] = options.slower_ns
        return {
            "backend": self.capabilities.backend,
            "counts_skips": self.counts_skips,
            "sites": {"follow": follow},
        }

    def programs(self) -> list[ProgramInfo]:
        """Return the programs, those of functions summed up by what they are for.

        Where each function has a program of its own, their counters are added up.
        """
        rows = [
            _summed(f"{self._way.name} {role}", "", descriptors)
            for role, descriptors in self.attached.programs.items()
        ]
        typed = self._tracepoints.items()
        return rows + [_summed(f"typed {name}", name, [program]) for name, program in typed]


def _summed(name: str, tracepoint: str, programs: Iterable[int]) -> ProgramInfo:
    return ProgramInfo(name, _LETTER, tracepoint, True).counted(*map(program_info, programs))


# Beside the block layer's events


def follow_beside(
    block: Probes, options: FollowOptions, filters: Filters, devices: Sequence[tuple[int, int]]
) -> Probes:
    """Return probes that record what `block` does, and follow what `options` say; not open yet.

    filters: those on tasks hold for what is followed too. devices: (dev_t of the disk, of the
    partition or 0); objects name disks alone, so that those of a whole disk are followed. Raises
    TraceError: it cannot be followed.
    """
    if block.capabilities.backend != "core":
        raise ProbeError("--follow needs the core backend, and a kernel with type information")
    plan, way = planned(options.struct, options.way, options.max_functions)
    disks = list(dict.fromkeys((disk, 0) for disk, _ in devices))
    return cast(Probes, JoinedProbes(block, FollowProbes(plan, way, options, filters, disks)))


class JoinedProbes:
    """Two backends as one: the block layer's events, and followed objects; fits backend.Probes.

    What is not here is the block layer's alone.
    """

    waker = None
    """The ring of followed objects wakes nobody."""

    def __init__(self, block: Probes, follow: FollowProbes) -> None:
        self._block, self._follow = block, follow

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)

    @property
    def capabilities(self) -> Capabilities:
        return self._block.capabilities._replace(site_stacks=True)

    def path_runs(self) -> PathRuns:
        """Return how often the programs of the path, and those that follow, ran since open."""
        runs = self._block.path_runs()
        return replace(runs, by_part={**runs.by_part, PART: self._follow.runs() or 0})

    def open(self) -> None:
        """Raises ProbeError; then nothing stays loaded."""
        self._block.open()
        try:
            self._follow.open()
        except BaseException:
            self._block.close()
            raise

    def attach(self) -> None:
        """Start recording, the lives last: of a life that is recorded, the events are."""
        self._block.attach()
        self._follow.attach()

    def detach(self) -> None:
        """Stop recording, first the lives."""
        self._follow.detach()
        self._block.detach()

    def close(self) -> None:
        self._follow.close()
        self._block.close()

    def drain(self) -> list[Segment]:
        return self._block.drain() + self._follow.drain()

    def fill(self) -> float:
        return max(self._block.fill(), self._follow.fill())

    def lost(self) -> NDArray[np.uint64]:
        return self._block.lost() + self._follow.lost()

    def backend_facts(self) -> BackendFacts:
        return {**self._block.backend_facts(), "sites": self._follow.backend_facts()["sites"]}

    def programs(self) -> list[ProgramInfo]:
        """Return every program of both; those that follow have the part PART."""
        followed = [replace(program, part=PART) for program in self._follow.programs()]
        return self._block.programs() + followed

    def end_facts(self) -> End:
        return {**self._block.end_facts(), **self._follow.end_facts()}

    def fresh_stacks(self) -> FreshStacks:
        return self._block.fresh_stacks()._replace(site=self._follow.fresh_stacks().site)

    def short_of_memory(self) -> str:
        found = (self._block.short_of_memory(), self._follow.short_of_memory())
        return "; ".join(message for message in found if message)

    def list_cgroup(self, number: int, *, wanted: bool) -> None:
        self._block.list_cgroup(number, wanted=wanted)
        self._follow.list_cgroup(number, wanted=wanted)
