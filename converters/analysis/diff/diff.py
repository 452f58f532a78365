# SPDX-License-Identifier: Apache-2.0
"""Comparison of two recordings: every figure with its difference and a confidence interval."""

from collections.abc import Iterator, Sequence

import numpy as np

from biotrail.converters.analysis.diff.blame import blame_diffs
from biotrail.converters.analysis.diff.calls import call_diffs
from biotrail.converters.analysis.diff.figures import PERCENTILES, Estimate, compare, ratio, times
from biotrail.converters.analysis.diff.pairs import pair_diffs
from biotrail.converters.analysis.diff.recorder import own_times, set_aside, tell
from biotrail.converters.analysis.diff.runs import EQUAL, A, B, Design, Key, Run, mark
from biotrail.converters.analysis.diff.side import Named, Side, per_second, runs_of
from biotrail.converters.analysis.diff.tree import (
    DeviceDiff,
    Diff,
    Figure,
    OperationDiff,
)
from biotrail.converters.analysis.distributions.depth import Depth
from biotrail.converters.analysis.distributions.groups import Group, merged
from biotrail.converters.analysis.distributions.slots import WHOLE, Recording
from biotrail.converters.analysis.figures import with_doubtful
from biotrail.converters.analysis.report.summaries import STAGE_ORDER
from biotrail.converters.events.tables import I64, STAGE_NAMES, Stage
from biotrail.converters.lifecycles.operations import CLEARED

DRAWS = 1000
CONFIDENCE = 0.95
_SHARES_OF_IOS = ("merged", "split", "requeues", "failed")
_COUNTED = {**dict.fromkeys(_SHARES_OF_IOS, "share"), "requeues": "", "tries": ""}
"""Counter that is compared per I/O → unit of that figure."""
_LEADING = ("bios", "Q2C", "mean")
"""The figure of an operation that is judged by itself."""


class Comparison:
    """Compares two recordings, A and B, both read to their end."""

    def __init__(
        self,
        a: Recording,
        b: Recording,
        confidence: float = CONFIDENCE,
        seed: int = 0,
        count: int = DRAWS,
        equal: Sequence[Recording] = (),
    ) -> None:
        """Store the two recordings, with `count` random draws of each for the intervals.

        a, b: read to their end. confidence: of the intervals, 0 to 1. seed: of the draws; the same
        seed gives the same draws. A recording of fewer than bootstrap.LEAST_BLOCKS slots has no
        draws, so its figures have no intervals. equal: runs of one load, which show how much runs
        differ. With enough runs (Design.enough) they are what is compared, and nothing is drawn.
        """
        self._design = Design.of(
            [
                Run(side, run.hosts[0], run.begin)
                for side, runs in ((A, runs_of(a)), (B, runs_of(b)), (EQUAL, equal))
                for run in runs
            ]
        )
        self._recordings = [*runs_of(a), *runs_of(b), *equal]
        count = 0 if self._design.enough else count
        self._a, self._b = Side.of(a, (seed, 0), count), Side.of(b, (seed, 1), count)
        self._confidence, self._seed, self._count = confidence, seed, count

    def devices(self) -> tuple[list[str], list[str]]:
        """Return (names in A, names in B) of the devices with I/O."""
        return list(self._a.devices()), list(self._b.devices())

    def diff(self, pairs: list[tuple[str, str]] | None = None, *, every: bool = False) -> Diff:
        """Return the comparison: each figure of A and B with its difference and interval.

        pairs: (name in A, name in B) of the devices to compare; a name without I/O raises KeyError.
        `only_a` and `only_b` are then empty. None: the devices with I/O that have the same name in
        both; the names of the others are in `only_a` and `only_b`. `calls` are compared by name
        whatever the devices; empty unless both recordings timed calls. So are pairs of events, and
        victims of blame; every: all of these, however little they waited.
        """
        in_a, in_b = self._a.devices(), self._b.devices()
        chosen = [(n, n) for n in in_a if n in in_b] if pairs is None else pairs
        given = pairs is not None
        diff = Diff(
            confidence=self._confidence,
            draws=self._count,
            seed=self._seed,
            a=self._a.report(),
            b=self._b.report(),
            devices=[self._device(a, b, in_a[a], in_b[b]) for a, b in chosen],
            calls=call_diffs(self._a, self._b, self._confidence),
            pairs=pair_diffs(self._a, self._b, self._confidence),
            blame=blame_diffs(self._a, self._b, self._confidence, every=every),
            blame_by=self._a.recording.slots.blame.by or None,
            only_a=[] if given else [n for n in in_a if n not in in_b],
            only_b=[] if given else [n for n in in_b if n not in in_a],
            equal=sum(run.side == EQUAL for run in self._design.runs),
            by_runs=self._design.enough,
            one_after_other=self._design.one_after_other,
        )
        for device in diff.devices:
            for operation in device.operations:
                for figure in operation.figures:
                    figure.leading = figure.what == _LEADING
        if self._design.enough:
            self._judge(diff)
        for device in diff.devices:
            for operation in device.operations:
                set_aside(operation.figures)
        if self._design.enough:
            mark(diff.figures(), self._confidence)
        return diff

    def _judge(self, diff: Diff) -> None:
        """Set what the runs say of each figure."""
        for run, recording in zip(self._design.runs, self._recordings, strict=True):
            run.values = found = values_of(recording)
            for name in (name for name, _, _ in diff.named() if name[0] == "blame"):
                if (*name[:2], "blame", WHOLE, "mean") in found:  # a culprit that was not there
                    found.setdefault(name, 0.0)
        for in_a, in_b, figure in diff.named():
            self._design.judge(figure, (in_a, in_b), self._confidence)

    def _device(self, name_a: str, name_b: str, a: int, b: int) -> DeviceDiff:
        """Return a device of A compared with a device of B: the depth figures, then each operation.

        name_a, name_b: names to show. a, b: the devices' numbers in A and B, as of `Side.devices`.
        Operations are those that either device has, those with most I/Os (on the busier side)
        first. For an operation that one device does not have, that side's figures have no value.
        """
        in_a, in_b = self._a.operations(a), self._b.operations(b)
        names = [*in_a, *(name for name in in_b if name not in in_a)]
        found = [self._operation(name, in_a.get(name), in_b.get(name)) for name in names]
        return DeviceDiff(
            device_a=name_a,
            device_b=name_b,
            figures=list(self._depths(a, b)),
            operations=sorted(found, key=lambda o: -max(o.ios_a, o.ios_b)),
        )

    def _depths(self, a: int, b: int) -> Iterator[Figure]:
        """Yield four figures of the I/O in flight on the devices: of bios, then of requests.

        Each time `in_flight` (mean number) and `active` (share of the time with any). `of` is
        "device", `stage` is "Q2C" (bios, Q to C) or "D2C" (requests, D to C). a, b: the devices'
        numbers in A and B.
        """
        for stage, which in (("Q2C", "queue"), ("D2C", "issued")):
            first, second = (_depth(side, dev, which) for side, dev in ((self._a, a), (self._b, b)))
            for name, unit in (("in_flight", ""), ("active", "share")):
                what = ("device", stage, name, unit)
                yield compare(what, first[name], second[name], self._confidence)

    def _operation(self, name: str, a: int | None, b: int | None) -> OperationDiff:
        """Return one operation of a device compared: its I/Os (bios) on both sides and its figures.

        name: of the operation. a, b: its place (device number << OP_BITS | operation number) in A
        and B, as of `Side.operations`; None: that side does not have the operation: its number of
        I/Os is 0, and its figures have no value.
        """
        groups_a, groups_b = _groups(self._a, a), _groups(self._b, b)
        figures = [
            compare((of, stage, figure, unit), one, two, self._confidence)
            for of, stage, unit, first, second in self._estimates(groups_a, groups_b, (a, b))
            for figure, one, two in _both(first, second)
        ]
        first, second = (merged(of["bios"].values()) for of in (groups_a, groups_b))
        tell(figures, own_times(first, self._a.recorder), own_times(second, self._b.recorder))
        return OperationDiff(
            name,
            first["ios"],
            second["ios"],
            figures,
            doubtful_a=first["doubtful"],
            doubtful_b=second["doubtful"],
            with_doubtful_a=with_doubtful(first.latency, first.doubtful),
            with_doubtful_b=with_doubtful(second.latency, second.doubtful),
        )

    def _estimates(
        self,
        a: dict[str, dict[int, Group]],
        b: dict[str, dict[int, Group]],
        places: tuple[int | None, int | None],
    ) -> Iterator[tuple[str, str | None, str, Named, Named]]:
        """Yield (of, stage, unit, A's estimates, B's estimates) of bios, then of requests.

        of: "bios" or "requests"; left out if neither side has any. First come rates and ratios,
        with stage None and units "1/s", "bytes/s", "bytes", "share" and "" (an item each, also if
        it has no figure). Then come times, unit "ns": the whole latency (stage "Q2C", of requests
        "all") and each stage by its name (of requests D2C alone), left out if neither side has a
        value. Estimates: name of the figure → estimate.

        a, b: as of _groups. places: place of the operation in A and B; None: not there.
        """
        times = self._a.times_of(places[0]), self._b.times_of(places[1])
        for of in ("bios", "requests"):
            one, two = a[of], b[of]
            if not one and not two:
                continue
            counts = _counts(self._a, one, of, times[0]), _counts(self._b, two, of, times[1])
            for unit in ("1/s", "bytes/s", "bytes", "share", ""):
                pick = [{n: e for n, (u, e) in c.items() if u == unit} for c in counts]
                yield of, None, unit, pick[0], pick[1]
            # Of requests' stages only D2C: the other ones are compared as stages of bios.
            for stage in (None, *(STAGE_ORDER if of == "bios" else (Stage.D2C,))):
                first, second = _times(self._a, one, stage), _times(self._b, two, stage)
                if any(e.value is not None for e in (*first.values(), *second.values())):
                    yield of, _stage_name(of, stage), "ns", first, second


def values_of(run: Recording) -> dict[Key, float]:
    """Return a recording's own value of each figure that it has, by its name (Diff.named)."""
    alone = Comparison(run, run, count=0).diff(every=True)
    return {name: figure.a for name, _, figure in alone.named() if figure.a is not None}


def _stage_name(of: str, stage: Stage | None) -> str:
    """Return the name of a stage; None (whole latency): "Q2C" of bios, "all" of requests."""
    if stage is not None:
        return STAGE_NAMES[stage]
    return "Q2C" if of == "bios" else "all"


def _both(a: Named, b: Named) -> Iterator[tuple[str, Estimate, Estimate]]:
    """Yield (name, A's estimate, B's estimate) for each name; both have the same names."""
    for name in a:
        yield name, a[name], b[name]


def _groups(side: Side, place: int | None) -> dict[str, dict[int, Group]]:
    """Return "bios" and "requests" → (slot → group) of a place; empty without a place."""
    slots = side.recording.slots
    if place is None:
        return {"bios": {}, "requests": {}}
    return {"bios": slots.bios(place), "requests": slots.requests(place)}


def _counts(
    side: Side, groups: dict[int, Group], of: str, seconds: I64
) -> dict[str, tuple[str, Estimate]]:
    """Return name → (unit, estimate) of the rates and ratios of one side's bios or requests.

    Names: "ios_per_s", "bytes_per_s", "mean_bytes", and for bios "COUNTER_per_io" for each COUNTER
    of _COUNTED: merged, split, requeues, failed and tries. Without I/Os estimates have no value.

    groups: slot → group of the operation's I/Os that ended in it. of: "bios" or "requests".
    seconds: length of each slot in ns (slots,), by which the rates are divided.
    """
    drawn = side.drawn
    ios, size = side.counter(groups, "ios"), side.counter(groups, "bytes")
    length = size + sum(side.counter(groups, name) for name in CLEARED.values())
    found = {
        "ios_per_s": ("1/s", per_second(ratio(ios, seconds, drawn), ios)),
        "bytes_per_s": ("bytes/s", per_second(ratio(size, seconds, drawn), ios)),
        "mean_bytes": ("bytes", ratio(length, ios, drawn)),
    }
    if of == "bios":
        for name, unit in _COUNTED.items():
            found[f"{name}_per_io"] = (unit, ratio(side.counter(groups, name), ios, drawn))
    return found


def _times(side: Side, groups: dict[int, Group], stage: Stage | None) -> Named:
    """Return the mean and the PERCENTILES of one side's times in ns: name → estimate.

    Names: "mean", "p50", "p90", "p99", "p99_9". groups: slot → group of the operation's I/Os that
    ended in it. stage: the stage whose times are taken; None: the whole latency. Estimates have no
    value if there are no such times.
    """
    by_slot = {
        slot: group.latency if stage is None else group.stages[stage]
        for slot, group in groups.items()
        if stage is None or stage in group.stages
    }
    found = times(by_slot, len(side.seconds), side.drawn)
    return dict(zip(("mean", *PERCENTILES), found, strict=True))


def _depth(side: Side, dev: int, which: str) -> Named:
    """Return one side's "in_flight" and "active" of a device: name → estimate.

    in_flight: mean number in flight. active: share of the time with any in flight. dev: the
    device's number. which: "queue" (bios, Q to C) or "issued" (requests, D to C). Estimates have no
    value if the device's depths were not kept (MOST_PLACES), or cover no time.
    """
    device = side.recording.slots.depths.get(dev)
    empty = np.zeros(len(side.seconds), dtype=np.int64)
    if device is None:
        nothing = Estimate(None)
        return {"in_flight": nothing, "active": nothing}
    depth: Depth = getattr(device, which)
    time, weighted, busy = empty.copy(), empty.copy(), empty.copy()
    for slot, span in depth.spans.items():
        if 0 <= slot < len(time):
            time[slot], weighted[slot], busy[slot] = span.time_ns, span.depth_ns, span.busy_ns
    return {
        "in_flight": ratio(weighted, time, side.drawn),
        "active": ratio(busy, time, side.drawn),
    }
