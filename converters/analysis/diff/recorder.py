# SPDX-License-Identifier: Apache-2.0
"""Differences that the recorder's own programs make: a stack walk at Q is in Q2G.

They are set aside, and subtracted from nothing: the mean of a program's runs is known, not how long
those were that a percentile is made of.
"""

from collections.abc import Iterable, Mapping

from biotrail.converters.analysis.diff.tree import Figure
from biotrail.converters.analysis.distributions.groups import Group
from biotrail.converters.events.tables import STAGE_NAMES, Stage

UNLIKE = 0.25
"""Share of the larger by which the programs' times differ if the sides were recorded unlike."""
SLACK = 0.25
"""Share by which the programs may cost more than they are timed: entry, exit, caches."""
WHOLE = "Q2C"


def own_times(bios: Group, own: Mapping[Stage, float]) -> dict[str, float]:
    """Return stage, or WHOLE → mean ns of it that the recorder's programs took.

    bios: all of an operation of one side. own: of `recorder_ns`.
    """
    known = {stage: own[stage] for stage in map(Stage, bios.stages) if stage in own}
    found = {STAGE_NAMES[stage]: ns for stage, ns in known.items()}
    if known and bios.latency.count:
        spent = sum(ns * bios.stages[stage].count for stage, ns in known.items())
        found[WHOLE] = spent / bios.latency.count
    return found


def tell(figures: Iterable[Figure], a: Mapping[str, float], b: Mapping[str, float]) -> None:
    """Set `recorder_a` and `recorder_b` of the means of stages. a, b: of `own_times`."""
    for one in figures:
        if one.unit == "ns" and one.name == "mean" and one.of in ("bios", "requests"):
            one.recorder_a, one.recorder_b = a.get(one.stage or ""), b.get(one.stage or "")


def set_aside(figures: Iterable[Figure]) -> None:
    """Set `by_recorder`, and drop `p`, of all figures of the stages whose means are explained.

    figures: of one operation.
    """
    figures = list(figures)
    stages = {(one.of, one.stage) for one in figures if _explained(one)}
    for one in figures:
        if one.unit == "ns" and (one.of, one.stage) in stages:
            one.by_recorder, one.p = True, None


def _explained(mean: Figure) -> bool:
    """Return whether the recorder's programs differ by as much as this mean, or by more."""
    if mean.recorder_a is None or mean.recorder_b is None or mean.difference is None:
        return False
    added = mean.recorder_b - mean.recorder_a
    if abs(added) <= UNLIKE * max(mean.recorder_a, mean.recorder_b):
        return False
    return 0 <= mean.difference / added <= 1 + SLACK
