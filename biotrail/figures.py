# SPDX-License-Identifier: Apache-2.0
"""Figures of a short trace: I/O by operation and by process, gathered while it is converted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from biotrail import units
from converters.model.context import Context
from converters.model.tables import I64, NEVER, Bios, Bool, Lifecycles, Tasks

_UNKNOWN = "(unknown)"
Key = TypeVar("Key")


@dataclass
class Group:
    """Bios that have something in common."""

    bios: int = 0
    bytes: int = 0
    latencies: list[I64] = field(default_factory=list)
    """ns from queue to completion, of those that ended."""

    def quantiles(self) -> list[str]:
        """Median, 99th percentile and maximum, as text."""
        if not any(len(part) for part in self.latencies):
            return ["-"] * 3
        values = np.quantile(np.concatenate(self.latencies), [0.5, 0.99, 1.0])
        return [units.duration(float(value)) for value in values]


class Figures:
    """Adds up windows. Keeps eight bytes per bio, so it is for short traces."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.operations: dict[tuple[str, str], Group] = {}
        """By device name and operation."""
        self.processes: dict[str, Group] = {}
        """By task name."""
        self.bios = 0
        self.requests = 0

    def watch(self, windows: Iterable[Lifecycles]) -> Iterator[Lifecycles]:
        """The same windows, looked at in passing."""
        for window in windows:
            self.bios += len(window.bios)
            self.requests += len(window.requests)
            self._add(window.bios, window.tasks)
            yield window

    def _add(self, bios: Bios, tasks: Tasks) -> None:
        codes, names = self._context.op_codes(bios.opf)
        devices, device = np.unique(bios.dev, return_inverse=True)
        for row, dev in enumerate(devices.tolist()):
            for code, name in enumerate(names):
                place = (self._context.device_name(dev), name)
                _count(self.operations, place, bios, (device == row) & (codes == code))
        for task in np.unique(bios.task).tolist():
            comm = str(tasks.comm[task]) if task >= 0 else _UNKNOWN
            _count(self.processes, comm, bios, bios.task == task)

    def operation_lines(self) -> list[str]:
        """A table of devices and operations."""
        rows = [
            [f"{device} {name}", units.count(g.bios), units.size(g.bytes), *g.quantiles()]
            for (device, name), g in _ranked(self.operations)
        ]
        return table(["operation", "bios", "data", "median", "99 %", "slowest"], rows)

    def process_lines(self, limit: int) -> list[str]:
        """A table of the processes that caused most bios."""
        rows = [
            [name, units.count(g.bios), units.size(g.bytes), *g.quantiles()]
            for name, g in _ranked(self.processes)
        ]
        more = [f"and {len(rows) - limit} more"] if len(rows) > limit else []
        head = ["process", "bios", "data", "median", "99 %", "slowest"]
        return table(head, rows[:limit]) + more


def _count(groups: dict[Key, Group], key: Key, bios: Bios, rows: Bool) -> None:
    if not rows.any():
        return
    group = groups.setdefault(key, Group())
    group.bios += int(rows.sum())
    group.bytes += int(bios.bytes[rows].sum(dtype=np.int64))
    ended = rows & (bios.complete != NEVER) & (bios.queue != NEVER)
    group.latencies.append(bios.complete[ended] - bios.queue[ended])


def _ranked(groups: dict[Key, Group]) -> list[tuple[Key, Group]]:
    return sorted(groups.items(), key=lambda item: -item[1].bios)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Columns under their heads: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [head, *rows]
    ]
