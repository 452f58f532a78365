# SPDX-License-Identifier: Apache-2.0
"""How requests came from the device to their completion: by which way, and how long each step took.

A completion is seen (C) in the device's interrupt, in the BLOCK softirq that the interrupt raised,
or in a task that polls or works for the driver. The CPU of the interrupt need not be that which
completes (blk_mq_complete_request sends an IPI): the softirq is then raised on a CPU that had no
interrupt of the device.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.figures import stage_times
from biotrail.converters.analysis.report.tree import CompletionReport
from biotrail.converters.calls.keys import rows_of
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.path_tables import Interrupts
from biotrail.converters.events.tables import (
    I64,
    NEVER,
    Lifecycles,
)
from biotrail.converters.lifecycles.windows import sure_complete

WAYS = ("interrupt", "softirq", "softirq without interrupt", "task")
"""Ways of a completion. "softirq without interrupt": raised by a task, or for another CPU."""
INTERRUPT, SOFTIRQ, RAISED, TASK = range(len(WAYS))
STEPS = (
    ("D to interrupt", "interrupt to C"),
    ("D to interrupt", "interrupt to softirq", "softirq to C"),
    ("D to raise", "raise to softirq", "softirq to C"),
    ("D to C",),
)
"""Names of the steps of each way, from the issue to the completion."""
_IN_SOFTIRQ, _IN_INTERRUPT = 1, 2


@dataclass
class Way:
    """Requests of one device that were completed in one way."""

    requests: int = 0
    undivided: int = 0
    """Those of them without steps: issued again, or after the interrupt that is known."""
    steps: dict[str, Distribution] = field(default_factory=dict)
    """Name in STEPS → ns."""

    def add(self, way: int, times: I64, divided: I64) -> None:
        """Add requests that were completed in the way `way` (index of WAYS).

        times: ns, (len(STEPS[way]) + 1, n), from the issue to the completion. divided: indices of
        the columns that count in `steps`; the others count in `undivided`.
        """
        self.requests += times.shape[1]
        self.undivided += times.shape[1] - len(divided)
        lasted = np.diff(times[:, divided], axis=0)
        for name, values in zip(STEPS[way], lasted, strict=True):
            self.steps.setdefault(name, Distribution()).add(values)


class Completions:
    """Ways of completion of all devices' requests, window after window."""

    def __init__(self) -> None:
        """Start without requests."""
        self._ways: dict[tuple[int, int], Way] = {}
        """(dev_t, index of WAYS) → requests."""

    def add(self, window: Lifecycles) -> None:
        """Add the requests of the log's next window whose completion has an INTERRUPT record.

        Each to its device and way (`ways_of`). Requests of which a step's time is not known, in
        doubt or not in order, or that were requeued, count as `undivided`: their steps do not
        count. Requests in flight are left out: they come again.
        """
        if window.path is None or not len(window.path.interrupts):
            return
        requests = window.requests
        row, known = rows_of(requests.number, window.path.interrupts.number)
        interrupts = window.path.interrupts.take(known)
        requests = requests.take(row[known])
        way = ways_of(interrupts)
        issue, complete = requests.issue, sure_complete(requests)
        between = {
            INTERRUPT: (interrupts.hard,),
            SOFTIRQ: (interrupts.hard, interrupts.soft),
            RAISED: (interrupts.raised, interrupts.soft),
            TASK: (),
        }
        for code, columns in between.items():
            times = np.stack([issue, *columns, complete])
            # An interrupt raised for an earlier request can be all that the CPU still knows.
            ordered = (times != NEVER).all(axis=0) & (np.diff(times, axis=0) >= 0).all(axis=0)
            divided = ordered & (requests.requeues == 0)
            for dev in names_of(requests.dev[way == code]).tolist():
                rows = np.flatnonzero((way == code) & (requests.dev == dev))
                found = self._ways.setdefault((dev, code), Way())
                found.add(code, times[:, rows], np.flatnonzero(divided[rows]))

    def reports(self, dev: int) -> list[CompletionReport]:
        """Return a report for each way in which requests of a device were completed.

        dev: dev_t; unknown ones give []. In the order of WAYS. A step's share is of the time from
        issue to completion of that way's divided requests; steps without a value are left out.
        """
        found = []
        for code, name in enumerate(WAYS):
            if (way := self._ways.get((dev, code))) is None:
                continue
            steps = stage_times(way.steps, {step: step for step in STEPS[code]})
            found.append(CompletionReport(name, way.requests, way.undivided, steps))
        return found


def ways_of(interrupts: Interrupts) -> I64:
    """Return the way of each completion: int64 (n,), index of WAYS.

    INTERRUPT and TASK by the context of the completion (any other than softirq and interrupt is
    TASK); in a softirq SOFTIRQ, or RAISED where no interrupt is known.
    """
    in_softirq = interrupts.context == _IN_SOFTIRQ
    way = np.where(in_softirq & (interrupts.hard != NEVER), SOFTIRQ, TASK)
    way = np.where(in_softirq & (interrupts.hard == NEVER), RAISED, way)
    return np.where(interrupts.context == _IN_INTERRUPT, INTERRUPT, way).astype(np.int64)
