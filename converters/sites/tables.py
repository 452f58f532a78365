# SPDX-License-Identifier: Apache-2.0
"""Records of chosen sites as tables: a row for each PAIR and each HIT of a window."""

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.path import full_time
from biotrail.converters.events.site_tables import Hits, Pairs, SiteTables
from biotrail.converters.events.tables import NEVER
from biotrail.converters.events.tasks import TaskNames
from biotrail.recorder.schema.records import RECORDS, Kind

SITE_KINDS = tuple(record.kind for record in RECORDS if record.sites)
"""Kinds of records of chosen sites."""


def late_events(events: Events, complete_to: int) -> int:
    """Return how many events are from before `complete_to` (ns), without hits.

    Hits are gathered by life, in any order: `follow --slower` writes them when the life is over.
    """
    late = events.take(slice(None, int(np.searchsorted(events.ts, complete_to))))
    return len(late) - len(late.rows(Kind.HIT))


def site_tables(events: Events, tasks: TaskNames) -> SiteTables | None:
    """Return the tables of a window's PAIR and HIT records; None if it has none.

    A record is complete in itself, so the tables do not depend on how a log is cut into windows.
    events: sorted by time, with numbers. tasks: the threads' names so far.
    """
    if not len(events.rows(*SITE_KINDS)):
        return None
    return SiteTables(_pairs(events, tasks), _hits(events, tasks))


def no_sites() -> SiteTables:
    """Return tables without rows, all columns in their dtypes."""
    return SiteTables(_pairs(Events.empty(), TaskNames()), _hits(Events.empty(), TaskNames()))


def _pairs(events: Events, tasks: TaskNames) -> Pairs:
    """Return a row for each PAIR record, in order of time.

    A beginning that is not known (0) or is after the end, as only a damaged record has it, becomes
    the end.
    """
    rows = events.rows(Kind.PAIR)
    records = events.fields(Kind.PAIR, rows)
    ended = events.ts[rows]
    began = full_time(events, rows, records["began"].astype(np.uint64))
    tid = records["tid"].astype(np.uint32)
    return Pairs(
        number=events.number[rows],
        pair=records["pair"].astype(np.uint16),
        key0=records["key0"].astype(np.uint64),
        key1=records["key1"].astype(np.uint64),
        by=records["by"].astype(np.uint64),
        began=np.where((began == NEVER) | (began > ended), ended, began),
        ended=ended,
        cpu=events.cpu[rows],
        tid=tid,
        task=tasks.rows(tid, ended),
        comm=np.asarray(records["comm"]).astype("S16"),
    )


def _hits(events: Events, tasks: TaskNames) -> Hits:
    """Return a row for each HIT record, in order of time."""
    rows = events.rows(Kind.HIT)
    records = events.fields(Kind.HIT, rows)
    tid = records["tid"].astype(np.uint32)
    return Hits(
        number=events.number[rows],
        time=events.ts[rows],
        site=records["site"].astype(np.uint16),
        role=records["role"].astype(np.uint8),
        flags=records["flags"].astype(np.uint8),
        life=records["life"].astype(np.uint32),
        object=records["object"].astype(np.uint64),
        detail=records["detail"].astype(np.uint64),
        value=records["value"].astype(np.uint64),
        cpu=events.cpu[rows],
        tid=tid,
        task=tasks.rows(tid, events.ts[rows]),
        comm=np.asarray(records["comm"]).astype("S16"),
        stack=records["stack"].astype(np.int32),
    )
