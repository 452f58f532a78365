# SPDX-License-Identifier: Apache-2.0
"""The rules by which events become bios and requests, by table and name.

The tables of docs/lifecycles.md are made from these entries, tests switch each rule off in turn,
and the proof's seeded bugs name them. A rule is one condition in a handler of the machine, or
several that say the same.
"""

from dataclasses import dataclass

from biotrail.converters.events.tables import Certainty


@dataclass(frozen=True)
class Rule:
    """One rule."""

    name: str
    """Unique in its table."""
    says: str
    """The condition in words; where generations begin, first what the event before it is."""
    why: str
    """The kernel's reason, with its function, and its version where kernels differ."""
    needed_by: str
    """What comes out otherwise without it.

    seed N: a generated history, wrong without it; by intervals N: likewise, without pointers.
    KIND N: a history of this kind (tests/prove/machine.py), with other tables; otherwise N:
    likewise, without pointers. recording NAME: a file of tests/data. case: a few events in the
    tests of the machine. nothing: why it could go.
    """
    event: str = ""
    """The event at which a generation begins."""
    but: str = ""
    """What it leaves out."""
    gives: Certainty | None = None


TABLES: dict[str, tuple[Rule, ...]] = {
    "requests": (
        Rule(
            "started",
            "any but `G` `a`",
            "block_io_start: blk_mq_rq_ctx_init has allocated the request",
            "seed 22466",
            event="`s`",
        ),
        Rule(
            "got",
            "any",
            "block_getrq is reported once, right after the allocation; its request is known "
            "by intervals alone",
            "by intervals 9",
            event="`G`",
        ),
        Rule(
            "cloned",
            "any",
            "block_rq_remap is reported once, when dm (map_request) has allocated the clone",
            "case",
            event="`a`",
        ),
        Rule(
            "started-unlike-clone",
            "`a`, at another sector, or of another operation",
            "dm reports `a` just before the clone's `s`, with one range: the clone's own `s` "
            "and `C` were not recorded",
            "seed 54085",
            event="`s`",
        ),
        Rule(
            "ended",
            "`C`, `d` or `E`",
            "a request that has ended is freed (blk_mq_free_request); a requeue would have "
            "shown `R`",
            "seed 20764",
            event="`M` `F` `I` `m` `D` `a`",
        ),
        Rule(
            "absorbed",
            "`m`",
            "an absorbed request is freed at once (blk_mq_sched_try_insert_merge)",
            "seed 21322",
            event="any but `d` `E`",
        ),
        Rule(
            "joined-after-issue",
            "`D`",
            "bios and requests join a request only while it waits in a plug or scheduler "
            "(blk_attempt_plug_merge, elv_merge): its completion was not recorded",
            "seed 84318",
            event="`M` `F` `m` `a`",
        ),
        Rule(
            "issued-other-bio",
            "`D`, with another head bio",
            "nothing joins an issued request, so its head stays: its completion was not recorded",
            "case",
            event="`I` `D` `R` `C`",
        ),
        Rule(
            "issued-other-sector",
            "`D`, at another sector (of a `C`: where the `D` had data)",
            "an issued request keeps its sector until a `C` (blk_update_request)",
            "seed 192",
            event="`I` `D` `R` `C`",
            but="`C` of a zone append, which reports what was written",
        ),
        Rule(
            "issued-other-operation",
            "`D`, of another operation",
            "a request keeps its operation (cmd_flags)",
            "case",
            event="`I` `D` `R` `C`",
        ),
        Rule(
            "flush-issued-again",
            "`D`, both without a bio",
            "a flush request (blk_kick_flush) has no bio, and one is used again for every flush",
            "seed 20764",
            event="`D`",
        ),
        Rule(
            "issued-bio-and-none",
            "`D`, one of them without a bio",
            "a request has bios from its allocation to its end, or never (flush, passthrough)",
            "case",
            event="`I` `D` `R` `C`",
        ),
        Rule(
            "queued-since-issue",
            "`D`, whose bio was queued in between",
            "nothing joins an issued request",
            "case",
            event="`I` `D` `R` `C`",
        ),
        Rule(
            "passthrough-other-size",
            "`D`, of another size, of a passthrough command",
            "no bio joins a passthrough request (rq_mergeable), so it keeps its size",
            "seed 93705",
            event="`D`",
        ),
        Rule(
            "sectors-left-out",
            "`s`, `M`, `F`, `I` or `R`, with sectors that it does not have any more",
            "a request only grows before its issue; sectors leave it by completion alone",
            "case",
            event="`I` `m` `D`",
        ),
        Rule(
            "requeued-before-end",
            "`s`, `M`, `F` or `I`, that ends at a lower sector",
            "a request grows until its issue, and completion takes sectors from its front "
            "alone (blk_update_request): its `D` and `C`, and what began the later one, were "
            "not recorded",
            "seed 620185",
            event="`R`",
        ),
        Rule(
            "other-head-at-sector",
            "`s`, `I` or `R`, at the same sector, of another head bio",
            "only a front merge changes the head (bio_attempt_front_merge), and it moves the "
            "sector",
            "case",
            event="`I` `m` `D`",
        ),
        Rule(
            "waiting-other-operation",
            "`s` or `I`, of another operation",
            "a request keeps its operation, and takes in only bios of it (blk_rq_merge_ok)",
            "case",
            event="`M` `F` `I` `m` `D` `C`",
        ),
        Rule(
            "joined-other-operation",
            "`M`, `F` or `R`, of another operation",
            "likewise",
            "case",
            event="`I` `D`",
        ),
        Rule(
            "inserted-elsewhere",
            "`I`, at another sector",
            "a request is inserted again only after `R`",
            "case",
            event="`I`",
        ),
        Rule(
            "joined-beside",
            "`G`, `s`, `M`, `F`, `I` or `R`, whose sectors lie outside the range of the next "
            "`I`, `D` or `m`, while the joining bio lies within that range (no discards)",
            "between the two one request ended and another began, in records that were lost",
            "seed 21322",
            event="`M` `F`",
        ),
        Rule(
            "joined-inside",
            "`G`, `s`, `M`, `F`, `I` or `R`, with sectors behind the place of the `M`, or "
            "before that of the `F`",
            "a request only grows at its ends before its issue (blk_try_merge)",
            "seed 84318",
            event="`M` `F`",
            but="a discard, whose ranges need not touch",
        ),
        Rule(
            "queued-since-merge",
            "`M` or `F`, whose head bio was queued in between",
            "a bio that joined since would show in an `M` or `F` of its own",
            "seed 66098",
            event="`I` `m` `D` `R` `C`",
        ),
        Rule(
            "flush-after-start",
            "`s` or `I`, of no bytes, after data, whose bio was queued in between",
            "the end of a flush without data, which got the address later",
            "seed 145007",
            event="`C`",
        ),
        Rule(
            "flush-after-requeue",
            "`R`, of no bytes, after data, whose bio was queued in between",
            "likewise; the requeued request's next `D` and `C` were not recorded",
            "case",
            event="`C`",
        ),
        Rule(
            "requeued-other-operation",
            "`R`, of another operation",
            "a requeued request keeps its operation; its next `D` and `C` were not recorded",
            "case",
            event="`C`",
        ),
    ),
    "completed": (
        Rule(
            "no-completion-yet",
            "`E` or `d`, with no `C` of the request before",
            "these come with or after a `C`: the request began in between",
            "case",
            event="`C` `R`",
        ),
        Rule(
            "completed-in-full",
            "`C`, when the bytes of the last issue (or start) are complete",
            "after a partial completion the request goes on, after a full one it does not "
            "(blk_update_request)",
            "case",
            event="`C` `R`",
        ),
        Rule(
            "not-where-completion-ended",
            "`C`, which did not end where this one begins",
            "blk_update_request advances the request by the bytes of each `C`",
            "case",
            event="`C` `R`",
        ),
        Rule(
            "second-empty-completion",
            "of no bytes: `C` of no bytes",
            "a flush sequence has one such end (blk_flush_complete_seq)",
            "case",
            event="`C` `R`",
        ),
        Rule(
            "empty-of-other-bio",
            "of no bytes: `C` of another bio",
            "the end of a flush sequence is of the bio of its data",
            "case",
            event="`C` `R`",
        ),
        Rule(
            "empty-of-other-operation",
            "of no bytes: `C` of another operation",
            "likewise",
            "case",
            event="`C` `R`",
        ),
        Rule(
            "empty-elsewhere",
            "of no bytes: `C`, neither at its begin nor at its end",
            "likewise",
            "case",
            event="`C` `R`",
        ),
        Rule(
            "queued-since-completion",
            "`C`, when its bio was queued in between",
            "likewise",
            "case",
            event="`C` `R`",
        ),
    ),
    "bios": (
        Rule(
            "queued",
            "any but `A`",
            "submit_bio_noacct queues a bio once on each device; an `A` (partition, dm, md) "
            "comes just before its bio's `Q`",
            "seed 20764",
            event="`Q`",
            but=(
                "a `Q` of the same size and operation, on its partition or on a bio-based device "
                "that stands on this one, of which no clone was sent: only its `A` was lost"
            ),
        ),
        Rule(
            "queued-elsewhere",
            "`A`, to another sector",
            "the bio of the `A` is queued where that `A` sends it",
            "case",
            event="`Q`",
        ),
        Rule(
            "remapped",
            "any",
            "a clone is a new bio; otherwise the same bio goes on below (submit_bio_noacct)",
            "seed 21322",
            event="`A`",
            but=(
                "a `Q` or `A` of the device it comes from, of its operation, that holds all its "
                "sectors"
            ),
        ),
        Rule(
            "other-device",
            "any, of another device",
            "only a remap (`A`) changes bi_bdev",
            "case",
            event="any but `A`",
            but=(
                "a `Q` of the same size and operation, on its partition or on a bio-based device "
                "that stands on this one, of which no clone was sent: only its `A` was lost"
            ),
        ),
        Rule(
            "split-off",
            "any",
            "a front piece is a new bio (bio_split); where `X` names what is left (dm since "
            "6.1: the split's sector is the bio's own), it is the bio itself",
            "seed 20764",
            event="`X`",
        ),
        Rule(
            "joins-again",
            "`G`, `s`, `M`, `F`, `I`, `m`, `D`, `C` or `c`",
            "a bio gets one request: it is a later bio, whose `Q` is missing",
            "seed 162",
            event="`G` `M` `F`",
        ),
        Rule(
            "starts-again",
            "`s`, `M`, `F`, `I`, `m`, `D`, `C` or `c`",
            "likewise",
            "case",
            event="`s`, being split by `X`, being what `X` leaves",
        ),
        Rule(
            "completes-again",
            "`s`, `M`, `F`, `I`, `m`, `D`, `C` or `c`",
            "request-based I/O has no `c` (bio_endio without BIO_TRACE_COMPLETION) but for "
            "NVMe multipath's, just before its request's `C` (nvme_trace_bio_complete), which "
            "is the bio's",
            "seed 128",
            event="`c`",
        ),
        Rule(
            "served-after-completion",
            "`c`",
            "a completed bio is freed (bio_endio)",
            "case",
            event="`s` `M` `F` `I` `m` `D` `C`",
        ),
        Rule(
            "joins-outside",
            "`Q`, `A` or `X`, beside its sectors",
            "a bio is queued with all sectors that its request gets from it",
            "case",
            event="`G` `s` `M` `F`",
        ),
        Rule(
            "joins-with-other-operation",
            "`Q`, `A` or `X`, of another operation",
            "a bio keeps its operation; the kernel may turn a zone append into a write",
            "case",
            event="`G` `s` `M` `F`",
            but="a zone append",
        ),
        Rule(
            "issued-outside",
            "`G`, `M` or `F`, beside its sectors",
            "a bio lies within the issue of its request",
            "case",
            event="`D`",
            but="a discard, whose request has ranges apart",
        ),
        Rule(
            "issued-with-other-operation",
            "`G`, `M` or `F`, of another operation",
            "a request has bios of one operation (blk_rq_merge_ok)",
            "case",
            event="`D`",
            but="a zone append",
        ),
        Rule(
            "served-outside",
            "`X` or `m`, beside its sectors",
            "the request that absorbed another has all its sectors (attempt_merge)",
            "case",
            event="`I` `m` `D` `C`",
            but="a discard, whose request has ranges apart",
        ),
        Rule(
            "served-with-other-operation",
            "`X` or `m`, of another operation",
            "only requests of one operation merge (attempt_merge)",
            "case",
            event="`I` `m` `D` `C`",
            but="a zone append",
        ),
        Rule(
            "other-request",
            "any, of another request",
            "a bio does not change its request, but by a merge of requests (attempt_merge)",
            "seed 128",
            event="any but being split by `X`",
            but=(
                "an event of a request with an `m`; an event of a request that was not issued and "
                "lies within the `D` whose chain has the bio: its `m` was lost"
            ),
        ),
    ),
    "resubmissions": (
        Rule(
            "from-its-device",
            "it comes from the device or partition where the bio is",
            "block_bio_remap reports the device that the bio leaves",
            "case",
        ),
        Rule(
            "begins-inside",
            "it begins inside the bio's range",
            "what is left of a bio after a split is remapped as well",
            "case",
        ),
        Rule(
            "ends-inside",
            "it ends inside the bio's range",
            "likewise",
            "case",
        ),
        Rule(
            "same-operation",
            "it has the bio's operation",
            "a remap keeps bi_opf's operation",
            "case",
        ),
    ),
    "request ends": (
        Rule(
            "bytes-completed",
            "the bytes of its `C` since its last issue reach the bytes of that issue",
            "blk_update_request returns false when no bytes are left; without data at the "
            "first `C`",
            "seed 20764",
            but="one that blk-flush.c runs",
        ),
        Rule(
            "flush-sequence-ended",
            "blk-flush.c runs it (PREFLUSH with data, or FUA that is gone from the flags at "
            "`D`), and its last `C` has no bytes",
            "blk_flush_complete_seq ends the request itself when the sequence is done",
            "seed 20764",
        ),
        Rule(
            "flush-sequence-failed",
            "blk-flush.c runs it, and it failed before its issue",
            "a pre-flush that fails ends the request before its own `D` (blk_flush_complete_seq)",
            "ordinary 331",
        ),
    ),
    "lost completions": (
        Rule(
            "address-reused",
            "it has no end, and its address was used again",
            "a bio's address is free after bio_endio alone (bio_put)",
            "seed 21788",
        ),
        Rule(
            "piece-lost",
            "it has no end, and a piece of it is left out by the whole chain of its request, "
            "or had its address used again before its request ended",
            "the piece was completed before, by a `C` that was not recorded",
            "ordinary 401",
        ),
        Rule(
            "request-reused",
            "it has no end, and a piece of it is in a request whose address was used again",
            "a request is freed after its bios have completed (blk_mq_end_request), but when "
            "it is absorbed",
            "ordinary 13",
        ),
        Rule(
            "ended-before-pieces",
            "it has its own `c`, and a piece of it has no end",
            "bio_chain_endio lets a split bio end after all its pieces",
            "seed 565",
        ),
    ),
    "splits": (
        Rule(
            "longer",
            "it is longer",
            "a split leaves something (bio_split)",
            "case",
        ),
        Rule(
            "same-operation",
            "it has the same operation",
            "a front piece is a clone of its bio (bio_alloc_clone)",
            "case",
        ),
        Rule(
            "not-zone-append",
            "it is no zone append",
            "bio_split refuses these (5.8 and later)",
            "seed 630131",
        ),
        Rule(
            "not-sent-itself",
            "it did not go to a request with these sectors itself",
            "a bio sends no sector twice",
            "ordinary 2508",
        ),
        Rule(
            "not-sent-by-front",
            "no front piece that an `X` names has these sectors",
            "likewise",
            "seed 104325",
        ),
        Rule(
            "sent-the-rest",
            "of a piece that begins with `D`: it sent sectors behind it to a request itself",
            "what bio_split leaves is the bio's own; a piece without an `X`, `s`, `M` or `F` may "
            "as well be a bio whose `Q` was not recorded",
            "case",
        ),
    ),
    "upper bios": (
        Rule(
            "not-itself",
            "it is another bio",
            "a clone is a new bio (bio_alloc_clone)",
            "nothing: at its A a clone has no Q yet, which candidates have",
        ),
        Rule(
            "queued-whole",
            "it is no front piece",
            "dm and md remap sectors of the bio that was queued",
            "nothing: a front piece has no Q, which candidates have",
        ),
        Rule(
            "same-operation",
            "it has the same operation",
            "a clone has the operation of its bio (bio_alloc_clone)",
            "seed 126",
        ),
    ),
    "chains": (
        Rule(
            "same-operation",
            "it has the same operation",
            "a request takes in only bios of its operation (blk_rq_merge_ok)",
            "case",
        ),
        Rule(
            "address-reused",
            "its address has not begun another bio since",
            "a bio's address is free after bio_endio alone",
            "ordinary 1507888",
        ),
    ),
    "chain refusals": (
        Rule(
            "request-waits",
            "a request on the device waits for its issue since before the merge",
            "its range is not final: it may turn out to cover the bio too",
            "seed 122148",
        ),
        Rule(
            "failed-before-issue",
            "the only request failed before its issue",
            "it has no chain at all, so the bio may be of a request whose chain was cut",
            "case",
        ),
        Rule(
            "place-taken",
            "the request has another bio at these sectors",
            "a request serves no sector twice",
            "seed 33736",
        ),
    ),
    "loops": (
        Rule(
            "in-flight",
            "its piece with that page is in flight at the lower `Q`",
            "pages are used again, and the request ends when its lower I/O has",
            "ordinary 1506994",
        ),
        Rule(
            "issued",
            "its request was issued",
            "the loop driver submits below when it is given a request (loop_queue_rq, lo_rw_aio)",
            "seed 3000177",
        ),
        Rule(
            "issued-before",
            "… before the lower `Q`",
            "likewise",
            "case",
        ),
        Rule(
            "not-ended",
            "it has not ended by then",
            "the request ends when its lower I/O has (lo_rw_aio_complete)",
            "seed 3001141",
        ),
        Rule(
            "not-completed-in-part",
            "no `R` or `D` that begins behind it, or new request at its request's address, "
            "shows that it has completed by then",
            "its `C` was not recorded",
            "case",
        ),
        Rule(
            "same-operation",
            "it has the same operation",
            "lo_rw_aio reads for a read and writes for a write",
            "ordinary 229",
        ),
        Rule(
            "directly-below",
            "the lower device is one that it stands on",
            "the backing file is on that device",
            "case",
        ),
    ),
    "certainty of bios": (
        Rule(
            "completed-without-issue",
            "it completed, and its request succeeded (or ended twice, in a flush sequence) "
            "without an issue; not a flush without data",
            "a request that succeeds was issued; a flush sequence that was not ends once "
            "(blk_flush_complete_seq)",
            "with records missing 8",
            gives=Certainty.LOST,
        ),
        Rule(
            "issue-implied",
            "its request has a requeue or completion that an issue must have preceded",
            "only an issued request completes bytes; an `R` before the first `D` implies none "
            "if the log counts its losses: it is a busy driver's (BLK_STS_RESOURCE)",
            "ordinary 2346",
            gives=Certainty.LOST,
        ),
        Rule(
            "behind-failed-head",
            "it joined at the end of its request, of which only the `C` names it",
            "`C` reports the head: the bios before it have completed, so the request was issued",
            "seed 30019",
            gives=Certainty.LOST,
        ),
        Rule(
            "outside-the-log",
            "its `Q` or its end was not recorded",
            "it began before the log, or ended after it",
            "seed 20764",
            but="one with several candidates for its request: that hides its completion",
            gives=Certainty.INCOMPLETE,
        ),
        Rule(
            "completion-lost",
            "its end, or that of a piece, was not recorded though the log goes on",
            "as the rules above show",
            "seed 21322",
            but="one with several candidates for its request: that hides its completion",
            gives=Certainty.LOST,
        ),
    ),
    "certainty of requests": (
        Rule(
            "completed-without-issue",
            "it ended and succeeded, or ended twice, without an issue; not a flush without data",
            "a request that succeeds was issued (blk_mq_start_request)",
            "ordinary 42",
            gives=Certainty.LOST,
        ),
        Rule(
            "failed-with-unknown-bios",
            "it failed without an issue, with more bytes than its known bios",
            "bios joined it by merges (bio_attempt_back_merge, attempt_merge), which no chain "
            "of an issue names",
            "seed 81991",
            gives=Certainty.LOST,
        ),
        Rule(
            "issue-implied",
            "it has a requeue or completion that an issue must have preceded",
            "only an issued request completes bytes; an `R` before the first `D` implies none "
            "if the log counts its losses: it is a busy driver's (BLK_STS_RESOURCE)",
            "ordinary 359",
            gives=Certainty.LOST,
        ),
        Rule(
            "not-ended",
            "it has not ended",
            "it ends after the log",
            "ordinary 3",
            gives=Certainty.INCOMPLETE,
        ),
        Rule(
            "start-not-recorded",
            "its beginning was not recorded",
            "it began before the log",
            "ordinary 11",
            gives=Certainty.INCOMPLETE,
        ),
        Rule(
            "completion-lost",
            "it has not ended, but its address, or those of all its bios, were used again, or "
            "a later chain shows that it was absorbed",
            "an address is free after the end alone (blk_mq_free_request, bio_put)",
            "seed 30290",
            gives=Certainty.LOST,
        ),
        Rule(
            "absorbed-by-unknown",
            "it was merged into a request that could not be identified",
            "block_rq_merge does not name the absorbing request",
            "seed 46566",
            gives=Certainty.INCOMPLETE,
        ),
    ),
    "finder": (
        Rule(
            "own-thread",
            "of several bios those that the event's thread queued",
            "a task submits one bio after the other (submit_bio_noacct)",
            "by intervals 55",
        ),
        Rule(
            "sent-by-remap",
            "`Q`: the bio that the thread's last event, an `A`, sent to this place",
            "submit_bio_noacct queues a remapped bio right after its `A`",
            "by intervals 1",
        ),
        Rule(
            "clone-of-disk",
            "`A`: the bio that the thread's last `A` sent to the disk, with the partition's sector",
            "dm's clone is for the partition, whose disk alone its remap names "
            "(blk_partition_remap)",
            "recording stacked/lvmpart.txt",
        ),
        Rule(
            "sent-on-without-queue",
            "a bio that an `A` sent, and that goes on without a `Q`, is the one above itself",
            "nvme_ns_head_submit_bio sends the bio on to a path, whose disk has no `Q`",
            "by intervals 259",
        ),
        Rule(
            "ends-without-size",
            "`c` of no bytes: a bio that ends at its sector",
            "bio_advance moves a bio to its end, where bi_size is 0",
            "by intervals 1",
        ),
        Rule(
            "unserved-fronts",
            "`c` in doubt where front pieces of the bio are in no request",
            "their completion is still to come (bio_chain)",
            "case",
        ),
        Rule(
            "early-before-request",
            "`c` on a device without `Q`: of the first bio of the request that begins there",
            "nvme_trace_bio_complete reports it just before the `C` of the request",
            "recording paths/nvme_6.12.biotrail",
        ),
        Rule(
            "flushes-merge-not",
            "`M` `F` `m`: not into a request with a flush",
            "REQ_NOMERGE_FLAGS",
            "case",
        ),
        Rule(
            "own-plug",
            "`M` `F`: what the thread itself holds back first",
            "blk_mq_submit_bio tries the task's plug before the scheduler (blk_attempt_plug_merge)",
            "by intervals 197",
        ),
        Rule(
            "merges-named-as-joins",
            "`M` `F` where no bio waits, but a request is held: an `m`",
            "blktrace has one letter for both (blk_add_trace_rq_merge)",
            "case",
        ),
        Rule(
            "unseen-takers",
            "`M` `F` in doubt where a bio waits beside it and no allocation is recorded",
            "that bio may have a request that nothing showed",
            "case",
        ),
        Rule(
            "guesses-blur",
            "`I` `D` `m` in doubt near a merge that could have gone elsewhere",
            "the ranges of all that could have taken it are open until these are issued",
            "by intervals 12",
        ),
        Rule(
            "parts-blur",
            "`C` `R` in doubt near a partial completion that could have been another's",
            "where what is left begins is open",
            "by intervals 1",
        ),
        Rule(
            "unseen-allocations",
            "`D` in doubt where a bio waits in its range and no allocation is recorded",
            "the request may be of these bios",
            "otherwise 188",
        ),
        Rule(
            "discards-that-grew",
            "`D` of a discard in doubt where a shorter one is held there",
            "discards join a request without an event (bio_attempt_discard_merge)",
            "by intervals 104",
        ),
        Rule(
            "discards-from-anywhere",
            "`D` of a discard in doubt where smaller ones wait",
            "a request of several ranges reports the first sector and the total (blk_rq_bytes)",
            "by intervals 244",
        ),
        Rule(
            "tags-reused",
            "`s` `D`: what had the tag before has ended",
            "a tag is free after blk_mq_put_tag alone",
            "by intervals 91",
        ),
        Rule(
            "lived-through-loss",
            "`C` of several: those issued since records were lost",
            "the completion of one that was in flight then was likely among these records",
            "otherwise 139",
        ),
        Rule(
            "fails-before-issue",
            "`C` with an error: also what is held",
            "blk_mq_end_request ends a request that was not issued, too",
            "by intervals 61",
        ),
        Rule(
            "bios-end-by-c",
            "`C` where no request was seen: of a bio that waits",
            "blktrace has one letter for both (blk_add_trace_bio_complete)",
            "case",
        ),
        Rule(
            "flush-ends-those-before",
            "`C` of no bytes: of what is older than the newest flush",
            "a flush ends only what was queued when it was issued (blk_kick_flush)",
            "by intervals 6",
        ),
        Rule(
            "data-may-have-ended",
            "`C` of no bytes in doubt where a flush sequence is with the driver",
            "its end of data may not have been recorded",
            "case",
        ),
        Rule(
            "sequence-outlives-tag",
            "`D`: a flush sequence that had the tag has not ended, its data is done",
            "blk_flush_complete_seq goes on with a flush, to which it may lend the tag",
            "by intervals 919404",
        ),
        Rule(
            "several-are-ambiguous",
            "of several candidates, all are in doubt from then on",
            "any of them may be the one, and what happens to one may have happened to another",
            "by intervals 1",
        ),
        Rule(
            "merges-widen",
            "`M` `F` `m`: the request that takes it in has its sectors, too",
            "bio_attempt_back_merge, bio_attempt_front_merge and attempt_merge add its bytes",
            "by intervals 1",
        ),
        Rule(
            "fua-is-a-sequence",
            "`D` without the FUA of its bios: a flush follows the data, and a `C` of no bytes",
            "blk_insert_flush clears REQ_FUA where the device has no FUA",
            "by intervals 3",
        ),
    ),
}
"""The tables. Those of `finder` say who an event without pointers is about."""

RULES = {f"{table}/{rule.name}": rule for table, rules in TABLES.items() for rule in rules}
"""By `TABLE/RULE`; a rule's place here is its number (`numbers`)."""
OFF: set[str] = set()
"""Names of rules that are switched off: tests see what comes out wrong without each."""
