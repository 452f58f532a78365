# SPDX-License-Identifier: Apache-2.0
"""Figures of bios that cgroups' limits held before their Q, by limit, device and operation."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.keys_process import ProcessNames
from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.analysis.figures import Summary
from biotrail.converters.analysis.report.tree import HeldReport
from biotrail.converters.calls.keys import rows_of
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import HeldBios
from biotrail.converters.events.tables import NEVER, Lifecycles, Tasks
from biotrail.converters.lifecycles.operations import operations

_NO_BPS, _NO_IOPS = (1 << 64) - 1, (1 << 32) - 1


@dataclass
class _Held:
    """Bios held by one cgroup's limit, of one device and operation."""

    bios: int = 0
    several: int = 0
    time: Distribution = field(default_factory=Distribution)
    """ns of those for which it is known."""
    bps: int = _NO_BPS
    iops: int = _NO_IOPS
    processes: Counter[int] = field(default_factory=Counter)
    """Process of the thread that submitted it or waited → bios."""


class HeldByLimit:
    """Figures of all held bios, window after window."""

    def __init__(self, context: Context) -> None:
        """Start without bios. context: the log's, for names."""
        self._context = context
        self._names = ProcessNames()
        self._held: dict[tuple[int, int, str], _Held] = {}
        """(cgroup's id, dev_t, operation) → its bios."""

    def add(self, window: Lifecycles) -> None:
        """Add the held bios that ended in the log's next window."""
        if window.path is None or not len(window.path.held):
            return
        self._names.take(window.tasks)
        row, known = rows_of(window.bios.number, window.path.held.number)
        held, bios = window.path.held.take(known), window.bios.take(row[known])
        codes, names = operations(self._context, bios.opf, bios.bytes)
        keys = np.stack([held.limit, bios.dev.astype(np.uint64), codes.astype(np.uint64)], axis=1)
        distinct, at = np.unique(keys, axis=0, return_inverse=True)
        for place, (limit, dev, code) in enumerate(distinct.tolist()):
            key = limit, dev, names[code]
            rows = np.flatnonzero(at.reshape(-1) == place)
            self._add(self._held.setdefault(key, _Held()), held.take(rows), window.tasks)

    def _add(self, one: _Held, held: HeldBios, tasks: Tasks) -> None:
        """Add held bios of one key. The limit shown is the last one, as it may be changed."""
        one.bios += len(held)
        one.several += int((held.limits > 1).sum())
        one.bps, one.iops = int(held.bps[-1]), int(held.iops[-1])
        one.time.add(held.held[held.held != NEVER])
        for task in held.task[held.task >= 0].tolist():
            one.processes[int(tasks.tgid[task])] += 1

    def _process(self, one: _Held) -> tuple[str, int] | tuple[None, None]:
        """Return name and id of the process that most of the bios are of; None: not known."""
        for tgid, _ in one.processes.most_common(1):
            return self._names[tgid], tgid
        return None, None

    def reports(self) -> list[HeldReport]:
        """Return a report for each limit's cgroup, device and operation, the longest held first."""
        found = []
        for (limit, dev, operation), one in sorted(self._held.items()):
            process, pid = self._process(one)
            report = HeldReport(
                cgroup=self._context.cgroups.get(limit, f"id {limit}") if limit else None,
                device=self._context.device_name(dev),
                dev=dev,
                operation=operation,
                bios=one.bios,
                several=one.several,
                bps=None if one.bps == _NO_BPS else one.bps,
                iops=None if one.iops == _NO_IOPS else one.iops,
                process=process,
                pid=pid,
                time=Summary.of(one.time),
            )
            found.append(report)
        return sorted(found, key=lambda one: (-one.time.sum, -one.bios))
