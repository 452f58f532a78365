# SPDX-License-Identifier: Apache-2.0
"""Attaches programs to the entries and returns of many functions, in the way that the kernel has.

A function that the kernel refuses is left out, and named with the reason; the others are attached.
"""

import errno
import os
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class FunctionSite:
    """A function to attach to.

    index: of its site in the header. flags: bits of shared.SITE_…. slot: register of the argument.
    arguments: how many it has. address: of its entry. btf_id: in the BTF of `module`.
    """

    index: int
    name: str
    module: str
    flags: int
    slot: int
    arguments: int
    address: int
    btf_id: int

    def cookie(self, role: Role, place: int, result: int) -> int:
        """Return the cookie of its program."""
        return cookie(self.index, self.flags, role, place, result)


def cookie(site: int, flags: int, role: Role, place: int, result: int) -> int:
    """Return the cookie of a program at a site, by index; place and result as shared.SITE_… say."""
    places = place << SITE_PLACE_SHIFT | result << SITE_RESULT_SHIFT
    return site | int(role) << SITE_ROLE_SHIFT | flags | places


@dataclass
class Attached:
    """What was attached: descriptors of programs by what they are for, and what was refused.

    loaded, links: descriptors of programs, and of what attaches them: closed first, with programs
    loaded.
    """

    loaded: Descriptors
    links: Descriptors
    programs: dict[str, list[int]] = field(default_factory=dict)
    """By "entry", "return", "entry and return"."""
    functions: set[int] = field(default_factory=set)
    """Indexes of the sites that were attached."""
    refused: dict[str, list[str]] = field(default_factory=dict)
    """Names of functions by the reason that the kernel gave."""

    def refuse(self, site: FunctionSite, error: OSError | RefusedError) -> None:
        """Note a refused function. Raises ProbeError if others would be refused as well."""
        number = error.number if isinstance(error, RefusedError) else error.errno or 0
        if number in _HOPELESS:
            raise ProbeError(
                f"functions cannot be attached: {os.strerror(number)} (at {site.name}, after "
                f"{len(self.functions)}); follow fewer (--max-functions) or --way typed"
            ) from error
        said = "not supported" if number == _NOT_SUPPORTED else os.strerror(number)
        reason = f"refused: {said}"
        self.refused.setdefault(reason, []).append(site.name)

    def add(self, role: str, program: int) -> None:
        """Note a program's descriptor."""
        self.programs.setdefault(role, []).append(program)


def templates(way: Way) -> tuple[str, ...]:
    """Return the names of the programs that a way needs, to be loaded with the object."""
    if way.name == "kprobe" and not way.cookies:
        return _COPIES
    return _TEMPLATES[way.name]


def allow_descriptors(functions: int) -> None:
    """Raise this process's limit of open descriptors as far as that many functions need.

    Raises ProbeError: it may not be raised so far.
    """
    needed = functions * _DESCRIPTORS_EACH + _SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, max(hard, needed)))
    except (ValueError, OSError) as error:
        raise ProbeError(
            f"{functions} functions need {needed} open files, and at most {hard} are allowed: "
            "raise it (ulimit -n), or follow fewer (--max-functions)"
        ) from error


def attach(bpf: BpfObject, way: Way, sites: Sequence[FunctionSite], attached: Attached) -> None:
    """Attach programs to the entries and returns of functions, and put them into `attached`.

    bpf: loaded, with `templates(way)`. Raises ProbeError: programs cannot be loaded, or nothing can
    be attached for a reason that concerns this process.
    """
    allow_descriptors(len(sites))
    if way.name == "session":
        _sessions(bpf, sites, attached)
    elif way.name == "multi":
        _multi(bpf, sites, attached)
    elif way.name == "fentry":
        _trampolines(bpf, sites, attached)
    elif way.name == "kprobe":
        _kprobes(bpf, way, sites, attached)


def _sessions(bpf: BpfObject, sites: Sequence[FunctionSite], attached: Attached) -> None:
    with KernelBtf() as btf:
        call = btf.function_id(SESSION_CALL)
    if call is None:
        raise ProbeError(f"this kernel has no {SESSION_CALL}(): use another --way")
    template = Template.of(bpf, "bt_hit_session").calling(SESSION_HELPER, call)
    kind = AttachType.KPROBE_SESSION
    program = attached.loaded.add(template.load(Place(ProgramType.KPROBE, kind)))
    attached.add("entry and return", program)

    def link(part: Sequence[FunctionSite], links: Descriptors) -> None:
        places = [site.address for site in part]
        links.add(attaching.functions(program, places, _cookies(part), kind))

    _attach_parts(sites, link, attached)


def _multi(bpf: BpfObject, sites: Sequence[FunctionSite], attached: Attached) -> None:
    kind = AttachType.KPROBE_MULTI
    place = Place(ProgramType.KPROBE, kind)
    entry = attached.loaded.add(Template.of(bpf, "bt_hit_entry").load(place))
    back = attached.loaded.add(Template.of(bpf, "bt_hit_return").load(place))
    attached.add("entry", entry)
    attached.add("return", back)

    def link(part: Sequence[FunctionSite], links: Descriptors) -> None:
        places, cookies = [site.address for site in part], _cookies(part)
        links.add(attaching.functions(back, places, cookies, kind, returns=True))
        links.add(attaching.functions(entry, places, cookies, kind))

    _attach_parts(sites, link, attached)


def _cookies(sites: Sequence[FunctionSite]) -> list[int]:
    return [site.cookie(Role.ENTRY, site.slot, 0) for site in sites]


def _attach_parts(
    sites: Sequence[FunctionSite],
    link: Callable[[Sequence[FunctionSite], Descriptors], None],
    attached: Attached,
) -> None:
    """Attach all sites at once; where that is refused, each half, down to the refused functions."""
    parts = [list(sites)] if sites else []
    while parts:
        part = parts.pop()
        try:
            with Descriptors() as links:
                link(part, links)
                attached.links.enter_context(links.pop_all())
            attached.functions.update(site.index for site in part)
        except OSError as error:
            if len(part) == 1 or error.errno in _HOPELESS:
                attached.refuse(part[0], error)
            else:
                half = len(part) // 2
                parts += [part[half:], part[:half]]


def _trampolines(bpf: BpfObject, sites: Sequence[FunctionSite], attached: Attached) -> None:
    """Attach copies of a program to each function's return, then to its entry."""
    template = Template.of(bpf, TYPED)
    with Descriptors() as modules:
        btfs: dict[str, int] = {"": 0}
        for site in sites:
            try:
                if site.module not in btfs:
                    btfs[site.module] = modules.add(attaching.module_btf(site.module))
                _trampoline(template, site, btfs[site.module], attached)
            except (OSError, RefusedError) as error:
                attached.refuse(site, error)


def _trampoline(template: Template, site: FunctionSite, btf: int, attached: Attached) -> None:
    entry_place = Place(ProgramType.TRACING, AttachType.FENTRY, site.btf_id, btf)
    with Descriptors() as programs, Descriptors() as links:
        back = programs.add(_returning(template, site, btf))
        links.add(attaching.typed(back))
        entry = programs.add(template.load(entry_place, site.cookie(Role.ENTRY, site.slot, 0)))
        links.add(attaching.typed(entry))
        attached.loaded.enter_context(programs.pop_all())
        attached.links.enter_context(links.pop_all())
    attached.functions.add(site.index)
    attached.add("return", back)
    attached.add("entry", entry)


def _returning(template: Template, site: FunctionSite, btf: int) -> int:
    """Load the program for a function's return, without the result where it is not readable."""
    place = Place(ProgramType.TRACING, AttachType.FEXIT, site.btf_id, btf)
    try:
        return template.load(place, site.cookie(Role.RETURN, site.slot, site.arguments))
    except RefusedError as error:
        if error.number != errno.EACCES:
            raise
        return template.load(place, site.cookie(Role.RETURN, site.slot, _NO_RESULT))


def _kprobes(bpf: BpfObject, way: Way, sites: Sequence[FunctionSite], attached: Attached) -> None:
    """Attach a kretprobe and a kprobe to each function."""
    names = zip(("entry", "return"), templates(way), strict=True)
    loaded = {role: Template.of(bpf, name) for role, name in names}
    place = Place(ProgramType.KPROBE)
    shared: dict[str, int] = {}
    if way.cookies:
        for role, template in loaded.items():
            shared[role] = attached.loaded.add(template.load(place))
            attached.add(role, shared[role])
    for site, cookie in zip(sites, _cookies(sites), strict=True):
        try:
            with Descriptors() as links:
                for role in ("return", "entry"):
                    program = shared.get(role)
                    if program is None:
                        program = attached.loaded.add(loaded[role].load(place, cookie))
                        attached.add(role, program)
                    _kprobe(site, program, cookie, role == "return", way, links)
                attached.links.enter_context(links.pop_all())
            attached.functions.add(site.index)
        except (OSError, RefusedError) as error:
            attached.refuse(site, error)


def _kprobe(
    site: FunctionSite, program: int, cookie: int, returns: bool, way: Way, kept: Descriptors
) -> None:
    name = f"{site.module}:{site.name}" if site.module else site.name
    event = kept.add(attaching.kprobe_event(name, returns=returns))
    if way.cookies:
        kept.add(attaching.link_event(event, program, cookie))
    else:
        bpf_calls.set_program(event, program)
