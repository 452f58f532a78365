# SPDX-License-Identifier: Apache-2.0
"""What devices had in flight beside a slow I/O or call, and whose it was.

That something was in flight beside a wait does not say that it caused it: `analysis/blame` does.
"""

from dataclasses import dataclass, replace

import numpy as np

from biotrail.converters.analysis.blame.parties import PROCESS_OF_OWNER, Parties
from biotrail.converters.analysis.distributions.sketch import sum_by
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import FAR, I64, NEVER, OP_MASK, U32, Lifecycles, Table
from biotrail.converters.lifecycles.operations import asks_flush, transferred
from biotrail.converters.outputs.perfetto.names import FLUSH, size_text
from biotrail.recorder.schema.durations import duration

_FEW_KEPT, _MOST_KEPT = 1 << 14, 1 << 18
"""Ended bios that are kept for calls that return later, and at most: those beside which a bio that
is still in flight was, too."""
_MOST_NAMED = 3
"""Of whom it is said what they had in flight: those with most time."""
_FLUSH = 0xFF
"""Stands for the operation of a bio that only flushes."""


@dataclass
class _Flight(Table):
    """One row per bio."""

    number: I64
    dev: U32
    tid: I64
    queue: I64
    issue: I64
    """NEVER: not issued."""
    end: I64
    """FAR: in flight."""
    what: I64
    """Code of its party << 8 | operation."""
    bytes: I64


class Flights:
    """The bios of the windows so far, as far as a slow I/O or call may have been beside them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._writers = Parties(PROCESS_OF_OWNER, context)
        self._kept = _Flight.none()
        self._now = _Flight.none()
        """With those in flight at the window's end."""
        self._floor = NEVER
        """The latest end (ns) of those that are kept no longer."""

    def add(self, window: Lifecycles) -> None:
        """Take in the log's next window."""
        self._now = _Flight.none()  # not kept while the next is made
        path = window.path
        open_path = None if path is None else replace(path, bios=path.open_bios)
        ended = self._flights(window)
        still = self._flights(replace(window, bios=window.open_bios, path=open_path))
        known = _Flight.concatenate([self._kept, ended])
        self._now = _Flight.concatenate([known, still])
        oldest = int(still.queue.min(initial=FAR))
        keeps = known.end > oldest
        keeps[-_FEW_KEPT:] = True
        keeps[:-_MOST_KEPT] = False
        self._kept = known.take(keeps)
        self._floor = max(self._floor, int(known.end[~keeps].max(initial=NEVER)))

    def _flights(self, window: Lifecycles) -> _Flight:
        """Return the window's bios, without those of the recording."""
        bios = window.bios
        who = self._writers.codes_of_writers(window)
        size = transferred(self._context, bios.opf, bios.bytes)
        empty = asks_flush(self._context, bios.opf, bios.bytes)
        op = np.where(empty, _FLUSH, bios.opf & OP_MASK).astype(np.int64)
        end = np.where(bios.complete == NEVER, FAR, bios.complete)
        return _Flight(
            bios.number, bios.dev, bios.tid.astype(np.int64), bios.queue, bios.issue, end,
            who << 8 | op, size,
        ).take((bios.queue != NEVER) & ~bios.own)  # fmt: skip

    def overtaking(self, dev: int, queue: int, issue: int) -> int:
        """Return how many bios of a device were queued after one, and issued before it."""
        now = self._now
        if issue == NEVER:
            return 0
        found = (now.queue > queue) & (now.issue < issue) & (now.issue != NEVER) & (now.dev == dev)
        return int(found.sum())

    def beside_bio(self, number: int, dev: int, begin: int, end: int) -> str:
        """Return in words what a bio's device had meanwhile; empty: nothing else."""
        now = self._now
        beside = (now.end > begin) & (now.queue < end) & (now.dev == dev) & (now.number != number)
        return self._named(dev, now.take(beside), begin, end)

    def beside_call(self, tid: int, disk: int | None, begin: int, end: int) -> str:
        """Return in words what a device had while a thread waited in a call; empty: nothing else.

        disk: which one; None: that of most of the bios that the thread queued. Its own are left
        out.
        """
        now = self._now
        now = now.take((now.end > begin) & (now.queue < end))
        own = (now.tid == tid) & (now.queue >= begin)
        if disk is None and not own.any():
            return ""
        if disk is None:
            theirs = now.take(own)
            devs, place = np.unique(theirs.dev, return_inverse=True)
            sums = sum_by(place.astype(np.int64), _within(theirs, begin, end), len(devs))
            disk = int(devs[np.argmax(sums)])
        return self._named(disk, now.take((now.dev == disk) & ~own), begin, end)

    def _named(self, dev: int, flights: _Flight, begin: int, end: int) -> str:
        begin, missing = max(begin, self._floor), begin < self._floor
        span = _within(flights, begin, end)
        flights, span = flights.take(span > 0), span[span > 0]
        if not len(flights):
            return ""
        what, place = np.unique(flights.what, return_inverse=True)
        place = place.reshape(-1).astype(np.int64)
        count = np.bincount(place).tolist()
        size = sum_by(place, flights.bytes, len(what)).tolist()
        order = np.argsort(-sum_by(place, span, len(what)), kind="stable").tolist()
        told = [self._words(int(what[at]), count[at], size[at]) for at in order[:_MOST_NAMED]]
        rest = sum(count[at] for at in order[_MOST_NAMED:])
        told += [f"{rest:,} other I/O{'s'[: rest > 1]}"] if rest else []
        when = f"in its last {duration(end - self._floor)}" if missing else "meanwhile"
        return f"{when} {self._context.device_name(dev)} had {', '.join(told)}"

    def _words(self, what: int, count: int, size: int) -> str:
        """Return `38 writes (152 MiB) of dd`."""
        op = FLUSH if what & 0xFF == _FLUSH else self._context.op_name(what & 0xFF)
        plural = "" if count == 1 else "es" if op.endswith("sh") else "s"
        amount = f" ({size_text(size)})" if size else ""
        return f"{count:,} {op}{plural}{amount} of {self._writers.name(what >> 8)}"


def _within(flights: _Flight, begin: int, end: int) -> I64:
    span = np.minimum(flights.end, end) - np.maximum(flights.queue, begin)
    return np.asarray(np.maximum(span, 0), dtype=np.int64)
