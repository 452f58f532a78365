# SPDX-License-Identifier: Apache-2.0
"""Windows restricted to chosen I/O: the chosen bios, and the requests that served them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from biotrail.converters.analysis.choosing.choosing import (
    ANYHOW,
    Choice,
    OutcomeFilter,
    chosen_pairs,
)
from biotrail.converters.calls.pending import CallsOfBios
from biotrail.converters.events.distinct import names_of
from biotrail.converters.events.tables import I64, NEVER, Bool, Lifecycles, Requests
from biotrail.converters.lifecycles.windows import first_seen, restricted, sure_complete

LEAD_NS = 5_000_000
"""ns that the excerpt begins before the first time, so that counters have a value by then."""


def around(ios: Iterable[tuple[int, int]], margin: int) -> list[tuple[int, int]]:
    """Return disjoint stretches (begin, end) around I/Os, wider by `margin` ns at both ends."""
    times: list[tuple[int, int]] = []
    for begin, end in sorted((max(b - margin, 0), e + margin) for b, e in ios):
        if times and begin <= times[-1][1]:
            times[-1] = (times[-1][0], max(end, times[-1][1]))
        else:
            times.append((begin, end))
    return times


def excerpt(
    windows: Iterable[Lifecycles], times: Sequence[tuple[int, int]]
) -> Iterator[Lifecycles]:
    """Yield the windows with only the I/O in flight at some of the times, (begin, end) in ns.

    Such I/Os are kept whole, so that every counter, such as queue depth, is right at these times.
    A window that keeps no row is skipped if it ends before the first time; if it begins after the
    last one, reading stops there.
    """
    if not times:
        return
    begins = np.array([begin for begin, _ in times], dtype=np.int64)
    ends = np.array([end for _, end in times], dtype=np.int64)
    first, last = times[0][0], times[-1][1]
    for window in windows:
        part = _restricted(window, begins, ends)
        tables = (part.bios, part.requests, part.open_bios, part.open_requests)
        empty = not any(map(len, tables))
        if empty and (window.end < first or window.begin > last):
            if window.begin > last:
                return
            continue
        yield replace(part, begin=max(part.begin, min(first - LEAD_NS, part.end)))


def _restricted(window: Lifecycles, begins: I64, ends: I64) -> Lifecycles:
    def overlapping(start: I64, end: I64) -> Bool:
        next_time = np.searchsorted(ends, start)
        inside = next_time < len(ends)
        inside &= begins[np.minimum(next_time, len(ends) - 1)] <= end
        return np.asarray(inside & (start != NEVER), dtype=np.bool_)

    kept = []
    for table in (window.bios, window.requests, window.open_bios, window.open_requests):
        # A row without a completion counts as in flight until the window's end, which it reached.
        # So no row is chosen in one window and left out in a later one.
        end = np.where(table.complete != NEVER, table.complete, window.end)
        kept.append(overlapping(first_seen(table), end))
    loss = (window.loss.end >= begins[0]) & (window.loss.start <= ends[-1])
    found = restricted(window, *kept)
    if (path := found.path) is not None:
        calls = path.calls.take(overlapping(path.calls.entry, path.calls.exit))
        waits = path.waits.take(overlapping(path.waits.out, path.waits.run))
        commits = path.commits
        commits = commits.take(overlapping(commits.started, commits.end))
        found.path = replace(path, calls=calls, waits=waits, commits=commits)
    return replace(found, loss=window.loss.take(loss))


@dataclass
class Counts:
    """Of bios, of pairs of events, and of those of either that were chosen."""

    bios: int = 0
    chosen: int = 0
    pairs: int = 0
    chosen_pairs: int = 0
    unknown: int = 0
    """Bios not chosen whose task or cgroup, by which the choice is made, is not in the log."""


@dataclass
class Selection:
    """Restricts windows to the I/O of a choice and an outcome.

    A request is chosen if it served a chosen bio or, if it served no known bio, by its own device,
    operation and outcome. A call is chosen by its thread, if the choice is by process or thread
    name alone; else if it queued a chosen bio; so is a submission. A wait is chosen as its call, in
    the latter case from the call's first chosen bio on.
    """

    choice: Choice
    wanted: OutcomeFilter = ANYHOW
    """What requests that serve no bio, and pairs, are chosen by."""
    numbers: I64 | None = None
    """Of the bios that have that outcome, ascending, as it is known only at their end; None: all.
    So a bio has the same answer in every window."""
    counts: Counts = field(default_factory=Counts)
    _seen: set[int] = field(default_factory=set)
    _calls: CallsOfBios = field(default_factory=CallsOfBios)
    _submissions: I64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Numbers of the submissions of chosen bios that no window has had yet."""

    def of(self, windows: Iterable[Lifecycles]) -> Iterator[Lifecycles]:
        """Raises ConversionError at the end if the choice names a device that is not in the log."""
        for window in windows:
            self._seen.update(names_of(window.bios.dev).tolist())
            yield self._restricted(window)
        self.choice.check(self._seen)

    def _restricted(self, window: Lifecycles) -> Lifecycles:
        bios, open_bios = (
            self.choice.mask(table, window.tasks) for table in (window.bios, window.open_bios)
        )
        if self.numbers is not None:
            bios &= np.isin(window.bios.number, self.numbers)
            open_bios &= np.isin(window.open_bios.number, self.numbers)
        who, unknown = self.choice.who, np.zeros(len(bios), dtype=np.bool_)
        if who.pids or who.comms:
            unknown = window.bios.task < 0
        unknown = unknown | who.unknown_cgroups(self.choice.context, window.bios)
        self.counts.bios += len(bios)
        self.counts.chosen += int(bios.sum())
        self.counts.unknown += int((unknown & ~bios).sum())
        edges, numbers = window.edges, window.bios.number[bios]
        served = edges.request[np.isin(edges.bio, numbers)]
        found = restricted(
            window,
            bios,
            self._requests(window.requests, served),
            open_bios,
            self._requests(window.open_requests, window.open_bios.request[open_bios]),
        )
        if (path := found.path) is not None:
            if self.choice.by_thread_alone and self.numbers is None:
                calls = who.of_threads(path.calls, window.tasks)
                waits = who.of_threads(path.waits, window.tasks)
            else:
                calls, waits = self._calls.masks(
                    path.calls,
                    path.waits,
                    (found.bios, path.bios, path.held),
                    (found.open_bios, path.open_bios, path.open_held),
                )
            # A submission is also kept if an earlier window had a chosen bio of it.
            of_bios = np.concatenate([path.bios.submission, path.open_bios.submission])
            wanted = np.union1d(self._submissions, of_bios[of_bios >= 0])
            number = path.submissions.number
            self._submissions = np.setdiff1d(wanted, number)
            found.path = replace(
                path,
                calls=path.calls.take(calls),
                waits=path.waits.take(waits),
                submissions=path.submissions.take(np.isin(number, wanted)),
            )
        if found.sites is not None:
            pairs = found.sites.pairs
            chosen = chosen_pairs(pairs, window.tasks, self.choice, self.wanted)
            found.sites = replace(found.sites, pairs=pairs.take(chosen))
            self.counts.pairs += len(pairs)
            self.counts.chosen_pairs += int(chosen.sum())
        return found

    def _requests(self, requests: Requests, served: I64) -> Bool:
        """Requests that served no known bio are chosen by device, operation and outcome."""
        alone = self.choice.request_mask(requests) & (requests.bios == 0)
        if self.wanted.slowest:  # they are chosen among bios
            alone[:] = False
        elif self.numbers is not None:
            known = (requests.start != NEVER) & (sure_complete(requests) != NEVER)
            waited = np.where(known, requests.complete - requests.start, 0)
            alone &= self.wanted.marks(waited, requests)
        return np.asarray(np.isin(requests.number, served) | alone, dtype=np.bool_)
