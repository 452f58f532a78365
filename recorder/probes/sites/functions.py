# SPDX-License-Identifier: Apache-2.0
"""Attaches programs to the entries and returns of many functions, in the way that the kernel has.

A function that the kernel refuses is left out, and named with the reason; the others are attached.
"""

import errno
import os
import resource
from collections.abc import Sequence

from biotrail.recorder.probes.kernel import bpf_calls
from biotrail.recorder.probes.kernel.btf import KernelBtf
from biotrail.recorder.probes.kernel.libbpf import BpfObject, RefusedError
from biotrail.recorder.probes.sites import attaching
from biotrail.recorder.probes.sites.attaching import (
    SESSION_CALL,
    AttachType,
    Descriptors,
    Place,
    ProgramType,
    Template,
    Way,
)
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.follow_structs import (
    SESSION_HELPER,
    SITE_PLACE_SHIFT,
    SITE_RESULT_SHIFT,
    SITE_ROLE_SHIFT,
)
from biotrail.recorder.schema.records import Role
from biotrail.recorder.sites.following import PlannedSite

TYPED = "bt_hit_typed"
_TEMPLATES = {
    "session": ("bt_hit_session",),
    "multi": ("bt_hit_entry", "bt_hit_return"),
    "fentry": (TYPED,),
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


def templates(way: Way) -> tuple[str, ...]:
    if way.name == "kprobe" and not way.cookies:
        return _COPIES
    return _TEMPLATES[way.name]


class FunctionPrograms:
    """Programs at functions; loaded and links get their descriptors."""

    def __init__(self, loaded: Descriptors, links: Descriptors) -> None:
        self._loaded, self._links = loaded, links
        self.programs: dict[str, list[int]] = {}
        """Descriptors by what they are for: "entry", "return", "entry and return"."""
        self.functions: set[int] = set()
        """Indexes of the sites that were attached."""
        self.refused: dict[str, list[str]] = {}
        """Names of functions by the reason that the kernel gave."""

    def attach(self, bpf: BpfObject, way: Way, sites: Sequence[PlannedSite]) -> None:
        """Attach programs to the entries and returns of functions.

        bpf: loaded, with `templates(way)`. Raises ProbeError: programs cannot be loaded, or nothing
        can be attached for a reason that concerns this process.
        """
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
        if way.name in ("session", "multi"):
            self._attach_many(bpf, way, sites)
        elif sites:
            self._attach_each(bpf, way, sites)

    def _load(self, role: str, template: Template, place: Place, cookie: int = 0) -> int:
        program = self._loaded.add(template.load(place, cookie))
        self.programs.setdefault(role, []).append(program)
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

    def _attach_many(self, bpf: BpfObject, way: Way, sites: Sequence[PlannedSite]) -> None:
        """Attach all sites at once; where that is refused, each half, down to refused functions."""
        if way.name == "session":
            with KernelBtf() as btf:
                call = btf.function_id(SESSION_CALL)
            if call is None:
                raise ProbeError(f"this kernel has no {SESSION_CALL}(): use another --way")
            kind = AttachType.KPROBE_SESSION
            template = Template.of(bpf, "bt_hit_session").calling(SESSION_HELPER, call)
            both = self._load("entry and return", template, Place(ProgramType.KPROBE, kind))
            programs = {both: False}  # whether it is for functions' returns
        else:
            kind = AttachType.KPROBE_MULTI
            place = Place(ProgramType.KPROBE, kind)
            entry = self._load("entry", Template.of(bpf, "bt_hit_entry"), place)
            back = self._load("return", Template.of(bpf, "bt_hit_return"), place)
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

    def _attach_each(self, bpf: BpfObject, way: Way, sites: Sequence[PlannedSite]) -> None:
        """Attach programs to each function's return, then to its entry: ends come before begins."""
        names = templates(way)
        back, entry = Template.of(bpf, names[-1]), Template.of(bpf, names[0])
        roles = {"return": back, "entry": entry}
        shared: dict[str, int] = {}
        if way.cookies:
            place = Place(ProgramType.KPROBE)
            shared = {role: self._load(role, roles[role], place) for role in ("entry", "return")}
        with Descriptors() as modules:
            for site in sites:
                try:
                    with Descriptors() as links:
                        if way.name == "fentry":
                            btf = modules.module_btf(site.taking.module)
                            self._attach_trampolines(links, entry, site, btf)
                        else:
                            self._attach_kprobes(links, roles, site, shared)
                        self._links.enter_context(links.pop_all())
                    self.functions.add(site.index)
                except (OSError, RefusedError) as error:
                    self._refuse(site, error)

    def _attach_trampolines(
        self, links: Descriptors, template: Template, site: PlannedSite, btf: int
    ) -> None:
        entry_place, return_place = (
            Place(ProgramType.TRACING, kind, site.taking.btf_id, btf)
            for kind in (AttachType.FENTRY, AttachType.FEXIT)
        )
        with Descriptors() as programs:
            try:
                result = site.taking.arguments
                back = template.load(return_place, cookie(site, Role.RETURN, result))
            except RefusedError as error:
                if error.number != errno.EACCES:
                    raise
                # The kernel does not let this function's result be read.
                back = template.load(return_place, cookie(site, Role.RETURN, _NO_RESULT))
            links.add(attaching.typed(programs.add(back)))
            entry = programs.add(template.load(entry_place, cookie(site, Role.ENTRY)))
            links.add(attaching.typed(entry))
            self._loaded.enter_context(programs.pop_all())
        self.programs.setdefault("return", []).append(back)
        self.programs.setdefault("entry", []).append(entry)

    def _attach_kprobes(
        self,
        links: Descriptors,
        roles: dict[str, Template],
        site: PlannedSite,
        shared: dict[str, int],
    ) -> None:
        """shared: programs that serve all functions, told apart by their cookies; else none."""
        module, value = site.taking.module, cookie(site, Role.ENTRY)
        name = f"{module}:{site.taking.name}" if module else site.taking.name
        for role, template in roles.items():
            program = shared.get(role)
            if program is None:
                program = self._load(role, template, Place(ProgramType.KPROBE), value)
            event = links.add(attaching.kprobe_event(name, returns=role == "return"))
            if shared:
                links.add(attaching.link_event(event, program, value))
            else:
                bpf_calls.set_program(event, program)
