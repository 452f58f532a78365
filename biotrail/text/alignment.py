# SPDX-License-Identifier: Apache-2.0
"""Report in sentences how logs were put on one timeline: by what, and how exactly."""

from collections.abc import Sequence
from datetime import UTC, datetime

from biotrail.converters.clocks.alignment import Alignment, ByRequests, Clocks
from biotrail.text import units

Log = tuple[str, Clocks, Alignment | None]
"""Label, clocks, alignment: None for the log whose clock is the timeline."""
_LIKE = 1_000_000
"""ns: a difference of wall clocks within one boot that is not worth a note."""


def alignment_lines(logs: Sequence[Log]) -> list[str]:
    """Return a line for each log, notes on its clocks, and what is not known of them all."""
    (reference,) = [log for log in logs if log[2] is None]
    found = [f"times are those of {reference[0]}; the others lined up with it:"]
    for label, _, alignment in logs:
        if alignment is None:
            continue
        doubt = units.duration(alignment.uncertainty)
        how = f"by wall clock, within {doubt} as far as the logs tell"
        if isinstance(alignment, ByRequests):
            how = f"by requests that both recorded, within {doubt}"
        elif alignment.same_boot:
            how = "the same boot, so the same clock: exact"
        found.append(f"  {label}: {how}")
    for label, clocks, alignment in logs:
        found += [f"  note: {label}: {text}" for text in _notes(clocks, alignment, reference)]
    others = [label for label, _, alignment in logs if alignment and not alignment.same_boot]
    if others:
        found.append(
            f"  add to that how far the wall clocks of {reference[0]} and {', '.join(others)} were "
            "apart while recording, which no log shows (with NTP mostly below some ms)"
        )
    return found


def _notes(clocks: Clocks, alignment: Alignment | None, reference: Log) -> list[str]:
    """Return notes on one log's clocks: steps, drift, disagreement."""
    wall = clocks.wall
    if isinstance(alignment, ByRequests):
        return []
    if alignment is not None and alignment.same_boot:
        moved = wall.wall(wall.origin) - reference[1].wall.wall(wall.origin)
        differs = f"differs by {_signed(moved)} from the other log's"
        said = f"its wall clock {differs}: the clock was set between the two recordings"
        return [said] if abs(moved) > _LIKE else []
    found = []
    if wall.rate:
        drift = f"{abs(wall.rate) * 1e6:.3g} ppm {'fast' if wall.rate > 0 else 'slow'}"
        found.append(f"its wall clock went {drift} against its BOOTTIME, which is corrected")
    if wall.strayed:
        strayed = units.duration(wall.strayed)
        found.append(f"its clock readings deviate from a straight line by up to {strayed}")
    for step in wall.steps:  # dated by the clock as it was after all steps
        when = datetime.fromtimestamp(wall.wall(step.before) // 10**9, UTC)
        found.append(
            f"its wall clock was set by {_signed(step.size)} at {when:%Y-%m-%d %H:%M:%S}Z or up to "
            f"{units.duration(step.before - step.after)} before: the time after the last such step "
            "counts, and the time before is continued from it"
        )
    if alignment is not None:
        (begin, end), (other_begin, other_end) = clocks.times, reference[1].times
        apart = max(begin - other_end, other_begin - end)
        found += [f"no time in common, {units.duration(apart)} between"] if apart > 0 else []
    return found


def _signed(ns: int) -> str:
    return f"{'-' if ns < 0 else '+'}{units.duration(abs(ns))}"
