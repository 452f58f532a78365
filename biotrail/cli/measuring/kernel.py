# SPDX-License-Identifier: Apache-2.0
"""What the kernel counts of each disk in sysfs, and what biotrail's program adds up in it."""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from biotrail.cli.measuring.figures import NO_TIMES, OTHER, Figures, Reading, Times, by_name
from biotrail.recorder.host import devices
from biotrail.recorder.host.device_mounts import listed
from biotrail.recorder.host.device_sysfs import read
from biotrail.recorder.probes import measuring
from biotrail.recorder.probes.measuring import Measured, Measuring
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.measure_structs import LATENCY, STAGES

SYSFS = "/sys/block"
_IN_FLIGHT = ("read", "write")
"""Fields of `inflight`; all that is no read is a write there."""
_DONE = {"read": 0, "write": 4, "discard": 11, "flush": 15}
"""Operation → its field of `stat` (Documentation/block/stat.rst)."""


@dataclass(frozen=True)
class Counts:
    device: str
    in_flight: dict[str, int]
    """`read`, `write` → requests (without requests: bios) that have begun and not ended."""
    done: dict[str, int]
    """Operation → I/Os that completed since boot; of old kernels not all operations."""


def kernel_counts(names: Iterable[str], sysfs: str = SYSFS) -> list[Counts]:
    """Return counts of the disks with these names (dm: the mapper's) that are there."""
    wanted = set(names)
    found = []
    for entry in listed(sysfs):
        name = read(f"{sysfs}/{entry}/dm/name") or entry
        if name not in wanted:
            continue
        numbers: dict[str, list[int]] = {}
        for file in ("inflight", "stat"):
            words = (read(f"{sysfs}/{entry}/{file}") or "").split()
            numbers[file] = list(map(int, words)) if all(map(str.isdecimal, words)) else []
        done = numbers["stat"]
        if not done:
            continue
        counted = {op: done[field] for op, field in _DONE.items() if field < len(done)}
        in_flight = dict(zip(_IN_FLIGHT, numbers["inflight"], strict=False))
        found.append(Counts(name, in_flight, counted))
    return sorted(found, key=lambda one: one.device)


LEAST_AGE = 0.5
"""Seconds for which a reading serves: more frequent requests cost no more look-ups."""


class KernelSums:
    """The kernel's sums."""

    def __init__(self, program: Measuring) -> None:
        self._program = program
        self._lock = threading.Lock()
        self._names: dict[int, str] = {}
        self._ops = {number: op.lower() for op, number in program.enums["op_enum"].items()}
        self._last: Reading | None = None
        self._read_at = 0.0

    def read(self) -> Reading:
        """Return figures that are at most LEAST_AGE old."""
        with self._lock:
            now = time.monotonic()
            if self._last is not None and now - self._read_at < LEAST_AGE:
                return self._last
            found = self._program.read()
            program = self._program.program()
            if new := {one.dev for one in found} - self._names.keys() - {measuring.OTHER}:
                listed = devices.snapshot(only=new)
                names = {int(one["dev"]): one.get("dm_name") or one["name"] for one in listed}
                self._names |= {dev: str(names.get(dev, dev_text(dev))) for dev in new}
            io, cpu = by_name(map(self._figures, found)), {"metrics": time.process_time()}
            misses, runs = int(program.recursion_misses), int(program.run_cnt)
            self._last = Reading(io, {"recursion": misses}, cpu, runs, int(program.run_time_ns))
            self._read_at = now
            return self._last

    def _figures(self, sums: Measured) -> Figures:
        device, op = OTHER, OTHER
        if sums.dev != measuring.OTHER:
            device = self._names[sums.dev]
        if sums.op != measuring.OTHER:
            op = self._ops.get(sums.op, f"op {sums.op}")
        times = [
            Times(int(total), tuple(counts))
            for total, counts in zip(sums.sums_ns, sums.counts.tolist(), strict=True)
        ]
        stages = {name: one for name, one in zip(STAGES, times, strict=True) if any(one.counts)}
        latency = stages.pop(LATENCY, NO_TIMES)
        return Figures(device, op, sums.ios, sums.bytes, sums.failed, latency, stages)
