# SPDX-License-Identifier: Apache-2.0
"""The waits of a process in a log, and how many of them have each reason."""

from collections import Counter

import numpy as np

from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.path_tables import Waits
from tests.support.path_tables import RecordedPath


def of_process(found: RecordedPath, comm: str, *calls: str) -> Waits:
    """The waits of a process in these calls."""
    mine = found.calls_of(comm, *calls)
    keys = set(zip(mine.tid.tolist(), mine.entry.tolist(), strict=True))
    waits = zip(found.waits.tid.tolist(), found.waits.entry.tolist(), strict=True)
    return found.waits.take(np.array([key in keys for key in waits], dtype=np.bool_))


def reasons(found: RecordedPath, waits: Waits) -> Counter[str]:
    """How many waits have each reason; one that no rule knows by its functions."""
    named: Counter[str] = Counter()
    for reason, stack in zip(waits.reason.tolist(), waits.stack.tolist(), strict=True):
        functions = found.trace.context.wait_stacks.get(stack, (f"stack {stack}",))
        known = reason not in (WaitReason.OTHER, WaitReason.UNKNOWN)
        named[WAIT_REASON_NAMES[WaitReason(reason)] if known else " ".join(functions)] += 1
    return named
