# SPDX-License-Identifier: Apache-2.0
"""Which rules the machine has, by table and name, and which are switched off.

What each rule says, and why, is said once: by the entry of that name in the model's tables
(`association.rules`), or in `FINDER`. Here is its place in the machine's mask.
"""

FINDER = {
    "own-thread": (
        "of several bios those that the event's thread queued",
        "a task submits one bio after the other (submit_bio_noacct)",
    ),
    "sent-by-remap": (
        "`Q`: the bio that the thread's last event, an `A`, sent to this place",
        "submit_bio_noacct queues a remapped bio right after its `A`",
    ),
    "clone-of-disk": (
        "`A`: the bio that the thread's last `A` sent to the disk, with the partition's sector",
        "dm's clone is for the partition, whose disk alone its remap names (blk_partition_remap)",
    ),
    "sent-on-without-queue": (
        "a bio that an `A` sent, and that goes on without a `Q`, is the one above itself",
        "nvme_ns_head_submit_bio sends the bio on to a path, whose disk has no `Q`",
    ),
    "ends-without-size": (
        "`c` of no bytes: a bio that ends at its sector",
        "bio_advance moves a bio to its end, where bi_size is 0",
    ),
    "unserved-fronts": (
        "`c` in doubt where front pieces of the bio are in no request",
        "their completion is still to come (bio_chain)",
    ),
    "early-before-request": (
        "`c` on a device without `Q`: of the first bio of the request that begins there",
        "nvme_trace_bio_complete reports it just before the `C` of the request",
    ),
    "flushes-merge-not": (
        "`M` `F` `m`: not into a request with a flush",
        "REQ_NOMERGE_FLAGS",
    ),
    "own-plug": (
        "`M` `F`: what the thread itself holds back first",
        "blk_mq_submit_bio tries the task's plug before the scheduler (blk_attempt_plug_merge)",
    ),
    "merges-named-as-joins": (
        "`M` `F` where no bio waits, but a request is held: an `m`",
        "blktrace has one letter for both (blk_add_trace_rq_merge)",
    ),
    "unseen-takers": (
        "`M` `F` in doubt where a bio waits beside it and no allocation is recorded",
        "that bio may have a request that nothing showed",
    ),
    "guesses-blur": (
        "`I` `D` `m` in doubt near a merge that could have gone elsewhere",
        "the ranges of all that could have taken it are open until these are issued",
    ),
    "parts-blur": (
        "`C` `R` in doubt near a partial completion that could have been another's",
        "where what is left begins is open",
    ),
    "unseen-allocations": (
        "`D` in doubt where a bio waits in its range and no allocation is recorded",
        "the request may be of these bios",
    ),
    "discards-that-grew": (
        "`D` of a discard in doubt where a shorter one is held there",
        "discards join a request without an event (bio_attempt_discard_merge)",
    ),
    "discards-from-anywhere": (
        "`D` of a discard in doubt where smaller ones wait",
        "a request of several ranges reports the first sector and the total (blk_rq_bytes)",
    ),
    "tags-reused": (
        "`s` `D`: what had the tag before has ended",
        "a tag is free after blk_mq_put_tag alone",
    ),
    "lived-through-loss": (
        "`C` of several: those issued since records were lost",
        "the completion of one that was in flight then was likely among these records",
    ),
    "fails-before-issue": (
        "`C` with an error: also what is held",
        "blk_mq_end_request ends a request that was not issued, too",
    ),
    "bios-end-by-c": (
        "`C` where no request was seen: of a bio that waits",
        "blktrace has one letter for both (blk_add_trace_bio_complete)",
    ),
    "flush-ends-those-before": (
        "`C` of no bytes: of what is older than the newest flush",
        "a flush ends only what was queued when it was issued (blk_kick_flush)",
    ),
    "data-may-have-ended": (
        "`C` of no bytes in doubt where a flush sequence is with the driver",
        "its end of data may not have been recorded",
    ),
    "sequence-outlives-tag": (
        "`D`: a flush sequence that had the tag has not ended, its data is done",
        "blk_flush_complete_seq goes on with a flush, to which it may lend the tag",
    ),
}
"""Rules of logs without pointers: what each says, and why (the kernel's function)."""

NAMES = (
    *(
        f"requests/{name}"
        for name in (
            "started",
            "cloned",
            "started-unlike-clone",
            "ended",
            "absorbed",
            "joined-after-issue",
            "issued-other-bio",
            "issued-other-sector",
            "issued-other-operation",
            "flush-issued-again",
            "issued-bio-and-none",
            "queued-since-issue",
            "passthrough-other-size",
            "sectors-left-out",
            "other-head-at-sector",
            "waiting-other-operation",
            "joined-other-operation",
            "inserted-elsewhere",
            "joined-beside",
            "joined-inside",
            "queued-since-merge",
            "flush-after-start",
            "flush-after-requeue",
            "requeued-other-operation",
        )
    ),
    *(
        f"completed/{name}"
        for name in (
            "no-completion-yet",
            "completed-in-full",
            "not-where-completion-ended",
            "second-empty-completion",
            "empty-of-other-bio",
            "empty-of-other-operation",
            "empty-elsewhere",
            "queued-since-completion",
        )
    ),
    *(
        f"bios/{name}"
        for name in (
            "queued",
            "queued-elsewhere",
            "remapped",
            "other-device",
            "split-off",
            "joins-again",
            "starts-again",
            "completes-again",
            "served-after-completion",
            "joins-outside",
            "joins-with-other-operation",
            "issued-outside",
            "issued-with-other-operation",
            "served-outside",
            "served-with-other-operation",
            "other-request",
        )
    ),
    *(
        f"resubmissions/{name}"
        for name in ("from-its-device", "begins-inside", "ends-inside", "same-operation")
    ),
    *(
        f"request ends/{name}"
        for name in ("bytes-completed", "flush-sequence-ended", "flush-sequence-failed")
    ),
    *(
        f"lost completions/{name}"
        for name in ("address-reused", "piece-lost", "request-reused", "ended-before-pieces")
    ),
    *(
        f"splits/{name}"
        for name in ("longer", "same-operation", "not-sent-itself", "not-sent-by-front")
    ),
    *(f"upper bios/{name}" for name in ("not-itself", "queued-whole", "same-operation")),
    "chains/same-operation",
    *(f"chain refusals/{name}" for name in ("request-waits", "failed-before-issue", "place-taken")),
    *(
        f"loops/{name}"
        for name in (
            "issued",
            "issued-before",
            "not-ended",
            "not-completed-in-part",
            "other-device",
            "same-operation",
            "directly-below",
        )
    ),
    *(
        f"certainty of bios/{name}"
        for name in (
            "completed-without-issue",
            "issue-implied",
            "behind-failed-head",
            "outside-the-log",
            "completion-lost",
        )
    ),
    *(
        f"certainty of requests/{name}"
        for name in (
            "completed-without-issue",
            "failed-with-unknown-bios",
            "issue-implied",
            "not-ended",
            "start-not-recorded",
            "completion-lost",
            "absorbed-by-unknown",
        )
    ),
    "requests/requeued-before-end",
    "splits/not-zone-append",
    "requests/got",
    *(f"finder/{name}" for name in FINDER),
)
"""`TABLE/RULE`, as the model's tables have them; a rule's place here is its number."""

OFF: set[str] = set()
"""Names of rules that are switched off: tests see what comes out wrong without each."""


def mask() -> bytes:
    """Return a byte per rule: 1, or 0 for one that is switched off."""
    return bytes(name not in OFF for name in NAMES)
