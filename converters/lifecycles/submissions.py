# SPDX-License-Identifier: Apache-2.0
"""What a window's records say of io_uring's requests and aio's iocbs: of bios, and completions."""

from dataclasses import fields

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.path import full_time
from biotrail.converters.events.path_column import PATH
from biotrail.converters.events.submission_tables import BioRequests, RequestEnds, Submissions
from biotrail.converters.events.tables import I64
from biotrail.recorder.schema.records import Kind

_DTYPES = {
    "number": "i8",
    "req": "u8",
    "aio": "?",
    "ring": "u8",
    "user_data": "u8",
    "opcode": "u1",
    "writes": "?",
    "fd": "i8",
    "fixed": "?",
    "offset": "i8",
    "length": "i8",
    "runner": "u1",
    "joined": "u1",
    "tid": "u4",
    "task": "i4",
    "result": "i4",
    "setup": "u4",
    "bios": "u4",
    "bytes": "i8",
}
"""Type of each column of Submissions that is no time."""


def no_submissions() -> Submissions:
    """Return a table without rows, each column in its dtype."""
    names = [f.name for f in fields(Submissions)]
    return Submissions(**{name: np.zeros(0, dtype=_DTYPES.get(name, "i8")) for name in names})


def bio_requests(events: Events, ended: tuple[I64, I64], still: tuple[I64, I64]) -> BioRequests:
    """Return a row for each bio whose Q has a request (a SUBMISSION record), sorted by number.

    ended, still: (number, index of its Q in `events`, -1 none) per bio that ended, and per bio in
    flight, whose rows have `open`. `submitted` is ns of CLOCK_MONOTONIC, NEVER where the record has
    0. Without rows if `events.path` is None.
    """
    number, queued = (np.concatenate(pair) for pair in zip(ended, still, strict=True))
    is_open = np.repeat([False, True], [len(ended[0]), len(still[0])])
    known = np.flatnonzero(queued >= 0)
    if events.path is None or not len(known):
        request = np.zeros(0, dtype=PATH["request"])
        none = np.zeros(0, dtype=np.int64)
        return BioRequests(none, none.astype(np.bool_), none, request)
    known = known[events.path.take(queued[known]).field("request", "req") != 0]
    request = events.path.take(queued[known]).field("request")
    order = np.argsort(number[known])
    known, request = known[order], request[order]
    return BioRequests(
        number=number[known],
        open=is_open[known],
        submitted=full_time(events, queued[known], request["submitted"]),
        request=request,
    )


def request_ends(events: Events) -> RequestEnds:
    """Return a row for each RING_COMPLETE record of a window, in order of time.

    That is a completion of io_uring or aio. `submitted` is NEVER where the record has 0.
    """
    rows = events.rows(Kind.RING_COMPLETE)
    records = events.fields(Kind.RING_COMPLETE, rows)
    return RequestEnds(
        completed=events.ts[rows],
        req=records["req"].astype(np.uint64),
        submitted=full_time(events, rows, records["submitted"].astype(np.uint64)),
        ring=records["ring"].astype(np.uint64),
        result=records["result"].astype(np.int32),
        tid=records["tid"].astype(np.uint32),
        setup=records["setup"].astype(np.uint32),
    )
