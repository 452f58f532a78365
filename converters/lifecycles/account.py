# SPDX-License-Identifier: Apache-2.0
"""The account of every event: used in a lifecycle, or left out for one reason of a closed list."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import (
    I64,
    U8,
    Bios,
    Bool,
    Certainty,
    Edges,
    RequestKind,
    Requests,
)
from biotrail.recorder.schema.records import BY_KIND, Kind


class Reason(StrEnum):
    """Whether an event is part of a lifecycle, or why it is not; the values are shown to users."""

    USED = "used in a bio's or request's lifecycle"
    DICTIONARY = "names a task, cgroup or file"
    STACK = "call stack of a bio"
    FILE = "file of a bio"
    SITE = "pair of events, or hit of a followed object"
    PATH = (
        "path beside the block layer: calls, submissions, waits, drivers, interrupts, writers, "
        "limits"
    )
    PLUGGING = "plugging: belongs to a task, not to one bio"
    AFTER_END = "comment on a request whose own events are not in the log"
    NO_ISSUE = "chain whose issue is not in the log"
    OWN = "I/O of the recording itself, left out"
    NO_POINTER = "says only a pointer, and pointers are not used or not known"


_PLAIN = {
    Kind.TASK: Reason.DICTIONARY,
    Kind.CGROUP: Reason.DICTIONARY,
    Kind.FILE_NAME: Reason.DICTIONARY,
    Kind.STACK: Reason.STACK,
    Kind.FILE: Reason.FILE,
    **dict.fromkeys((Kind.CALL, Kind.RETURN, Kind.WAIT, Kind.INTERRUPT, Kind.DIRTIED), Reason.PATH),
    **dict.fromkeys((Kind.WAIT_STACK, Kind.WAIT_CALL, Kind.COMMIT, Kind.CALL_FILE), Reason.PATH),
    **dict.fromkeys((Kind.SUBMISSION, Kind.RING_COMPLETE), Reason.PATH),
    **dict.fromkeys((Kind.DRIVER, Kind.HELD, Kind.BEHALF, Kind.BACKING), Reason.PATH),
    **dict.fromkeys((Kind.PAIR, Kind.HIT), Reason.SITE),
    Kind.P: Reason.PLUGGING,
    Kind.U: Reason.PLUGGING,
    Kind.CHAIN: Reason.NO_ISSUE,
    Kind.DONE: Reason.AFTER_END,
    Kind.E: Reason.AFTER_END,
}


@dataclass
class FollowedCounts:
    """Counts of followed lives, complete once all windows were read."""

    lives: int = 0
    joined: int = 0
    """Lives whose request, or bio, is known."""
    several: int = 0
    """Of these, lives that overlap a later request with the address too: the first one was taken,
    as the death between them is not recorded."""


@dataclass
class LightCounts:
    """Counts of a light log's requests for data, complete once all windows were read."""

    requests: int = 0
    without_start: int = 0
    """Requests whose start the kernel took no time of."""
    without_issue: int = 0
    """Requests whose issue the kernel took no time of."""

    def add(self, requests: Requests) -> None:
        """Add a window's requests: those with data that have bios."""
        rows = (requests.bios > 0) & (requests.bytes > 0) & (requests.kind == RequestKind.NORMAL)
        unknown = requests.certainty == Certainty.INCOMPLETE
        self.requests += int(rows.sum())
        self.without_start += int((rows & unknown & (requests.complete >= 0)).sum())
        self.without_issue += int((rows & (requests.issue < 0)).sum())


@dataclass
class Pairing:
    """Counts of flushes that could have ended by several completions, of groups that have ended.

    completions: how many. same: those of them in groups whose completions all came at one time, so
    that the ends are exact whichever flush each was of. most_ns: longest time between the first and
    the last completion of a group (ns). spans: completions by the bit length of that time.
    """

    completions: int = 0
    same: int = 0
    most_ns: int = 0
    spans: Counter[int] = field(default_factory=Counter)

    @property
    def half_ns(self) -> int:
        """Median over completions of the time that their group spans (ns), as 2ⁿ - 1."""
        seen = 0
        for bits, count in sorted(self.spans.items()):
            seen += count
            if 2 * seen >= self.completions:
                return min(self.most_ns, (1 << bits) - 1)
        return 0

    def as_dict(self) -> dict[str, int]:
        return {
            "completions": self.completions,
            "same_time": self.same,
            "half_within_ns": self.half_ns,
            "all_within_ns": self.most_ns,
        }


@dataclass
class Account:
    """Counts over a whole log; complete when its windows are exhausted.

    events: events by (letter, reason). devices: events by (dev_t, letter). bios, requests, edges:
    rows by the lower-case name of their certainty. unknown: records of kinds that this reader
    does not know, by kind number. late: events that were read after their window had been closed.
    doubtful: table (bios, requests) → rows whose latency is in doubt (`Bios.doubtful`).
    completions_not_seen: requests that are LOST because their completion was not recorded.
    first_ns, last_ns: times of the first and last event counted, -1 before any.
    """

    events: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    devices: Counter[tuple[int, str]] = field(default_factory=Counter)
    bios: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    edges: Counter[str] = field(default_factory=Counter)
    doubtful: dict[str, int] = field(default_factory=lambda: {"bios": 0, "requests": 0})
    unknown: dict[int, int] = field(default_factory=dict)
    unreadable_bytes: int = 0
    late: int = 0
    own_bios: int = 0
    """Bios of the recording's own I/O, left out or not; `own_bytes` and `own_requests` likewise."""
    own_bytes: int = 0
    own_requests: int = 0
    completions_not_seen: int = 0
    pairing: Pairing = field(default_factory=Pairing)
    """Association by intervals: flushes whose completion could be one of several."""
    light: LightCounts = field(default_factory=LightCounts)
    """Of a light log: requests of which the kernel took not all times."""
    followed: FollowedCounts = field(default_factory=FollowedCounts)
    """Of a log that follows requests or bios: which of them their lives are."""
    first_ns: int = -1
    last_ns: int = -1

    @property
    def total(self) -> int:
        """Number of counted events, of all kinds that this reader knows."""
        return sum(self.events.values())

    def by_letter(self) -> dict[str, int]:
        """Return the number of events by the kind's letter; kinds without events are missing."""
        counts: Counter[str] = Counter()
        for (letter, _), count in self.events.items():
            counts[letter] += count
        return counts

    def by_reason(self) -> dict[Reason, int]:
        counts: Counter[Reason] = Counter()
        for (_, reason), count in self.events.items():
            counts[reason] += count
        return counts

    def add_counts(
        self, counts: I64, devices: dict[tuple[int, int], int], first: int, last: int
    ) -> None:
        """Count events.

        counts: (256, 2), by kind and whether they are part of a lifecycle. devices: by (dev_t,
        kind). first, last: their first and last time (ns).
        """
        self.first_ns = first if self.first_ns < 0 else min(self.first_ns, first)
        self.last_ns = max(self.last_ns, last)
        for kind, used in np.argwhere(counts).tolist():
            reason = Reason.USED if used else _PLAIN.get(Kind(kind), Reason.NO_POINTER)
            self.events[BY_KIND[Kind(kind)].letter, reason] += int(counts[kind, used])
        for (dev, kind), count in devices.items():
            if dev:
                self.devices[dev, BY_KIND[Kind(kind)].letter] += count

    def move_to_own(self, counts: dict[int, int]) -> None:
        """Count used events, by kind, as those of the recording itself."""
        for kind, count in counts.items():
            letter = BY_KIND[Kind(kind)].letter
            self.events[letter, Reason.USED] -= count
            self.events[letter, Reason.OWN] += count
            if not self.events[letter, Reason.USED]:
                del self.events[letter, Reason.USED]

    def add_own(self, bios: Bios, requests: Requests) -> None:
        """Add the recording's own bios and requests among those that ended in a window."""
        self.own_bios += int(bios.own.sum())
        self.own_bytes += int(bios.bytes[bios.own].sum(dtype=np.int64))
        self.own_requests += int(requests.own.sum())

    def add_tables(
        self, bios: Bios, requests: Requests, edges: Edges, is_light: bool = False
    ) -> None:
        """Count a window's rows, which ended in it, by certainty, and those in doubt."""
        if is_light:
            self.light.add(requests)
        for table, counts in ((bios, self.bios), (requests, self.requests), (edges, self.edges)):
            for certainty in Certainty:
                counts[certainty.name.lower()] += int((table.certainty == certainty).sum())
        self.doubtful["bios"] += int(bios.doubtful.sum())
        self.doubtful["requests"] += int(requests.doubtful.sum())
        lost = (requests.certainty == Certainty.LOST) & (requests.complete < 0)
        self.completions_not_seen += int(lost.sum())

    def as_dict(self) -> dict[str, Any]:
        """Return all counts but `devices` as plain values for JSON; times in ns."""
        return {
            "events": self.total,
            "kinds": self.by_letter(),
            "reasons": {str(r): n for r, n in self.by_reason().items()},
            "bios": self.bios,
            "requests": self.requests,
            "edges": self.edges,
            "doubtful": self.doubtful,
            "own_io": {
                "bios": self.own_bios,
                "bytes": self.own_bytes,
                "requests": self.own_requests,
            },
            "completions_not_seen": self.completions_not_seen,
            "flushes_to_pair": self.pairing.as_dict(),
            "late": self.late,
            "unknown_kinds": self.unknown,
            "unreadable_bytes": self.unreadable_bytes,
            "first_ns": self.first_ns,
            "last_ns": self.last_ns,
        }


def kind_counts(events: Events, used: U8 | Bool) -> I64:
    """Return the number of events by kind and whether they are used: (256, 2)."""
    key = events.kind.astype(np.uint16) << np.uint16(1) | used
    counts: I64 = np.bincount(key, minlength=512).reshape(256, 2)
    return counts
