# SPDX-License-Identifier: Apache-2.0
"""Checks what this machine can record, with a remedy for each lack (`biotrail doctor`)."""

import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from biotrail.recorder.host import devices
from biotrail.recorder.probes.file_ways import files_of, ways_of
from biotrail.recorder.probes.kernel import bpf_calls, tracefs
from biotrail.recorder.probes.kernel.btf import KernelBtf, kernel_enums
from biotrail.recorder.probes.kernel.libbpf import load_library
from biotrail.recorder.probes.maps.path_maps import MEANINGS, choose_path
from biotrail.recorder.probes.programs import (
    ESSENTIAL,
    OBJECT_NAME,
    PROBES,
    Probe,
    is_preemptible,
    object_path,
    offered,
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
    """One line of `biotrail doctor`.

    remedy: what the user can do, "" if nothing is wrong or needed. required: nothing can be
    recorded unless `ok`; otherwise the recording only has less in it.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    required: bool = True


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


# Each of the following functions returns the check that it is named after.


def _rights() -> Check:
    who = f"uid {os.geteuid()}"
    if found := refusal():
        return Check("rights", False, f"{who} {found.reason}", found.remedy)
    return Check("rights", True, f"{who} may load BPF programs")


def _lacking() -> list[Check]:
    missing = {lack.key for lack in rights.lacking()}
    return [
        Check(lack.works, False, str(lack), lack.remedy, required=False)
        if lack.key in missing
        else Check(lack.works, True, "yes", required=False)
        for lack in rights.MISSING_CAPABILITIES
    ]


def _btf() -> Check:
    if not os.access(BTF_PATH, os.R_OK):
        return Check(
            "kernel types (BTF)",
            False,
            f"{BTF_PATH} is missing, or not readable",
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y; distributions' kernels are",
        )
    return Check("kernel types (BTF)", True, f"{BTF_PATH}, {BTF_PATH.stat().st_size} bytes")


def _libbpf() -> Check:
    try:
        return Check("libbpf", True, f"version {load_library().version}")
    except ProbeError as error:
        return Check("libbpf", False, str(error), "apt-get install libbpf1 (or your system's name)")


def _object() -> Check:
    try:
        path = object_path()
    except ProbeError as error:
        return Check("BPF programs", False, str(error), "run scripts/build-bpf, or install a wheel")
    return Check("BPF programs", True, f"{OBJECT_NAME}, {path.stat().st_size} bytes")


def _tracepoint(probe: Probe, btf: KernelBtf) -> Check:
    program, reason = offered(probe, btf)
    name = f"event {probe.letter} ({probe.tracepoint})"
    required = probe.letter in ESSENTIAL
    if program is not None:
        return Check(name, True, f"offered, program {program}", "", required)
    remedy = "use another kernel" if required else "none needed: recorded without it"
    return Check(name, False, reason, remedy, required)


def _path(btf: KernelBtf) -> list[Check]:
    """One check for each part; then those of drivers and of what else lacks within a part."""
    choice = choose_path(MEANINGS, btf, preemptible=False)
    remedy = "none needed: recorded without it"
    known = choice.drivers
    lacking = known.lacking if known.recorded else ()
    within = [(name, why) for name, why in choice.lacking.items() if name not in MEANINGS]
    within += [(f"driver {name}", why) for name, why in lacking]
    without = [Check(f"path {name}", False, why, remedy, required=False) for name, why in within]
    meanings = MEANINGS | {"driver": f"steps of {', '.join(known.recorded)}"}
    parts = [
        Check(f"path {part}", False, choice.lacking[part], remedy, required=False)
        if part in choice.lacking
        else Check(f"path {part}", True, f"offered: {meaning}", "", required=False)
        for part, meaning in meanings.items()
    ]
    return [*parts, *without]


def _files(btf: KernelBtf) -> Check:
    found = files_of(btf)
    if not found.recorded:
        remedy = "none needed: recorded without them"
        return Check("files", False, found.lacking, remedy, required=False)
    ways = ways_of(btf, kernel_enums(btf)).names(found.iomap_end_io)
    if not ways:
        remedy = "run as root or with CAP_SYSLOG, or use Linux 5.15"
        return Check("files", False, "known of the page cache alone", remedy, required=False)
    detail = "of the page cache, and of direct I/O " + ", ".join(WAYS[way] for way in ways)
    return Check("files", True, detail, "", required=False)


def _kernel() -> list[Check]:
    try:
        with KernelBtf() as btf:
            ops = kernel_enums(btf)["op_enum"]
            checks = [Check("operations", True, f"{len(ops)} known from the kernel's types")]
            checks += [_tracepoint(probe, btf) for probe in PROBES]
            checks += [*_path(btf), _files(btf)]
            how = "programs hold it off themselves" if is_preemptible(btf) else "off in tracepoints"
            checks += [Check("preemption", True, how, "", False), _order()]
            return [*checks, _locked_memory(btf)]
    except ProbeError as error:
        return [Check("kernel types", False, str(error).splitlines()[0], "see above")]


def _order() -> Check:
    name = "order of rings"
    if is_strongly_ordered():
        return Check(name, True, "by the processor", "", False)
    if exchanges_offered():
        return Check(name, True, "heads are published by exchanges, which are barriers", "", False)
    detail = "by membarrier(2), which waits 13 to 41 ms before each drain: small rings lose events"
    remedy = "--buffer-size 2M or more (the default is), or a kernel that compiles exchanges (5.18)"
    return Check(name, False, detail, remedy, False)


def _locked_memory(btf: KernelBtf) -> Check:
    name = "memory for rings"
    if (problem := locked_memory_problem(btf)) is None:
        return Check(name, True, "not limited by ulimit -l", "", False)
    return Check(name, False, problem, LOCKED_REMEDY, False)


def locked_memory_problem(btf: KernelBtf) -> str | None:
    """Return why RLIMIT_MEMLOCK limits BPF maps here, for the user; None: it does not.

    Kernels before 5.11 charge maps against the limit; they are known by struct bpf_map_memory.
    """
    if btf.members("bpf_map_memory") is None or capabilities.holds("CAP_SYS_RESOURCE"):
        return None
    limit, most = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if resource.RLIM_INFINITY in (limit, most):
        return None
    return f"this kernel limits it to what a user may lock: {most >> 10} KiB"


def _tracefs() -> Check:
    if (place := tracefs.mounted()) is not None:
        return Check("tracefs", True, f"mounted at {place}", "", False)
    detail = f"{tracefs.absence()}; only the bcc backend needs it"
    return Check("tracefs", False, detail, tracefs.remedy(), False)


def _devices() -> Check:
    if (why := devices.masked()) is None:
        return Check("devices", True, "have names", "", False)
    reason, _, remedy = why.rpartition(": ")
    return Check("devices", False, reason, remedy, False)


def _lockdown() -> Check:
    """Only "confidentiality" forbids BPF to read; what cannot be found out passes."""
    try:
        text = _LOCKDOWN.read_text().strip()
    except OSError:
        return Check("lockdown", True, "not in this kernel, or securityfs is not mounted")
    state = text.partition("[")[2].partition("]")[0] or text
    if state == "confidentiality":
        return Check(
            "lockdown",
            False,
            "confidentiality: BPF may not read kernel memory",
            "boot with lockdown=integrity or lockdown=none",
        )
    return Check("lockdown", True, state)


def _symbols() -> Check:
    name = "kernel symbols"
    if symbols_shown():
        return Check(name, True, "shown: call stacks have names, and direct I/O files", "", False)
    return Check(
        name,
        False,
        "hidden: call stacks (--stacks) are addresses; direct I/O (--files, --file, "
        "--dir) has a file only where the call that does it is a read or write",
        "run as root or with CAP_SYSLOG; sysctl kernel.kptr_restrict=1",
        False,
    )


def _unprivileged() -> Check:
    name, path = "unprivileged BPF", Path("/proc/sys/kernel/unprivileged_bpf_disabled")
    meanings = {
        "0": "allowed, but tracing needs the rights above all the same",
        "1": "refused until the next boot; does not concern who has the rights above",
        "2": "refused; does not concern who has the rights above",
    }
    try:
        value = path.read_text().strip()
    except OSError:
        return Check(name, True, f"not known: {path} cannot be read", "", False)
    return Check(name, True, f"{value}: {meanings.get(value, 'unknown value')}", "", False)


def _jit() -> Check:
    path = Path("/proc/sys/net/core/bpf_jit_enable")
    try:
        on = path.read_text().strip() != "0"
    except OSError:
        return Check("BPF compiler (JIT)", True, f"not known: {path} is for root", "", False)
    if on:
        return Check("BPF compiler (JIT)", True, "on", "", False)
    detail = "off: programs are interpreted, recording costs several times as much"
    return Check("BPF compiler (JIT)", False, detail, "sysctl net.core.bpf_jit_enable=1", False)


def _functions() -> Check:
    name = "functions (follow)"
    if refusal():
        return Check(name, True, "not known: to try is for root", "", False)
    try:
        ways = all_ways()
    except ProbeError as error:
        return Check(name, False, str(error), "", False)
    there = [way.name for way in ways if way.works]
    if there:
        return Check(name, True, f"by {', '.join(there)}", "", False)
    reasons = "; ".join(f"{way.name}: {way.reason}" for way in ways)
    detail = f"tracepoints and their stacks alone ({reasons})"
    return Check(name, False, detail, "a kernel with CONFIG_FPROBE or CONFIG_KPROBES", False)


def report() -> list[Check]:
    """Return the checks of all that the core backend depends on, in the order to fix them."""
    first: list[Callable[[], Check]] = [_rights, _btf, _libbpf, _object]
    others: list[Callable[[], Check]] = [_tracefs, _devices, _lockdown, _symbols]
    checks = [*(check() for check in first), *_kernel(), *(check() for check in others)]
    return [*checks, _unprivileged(), _jit(), _functions(), *_lacking()]


def possible(checks: list[Check]) -> bool:
    return all(check.ok for check in checks if check.required)
