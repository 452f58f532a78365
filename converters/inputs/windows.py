# SPDX-License-Identifier: Apache-2.0
"""Windows of events: what of a source's parts can be processed, in which pieces."""

from collections.abc import Iterator

import numpy as np

from biotrail.converters.events.events import Events


def split_ready(waiting: Events, edge: int, most: int) -> tuple[Events, Events, int]:
    """Return (events before `edge` (ns), the others, edge); views of `waiting`.

    waiting: sorted by time. If none is before `edge` and more than `most` wait, all are returned as
    ready, with the last one's time + 1 as the edge: the chunks' clock readings do not advance, so
    the log is damaged or was made up.
    """
    count = int(np.searchsorted(waiting.ts, edge))
    if not count and len(waiting) > most:
        count, edge = len(waiting), int(waiting.ts[-1]) + 1
    ready, rest = waiting.split(count)
    return ready, rest, edge


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
    yield events, edge
