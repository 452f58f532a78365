# SPDX-License-Identifier: Apache-2.0
"""The steps between the issue and the completion of a device's requests, by driver and by way.

Each driver has steps of its own. They divide D2C without a gap, so their sum is D2C of the requests
that are divided. The setup of an NVMe command is before D: nvme sets a request up, then issues it.
"""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.figures import Summary, stage_times
from biotrail.converters.analysis.report.tree import CompletionReport, DriverReport
from biotrail.converters.calls.keys import rows_of
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.drivers import DRIVERS
from biotrail.converters.events.path_tables import DriverSteps, Interrupts
from biotrail.converters.events.tables import I64, NEVER, Lifecycles, Requests
from biotrail.converters.lifecycles.windows import sure_complete

# A completion is recorded (C) in the device's interrupt, in the BLOCK softirq that the interrupt
# raised, or in a task that polls or works for the driver. The CPU of the interrupt need not be the
# one that completes (blk_mq_complete_request sends an IPI): the softirq is then raised on a CPU
# that had no interrupt of the device.

WAYS = ("interrupt", "softirq", "softirq without interrupt", "task")
"""Ways of a completion. "softirq without interrupt": raised by a task, or for another CPU."""
INTERRUPT, SOFTIRQ, RAISED, TASK = range(len(WAYS))
STEPS_BY_WAY = (
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
    """Name in STEPS_BY_WAY → ns."""

    def add(self, way: int, times: I64, divided: I64) -> None:
        """Add requests that were completed in the way `way` (index of WAYS).

        times: ns, (len(STEPS_BY_WAY[way]) + 1, n), from the issue to the completion. divided:
        indices of the columns that count in `steps`; the others count in `undivided`.
        """
        self.requests += times.shape[1]
        self.undivided += times.shape[1] - len(divided)
        lasted = np.diff(times[:, divided], axis=0)
        for name, values in zip(STEPS_BY_WAY[way], lasted, strict=True):
            self.steps.setdefault(name, Distribution()).add(values)


class Completions:
    """Ways of completion of all devices' requests, window after window."""

    def __init__(self) -> None:
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
        """Return a report for each way in which requests of a device were completed."""
        found = []
        for code, name in enumerate(WAYS):
            if (way := self._ways.get((dev, code))) is None:
                continue
            steps = stage_times(way.steps, {step: step for step in STEPS_BY_WAY[code]})
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


SETUP = "setup to D"
STEPS = {
    "nvme": ("D to answer", "answer to driver done", "driver done to C"),
    "scsi": ("D to dispatch", "dispatch to answer", "answer to C"),
    "loop": ("D to file I/O", "file I/O", "file I/O to C"),
}
"""Driver → names of the steps from the issue to the completion."""
_BETWEEN = {
    "nvme": ("answered", "finished"),
    "scsi": ("begun", "answered"),
    "loop": ("begun", "answered"),
}
"""Driver → the columns of DriverSteps that are between the issue and the completion."""


@dataclass
class Work:
    """What one driver did with the requests of one device."""

    requests: int = 0
    undivided: int = 0
    errors: int = 0
    timeouts: int = 0
    setup: Distribution = field(default_factory=Distribution)
    """ns from the setup to D; of NVMe alone."""
    steps: dict[str, Distribution] = field(default_factory=dict)
    """Name in STEPS → ns."""

    def add(self, driver: str, requests: Requests, steps: DriverSteps) -> None:
        """Add requests and, in the same order, what `driver` did with them.

        driver: a key of STEPS. Requests that `divided_of` refuses (a step is not known, in doubt or
        out of order, or there was a requeue) count as `undivided`, and have no times. `errors` and
        `timeouts` add up all rows. With "nvme" `setup` gets the time from `steps.begun` to D, where
        that is not later.
        """
        columns = [getattr(steps, name) for name in _BETWEEN[driver]]
        times = np.stack([requests.issue, *columns, sure_complete(requests)])
        divided = divided_of(requests, times)
        self.requests += len(requests)
        self.undivided += len(requests) - int(divided.sum())
        self.errors += int(steps.errors.sum())
        self.timeouts += int(steps.timeouts.sum())
        lasted = np.diff(times[:, divided], axis=0)
        for name, values in zip(STEPS[driver], lasted, strict=True):
            self.steps.setdefault(name, Distribution()).add(values)
        if driver == "nvme":
            known = divided & (steps.begun != NEVER) & (steps.begun <= requests.issue)
            self.setup.add((requests.issue - steps.begun)[known])


def divided_of(requests: Requests, times: I64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return per request whether its time from issue to completion can be divided: bool (n,).

    times: ns, (k, n), in the order of the steps. All of them must be known and in order, and the
    request must have been issued once: the steps are those of its last attempt.
    """
    ordered = (times != NEVER).all(axis=0) & (np.diff(times, axis=0) >= 0).all(axis=0)
    divided: np.ndarray[tuple[int], np.dtype[np.bool_]] = ordered & (requests.requeues == 0)
    return divided


class Drivers:
    """What drivers did with the requests of all devices, window after window."""

    def __init__(self) -> None:
        self._work: dict[tuple[int, str], Work] = {}
        """(dev_t, driver) → requests."""

    def add(self, window: Lifecycles) -> None:
        """Add the requests of the log's next window whose completion has a DRIVER record.

        Each to the work of its device and driver; drivers that are not in STEPS are left out, as
        are open requests, which come again.
        """
        if window.path is None or not len(window.path.steps):
            return
        row, known = rows_of(window.requests.number, window.path.steps.number)
        steps = window.path.steps.take(known)
        requests = window.requests.take(row[known])
        for number, driver in enumerate(DRIVERS):
            mine = steps.driver == number
            for dev in names_of(requests.dev[mine]).tolist() if driver in STEPS else ():
                rows = mine & (requests.dev == dev)
                work = self._work.setdefault((dev, driver), Work())
                work.add(driver, requests.take(rows), steps.take(rows))

    def reports(self, dev: int) -> list[DriverReport]:
        """Return a report for each driver of a device, mostly one or none; in order of STEPS."""
        found = []
        for driver, names in STEPS.items():
            if (work := self._work.get((dev, driver))) is None:
                continue
            steps = stage_times(work.steps, {step: step for step in names})
            setup = Summary.of(work.setup) if work.setup.count else None
            counts = (work.requests, work.undivided, work.errors, work.timeouts)
            found.append(DriverReport(driver, *counts, setup, steps))
        return found
