# SPDX-License-Identifier: Apache-2.0
"""Which request served which bio, for one window of events; and what a step found out about it.

A step takes an `Association` and returns `Findings`; `Association.with_findings` alone writes them
down, in a new object. `association/steps.py` has the steps in their order.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from biotrail.converters.association.identity.facts import Facts
from biotrail.converters.association.identity.generations import PARENT, Generations
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, U8, Bool
from biotrail.recorder.schema.records import Kind

Rivals = tuple[tuple[int, int], ...]
"""Pairs of generations: one that a step looked for a link of, and a candidate that fits it."""


@dataclass(frozen=True)
class Findings:
    """What a step found: columns that take the place of the association's; None: unchanged.

    Columns are those of `Association`. rival_bios, rival_requests, rival_above are added to those
    of the steps before.
    """

    request: I64 | None = None
    certainty: U8 | None = None
    root: I64 | None = None
    absorbed_by: I64 | None = None
    upper: I64 | None = None
    completion_lost: Bool | None = None
    above: I64 | None = None
    rival_bios: Rivals = ()
    rival_requests: Rivals = ()
    rival_above: Rivals = ()


@dataclass(frozen=True)
class Association:
    """Bios and requests of one window, and the links between them.

    r bio rows, b bio generations, q request generations; links are indices of generations.
    row_request: (r,) request that each row of `bios` mentions, or -1.
    request: (b,) request that served the bio, or -1: none, or not known.
    certainty: (b,) how `request` is known (Certainty).
    root: (b,) bio that was queued, of which this is a front piece; itself where it is none.
    absorbed_by: (q,) request that an absorbed one (m) merged into, at last; -1: not absorbed or not
    known.
    upper: (b,) bio on the device above whose data this one carries, or -1.
    completion_lost: (b,) True for a bio whose own completion was not recorded, as its request
    shows: the whole chain of its issue excludes it, or its address was reused before its end.
    above: (q,) request of the dm device above of which this is the clone, or -1.
    rival_bios: (bio, candidate bio) pairs considered for `root` or `upper`.
    rival_requests: (bio, candidate request) pairs considered for `request`.
    rival_above: (request, candidate request) pairs considered for `above`.
    """

    events: Events
    requests: Generations
    bios: Generations
    row_request: I64
    facts: Facts
    request: I64
    certainty: U8
    root: I64
    absorbed_by: I64
    upper: I64
    completion_lost: Bool
    above: I64
    rival_bios: Rivals = ()
    rival_requests: Rivals = ()
    rival_above: Rivals = ()

    @property
    def queued(self) -> I64:
        """Per bio (b,): its Q event, or -1."""
        return self.bios.first(Kind.Q)

    @property
    def is_piece(self) -> Bool:
        """Per bio (b,): whether it was itself in a request, or about to be (G, M or F)."""
        return (self.request >= 0) | (self.bios.first(Kind.G, Kind.M, Kind.F) >= 0)

    def with_findings(self, found: Findings) -> "Association":
        """Return an association with the columns that were found, and further rivals.

        All other columns are shared with this one, which stays as it is.
        """
        columns = {
            f.name: getattr(found, f.name)
            for f in fields(found)
            if not f.name.startswith("rival_") and getattr(found, f.name) is not None
        }
        return replace(
            self,
            rival_bios=self.rival_bios + found.rival_bios,
            rival_requests=self.rival_requests + found.rival_requests,
            rival_above=self.rival_above + found.rival_above,
            **columns,
        )


def split_links(bios: Generations) -> tuple[I64, I64]:
    """Return (front piece, bio that it was split from), bio generations (k,), of each X.

    Only of X that name both; in the order of the rows of `bios`.
    """
    fronts = np.flatnonzero(bios.row_role == Kind.X)
    parents = np.flatnonzero(bios.row_role == PARENT)
    if not len(parents) or not len(fronts):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    fronts = fronts[np.argsort(bios.row_event[fronts], kind="stable")]
    place = np.searchsorted(bios.row_event[fronts], bios.row_event[parents])
    front_row = fronts[np.minimum(place, len(fronts) - 1)]
    both = bios.row_event[front_row] == bios.row_event[parents]
    return bios.row_gen[front_row[both]], bios.row_gen[parents[both]]


def edges_of_rows(a: Association) -> tuple[I64, I64]:
    """Return every (bio, request) pair that an event mentions, as two arrays; pairs can repeat."""
    named = np.flatnonzero(a.row_request >= 0)
    return a.bios.row_gen[named], a.row_request[named]


def partition_remaps(a: Association, context: Context) -> tuple[I64, Bool]:
    """Return (rows of kind A, whether each remaps from a partition to its own disk), (k,) each.

    Rows are indices into the rows of `a.bios`, ascending. An A does where it names the partition
    that the bio is on as its source, or where the log lists its source as a partition of the disk.
    """
    rows = np.flatnonzero(a.bios.row_role == Kind.A)
    remaps = a.events.fields(Kind.A, a.bios.row_event[rows])
    pairs = remaps["from_dev"].astype(np.uint64) << np.uint64(32) | remaps["dev"]
    distinct, back = np.unique(pairs, return_inverse=True)
    listed = [context.is_partition_of(int(p) >> 32, int(p) & 0xFFFFFFFF) for p in distinct]
    return rows, (remaps["from_dev"] == remaps["part"]) | np.array(listed, np.bool_)[back]
