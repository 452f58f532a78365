# SPDX-License-Identifier: Apache-2.0
"""Samples added up by what they have in common: a device and operation, a process, a CPU."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.samples import COUNTERS, Samples
from biotrail.converters.analysis.distributions.sketch import Distribution, add_grouped, by_group
from biotrail.converters.events.tables import I64, Stage

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


def gather(place: I64, samples: Samples, count: int) -> list[Group]:
    """A group for each place from 0 to count - 1; place: int64, each sample's."""
    groups = [Group() for _ in range(count)]
    if not len(samples):
        return groups
    order, first = by_group(place)
    used = np.flatnonzero(samples.counters.any(axis=1))
    sums = np.add.reduceat(samples.counters[used][:, order], first, axis=1)
    for column, row in enumerate(place[order[first]].tolist()):
        groups[row].counters[used] = sums[:, column]
    sized = np.flatnonzero(samples.size >= 0)
    add_grouped(place[sized], samples.size[sized], [g.size for g in groups])
    ended = np.flatnonzero(samples.latency >= 0)
    add_grouped(place[ended], samples.latency[ended], [g.latency for g in groups])
    failed = np.flatnonzero(samples.status)
    for row, status in zip(place[failed].tolist(), samples.status[failed].tolist(), strict=True):
        groups[row].statuses[status] += 1
    _add_stages(place, samples, groups)
    return groups


def _add_stages(place: I64, samples: Samples, groups: list[Group]) -> None:
    if not len(samples.stage):
        return
    codes = place[samples.stage_owner] * _STAGES + samples.stage
    seen = np.flatnonzero(np.bincount(codes))
    into = {
        code: groups[code // _STAGES].stages.setdefault(code % _STAGES, Distribution())
        for code in seen.tolist()
    }
    add_grouped(codes, samples.stage_ns, into)


class Groups:
    """Groups by code. Memory is bounded: see MOST_GROUPS."""

    def __init__(self, most: int = MOST_GROUPS) -> None:
        self.by_code: dict[int, Group] = {}
        self._most = most

    def merge(self, code: int, part: Group) -> None:
        """Adds what was gathered to the group of a code, at least 0."""
        if code not in self.by_code and len(self.by_code) >= self._most:
            code = OTHERS
        self.by_code.setdefault(code, Group()).merge(part)


def add_to_all(samples: Samples, ways: Sequence[tuple[Groups, I64]]) -> None:
    """Adds samples to several groupings at once; each with the samples' codes in it.

    What has the same codes in all of them is gathered once: that is most of the work.
    """
    if not len(samples):
        return
    place = np.zeros(len(samples), dtype=np.int64)
    for _, codes in ways:
        if (codes == codes[0]).all():
            continue
        names, own = np.unique(codes, return_inverse=True)
        # Numbers stay below the square of the samples' number.
        _, place = np.unique(place * len(names) + own, return_inverse=True)
    _, rows, place = np.unique(place, return_index=True, return_inverse=True)
    parts = gather(place, samples, len(rows))
    for groups, codes in ways:
        for code, part in zip(codes[rows].tolist(), parts, strict=True):
            groups.merge(code, part)
