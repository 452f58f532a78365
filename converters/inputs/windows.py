# SPDX-License-Identifier: Apache-2.0
"""Windows of events: what of a source's parts can be processed, in which pieces."""

from collections.abc import Iterator, Sequence

import numpy as np

from biotrail.converters.events.events import Events


def split_ready(parts: Sequence[Events], edge: int, most: int) -> tuple[Events, Events, int]:
    """Return (the parts' events before `edge` (ns), the others, edge), joined.

    parts: each sorted by time. If none is before `edge` and more than `most` wait, all are returned
    as ready, with the last one's time + 1 as the edge: the chunks' clock readings do not advance,
    so the log is damaged or was made up.
    """
    parts = [part for part in parts if len(part)]
    counts = [int(np.searchsorted(part.ts, edge)) for part in parts]
    if not any(counts) and sum(map(len, parts)) > most:
        counts, edge = list(map(len, parts)), max(int(part.ts[-1]) for part in parts) + 1
    halves = [part.split(count) for part, count in zip(parts, counts, strict=True)]
    ready = Events.join([before for before, _ in halves])
    return ready, Events.join([after for _, after in halves]), edge


def pieces(events: Events, edge: int, size: int) -> Iterator[tuple[Events, int]]:
    """Yield (events, end): the time-sorted events in windows, in order, as views.

    Windows have at most `size` events, the last one fewer than twice as many, maybe none. Events of
    one time stay together: if more than `size` have the first time of what is left, all that is
    left is the last window. end: ns, before which all events were yielded; the last is `edge`.
    """
    while len(events) >= 2 * max(size, 1):
        end = int(events.ts[size])
        cut = int(np.searchsorted(events.ts, end))
        if not cut:
            break
        window, events = events.split(cut)
        yield window, end
    left = [events]
    del events
    yield left.pop(), edge
