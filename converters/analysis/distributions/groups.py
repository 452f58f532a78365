# SPDX-License-Identifier: Apache-2.0
"""Samples added up by group: by device and operation, process, CPU and the like; by interval."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from biotrail.converters.analysis.distributions.samples import COUNTERS, Samples
from biotrail.converters.analysis.distributions.sketch import (
    Distribution,
    Mergeable,
    add_grouped,
    plus,
    sum_by,
)
from biotrail.converters.events.distinct import distinct, distinct_values
from biotrail.converters.events.tables import I64, OP_MASK, Bool, Stage
from biotrail.converters.lifecycles.operations import CLEARED

MOST_GROUPS = 4096
"""Groups of one kind that are kept apart; I/O of later groups is added to one group, OTHERS."""
OTHERS = -1
"""Code of the group that holds the I/O of all groups past the first MOST_GROUPS."""
LEFT_OUT = -2
"""Code of samples that a grouping leaves out."""
_STAGES = len(Stage)


@dataclass
class OfOperation(Mergeable):
    ios: int = 0
    length: int = 0
    """Bytes of data and of ranges."""
    latency: Distribution = field(default_factory=Distribution)


@dataclass
class Group(Mergeable):
    counters: I64 = field(default_factory=lambda: np.zeros(len(COUNTERS), dtype=np.int64))
    statuses: Counter[int] = field(default_factory=Counter)
    """Number of failed bios (requests) by status: blk_status_t, or a negative errno."""
    size: Distribution = field(default_factory=Distribution)
    ranges: Distribution = field(default_factory=Distribution)
    """Bytes of the ranges of operations of CLEARED, which move no data and are not in `size`."""
    latency: Distribution = field(default_factory=Distribution)
    """ns from Q (of requests: from allocation) to the completion."""
    doubtful: Distribution = field(default_factory=Distribution)
    """Likewise of those whose latency is in doubt, which `latency` leaves out."""
    stages: dict[int, Distribution] = field(default_factory=dict)
    operations: dict[int, OfOperation] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return int(self.counters[COUNTERS.index(name)])

    @property
    def length(self) -> int:
        return sum(self[name] for name in ("bytes", *CLEARED.values()))


def merged(groups: Iterable[Group]) -> Group:
    whole = Group()
    for group in groups:
        whole.merge(group)
    return whole


def merged_by_code(*many: Mapping[int, Group]) -> dict[int, Group]:
    """No group is changed."""
    found: dict[int, Group] = {}
    for groups in many:
        for code, group in groups.items():
            found[code] = merged((found[code], group)) if code in found else group
    return found


def gather(place: I64, samples: Samples, count: int) -> list[Group]:
    """Return `count` new groups. place: index of each sample's group."""
    groups = [Group() for _ in range(count)]
    if not len(samples):
        return groups
    sums = np.zeros((count, len(COUNTERS)), np.int64)
    for name, column in samples.counters.items():
        sums[:, COUNTERS.index(name)] = sum_by(place, column, count)
    for group, row in zip(groups, sums, strict=True):
        group.counters += row
    add_grouped(place, samples.size, [g.size for g in groups], negative=False)
    if samples.ranges is not None:
        add_grouped(place, samples.ranges, [g.ranges for g in groups], negative=False)
    add_grouped(place, samples.latency, [g.latency for g in groups], negative=False)
    if "doubtful" in samples.counters:
        add_grouped(place, samples.doubtful, [g.doubtful for g in groups], negative=False)
    failed = np.flatnonzero(samples.status)
    for row, status in zip(place[failed].tolist(), samples.status[failed].tolist(), strict=True):
        groups[row].statuses[status] += 1
    codes = samples.stage.astype(np.int64)
    if count > 1:
        codes += place[samples.stage_owner] * _STAGES
    into = {
        code: groups[code // _STAGES].stages.setdefault(code % _STAGES, Distribution())
        for code in np.flatnonzero(np.bincount(codes)).tolist()
    }
    add_grouped(codes, samples.stage_ns, into)
    return groups


@dataclass
class Groups:
    """Groups by code, at most `most` of them besides OTHERS, so that memory is bounded."""

    most: int = MOST_GROUPS
    by_operation: bool = False
    by_code: dict[int, Group] = field(default_factory=dict)
    """Code → group; OTHERS (-1) once there were more codes than `most`."""

    def merge(self, code: int, part: Group) -> None:
        """Add `part` to the group of `code`, or of OTHERS where there are `most` others."""
        if code not in self.by_code and len(self.by_code) >= self.most:
            code = OTHERS
        self.by_code.setdefault(code, Group()).merge(part)


def add_to_all(samples: Samples, ways: Sequence[tuple[Groups, I64]]) -> None:
    """ways: (groups, code of each sample's group, or LEFT_OUT) of each grouping."""
    # Samples with the same code in every grouping are summed once, which is most of the work:
    # `place` numbers the distinct combinations of codes.
    if not len(samples):
        return
    place = rows = np.zeros(len(samples), dtype=np.int64)
    names = rows[:1]
    divided = any(groups.by_operation for groups, _ in ways)
    op = samples.place & OP_MASK
    for codes in (*(codes for _, codes in ways), *([op] if divided else [])):
        if (codes == codes[0]).all():
            continue
        own, _, of = distinct_values(codes)
        # Renumbering after each grouping keeps the products below len(samples) ** 2.
        names, rows, place = distinct_values(place * len(own) + of)
    rows = rows[: len(names)]
    parts = gather(place, samples, len(rows))
    for groups, codes in ways:
        for code, row, part in zip(codes[rows].tolist(), rows.tolist(), parts, strict=True):
            if code == LEFT_OUT:
                continue
            of_op = OfOperation(part["ios"], part.length, part.latency)
            part.operations = {int(op[row]): of_op} if groups.by_operation else {}
            groups.merge(code, part)


MOST_INTERVALS = 100_000
LINGER_NS = 10_000_000_000
"""ns after an interval's end at which the interval is closed."""


Figures = TypeVar("Figures")
Closed = TypeVar("Closed")


@dataclass
class Series(Generic[Figures, Closed]):
    """Figures by the interval in which what they are of ended, closed LINGER_NS after it."""

    origin: int
    interval: int
    close: Callable[[int, Figures], Closed]
    """Given a code and its figures in a closed interval, returns what `closed` keeps."""
    closed: dict[int, list[Closed]] = field(default_factory=dict)
    """Interval, counted from the origin → results of `close`, by code."""
    left_out: int = 0
    """What came after its interval was closed: a family of bios took so long to end."""
    _open: dict[tuple[int, int], Figures] = field(default_factory=dict)
    _edge: int = 0

    def add(
        self, codes: I64, ended: I64, now: int, figures: Callable[[Bool, I64, int], list[Figures]]
    ) -> None:
        """Add what a window has to the intervals in which it ended, and close old intervals.

        codes: 0 or more. ended, now (the window's end): ns. figures: returns new figures, given
        which of the n to take (mask), the place of each of these, and the number of places.
        """
        interval = np.maximum(ended - self.origin, 0) // self.interval
        kept = interval >= self._edge
        self.left_out += int((~kept).sum())
        cells, place = distinct(interval[kept], codes[kept])
        for (one, code), more in zip(cells, figures(kept, place, len(cells)), strict=True):
            self._open[one, code] = plus(self._open.get((one, code)), more)
        self.finish(max((now - LINGER_NS - self.origin) // self.interval, 0))

    def finish(self, edge: int = 1 << 62) -> None:
        """Close the intervals before that one; without it, all."""
        for interval, code in sorted(cell for cell in self._open if cell[0] < edge):
            figures = self._open.pop((interval, code))
            self.closed.setdefault(interval, []).append(self.close(code, figures))
        self._edge = max(edge, self._edge)
