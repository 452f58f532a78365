# SPDX-License-Identifier: Apache-2.0
"""Where a request's generation begins, by the event before at the same address: the rules.

A generation is one use of a request's address. blk-mq allocates requests from a fixed pool
(blk_mq_tag_set), so an address is used again at once. Rules for a C or R that follows a C are in
`completed_rules`.
"""

from biotrail.converters.association.identity import request_rows as asks
from biotrail.converters.association.identity.neighbours import NeighbourRule, always, but, of
from biotrail.converters.association.identity.request_rows import RequestRows
from biotrail.converters.association.rules import Exemption
from biotrail.recorder.schema.records import Kind

_JOINS = of(Kind.M, Kind.F)
_ZONE_APPEND = Exemption(
    "zone-append",
    asks.zone_append_completion,
    "`C` of a zone append, which reports what was written",
)
_DISCARD = Exemption("discard", asks.discard, "a discard, whose ranges need not touch")

REQUEST_RULES: tuple[NeighbourRule[RequestRows], ...] = (
    NeighbourRule(
        "started",
        always,
        "",
        "block_io_start: blk_mq_rq_ctx_init has allocated the request",
        "seed 22466",
        roles=of(Kind.START),
        after=but(Kind.G, Kind.RQ_REMAP),
    ),
    NeighbourRule(
        "got",
        always,
        "",
        "block_getrq is reported once, right after the allocation; its request is known by "
        "intervals alone",
        "seed 23824",
        roles=of(Kind.G),
    ),
    NeighbourRule(
        "cloned",
        always,
        "",
        "block_rq_remap is reported once, when dm (map_request) has allocated the clone",
        "case",
        roles=of(Kind.RQ_REMAP),
    ),
    NeighbourRule(
        "started-unlike-clone",
        asks.elsewhere_or_other_operation,
        "at another sector, or of another operation",
        "dm reports `a` just before the clone's `s`, with one range: the clone's own `s` and `C` "
        "were not recorded",
        "seed 54085",
        roles=of(Kind.START),
        after=of(Kind.RQ_REMAP),
    ),
    NeighbourRule(
        "ended",
        always,
        "",
        "a request that has ended is freed (blk_mq_free_request); a requeue would have shown `R`",
        "seed 20764",
        roles=of(Kind.D, Kind.I, Kind.M, Kind.F, Kind.RQ_MERGE, Kind.RQ_REMAP),
        after=of(Kind.C, Kind.E, Kind.DONE),
    ),
    NeighbourRule(
        "absorbed",
        always,
        "",
        "an absorbed request is freed at once (blk_mq_sched_try_insert_merge)",
        "seed 21322",
        roles=but(Kind.E, Kind.DONE),
        after=of(Kind.RQ_MERGE),
    ),
    NeighbourRule(
        "joined-after-issue",
        always,
        "",
        "bios and requests join a request only while it waits in a plug or scheduler "
        "(blk_attempt_plug_merge, elv_merge): its completion was not recorded",
        "seed 84318",
        roles=of(Kind.M, Kind.F, Kind.RQ_MERGE, Kind.RQ_REMAP),
        after=of(Kind.D),
    ),
    NeighbourRule(
        "issued-other-bio",
        asks.other_bio,
        "with another head bio",
        "nothing joins an issued request, so its head stays: its completion was not recorded",
        "case",
        roles=of(Kind.D, Kind.I, Kind.R, Kind.C),
        after=of(Kind.D),
    ),
    NeighbourRule(
        "issued-other-sector",
        asks.issued_elsewhere,
        "at another sector (of a `C`: where the `D` had data)",
        "an issued request keeps its sector until a `C` (blk_update_request)",
        "seed 192",
        unless=(_ZONE_APPEND,),
        roles=of(Kind.D, Kind.I, Kind.R, Kind.C),
        after=of(Kind.D),
    ),
    NeighbourRule(
        "issued-other-operation",
        asks.other_operation,
        "of another operation",
        "a request keeps its operation (cmd_flags)",
        "case",
        roles=of(Kind.D, Kind.I, Kind.R, Kind.C),
        after=of(Kind.D),
    ),
    NeighbourRule(
        "flush-issued-again",
        asks.both_without_bio,
        "both without a bio",
        "a flush request (blk_kick_flush) has no bio, and one is used again for every flush",
        "seed 20764",
        roles=of(Kind.D),
        after=of(Kind.D),
    ),
    NeighbourRule(
        "issued-bio-and-none",
        asks.one_without_bio,
        "one of them without a bio",
        "a request has bios from its allocation to its end, or never (flush, passthrough)",
        "case",
        roles=of(Kind.D, Kind.I, Kind.R, Kind.C),
        after=of(Kind.D),
    ),
    NeighbourRule(
        "queued-since-issue",
        asks.bio_queued_between,
        "whose bio was queued in between",
        "nothing joins an issued request",
        "case",
        roles=of(Kind.D, Kind.I, Kind.R, Kind.C),
        after=of(Kind.D),
    ),
    NeighbourRule(
        "passthrough-other-size",
        asks.passthrough_of_other_size,
        "of another size, of a passthrough command",
        "no bio joins a passthrough request (rq_mergeable), so it keeps its size",
        "seed 93705",
        roles=of(Kind.D),
        after=of(Kind.D),
    ),
    NeighbourRule(
        "sectors-left-out",
        asks.sectors_left_out,
        "with sectors that it does not have any more",
        "a request only grows before its issue; sectors leave it by completion alone",
        "case",
        roles=of(Kind.I, Kind.D, Kind.RQ_MERGE),
        after=of(Kind.START, Kind.I, Kind.R, Kind.M, Kind.F),
    ),
    NeighbourRule(
        "requeued-before-end",
        asks.ends_earlier,
        "that ends at a lower sector",
        "a request grows until its issue, and completion takes sectors from its front alone "
        "(blk_update_request): its `D` and `C`, and what began the later one, were not recorded",
        "seed 620185",
        roles=of(Kind.R),
        after=of(Kind.START, Kind.I, Kind.M, Kind.F),
    ),
    NeighbourRule(
        "other-head-at-sector",
        asks.other_head_at_sector,
        "at the same sector, of another head bio",
        "only a front merge changes the head (bio_attempt_front_merge), and it moves the sector",
        "case",
        roles=of(Kind.I, Kind.D, Kind.RQ_MERGE),
        after=of(Kind.START, Kind.I, Kind.R),
    ),
    NeighbourRule(
        "waiting-other-operation",
        asks.other_operation,
        "of another operation",
        "a request keeps its operation, and takes in only bios of it (blk_rq_merge_ok)",
        "case",
        roles=of(Kind.M, Kind.F, Kind.I, Kind.D, Kind.C, Kind.RQ_MERGE),
        after=of(Kind.START, Kind.I),
    ),
    NeighbourRule(
        "joined-other-operation",
        asks.other_operation,
        "of another operation",
        "likewise",
        "case",
        roles=of(Kind.I, Kind.D),
        after=of(Kind.R, Kind.M, Kind.F),
    ),
    NeighbourRule(
        "inserted-elsewhere",
        asks.other_sector,
        "at another sector",
        "a request is inserted again only after `R`",
        "case",
        roles=of(Kind.I),
        after=of(Kind.I),
    ),
    NeighbourRule(
        "joined-beside",
        asks.joined_beside,
        "whose sectors lie outside the range of the next `I`, `D` or `m`, while the joining bio "
        "lies within that range (no discards)",
        "between the two one request ended and another began, in records that were lost",
        "seed 21322",
        roles=_JOINS,
        after=of(Kind.G, Kind.START, Kind.I, Kind.R, Kind.M, Kind.F),
    ),
    NeighbourRule(
        "joined-inside",
        asks.joined_inside,
        "with sectors behind the place of the `M`, or before that of the `F`",
        "a request only grows at its ends before its issue (blk_try_merge)",
        "seed 84318",
        unless=(_DISCARD,),
        roles=_JOINS,
        after=of(Kind.G, Kind.START, Kind.I, Kind.R, Kind.M, Kind.F),
    ),
    NeighbourRule(
        "queued-since-merge",
        asks.bio_queued_between,
        "whose head bio was queued in between",
        "a bio that joined since would show in an `M` or `F` of its own",
        "seed 66098",
        roles=of(Kind.I, Kind.D, Kind.C, Kind.R, Kind.RQ_MERGE),
        after=_JOINS,
    ),
    NeighbourRule(
        "flush-after-start",
        asks.flush_queued_between,
        "of no bytes, after data, whose bio was queued in between",
        "the end of a flush without data, which got the address later",
        "seed 145007",
        roles=of(Kind.C),
        after=of(Kind.START, Kind.I),
    ),
    NeighbourRule(
        "flush-after-requeue",
        asks.flush_queued_between,
        "of no bytes, after data, whose bio was queued in between",
        "likewise; the requeued request's next `D` and `C` were not recorded",
        "case",
        roles=of(Kind.C),
        after=of(Kind.R),
    ),
    NeighbourRule(
        "requeued-other-operation",
        asks.other_operation,
        "of another operation",
        "a requeued request keeps its operation; its next `D` and `C` were not recorded",
        "case",
        roles=of(Kind.C),
        after=of(Kind.R),
    ),
)
"""A row that any rule marks begins a generation; the first row of an address always does."""
