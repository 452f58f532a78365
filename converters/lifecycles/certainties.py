# SPDX-License-Identifier: Apache-2.0
"""The certainty of each bio and request: exact, by interval, or in doubt; docs/lifecycles.md."""

import numpy as np

from biotrail.converters.association.completion.carry_over import unanswered
from biotrail.converters.association.completion.completion import RequestEnds
from biotrail.converters.association.completion.families import Whole
from biotrail.converters.association.identity.association import Association
from biotrail.converters.events.context import OP_MASK, Context
from biotrail.converters.events.tables import U8, U32, Bool, Certainty
from biotrail.converters.lifecycles.milestones import Milestones
from biotrail.recorder.schema.records import Kind


def may_flush(opf: U32, context: Context) -> Bool:
    """Return per opf whether its operation is write or flush.

    Only these ask for a cache flush when they have no data, and so may end without being issued.
    Zone operations have no data either, but are issued to the driver.
    """
    names = (context.op_number("write"), context.op_number("flush"))
    return np.isin(opf & OP_MASK, names)


def bio_certainty(
    a: Association, ends: RequestEnds, whole: Whole, m: Milestones, context: Context
) -> U8:
    """Return the certainty of each queued bio (row of `whole`), uint8 (n,), loss windows aside.

    LOST: its issue was not recorded though it completed in a way that needs one, or `whole.lost`:
    its completion was not recorded. INCOMPLETE: it has no Q or no completion, unless several
    requests could be its own. Else `whole.certainty`, that of its association.
    """
    certainty = whole.certainty.copy()
    # A completion without an issue: the D record is missing. A failed request needs no issue.
    no_issue = (m.request >= 0) & (m.issue < 0) & (m.complete >= 0)
    issued = (a.facts.bytes[whole.gen] > 0) | ~may_flush(a.facts.opf[whole.gen], context)
    no_issue &= issued & (m.queue >= 0)
    if len(ends.unissued):
        request = np.maximum(m.request, 0)
        # If a request of the flush machinery was never issued, it completes only once
        # (blk_flush_complete_seq); two completions mean that a D is missing.
        twice = m.sequence & (ends.completions[request] > 1)
        no_issue &= (ends.status[request] == 0) | (ends.good[request] > 0) | twice
        no_issue |= (m.request >= 0) & (ends.unissued[request] > a.bios.birth[whole.gen])
        # A C reports the request's first bio. A back-merged bio is first only after those before
        # it have completed, so its request was issued.
        behind = (m.merge >= 0) & (a.requests.birth_role[request] == Kind.C)
        no_issue |= (m.request >= 0) & (m.issue < 0) & behind & _joined_behind(a, whole)
    certainty[no_issue] = Certainty.LOST
    unseen = m.queue < 0
    # Several requests could be the bio's: that, not the end of the log, hides its completion.
    hidden = (whole.certainty == Certainty.AMBIGUOUS) & ~unseen
    certainty[(unseen | (m.complete < 0)) & ~hidden] = Certainty.INCOMPLETE
    certainty[whole.lost & ~unseen & ~hidden] = Certainty.LOST
    return certainty


def _joined_behind(a: Association, whole: Whole) -> Bool:
    """Return per queued bio (row of `whole`) whether its final piece was last back-merged (M).

    The final piece is the part of a split bio, or the bio itself, that completed last. False if
    there is none, or if the last merge was a front merge (F).
    """
    final = np.maximum(whole.final, 0)
    return (whole.final >= 0) & (a.bios.last(Kind.M)[final] > a.bios.last(Kind.F)[final])


def fronts_elsewhere(a: Association, whole: Whole) -> Bool:
    """Return per queued bio (row of `whole`) whether some front part went to no known request.

    Front parts are bios that a split (X) cut off its front. True only for bios with a completion
    event (bio_endio, c) of their own.
    """
    fronts = np.flatnonzero((a.root != np.arange(len(a.bios))) & ~a.is_piece)
    unknown = np.bincount(whole.row_of_gen[fronts], minlength=len(whole.gen)) > 0
    return np.asarray(unknown & (a.bios.last(Kind.BIO_COMPLETE)[whole.gen] >= 0), dtype=np.bool_)


def request_certainty(a: Association, ends: RequestEnds, issued: Bool) -> U8:
    """Return the certainty of each request, uint8 (n,), before loss windows are considered.

    issued: per request, whether it can succeed only by being issued (anything but a flush). LOST:
    its issue, its completion or, of a failed request, a part of its bios was not recorded.
    INCOMPLETE: its start is not in the log, its end may come after the log's end, or it was merged
    into a request that could not be identified. Else EXACT, or the highest doubt of its events.
    """
    r = a.requests
    certainty = np.zeros(len(r), dtype=np.uint8)
    if a.events.doubt is not None and len(r):
        certainty[:] = np.maximum.reduceat(a.events.doubt[r.row_event], r.start)
    absorbed = r.first(Kind.RQ_MERGE) >= 0
    start_recorded = _start_recorded(a, ends)
    no_issue = (ends.issue < 0) & ((ends.total > 0) | (ends.good > 0) | issued) & ends.finished
    no_issue &= (ends.status == 0) | (ends.good > 0) | (ends.completions > 1)
    no_issue |= _incomplete_failures(a, ends)
    certainty[(no_issue | (ends.unissued >= 0)) & start_recorded] = Certainty.LOST
    unfinished = ~ends.finished & ~absorbed
    certainty[unfinished | (~start_recorded & ~absorbed)] = Certainty.INCOMPLETE
    gone = r.superseded | unanswered(a) | (a.absorbed_by >= 0)
    certainty[unfinished & start_recorded & gone] = Certainty.LOST
    certainty[absorbed & (a.absorbed_by < 0)] = Certainty.INCOMPLETE
    return certainty


def _incomplete_failures(a: Association, ends: RequestEnds) -> Bool:
    """Return per request whether it failed without an issue and has more bytes than its known bios.

    Then a bio of it is not known: the merge that brought it was not recorded, or does not name its
    request. Only requests with known bios count, and only those that absorbed another request, or
    on whose device some request merged into one that is not known.
    """
    failed = (ends.issue < 0) & (ends.end >= 0)
    if not failed.any():
        return failed
    bio = np.flatnonzero(a.request >= 0)
    bio = bio[failed[a.request[bio]]]
    bio_bytes = np.bincount(a.request[bio], a.facts.piece_bytes[bio], len(a.requests))
    has_bios = np.bincount(a.request[bio], minlength=len(a.requests)) > 0
    # A merge event that does not name its request leaves the bio list short, so compare byte
    # counts.
    may_have_more = _unresolved_merges(a)
    may_have_more[a.absorbed_by[a.absorbed_by >= 0]] = True
    return np.asarray(failed & has_bios & may_have_more & (bio_bytes < ends.done))


def _unresolved_merges(a: Association) -> Bool:
    """Return per request whether, on its device, some request merged into one that is not known."""
    unresolved = (a.requests.first(Kind.RQ_MERGE) >= 0) & (a.absorbed_by < 0)
    devices = np.unique(a.events.dev[a.requests.birth[unresolved]])
    return np.isin(a.events.dev[a.requests.birth], devices)


def _start_recorded(a: Association, ends: RequestEnds) -> Bool:
    """Return per request whether its beginning is in the log.

    That is its s, the Q or G of a bio that it was allocated for (not one that merged into it) or,
    for a request without known bios, its I or D.
    """
    bio = np.flatnonzero(a.request >= 0)
    # Bios that were merged into the request do not show when it began.
    alone = a.bios.first(Kind.M, Kind.F) < 0
    shows_start = ((a.queued[a.root] >= 0) & alone) | (a.bios.first(Kind.G) >= 0)
    recorded = ends.started >= 0
    recorded[a.request[bio[shows_start[bio]]]] = True
    alone = np.bincount(a.request[bio], minlength=len(a.requests)) == 0
    return np.asarray(recorded | (alone & ((ends.issue >= 0) | (ends.insert >= 0))), dtype=np.bool_)
