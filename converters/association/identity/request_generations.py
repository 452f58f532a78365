# SPDX-License-Identifier: Apache-2.0
"""Split the events of each request address into generations: one per request that had the address.

A new generation begins where a kernel event says so (s, a), or where an event cannot be of the
request that the events before it describe, because records in between were lost: `request_rules`
and `completed_rules` have the rules, docs/lifecycles.md shows them.
"""

import numpy as np

from biotrail.converters.association.identity.completed_rules import begins_after_completion
from biotrail.converters.association.identity.generations import Generations, build
from biotrail.converters.association.identity.neighbours import begins_by
from biotrail.converters.association.identity.request_rows import Operations, RequestRows
from biotrail.converters.association.identity.request_rules import REQUEST_RULES
from biotrail.converters.events.array_steps import is_first_of_run, value_before
from biotrail.converters.events.events import Events
from biotrail.converters.events.sorting import is_in, stable_order
from biotrail.recorder.schema.records import Kind

_REQUEST_KINDS = (
    Kind.START,
    Kind.I,
    Kind.R,
    Kind.RQ_MERGE,
    Kind.D,
    Kind.C,
    Kind.E,
    Kind.DONE,
    Kind.RQ_REMAP,
    Kind.G,
    Kind.M,
    Kind.F,
)


def request_generations(events: Events, operations: Operations) -> Generations:
    """Return the generations of request addresses; a generation is one use of an address.

    Rows are the request events with a request pointer (`_REQUEST_KINDS`), sorted by pointer, then
    time; a row's role is its record kind (Kind). A generation begins at the first row of a pointer,
    and at rows that REQUEST_RULES or COMPLETED_RULES mark. Events without a pointer, and
    generations of nothing but E and d, get no row. operations: numbers of operations that have
    their own rules.
    """
    row_event = events.rows(*_REQUEST_KINDS)
    row_event = row_event[events.rq[row_event] != 0]
    row_event = row_event[stable_order(events.rq[row_event])]
    pointer, kind = events.rq[row_event], events.kind[row_event]
    first = is_first_of_run(pointer)
    table = RequestRows(events, row_event, kind, value_before(kind, first), operations)
    begins = first | begins_by(REQUEST_RULES, table)
    begins |= begins_after_completion(table, begins)
    gen = np.cumsum(begins) - 1
    has_more = np.zeros(int(gen[-1]) + 1 if len(gen) else 0, dtype=np.bool_)
    has_more[gen[~is_in(kind, Kind.E, Kind.DONE)]] = True
    # E and d only comment on a request; alone, they are no evidence of one.
    keep = has_more[gen]
    if not keep.all():
        row_event, pointer = row_event[keep], pointer[keep]
        kind, begins = kind[keep], begins[keep]
        first = is_first_of_run(pointer)
    slot = np.zeros(len(row_event), np.int64)
    return build(events, pointer, row_event, kind, slot, begins, first)
