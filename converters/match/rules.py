# SPDX-License-Identifier: Apache-2.0
"""Which rules the machine has, by table and name, and which are switched off.

What each rule says, and why, is said once: by the entry of that name in the model's tables
(`association.rules`). Here is its place in the machine's mask.
"""

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
)
"""`TABLE/RULE`, as the model's tables have them; a rule's place here is its number."""

BY_INTERVALS_ALONE = ("requests/got",)
"""Rules that events with pointers never ask: the machine does not have them yet."""

OFF: set[str] = set()
"""Names of rules that are switched off: tests see what comes out wrong without each."""


def mask() -> bytes:
    """Return a byte per rule: 1, or 0 for one that is switched off."""
    return bytes(name not in OFF for name in NAMES)
