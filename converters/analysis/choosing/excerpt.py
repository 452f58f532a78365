# SPDX-License-Identifier: Apache-2.0
"""Parts of a log: the windows' tables, restricted to what was under way at certain times.

What was under way then is there whole, from its beginning to its end, also where that lies
outside: nothing is cut, and every counter is right within the chosen times.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from biotrail.converters.events.tables import I64, NEVER, Bios, Bool, Lifecycles, Requests
from biotrail.converters.lifecycles.windows import first_seen, restricted

LEAD_NS = 5_000_000
"""Before the first time: counters of what is under way already have begun by then."""


def around(ios: Iterable[tuple[int, int]], margin: int) -> list[tuple[int, int]]:
    """Times (ns) with a margin on either side, in order, those that touch made one."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted((max(b - margin, 0), e + margin) for b, e in ios):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def excerpt(
    windows: Iterable[Lifecycles], times: Sequence[tuple[int, int]]
) -> Iterator[Lifecycles]:
    """The windows with only what was under way at the times (ns, in order, apart)."""
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
    return bool(len(window.open_bios) or len(window.open_requests))


def _restricted(window: Lifecycles, begins: I64, ends: I64) -> Lifecycles:
    def chosen(table: Bios | Requests) -> Bool:
        # The same row is never chosen in one window and left out in a later one: what was under
        # way at a window's end is known to have lived until then.
        start = first_seen(table)
        end = np.where(table.complete != NEVER, table.complete, window.end)
        at = np.searchsorted(ends, start)
        inside = at < len(ends)
        inside &= begins[np.minimum(at, len(ends) - 1)] <= end
        return np.asarray(inside & (start != NEVER), dtype=np.bool_)

    tables = window.bios, window.requests, window.open_bios, window.open_requests
    bios, requests, open_bios, open_requests = (chosen(table) for table in tables)
    loss = (window.loss.end >= begins[0]) & (window.loss.start <= ends[-1])
    return replace(
        restricted(window, bios, requests, open_bios, open_requests), loss=window.loss.take(loss)
    )
