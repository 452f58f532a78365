# SPDX-License-Identifier: Apache-2.0
"""Samples added up by what they have in common: a device and operation, a process, a CPU."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from converters.model.tables import I64, Stage

from .samples import COUNTERS, Samples
from .sketch import Distribution, add_grouped, by_group

MOST_GROUPS = 4096
"""Groups of one kind that are kept apart; what comes after them is added up as one more."""
OTHERS = -1
"""Code of that one."""
_STAGES = len(Stage)


@dataclass
class Group:
    """Bios (or requests) that have something in common."""

    counters: I64 = field(default_factory=lambda: np.zeros(len(COUNTERS), dtype=np.int64))
    """As COUNTERS."""
    statuses: Counter[int] = field(default_factory=Counter)
    """Errors by status number."""
    size: Distribution = field(default_factory=Distribution)
    """Bytes."""
    latency: Distribution = field(default_factory=Distribution)
    """ns from Q (a request's start) to the end."""
    stages: dict[int, Distribution] = field(default_factory=dict)
    """ns by Stage."""

    def __getitem__(self, name: str) -> int:
        """A counter by name."""
        return int(self.counters[COUNTERS.index(name)])

    def merge(self, other: "Group") -> None:
        """Adds another group's."""
        self.counters += other.counters
        self.statuses.update(other.statuses)
        self.size.merge(other.size)
        self.latency.merge(other.latency)
        for stage, times in other.stages.items():
            self.stages.setdefault(stage, Distribution()).merge(times)


def merged(groups: Iterable[Group]) -> Group:
    """All of them as one."""
    whole = Group()
    for group in groups:
        whole.merge(group)
    return whole


class Groups:
    """Groups by code. Memory is bounded: see MOST_GROUPS."""

    def __init__(self, most: int = MOST_GROUPS) -> None:
        self.by_code: dict[int, Group] = {}
        self._most = most

    def add(self, codes: I64, samples: Samples) -> None:
        """Adds samples; codes (int64, a row each, at least 0) say whose they are."""
        if not len(samples):
            return
        names, place = np.unique(codes, return_inverse=True)
        groups = [self._group(code) for code in names.tolist()]
        order, first = by_group(place)
        sums = np.add.reduceat(samples.counters[:, order], first, axis=1)
        for column, group in enumerate(groups):
            group.counters += sums[:, column]
        add_grouped(place, samples.size, [g.size for g in groups])
        ended = np.flatnonzero(samples.latency >= 0)
        add_grouped(place[ended], samples.latency[ended], [g.latency for g in groups])
        self._add_errors(place, samples, groups)
        self._add_stages(place, samples, groups)

    def _group(self, code: int) -> Group:
        if code not in self.by_code and len(self.by_code) >= self._most:
            code = OTHERS
        return self.by_code.setdefault(code, Group())

    @staticmethod
    def _add_errors(place: I64, samples: Samples, groups: list[Group]) -> None:
        failed = np.flatnonzero(samples.status)
        for row, status in zip(
            place[failed].tolist(), samples.status[failed].tolist(), strict=True
        ):
            groups[row].statuses[status] += 1

    @staticmethod
    def _add_stages(place: I64, samples: Samples, groups: list[Group]) -> None:
        if not len(samples.stage):
            return
        codes = place[samples.stage_owner] * _STAGES + samples.stage
        seen = np.flatnonzero(np.bincount(codes, minlength=len(groups) * _STAGES))
        into: dict[int, Distribution] = {
            code: groups[code // _STAGES].stages.setdefault(code % _STAGES, Distribution())
            for code in seen.tolist()
        }
        add_grouped(codes, samples.stage_ns, into)
