# SPDX-License-Identifier: Apache-2.0
"""Records pairs of events while a test causes them, drained on a thread of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from biotrail.recorder.log import Segment
from biotrail.recorder.probes.sites.pairs import PairProbes, PairReading
from biotrail.recorder.sites.declarations import READY_MADE, Event, Pair, Variant, read
from tests.support.core_decoder import Event as Recorded
from tests.support.core_decoder import walk

_SECONDS = 0.02


def declared(*names: str) -> list[Pair]:
    """Return ready-made pairs."""
    return [read(READY_MADE).pairs[name] for name in names]


def pair(begin: str, end: str, *keys: str, **variant: Any) -> Pair:
    """Return a pair as a user gives it."""
    return Pair("own", "", (Variant((Event(begin),), Event(end), keys, **variant),))


class PairRecording:
    """What was counted and recorded; complete once the block of `pairing` was left."""

    def __init__(self, probes: PairProbes) -> None:
        self.probes = probes
        self.segments: list[Segment] = []
        self.readings: list[PairReading] = []
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
        self.readings = self.probes.final
        self.lost = int(self.probes.lost().sum())

    def _drain(self) -> None:
        while not self._stop.wait(_SECONDS):
            self.segments += self.probes.drain()

    def records(self) -> list[Recorded]:
        """PAIR records by the time of their end."""
        found = [one for segment in self.segments for one in walk(segment)]
        return sorted(found, key=lambda one: one.time)


@contextmanager
def pairing(*pairs: Pair, **config: Any) -> Iterator[PairRecording]:
    """Pair events while the block runs."""
    with PairProbes(pairs, record=True, **config) as probes:
        made = PairRecording(probes)
        made.start()
        try:
            yield made
        finally:
            made.finish()
