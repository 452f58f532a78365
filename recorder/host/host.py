# SPDX-License-Identifier: Apache-2.0
"""Facts of the host and its kernel for a log's header. A fact that is not known has no key."""

import os
from pathlib import Path
from typing import Any

from biotrail.recorder.host import arm_parts

_ROOT = Path("/")
_OS_RELEASE = ("etc/os-release", "usr/lib/os-release")


def facts(root: Path = _ROOT) -> dict[str, Any]:
    """Return facts of the host: {"name", "machine", "cpus", "boot_id", "os", "cpu_model", …}.

    Also "memory_bytes", "hypervisor" (Xen's), "product" and "kernel": {"release", "version"}. cpus:
    the number of configured CPUs, online or not, so that the log's CPU numbers fit. A fact that is
    not known has no key. `root`: directory with proc, sys and etc; the name, the kernel and the
    sizes are this host's in any case.
    """
    system = os.uname()
    found: dict[str, Any] = {
        "name": system.nodename,
        "machine": system.machine,
        "cpus": os.sysconf("SC_NPROCESSORS_CONF"),
        "boot_id": _text(root / "proc/sys/kernel/random/boot_id"),
        "os": _os_name(root),
        "cpu_model": _cpu_model(root),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "hypervisor": _text(root / "sys/hypervisor/type"),
        "product": _product(root),
        "kernel": {"release": system.release, "version": system.version},
    }
    return {key: value for key, value in found.items() if value is not None}


def _os_name(root: Path) -> str | None:
    """Return PRETTY_NAME of os-release(5) without quotes; None where there is none.

    The first in etc/os-release or, where that has none or cannot be read, usr/lib/os-release.
    `root`: directory with etc and usr.
    """
    for name in _OS_RELEASE:
        for line in (_text(root / name) or "").splitlines():
            key, _, value = line.partition("=")
            if key == "PRETTY_NAME":
                return value.strip().strip("\"'")
    return None


def _cpu_model(root: Path) -> str | None:
    """Return the processor's name by /proc/cpuinfo; None where it names and numbers none.

    The first "model name" (x86; arm64 lists none), else arm64's implementers and parts
    (arm_parts.processors), else the board's "Model". `root`: directory with proc.
    """
    cpuinfo = _text(root / "proc/cpuinfo") or ""
    return (
        _cpuinfo_value(cpuinfo, "model name")
        or arm_parts.processors(cpuinfo)
        or _cpuinfo_value(cpuinfo, "Model")
    )


def _cpuinfo_value(cpuinfo: str, wanted: str) -> str | None:
    """Return the stripped value of the first line `wanted : value`; None: there is no such line."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == wanted:
            return value.strip()
    return None


def _product(root: Path) -> str | None:
    """Return the machine's name by its firmware: of DMI, or the device tree's model; None: neither.

    `root`: directory with sys and proc.
    """
    by_dmi = _text(root / "sys/class/dmi/id/product_name")
    return by_dmi or (_text(root / "proc/device-tree/model") or "").strip("\0 \n") or None


def _text(path: Path) -> str | None:
    """Return the stripped text of a file; None where it is empty or cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
