# SPDX-License-Identifier: Apache-2.0
"""Which bios of the host served each request of a guest, and where the request's time went.

A request can have several bios (the host splits it), and a bio several requests (the hypervisor
merges neighbours), so a link is a range of sectors of both.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from biotrail.converters.analysis.guests.disk_requests import (
    FLUSHES,
    OTHER,
    GuestRequests,
    HostBios,
)
from biotrail.converters.clocks.corridor import Line
from biotrail.converters.events.array_steps import spread
from biotrail.converters.events.tables import I64, NEVER, U8, Bool, Certainty, Table

_MOST_AT_ONCE = 4_000_000
"""(request, bio) combinations that are looked at together."""


class Unlinked(IntEnum):
    LINKED = 0
    NO_HOST_IO = 1
    """The process queued nothing for it: the host's page cache, or the image, answered."""
    OUTSIDE = 2
    NOT_ENDED = 3
    """Its issue or completion is not in the guest's log."""
    COMMAND = 4
    """A driver's command, or another operation that moves no data."""
    HOST_LOST = 5
    """The host's log lost records at that time."""


REASONS = {
    Unlinked.NO_HOST_IO: "the host sent nothing to its device (its page cache, or a hole in the "
    "image)",
    Unlinked.OUTSIDE: "the host was not recording then",
    Unlinked.NOT_ENDED: "issue or completion is not in the guest's log",
    Unlinked.COMMAND: "a command without data for the image",
    Unlinked.HOST_LOST: "the host's log lost records at that time",
}


@dataclass
class Edges(Table):
    """One row per range of a request that a bio served, by (request, queue of the bio)."""

    request: I64
    bio: I64
    sectors: I64
    """Sectors of the range; 0: a flush."""


STAGES = ("to host", "host queue", "host device", "from host")
"""Parts of a guest request's D2C. They are gapless, so they add up to it."""


@dataclass
class Links:
    """What became of each request of a guest; shape (n,) by row of `GuestRequests`."""

    edges: Edges
    unlinked: U8
    certainty: U8
    """Of linked requests. EXACT: each sector was moved by one bio; INCOMPLETE: some sectors by
    none, or a completion is not known; AMBIGUOUS: a sector by several, or others wanted the same
    sector of a bio."""
    stages: I64
    """(n, 4): ns in each of STAGES, by the host's clock; 0 where not `timed`. The first and the
    last can be negative by as much as the clocks' bound."""
    timed: Bool
    """Whether all of its bios have queue and completion, so that `stages` is known."""
    doubtful: Bool
    """Whether it is not `timed` because its own completion, or one of its bios', is in doubt."""
    issue: I64
    """Issue by the host's CLOCK_MONOTONIC; NEVER where not known."""


@dataclass(frozen=True)
class Recorded:
    """What the host's log covers; ns of its CLOCK_MONOTONIC."""

    begin: int
    end: int
    lost: list[tuple[int, int]]
    """(begin, end) of times in which records were lost."""


def link(requests: GuestRequests, served: HostBios, line: Line, recorded: Recorded) -> Links:
    """line: the host's clock by the guest's. recorded: of the host."""
    issue, complete = line.times(requests.issue), line.times(requests.complete)
    known = (requests.issue != NEVER) & (requests.complete != NEVER) & (requests.op != OTHER)
    edges = _edges(requests, served, np.flatnonzero(known), issue, complete, line.within)
    found = np.bincount(edges.request, minlength=len(requests)) > 0
    ended = served.complete[edges.bio] != NEVER
    timed = found & (np.bincount(edges.request, ~ended, len(issue)) == 0)
    # The bio that completed last has the host's time. A bio without an issue of its own (a device
    # without requests) is with the device from its queue.
    stages = np.zeros((len(issue), len(STAGES)), dtype=np.int64)
    first = np.full(len(issue), np.iinfo(np.int64).max)
    np.minimum.at(first, edges.request, served.queue[edges.bio])
    order = np.lexsort((served.complete[edges.bio], edges.request))
    request, bio = edges.request[order], edges.bio[order]
    last = np.flatnonzero(np.diff(request, append=-1))
    row, bio = request[last], bio[last]
    own = np.where(served.issue[bio] == NEVER, served.queue[bio], served.issue[bio])
    marks = np.stack([issue[row], first[row], own, served.complete[bio], complete[row]], axis=1)
    stages[row[timed[row]]] = np.diff(marks[timed[row]], axis=1)
    doubtful = requests.doubtful.copy()
    doubtful[edges.request[served.doubtful[edges.bio]]] = True
    unlinked = np.full(len(requests), Unlinked.NO_HOST_IO, dtype=np.uint8)
    unlinked[(complete < recorded.begin) | (issue > recorded.end)] = Unlinked.OUTSIDE
    for start, stop in recorded.lost:
        unlinked[(complete >= start) & (issue <= stop)] = Unlinked.HOST_LOST
    unlinked[(requests.issue == NEVER) | (requests.complete == NEVER)] = Unlinked.NOT_ENDED
    unlinked[requests.op == OTHER] = Unlinked.COMMAND
    unlinked[found] = Unlinked.LINKED
    return Links(
        edges=edges,
        unlinked=unlinked,
        certainty=_certainty(requests, served, edges, timed),
        stages=stages,
        timed=timed & ~doubtful,
        doubtful=timed & doubtful,
        issue=issue,
    )


def _edges(
    requests: GuestRequests, served: HostBios, rows: I64, issue: I64, complete: I64, within: int
) -> Edges:
    """Return the bios that were under way only while a request was, with one of its sectors.

    rows: of requests with both times, by issue. issue, complete: per request, by the host's clock.
    within: bound of the clocks' error, ns.
    """
    order = np.argsort(served.queue, kind="stable")
    order = order[served.queue[order] != NEVER]
    queued = served.queue[order]
    first = np.searchsorted(queued, issue[rows] - within, side="left")
    count = np.searchsorted(queued, complete[rows] + within, side="right") - first
    count = np.maximum(count, 0)
    block = np.cumsum(count) // _MOST_AT_ONCE
    parts = [Edges(*np.zeros((3, 0), dtype=np.int64))]
    for number in np.unique(block).tolist():
        some = block == number
        request = np.repeat(rows[some], count[some])
        bio = order[spread(first[some], count[some])]
        begin = np.maximum(requests.sector[request], served.sector[bio])
        end = np.minimum(
            requests.sector[request] + requests.sectors[request],
            served.sector[bio] + served.sectors[bio],
        )
        alike = requests.op[request] == served.op[bio]
        alike &= (end > begin) | (requests.op[request] == FLUSHES)
        alike &= served.complete[bio] <= complete[request] + within
        parts.append(Edges(request[alike], bio[alike], np.maximum(end - begin, 0)[alike]))
    return Edges.concatenate(parts)


def _certainty(requests: GuestRequests, served: HostBios, edges: Edges, timed: Bool) -> U8:
    moved = np.bincount(edges.request, edges.sectors, len(requests))
    used = np.bincount(edges.bio, edges.sectors, len(served))
    flushes = np.bincount(edges.bio, edges.sectors == 0, len(served))
    shared = (used > served.sectors) | (flushes > 1)
    contested = np.bincount(edges.request, shared[edges.bio], len(requests)) > 0
    several = np.bincount(edges.request, edges.sectors == 0, len(requests)) > 1
    certainty = np.full(len(requests), Certainty.EXACT, dtype=np.uint8)
    certainty[(moved < requests.sectors) | ~timed] = Certainty.INCOMPLETE
    certainty[(moved > requests.sectors) | contested | several] = Certainty.AMBIGUOUS
    return certainty
