# SPDX-License-Identifier: Apache-2.0
"""Figures of the timed system calls of a log, by the calls' names.

Calls that did no I/O are in the log only if they took long (`record --call-over`), as a read of a
pipe does. They are counted apart, so that they do not hide the calls that did I/O.
"""

import numpy as np

from biotrail.converters.analysis.distributions.call_figures import (
    CALL_PARTS,
    CallFigures,
    coded,
    named,
)
from biotrail.converters.analysis.report.figures import StageTimes, Summary
from biotrail.converters.analysis.report.tree import CallReport
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles


def report_of(name: str, io: bool, figures: CallFigures) -> CallReport:
    """Return the report of the calls of one name that did I/O (`io`), or of those that did none.

    Shares are of the time of all these calls; a part that none of them has is left out.
    """
    return CallReport(
        call=name,
        io=io,
        count=figures.count,
        failed=sum(figures.errors.values()),
        errors=dict(sorted(figures.errors.items())),
        bytes=figures.bytes,
        bios=figures.bios,
        time=Summary.of(figures.time),
        parts=[
            StageTimes(part, times.sum / max(figures.time.sum, 1), Summary.of(times))
            for part in CALL_PARTS
            if (times := figures.parts.get(part)) is not None
        ],
    )


class CallsByName:
    """Figures of all timed calls, window after window."""

    def __init__(self, context: Context) -> None:
        """Start without calls. context: the log's, for its machine's names of calls."""
        self._context = context
        self._figures: dict[tuple[str, bool], CallFigures] = {}
        """(name, whether the calls did I/O) → figures."""

    def add(self, window: Lifecycles) -> None:
        """Add the calls of the log's next window, if it has any."""
        if window.path is None or not len(window.path.calls):
            return
        calls = window.path.calls
        codes = coded(calls)
        for code in np.unique(codes).tolist():
            name, io = named(code, self._context)
            figures = self._figures.setdefault((name, io), CallFigures())
            figures.add(calls.take(codes == code), name)

    def reports(self) -> list[CallReport]:
        """Return a report for each name of a call: those with I/O, then those without.

        A name can be in both. Each are sorted by the time in total, the longest first, then by
        name.
        """
        found = [report_of(name, io, one) for (name, io), one in sorted(self._figures.items())]
        return sorted(found, key=lambda call: (not call.io, -call.time.sum))
