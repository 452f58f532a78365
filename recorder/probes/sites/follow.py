# SPDX-License-Identifier: Apache-2.0
"""Records lives of followed objects: programs at the functions and tracepoints that take them.

By themselves, or beside the block layer's events in one log.
"""

import ctypes
import errno
import mmap
import os
import platform
import resource
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.backend import Probes, ProgramInfo
from biotrail.recorder.probes.capability import require_rights
from biotrail.recorder.probes.kernel import tracefs
from biotrail.recorder.probes.kernel.bpf_calls import program_info
from biotrail.recorder.probes.kernel.btf import KernelBtf
from biotrail.recorder.probes.kernel.libbpf import SECTION, BpfObject, RefusedError
from biotrail.recorder.probes.maps.path_maps import PathRuns
from biotrail.recorder.probes.maps.stack_maps import StackMap, max_depth
from biotrail.recorder.probes.rings.ring import mapping
from biotrail.recorder.probes.sites import attaching
from biotrail.recorder.probes.sites.attaching import (
    SESSION_CALL,
    AttachType,
    Descriptors,
    Place,
    ProgramType,
    Template,
    Way,
    all_ways,
)
from biotrail.recorder.probes.sites.base import SITE_ENTRY, SiteProbes, fill_value, per_cpu
from biotrail.recorder.probes.sites.follow_options import AUTO, PART, FollowOptions
from biotrail.recorder.schema import follow_structs
from biotrail.recorder.schema.errors import ProbeError, SiteError
from biotrail.recorder.schema.follow_structs import (
    KEPT_HITS,
    SESSION_HELPER,
    SITE_BIRTH,
    SITE_DEATH,
    SITE_PLACE_SHIFT,
    SITE_RESULT_SHIFT,
    SITE_ROLE_SHIFT,
    LifeState,
)
from biotrail.recorder.schema.payloads import BackendFacts, End
from biotrail.recorder.schema.records import BY_KIND, Kind, Role
from biotrail.recorder.sites import declarations, following
from biotrail.recorder.sites.declarations import TYPED, ObjectType
from biotrail.recorder.sites.following import FollowPlan, KernelFunctions, PlannedSite
from biotrail.recorder.sites.types import TypeTable

_CALL_THREADS = 4096
"""Threads with open calls at one time (BT_CALL_THREADS)."""
_STACKS = 16384
_MACHINES = {"x86_64": follow_structs.Machine.X86_64, "aarch64": follow_structs.Machine.AARCH64}
_LOOK_NS = 100_000_000
_IDLE_NS = 200_000_000
_CALLS = "bt_calls_of_threads"
_COUNTS = tuple(m.name for m in follow_structs.FOLLOW_COUNTS.members if m.name != "pad")
_LIFE = np.dtype(follow_structs.LIFE.ctype)
_HIT = BY_KIND[Kind.HIT].dtype
_LETTER = BY_KIND[Kind.HIT].letter
_NO_ADDRESS = "its address is not known"
"""Reason of functions whose address the kernel hides, as a key of `unseen`."""


def planned(struct: str, way: str, max_functions: int) -> tuple[FollowPlan, Way]:
    """Return what is to be attached for a struct on this kernel, and how. Takes up to a second.

    way: AUTO or one of WAYS. Raises TraceError: it cannot be followed so.
    """
    require_rights()
    types = TypeTable.kernel()
    known = declarations.load().types
    try:
        types.struct(struct)
    except SiteError as error:
        near = get_close_matches(struct, known, 3)
        raise SiteError(f"{error}; ready-made types: {', '.join(near or known)}") from error
    chosen, kernel = Way(TYPED), None
    if way != TYPED:
        ways = all_ways()
        there = [one for one in ways if not one.reason] + [chosen]
        chosen = there[0] if way == AUTO else next(one for one in ways if one.name == way)
        if chosen.reason:
            names = ", ".join(one.name for one in there)
            raise ProbeError(f"way {way}: {chosen.reason}; this kernel has {names}")
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


# Programs at the entries and returns of many functions

_HIT_TYPED = "bt_hit_typed"
_TEMPLATES = {
    "session": ("bt_hit_session",),
    "multi": ("bt_hit_entry", "bt_hit_return"),
    "fentry": (_HIT_TYPED,),
    "kprobe": ("bt_hit_entry", "bt_hit_return"),
    "typed": (),
}
_COPIES = ("bt_hit_entry_copy", "bt_hit_return_copy")
_NO_RESULT = 0xFFFF
_HOPELESS = (errno.EPERM, errno.EACCES, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Errors that have to do with this process, and would come back for each function alone."""
_NOT_SUPPORTED = 524
"""ENOTSUPP of the kernel, which the C library has no text for: more than six arguments."""
_DESCRIPTORS_EACH = 6
_SPARE_DESCRIPTORS = 256


def cookie(site: PlannedSite, role: Role, result: int = 0) -> int:
    """Return the cookie of a program at a site. result: where it reads what a function returned."""
    places = site.taking.slot << SITE_PLACE_SHIFT | result << SITE_RESULT_SHIFT
    return site.index | int(role) << SITE_ROLE_SHIFT | site.meaning | places


# What is followed, by itself


class FollowProbes(SiteProbes):
    """The programs of followed objects; their maps are in bpf/objects.h and bpf/open_calls.h."""

    site_stacks = True

    def __init__(
        self,
        plan: FollowPlan,
        way: Way,
        options: FollowOptions,
        filters: Filters,
        devices: Sequence[tuple[int, int]] = (),
        ring: int | None = None,
    ) -> None:
        super().__init__(filters, devices, ring)
        self.plan = plan
        """What is attached; after attach() with what the kernel refused."""
        self.options, self._way = options, way
        uncopied = way.name != "kprobe" or way.cookies
        self._templates = _TEMPLATES[way.name] if uncopied else _COPIES
        self.function_programs: dict[str, list[int]] = {}
        """Descriptors by what they are for: "entry", "return", "entry and return"."""
        self.functions: set[int] = set()
        """Indexes of the functions that were attached."""
        self.refused: dict[str, list[str]] = {}
        """Names of functions by the reason that the kernel gave."""
        self.idle = 0
        """Lives that ended as nothing more was seen of their object."""
        self._has_deaths = bool(plan.named(SITE_DEATH))
        self._looked = 0
        self._lives: NDArray[np.void] = np.empty(0, _LIFE)
        self._hits: NDArray[np.void] = np.empty(0, SITE_ENTRY)
        self._mappings: list[mmap.mmap] = []
        self._typed = _HIT_TYPED
        self._kept_hits = options.at_once * KEPT_HITS if options.slower_ns else 0
        self._tracepoints: dict[str, int] = {}

    def _look_up(self) -> None:
        if self.devices and not self.plan.device.at:
            raise ProbeError(
                f"a struct {self.plan.struct} names no device: follow it without -d, or declare "
                "`device` (docs/follow.md)"
            )

    def _fill(self, bpf: BpfObject, suffix: str) -> Collection[str]:
        plan, options = self.plan, self.options
        made = follow_structs.FOLLOW.ctype(
            slower_ns=options.slower_ns,
            lives=options.lives,
            every=options.every,
            remember=options.every > 1 or sum(bool(s.meaning & SITE_BIRTH) for s in plan.sites) > 1,
            returns=bool(plan.functions),
            machine=_MACHINES.get(platform.machine(), 0),
        )
        fill_value(made.detail, plan.detail)
        fill_value(made.device, plan.device)
        fill_value(made.process, plan.process)
        bpf.set_initial_value(".rodata.follow", made)
        slots = options.at_once
        for name, value_size, entries in (
            ("bt_objects", 4, slots),
            ("bt_lives", _LIFE.itemsize, slots),
            ("bt_free_lives", 4, slots),
            ("bt_kept_hits", SITE_ENTRY.itemsize, self._kept_hits or 1),
            ("bt_refused", 8, 1 << follow_structs.REFUSED_BITS),
            (_CALLS, None, _CALL_THREADS if plan.functions else 1),
        ):
            bpf.set_map_size(name, value_size, entries)
        self._stacks["site"] = StackMap(bpf, "bt_site_stacks", max_depth(), _STACKS)
        self._typed = _HIT_TYPED + suffix
        return {self._typed, *self._templates}

    def _loaded(self, bpf: BpfObject) -> None:
        self._lives = self._view("bt_lives", _LIFE, self.options.at_once)
        if self._kept_hits:
            self._hits = self._view("bt_kept_hits", SITE_ENTRY, self._kept_hits)

    def _view(self, name: str, dtype: np.dtype[np.void], count: int) -> NDArray[np.void]:
        """Map an array of `count` elements, of whole 8 bytes; the map has whole pages."""
        size = dtype.itemsize * count
        fd = self._opened().map_fd(name)
        with mapping(f"the map {name} ({size} bytes)"):
            mapped = mmap.mmap(fd, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._mappings.append(mapped)
        view: NDArray[np.void] = np.ndarray((count,), dtype, mapped)
        return view

    def attach(self) -> None:
        """Attach functions and tracepoints, then let lives begin. Raises ProbeError.

        Sets in `plan` what the kernel refused.
        """
        bpf = self._opened()
        if self._cgroups is not None:
            self._cgroups.attach()
        sites = [site for site in self.plan.functions if site.address]
        missing = [site.taking.name for site in self.plan.functions if not site.address]
        needed = len(sites) * _DESCRIPTORS_EACH + _SPARE_DESCRIPTORS
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            if soft < needed:
                resource.setrlimit(resource.RLIMIT_NOFILE, (needed, max(hard, needed)))
        except (ValueError, OSError) as error:
            raise ProbeError(
                f"{len(sites)} functions need {needed} open files, and at most {hard} are allowed: "
                "raise it (ulimit -n), or follow fewer (--max-functions)"
            ) from error
        if self._way.name in ("session", "multi"):
            self._attach_many(bpf, sites)
        elif sites:
            self._attach_each(bpf, sites)
        refused = dict(self.refused)
        template = Template.of(bpf, self._typed)
        with Descriptors() as modules:
            for site in self.plan.tracepoints:
                taking = site.taking
                try:
                    btf = modules.module_btf(taking.module)
                    place = Place(ProgramType.TRACING, AttachType.RAW_TP, taking.btf_id, btf)
                    program = self._programs.add(template.load(place, cookie(site, Role.EVENT)))
                    self._links.add(attaching.typed(program))
                    self._tracepoints[taking.shown] = program
                except (OSError, RefusedError) as error:
                    said = str(error).splitlines()[0]
                    refused.setdefault(f"refused: {said}", []).append(taking.shown)
        if missing:
            refused[_NO_ADDRESS] = missing
        self.plan = self.plan.without(refused)
        if not self.functions and not self._tracepoints:
            raise ProbeError(
                f"none of the sites of struct {self.plan.struct} could be attached: "
                + "; ".join(sorted(refused))
            )
        self._free(range(self.options.at_once))
        bpf.put("bt_follow_numbers", SECTION, follow_structs.FOLLOW_NUMBERS.ctype(open=1))

    def _load_for(self, role: str, template: Template, place: Place) -> int:
        program = self._programs.add(template.load(place))
        self.function_programs.setdefault(role, []).append(program)
        return program

    def _refuse(self, site: PlannedSite, error: OSError | RefusedError) -> None:
        """Note a refused function. Raises ProbeError if others would be refused as well."""
        number = error.number if isinstance(error, RefusedError) else error.errno or 0
        if number in _HOPELESS:
            raise ProbeError(
                f"functions cannot be attached: {os.strerror(number)} (at {site.taking.name}, "
                f"after {len(self.functions)}); follow fewer (--max-functions) or --way typed"
            ) from error
        said = "not supported" if number == _NOT_SUPPORTED else os.strerror(number)
        self.refused.setdefault(f"refused: {said}", []).append(site.taking.name)

    def _attach_many(self, bpf: BpfObject, sites: Sequence[PlannedSite]) -> None:
        """Attach all sites at once; where that is refused, each half, down to refused functions."""
        if self._way.name == "session":
            with KernelBtf() as btf:
                call = btf.function_id(SESSION_CALL)
            if call is None:
                raise ProbeError(f"this kernel has no {SESSION_CALL}(): use another --way")
            kind = AttachType.KPROBE_SESSION
            template = Template.of(bpf, "bt_hit_session").calling(SESSION_HELPER, call)
            both = self._load_for("entry and return", template, Place(ProgramType.KPROBE, kind))
            programs = {both: False}  # whether it is for functions' returns
        else:
            kind = AttachType.KPROBE_MULTI
            place = Place(ProgramType.KPROBE, kind)
            entry = self._load_for("entry", Template.of(bpf, "bt_hit_entry"), place)
            back = self._load_for("return", Template.of(bpf, "bt_hit_return"), place)
            programs = {back: True, entry: False}
        parts = [list(sites)] if sites else []
        while parts:
            part = parts.pop()
            places = [site.address for site in part]
            cookies = [cookie(site, Role.ENTRY) for site in part]
            try:
                with Descriptors() as links:
                    for program, returns in programs.items():
                        link = attaching.functions(program, places, cookies, kind, returns=returns)
                        links.add(link)
                    self._links.enter_context(links.pop_all())
                self.functions.update(site.index for site in part)
            except OSError as error:
                if len(part) == 1 or error.errno in _HOPELESS:
                    self._refuse(part[0], error)
                else:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]

    def _attach_each(self, bpf: BpfObject, sites: Sequence[PlannedSite]) -> None:
        """Attach programs to each function's return, then to its entry: ends come before begins."""
        entry, back = Template.of(bpf, self._templates[0]), Template.of(bpf, self._templates[-1])
        roles = {"return": back, "entry": entry}
        shared: dict[str, int] = {}  # programs of all functions, told apart by their cookies
        if self._way.cookies:
            place = Place(ProgramType.KPROBE)
            for role in ("entry", "return"):
                shared[role] = self._load_for(role, roles[role], place)
        with Descriptors() as modules:
            for site in sites:
                try:
                    self._attach_one(site, roles, shared, modules)
                except (OSError, RefusedError) as error:
                    self._refuse(site, error)

    def _attach_one(
        self,
        site: PlannedSite,
        roles: dict[str, Template],
        shared: dict[str, int],
        modules: Descriptors,
    ) -> None:
        name, module = site.taking.name, site.taking.module
        made = {}
        with Descriptors() as programs, Descriptors() as links:
            for role, template in roles.items():
                program = shared.get(role)
                if program is None:
                    program = programs.add(self._clone(template, role, site, modules))
                    made[role] = program
                if self._way.name == "fentry":
                    links.add(attaching.typed(program))
                else:
                    attaching.kprobe(
                        links,
                        f"{module}:{name}" if module else name,
                        program,
                        returns=role == "return",
                        cookie=cookie(site, Role.ENTRY) if shared else None,
                    )
            self._programs.enter_context(programs.pop_all())
            self._links.enter_context(links.pop_all())
        for role, program in made.items():
            self.function_programs.setdefault(role, []).append(program)
        self.functions.add(site.index)

    def _clone(self, template: Template, role: str, site: PlannedSite, modules: Descriptors) -> int:
        """Load a function's own program for its entry or return."""
        entry = cookie(site, Role.ENTRY)
        if self._way.name != "fentry":
            return template.load(Place(ProgramType.KPROBE), entry)
        btf = modules.module_btf(site.taking.module)
        kind = AttachType.FENTRY if role == "entry" else AttachType.FEXIT
        place = Place(ProgramType.TRACING, kind, site.taking.btf_id, btf)
        if role == "entry":
            return template.load(place, entry)
        try:
            return template.load(place, cookie(site, Role.RETURN, site.taking.arguments))
        except RefusedError as error:
            if error.number != errno.EACCES:
                raise
            # The kernel does not let this function's result be read.
            return template.load(place, cookie(site, Role.RETURN, _NO_RESULT))

    def detach(self) -> None:
        """Let no life begin any more, then detach all programs; the ring stays readable."""
        if self._mappings and self._object is not None:
            closed = follow_structs.FOLLOW_NUMBERS.ctype()
            self._object.put("bt_follow_numbers", SECTION, closed)
        super().detach()

    def close(self) -> None:
        self._lives, self._hits = np.empty(0, _LIFE), np.empty(0, SITE_ENTRY)
        while self._mappings:
            self._mappings.pop().close()
        self._tracepoints.clear()
        self.function_programs.clear()
        super().close()

    def drain(self) -> list[Segment]:
        """Copy out all complete records, and those of long lives that ended (--slower)."""
        if self._ring is None:
            return []
        self.forget_idle(time.monotonic_ns())
        return self._ring.drain(self.take_kept())

    def _free(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._opened().put("bt_free_lives", None, ctypes.c_uint32(slot))

    def forget_idle(self, now_ns: int) -> None:
        """End lives without a hit for a while, whose end was not seen. now_ns: CLOCK_MONOTONIC.

        Those behind a site that only a release follows, as not every release is seen, and where the
        type has no deaths at all.
        """
        if now_ns - self._looked < _LOOK_NS:
            return
        self._looked = now_ns
        lives = self._lives
        idle = now_ns - lives["touched"].astype(np.int64)
        over = (lives["last"] != 0) & (idle > _IDLE_NS)
        if not self._has_deaths:
            over |= idle > self.options.idle_ns
        bpf, slower = self._opened(), self.options.slower_ns
        for slot in np.flatnonzero(over & (lives["object"] != 0)).tolist():
            # As bt_end_life in bpf/objects.h does.
            life = lives[slot]
            key, value = ctypes.c_uint64(int(life["object"])), ctypes.c_uint32(0)
            if not bpf.get("bt_objects", key, value) or value.value != slot:
                continue
            bpf.remove("bt_objects", key)
            life["object"] = 0
            self.idle += 1
            if slower and int(life["touched"]) - int(life["born"]) >= slower:
                life["state"] = LifeState.KEPT
            else:
                life["state"] = LifeState.DROPPED
                self._free([slot])

    def take_kept(self) -> NDArray[np.void]:
        """Return the hits (n,) of SITE_ENTRY of long lives that ended; their slots become free."""
        slots = np.flatnonzero(self._lives["state"] == LifeState.KEPT).tolist()
        if not slots:
            return np.empty(0, SITE_ENTRY)
        parts = []
        for slot in slots:
            hits = self._hits[slot * KEPT_HITS : (slot + 1) * KEPT_HITS].copy()
            # Places that stayed empty hold hits of former lives.
            raw = hits.view(np.uint8).reshape(len(hits), SITE_ENTRY.itemsize)
            records = np.ascontiguousarray(raw[:, -_HIT.itemsize :]).view(_HIT)[:, 0]
            parts.append(hits[records["life"] == self._lives["life"][slot]])
        self._lives["state"][slots] = LifeState.TAKEN
        self._free(slots)
        return np.concatenate(parts)

    def counts(self) -> dict[str, int]:
        """Return totals of struct bt_follow_counts by name; none unless open."""
        if not self._mappings or self._object is None:
            return {}
        kind = follow_structs.FOLLOW_COUNTS.ctype
        rows = per_cpu(self._object, "bt_follow_counts", ctypes.c_uint32(0), kind)
        totals = {name: sum(int(getattr(row, name)) for row in rows) for name in _COUNTS}
        return {**totals, "idle": self.idle}

    def runs(self) -> int | None:
        """Return about how often programs ran since open, most of them for other objects."""
        return self.counts().get("runs", 0)

    def end_facts(self) -> End:
        return {"sites": {"follow": self.counts()}}

    def backend_facts(self) -> BackendFacts:
        options = self.options
        follow = self.plan.facts()
        follow["every"], follow["max"] = options.every, options.at_once
        follow["slower_ns"] = options.slower_ns
        return {
            **super().backend_facts(),
            "sites": {"follow": follow},
        }

    def programs(self) -> list[ProgramInfo]:
        """Return the programs, those of functions summed up by what they are for."""
        found = []
        programs = [(f"{self._way.name} {r}", "", p) for r, p in self.function_programs.items()]
        programs += [(f"typed {name}", name, [p]) for name, p in self._tracepoints.items()]
        for name, tracepoint, descriptors in programs:
            program = ProgramInfo(name, _LETTER, tracepoint, True)
            found.append(program.counted(*map(program_info, descriptors)))
        return found


# Beside the block layer's events


def follow_beside(
    block: Probes, options: FollowOptions, filters: Filters, devices: Sequence[tuple[int, int]]
) -> Probes:
    """Return probes that record what `block` does, and follow what `options` say; not open yet.

    filters: those on tasks hold for what is followed too. Raises TraceError: it cannot be followed.
    """
    if block.backend != "core":
        raise ProbeError("--follow needs the core backend, and a kernel with type information")
    plan, way = planned(options.struct, options.way, options.max_functions)
    # Objects name disks alone, so with a partition those of the whole disk are followed.
    disks = list(dict.fromkeys((disk, 0) for disk, _ in devices))
    return cast(Probes, JoinedProbes(block, FollowProbes(plan, way, options, filters, disks)))


class JoinedProbes:
    """Two backends as one `Probes`; what is not here is the block layer's alone."""

    site_stacks = True
    waker = None
    """The ring of followed objects wakes nobody."""

    def __init__(self, block: Probes, follow: FollowProbes) -> None:
        self._block, self._follow = block, follow

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)

    def path_runs(self) -> PathRuns:
        runs = self._block.path_runs()
        return replace(runs, by_part={**runs.by_part, PART: self._follow.runs() or 0})

    def open(self) -> None:
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

    def fresh_stacks(self) -> dict[str, dict[int, NDArray[Any]]]:
        return {**self._block.fresh_stacks(), **self._follow.fresh_stacks()}

    def short_of_memory(self) -> str:
        found = (self._block.short_of_memory(), self._follow.short_of_memory())
        return "; ".join(message for message in found if message)

    def list_cgroup(self, number: int, wanted: bool) -> None:
        self._block.list_cgroup(number, wanted)
        self._follow.list_cgroup(number, wanted)
