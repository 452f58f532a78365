# SPDX-License-Identifier: Apache-2.0
"""Parts of a log: the windows' tables, restricted to I/Os that were in flight at chosen times.

These I/Os are kept whole, also where they begin before or end after the chosen times. So every
counter, such as queue depth, is right within the chosen times.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from biotrail.converters.events.tables import I64, NEVER, Bios, Bool, Lifecycles, Requests
from biotrail.converters.lifecycles.windows import first_seen, restricted

LEAD_NS = 5_000_000
"""ns that the excerpt begins before the first time, so that counters have a value by then."""


def around(ios: Iterable[tuple[int, int]], margin: int) -> list[tuple[int, int]]:
    """Return the stretches of time around I/Os: (begin, end) in ns, ascending and disjoint.

    ios: (begin, end) of each I/O in ns, in any order. margin: ns by which each is widened at both
    ends, but not below 0. Stretches that overlap or touch are merged. Empty without I/Os.
    """
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
    """Yield the windows with only the bios and requests that were in flight at some of the times.

    A window is one part of the log, with the tables of its I/O. times: (begin, end) in ns,
    ascending and disjoint, as `around` returns them; without times nothing is yielded. In flight
    is: from the first known time to the completion or, without a completion, to the window's end;
    without any known time, never. Stages go with their rows, edges with their bios; loss windows
    (records lost) that overlap the span from the first time's begin to the last one's end are kept.

    A window that keeps no row is skipped if it ends before the first time; if it begins after the
    last time, reading stops there. `begin` of a window is raised to LEAD_NS before the first time,
    or to the window's end if that is earlier, never lowered. The given windows are not changed.
    """
    if not times:
        return
    begins = np.array([begin for begin, _ in times], dtype=np.int64)
    ends = np.array([end for _, end in times], dtype=np.int64)
    first, last = times[0][0], times[-1][1]
    for window in windows:
        part = _restricted(window, begins, ends)
        empty = not (len(part.bios) or len(part.requests) or _goes_on(part))
        if empty and (window.end < first or window.begin > last):
            if window.begin > last:
                return
            continue
        yield replace(part, begin=max(part.begin, min(first - LEAD_NS, part.end)))


def _goes_on(window: Lifecycles) -> bool:
    """Return whether the window has bios or requests that are under way at its end."""
    return bool(len(window.open_bios) or len(window.open_requests))


def _restricted(window: Lifecycles, begins: I64, ends: I64) -> Lifecycles:
    """Return a copy of the window with only the rows that were in flight at some of the times.

    begins, ends: ns (k,) each, ascending and disjoint, at least one; an I/O that ends at a begin or
    starts at an end is chosen, too. Concerns `bios`, `requests`, `open_bios` and `open_requests`,
    with the stages of each, the edges of kept `bios`, and the rows of `path` that belong to kept
    bios and requests. Calls, waits and commits of `path` are kept by their own times; calls whose
    entry and commits whose start is not known are left out. Of `loss`, the loss windows that
    overlap begins[0] to ends[-1] are kept. A row without a completion lasts to the window's end.
    """

    def chosen(table: Bios | Requests) -> Bool:
        """Mark the rows in flight at some of the times: bool (n,); False without any known time."""
        # A row without a completion counts as in flight until the window's end, which it reached.
        # So no row is chosen in one window and left out in a later one.
        end = np.where(table.complete != NEVER, table.complete, window.end)
        return overlapping(first_seen(table), end)

    def overlapping(start: I64, end: I64) -> Bool:
        """Mark the spans (ns, both included) that overlap some of the times: bool (n,)."""
        next_time = np.searchsorted(ends, start)
        inside = next_time < len(ends)
        inside &= begins[np.minimum(next_time, len(ends) - 1)] <= end
        return np.asarray(inside & (start != NEVER), dtype=np.bool_)

    tables = window.bios, window.requests, window.open_bios, window.open_requests
    bios, requests, open_bios, open_requests = (chosen(table) for table in tables)
    loss = (window.loss.end >= begins[0]) & (window.loss.start <= ends[-1])
    found = restricted(window, bios, requests, open_bios, open_requests)
    if (path := found.path) is not None:
        calls = path.calls.take(overlapping(path.calls.entry, path.calls.exit))
        waits = path.waits.take(overlapping(path.waits.out, path.waits.run))
        commits = path.commits
        commits = commits.take(overlapping(commits.started, commits.end))
        found.path = replace(path, calls=calls, waits=waits, commits=commits)
    return replace(found, loss=window.loss.take(loss))
