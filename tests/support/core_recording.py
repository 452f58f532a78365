# SPDX-License-Identifier: Apache-2.0
"""Records with the core backend while a test causes I/O, drained on a thread of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.filters.left_out import LeftOut
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.backend import ProbeConfig, ProgramInfo
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.schema.records import BLOCK_BYTES, Kind, sizes
from tests.support.core_decoder import Decoded
from tests.support.kernel_completions import KernelCompletions, Unseen, recorded

DRAIN_SECONDS = 0.005
NO_FILTERS = Filters(own_io=True)
"""These tests cause I/O in the process that records."""


class Drained:
    """Probes that are drained on a thread of its own between `start` and `finish`."""

    def __init__(self, probes: Any) -> None:
        self.probes = probes
        self.segments: list[Segment] = []
        self.lost = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._drain)

    def start(self) -> None:
        self.probes.attach()
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        self.probes.detach()
        self.segments += self.probes.drain()

    def _drain(self) -> None:
        while not self._stop.wait(DRAIN_SECONDS):
            self.segments += self.probes.drain()


class Recording(Drained):
    """What was recorded; complete once the block of `recording` was left."""

    def __init__(self, probes: CoreProbes) -> None:
        super().__init__(probes)
        self.lost_by_kind = np.zeros(256, np.int64)
        self.too_deep = 0
        self.programs: list[ProgramInfo] = []
        self.left_out = LeftOut()

    def finish(self) -> None:
        super().finish()
        self.lost_by_kind = self.probes.lost().sum(axis=(0, 1))
        self.lost = int(self.lost_by_kind.sum())
        self.too_deep = int(self.probes.too_deep().sum())
        self.programs = self.probes.programs()
        self.left_out = self.probes.left_out()

    def count_by_kind(self) -> np.ndarray:
        """Records by kind (256,), by their heads alone: of recordings too long to be decoded."""
        table, counts = sizes().tolist(), [0] * 256
        for segment in self.segments:
            data, base, at = bytes(segment.data), segment.position, 0
            while at < len(data):
                kind = data[at + 7]
                counts[kind] += 1
                at += BLOCK_BYTES - (base + at) % BLOCK_BYTES if kind == Kind.PAD else table[kind]
        return np.array(counts, dtype=np.int64)


def unseen(truth: KernelCompletions, events: Decoded) -> Unseen:
    """Return the completions since the first event that no program was run for."""
    seen = [
        recorded(e.cpu, e.time, e.dev, e.sector, e.bytes) for e in events.of(Kind.C, Kind.LIGHT)
    ]
    return truth.unseen(seen, events.events[0].time)


@contextmanager
def recording(
    events: str = "all",
    devices: list[tuple[int, int]] | None = None,
    ring_bytes: int | None = None,
    path: Path | None = None,
    filters: Filters = NO_FILTERS,
) -> Iterator[Recording]:
    """Records while its block runs."""
    config = ProbeConfig(events, devices or [], ring_bytes, filters)
    with CoreProbes(config, path) as probes:
        record = Recording(probes)
        record.start()
        try:
            yield record
        finally:
            record.finish()
