# SPDX-License-Identifier: Apache-2.0
"""Figures of the timed system calls of a log, by the calls' names.

Calls that did no I/O are in the log only if they took long (`record --call-over`), as a read of a
pipe does. They are counted apart, so that they do not hide the calls that did I/O.
"""

from biotrail.converters.analysis.distributions.call_figures import (
    CALL_PARTS,
    CallFigures,
    coded,
    named,
)
from biotrail.converters.analysis.figures import Summary, stage_times
from biotrail.converters.analysis.report.tree import CallReport
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.tables import Lifecycles


def report_of(name: str, io: bool, figures: CallFigures) -> CallReport:
    """Return the report of the calls of one name that did I/O (`io`), or of those that did none.

    A part's share is of the time of all these calls; its summary is over the calls that have it. A
    part that none of them has is left out. `failed` is the sum of `errors`.
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
        parts=stage_times(figures.parts, {part: part for part in CALL_PARTS}, figures.time.sum),
    )


class CallsByName:
    """Figures of all timed calls, window after window."""

    def __init__(self, context: Context) -> None:
        """Start without calls. context: the log's, for its machine's names of calls."""
        self._context = context
        self._figures: dict[tuple[str, bool], CallFigures] = {}
        """(name, whether the calls did I/O) → figures."""

    def add(self, window: Lifecycles) -> None:
        """Add the calls of the log's next window, if it has any, to the figures of their name.

        Apart by name and by whether the call did I/O (queued a bio, or waited for its own or other
        I/O). Calls whose entry is not known count, but have no time.
        """
        if window.path is None or not len(window.path.calls):
            return
        calls = window.path.calls
        codes = coded(calls)
        for code in names_of(codes).tolist():
            name, io = named(code, self._context)
            figures = self._figures.setdefault((name, io), CallFigures())
            figures.add(calls.take(codes == code), name)

    def reports(self) -> list[CallReport]:
        """Return a report for each name of a call: those with I/O, then those without.

        A name can be in both. Each are sorted by the sum of the calls' times, the largest first,
        then by name. [] if there were no calls.
        """
        found = [report_of(name, io, one) for (name, io), one in sorted(self._figures.items())]
        return sorted(found, key=lambda call: (not call.io, -call.time.sum))
