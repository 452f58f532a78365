# SPDX-License-Identifier: Apache-2.0
"""What the kernel itself counts of each disk, in sysfs: I/O in flight and completed."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

SYSFS = "/sys/block"
_IN_FLIGHT = ("read", "write")
"""Fields of `inflight`; all that is no read is a write there."""
_DONE = {"read": 0, "write": 4, "discard": 11, "flush": 15}
"""Operation → its field of `stat` (Documentation/block/stat.rst)."""


@dataclass(frozen=True)
class Counts:
    """What the kernel counts of one disk."""

    device: str
    in_flight: dict[str, int]
    """`read`, `write` → requests (without requests: bios) that have begun and not ended."""
    done: dict[str, int]
    """Operation → I/Os that completed since boot; of old kernels not all operations."""


def kernel_counts(names: Iterable[str], sysfs: str = SYSFS) -> list[Counts]:
    """Return the counts of the disks with these names, sorted by name; of dm the mapper's name.

    A disk that is not there, or goes away meanwhile, is left out.
    """
    wanted = set(names)
    found = []
    for entry in _listed(sysfs):
        name = _read(f"{sysfs}/{entry}/dm/name") or entry
        if name not in wanted:
            continue
        in_flight = _numbers(f"{sysfs}/{entry}/inflight")
        done = _numbers(f"{sysfs}/{entry}/stat")
        if not done:
            continue
        counted = {op: done[field] for op, field in _DONE.items() if field < len(done)}
        found.append(Counts(name, dict(zip(_IN_FLIGHT, in_flight, strict=False)), counted))
    return sorted(found, key=lambda one: one.device)


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _read(path: str) -> str:
    """Return a file's text without blanks around it; "" where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def _numbers(path: str) -> list[int]:
    """Return the numbers of a file; [] where it cannot be read, or holds something else."""
    words = _read(path).split()
    return [int(word) for word in words] if all(map(str.isdecimal, words)) else []
