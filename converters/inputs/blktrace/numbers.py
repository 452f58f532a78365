# SPDX-License-Identifier: Apache-2.0
"""Sequence numbers of blktrace's records: gaps, repeats and steps back.

The kernel numbers each CPU's records of a device from 1 in time order. A missing number is a
record that the kernel could not store; a repeated one comes from a part of a file that is there
twice, or from another trace.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64, Bool
from biotrail.converters.inputs.blktrace.format import Category, categories, has

Key = tuple[int, int]
"""Device (dev_t) and CPU."""

_WRAP, _HALF = 1 << 32, 1 << 31


@dataclass
class Step:
    """A jump of the numbers between two records of a CPU and device, at `start` and `end` (ns).

    count: number of missing records; -1: not known, as the numbers go back at a later time.
    """

    key: Key
    start: int
    end: int
    count: int


@dataclass
class NumberCheck:
    """Result of `Numbers.check`. keep: per record, whether it is not a repeat."""

    keep: Bool
    steps: list[Step] = field(default_factory=list)
    repeats: list[tuple[Key, int, int]] = field(default_factory=list)
    """(device and CPU, count of repeated records, number of the first)."""


class Numbers:
    """Checker that remembers the newest number and its time for each CPU and device."""

    def __init__(self) -> None:
        self._newest: dict[Key, tuple[int, int]] = {}

    def check(self, head: NDArray[np.void]) -> NumberCheck:
        """Compare the sequence numbers of records with those of earlier calls; return what is odd.

        head: HEAD, in their file's order. Each number of a CPU and device should be one above the
        newest before it. If not, the record is a repeat if neither its number nor its time is above
        those of the newest; else there is a step before it. The first record of a CPU and device
        begins the count. Notes, and the records of the ftrace tracer, have no numbers and are kept.
        """
        found = NumberCheck(np.ones(len(head), dtype=np.bool_))
        counted = ~has(categories(head["action"]), Category.NOTIFY) & (head["sequence"] != 0)
        rows = np.flatnonzero(counted)
        keys = head["device"][rows].astype(np.uint64) << np.uint64(32) | head["cpu"][rows]
        for key in np.unique(keys).tolist():
            here = rows[keys == key]
            number = head["sequence"][here].astype(np.int64)
            time = head["time"][here].astype(np.int64)
            self._compare((key >> 32, key & 0xFFFFFFFF), here, number, time, found)
        return found

    def _compare(self, key: Key, rows: I64, number: I64, time: I64, found: NumberCheck) -> None:
        """Add the steps and repeats among records (`rows`) of one device and CPU to `found`."""
        if key not in self._newest:
            self._newest[key] = int(number[0]) - 1, int(time[0])
        before, since = self._newest[key]
        step = np.diff(number, prepend=before)
        if (step > 0).all():
            times = np.concatenate([[since], time])
            for row in np.flatnonzero(step > 1).tolist():
                end = int(times[row + 1])
                found.steps.append(Step(key, int(times[row]), end, int(step[row]) - 1))
            self._newest[key] = int(number[-1]), int(time[-1])
            return
        self._go_back(key, rows.tolist(), number.tolist(), time.tolist(), found)

    def _go_back(
        self, key: Key, rows: list[int], number: list[int], time: list[int], found: NumberCheck
    ) -> None:
        """Add steps and repeats, record by record, where a number is not above the last.

        Numbers wrap at 2^32. A record that is not ahead in number and not later is a repeat; not
        ahead but later, it is of another trace: a step with count -1.
        """
        newest, at = self._newest[key]
        repeated: list[int] = []
        for row, now, ts in zip(rows, number, time, strict=True):
            ahead = (now - newest + _HALF) % _WRAP - _HALF
            if ahead <= 0 and ts <= at:
                found.keep[row] = False
                repeated.append(now)
                continue
            if ahead != 1:
                found.steps.append(Step(key, at, max(at, ts), ahead - 1 if ahead > 0 else -1))
            newest, at = now, ts
        self._newest[key] = newest, at
        if repeated:
            found.repeats.append((key, len(repeated), repeated[0]))


def kept_rows(keep: Bool, rows: list[tuple[int, Any, Any]]) -> list[tuple[int, Any, Any]]:
    """Return the tuples with their row replaced by its index among the records that are kept."""
    places = np.concatenate([[0], np.cumsum(keep)]).tolist()
    return [(places[row], *rest) for row, *rest in rows]
