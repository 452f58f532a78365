# SPDX-License-Identifier: Apache-2.0
"""One history held to everything: a few hundred in `make test`, 10,000 in `make prove`.

The parts of the proof:

- by identity, all that the records determine is as it happened, nothing wrong is unmarked;
- the reference of identities says of complete histories what happened, and so does production;
- the reference of intervals is never wrong unless it says ambiguous;
- without identities production says what the reference says, and each latency that it does not
  call doubtful is right by a tenth;
- stages add up to the nanosecond, sectors are served once, every event has a reason.
"""

import random

from tests.reference import compare_identities as identities
from tests.reference.compare import comparable, differences, reference_problems
from tests.simulation.check import problems, run, structure
from tests.simulation.check_doubt import latency_problems
from tests.simulation.check_intervals import IntervalChecker
from tests.simulation.loads import history
from tests.simulation.model import History

FEATURES = {
    "identical concurrent reads": "identical reads at once",
    "the same run twice at once": "the same neighbours read twice at once",
    "split by the limit": "queue limits that split",
    "fragment merges": "a fragment merges into another bio's request",
    "back merge": "plugged or scheduler merges, back",
    "front merge": "merges, front",
    "merge after a requeue": "a bio joins a requeued request",
    "request merge": "request merges (m)",
    "chained request merge": "request merges, chained",
    "insert under none": "scheduler none, busy: inserted",
    "insert under mq-deadline": "scheduler mq-deadline",
    "insert under bfq": "scheduler bfq",
    "insert under kyber": "scheduler kyber",
    "issue out of order": "issued in another order than inserted",
    "plug flushed by another task": "plug flushed by another CPU",
    "flush request": "flush requests (FF)",
    "flush shared": "flushes shared",
    "requeued flush": "flush requests requeued",
    "failed flush": "flushes that fail",
    "failed flush sequence": "flush sequences that fail",
    "fsync": "fsync (flush without data)",
    "journal commit": "flush, data, flush (FWFS)",
    "FUA by a flush": "FUA by a flush after the data",
    "FUA by the device": "FUA by the device",
    "discard": "discards",
    "discard split": "discards split",
    "multi-range discard": "discards of several ranges, joined without an event",
    "write zeroes": "write zeroes",
    "zone append": "zone append (C with another sector)",
    "requeue": "requeues",
    "tag changes at a requeue": "tags that change at a requeue",
    "partial completion": "partial completions",
    "partial completion, then a requeue": "partial completion, R, D of the rest",
    "partial completion, then an error": "partial completion, then an error",
    "completion of several bios": "one C, several bios",
    "failed completion": "failed completions (E)",
    "failure before the issue": "requests that fail before their issue",
    "early failure": "bios that fail before a request (Q, c)",
    "rest of a split fails early": "splits whose rest fails early",
    "bio-based": "bio-based devices",
    "c without a size": "c whose size is gone",
    "failure of a bio-based bio": "failures on bio-based devices",
    "split of a bio-based device": "splits on bio-based devices",
    "partition remap": "partitions (A, Q of one bio)",
    "dm clone": "dm clones (A, then Q below)",
    "clone sent to a partition": "partition below dm: two A",
    "stacked bio with several parts": "dm and md bios of several parts",
    "dm says X for the rest": "dm splits with X for the rest",
    "clones sent by a worker": "clones sent by another task",
    "md clone": "md clones, mirrored and striped",
    "md split with X": "md splits with X",
    "split without X": "splits that no event tells (old md, dm)",
    "loop, direct": "loop, direct: linked by the page",
    "loop, buffered": "loop, buffered: no link",
    "the same bio sent on": "NVMe multipath: the bio itself is sent on",
    "request-based dm": "request-based dm (a)",
    "passthrough": "passthrough",
    "chain cut": "chains longer than the record",
    "bio pointer recycled within 50 µs": "bio addresses used again < 50 µs after",
    "request pointer recycled within 50 µs": "request addresses used again < 50 µs after",
    "records that arrive late": "records that arrive up to 1 ms late",
    "single record lost, counted": "single records lost, counted",
    "burst lost, counted": "bursts lost, counted",
    "C never seen, not counted": "C that no program saw, not counted",
    "begins in flight": "recordings that begin in flight",
    "ends in flight": "recordings that end in flight",
    "recorded without s": "kernels without s, and sets without it",
    "recorded without G": "recorded without G",
    "minimal event set": "the minimal event set",
    "M says the request": "kernels whose M tells the request",
}
"""What histories must have, by the simulation's own names."""


def wrong(found: History) -> list[str]:
    """Everything that is wrong with what is said of a history; empty when all is right."""
    by_identity = run(found)
    texts = [f"identity: {text}" for text in problems(found, by_identity)]
    if identities.comparable(found):
        said = identities.identity_differences(found, by_identity)
        texts += [f"identity, reference: {text}" for text in said]
        texts += [f"reference: {text}" for text in identities.problems_of_reference(found)]
    by_intervals = run(found, "intervals")
    texts += [f"intervals: {text}" for text in structure(found, by_intervals)]
    if comparable(found):
        checker = IntervalChecker(found, by_intervals)
        texts += [f"intervals: {text}" for text in [*checker.check(), *latency_problems(checker)]]
        said = differences(found, by_intervals)
        texts += [f"intervals, reference: {t}" for t in said]
        texts += [f"reference: {text}" for text in reference_problems(found)]
    return texts


def wrong_of_seed(seed: int, size: int = 12) -> tuple[History, list[str]]:
    found = history(random.Random(seed), size)
    return found, wrong(found)
