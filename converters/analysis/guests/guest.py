# SPDX-License-Identifier: Apache-2.0
"""A guest's log joined with its host's: disks with their images, one clock, linked requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from biotrail.converters.analysis.guests.disk_requests import (
    FLUSHES,
    OTHER,
    READ,
    WRITE,
    Extents,
    GuestRequests,
    HostBios,
    guest_side,
    host_side,
)
from biotrail.converters.clocks.corridor import MOST_DRIFT, Fit, Line, fit
from biotrail.converters.events.array_steps import spread
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import FAR, I64, NEVER, U8, Bool, Certainty, Table
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError

# Which bios of the host served each request of a guest, and where the request's time went.


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


def link(requests: GuestRequests, served: HostBios, line: Line, host: Trace) -> Links:
    """line: the host's clock by the guest's. host: read to its end."""
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
    # Without clock readings the log covers all time.
    clocks = [reading["monotonic"] for reading in host.context.clocks] or [0, FAR]
    unlinked[(complete < clocks[0]) | (issue > clocks[-1])] = Unlinked.OUTSIDE
    for lost in host.losses:
        at = (complete >= int(lost["start"])) & (issue <= int(lost["end"]))
        unlinked[at] = Unlinked.HOST_LOST
    unlinked[(requests.issue == NEVER) | (requests.complete == NEVER)] = Unlinked.NOT_ENDED
    unlinked[requests.op == OTHER] = Unlinked.COMMAND
    unlinked[found] = Unlinked.LINKED
    moved = np.bincount(edges.request, edges.sectors, len(requests))
    used = np.bincount(edges.bio, edges.sectors, len(served))
    flushes = np.bincount(edges.bio, edges.sectors == 0, len(served))
    shared = (used > served.sectors) | (flushes > 1)
    contested = np.bincount(edges.request, shared[edges.bio], len(requests)) > 0
    several = np.bincount(edges.request, edges.sectors == 0, len(requests)) > 1
    certainty = np.full(len(requests), Certainty.EXACT, dtype=np.uint8)
    certainty[(moved < requests.sectors) | ~timed] = Certainty.INCOMPLETE
    certainty[(moved > requests.sectors) | contested | several] = Certainty.AMBIGUOUS
    return Links(
        edges=edges,
        unlinked=unlinked,
        certainty=certainty,
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


# The guest's clock on the host's, from the requests that both recorded.
#
# A guest issues a request before the host queues its bio, and the host's bio completes before the
# guest sees the completion. So each request and its bio bound the offset of the clocks from both
# sides, whatever the wall clocks say. Which bio is a request's is not known beforehand: bios that
# begin at the request's sector are candidates, and the offset is what most of them agree on.

_STRETCH = 5_000_000_000
"""ns of the guest's clock whose candidates are judged together."""
_MOST_ALIKE = 64
"""Bios at a request's sector; requests with more are no help."""
_MOST_CANDIDATES = 4_000_000
LEAST = 8
_LEAST_SHARE = 0.3
"""Share of the requests with candidates that have to agree, of a stretch."""


@dataclass
class Pairs(Table):
    """Candidates: a request and a bio each, with the offsets (host minus guest) that they allow."""

    request: I64
    """Row of `GuestRequests` (n,), ascending."""
    at: I64
    low: I64
    """Least offset, ns: from both completions."""
    high: I64
    """Greatest offset, ns: from issue and queue."""


def agree(requests: GuestRequests, served: HostBios) -> Fit | None:
    """Return the line of the host's clock by the guest's; None: too few requests agree on one.

    `kept` is by request that has bounds.
    """
    pairs = candidates(requests, served)
    if len(pairs) < LEAST:
        return None
    chosen = pairs.take(_agreeing(pairs))
    _, row, count = np.unique(chosen.request, return_inverse=True, return_counts=True)
    alone = count[row] == 1  # the only candidate left
    if int(alone.sum()) >= LEAST:
        chosen = chosen.take(alone)
    if len(np.unique(chosen.request)) < LEAST:
        return None
    found = fit(chosen.at, chosen.low, chosen.high)
    if found is None:
        return None
    left = int((~found.kept).sum())
    if len(chosen) - left < LEAST or left > len(chosen) // 10:
        raise ConversionError(
            f"--guest-of: {left:,} of {len(chosen):,} requests contradict a steady clock of the "
            "guest: it was set, or slept, while recording; give shorter recordings"
        )
    return found


def candidates(requests: GuestRequests, served: HostBios) -> Pairs:
    """Return pairs of requests and bios of one operation that begin at one sector."""
    mine = np.flatnonzero(_usable(requests) & (requests.issue != NEVER))
    theirs = np.flatnonzero(_usable(served) & (served.queue != NEVER))
    keys = requests.sector[mine] * 2 + requests.op[mine]
    others = served.sector[theirs] * 2 + served.op[theirs]
    order = np.argsort(others, kind="stable")
    first = np.searchsorted(others[order], keys, side="left")
    count = np.searchsorted(others[order], keys, side="right") - first
    count[count > _MOST_ALIKE] = 0
    few = np.arange(len(count)) % (int(count.sum()) // _MOST_CANDIDATES + 1) == 0
    count[~few] = 0  # evenly, so that the bounds still span the recording
    row = np.repeat(np.arange(len(mine)), count)
    bio = theirs[order[spread(first, count)]]
    request = mine[row]
    low = served.complete[bio] - requests.complete[request]
    high = served.queue[bio] - requests.issue[request]
    # A bio takes no longer than the request that it serves.
    pairs = Pairs(request, requests.issue[request], low, high)
    return pairs.take(low <= high)


def _usable(table: GuestRequests | HostBios) -> Bool:
    """Mark reads and writes with data whose completion is known, and not in doubt."""
    moves = (table.op == READ) | (table.op == WRITE)
    return np.asarray(moves & (table.sectors > 0) & (table.complete != NEVER) & ~table.doubtful)


def _agreeing(pairs: Pairs) -> Bool:
    """Mark the candidates that agree with most others about the offset.

    The stretch of time where most agree comes first; its neighbours have to agree with it, as far
    as clocks may drift.
    """
    stretch = (pairs.at - pairs.at[0]) // _STRETCH
    bounds = np.flatnonzero(np.diff(stretch, prepend=-1, append=stretch[-1] + 1))
    spans = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    found = [_most_agreed(pairs, span, None) for span in spans]
    seed = max(range(len(spans)), key=lambda at: found[at][2])
    chosen = np.zeros(len(pairs), dtype=np.bool_)
    begin, end, agreed = found[seed]
    wanted = len(np.unique(pairs.request[slice(*spans[seed])]))
    if agreed < max(LEAST, _LEAST_SHARE * wanted):
        return chosen
    for steps in (range(seed, len(spans)), range(seed - 1, -1, -1)):
        near, at = (begin, end), int(pairs.at[spans[seed][0]])
        for number in steps:
            span = spans[number]
            room = _drift(abs(int(pairs.at[span[0]]) - at) + _STRETCH)
            low, high, count = _most_agreed(pairs, span, (near[0] - room, near[1] + room))
            if count:
                near, at = (low, high), int(pairs.at[span[0]])
                some = slice(*span)
                wide = _drift(_STRETCH)
                chosen[some] = (pairs.low[some] - wide <= high) & (pairs.high[some] + wide >= low)
    return chosen


def _drift(ns: int) -> int:
    return int(ns * MOST_DRIFT * 1e-6)


def _most_agreed(
    pairs: Pairs, span: tuple[int, int], within: tuple[int, int] | None
) -> tuple[int, int, int]:
    """Return (least, greatest, count): the offsets that most candidates of a span allow.

    within: offsets (ns) that are possible; None: any. As Marzullo's algorithm does: the place where
    most intervals overlap.
    """
    wide = _drift(_STRETCH) // 2
    low, high = pairs.low[slice(*span)] - wide, pairs.high[slice(*span)] + wide
    if within is not None:
        low, high = np.maximum(low, within[0]), np.minimum(high, within[1])
        low, high = low[low <= high], high[low <= high]
    if not len(low):
        return 0, 0, 0
    at = np.concatenate([low, high])
    step = np.repeat([1, -1], len(low))
    order = np.lexsort((-step, at))
    depth = np.cumsum(step[order])
    best = int(depth.argmax())
    return int(at[order[best]]), int(at[order[best + 1]]), int(depth[best])


@dataclass(frozen=True)
class Disk:
    dev: int
    part: int
    """dev_t on the host of the device, or partition, with the image."""
    requests: GuestRequests
    served: HostBios
    links: Links


@dataclass(frozen=True)
class Guest:
    pid: int
    """Of the virtual machine's process on the host."""
    process: str
    guest: Context
    host: Context
    disks: list[Disk]
    fit: Fit
    """Of the disk with the tightest bound; the clocks are all disks' clocks."""
    unmatched: list[int]
    """dev_t of the guest's disks with requests that are on no device of the host's log."""


def join(guest: Trace, host: Trace, wanted: str, mapping: Sequence[Extents] = ()) -> Guest:
    """Read both logs to their ends, and link the guest's requests with the host's bios.

    wanted: the virtual machine's process on the host, its id or name. mapping: of the image, as
    `read_mapping` returns it. Raises ConversionError: no such process, or no disk of the guest is
    found on the host.
    """
    requests = guest_side(guest)
    served, pid, process = host_side(host, wanted, mapping)
    found: list[tuple[int, int, Fit]] = []
    unmatched = []
    for dev in np.unique(requests.dev).tolist():
        mine = requests.take(requests.dev == dev)
        images = [
            (dev, part, agreed)
            for part in np.unique(served.part).tolist()
            if (agreed := agree(mine, served.take(served.part == part))) is not None
        ]
        if images:
            found.append(max(images, key=lambda one: np.count_nonzero(one[2].kept)))
        else:
            unmatched.append(dev)
    if not found:
        raise ConversionError(
            f"--guest-of {wanted}: no disk of the guest has its requests among the "
            f"{len(served):,} bios of process {pid} ({process}) by sector, operation "
            "and order: were both recorded at the same time, with cache=none or a device that the "
            "host recorded? An image in a file or of qcow2 needs --image (docs/guests.md)"
        )
    best = min((one for *_, one in found), key=lambda one: one.line.within)
    disks = []
    for dev, part, _ in found:
        both = requests.take(requests.dev == dev), served.take(served.part == part)
        disks.append(Disk(dev, part, *both, link(*both, best.line, host)))
    return Guest(pid, process, guest.context, host.context, disks, best, unmatched)
