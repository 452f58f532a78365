# SPDX-License-Identifier: Apache-2.0
"""Joins requests of io_uring and aio from their bios, completions and the calls that reap them.

A request is known by its address and the time of its submission. Its row is complete when all of
its bios have ended, its completion is known, and the call that reaps it has returned; the address
of a request that was submitted later completes it, too, as an address is used again only then.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from biotrail.converters.calls.keys import Keys, rows_of
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import BioPaths, Calls, PathTables
from biotrail.converters.events.submission_tables import (
    NO_FD,
    NO_OFFSET,
    BioRequests,
    Flag,
    Runner,
    Submissions,
)
from biotrail.converters.events.tables import I64, NEVER, U64, Bios, Bool, Lifecycles, Tasks
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.lifecycles.path import no_tables
from biotrail.recorder.schema.syscalls import REAPING_CALLS, numbers

if TYPE_CHECKING:
    from biotrail.converters.lifecycles.result import Result

REAP_LIMIT_NS = 1_000_000_000
"""A call that returns later than this after a completion is not held to reap it."""
_AIO_SUBMIT = frozenset({"io_submit"})


@dataclass
class _Found:
    """Rows of requests, and what is still to be known of each.

    key: submission time or first recorded Q (ns): with `req` the request's identity. settled: the
    call that reaps it is known, or known to be not recorded. open: a bio of it is in flight.
    """

    rows: Submissions
    key: I64
    settled: Bool
    open: Bool

    def take(self, chosen: Bool | I64) -> "_Found":
        parts = self.key[chosen], self.settled[chosen], self.open[chosen]
        return _Found(self.rows.take(chosen), *parts)


class SubmissionJoiner:
    """Joins the requests of a log, window after window, in order."""

    def __init__(self, context: Context) -> None:
        none = np.zeros(0, dtype=np.int64)
        no = none.astype(np.bool_)
        self._pending = _Found(Submissions.none(), none, no, no)
        self._reaping = numbers(REAPING_CALLS, context.machine)
        self._submitting = numbers(_AIO_SUBMIT, context.machine)
        self._timed = "time" in context.path_parts

    def join(
        self, window: "Lifecycles | Result", names: TaskNames, end: int, final: bool
    ) -> PathTables | None:
        """Return the window's `path` with the submissions that became complete, and bios' numbers.

        Complete is one without a bio in flight that was reaped, is known not to be, or whose
        address a later one has. final: the last window: all others are given, too.
        """
        path = window.path
        if not len(self._pending.rows) and (path is None or not len(path.bio_requests)):
            return path
        if path is None:
            path = no_tables(names)
        found = self._merged(path.bio_requests, window, path)
        ends = path.request_ends.take(np.arange(len(path.request_ends))[::-1])
        place = _places(found, ends.req, ends.submitted)
        ends, place = ends.take(place >= 0), place[place >= 0]
        for name in ("completed", "result", "setup", "ring"):
            getattr(found.rows, name)[place] = getattr(ends, name)
        self._reap(found, path.calls.take(path.calls.timed), names.table(), end)
        asked = path.bio_requests
        numbered = found.rows.number[_places(found, asked.request["req"], asked.submitted)]
        superseded = np.zeros(len(found.key), dtype=np.bool_)  # a later request has the address
        superseded[:-1] = found.rows.req[1:] == found.rows.req[:-1]
        ready = ((found.settled | superseded) & ~found.open) | final
        self._pending = found.take(~ready)
        # Rows of which no bio has ended were never in a table of bios.
        rows = found.rows.take(ready & (found.rows.bios > 0))
        none = np.zeros(0, dtype=np.int64)
        return replace(
            path,
            bios=_with_numbers(path.bios, path.bio_requests, numbered),
            open_bios=_with_numbers(path.open_bios, path.bio_requests, numbered),
            submissions=rows.take(np.argsort(rows.number)),
            bio_requests=path.bio_requests.take(none),
            request_ends=path.request_ends.take(none),
        )

    def _merged(
        self, found: BioRequests, window: "Lifecycles | Result", path: PathTables
    ) -> _Found:
        """Return the pending requests and the window's, one row for each, by (req, key).

        The columns that are no sums are those of the bio with the lowest number, or as before.
        """
        bios = Bios.concatenate([window.bios, window.open_bios])
        paths = BioPaths.concatenate([path.bios, path.open_bios])
        fresh = _rows_of(found, bios, paths, self._submitting)
        rows = Submissions.concatenate([self._pending.rows, fresh])
        key = np.concatenate([self._pending.key, found.submitted])
        none = np.zeros(len(self._pending.key), dtype=np.bool_)
        is_open = np.concatenate([none, found.open])
        settled = np.concatenate([self._pending.settled, np.zeros(len(found), dtype=np.bool_)])
        order = np.lexsort((rows.number, key, rows.req))
        rows, key, is_open = rows.take(order), key[order], is_open[order]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = (rows.req[1:] != rows.req[:-1]) | (key[1:] != key[:-1])
        at = np.flatnonzero(first)
        if not len(at):
            return _Found(rows, key, settled, is_open)
        merged = replace(
            rows.take(at),
            bios=np.add.reduceat(rows.bios, at, dtype=np.uint32),
            bytes=np.add.reduceat(rows.bytes, at),
            ended=np.maximum.reduceat(rows.ended, at),
        )
        any_open = np.logical_or.reduceat(is_open, at)
        return _Found(merged, key[at], np.logical_or.reduceat(settled[order], at), any_open)

    def _reap(self, found: _Found, calls: Calls, tasks: Tasks, end: int) -> None:
        """Set `reaped` and `settled` of the requests that completed, in place.

        Asked is the first call of REAPING_CALLS that returned at the completion or later, by the
        submitting thread or, under SQPOLL, by any of its process. It reaps the completion if it was
        entered by then and returned within REAP_LIMIT_NS.
        """
        rows = found.rows
        open_for = np.flatnonzero((rows.completed != NEVER) & ~found.settled)
        if not self._timed:
            found.settled[open_for] = True
            return
        asking = np.isin(calls.number, self._reaping) & ~calls.foreign & (calls.entry != NEVER)
        calls = calls.take(asking)
        polled = rows.runner[open_for] == Runner.SQPOLL
        tgid = tasks.tgid.astype(np.int64)
        for chosen, by, caller in (
            (open_for[~polled], rows.tid, calls.tid.astype(np.int64)),
            (open_for[polled], take_or(tgid, rows.task, -1), take_or(tgid, calls.task, -1)),
        ):
            row = _first_return(caller, calls.exit, by[chosen], rows.completed[chosen])
            hit = np.flatnonzero(row >= 0)
            place, row = chosen[hit], row[hit]
            during = calls.entry[row] <= rows.completed[place]
            during &= calls.exit[row] - rows.completed[place] <= REAP_LIMIT_NS
            rows.reaped[place[during]] = calls.exit[row][during]
            found.settled[place] = True
        found.settled[open_for] |= end - rows.completed[open_for] > REAP_LIMIT_NS


def _first_return(caller: I64, exits: I64, asked: I64, time: I64) -> I64:
    """Return the index of each caller's first call that returned at a time or later; -1: none.

    caller, exits: (n,) of the calls. asked, time: (m,), the caller asked for and the time (ns). A
    caller of -1 is not known, and has no call.
    """
    order = np.lexsort((exits, caller))
    callers, code = np.unique(caller, return_inverse=True)
    if not len(callers):
        return np.full(len(asked), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(callers, asked), len(callers) - 1)
    known = (callers[place] == asked) & (asked >= 0)
    # One search serves all callers: each has its own range of ranks.
    times, rank = np.unique(np.concatenate([exits, time]), return_inverse=True)
    base = len(times)
    keys = code[order] * base + rank[: len(exits)][order]
    at = np.searchsorted(keys, place * base + rank[len(exits) :])
    inside = known & (at < len(keys))
    row = order[np.minimum(at, len(order) - 1)]
    return np.where(inside & (caller[row] == asked), row, -1)


def _rows_of(found: BioRequests, bios: Bios, paths: BioPaths, submitting: list[int]) -> Submissions:
    """Return a row for each bio with a request, as if the request had no other bio.

    `submitted` is, of aio, the entry of the bio's call, if that is of `submitting`.
    """
    said, row = found.request, _rows_by(bios.number, found.number)
    path = _rows_by(paths.number, found.number)
    aio, ended = (said["flags"] & Flag.AIO) != 0, ~found.open
    entry = np.where(np.isin(paths.call[path], submitting), paths.entry[path], NEVER)
    entry = np.where(entry <= bios.queue[row], entry, NEVER)  # a wait of a call is no entry
    late = (said["flags"] & Flag.LATE) != 0
    offset = said["offset"].astype(np.int64)
    nothing = np.full(len(found), NEVER, dtype=np.int64)
    return Submissions(
        number=found.number,
        req=said["req"].astype(np.uint64),
        aio=aio,
        ring=np.zeros(len(found), dtype=np.uint64),
        user_data=said["user_data"].astype(np.uint64),
        opcode=said["opcode"].astype(np.uint8),
        writes=(said["flags"] & Flag.WRITES) != 0,
        fd=np.where(said["fd"] == NO_FD, -1, said["fd"].astype(np.int64)),
        fixed=(said["flags"] & Flag.FIXED_FILE) != 0,
        offset=np.where(said["offset"] == NO_OFFSET, -1, offset),
        length=said["length"].astype(np.int64),
        runner=said["runner"].astype(np.uint8),
        joined=said["joined"].astype(np.uint8),
        tid=said["tid"].astype(np.uint32),
        task=bios.task[row],
        submitted=np.where(aio, entry, np.where(late, NEVER, found.submitted)),
        queued=bios.queue[row],
        ended=np.where(ended, bios.complete[row], NEVER),
        completed=nothing,
        reaped=nothing.copy(),
        result=np.zeros(len(found), dtype=np.int32),
        setup=np.zeros(len(found), dtype=np.uint32),
        bios=ended.astype(np.uint32),
        bytes=np.where(ended, bios.bytes[row].astype(np.int64), 0),
    )


def _rows_by(number: I64, wanted: I64) -> I64:
    """Return the index in `number` of each wanted number, all of which are in it."""
    order = np.argsort(number)
    return np.asarray(order[np.searchsorted(number, wanted, sorter=order)], dtype=np.int64)


def _places(found: _Found, req: U64, key: I64) -> I64:
    """Return the row in `found`, sorted by (req, key), of each (req, key); -1: there is none."""
    if not len(found.key):
        return np.full(len(key), -1, dtype=np.int64)
    have = found.rows.req
    order = np.argsort(found.key)
    keys = found.key[order]
    if (keys[1:] != keys[:-1]).all():  # as nearly always: then the time alone finds the row
        place = order[np.minimum(np.searchsorted(keys, key), len(keys) - 1)]
        return np.where((have[place] == req) & (found.key[place] == key), place, -1)
    # Otherwise by both, as calls are found by thread and time.
    pairs = Keys.among((have.view(np.int64), found.key), (req.view(np.int64), key))
    row = np.full(len(pairs.tid), -1, dtype=np.int64)
    row[pairs.of[0]] = np.arange(len(have))
    return row[pairs.of[1]]


def _with_numbers(paths: BioPaths, bios: BioRequests, numbered: I64) -> BioPaths:
    """Return the bios' paths with the number of each bio's request. bios: sorted by number."""
    row, known = rows_of(bios.number, paths.number)
    submission = np.full(len(paths), -1, dtype=np.int64)
    submission[known] = numbered[row[known]]
    return replace(paths, submission=submission)
