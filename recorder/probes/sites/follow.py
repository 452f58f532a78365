# SPDX-License-Identifier: Apache-2.0
"""Records lives of followed objects: programs at the functions and tracepoints that take them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.backend import Capabilities, ProgramInfo
from biotrail.recorder.probes.kernel.bpf_calls import program_info
from biotrail.recorder.probes.kernel.libbpf import BpfObject, RefusedError
from biotrail.recorder.probes.maps.stack_maps import FreshStacks
from biotrail.recorder.probes.sites import attaching, functions
from biotrail.recorder.probes.sites.attaching import (
    AttachType,
    Descriptors,
    Place,
    ProgramType,
    Template,
    Way,
)
from biotrail.recorder.probes.sites.base import SiteProbes
from biotrail.recorder.probes.sites.follow_maps import FollowMaps, follow_struct
from biotrail.recorder.probes.sites.follow_options import FollowOptions
from biotrail.recorder.probes.sites.functions import TYPED, Attached, FunctionSite
from biotrail.recorder.probes.sites.ring import ring_bytes
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.follow_structs import SITE_BIRTH, SITE_DEATH, SITE_LAST, SITE_NEW
from biotrail.recorder.schema.payloads import BackendFacts, End
from biotrail.recorder.schema.records import BY_KIND, Kind, Role
from biotrail.recorder.sites.following import FollowPlan, PlannedSite
from biotrail.recorder.symbols.kallsyms import addresses_by_module

_LETTER = BY_KIND[Kind.HIT].letter
_PREEMPTIBLE = "_p"
NO_ADDRESS = "its address is not known"
"""Reason of functions that kallsyms does not list, as a key of `unseen`."""


@dataclass(frozen=True)
class FollowConfig:
    """What to follow. devices: (dev_t of the disk, dev_t of the partition or 0); empty: all.

    ring_bytes: of the one ring; None: chosen.
    """

    plan: FollowPlan
    way: Way
    options: FollowOptions
    filters: Filters = field(default_factory=Filters)
    devices: Sequence[tuple[int, int]] = ()
    ring_bytes: int | None = None


class FollowProbes(SiteProbes):
    """The programs of followed objects: open(), attach(), drain() repeatedly, detach(), close()."""

    capabilities = Capabilities("core", site_stacks=True)

    def __init__(self, config: FollowConfig) -> None:
        """Keep the arguments; nothing is loaded or checked before open()."""
        super().__init__()
        self.config = config
        self.plan = config.plan
        """What is attached; after attach() with what the kernel refused."""
        self.attached = Attached(self._programs, self._links)
        self._maps: FollowMaps | None = None
        self._counts: dict[str, int] = {}
        self._functions: list[FunctionSite] = []
        self._typed = TYPED
        self._tracepoints: dict[str, int] = {}

    def open(self) -> None:
        """Load the templates and map the ring. Raises ProbeError; then nothing stays loaded."""
        config = self.config
        self._check_start(config.filters)
        if config.devices and not self.plan.device.steps:
            raise ProbeError(
                f"a struct {self.plan.struct} names no device: follow it without -d, or declare "
                "`device` (docs/follow.md)"
            )
        # Here, as it takes longer than attaching itself.
        self._functions = self._function_sites()
        returns = bool(self.plan.functions)

        def fill(bpf: BpfObject) -> None:
            constants = follow_struct(self.plan, config.options, returns=returns)
            bpf.set_initial_value(".rodata.follow", constants)
            deaths = bool(self.plan.named("death"))
            self._maps = FollowMaps(bpf, config.options, returns=returns, has_deaths=deaths)

        try:
            self._typed = TYPED + (_PREEMPTIBLE if self._read_kernel() else "")
            names = {self._typed, *functions.templates(config.way)}
            ring = ring_bytes(config.ring_bytes)
            self._load(names, config.filters, config.devices, fill, ring)
            if self._maps is not None:
                self._maps.map()
        except (OSError, ProbeError):
            self.close()
            raise

    def attach(self) -> None:
        """Attach functions and tracepoints, then let lives begin. Raises ProbeError.

        Sets `attached`, and in `plan` what the kernel refused.
        """
        bpf, sites = self._opened(), self._functions
        if self._cgroups is not None:
            self._cgroups.attach()
        functions.attach(bpf, self.config.way, sites, self.attached)
        refused = dict(self.attached.refused)
        self._attach_tracepoints(bpf, refused)
        listed = {site.index for site in sites}
        missing = [
            site.taking.name
            for index, site in enumerate(self.plan.sites)
            if site.taking.kind == "function" and index not in listed
        ]
        if missing:
            refused[NO_ADDRESS] = missing
        self.plan = self.plan.without(refused)
        if not self.attached.functions and not self._tracepoints:
            raise ProbeError(
                f"none of the sites of struct {self.plan.struct} could be attached: "
                + "; ".join(sorted(refused))
            )
        if self._maps is not None:
            self._maps.start()

    def _function_sites(self) -> list[FunctionSite]:
        if not self.plan.functions:
            return []
        places = addresses_by_module(site.taking.name for site in self.plan.functions)
        return [
            FunctionSite(
                index,
                site.taking.name,
                site.taking.module,
                _flags(site),
                site.taking.slot,
                site.taking.arguments,
                places[site.taking.name, site.taking.module],
                site.taking.btf_id,
            )
            for index, site in enumerate(self.plan.sites)
            if site.taking.kind == "function" and (site.taking.name, site.taking.module) in places
        ]

    def _attach_tracepoints(self, bpf: BpfObject, refused: dict[str, list[str]]) -> None:
        template = Template.of(bpf, self._typed)
        with Descriptors() as modules:
            btfs: dict[str, int] = {"": 0}
            for index, site in enumerate(self.plan.sites):
                taking = site.taking
                if taking.kind != "tracepoint":
                    continue
                cookie = functions.cookie(index, _flags(site), Role.EVENT, taking.slot, 0)
                try:
                    if taking.module not in btfs:
                        btfs[taking.module] = modules.add(attaching.module_btf(taking.module))
                    place = Place(
                        ProgramType.TRACING, AttachType.RAW_TP, taking.btf_id, btfs[taking.module]
                    )
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
        options = self.config.options
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
            self._summed(f"{self.config.way.name} {role}", "", descriptors)
            for role, descriptors in self.attached.programs.items()
        ]
        return rows + [
            self._summed(f"typed {name}", name, [descriptor])
            for name, descriptor in self._tracepoints.items()
        ]

    def _summed(self, name: str, tracepoint: str, programs: Sequence[int]) -> ProgramInfo:
        infos = [program_info(program) for program in programs]
        return ProgramInfo(name, _LETTER, tracepoint, True).counted(*infos)


def _flags(site: PlannedSite) -> int:
    meanings = {
        SITE_BIRTH: site.birth,
        SITE_DEATH: site.death,
        SITE_NEW: site.new,
        SITE_LAST: site.last,
    }
    return sum(bit for bit, meant in meanings.items() if meant)
