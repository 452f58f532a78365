# SPDX-License-Identifier: Apache-2.0
"""Facts of the host and its kernel for a log's header. A fact that is not known has no key."""

import os
import re
from pathlib import Path
from typing import Any

# Names of arm64 processors by the implementer and part of their MIDR_EL1, as cpuinfo lists them.
#
# arm64's /proc/cpuinfo has numbers where x86 has "model name". Only parts that run servers, boards
# or virtual machines under Linux are named here; others are shown by their numbers.

_IMPLEMENTERS = {
    0x41: "Arm", 0x42: "Broadcom", 0x43: "Cavium", 0x46: "Fujitsu", 0x48: "HiSilicon",
    0x4E: "NVIDIA", 0x50: "APM", 0x51: "Qualcomm", 0x53: "Samsung", 0x56: "Marvell",
    0x61: "Apple", 0x69: "Intel", 0x6D: "Microsoft", 0x70: "Phytium", 0xC0: "Ampere",
}  # fmt: skip

_PARTS = {
    0x41: {
        0xD03: "Cortex-A53", 0xD04: "Cortex-A35", 0xD05: "Cortex-A55", 0xD07: "Cortex-A57",
        0xD08: "Cortex-A72", 0xD09: "Cortex-A73", 0xD0A: "Cortex-A75", 0xD0B: "Cortex-A76",
        0xD0C: "Neoverse-N1", 0xD0D: "Cortex-A77", 0xD40: "Neoverse-V1", 0xD41: "Cortex-A78",
        0xD42: "Cortex-A78AE", 0xD44: "Cortex-X1", 0xD46: "Cortex-A510", 0xD47: "Cortex-A710",
        0xD48: "Cortex-X2", 0xD49: "Neoverse-N2", 0xD4A: "Neoverse-E1", 0xD4B: "Cortex-A78C",
        0xD4D: "Cortex-A715", 0xD4E: "Cortex-X3", 0xD4F: "Neoverse-V2", 0xD80: "Cortex-A520",
        0xD81: "Cortex-A720", 0xD82: "Cortex-X4", 0xD84: "Neoverse-V3", 0xD85: "Cortex-X925",
        0xD8E: "Neoverse-N3",
    },
    0x43: {0x0A1: "ThunderX", 0x0AF: "ThunderX2"},
    0x46: {0x001: "A64FX"},
    0x48: {0xD01: "Kunpeng 920"},
    0x4E: {0x004: "Carmel"},
    0x50: {0x000: "X-Gene"},
    0x51: {0x001: "Oryon", 0x804: "Kryo 4xx Gold", 0x805: "Kryo 4xx Silver", 0xC00: "Falkor"},
    0x61: {0x022: "M1 Icestorm", 0x023: "M1 Firestorm", 0x032: "M2 Blizzard",
           0x033: "M2 Avalanche"},
    0x6D: {0xD49: "Azure Cobalt 100"},
    0x70: {0x660: "FTC660", 0x662: "FTC662", 0x663: "FTC663"},
    0xC0: {0xAC3: "AmpereOne", 0xAC4: "AmpereOne A"},
}  # fmt: skip

_LINE = re.compile(r"^CPU (implementer|part)\s*:\s*0x([0-9a-f]{1,8})\s*$", re.MULTILINE)


def processors(cpuinfo: str) -> str | None:
    """Return the processors of arm64's /proc/cpuinfo, e.g. "Arm Cortex-A55 + Arm Cortex-A76".

    Each kind once; one without a known name in hexadecimal. None: no CPU has both numbers.
    """
    found: dict[str, None] = {}
    implementer = None
    for kind, digits in _LINE.findall(cpuinfo):
        if kind == "implementer":
            implementer = int(digits, 16)
        elif implementer is not None:
            maker = _IMPLEMENTERS.get(implementer, f"implementer {implementer:#04x}")
            part = int(digits, 16)
            model = _PARTS.get(implementer, {}).get(part) or f"part {part:#05x}"
            found[f"{maker} {model}"] = None
            implementer = None
    return " + ".join(found) or None


_ROOT = Path("/")
_OS_RELEASE = ("etc/os-release", "usr/lib/os-release")


def facts(root: Path = _ROOT) -> dict[str, Any]:
    """Return facts of the host, as the header's "host" and "kernel" have them.

    cpus: the number of configured CPUs, online or not, so that the log's CPU numbers fit.
    """
    system = os.uname()
    names = (_value(_text(root / name) or "", "PRETTY_NAME", "=") for name in _OS_RELEASE)
    cpuinfo = _text(root / "proc/cpuinfo") or ""
    board = (_text(root / "proc/device-tree/model") or "").strip("\0 \n")
    found: dict[str, Any] = {
        "name": system.nodename,
        "machine": system.machine,
        "cpus": os.sysconf("SC_NPROCESSORS_CONF"),
        "boot_id": _text(root / "proc/sys/kernel/random/boot_id"),
        "os": next((name.strip("\"'") for name in names if name is not None), None),
        "cpu_model": _value(cpuinfo, "model name", ":")
        or processors(cpuinfo)
        or _value(cpuinfo, "Model", ":"),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "hypervisor": _text(root / "sys/hypervisor/type"),
        "product": _text(root / "sys/class/dmi/id/product_name") or board or None,
        "kernel": {"release": system.release, "version": system.version},
    }
    return {key: value for key, value in found.items() if value is not None}


def _value(text: str, name: str, sign: str) -> str | None:
    found = re.search(rf"^[ \t]*{name}[ \t]*{sign}(.*)$", text, re.MULTILINE)
    return None if found is None else found[1].strip()


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
