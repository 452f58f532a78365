# SPDX-License-Identifier: Apache-2.0
"""Comparison of two recordings' timed system calls: by name, with confidence intervals."""

from collections.abc import Iterator, Mapping

import numpy as np

from biotrail.converters.analysis.diff.figures import PERCENTILES, Estimate, compare, ratio, times
from biotrail.converters.analysis.diff.side import Named, Side, per_second
from biotrail.converters.analysis.diff.tree import CallDiff, Figure
from biotrail.converters.analysis.distributions.call_figures import CALL_PARTS, CallFigures
from biotrail.converters.events.tables import I64

Slots = Mapping[int, CallFigures]
"""Slot → figures of the calls of one name that returned in it."""


def call_diffs(a: Side, b: Side, confidence: float) -> list[CallDiff]:
    """Return the calls of each name compared, with their figures and numbers of calls.

    In order: names of calls that did I/O, then of calls that did none (a name can be in both, as in
    a report); in each, those with most time (on the longer side) first, equal ones by name. A name
    that one side does not have is compared, too. Empty if either recording timed no calls at all.
    confidence: of the intervals, 0 to 1.
    """
    if not a.recording.call_times().any() or not b.recording.call_times().any():
        return []
    in_a, in_b = a.recording.slots.calls.by_name, b.recording.slots.calls.by_name
    found = []
    for name in dict.fromkeys([*in_a, *in_b]):
        one, two = in_a.get(name, {}), in_b.get(name, {})
        figures = list(_figures((a, one), (b, two), confidence))
        counts = [sum(figures.count for figures in slots.values()) for slots in (one, two)]
        whole = max(sum(f.time.sum for f in slots.values()) for slots in (one, two))
        found.append((whole, CallDiff(name[0], name[1], counts[0], counts[1], figures)))
    found.sort(key=lambda item: (not item[1].io, -item[0], item[1].call))
    return [one for _, one in found]


def _figures(a: tuple[Side, Slots], b: tuple[Side, Slots], confidence: float) -> Iterator[Figure]:
    """Yield the figures of the calls of one name, each with both values and its interval.

    a, b: of each side, the calls of that name by slot; empty: it has none. `of` is "calls". Rates
    and ratios come first (stage None), then the whole time (stage "all"): mean and percentiles.
    Then come, for each part of the time that either side has (stage: the part's name, as in
    CALL_PARTS), "mean" (ns per call, 0 for calls without it) and "share" (of all calls' time).
    """
    for stage, unit, first, second in (
        *_pairs(None, _counts(*a), _counts(*b)),
        ("all", "ns", _times(*a), _times(*b)),
        *(
            pair
            for part in CALL_PARTS
            if any(part in figures.parts for _, slots in (a, b) for figures in slots.values())
            for pair in _pairs(part, _part(*a, part), _part(*b, part))
        ),
    ):
        for name in first:
            what = ("calls", stage, name, unit)
            yield compare(what, first[name], second[name], confidence)


_Units = dict[str, tuple[str, Estimate]]
"""Name of a figure → (its unit, estimate)."""


def _pairs(
    stage: str | None, a: _Units, b: _Units
) -> Iterator[tuple[str | None, str, Named, Named]]:
    """Yield (stage, unit, A's estimate by name, B's) for each figure; both have the same names."""
    for name, (unit, estimate) in a.items():
        yield stage, unit, {name: estimate}, {name: b[name][1]}


def _counts(side: Side, slots: Slots) -> _Units:
    """Return the rates and ratios of one side's calls of a name: name → (unit, estimate).

    calls_per_s ("1/s") and bytes_per_s ("bytes/s") are per the time in which calls were timed;
    failed_per_call is a "share", bios_per_call a number (unit ""). Without such calls, estimates
    have no value. slots: slot → figures of the calls that returned in it; a slot below the side's
    number of slots.
    """
    seconds = side.recording.call_times()
    count = _column(side, {slot: figures.count for slot, figures in slots.items()})
    size = _column(side, {slot: figures.bytes for slot, figures in slots.items()})
    failed = _column(side, {slot: figures.errors.total() for slot, figures in slots.items()})
    bios = _column(side, {slot: figures.bios for slot, figures in slots.items()})
    return {
        "calls_per_s": ("1/s", per_second(ratio(count, seconds, side.drawn), count)),
        "bytes_per_s": ("bytes/s", per_second(ratio(size, seconds, side.drawn), count)),
        "failed_per_call": ("share", ratio(failed, count, side.drawn)),
        "bios_per_call": ("", ratio(bios, count, side.drawn)),
    }


def _times(side: Side, slots: Slots) -> Named:
    """Return the mean and PERCENTILES of one side's calls of a name, entry to return, ns."""
    by_slot = {slot: figures.time for slot, figures in slots.items()}
    found = times(by_slot, len(side.seconds), side.drawn)
    return dict(zip(("mean", *PERCENTILES), found, strict=True))


def _part(side: Side, slots: Slots, part: str) -> _Units:
    """Return a part of the time of one side's calls: "mean" (ns per call), "share" (of all time).

    Each as (unit, estimate), without a value where there are no calls (share: or no time). Calls
    without such a part count with 0 ns. part: one of CALL_PARTS.
    """
    whole = _column(side, {slot: figures.time.sum for slot, figures in slots.items()})
    count = _column(side, {slot: figures.time.count for slot, figures in slots.items()})
    there = {
        slot: figures.parts[part].sum for slot, figures in slots.items() if part in figures.parts
    }
    ns = _column(side, there)
    return {
        "mean": ("ns", ratio(ns, count, side.drawn)),
        "share": ("share", ratio(ns, whole, side.drawn)),
    }


def _column(side: Side, values: Mapping[int, int]) -> I64:
    """Return the values of slots as int64 (slots,); 0 for others."""
    column = np.zeros(len(side.seconds), dtype=np.int64)
    for slot, value in values.items():
        column[slot] = value
    return column
