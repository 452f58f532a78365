# SPDX-License-Identifier: Apache-2.0
"""Figures that the kernel adds up: they are read when they are asked for."""

import threading
import time

from biotrail.cli.measuring.figures import (
    NO_TIMES,
    OTHER,
    Cost,
    Figures,
    Losses,
    Reading,
    Times,
    by_name,
)
from biotrail.recorder.host import devices
from biotrail.recorder.probes import measuring
from biotrail.recorder.probes.measuring import Measured, Measuring
from biotrail.recorder.schema.measure_structs import LATENCY, STAGES

LEAST_AGE = 0.5
"""Seconds for which a reading serves: more frequent requests cost no more look-ups."""


class KernelSums:
    """A Source of the kernel's sums."""

    def __init__(self, program: Measuring) -> None:
        """program: entered."""
        self._program = program
        self._lock = threading.Lock()
        self._names: dict[int, str] = {}
        self._ops = {number: op.lower() for op, number in program.enums["op_enum"].items()}
        self._last: Reading | None = None
        self._read_at = 0.0

    def read(self) -> Reading:
        """See Source; at most LEAST_AGE old."""
        with self._lock:
            now = time.monotonic()
            if self._last is None or now - self._read_at >= LEAST_AGE:
                self._last, self._read_at = self._reading(), now
            return self._last

    def _reading(self) -> Reading:
        """Read the kernel's sums and counters; adds new devices to `_names`."""
        found = self._program.read()
        runs = self._program.program()
        if new := {one.dev for one in found} - self._names.keys() - {measuring.OTHER}:
            self._names.update(names_of(new))
        io = by_name(self._figures(one) for one in found)
        cost = Cost({"metrics": time.process_time()}, runs.runs, runs.run_ns)
        return Reading(io, Losses({"recursion": runs.skipped}), cost)

    def _figures(self, sums: Measured) -> Figures:
        """Return one device's and operation's figures with names."""
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


def names_of(wanted: set[int]) -> dict[int, str]:
    """Return the name of each device (dev_t), the device mapper's for dm; major:minor without."""
    listed = devices.snapshot(only=wanted)
    found = {int(one["dev"]): one.get("dm_name") or one["name"] for one in listed}
    return {dev: str(found.get(dev, f"{dev >> 20}:{dev & 0xFFFFF}")) for dev in wanted}
