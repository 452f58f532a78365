# SPDX-License-Identifier: Apache-2.0
"""Records pairs of events while a test causes them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from biotrail.recorder.probes.sites.pairs import PairProbes, PairReading
from biotrail.recorder.sites.declarations import READY_MADE, Event, Pair, Variant, read
from tests.support.core_decoder import Event as Recorded
from tests.support.core_decoder import walk
from tests.support.core_recording import Drained


def declared(*names: str) -> list[Pair]:
    return [read(READY_MADE).pairs[name] for name in names]


def pair(begin: str, end: str, *keys: str, **variant: Any) -> Pair:
    """Return a pair as a user gives it."""
    return Pair("own", "", (Variant((Event(begin),), Event(end), keys, **variant),))


class PairRecording(Drained):
    """What was counted and recorded; complete once the block of `pairing` was left."""

    readings: list[PairReading]

    def finish(self) -> None:
        super().finish()
        self.readings = self.probes.final
        self.lost = int(self.probes.lost().sum())

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
