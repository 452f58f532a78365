# SPDX-License-Identifier: Apache-2.0
"""When a request has ended, and when a bio's completion was not recorded: the rules."""

from dataclasses import dataclass

from biotrail.converters.association.rules import Exemption, Rule
from biotrail.converters.events.tables import Bool


@dataclass(frozen=True)
class RequestProgress:
    """How far requests (q,) are, by their events.

    completed: whether it has a C, and the bytes of the C since its last D (without one, of all C)
    reach the bytes of that D (without one, of its s or I). flush_sequence: whether blk-flush.c runs
    it as a sequence of flushes and data. ended_empty: whether its last C has no bytes. failed:
    whether some C has an error. issued: whether it has a D.
    """

    completed: Bool
    flush_sequence: Bool
    ended_empty: Bool
    failed: Bool
    issued: Bool


REQUEST_END_RULES: tuple[Rule[RequestProgress], ...] = (
    Rule(
        "bytes-completed",
        lambda rows: rows.completed,
        "the bytes of its `C` since its last issue reach the bytes of that issue",
        "blk_update_request returns false when no bytes are left; without data at the first `C`",
        "seed 20764",
        unless=(
            Exemption(
                "flush-sequence", lambda rows: rows.flush_sequence, "one that blk-flush.c runs"
            ),
        ),
    ),
    Rule(
        "flush-sequence-ended",
        lambda rows: rows.completed & rows.flush_sequence & rows.ended_empty,
        "blk-flush.c runs it (PREFLUSH with data, or FUA that is gone from the flags at `D`), and "
        "its last `C` has no bytes",
        "blk_flush_complete_seq ends the request itself when the sequence is done",
        "seed 20764",
    ),
    Rule(
        "flush-sequence-failed",
        lambda rows: rows.completed & rows.flush_sequence & rows.failed & ~rows.issued,
        "blk-flush.c runs it, and it failed before its issue",
        "a pre-flush that fails ends the request before its own `D` (blk_flush_complete_seq)",
        "tests/unit/converters/association/test_scenarios_twenty.py::test_scenario",
    ),
)
"""A request that any of these rules marks has ended: no more C is to come."""


@dataclass(frozen=True)
class BioProgress:
    """What is known of the ends of queued bios (n,), each with its pieces.

    ended: whether the bio's own c, or the C of all its pieces, were recorded. own_end: whether its
    own c was. open_pieces: whether the end of some piece was not. superseded: whether its address
    was reused. piece_lost: whether the completion of some piece is known not to have been recorded
    (`Association.completion_lost`). request_reused: whether a piece waits for a request whose
    address was reused.
    """

    ended: Bool
    own_end: Bool
    open_pieces: Bool
    superseded: Bool
    piece_lost: Bool
    request_reused: Bool


COMPLETION_LOST_RULES: tuple[Rule[BioProgress], ...] = (
    Rule(
        "address-reused",
        lambda rows: ~rows.ended & rows.superseded,
        "it has no end, and its address was used again",
        "a bio's address is free after bio_endio alone (bio_put)",
        "seed 21788",
    ),
    Rule(
        "piece-lost",
        lambda rows: ~rows.ended & rows.piece_lost,
        "it has no end, and a piece of it is left out by the whole chain of its request, or had "
        "its address used again before its request ended",
        "the piece was completed before, by a `C` that was not recorded",
        "case",
    ),
    Rule(
        "request-reused",
        lambda rows: ~rows.ended & rows.request_reused,
        "it has no end, and a piece of it is in a request whose address was used again",
        "a request is freed after its bios have completed (blk_mq_end_request), but when it is "
        "absorbed",
        "tests/unit/converters/association/test_scenarios_twenty.py::test_scenario",
    ),
    Rule(
        "ended-before-pieces",
        lambda rows: rows.own_end & rows.open_pieces,
        "it has its own `c`, and a piece of it has no end",
        "bio_chain_endio lets a split bio end after all its pieces",
        "seed 565",
    ),
)
"""The completion of a bio that any of these rules marks, or of a piece of it, was not recorded."""
