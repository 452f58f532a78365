# SPDX-License-Identifier: Apache-2.0
"""The figures of a report that only logs of `record --path` have: calls, waits, interrupts."""

from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.analysis.report.calls.callers import Callers
from biotrail.converters.analysis.report.calls.calls import OF_CALLS, CallsByGroup, CallsByName
from biotrail.converters.analysis.report.calls.submissions import SubmissionsByOperation
from biotrail.converters.analysis.report.calls.waits import CommitsByDevice, WaitsByReason
from biotrail.converters.analysis.report.devices.completions import Completions, Drivers
from biotrail.converters.analysis.report.devices.held import HeldByLimit
from biotrail.converters.analysis.report.devices.ready import Ready
from biotrail.converters.analysis.report.tree import CompletionReport, DriverReport, Report
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles


class PathFigures:
    """Adds up the path's tables, window after window."""

    def __init__(self, context: Context, by: str | None) -> None:
        self._context = context
        self._ready = Ready()
        self._calls = CallsByName(context)
        self._groups = CallsByGroup(context, by) if by in OF_CALLS else None
        by_process = self._groups if self._groups is not None and by == "process" else None
        self._by_process = by_process or CallsByGroup(context, "process")
        self._waits = WaitsByReason(context)
        self._callers = Callers(context, self._by_process, self._waits)
        self._commits = CommitsByDevice(context)
        self._held = HeldByLimit(context)
        self._submissions = SubmissionsByOperation(context)
        self._completions = Completions()
        self._drivers = Drivers()

    def add(self, window: Lifecycles, bios: Samples) -> None:
        """Add the log's next window; one without `path` adds nothing. bios: samples of its bios."""
        self._ready.add(window, bios)
        self._calls.add(window)
        if self._groups is not None:
            self._groups.add(window)
        if self._by_process is not self._groups:
            self._by_process.add(window)
        self._waits.add(window)
        self._callers.add(window)
        self._commits.add(window)
        self._held.add(window)
        self._submissions.add(window)
        self._completions.add(window)
        self._drivers.add(window)

    def of_device(self, dev: int) -> tuple[list[CompletionReport], list[DriverReport]]:
        """Return how a device's requests were completed, and the steps of its driver."""
        return self._completions.reports(dev), self._drivers.reports(dev)

    def fill(self, report: Report) -> None:
        """Set the report's fields of the path, but those of its devices."""
        report.ready = self._ready.reports(self._context)
        report.calls = self._calls.reports()
        report.call_groups = self._groups.reports() if self._groups is not None else []
        report.waits, report.waits_dropped = self._waits.reports(), self._waits.dropped
        report.callers = self._callers.reports()
        report.commits = self._commits.reports()
        report.held = self._held.reports()
        report.submissions = self._submissions.reports()
        report.submissions_unknown = self._submissions.unknown
