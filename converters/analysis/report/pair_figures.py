# SPDX-License-Identifier: Apache-2.0
"""Figures of pairs of events: of each pair, its values of --by, and its keys."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.groups import Series
from biotrail.converters.analysis.distributions.sketch import Distribution, add_grouped
from biotrail.converters.analysis.figures import Summary
from biotrail.converters.analysis.report.tree import PairGroup, PairInterval, PairKey, PairReport
from biotrail.converters.events.distinct import distinct, names_of
from biotrail.converters.events.tables import I64, Lifecycles
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.pair_names import PairNames

MOST_GROUPS = 1_000
"""Values of --by that have figures of their own; pairs of further ones are in the total alone."""
MOST_KEYS = 10_000
"""Keys of a pair that are counted; those of further ones are in the total alone."""
SHOWN_KEYS = 100


@dataclass
class _Figures:
    time: Distribution = field(default_factory=Distribution)
    groups: dict[int, Distribution] = field(default_factory=dict)
    keys: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """By (key0, key1): [count, sum, max], ns."""
    without_group: int = 0
    without_key: int = 0


def _distributions(place: I64, values: I64, count: int) -> list[Distribution]:
    found = [Distribution() for _ in range(count)]
    add_grouped(place, values, found)
    return found


@dataclass
class PairFigures:
    names: PairNames
    interval: int = 0
    series: Series[Distribution, tuple[int, Summary]] | None = None
    _figures: dict[int, _Figures] = field(default_factory=dict)

    def add(self, window: Lifecycles, begin: int) -> None:
        """begin: ns where the first interval begins."""
        if window.sites is None or not len(window.sites.pairs):
            return
        pairs = window.sites.pairs
        for number in names_of(pairs.pair).tolist():
            figures = self._figures.setdefault(number, _Figures())
            mine = pairs.take(pairs.pair == number)
            figures.time.add(mine.latency)
            if self.names.has_by(number):
                rows, of = distinct(mine.by)
                for (value,) in rows:
                    if value not in figures.groups and len(figures.groups) < MOST_GROUPS:
                        figures.groups[value] = Distribution()
                known = np.array([value in figures.groups for (value,) in rows], dtype=np.bool_)[of]
                figures.without_group += int((~known).sum())
                into = [figures.groups.get(value, figures.time) for (value,) in rows]
                add_grouped(of[known], mine.latency[known], into)
            keys, of = distinct(mine.key0, mine.key1)
            counts = np.bincount(of, minlength=len(keys))
            sums, most = np.zeros((2, len(keys)), np.int64)
            np.add.at(sums, of, mine.latency)
            np.maximum.at(most, of, mine.latency)
            columns = (keys, counts.tolist(), sums.tolist(), most.tolist())
            for (key0, key1), count, total, longest in zip(*columns, strict=True):
                held = figures.keys.get((key0, key1))
                if held is not None:
                    held[:] = held[0] + count, held[1] + total, max(held[2], longest)
                elif len(figures.keys) < MOST_KEYS:
                    figures.keys[key0, key1] = [count, total, longest]
                else:
                    figures.without_key += count
        if self.interval:
            if self.series is None:
                self.series = Series(
                    begin, self.interval, lambda number, time: (number, Summary.of(time))
                )
            self.series.add(
                pairs.pair.astype(np.int64),
                pairs.ended,
                window.end,
                lambda kept, place, count: _distributions(place, pairs.latency[kept], count),
            )

    def intervals(self) -> dict[int, list[PairInterval]]:
        """Return interval → the pairs that ended in it, in the header's order."""
        if self.series is None:
            return {}
        self.series.finish()
        return {
            interval: [PairInterval(self.names.name(number), time) for number, time in rows]
            for interval, rows in self.series.closed.items()
        }

    def reports(self, trace: Trace) -> list[PairReport]:
        """Return a report for each pair, in the order of the header; those that occurred or not."""
        names, found = self.names, []
        names.finish(trace.reader.end)
        for number in sorted({*range(len(names)), *self._figures}):
            figures = self._figures.get(number, _Figures())
            groups = sorted(figures.groups.items(), key=lambda item: (-item[1].sum, item[0]))
            keys = sorted(figures.keys.items(), key=lambda item: (-item[1][1], item[0]))
            report = PairReport(
                name=names.name(number),
                begin=str(names.fact(number, "begin")),
                end=str(names.fact(number, "end")),
                keys=names.fields(number),
                by=str(names.fact(number, "by")),
                time=Summary.of(figures.time),
                groups=[
                    PairGroup(names.by(number, value), value, Summary.of(times))
                    for value, times in groups
                ],
                groups_left_out=figures.without_group,
                slowest_keys=[
                    PairKey(names.key(number, *key), list(key), *counts)
                    for key, counts in keys[:SHOWN_KEYS]
                ],
                keys_known=len(figures.keys),
                keys_left_out=figures.without_key,
                unpaired=names.unpaired(number),
            )
            found.append(report)
        return found
