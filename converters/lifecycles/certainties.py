# SPDX-License-Identifier: Apache-2.0
"""How each bio and request is known: exact, by interval, or in doubt; docs/lifecycles.md."""

import numpy as np

from biotrail.converters.association.completion.carry_over import unanswered
from biotrail.converters.association.completion.completion import RequestEnds
from biotrail.converters.association.completion.families import Whole
from biotrail.converters.association.identity.association import Association
from biotrail.converters.events.context import OP_MASK, Context
from biotrail.converters.events.tables import U8, U32, Bool, Certainty
from biotrail.converters.lifecycles.stages import Milestones
from biotrail.recorder.schema.records import Kind


def may_flush(opf: U32, context: Context) -> Bool:
    """Operations that, without data, are flushes; those on zones have no data either."""
    names = (context.op_number("write"), context.op_number("flush"))
    return np.isin(opf & OP_MASK, names)


def bio_certainty(
    a: Association, ends: RequestEnds, whole: Whole, m: Milestones, context: Context
) -> U8:
    """Of each whole bio, before the log's loss windows are looked at."""
    certainty = whole.certainty.copy()
    # Data came back without an issue: its record is missing. An error needs no issue.
    no_issue = (m.request >= 0) & (m.issue < 0) & (m.complete >= 0)
    issued = (a.facts.bytes[whole.gen] > 0) | ~may_flush(a.facts.opf[whole.gen], context)
    no_issue &= issued & (m.queue >= 0)
    if len(ends.unissued):
        request = np.maximum(m.request, 0)
        # The flush machinery completes what it could not issue once.
        twice = m.sequence & (ends.completions[request] > 1)
        no_issue &= (ends.status[request] == 0) | (ends.good[request] > 0) | twice
        no_issue |= (m.request >= 0) & (ends.unissued[request] > a.bios.birth[whole.gen])
        # What joined behind others is at the head of nothing before they have completed.
        behind = (m.merge >= 0) & (a.requests.birth_role[request] == Kind.C)
        no_issue |= (m.request >= 0) & (m.issue < 0) & behind & _joined_behind(a, whole)
    certainty[no_issue] = Certainty.LOST
    unseen = m.queue < 0
    # Several could be its request: that, not the trace's end, hides its completion.
    hidden = (whole.certainty == Certainty.AMBIGUOUS) & ~unseen
    certainty[(unseen | (m.complete < 0)) & ~hidden] = Certainty.INCOMPLETE
    certainty[whole.lost & ~unseen & ~hidden] = Certainty.LOST
    return certainty


def _joined_behind(a: Association, whole: Whole) -> Bool:
    """Per whole bio: whether its final piece joined a request at the end."""
    final = np.maximum(whole.final, 0)
    return (whole.final >= 0) & (a.bios.last(Kind.M)[final] > a.bios.last(Kind.F)[final])


def fronts_elsewhere(a: Association, whole: Whole) -> Bool:
    """Per whole bio: whether it ended by itself, and fronts of it went to no known request."""
    fronts = np.flatnonzero((a.root != np.arange(len(a.bios))) & ~a.is_piece)
    unknown = np.bincount(whole.row_of_gen[fronts], minlength=len(whole.gen)) > 0
    return np.asarray(unknown & (a.bios.last(Kind.BIO_COMPLETE)[whole.gen] >= 0), dtype=np.bool_)


def request_certainty(a: Association, ends: RequestEnds, issued: Bool) -> U8:
    """Of each request, likewise. issued: what cannot end well without having been issued."""
    r = a.requests
    certainty = np.zeros(len(r), dtype=np.uint8)
    if a.events.doubt is not None and len(r):
        certainty[:] = np.maximum.reduceat(a.events.doubt[r.row_event], r.start)
    absorbed = r.first(Kind.RQ_MERGE) >= 0
    begun = _begun(a, ends)
    no_issue = (ends.issue < 0) & ((ends.total > 0) | (ends.good > 0) | issued) & ends.finished
    no_issue &= (ends.status == 0) | (ends.good > 0) | (ends.completions > 1)
    no_issue |= _incomplete_failures(a, ends)
    certainty[(no_issue | (ends.unissued >= 0)) & begun] = Certainty.LOST
    unfinished = ~ends.finished & ~absorbed
    certainty[unfinished | (~begun & ~absorbed)] = Certainty.INCOMPLETE
    gone = r.superseded | unanswered(a) | (a.absorbed_by >= 0)
    certainty[unfinished & begun & gone] = Certainty.LOST
    certainty[absorbed & (a.absorbed_by < 0)] = Certainty.INCOMPLETE
    return certainty


def _incomplete_failures(a: Association, ends: RequestEnds) -> Bool:
    """Requests that failed without an issue, with more than their bios have: others joined."""
    failed = (ends.issue < 0) & (ends.end >= 0)
    if not failed.any():
        return failed
    held = np.flatnonzero(a.request >= 0)
    held = held[failed[a.request[held]]]
    known = np.bincount(a.request[held], a.facts.piece_bytes[held], len(a.requests))
    some = np.bincount(a.request[held], minlength=len(a.requests)) > 0
    # Merges that name nobody leave bios out; what is told of requests must add up.
    took = _untaken_merges(a)
    took[a.absorbed_by[a.absorbed_by >= 0]] = True
    return np.asarray(failed & some & took & (known < ends.done))


def _untaken_merges(a: Association) -> Bool:
    """Per request: whether one was absorbed on its device, and nothing tells by whom."""
    gone = (a.requests.first(Kind.RQ_MERGE) >= 0) & (a.absorbed_by < 0)
    devices = np.unique(a.events.dev[a.requests.birth[gone]])
    return np.isin(a.events.dev[a.requests.birth], devices)


def _begun(a: Association, ends: RequestEnds) -> Bool:
    """Requests whose beginning is in the log: s, their bio's Q or G, D where they have no bio."""
    held = np.flatnonzero(a.request >= 0)
    # A request began with a bio that it was allocated for, not with those that joined it.
    alone = a.bios.first(Kind.M, Kind.F) < 0
    told = ((a.queued[a.root] >= 0) & alone) | (a.bios.first(Kind.G) >= 0)
    begun = ends.started >= 0
    begun[a.request[held[told[held]]]] = True
    alone = np.bincount(a.request[held], minlength=len(a.requests)) == 0
    return np.asarray(begun | (alone & ((ends.issue >= 0) | (ends.insert >= 0))), dtype=np.bool_)
