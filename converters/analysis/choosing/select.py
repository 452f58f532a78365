# SPDX-License-Identifier: Apache-2.0
"""Windows with the chosen I/O alone: bios, and the requests that served them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.choosing.outcomes import ANY, Outcome
from biotrail.converters.events.tables import I64, Bios, Bool, Lifecycles, Requests, Tasks
from biotrail.converters.lifecycles.windows import restricted


@dataclass
class Counts:
    """Of a choice: how many there were, and how many were chosen."""

    bios: int = 0
    chosen: int = 0
    unknown: int = 0
    """Of those left out: who queued them, which was asked for, is not in the log."""


@dataclass
class Selection:
    """Windows with what a choice and an outcome mean, in the order of `Trace.lifecycles`.

    A bio is chosen by what it is itself. A request is chosen where it served a chosen bio, or,
    serving none that is known, is itself what is asked for.
    """

    choice: Choice
    outcome: Outcome = ANY
    counts: Counts = field(default_factory=Counts)
    _seen: set[int] = field(default_factory=set)

    def of(self, windows: Iterable[Lifecycles]) -> Iterator[Lifecycles]:
        """The windows. Raises ConversionError, at the end, for a device that the log has not."""
        for window in windows:
            self._seen.update(np.unique(window.bios.dev).tolist())
            yield self._restricted(window)
        self.choice.check(self._seen)

    def _restricted(self, window: Lifecycles) -> Lifecycles:
        bios = self._bios(window.bios, window.tasks)
        self._count(window.bios, bios)
        open_bios = self._bios(window.open_bios, window.tasks)
        edges, numbers = window.edges, window.bios.number[bios]
        served = edges.request[np.isin(edges.bio, numbers)]
        return restricted(
            window,
            bios,
            self._requests(window.requests, served),
            open_bios,
            self._requests(window.open_requests, window.open_bios.request[open_bios]),
        )

    def _bios(self, bios: Bios, tasks: Tasks) -> Bool:
        return np.asarray(self.choice.mask(bios, tasks) & self.outcome.bios(bios), dtype=np.bool_)

    def _requests(self, requests: Requests, served: I64) -> Bool:
        alone = self.choice.request_mask(requests) & self.outcome.requests(requests)
        alone &= requests.bios == 0
        return np.asarray(np.isin(requests.number, served) | alone, dtype=np.bool_)

    def _count(self, bios: Bios, chosen: Bool) -> None:
        self.counts.bios += len(bios)
        self.counts.chosen += int(chosen.sum())
        who = self.choice.who
        unknown = np.zeros(len(bios), dtype=np.bool_)
        if who.pids or who.comms:
            unknown |= bios.task < 0
        if who.cgroups:
            unknown |= bios.cgroup == 0
        self.counts.unknown += int((unknown & ~chosen).sum())
