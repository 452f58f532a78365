# SPDX-License-Identifier: Apache-2.0
"""Device, range and operation of each bio, from the event that reports each best."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.identity.generations import PARENT, Generations
from biotrail.converters.events.array_steps import first_known, take_or
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, SECTOR_BYTES, U32, U64, Bool
from biotrail.recorder.schema.records import Kind


@dataclass(frozen=True)
class Facts:
    """Per bio generation (b,): device, range and operation.

    dev: the disk. sector, bytes: range of the whole bio; bytes is -1 where no event has the bio's
    size. opf: bi_opf. piece_sector, piece_bytes: range that went to the bio's own request, smaller
    than the bio where front pieces were split off; bytes -1 as above.
    """

    dev: U32
    sector: U64
    bytes: I64
    opf: U32
    piece_sector: U64
    piece_bytes: I64


def bio_facts(events: Events, bios: Generations) -> Facts:
    """Return device, range and operation of each bio, by the events of its generation.

    dev, opf and the whole range are those of the first of these events that was recorded: first Q,
    first X as the front piece, last A, first G, last M or F, first s, first c. The piece's range is
    that of the last M or F, first G, first s, last A if behind Q and X, the X, the Q; without M, F,
    G and s, the front pieces that X split off are subtracted. Where none of a list was recorded,
    the values are those of the generation's first event, and the size is -1.
    """
    queued, front = bios.first(Kind.Q), bios.first(Kind.X)
    remap, ended = bios.last(Kind.A), bios.first(Kind.BIO_COMPLETE)
    joined = bios.last(Kind.M, Kind.F)
    got, started = bios.first(Kind.G), bios.first(Kind.START)
    bio_event = first_known(queued, front, remap, got, joined, started, ended)
    # An A after the Q sends the same bio on (partition, multipath): its request has A's sector.
    sent_on = np.where(remap > np.maximum(queued, front), remap, -1)
    in_request = first_known(joined, got, started)
    piece_event = first_known(in_request, sent_on, front, queued)
    # I, D, C and m have the range of the whole request: good for dev and op, not for the size.
    birth_event = bios.birth if len(bios) else np.zeros(0, np.int64)
    any_event = first_known(bio_event, birth_event)
    piece_sector = take_or(events.sector, first_known(piece_event, birth_event), 0)
    piece_bytes = take_or(events.bytes, piece_event, -1)
    _subtract_fronts(events, bios, in_request < 0, piece_sector, piece_bytes)
    return Facts(
        dev=take_or(events.dev, any_event, 0),
        sector=take_or(events.sector, any_event, 0),
        bytes=take_or(events.bytes, bio_event, -1),
        opf=take_or(events.opf, any_event, 0),
        piece_sector=piece_sector,
        piece_bytes=piece_bytes,
    )


def _subtract_fronts(
    events: Events, bios: Generations, unsent: Bool, piece_sector: U64, piece_bytes: I64
) -> None:
    """Subtract the front pieces that X split off from what is left of their bios.

    The size of each front piece is added to `piece_sector` (b,; as sectors) and subtracted from
    `piece_bytes` (b,) of its bio; both are changed in place, and no size becomes negative. unsent:
    (b,) bios without a G, s, M or F, which would report what is left; the others stay as they are,
    and so do bios of unknown size.
    """
    rows = np.flatnonzero(bios.row_role == PARENT)
    rows = rows[unsent[bios.row_gen[rows]]]
    if not len(rows):
        return
    bio, front_event = bios.row_gen[rows], bios.row_event[rows]
    sized = piece_bytes[bio] >= 0
    bio, front_event = bio[sized], front_event[sized]
    np.subtract.at(piece_bytes, bio, events.bytes[front_event])
    sectors = (events.bytes[front_event] // SECTOR_BYTES).astype(np.uint64)
    np.add.at(piece_sector, bio, sectors)
    piece_bytes[bio] = np.maximum(piece_bytes[bio], 0)
