# SPDX-License-Identifier: Apache-2.0
"""CHAIN records: the bios behind the head of an issued request, and how many filters left out."""

import numpy as np

from biotrail.converters.events.array_steps import latest_before
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, U64
from biotrail.recorder.schema.records import CHAIN_COUNT, CHAIN_SLOTS, Kind

_LOW = np.uint64(0xFFFFFFFF)
_COUNT_BIT = np.uint64(CHAIN_COUNT.bit_length() - 1)


def chain_rows(events: Events) -> tuple[I64, U64, I64]:
    """Return the bios behind the head of each issued request: (event of D, pointer, place), (k,).

    From CHAIN records; places count from 1. Slots that count left-out bios are no bios, but take a
    place. CHAIN records without their D are left out.
    """
    chains = events.rows(Kind.CHAIN)
    owner, place = chain_owners(events, chains)
    chains, place, owner = chains[owner >= 0], place[owner >= 0], owner[owner >= 0]
    bios = events.raw[chains, 2 : 2 + CHAIN_SLOTS]
    rank = 1 + place[:, None] * CHAIN_SLOTS + np.arange(CHAIN_SLOTS)
    used = (bios != 0) & (bios >> _COUNT_BIT != 1)
    issue = np.broadcast_to(owner[:, None], bios.shape)
    return issue[used], bios[used], rank[used]


def filtered_bios(events: Events) -> tuple[I64, I64]:
    """Return (D event, number of its bios that the recording's filters left out), (k,) each.

    CHAIN records have this number in place of a pointer. Issues without such bios are left out; a D
    with several such records comes several times, to be added up.
    """
    chains = events.rows(Kind.CHAIN)
    owner, _ = chain_owners(events, chains)
    slots = events.raw[chains, 2 : 2 + CHAIN_SLOTS]
    counts = np.where(slots >> _COUNT_BIT == 1, slots & _LOW, 0).sum(axis=1).astype(np.int64)
    counted = (owner >= 0) & (counts > 0)
    return owner[counted], counts[counted]


def chain_owners(events: Events, chains: I64) -> tuple[I64, I64]:
    """Return (event of its D or -1, place behind that D from 0) of each CHAIN record, (k,) each.

    chains: (k,) events of kind CHAIN. A D and its CHAIN records leave the kernel together, with one
    timestamp and one request pointer; -1 where no such D is in the window. The place is the number
    of events between D and record, also those of other requests; meaningless without a D.
    """
    if not len(chains):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    issues = events.rows(Kind.D)
    owner = latest_before(issues, chains)
    # Two CPUs can issue in the same nanosecond: then the D before the last one is tried.
    for _ in range(len(issues)):
        wrong = (owner >= 0) & (events.rq[owner] != events.rq[chains])
        wrong &= events.ts[owner] == events.ts[chains]
        if not wrong.any():
            break
        owner[wrong] = latest_before(issues, owner[wrong])
    right = (owner >= 0) & (events.ts[owner] == events.ts[chains])
    right &= events.rq[owner] == events.rq[chains]
    place = chains - owner - 1
    return np.where(right, owner, -1), place
