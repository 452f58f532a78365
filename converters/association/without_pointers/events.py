# SPDX-License-Identifier: Apache-2.0
"""Events as the rules of `identify` want them, and how what they found is written back."""

from dataclasses import dataclass, field

import numpy as np

from biotrail.converters.association.identity.association import NO_SECTOR
from biotrail.converters.association.without_pointers.pending import Held, Tag
from biotrail.converters.events.context import OP_MASK
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import SECTOR_BYTES
from biotrail.recorder.schema.records import NO_TAG, Kind

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
WITH_TID = (Kind.Q, Kind.G, Kind.M, Kind.F, Kind.X, Kind.A)


@dataclass(slots=True)
class Event:
    """One event, as the rules want it. bio, request, other: the identities found."""

    kind: int
    dev: int
    sector: int
    end: int
    op: int
    opf: int
    tid: int
    number: int
    failed: bool = False
    """C with an error."""
    ts: int = 0
    """ns."""
    source: tuple[int, int] = (0, 0)
    """A: the device and sector that it names as where the bio came from."""
    part: int = 0
    """A: the partition or disk that it went to."""
    slot: Tag | None = None
    """D: hardware queue and driver tag, where both are told."""
    tag: Tag | None = None
    """s: the tag that its request has until it ends, a scheduler's or a driver's."""
    sent: Held | None = None
    """The bio that this thread's event before remapped."""
    bio: int = 0
    request: int = 0
    other: int = 0
    """X: the parent; m: the request that takes its bios."""
    doubt: int = 0
    members: list[int] = field(default_factory=list)
    completes_bio: bool = False


def read(events: Events, rows: np.ndarray) -> list[Event]:
    """The given rows, one object each."""
    kind, sector = events.kind[rows], events.sector[rows]
    nowhere = sector == NO_SECTOR
    sector = np.where(nowhere, np.uint64(0), sector).astype(np.int64)
    end = sector + events.bytes[rows] // SECTOR_BYTES
    tid = np.where(np.isin(kind, WITH_TID), events.raw[rows, 4] >> np.uint64(32), np.uint64(0))
    opf = events.opf[rows]
    failed = (kind == Kind.C) & (events.status[rows] != 0)
    columns: tuple[np.ndarray, ...]
    columns = (kind, events.dev[rows], sector, end, opf & OP_MASK, opf, tid, events.number[rows])
    columns = (*columns, failed, events.ts[rows])
    found = [Event(*values) for values in zip(*(c.tolist() for c in columns), strict=True)]
    remaps = np.flatnonzero(kind == Kind.A)
    fields = events.fields(Kind.A, rows[remaps])
    sources = zip(fields["from_dev"].tolist(), fields["from_sector"].tolist(), strict=True)
    parts = fields["part"].tolist()
    for row, source, part in zip(remaps.tolist(), sources, parts, strict=True):
        found[row].source, found[row].part = source, part
    _read_slots(events, rows, found)
    _read_tags(events, rows, found)
    return found


def _read_slots(events: Events, rows: np.ndarray, found: list[Event]) -> None:
    issues = np.flatnonzero(events.kind[rows] == Kind.D)
    fields = events.fields(Kind.D, rows[issues])
    queue, tag = fields["hctx"], fields["tag"]
    told = (queue != NO_TAG) & (tag != NO_TAG)
    slots = zip(issues[told].tolist(), queue[told].tolist(), tag[told].tolist(), strict=True)
    for row, *slot in slots:
        found[row].slot = (slot[0], slot[1])


def _read_tags(events: Events, rows: np.ndarray, found: list[Event]) -> None:
    starts = np.flatnonzero(events.kind[rows] == Kind.START)
    fields = events.fields(Kind.START, rows[starts])
    tags = zip(fields["tag"].tolist(), fields["sched_tag"].tolist(), strict=True)
    for row, (driver, scheduler) in zip(starts.tolist(), tags, strict=True):
        if scheduler != NO_TAG:
            found[row].tag = ("scheduler", scheduler)
        elif driver != NO_TAG:
            found[row].tag = ("driver", driver)


def forget_pointers(events: Events, raw: np.ndarray) -> None:
    """Takes out of raw records what tells identities."""
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


def as_bio_complete(words: np.ndarray) -> None:
    """A C of blktrace that was a bio's: the same facts in the other record's layout."""
    head = int(words[0]) & ((1 << 56) - 1)
    words[0] = (int(Kind.BIO_COMPLETE) << 56) | head
    words[1:6] = [0, words[3], words[4], words[5], 0]


def as_request_merge(words: np.ndarray) -> None:
    """An M of blktrace that was a request's, likewise."""
    head = int(words[0]) & ((1 << 56) - 1)
    words[0] = (int(Kind.RQ_MERGE) << 56) | head
    words[1:7] = [0, 0, words[2], words[3], int(words[4]) | 0xFFFFFFFF << 32, 0]
