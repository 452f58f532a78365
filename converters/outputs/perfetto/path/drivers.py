# SPDX-License-Identifier: Apache-2.0
"""Arguments of requests from the steps of drivers."""

import numpy as np

from biotrail.converters.events.drivers import DRIVERS
from biotrail.converters.events.path_tables import DriverSteps, PathTables
from biotrail.converters.events.tables import I64, NEVER, Bool, Requests
from biotrail.converters.outputs.perfetto.names import Interned
from biotrail.converters.outputs.perfetto.packets.columns import Slices

_NVME = DRIVERS.index("nvme")


def add_steps(slices: Slices, table: Requests, path: PathTables | None, strings: Interned) -> None:
    """Add arguments on what the driver did to the slices of requests of which it is known.

    They are those of names.PATH_REQUEST_ARGUMENTS from `driver` on. Times between D, the driver's
    steps and C are added where both ends are known, in this order, and the request was not
    requeued; numbers of errors and timeouts where above 0. table: the request of each slice. path:
    the window's; None: nothing is added. strings: the interned texts, to which the drivers' names
    are added.
    """
    if path is None or not len(path.steps) or not len(table):
        return
    row = np.minimum(np.searchsorted(path.steps.number, table.number), len(path.steps) - 1)
    known = path.steps.number[row] == table.number
    steps = path.steps.take(row)
    names = np.array([strings.id(name) if name else 0 for name in DRIVERS], dtype=np.uint64)
    named = known & (steps.driver < len(DRIVERS))
    ids = names[np.minimum(steps.driver, len(DRIVERS) - 1)]
    slices.text("driver", np.where(named, ids, np.uint64(0)))
    _add_times(slices, table, steps, known & (table.requeues == 0))
    slices.uint("driver_errors", steps.errors, known & (steps.errors > 0))
    slices.uint("driver_timeouts", steps.timeouts, known & (steps.timeouts > 0))


def _add_times(slices: Slices, table: Requests, steps: DriverSteps, known: Bool) -> None:
    """Add the times (ns) between issue, steps and completion of the `known` rows (n,) to `slices`.

    A time needs both ends, the end not before the begin. setup_to_issue_ns and
    driver_done_to_complete_ns are NVMe's alone, issue_to_dispatch_ns other drivers'; the others are
    of all, where dispatch_to_answer_ns begins at D with NVMe.
    """
    nvme = steps.driver == _NVME
    sent = np.where(nvme, table.issue, steps.begun)

    def between(name: str, begin: I64, end: I64, where: Bool) -> None:
        there = known & where & (begin != NEVER) & (end != NEVER) & (end >= begin)
        slices.uint(name, end - begin, there)

    between("setup_to_issue_ns", steps.begun, table.issue, nvme)
    between("issue_to_dispatch_ns", table.issue, steps.begun, ~nvme)
    between("dispatch_to_answer_ns", sent, steps.answered, known)
    between("answer_to_complete_ns", steps.answered, table.complete, known)
    between("driver_done_to_complete_ns", steps.finished, table.complete, nvme)
