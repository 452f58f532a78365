# SPDX-License-Identifier: Apache-2.0
"""Events as the rules of `identify` read them, and how the identities are written into records."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.association.without_pointers.doubt import Doubt
from biotrail.converters.association.without_pointers.pending import InFlight, Tag
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import OP_MASK, SECTOR_BYTES, U64, EventRows
from biotrail.recorder.schema.records import NO_SECTOR, NO_TAG, Kind

RELEVANT = (
    Kind.Q,
    Kind.G,
    Kind.M,
    Kind.F,
    Kind.X,
    Kind.A,
    Kind.BIO_COMPLETE,
    Kind.START,
    Kind.I,
    Kind.R,
    Kind.RQ_MERGE,
    Kind.D,
    Kind.C,
    Kind.RQ_REMAP,
)
"""Record kinds that have a rule."""
WITH_TID = (Kind.Q, Kind.G, Kind.M, Kind.F, Kind.X, Kind.A)
"""Record kinds that report the submitting thread."""


@dataclass(eq=False)
class Event(Doubt):
    """One event, as the rules read it.

    dev: dev_t. sector, end: range in 512-byte sectors, half open; 0 for a flush request's. op:
    REQ_OP_*.
    opf: bi_opf or cmd_flags. tid: submitting thread, 0 where the kind reports none. number: index
    of the event in the log. The rules set bio, request, other, doubt, members and completes_bio,
    and may turn kind M into RQ_MERGE.
    """

    kind: int
    dev: int
    sector: int
    end: int
    op: int
    opf: int
    tid: int
    number: int
    failed: bool = False
    """C alone: whether it has an error."""
    ts: int = 0
    """ns."""
    source: tuple[int, int] = (0, 0)
    """A alone: device and sector that the bio comes from."""
    part: int = 0
    """A alone: partition or disk that the bio goes to."""
    slot: Tag | None = None
    """D alone: hardware queue and driver tag, None where one of them is not recorded."""
    tag: Tag | None = None
    """s alone: the tag that its request keeps until it ends, a scheduler's or a driver's."""
    sent: InFlight | None = None
    """Bio of this thread's last event, if that was an A."""
    bio: int = 0
    """Identity of the bio, a request event's head bio; 0: none."""
    request: int = 0
    """Identity of the request; 0: none, or not known."""
    other: int = 0
    """X: identity of the parent; m: of the absorbing request; 0: not known."""
    members: list[int] = field(default_factory=list)
    """D or I of a request without a recorded G or s: identities of the bios that it covers."""
    completes_bio: bool = False
    """blktrace's C: whether it is the completion of a bio (c)."""


def read_events(events: Events, rows: EventRows) -> list[Event]:
    """Return the records at `rows` of `events` as Event objects, in that order.

    All must be of RELEVANT kinds. The fields that the rules set (bio, request, other, doubt,
    members, completes_bio) and `sent` have their defaults. NO_SECTOR (a flush request's) becomes
    sector 0.
    """
    kind, sector = events.kind[rows], events.sector[rows]
    nowhere = sector == NO_SECTOR
    sector = np.where(nowhere, np.uint64(0), sector).astype(np.int64)
    end = sector + events.bytes[rows] // SECTOR_BYTES
    tid = np.where(np.isin(kind, WITH_TID), events.raw[rows, 4] >> np.uint64(32), np.uint64(0))
    opf = events.opf[rows]
    failed = (kind == Kind.C) & (events.status[rows] != 0)
    columns: tuple[NDArray[Any], ...]
    columns = (kind, events.dev[rows], sector, end, opf & OP_MASK, opf, tid, events.number[rows])
    columns = (*columns, failed, events.ts[rows])
    result = [Event(*values) for values in zip(*(c.tolist() for c in columns), strict=True)]
    remaps = np.flatnonzero(kind == Kind.A)
    fields = events.fields(Kind.A, rows[remaps])
    sources = zip(fields["from_dev"].tolist(), fields["from_sector"].tolist(), strict=True)
    parts = fields["part"].tolist()
    for row, source, part in zip(remaps.tolist(), sources, parts, strict=True):
        result[row].source, result[row].part = source, part
    _read_slots(events, rows, result)
    _read_tags(events, rows, result)
    return result


def _read_slots(events: Events, rows: EventRows, result: list[Event]) -> None:
    """Set `slot` = (hctx, driver tag) of each D in `result` that has both; others keep None.

    rows, result: rows of `events`, and the Event made of each, in the same order.
    """
    issues = np.flatnonzero(events.kind[rows] == Kind.D)
    fields = events.fields(Kind.D, rows[issues])
    queue, tag = fields["hctx"], fields["tag"]
    both = (queue != NO_TAG) & (tag != NO_TAG)
    slots = zip(issues[both].tolist(), queue[both].tolist(), tag[both].tolist(), strict=True)
    for row, *slot in slots:
        result[row].slot = (slot[0], slot[1])


def _read_tags(events: Events, rows: EventRows, result: list[Event]) -> None:
    """Set `tag` of each s (START) in `result`, as far as recorded; other events keep None.

    ("scheduler", sched_tag) if the request has one, else ("driver", tag). Without either it stays
    None. rows, result: rows of `events`, and the Event made of each, in the same order.
    """
    starts = np.flatnonzero(events.kind[rows] == Kind.START)
    fields = events.fields(Kind.START, rows[starts])
    tags = zip(fields["tag"].tolist(), fields["sched_tag"].tolist(), strict=True)
    for row, (driver, scheduler) in zip(starts.tolist(), tags, strict=True):
        if scheduler != NO_TAG:
            result[row].tag = ("scheduler", scheduler)
        elif driver != NO_TAG:
            result[row].tag = ("driver", driver)


def zero_pointers(events: Events, raw: U64) -> None:
    """Set to 0 the fields of `raw` that hold kernel addresses, so that only the rules fill them.

    raw: (n, 8) uint64, the records of `events`, changed in place. Zeroed are the bio and request
    pointers of all bio and request records (also of E and DONE), X's parent, the page address of Q,
    and all words of CHAIN but the first.
    """
    kind = events.kind
    rq = np.isin(
        kind, [Kind.START, Kind.I, Kind.R, Kind.RQ_MERGE, Kind.D, Kind.C, Kind.E, Kind.RQ_REMAP]
    )
    bio = np.isin(kind, [*WITH_TID, Kind.BIO_COMPLETE])
    raw[rq | bio | (kind == Kind.DONE), 1] = 0
    raw[rq, 2] = 0
    raw[np.isin(kind, [Kind.G, Kind.M, Kind.F, Kind.X]), 5] = 0
    raw[kind == Kind.Q, 7] = 0
    raw[kind == Kind.CHAIN, 1:] = 0


def rewrite_as_bio_complete(words: U64) -> None:
    """Rewrite one C record as a c (BIO_COMPLETE) of the same range, operation, device and status.

    words: the record's 8 uint64, changed in place. The bio pointer is set to 0.
    """
    head = int(words[0]) & ((1 << 56) - 1)
    words[0] = (int(Kind.BIO_COMPLETE) << 56) | head
    words[1:6] = [0, words[3], words[4], words[5], 0]


def rewrite_as_request_merge(words: U64) -> None:
    """Rewrite one M or F record as an m (RQ_MERGE) of the same range, operation and device.

    words: the record's 8 uint64, changed in place. All pointers are set to 0, the tags to "none".
    """
    head = int(words[0]) & ((1 << 56) - 1)
    words[0] = (int(Kind.RQ_MERGE) << 56) | head
    words[1:7] = [0, 0, words[2], words[3], int(words[4]) | 0xFFFFFFFF << 32, 0]
