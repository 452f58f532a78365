# SPDX-License-Identifier: Apache-2.0
"""Distinguish bios that go on to a lower device (A or Q again) from clones at their address."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.rules import Rule, all_mark
from biotrail.converters.events.array_steps import same_operation
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.sorting import is_in
from biotrail.converters.events.tables import I64, SECTOR_BYTES, U8, U32, U64, Bool
from biotrail.recorder.schema.records import Kind


@dataclass(frozen=True)
class Remaps:
    """Remaps (k,): an A, and the Q or A before it at the same bio address.

    this: event of the A. previous: event before. from_dev, from_sector: where the A says that the
    bio comes from. part: partition or disk that the event before reports.
    """

    events: Events
    this: I64
    previous: I64
    from_dev: U32
    from_sector: U64
    part: U32

    @property
    def offset(self) -> I64:
        """Per remap (k,): bytes from the beginning of the earlier range to `from_sector`."""
        sectors = (self.from_sector - self.events.sector[self.previous]).astype(np.int64)
        return sectors * SECTOR_BYTES


def _from_its_device(rows: Remaps) -> Bool:
    """Return, per remap (k,), whether it comes from the device or partition of the event before.

    Or, where the event before is an A that goes to a whole disk, whether it has the same range and
    stays on that disk: kernels without bi_bdev (before 5.12) name a partition by its disk alone
    when a device above sends a bio to it.
    """
    events = rows.events
    by_disk = (events.kind[rows.previous] == Kind.A) & (rows.part == events.dev[rows.previous])
    by_disk &= events.dev[rows.this] == events.dev[rows.previous]
    by_disk &= (events.bytes[rows.this] == events.bytes[rows.previous]) & (rows.offset == 0)
    named = (rows.from_dev == events.dev[rows.previous]) | (rows.from_dev == rows.part)
    return np.asarray(named | by_disk, dtype=np.bool_)


def _ends_inside(rows: Remaps) -> Bool:
    """Return, per remap (k,), whether it ends at or before the end of the earlier range."""
    size = rows.events.bytes
    inside = rows.offset + size[rows.this] <= size[rows.previous]
    return np.asarray(inside, dtype=np.bool_)


def _same_operation(rows: Remaps) -> Bool:
    """Return, per remap (k,), whether both events have the same operation (REQ_OP)."""
    return same_operation(rows.events.opf[rows.this], rows.events.opf[rows.previous])


RESUBMISSION_CONDITIONS: tuple[Rule[Remaps], ...] = (
    Rule(
        "from-its-device",
        _from_its_device,
        "it comes from the device or partition where the bio is",
        "block_bio_remap reports the device that the bio leaves",
        "case",
    ),
    Rule(
        "begins-inside",
        lambda rows: rows.offset >= 0,
        "it begins inside the bio's range",
        "what is left of a bio after a split is remapped as well",
        "case",
    ),
    Rule(
        "ends-inside",
        _ends_inside,
        "it ends inside the bio's range",
        "likewise",
        "case",
    ),
    Rule(
        "same-operation",
        _same_operation,
        "it has the bio's operation",
        "a remap keeps bi_opf's operation",
        "case",
    ),
)
"""An A that holds all of these sends on the bio of the row before."""


def resubmitted(events: Events, event: I64, before: U8) -> Bool:
    """Return the mask (n,) of the A rows that send the bio of the row before on: no clone.

    That is so for partitions, NVMe multipath, and linear targets of old kernels (submit_bio_noacct
    on the bio itself), where the row before is a Q or A and the A holds RESUBMISSION_CONDITIONS: it
    comes from that row's device, lies in its range and has its operation. Not where an A of another
    bio, from the beginning of that range, came in between: the bio above has clones, which do its
    work, so this is a new bio at a reused address.

    event, before: (n,) rows sorted by bio pointer, then time: event, and role of the row before.
    """
    result = np.zeros(len(event), dtype=np.bool_)
    rows = np.flatnonzero((events.kind[event] == Kind.A) & is_in(before, Kind.Q, Kind.A))
    if not len(rows):
        return result
    fields = events.fields(Kind.A, event[rows])
    previous = event[rows - 1]
    part = np.where(
        events.kind[previous] == Kind.Q,
        events.fields(Kind.Q, previous)["part"],
        events.fields(Kind.A, previous)["part"],
    )
    remaps = Remaps(events, event[rows], previous, fields["from_dev"], fields["from_sector"], part)
    sent_on = all_mark(RESUBMISSION_CONDITIONS, remaps, len(rows))
    result[rows] = sent_on
    rows = rows[sent_on]
    foreign_event = event[~result]
    cloned = _cloned(
        events, foreign_event, remaps.from_dev[sent_on], previous[sent_on], event[rows]
    )
    result[rows[cloned]] = False
    return result


def queued_below_without_remap(events: Events, event: I64, before: U8, context: Context) -> Bool:
    """Return the mask (n,) of Q rows that queue the bio of the Q before on a lower device.

    The A between was lost. Size and operation must agree, and the lower device must be another, one
    that the upper one stands on (`_leads_to`). Not where the upper device has requests of its own
    in the window, nor where a clone of the upper bio was recorded between the two Q. The bio is in
    flight during the loss, and so gets marked lost.

    event, before: (n,) rows sorted by bio pointer, then time: index into `events`, and role of the
    row before at the same pointer.
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

    above, below: indices into `events` of two Q. If the upper device is a partition with a known
    start, the lower sector must be the same place on its disk; otherwise the lower device must be
    the disk of a device directly below (`Context.lower_devices`).
    """
    upper, lower = int(events.dev[above]), int(events.dev[below])
    start = context.partition_start(upper, lower)
    if start is not None:
        return int(events.sector[above]) + start == int(events.sector[below])
    return lower in {context.disk_of(dev) for dev in context.lower_devices(upper)}


def _cloned(events: Events, foreign_event: I64, source: U32, queued: I64, sent: I64) -> Bool:
    """Return, per bio (k,), whether a clone of it began (A) between events `queued` and `sent`.

    foreign_event: events among which clones are looked for, such as those of rows that do not
    continue their own bio. source: (k,) device that the bio was queued on, as an A names it.
    queued, sent: (k,) its event above and the event that may be its own below. A clone is an A from
    `source` and the first sector of `queued`: a clone's first A names the beginning of its bio.
    """
    clones = np.unique(foreign_event[events.kind[foreign_event] == Kind.A])
    if not len(clones):
        return np.zeros(len(sent), dtype=np.bool_)
    remaps = events.fields(Kind.A, clones)
    key = _keys(
        len(events),
        np.concatenate([remaps["from_dev"], source]),
        np.concatenate([remaps["from_sector"], events.sector[queued]]),
    )
    clone_key = np.sort(key[: len(clones)] + clones)
    bio_key = key[len(clones) :]
    place = np.searchsorted(clone_key, bio_key + queued, side="right")
    following = np.append(clone_key, np.iinfo(np.int64).max)[place]
    return np.asarray(following < bio_key + sent, dtype=np.bool_)


def _keys(count: int, dev: U32, sector: U64) -> I64:
    """Return a key (k,) per (dev, sector), to which an event index up to `count` can be added.

    Pairs that are equal have equal keys; keys of different pairs differ by more than `count`.
    """
    _, devs = np.unique(dev, return_inverse=True)
    _, sectors = np.unique(sector, return_inverse=True)
    _, places = np.unique(devs * np.int64(len(sector)) + sectors, return_inverse=True)
    return np.asarray(places * np.int64(count + 1), dtype=np.int64)
