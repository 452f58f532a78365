# SPDX-License-Identifier: Apache-2.0
"""Flush requests by device, and how many bios waited for each of them."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.analysis.distributions.sketch import Distribution
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.sorting import is_in
from biotrail.converters.events.tables import I64, NEVER, U32, Bool, Lifecycles, RequestKind, Stage

LINGER_NS = 10_000_000_000
"""ns after a flush's completion for which later windows may bring bios that waited for it: a bio
comes when its whole family has ended."""
_WAITS = (Stage.FLUSH, Stage.PRE_FLUSH, Stage.POST_FLUSH)


@dataclass
class Flush:
    """Flush requests of one device, and the bios that waited for them."""

    requests: int = 0
    """Flush requests with D and C."""
    waits: int = 0
    """Times that a bio waited for a flush: before its data, after its data, or without data."""
    unmatched: int = 0
    """Waits during which no flush request in the log was issued and completed."""
    shared: Counter[int] = field(default_factory=Counter)
    """Number of bios that waited for one flush request → number of such requests."""
    times: Distribution = field(default_factory=Distribution)
    """ns from D to C of flush requests."""
    doubtful: int = 0
    """Flush requests with D and C that are not in `times`, as their C is in doubt."""

    def merge(self, other: "Flush") -> None:
        """Add the flush requests and waits of another device, which is not changed."""
        self.requests += other.requests
        self.waits += other.waits
        self.unmatched += other.unmatched
        self.shared.update(other.shared)
        self.times.merge(other.times)
        self.doubtful += other.doubtful


@dataclass
class _Recent:
    """Flush requests for which bios of a later window may have waited, (n,) each.

    bios: how many bios waited for each request so far; changed in place.
    """

    dev: U32
    issue: I64
    complete: I64
    bios: I64


class Flushes:
    """Flush requests of all devices, window after window; call `finish` after the last window."""

    def __init__(self) -> None:
        self.by_dev: dict[int, Flush] = {}
        """dev_t → flushes; of devices with a flush request or a wait."""
        none = np.zeros(0, dtype=np.int64)
        self._recent = _Recent(np.zeros(0, dtype=np.uint32), none, none, none)

    def add(self, window: Lifecycles) -> None:
        """Add the window's flush requests, and its bios' waits for flush requests.

        A wait (stage FLUSH, PRE_FLUSH or POST_FLUSH) is matched with the last of the device's flush
        requests to complete by the wait's end, if that was issued during the wait. `requests` and
        `shared` count those that completed more than LINGER_NS before the window.
        """
        old, new = self._recent, self._ended(window)
        known = _Recent(
            np.concatenate([old.dev, new.dev]),
            np.concatenate([old.issue, new.issue]),
            np.concatenate([old.complete, new.complete]),
            np.concatenate([old.bios, new.bios]),
        )
        waits = np.flatnonzero(is_in(window.bio_stages.stage, *_WAITS))
        if len(waits):
            self._match(window, waits, known)
        self._retire(known, known.complete < window.begin - LINGER_NS)

    def finish(self) -> None:
        """Count the flush requests of the last LINGER_NS; to be called after the last window."""
        self._retire(self._recent, np.ones(len(self._recent.dev), dtype=np.bool_))

    def _device(self, dev: int) -> Flush:
        return self.by_dev.setdefault(dev, Flush())

    def _ended(self, window: Lifecycles) -> _Recent:
        """Return the window's flush requests that have D and C; add their times to the devices."""
        requests = window.requests
        chosen = (requests.kind == RequestKind.FLUSH) & (requests.issue != NEVER)
        rows = np.flatnonzero(chosen & (requests.complete != NEVER))
        dev, issue, complete = requests.dev[rows], requests.issue[rows], requests.complete[rows]
        for one in names_of(dev).tolist():
            mine, doubtful = self._device(one), requests.doubtful[rows][dev == one]
            mine.times.add((complete - issue)[dev == one][~doubtful])
            mine.doubtful += int(doubtful.sum())
        return _Recent(dev, issue, complete, np.zeros(len(rows), dtype=np.int64))

    def _match(self, window: Lifecycles, waits: I64, known: _Recent) -> None:
        """Match the window's waits with flush requests, and count the waits in `by_dev`."""
        stages = window.bio_stages
        bio_row = np.searchsorted(window.bios.number, stages.owner[waits])
        dev, start, end = window.bios.dev[bio_row], stages.start[waits], stages.end[waits]
        for one in names_of(dev).tolist():
            ours, theirs = dev == one, np.flatnonzero(known.dev == one)
            theirs = theirs[np.argsort(known.complete[theirs], kind="stable")]
            request_row = _last_within(start[ours], end[ours], known, theirs)
            device = self._device(one)
            device.waits += len(request_row)
            device.unmatched += int((request_row < 0).sum())
            np.add.at(known.bios, request_row[request_row >= 0], 1)

    def _retire(self, known: _Recent, old: Bool) -> None:
        """Count the flush requests of the mask `old` in `by_dev`; keep the others as `_recent`."""
        for dev, bios in zip(known.dev[old].tolist(), known.bios[old].tolist(), strict=True):
            device = self._device(dev)
            device.requests += 1
            device.shared[bios] += 1
        self._recent = _Recent(
            known.dev[~old], known.issue[~old], known.complete[~old], known.bios[~old]
        )


def _last_within(start: I64, end: I64, known: _Recent, order: I64) -> I64:
    """Return, per wait (w,), the row in `known` of the last flush request within it; -1: none.

    order: rows of `known` to choose from, ascending by completion.
    """
    if not len(order):
        return np.full(len(start), -1, dtype=np.int64)
    at = np.searchsorted(known.complete[order], end, side="right") - 1
    row = order[np.maximum(at, 0)]
    within: Bool = (at >= 0) & (known.issue[row] >= start)
    return np.where(within, row, -1)
