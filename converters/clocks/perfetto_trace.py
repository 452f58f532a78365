# SPDX-License-Identifier: Apache-2.0
"""A log's times on the clock of a Perfetto trace that was recorded on the same boot.

CLOCK_BOOTTIME and CLOCK_MONOTONIC are one clock of the kernel, whoever reads them: what has to be
known is BOOTTIME - MONOTONIC, and that both are of one boot.
"""

from dataclasses import dataclass, replace

import numpy as np

from biotrail.converters.clocks.alignment import Alignment, Clocks
from biotrail.converters.clocks.wall_clock import SLEPT, Reading, WallClock
from biotrail.converters.inputs.log import Indexed
from biotrail.converters.inputs.perfetto.clocks import BOOTTIME, MONOTONIC, NAMES, REALTIME
from biotrail.converters.inputs.perfetto.survey import Survey
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError

_SAME_BOOT = 1_000_000_000
"""ns: by how much REALTIME - BOOTTIME of one boot may differ between two recorders: as if the wall
clock was set in between. That of two boots differs by the time from one to the other."""
FOR_EVER = 1 << 62


@dataclass(frozen=True)
class Joined:
    """A log's place on the clock of a trace of the same boot."""

    clock: int
    """The trace's primary clock: BOOTTIME or MONOTONIC, by Perfetto's ids."""
    alignment: Alignment
    """Converts times of the log."""
    within: int
    """Bound (ns) of the error of the conversion."""
    checked: bool
    """Whether the trace has clock readings to tell its boot by."""
    itself: bool = False
    """Whether the log is made of the trace's own events."""


def joined(log: str, trace: Trace, theirs: Survey) -> Joined:
    """Return how the log's times become times of the other trace's primary clock.

    log: its path, for messages; some of its chunks are read, and it can still be iterated. Raises
    ConversionError: the log has no clock readings, the trace is of another boot or kernel, has
    another clock, no times, or no time in common with the log.
    """
    own = Clocks.from_trace(log, trace)
    if theirs.primary not in (BOOTTIME, MONOTONIC):
        name = NAMES.get(theirs.primary, f"number {theirs.primary}")
        raise ConversionError(
            f"{theirs.path}: its clock is {name}, which {log} has no readings of: record it with "
            "primary_trace_clock BOOTTIME, Perfetto's default"
        )
    header = trace.context.header
    ours = {**header.get("kernel", {}), "machine": header.get("host", {}).get("machine")}
    for name in ("release", "version", "machine"):
        mine, other = str(ours.get(name) or ""), theirs.kernel.get(name, "")
        if mine and other and mine != other:
            raise ConversionError(
                f"{theirs.path} is of another machine or boot than {log}: the kernel's {name} is "
                f"{other} there, {mine} here"
            )
    checked = _refuse_other_boot(log, own, theirs)
    found = _joined(own, theirs.primary, checked)
    _refuse_other_time(log, trace, own, found, theirs)
    return found


def itself(theirs: Survey) -> Joined:
    """Return how times of a trace's ftrace events, BOOTTIME, become times of its primary clock.

    Raises ConversionError: it is another clock, and no snapshot has it beside BOOTTIME.
    """
    primary = theirs.primary
    there = [r[primary] - r[BOOTTIME] for r in theirs.readings if {primary, BOOTTIME} <= r.keys()]
    if theirs.primary != BOOTTIME and (theirs.primary != MONOTONIC or not there):
        raise ConversionError(
            f"{theirs.path}: its clock is {NAMES.get(theirs.primary, theirs.primary)}, and its "
            "block events are of BOOTTIME: convert it --alone"
        )
    moved = there[0] if theirs.primary != BOOTTIME else 0
    least = np.array([np.iinfo(np.int64).min])
    no_clock = WallClock(0, 0)
    way = Alignment(no_clock, no_clock, least, np.array([moved]), same_boot=True, span=(0, 0))
    within = max(abs(moved - other) for other in there) if moved else 0
    return Joined(theirs.primary, way, within, checked=True, itself=True)


def _refuse_other_boot(log: str, own: Clocks, theirs: Survey) -> bool:
    """Raise ConversionError where clock readings show two boots; return whether there are any.

    One boot has one REALTIME - BOOTTIME, unless its clock is set, and one BOOTTIME - MONOTONIC,
    unless it sleeps; then one of each recording's readings agree.
    """
    checked = False
    for first, second, most in ((REALTIME, BOOTTIME, _SAME_BOOT), (BOOTTIME, MONOTONIC, SLEPT)):
        there = [r[first] - r[second] for r in theirs.readings if first in r and second in r]
        here = [r.wall if first == REALTIME else r.slept for r in own.readings]
        if not there:
            continue
        apart = int(np.abs(np.subtract.outer(np.array(there), np.array(here))).min())
        if apart > most:
            clocks = f"{NAMES[first]} - {NAMES[second]}"
            raise ConversionError(
                f"{theirs.path} is of another machine or boot than {log}: {clocks} differs by "
                f"{apart / 1e9:.3f} s"
            )
        checked |= first == REALTIME
    return checked


def _joined(own: Clocks, clock: int, checked: bool) -> Joined:
    """Return the conversion to BOOTTIME, or none to MONOTONIC, which the log's times are of."""
    way = replace(own.align_to(own), same_boot=True)
    if clock == MONOTONIC:
        way = replace(way, at=way.at[:1], slept=np.zeros(1, dtype=np.int64))
        return Joined(clock, way, 0, checked)
    # Both are equal until a machine first sleeps; a reading takes one a little after the other.
    never = np.abs(way.slept) <= SLEPT
    slept = np.where(never, 0, way.slept)
    within = 0 if never.all() else max(reading.uncertainty for reading in own.readings)
    return Joined(clock, replace(way, slept=slept), within, checked)


def _refuse_other_time(log: str, trace: Trace, own: Clocks, found: Joined, theirs: Survey) -> None:
    """Raise ConversionError where the recordings have no time in common, or none is known."""
    if theirs.span is None:
        raise ConversionError(f"{theirs.path}: has no times to stand beside: nothing was recorded")
    first, last = (found.alignment.time(at) for at in _times(trace, own.readings))
    apart = max(theirs.span[0] - last, first - theirs.span[1])
    # Times on clocks of its own may lie anywhere; readings of the wall clock show the same boot.
    if apart > 0 and not (theirs.unplaced and found.checked):
        before = "ends" if first > theirs.span[1] else "begins"
        when = "before" if before == "ends" else "after"
        other = "begins" if before == "ends" else "ends"
        raise ConversionError(
            f"{theirs.path} has no time in common with {log}: it {before} {apart / 1e9:.3f} s "
            f"{when} {log} {other}"
        )


def _times(trace: Trace, readings: list[Reading]) -> tuple[int, int]:
    bounds = trace.reader.bounds() if isinstance(trace.reader, Indexed) else None
    first = readings[0].monotonic
    if bounds is None:
        return first, FOR_EVER
    return min(first, bounds[0]), max(bounds[1], readings[-1].monotonic)
