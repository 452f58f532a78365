# SPDX-License-Identifier: Apache-2.0
"""What the recorder's own programs add to the stages of an I/O.

A program takes the time of its event first, and writes its records after that, so its run is in
the stage that begins with the event: the program at Q, with a stack walk if stacks are recorded, is
in Q2G. The kernel times some of the runs. Their mean is taken out of no figure: a run's length
depends on the depth of the stack, and that of a single I/O is not known.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from biotrail.converters.events.tables import Stage

LEAST_RUNS = 30
"""Runs that the kernel has to have timed for their mean to tell anything."""

_ALLOCATED, _MERGED = "Gs", "MF"
BEGUN_BY: Mapping[Stage, str] = {
    Stage.Q2G: "Q",
    Stage.Q2M: "Q",
    Stage.Q2D: "Q",
    Stage.FLUSH: "Q",
    Stage.BIO_BASED: "Q",
    Stage.PRE_FLUSH: _ALLOCATED,
    Stage.G2I: _ALLOCATED,
    Stage.G2D: _ALLOCATED,
    Stage.M2I: _MERGED,
    Stage.M2D: _MERGED,
    Stage.I2D: "I",
    Stage.D2C: "D",
    Stage.R2D: "R",
    Stage.POST_FLUSH: "C",
}
"""Stage → letters of the events that it begins with. Of a merge there is one of two."""


def recorder_ns(ends: Iterable[Mapping[str, Any] | None]) -> dict[Stage, float]:
    """Return stage → mean ns that the recorder's programs add to each such stage.

    ends: END frames of the recordings; None: there is none. Stages of which fewer than LEAST_RUNS
    runs were timed, and those that begin with no event, are absent.
    """
    runs: dict[str, list[int]] = {}
    for end in ends:
        for program in (end or {}).get("programs", ()):
            if not program.get("part"):
                sums = runs.setdefault(str(program.get("letter", "")), [0, 0])
                sums[0] += int(program["run_count"])
                sums[1] += int(program["run_ns"])
    found = {}
    for stage, letters in BEGUN_BY.items():
        known = [runs[letter] for letter in letters if letter in runs and runs[letter][0]]
        count = sum(one[0] for one in known)
        if count < LEAST_RUNS:
            continue
        if letters == _MERGED:
            found[stage] = sum(one[1] for one in known) / count
        else:
            found[stage] = sum(one[1] / one[0] for one in known)
    return found
