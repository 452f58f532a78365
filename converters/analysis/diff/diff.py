# SPDX-License-Identifier: Apache-2.0
"""Comparison of two recordings: every figure with its difference and a confidence interval."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from biotrail.converters.analysis.blame.tree import OTHERS
from biotrail.converters.analysis.diff.figures import (
    Estimate,
    Estimates,
    Resampling,
    compare,
    ratio,
    times,
)
from biotrail.converters.analysis.diff.runs import EQUAL, A, B, Design, Run, mark
from biotrail.converters.analysis.diff.tree import (
    BlameDiff,
    CallDiff,
    DeviceDiff,
    Diff,
    Figure,
    OperationDiff,
    PairDiff,
    SideReport,
)
from biotrail.converters.analysis.distributions.call_figures import CALL_PARTS, CallFigures
from biotrail.converters.analysis.distributions.groups import Group, merged
from biotrail.converters.analysis.distributions.keys import OP_BITS, Codes
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.distributions.slots import WHOLE, Recording, Slots
from biotrail.converters.analysis.figures import as_row, with_doubtful
from biotrail.converters.analysis.report.report import STAGE_ORDER
from biotrail.converters.events.tables import I64, OP_MASK, STAGE_NAMES, Stage
from biotrail.converters.lifecycles.operations import CLEARED
from biotrail.converters.lifecycles.recorder_time import recorder_ns


def pooled(parts: Sequence[Recording], by_host: bool = False) -> Recording:
    """Return several recordings as one; a single one is returned as it is, unless by_host.

    A device is identified by its name in all parts, and with by_host by its host, too
    (`host:device`). In a part that does not have a device, the device's depth has no time, rather
    than idle time. The slots of the parts, one part after the other, are all as wide as the widest
    (to which the parts' own are widened).
    """
    if len(parts) == 1 and not by_host:
        return parts[0]
    slots = Slots(max(part.slots.width for part in parts), 0)
    devices, operations = Codes[str](), Codes[str]()
    owner: dict[int, str] = {}
    hosts: list[str] = []  # of each slot
    for part in parts:
        part.widen(slots.width)
        [host] = part.hosts
        places = {}
        for place in part.slots.places():
            name = part.device_name(place >> OP_BITS)
            dev = devices.of(f"{host}:{name}" if by_host else name)
            owner[dev] = host
            places[place] = dev << OP_BITS | operations.of(part.operation_name(place))
        slots.add_all(part.slots, len(hosts), places)
        hosts += [host] * len(part.times)
    times, of_slot = np.concatenate([part.times for part in parts]), np.array(hosts)
    return Recording(
        slots=slots,
        times=times,
        call_times=np.concatenate([part.call_times for part in parts]),
        span_ns=sum(part.span_ns for part in parts),
        begin=min((part.begin for part in parts if part.begin is not None), default=None),
        log_id="+".join(part.log_id for part in parts),
        hosts=list(dict.fromkeys(hosts)),
        kernels=list(dict.fromkeys(kernel for part in parts for kernel in part.kernels)),
        lost_records=sum(part.lost_records for part in parts),
        header={},
        end=None,
        device_name=devices.values.__getitem__,
        operation_name=lambda place: operations.values[place & OP_MASK],
        parts=list(parts),
        device_times={dev: np.where(of_slot == host, times, 0) for dev, host in owner.items()}
        if by_host
        else {},
    )


@dataclass
class Side:
    recording: Recording
    drawn: Resampling | None
    """None: the recording has too few slots for intervals, or none are wanted."""

    def column(self, values: Mapping[int, int]) -> I64:
        column = np.zeros(len(self.recording.times), dtype=np.int64)
        for slot, value in values.items():
            column[min(slot, len(column) - 1)] += value
        return column

    def times(self, stage: str, by_slot: Mapping[int, Distribution]) -> Estimates:
        found = times(by_slot, len(self.recording.times), self.drawn)
        return {(stage, name, "ns"): one for name, one in found.items()}

    def report(self) -> SideReport:
        recording, drawn = self.recording, self.drawn
        options: dict[str, list[str]] = {}
        made = [options_of(run.header) for run in recording.runs]
        for name in dict.fromkeys(name for one in made for name in one):
            options[name] = list(dict.fromkeys(one.get(name, "no") for one in made))
        length = -(-len(recording.times) // drawn.blocks) if drawn else 0
        return as_row(
            SideReport,
            recording,
            host=", ".join(recording.hosts),
            kernel=", ".join(recording.kernels),
            block_ns=length * recording.slots.width,
            blocks=drawn.blocks if drawn else 0,
            left_out=recording.slots.left_out,
            calls_ns=int(recording.call_times.sum()),
            calls_left_out=recording.slots.calls_left_out,
            pairs_left_out=recording.slots.pairs_left_out,
            runs=len(recording.runs),
            options=options,
        )


def per_second(per_ns: Estimate, ios: I64) -> Estimate:
    """Without I/Os a rate has no value: it is not 0, but not there."""
    if per_ns.value is None or not ios.any():
        return Estimate(None)
    drawn = None if per_ns.draws is None else per_ns.draws * 1e9
    return Estimate(per_ns.value * 1e9, drawn, per_ns.blocks, why=per_ns.why)


# How a recording was made, as far as that changes its figures: options of `record`.
#
# The recorder's own programs take time in the path of an I/O: a stack walk at Q makes Q2G longer.


def options_of(header: Mapping[str, Any]) -> dict[str, str]:
    """Return option of `record` → its value as text; other tools' recordings have none."""
    found: dict[str, str] = {}
    if isinstance(events := header.get("events"), dict) and events.get("set"):
        found["--events"] = str(events["set"])
    if isinstance(stacks := header.get("stacks"), dict):
        found["--stacks"] = "kernel and user" if stacks.get("user") else "kernel"
    if isinstance(header.get("files"), dict):
        found["--files"] = "yes"
    if isinstance(path := header.get("path"), dict):
        found["--path"] = ",".join(sorted(str(part) for part in path.get("parts") or ()))
    sites = header.get("sites")
    if isinstance(sites, dict) and (follow := sites.get("follow")):
        found["--follow"] = str(follow.get("type", ""))
    if isinstance(filters := header.get("filters"), dict):
        for name, value in filters.items():
            if isinstance(value, list) and value:
                specs = (one.get("spec", "") if isinstance(one, dict) else one for one in value)
                found[f"filter {name}"] = ", ".join(map(str, specs))
            elif value:
                found[f"filter {name}"] = "yes" if value is True else str(value)
    if header.get("backend") not in (None, "core"):
        found["--backend"] = str(header["backend"])
    return dict(sorted(found.items()))


DRAWS = 1000
CONFIDENCE = 0.95
_COUNTED = {"merged": "share", "split": "share", "failed": "share", "requeues": "", "tries": ""}
"""Counter that is compared per I/O → unit of that figure."""
_LEADING = ("bios", "Q2C", "mean")
"""The figure of an operation that is judged by itself."""


def devices_of(recording: Recording) -> dict[str, int]:
    """Return name → number of the devices with I/O."""
    devs = {place >> OP_BITS for place in recording.slots.places()}
    return {recording.device_name(dev): dev for dev in sorted(devs)}


def make_diff(
    of_a: Recording,
    of_b: Recording,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    draws: int = DRAWS,
    equal: Sequence[Recording] = (),
    devices: Sequence[tuple[str, str]] | None = None,
    *,
    every: bool = False,
) -> Diff:
    """Compare two recordings, each maybe of several runs.

    equal: runs of one load; with enough runs (Design.enough) nothing is drawn. devices: pairs to
    compare, by name (KeyError: no I/O); None: those in both. every: all victims.
    """
    recordings = [*of_a.runs, *of_b.runs, *equal]
    sides = [A] * len(of_a.runs) + [B] * len(of_b.runs) + [EQUAL] * len(equal)
    design = Design.of(
        [Run(side, one.hosts[0], one.begin) for side, one in zip(sides, recordings, strict=True)]
    )
    draws = 0 if design.enough else draws
    a, b = (
        Side(one, Resampling.of(len(one.times), draws, (seed, number)))
        for number, one in enumerate((of_a, of_b))
    )
    in_a, in_b = devices_of(of_a), devices_of(of_b)
    compared_devices = []
    for name_a, name_b in [(n, n) for n in in_a if n in in_b] if devices is None else devices:
        dev_a, dev_b = in_a[name_a], in_b[name_b]
        places_a, places_b = (
            {one.operation_name(p): p for p in one.slots.places() if p >> OP_BITS == dev}
            for one, dev in ((of_a, dev_a), (of_b, dev_b))
        )
        operations = [
            _operation(name, a, b, places_a.get(name), places_b.get(name), confidence)
            for name in dict.fromkeys([*places_a, *places_b])
        ]
        depths = _depths(a, dev_a), _depths(b, dev_b)
        compared_devices.append(
            DeviceDiff(
                device_a=name_a,
                device_b=name_b,
                figures=compared("device", *depths, confidence),
                operations=sorted(operations, key=lambda one: -max(one.ios_a, one.ios_b)),
            )
        )
    diff = Diff(
        confidence=confidence,
        draws=draws,
        seed=seed,
        a=a.report(),
        b=b.report(),
        devices=compared_devices,
        calls=call_diffs(a, b, confidence),
        pairs=pair_diffs(a, b, confidence),
        blame=blame_diffs(a, b, confidence, every=every),
        blame_by=of_a.slots.blame.by or None,
        only_a=[n for n in in_a if n not in in_b] if devices is None else [],
        only_b=[n for n in in_b if n not in in_a] if devices is None else [],
        equal=len(equal),
        by_runs=design.enough,
        one_after_other=design.one_after_other,
    )
    for device in diff.devices:
        for operation in device.operations:
            for figure in operation.figures:
                figure.leading = figure.what == _LEADING
    if design.enough:
        for run, recording in zip(design.runs, recordings, strict=True):
            alone = make_diff(recording, recording, draws=0, every=True)
            run.values = found = {
                name: one.a for name, _, one in alone.named() if one.a is not None
            }
            for name in (name for name, _, _ in diff.named() if name[0] == "blame"):
                if (*name[:2], "blame", WHOLE, "mean") in found:  # a culprit that was not there
                    found.setdefault(name, 0.0)
        for key_a, key_b, figure in diff.named():
            design.judge(figure, (key_a, key_b), confidence)
    for device in diff.devices:
        for operation in device.operations:
            set_aside(operation.figures)
    if design.enough:
        mark(diff.figures(), confidence)
    return diff


def _operation(
    name: str, a: Side, b: Side, place_a: int | None, place_b: int | None, confidence: float
) -> OperationDiff:
    sides, figures = ((a, place_a), (b, place_b)), []
    for of, order in (("bios", STAGE_ORDER), ("requests", (Stage.D2C,))):
        # Of requests' stages only D2C: the other ones are compared as stages of bios.
        one, two = (
            {} if place is None else getattr(side.recording.slots, of).get(place, {})
            for side, place in sides
        )
        if of == "bios":
            bios = [merged(groups.values()) for groups in (one, two)]
        every = (*one.values(), *two.values())
        seen = {stage for group in every for stage in group.stages}
        stages = [stage for stage in order if stage in seen]
        whole = {"bios": "Q2C", "requests": "all"}[of]
        if not any(group.latency.count for group in every):
            whole = ""
        if every:
            figures += compared(
                of,
                _of_ios(a, one, place_a, of, whole, stages),
                _of_ios(b, two, place_b, of, whole, stages),
                confidence,
            )
    first, second = bios
    own_a, own_b = own_times(first, a.recording), own_times(second, b.recording)
    for figure in figures:
        if figure.unit == "ns" and figure.name == "mean":
            stage = figure.stage or ""
            figure.recorder_a, figure.recorder_b = own_a.get(stage), own_b.get(stage)
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


def compared(of: str, a: Estimates, b: Estimates, confidence: float) -> list[Figure]:
    """Return each figure of both sides, in the order of A's. a, b: with the same names."""
    return [compare((of, *what), one, b[what], confidence) for what, one in a.items()]


def _of_ios(
    side: Side,
    groups: Mapping[int, Group],
    place: int | None,
    of: str,
    whole: str,
    stages: Iterable[Stage],
) -> Estimates:
    """Return rates and ratios, then times: of `whole` ("": none), of stages."""

    def count(name: str) -> I64:
        return side.column({slot: group[name] for slot, group in groups.items()})

    drawn, recording = side.drawn, side.recording
    seconds = recording.times
    if place is not None:
        seconds = recording.device_times.get(place >> OP_BITS, seconds)
    ios, size = count("ios"), count("bytes")
    length = size + sum(count(name) for name in CLEARED.values())
    found: Estimates = {
        (None, "ios_per_s", "1/s"): per_second(ratio(ios, seconds, drawn), ios),
        (None, "bytes_per_s", "bytes/s"): per_second(ratio(size, seconds, drawn), ios),
        (None, "mean_bytes", "bytes"): ratio(length, ios, drawn),
    }
    if of == "bios":
        for name, unit in _COUNTED.items():
            found[None, f"{name}_per_io", unit] = ratio(count(name), ios, drawn)
    if whole:
        found |= side.times(whole, {slot: group.latency for slot, group in groups.items()})
    for stage in stages:
        times = {slot: g.stages[stage] for slot, g in groups.items() if stage in g.stages}
        found |= side.times(STAGE_NAMES[stage], times)
    return found


def _depths(side: Side, dev: int) -> Estimates:
    found: Estimates = {}
    depths = side.recording.slots.depths.get(dev, ())
    for stage, depth in zip_longest(("Q2C", "D2C"), depths):
        time, weighted, busy = np.zeros((3, len(side.recording.times)), np.int64)
        for slot, span in (depth.spans if depth else {}).items():
            if 0 <= slot < len(time):
                time[slot], weighted[slot], busy[slot] = span.time_ns, span.depth_ns, span.busy_ns
        found[stage, "in_flight", ""] = ratio(weighted, time, side.drawn)
        found[stage, "active", "share"] = ratio(busy, time, side.drawn)
    return found


def call_diffs(a: Side, b: Side, confidence: float) -> list[CallDiff]:
    """With I/O first, then those with most time; none if either recording timed no calls."""
    if not a.recording.call_times.any() or not b.recording.call_times.any():
        return []
    in_a, in_b = a.recording.slots.calls, b.recording.slots.calls
    found = []
    for name in dict.fromkeys([*in_a, *in_b]):
        one, two = in_a.get(name, {}), in_b.get(name, {})
        seen = {part for slots in (one, two) for of in slots.values() for part in of.parts}
        parts = [part for part in CALL_PARTS if part in seen]
        figures = compared("calls", _of_calls(a, one, parts), _of_calls(b, two, parts), confidence)
        counts = [sum(figures.count for figures in slots.values()) for slots in (one, two)]
        whole = max(sum(f.time.sum for f in slots.values()) for slots in (one, two))
        found.append((whole, CallDiff(name[0], name[1], counts[0], counts[1], figures)))
    found.sort(key=lambda item: (not item[1].io, -item[0], item[1].call))
    return [one for _, one in found]


def _of_calls(side: Side, slots: Mapping[int, CallFigures], parts: Iterable[str]) -> Estimates:
    """Per the time in which calls were timed; calls without a part count with 0 ns."""
    seconds, drawn = side.recording.call_times, side.drawn
    count = side.column({slot: figures.count for slot, figures in slots.items()})
    size = side.column({slot: figures.bytes for slot, figures in slots.items()})
    failed = side.column({slot: figures.errors.total() for slot, figures in slots.items()})
    bios = side.column({slot: figures.bios for slot, figures in slots.items()})
    found: Estimates = {
        (None, "calls_per_s", "1/s"): per_second(ratio(count, seconds, drawn), count),
        (None, "bytes_per_s", "bytes/s"): per_second(ratio(size, seconds, drawn), count),
        (None, "failed_per_call", "share"): ratio(failed, count, drawn),
        (None, "bios_per_call", ""): ratio(bios, count, drawn),
        **side.times("all", {slot: figures.time for slot, figures in slots.items()}),
    }
    whole = side.column({slot: figures.time.sum for slot, figures in slots.items()})
    timed = side.column({slot: figures.time.count for slot, figures in slots.items()})
    for part in parts:
        there = {slot: of.parts[part].sum for slot, of in slots.items() if part in of.parts}
        ns = side.column(there)
        found[part, "mean", "ns"] = ratio(ns, timed, drawn)
        found[part, "share", "share"] = ratio(ns, whole, drawn)
    return found


def pair_diffs(a: Side, b: Side, confidence: float) -> list[PairDiff]:
    """Return the pairs of each name compared; a name that one side does not have is left out.

    By name, those with most time (on the longer side) first; of each name all pairs, then each
    value of --by, those with most time first.
    """
    in_a, in_b = a.recording.slots.pairs, b.recording.slots.pairs
    both = {name for name, by in in_a if not by} & {name for name, by in in_b if not by}
    whole: dict[str, int] = {}
    found = []
    for name, by in dict.fromkeys([*in_a, *in_b]):
        if name not in both:
            continue
        slots = in_a.get((name, by), {}), in_b.get((name, by), {})
        most = max(sum(one.sum for one in side.values()) for side in slots)
        counts = [sum(one.count for one in side.values()) for side in slots]
        if not by:
            whole[name] = most
        both_sides: list[Estimates] = []
        for side, latencies in zip((a, b), slots, strict=True):
            count = side.column({slot: one.count for slot, one in latencies.items()})
            rate = per_second(ratio(count, side.recording.times, side.drawn), count)
            both_sides.append({(None, "pairs_per_s", "1/s"): rate, **side.times("all", latencies)})
        figures = compared("pairs", both_sides[0], both_sides[1], confidence)
        found.append((most, PairDiff(name, by, counts[0], counts[1], figures)))
    found.sort(key=lambda row: (-whole[row[1].pair], row[1].pair, row[1].by != "", -row[0]))
    return [one for _, one in found]


MOST_VICTIMS = 8
MOST_PARTS = 8
"""Parts of a victim's time, on the side where each is longer; the rest is counted."""


def blame_diffs(a: Side, b: Side, confidence: float, *, every: bool = False) -> list[BlameDiff]:
    """Return the victims of both recordings compared, those with most time first.

    Empty unless both were blamed by the same. A culprit that is on one side alone costs nothing on
    the other. every: all victims and parts; else the first MOST_VICTIMS and MOST_PARTS.
    """
    one, two = a.recording.slots.blame, b.recording.slots.blame
    if not one.by or one.by != two.by:
        return []
    time = {
        victim: max(sum(side.parts(victim).values()) for side in (one, two))
        for victim in one.ios
        if victim in two.ios and victim != OTHERS
    }
    ranked = sorted(time, key=lambda victim: (-time[victim], victim))
    found = []
    for victim in ranked if every else ranked[:MOST_VICTIMS]:
        counts = [sum(side.ios[victim].values()) for side in (one, two)]
        means = [
            {part: ns / max(count, 1) for part, ns in side.parts(victim).items()}
            for side, count in zip((one, two), counts, strict=True)
        ]
        most = {part: max(of.get(part, 0.0) for of in means) for of in means for part in of}
        parts = sorted(most, key=lambda part: (-most[part], part))
        shown = parts if every else parts[:MOST_PARTS]
        names = (WHOLE, *shown)
        figures = compared(
            "blame", _of_victim(a, victim, names), _of_victim(b, victim, names), confidence
        )
        share = time[victim] / max(sum(time.values()), 1)
        left = len(parts) - len(shown)
        found.append(BlameDiff(victim, counts[0], counts[1], share, figures, left))
    return found


def _of_victim(side: Side, victim: str, parts: Iterable[str]) -> Estimates:
    """Return the mean of each part of a victim's time; of WHOLE all parts."""
    blame = side.recording.slots.blame
    ios = side.column(blame.ios[victim])
    of_part = {
        part: side.column(slots) for (name, part), slots in blame.waits.items() if name == victim
    }
    none = np.zeros_like(ios)
    of_part[WHOLE] = sum(of_part.values(), none)
    return {(part, "mean", "ns"): ratio(of_part.get(part, none), ios, side.drawn) for part in parts}


# Differences that the recorder's own programs make: a stack walk at Q is in Q2G.
#
# They are set aside, and subtracted from nothing: the mean of a program's runs is known, not how
# long those were that a percentile is made of.

UNLIKE = 0.25
"""Share of the larger by which the programs' times differ if the sides were recorded unlike."""
SLACK = 0.25
"""Share by which the programs may cost more than they are timed: entry, exit, caches."""


def own_times(bios: Group, recording: Recording) -> dict[str, float]:
    """Return stage, or WHOLE → mean ns of it that the recorder's programs took."""
    own = recorder_ns(run.end for run in recording.runs)
    known = {stage: own[stage] for stage in map(Stage, bios.stages) if stage in own}
    found = {STAGE_NAMES[stage]: ns for stage, ns in known.items()}
    if known and bios.latency.count:
        spent = sum(ns * bios.stages[stage].count for stage, ns in known.items())
        found[WHOLE] = spent / bios.latency.count
    return found


def set_aside(figures: Sequence[Figure]) -> None:
    """Set `by_recorder` of stages whose means differ by no more than the recorder's programs do."""
    stages = set()
    for one in figures:
        if one.recorder_a is None or one.recorder_b is None or one.difference is None:
            continue
        added = one.recorder_b - one.recorder_a
        unlike = abs(added) > UNLIKE * max(one.recorder_a, one.recorder_b)
        if unlike and 0 <= one.difference / added <= 1 + SLACK:
            stages.add((one.of, one.stage))
    for one in figures:
        if one.unit == "ns" and (one.of, one.stage) in stages:
            one.by_recorder, one.p = True, None
