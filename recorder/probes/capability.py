# SPDX-License-Identifier: Apache-2.0
"""Checks what this machine can record, with a remedy for each lack (`biotrail doctor`)."""

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from biotrail.recorder.host import device_sysfs, devices
from biotrail.recorder.probes.file_ways import files_of, names_of, ways_of
from biotrail.recorder.probes.kernel import bpf_calls, tracefs
from biotrail.recorder.probes.kernel.btf import KernelBtf, kernel_enums, offered
from biotrail.recorder.probes.kernel.libbpf import load_library
from biotrail.recorder.probes.maps.path_maps import MEANINGS, choose_path
from biotrail.recorder.probes.programs import (
    ESSENTIAL,
    OBJECT_NAME,
    PROBES,
    STEPS,
    is_preemptible,
    object_path,
)
from biotrail.recorder.probes.rings.barriers import is_strongly_ordered
from biotrail.recorder.probes.rings.head_stores import exchanges_offered
from biotrail.recorder.probes.sites.attaching import all_ways
from biotrail.recorder.rights import capabilities, rights
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import WAYS
from biotrail.recorder.symbols.kallsyms import symbols_shown

BTF_PATH = Path("/sys/kernel/btf/vmlinux")
_LOCKDOWN = Path("/sys/kernel/security/lockdown")
LOCKED_REMEDY = "ulimit -l unlimited (LimitMEMLOCK=infinity), or add CAP_SYS_RESOURCE"
_RIGHTS_REMEDY = "run as root (sudo), or give the process CAP_BPF and CAP_PERFMON"


@dataclass(frozen=True)
class Check:
    """A line of `biotrail doctor`; without one that is `required`, nothing can be recorded."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    required: bool = True


def _optional(name: str, fine: str, problem: str = "", remedy: str = "") -> Check:
    """Return a check that need not hold. problem: "": there is none, as `fine` says."""
    return Check(name, not problem, problem or fine, remedy if problem else "", False)


class Refusal(NamedTuple):
    """Why this process may not load BPF programs for tracing."""

    reason: str
    """What it is: a clause whose subject is the process."""
    remedy: str


def refusal() -> Refusal | None:
    """Return why this process may not load BPF programs for tracing; None: it may.

    CAP_SYS_ADMIN alone suffices; otherwise CAP_BPF and CAP_PERFMON are needed: effective ones of
    the calling thread, in the host's user namespace. And bpf(2) must be let pass: seccomp filters
    of containers and security modules refuse it to processes that have these capabilities, too.
    """
    needed = () if capabilities.holds("CAP_SYS_ADMIN") else ("CAP_BPF", "CAP_PERFMON")
    if missing := [name for name in needed if not capabilities.holds(name)]:
        return Refusal(f"lacks {' and '.join(missing)}", _RIGHTS_REMEDY)
    if not capabilities.in_host_namespace():
        return Refusal(
            "has its rights in a user namespace of its own (a rootless container?), "
            "not in the host's",
            "run as the host's root, in a container that root started",
        )
    if (error := bpf_calls.refused()) is not None:
        return Refusal(
            f"may not call bpf(2), though it has the rights for that ({os.strerror(error)}): "
            "a seccomp filter or a security module refuses it",
            "in a container: a seccomp profile that lets bpf(2) pass with CAP_BPF, or "
            "--security-opt seccomp=unconfined",
        )
    return None


def require_rights() -> None:
    if found := refusal():
        raise ProbeError(f"cannot record: this process {found.reason}; {found.remedy}")


def locked_memory_problem(btf: KernelBtf) -> str | None:
    """Return why RLIMIT_MEMLOCK limits BPF maps here (before 5.11); None: it does not."""
    if btf.members("bpf_map_memory") is None or capabilities.holds("CAP_SYS_RESOURCE"):
        return None
    limit, most = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if resource.RLIM_INFINITY in (limit, most):
        return None
    return f"this kernel limits it to what a user may lock: {most >> 10} KiB"


def _essentials() -> Iterator[Check]:
    who = f"uid {os.geteuid()}"
    if found := refusal():
        yield Check("rights", False, f"{who} {found.reason}", found.remedy)
    else:
        yield Check("rights", True, f"{who} may load BPF programs")
    name = "kernel types (BTF)"
    if os.access(BTF_PATH, os.R_OK):
        yield Check(name, True, f"{BTF_PATH}, {BTF_PATH.stat().st_size} bytes")
    else:
        remedy = "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y; distributions' kernels are"
        yield Check(name, False, f"{BTF_PATH} is missing, or not readable", remedy)
    try:
        yield Check("libbpf", True, f"version {load_library().version}")
    except ProbeError as error:
        yield Check("libbpf", False, str(error), "apt-get install libbpf1 (or your system's name)")
    try:
        size = object_path().stat().st_size
        yield Check("BPF programs", True, f"{OBJECT_NAME}, {size} bytes")
    except ProbeError as error:
        yield Check("BPF programs", False, str(error), "run scripts/build-bpf, or install a wheel")


def _tracepoints(btf: KernelBtf) -> Iterator[Check]:
    without = "none needed: recorded without it"
    ops = kernel_enums(btf)["op_enum"]
    yield Check("operations", True, f"{len(ops)} known from the kernel's types")
    for probe in PROBES:
        program, reason = offered(btf, probe.tracepoint, probe.programs)
        name = f"event {probe.letter} ({probe.tracepoint})"
        required = probe.letter in ESSENTIAL
        if program:
            yield Check(name, True, f"offered, program {program}", "", required)
        else:
            remedy = "use another kernel" if required else without
            yield Check(name, False, reason, remedy, required)
    choice = choose_path(MEANINGS, btf, preemptible=False)
    for part, meaning in (MEANINGS | {"driver": f"steps of {', '.join(choice.drivers)}"}).items():
        lacking = choice.lacking.get(part, "")
        yield _optional(f"path {part}", f"offered: {meaning}", lacking, without)
    within = [(name, why) for name, why in choice.lacking.items() if name not in MEANINGS]
    within += [(f"driver {name}", why) for name, why in choice.without.items() if choice.drivers]
    for name, why in within:
        yield _optional(f"path {name}", "", why, without)


def _files_and_rings(btf: KernelBtf) -> Iterator[Check]:
    files = files_of(btf)
    ways: tuple[str, ...] = ()
    if files.recorded:
        ways = names_of(ways_of(btf, kernel_enums(btf)), files.iomap_end_io)
    if not files.recorded:
        yield _optional("files", "", files.lacking, "none needed: recorded without them")
    else:
        detail = "of the page cache, and of direct I/O " + ", ".join(WAYS[way] for way in ways)
        problem = "" if ways else "known of the page cache alone"
        remedy = "run as root or with CAP_SYSLOG, or use Linux 5.15"
        yield _optional("files", detail, problem, remedy)
    how = "programs hold it off themselves" if is_preemptible(btf) else "off in tracepoints"
    yield _optional("preemption", how)
    name = "order of rings"
    if is_strongly_ordered():
        yield _optional(name, "by the processor")
    elif exchanges_offered():
        yield _optional(name, "heads are published by exchanges, which are barriers")
    else:
        how = "by membarrier(2), which waits 13 to 41 ms before each drain: small rings lose events"
        remedy = (
            "--buffer-size 2M or more (the default is), or a kernel that compiles exchanges (5.18)"
        )
        yield _optional(name, "", how, remedy)
    problem = locked_memory_problem(btf) or ""
    yield _optional("memory for rings", "not limited by ulimit -l", problem, LOCKED_REMEDY)


def _host() -> Iterator[Check]:
    """Yield the checks of tracefs, which only bcc needs, and of the host's settings."""
    place = tracefs.mounted()
    problem = "" if place else f"{tracefs.absence()}; only the bcc backend needs it"
    yield _optional("tracefs", f"mounted at {place}", problem, tracefs.remedy())
    reason, _, remedy = (devices.masked() or "").rpartition(": ")
    yield _optional("devices", "have names", reason, remedy)
    text = device_sysfs.read(str(_LOCKDOWN))
    state = (text or "").partition("[")[2].partition("]")[0] or text
    if state is None:
        yield Check("lockdown", True, "not in this kernel, or securityfs is not mounted")
    elif state == "confidentiality":
        detail = "confidentiality: BPF may not read kernel memory"
        yield Check("lockdown", False, detail, "boot with lockdown=integrity or lockdown=none")
    else:
        yield Check("lockdown", True, state)
    detail = (
        "hidden: call stacks (--stacks) are addresses; direct I/O (--files, --file, "
        "--dir) has a file only where the call that does it is a read or write"
    )
    problem = "" if symbols_shown() else detail
    remedy = "run as root or with CAP_SYSLOG; sysctl kernel.kptr_restrict=1"
    shown = "shown: call stacks have names, and direct I/O files"
    yield _optional("kernel symbols", shown, problem, remedy)


def _settings() -> Iterator[Check]:
    path = Path("/proc/sys/kernel/unprivileged_bpf_disabled")
    meanings = {
        "0": "allowed, but tracing needs the rights above all the same",
        "1": "refused until the next boot; does not concern who has the rights above",
        "2": "refused; does not concern who has the rights above",
    }
    value = device_sysfs.read(str(path))
    detail = f"not known: {path} cannot be read"
    if value is not None:
        detail = f"{value}: {meanings.get(value, 'unknown value')}"
    yield _optional("unprivileged BPF", detail)
    path = Path("/proc/sys/net/core/bpf_jit_enable")
    value = device_sysfs.read(str(path))
    detail = "on" if value is not None else f"not known: {path} is for root"
    slow = "off: programs are interpreted, recording costs several times as much"
    problem, remedy = slow if value == "0" else "", "sysctl net.core.bpf_jit_enable=1"
    yield _optional("BPF compiler (JIT)", detail, problem, remedy)
    name = "functions (follow)"
    if refusal():
        yield _optional(name, "not known: to try is for root")
    else:
        try:
            ways = all_ways()
            there = ", ".join(way.name for way in ways if not way.reason)
            reasons = "; ".join(f"{way.name}: {way.reason}" for way in ways)
            problem = "" if there else f"tracepoints and their stacks alone ({reasons})"
            remedy = "a kernel with CONFIG_FPROBE or CONFIG_KPROBES"
            yield _optional(name, f"by {there}", problem, remedy)
        except ProbeError as error:
            yield _optional(name, "", str(error))
    missing = {lack.key for lack in rights.lacking()}
    for lack in rights.MISSING_CAPABILITIES:
        yield _optional(lack.works, "yes", str(lack) if lack.key in missing else "", lack.remedy)


def report() -> list[Check]:
    """Return the checks of all that the core backend depends on, in the order to fix them."""
    checks = [*_essentials()]
    try:
        with KernelBtf() as btf:
            checks += [*_tracepoints(btf), *_files_and_rings(btf)]
    except ProbeError as error:
        checks.append(Check("kernel types", False, str(error).splitlines()[0], "see above"))
    return [*checks, *_host(), *_settings()]


def bcc_report() -> list[Check]:
    """Return checks of the package bcc, kernel headers and tracepoints, none of them `required`."""
    from biotrail.recorder.probes.bcc import child, headers, load, source  # takes 30 ms

    found: list[Check] = []

    def add(what: str, ok: bool, detail: str, remedy: str = "") -> None:
        found.append(Check(f"bcc backend: {what}", ok, detail, remedy, False))

    package, place = child.find_bcc(), headers.find()
    add("bcc", package is not None, package or "not installed", "" if package else load.INSTALL_BCC)
    try:
        if place is not None:
            headers.resolve(place)
        lacking = "not installed" if place is None else ""
    except ProbeError as error:
        lacking = str(error)
    add("kernel headers", not lacking, lacking or str(place), headers.remedy() if lacking else "")
    if (mounted := tracefs.mounted()) is None:
        if os.geteuid() == 0 and tracefs.absence() == "not mounted":
            add("tracepoints", True, "tracefs is not mounted: recording will mount it")
        else:
            add("tracepoints", False, f"tracefs: {tracefs.absence()}", tracefs.remedy())
        return found
    try:
        formats = tracefs.read(mounted, "block", [probe.tracepoint for probe in STEPS])
    except ProbeError as error:
        add("tracepoints", False, str(error), "run as root")
        return found
    fit = [
        probe.letter
        for probe in STEPS
        if probe.tracepoint in formats and not source.lacks(probe.letter, formats[probe.tracepoint])
    ]
    detail = f"{len(fit)} of {len(STEPS)} ({''.join(fit)})"
    add("tracepoints", set(ESSENTIAL) <= set(fit), detail, "use another kernel")
    return found
