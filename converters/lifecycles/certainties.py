# SPDX-License-Identifier: Apache-2.0
"""The certainty of each bio and request: exact, by interval, or in doubt; docs/lifecycles.md."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.association.completion.carry_over import unanswered
from biotrail.converters.association.completion.completion import RequestEnds
from biotrail.converters.association.completion.end_bounds import Bounds
from biotrail.converters.association.completion.families import Whole
from biotrail.converters.association.identity.association import Association
from biotrail.converters.association.rules import Exemption, Rows, Rule
from biotrail.converters.events.array_steps import take_or
from biotrail.converters.events.context import Context
from biotrail.converters.events.ends import OPEN, SHARE
from biotrail.converters.events.tables import I64, OP_MASK, U8, U32, Bool, Certainty
from biotrail.converters.lifecycles.milestones import Milestones
from biotrail.recorder.schema.records import Kind


def may_flush(opf: U32, context: Context) -> Bool:
    """Return per opf whether its operation is write or flush.

    Only these ask for a cache flush when they have no data, and so may end without being issued.
    Zone operations have no data either, but are issued to the driver. Flags such as PREFLUSH, and
    whether there are data, are not looked at. opf: bi_opf or cmd_flags (n,).
    """
    names = (context.op_number("write"), context.op_number("flush"))
    return np.isin(opf & OP_MASK, names)


@dataclass(frozen=True)
class CertaintyRule(Rule[Rows]):
    """A rule that gives the bios or requests it marks a certainty."""

    gives: Certainty = Certainty.LOST


def rated(rules: tuple[CertaintyRule[Rows], ...], rows: Rows, certainty: U8) -> U8:
    """Return a copy of `certainty` (n,) in which each rule, in order, gave its rows its own."""
    result = certainty.copy()
    for rule in rules:
        result[rule.marks(rows)] = rule.gives
    return result


@dataclass(frozen=True)
class BioHistory:
    """What is recorded of queued bios (n,), each with its pieces.

    queued: whether the Q was recorded. completed: whether the end was. served: whether a request
    of its final piece is known. issued: whether a D that carried that piece was recorded.
    needs_issue: whether it can succeed only by an issue (anything but an empty flush). succeeded:
    whether that request has no error, or completed some bytes. ended_twice: whether the request is
    a flush sequence with several C. issue_implied: whether an event of the request later than the
    bio's first one implies a D that was not recorded. behind_head: whether the last merge of the
    piece was a back merge, and the first event of its request is a C. in_doubt: whether
    the bio's association is AMBIGUOUS. completion_lost: `Whole.lost`.
    """

    queued: Bool
    completed: Bool
    served: Bool
    issued: Bool
    needs_issue: Bool
    succeeded: Bool
    ended_twice: Bool
    issue_implied: Bool
    behind_head: Bool
    in_doubt: Bool
    completion_lost: Bool


_SEVERAL_CANDIDATES: Exemption[BioHistory] = Exemption(
    "several-candidates",
    lambda rows: rows.in_doubt & rows.queued,
    "one with several candidates for its request: that hides its completion",
)

BIO_CERTAINTY_RULES: tuple[CertaintyRule[BioHistory], ...] = (
    CertaintyRule(
        "completed-without-issue",
        lambda rows: (
            rows.completed
            & rows.served
            & ~rows.issued
            & rows.needs_issue
            & rows.queued
            & (rows.succeeded | rows.ended_twice)
        ),
        "it completed, and its request succeeded (or ended twice, in a flush sequence) without an "
        "issue; not a flush without data",
        "a request that succeeds was issued; a flush sequence that was not ends once "
        "(blk_flush_complete_seq)",
        "tests/unit/converters/association/test_scenarios_twenty.py::test_scenario",
        gives=Certainty.LOST,
    ),
    CertaintyRule(
        "issue-implied",
        lambda rows: rows.issue_implied,
        "its request has a requeue or completion that an issue must have preceded",
        "only an issued request completes bytes; an `R` before the first `D` implies none if the "
        "log counts its losses: it is a busy driver's (BLK_STS_RESOURCE)",
        "case",
        gives=Certainty.LOST,
    ),
    CertaintyRule(
        "behind-failed-head",
        lambda rows: rows.served & ~rows.issued & rows.behind_head,
        "it joined at the end of its request, of which only the `C` names it",
        "`C` reports the head: the bios before it have completed, so the request was issued",
        "seed 30019",
        gives=Certainty.LOST,
    ),
    CertaintyRule(
        "outside-the-log",
        lambda rows: ~rows.queued | ~rows.completed,
        "its `Q` or its end was not recorded",
        "it began before the log, or ended after it",
        "seed 20764",
        unless=(_SEVERAL_CANDIDATES,),
        gives=Certainty.INCOMPLETE,
    ),
    CertaintyRule(
        "completion-lost",
        lambda rows: rows.completion_lost & rows.queued,
        "its end, or that of a piece, was not recorded though the log goes on",
        "as the rules above show",
        "seed 21322",
        unless=(_SEVERAL_CANDIDATES,),
        gives=Certainty.LOST,
    ),
)
"""A rule further down overrides those above; without any, that of the association holds."""


def bio_certainty(
    a: Association, ends: RequestEnds, whole: Whole, m: Milestones, context: Context
) -> U8:
    """Return the certainty of each queued bio, uint8 (n,), before loss windows are considered.

    n rows of `whole` and `m`. Of the BIO_CERTAINTY_RULES that apply to a bio the last one counts.
    Where none applies, it is `whole.certainty`: the least sure association among its pieces.
    """
    needs_issue = (a.facts.bytes[whole.gen] > 0) | ~may_flush(a.facts.opf[whole.gen], context)
    failed = take_or(ends.status, m.request, 0) != 0
    birth_role = a.requests.birth_role if len(a.requests) else np.zeros(0, np.uint8)
    rows = BioHistory(
        queued=m.queue >= 0,
        completed=m.complete >= 0,
        served=m.request >= 0,
        issued=m.issue >= 0,
        needs_issue=needs_issue,
        succeeded=~failed | (take_or(ends.good, m.request, 0) > 0),
        ended_twice=m.sequence & (take_or(ends.completions, m.request, 0) > 1),
        issue_implied=take_or(ends.unissued, m.request, -1) > _births(a, whole),
        behind_head=(m.merge >= 0)
        & (take_or(birth_role, m.request, 0) == Kind.C)
        & _joined_behind(a, whole),
        in_doubt=whole.certainty == Certainty.AMBIGUOUS,
        completion_lost=whole.lost,
    )
    return rated(BIO_CERTAINTY_RULES, rows, whole.certainty)


def latency_doubtful(begin: I64, bounds: Bounds, certainty: U8) -> Bool:
    """Return of which bios or requests (n,) the latency is in doubt, as `Bios.doubtful` says.

    begin: ns, NEVER: not recorded. certainty: that of the association, in which one that is
    AMBIGUOUS though its end is certain is not bounded.
    """
    unbounded = ~bounds.shared & (certainty == Certainty.AMBIGUOUS)
    known = np.maximum(bounds.first - begin, 0)
    wide = (bounds.last - bounds.first > known // SHARE) | (bounds.last >= OPEN)
    return np.asarray((bounds.last >= 0) & (wide | unbounded), np.bool_)


def _births(a: Association, whole: Whole) -> I64:
    """Return per queued bio (n,) its first event."""
    return a.bios.birth[whole.gen] if len(whole.gen) else whole.gen


def _joined_behind(a: Association, whole: Whole) -> Bool:
    """Return per queued bio (n,) whether its final piece was last back-merged (M).

    The final piece is the part of a split bio, or the bio itself, that completed last. False if
    there is none, or if the last merge was a front merge (F).
    """
    back, front = a.bios.last(Kind.M), a.bios.last(Kind.F)
    return take_or(back, whole.final, -1) > take_or(front, whole.final, -1)


def fronts_elsewhere(a: Association, whole: Whole) -> Bool:
    """Return per queued bio (n,) whether some of its front pieces went to no known request.

    Front pieces are what a split cut off the bio's front. One with a G, M or F of its own does not
    count, even if its request is not known. False for bios without a c of their own. n rows of
    `whole`.
    """
    fronts = np.flatnonzero((a.root != np.arange(len(a.bios))) & ~a.is_piece)
    unknown = np.bincount(whole.row_of_gen[fronts], minlength=len(whole.gen)) > 0
    return np.asarray(unknown & (a.bios.last(Kind.BIO_COMPLETE)[whole.gen] >= 0), dtype=np.bool_)


@dataclass(frozen=True)
class RequestHistory:
    """What is recorded of requests (n,).

    start_recorded: whether its beginning was. issued: whether it has a D. needs_issue: whether it
    has data or completed some, or can succeed only by an issue (anything but a flush). succeeded:
    whether it has no error, completed some bytes, or has several C. issue_implied: whether an event
    implies a D that was not recorded. unknown_bios: whether it failed without an issue, and has
    more bytes than its known bios. finished: whether no more C is to come. absorbed: whether it has
    an m. absorber_known: whether the absorbing request is known. freed: whether its address was
    reused, or those of all its bios were.
    """

    start_recorded: Bool
    issued: Bool
    needs_issue: Bool
    succeeded: Bool
    issue_implied: Bool
    unknown_bios: Bool
    finished: Bool
    absorbed: Bool
    absorber_known: Bool
    freed: Bool


REQUEST_CERTAINTY_RULES: tuple[CertaintyRule[RequestHistory], ...] = (
    CertaintyRule(
        "completed-without-issue",
        lambda rows: (
            rows.start_recorded & ~rows.issued & rows.needs_issue & rows.finished & rows.succeeded
        ),
        "it ended and succeeded, or ended twice, without an issue; not a flush without data",
        "a request that succeeds was issued (blk_mq_start_request)",
        "tests/unit/converters/association/test_scenarios_twenty.py::test_scenario",
        gives=Certainty.LOST,
    ),
    CertaintyRule(
        "failed-with-unknown-bios",
        lambda rows: rows.start_recorded & rows.unknown_bios,
        "it failed without an issue, with more bytes than its known bios, where a merge did not "
        "name its request",
        "bios joined it by merges (attempt_merge), and some of them are not known",
        "seed 81991",
        gives=Certainty.LOST,
    ),
    CertaintyRule(
        "issue-implied",
        lambda rows: rows.start_recorded & rows.issue_implied,
        "it has a requeue or completion that an issue must have preceded",
        "only an issued request completes bytes; an `R` before the first `D` implies none if the "
        "log counts its losses: it is a busy driver's (BLK_STS_RESOURCE)",
        "case",
        gives=Certainty.LOST,
    ),
    CertaintyRule(
        "not-ended",
        lambda rows: ~rows.finished & ~rows.absorbed,
        "it has not ended",
        "it ends after the log",
        "tests/unit/converters/association/test_scenarios_twenty.py::test_scenario",
        gives=Certainty.INCOMPLETE,
    ),
    CertaintyRule(
        "start-not-recorded",
        lambda rows: ~rows.start_recorded & ~rows.absorbed,
        "its beginning was not recorded",
        "it began before the log",
        "tests/unit/converters/association/test_scenarios_twenty.py::test_scenario",
        gives=Certainty.INCOMPLETE,
    ),
    CertaintyRule(
        "completion-lost",
        lambda rows: (
            ~rows.finished
            & ~rows.absorbed
            & rows.start_recorded
            & (rows.freed | rows.absorber_known)
        ),
        "it has not ended, but its address, or those of all its bios, were used again, or a later "
        "chain shows that it was absorbed",
        "an address is free after the end alone (blk_mq_free_request, bio_put)",
        "seed 30290",
        gives=Certainty.LOST,
    ),
    CertaintyRule(
        "absorbed-by-unknown",
        lambda rows: rows.absorbed & ~rows.absorber_known,
        "it was merged into a request that could not be identified",
        "block_rq_merge does not name the absorbing request",
        "seed 46566",
        gives=Certainty.INCOMPLETE,
    ),
)
"""A rule further down overrides those above; without any, that of the identities holds."""


def request_certainty(a: Association, ends: RequestEnds, needs_issue: Bool) -> U8:
    """Return the certainty of each request, uint8 (q,), before loss windows are considered.

    needs_issue: (q,) whether it can succeed only by being issued (anything but a flush). Of the
    REQUEST_CERTAINTY_RULES that apply to a request the last one counts. Where none applies, it is
    the largest `Events.doubt` of the request's events; EXACT if they have the kernel's pointers.
    """
    r = a.requests
    certainty = np.zeros(len(r), dtype=np.uint8)
    if a.events.doubt is not None and len(r):
        certainty[:] = np.maximum.reduceat(a.events.doubt[r.row_event], r.start)
    rows = RequestHistory(
        start_recorded=_start_recorded(a, ends),
        issued=ends.issue >= 0,
        needs_issue=(ends.total > 0) | (ends.good > 0) | needs_issue,
        succeeded=(ends.status == 0) | (ends.good > 0) | (ends.completions > 1),
        issue_implied=ends.unissued >= 0,
        unknown_bios=_incomplete_failures(a, ends),
        finished=ends.finished,
        absorbed=r.first(Kind.RQ_MERGE) >= 0,
        absorber_known=a.absorbed_by >= 0,
        freed=r.superseded | unanswered(a),
    )
    return rated(REQUEST_CERTAINTY_RULES, rows, certainty)


def _incomplete_failures(a: Association, ends: RequestEnds) -> Bool:
    """Return per request whether it has C but no D, and more bytes completed than its known bios.

    Then a bio of it is not known: the merge that brought it was not recorded, or does not name its
    request. Only requests with known bios count, and only those that absorbed another request, or
    on whose device some request merged into one that is not known. The status is not looked at.
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
    """Return per request (q,) whether a request of its device was merged into an unknown one."""
    unresolved = (a.requests.first(Kind.RQ_MERGE) >= 0) & (a.absorbed_by < 0)
    devices = np.unique(a.events.dev[a.requests.birth[unresolved]])
    return np.isin(a.events.dev[a.requests.birth], devices)


def _start_recorded(a: Association, ends: RequestEnds) -> Bool:
    """Return per request (q,) whether its beginning is in the log.

    That is its s; the Q of one of its bios (of a front piece: of the bio that was split) without
    an M or F; the G of any of its bios; or, without known bios, its own I or D.
    """
    served_bio = np.flatnonzero(a.request >= 0)
    # Bios that were merged into the request do not show when it began.
    not_merged = a.bios.first(Kind.M, Kind.F) < 0
    shows_start = ((a.queued[a.root] >= 0) & not_merged) | (a.bios.first(Kind.G) >= 0)
    recorded = ends.started >= 0
    recorded[a.request[served_bio[shows_start[served_bio]]]] = True
    without_bios = np.bincount(a.request[served_bio], minlength=len(a.requests)) == 0
    recorded |= without_bios & ((ends.issue >= 0) | (ends.insert >= 0))
    return np.asarray(recorded, dtype=np.bool_)
