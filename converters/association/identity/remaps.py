# SPDX-License-Identifier: Apache-2.0
"""Distinguish bios that go on to a lower device (A or Q again) from clones at their address."""

import numpy as np

from biotrail.converters.events.array_steps import same_operation
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.sorting import is_in
from biotrail.converters.events.tables import I64, SECTOR_BYTES, U8, U32, U64, Bool
from biotrail.recorder.schema.records import Kind


def resubmitted(events: Events, event: I64, before: U8) -> Bool:
    """Mark A rows that send the bio of the row before on to another device: no clone.

    That is so for partitions, NVMe multipath, and linear targets of old kernels (submit_bio_noacct
    on the bio itself). The A must name the device and a range of the row before (Q or A), with its
    operation. Not marked where an A of another bio at the beginning of that range came in between:
    the bio above has clones, which do its work, so this is a new bio at a reused address.

    event, before: (n,) rows sorted by bio pointer, then time: event, and role of the row before.
    """
    result = np.zeros(len(event), dtype=np.bool_)
    rows = np.flatnonzero((events.kind[event] == Kind.A) & is_in(before, Kind.Q, Kind.A))
    if not len(rows):
        return result
    remaps = events.fields(Kind.A, event[rows])
    source = remaps["from_dev"]
    previous = event[rows - 1]
    part = np.where(
        events.kind[previous] == Kind.Q,
        events.fields(Kind.Q, previous)["part"],
        events.fields(Kind.A, previous)["part"],
    )
    on_it = (source == events.dev[previous]) | (source == part)
    into = remaps["from_sector"] - events.sector[previous]
    on_it |= _from_unnamed_partition(events, event[rows], previous, part) & (into == 0)
    begin = into.astype(np.int64) * SECTOR_BYTES
    inside = begin + events.bytes[event[rows]] <= events.bytes[previous]
    inside &= same_operation(events.opf[event[rows]], events.opf[previous])
    sent_on = on_it & (begin >= 0) & inside
    result[rows] = sent_on
    rows = rows[sent_on]
    others = event[~result]
    cloned = _cloned(events, others, source[sent_on], previous[sent_on], event[rows])
    result[rows[cloned]] = False
    return result


def _from_unnamed_partition(events: Events, event: I64, previous: I64, part: U32) -> Bool:
    """Return whether each A sends a bio from a partition that the A before named by its disk alone.

    Kernels without bi_bdev (before 5.12) do so when a device above sends a bio to a partition. All
    arrays have one entry per A. part: partition or disk that the event `previous` reports.
    """
    by_disk = (events.kind[previous] == Kind.A) & (part == events.dev[previous])
    stays = events.dev[event] == events.dev[previous]
    return np.asarray(by_disk & stays & (events.bytes[event] == events.bytes[previous]))


def sent_on_unseen(events: Events, event: I64, before: U8, context: Context) -> Bool:
    """Mark Q rows that queue the bio of the Q before once more, below; the A between was lost.

    Size and operation must agree, and the lower device must be one that the upper one stands on.
    The two are then one bio, which is in flight during the loss and so gets marked lost. Not where
    the upper device has requests of its own, nor where a clone of the upper bio was recorded.

    event, before: as for `resubmitted`.
    """
    result = np.zeros(len(event), dtype=np.bool_)
    rows = np.flatnonzero((events.kind[event] == Kind.Q) & (before == Kind.Q))
    rows = rows[events.dev[event[rows]] != events.dev[event[rows - 1]]]
    above, below = event[rows - 1], event[rows]
    same = events.bytes[above] == events.bytes[below]
    same &= same_operation(events.opf[above], events.opf[below])
    if not same.any():
        return result
    # A request-based device issues requests for its bios; it passes none of them on.
    requests = events.rows(Kind.G, Kind.START, Kind.I, Kind.D, Kind.C)
    same &= ~np.isin(events.dev[above], events.dev[requests])
    rows, above, below = rows[same], above[same], below[same]
    cloned = _cloned(events, event, events.dev[above], above, below)
    for row in rows[~cloned].tolist():
        result[row] = _leads_to(events, int(event[row - 1]), int(event[row]), context)
    return result


def _leads_to(events: Events, above: int, below: int, context: Context) -> bool:
    """Return whether the bio queued by event `above` can be the one queued by event `below`.

    From a partition the sector must be the disk's; from any other device the disk must be below it.
    """
    upper, lower = int(events.dev[above]), int(events.dev[below])
    start = context.partition_start(upper, lower)
    if start is not None:
        return int(events.sector[above]) + start == int(events.sector[below])
    return lower in {context.disk_of(dev) for dev in context.lower_devices(upper)}


def _cloned(events: Events, others: I64, source: U32, queued: I64, sent: I64) -> Bool:
    """Return, per bio, whether a clone of it began (A) between events `queued` and `sent`.

    others: events of rows that do not continue their own bio. source: per bio, the device that it
    was queued on, as an A names it. queued, sent: per bio, its event above and the event that may
    be its own below. A clone's first A names the beginning of the bio that it was cloned from.
    """
    clones = np.unique(others[events.kind[others] == Kind.A])
    if not len(clones):
        return np.zeros(len(sent), dtype=np.bool_)
    remaps = events.fields(Kind.A, clones)
    key = _keys(
        len(events),
        np.concatenate([remaps["from_dev"], source]),
        np.concatenate([remaps["from_sector"], events.sector[queued]]),
    )
    known = np.sort(key[: len(clones)] + clones)
    wanted = key[len(clones) :]
    at = np.searchsorted(known, wanted + queued, side="right")
    following = np.append(known, np.iinfo(np.int64).max)[at]
    return np.asarray(following < wanted + sent, dtype=np.bool_)


def _keys(count: int, dev: U32, sector: U64) -> I64:
    """Return an int64 key per (dev, sector), to which an event index below `count` can be added.

    Keys of different places differ by more than `count`.
    """
    _, devs = np.unique(dev, return_inverse=True)
    _, sectors = np.unique(sector, return_inverse=True)
    _, places = np.unique(devs * np.int64(len(sector)) + sectors, return_inverse=True)
    return np.asarray(places * np.int64(count + 1), dtype=np.int64)
