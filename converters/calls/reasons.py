# SPDX-License-Identifier: Apache-2.0
"""What each wait of a call was for: by its stack, read by the rules of `reason_rules`.

And of a wait for a journal which commit it ended with.
"""

from collections.abc import Sequence

import numpy as np

from biotrail.converters.calls.reason_rules import PASSED_OVER, RULES, Rule, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import NO_STACK, Commits, Waits
from biotrail.converters.events.tables import I32, I64, NEVER, U8, U32

_PASSED_OVER = frozenset(PASSED_OVER.split())
_RULES_OF: dict[str, list[Rule]] = {}
for _rule in RULES:
    for _function in _rule.functions.split():
        _RULES_OF.setdefault(_function, []).append(_rule)


def reason_of(functions: Sequence[str]) -> WaitReason:
    """Return what a wait with this kernel stack is for. functions: names, the innermost first.

    The innermost function for which a rule of RULES holds decides; of several rules the first. A
    rule with `callers` holds only if the next frame outward that is neither one of its functions
    nor PASSED_OVER is one of them. A suffix of the compiler (".constprop.0", ".isra.0", ".part.0")
    is ignored; "" is a frame without a name. UNKNOWN where no frame has a name; else OTHER if no
    rule holds.
    """
    names = [name.partition(".")[0] for name in functions]
    for depth, name in enumerate(names):
        for rule in _RULES_OF.get(name, ()):
            passed = {*rule.functions.split(), *_PASSED_OVER}
            caller = next((outer for outer in names[depth:] if outer not in passed), "")
            if not rule.callers or caller in rule.callers.split():
                return rule.reason
    return WaitReason.OTHER if any(names) else WaitReason.UNKNOWN


class WaitReasons:
    """The reasons of a log's waits, by the stacks of its notes so far."""

    def __init__(self, context: Context) -> None:
        """context: the log's, whose `wait_stacks` grow while it is read."""
        self._stacks = context.wait_stacks
        self._known: dict[int, WaitReason] = {}

    def of(self, stacks: I32) -> U8:
        """Return the WaitReason of each `Waits.stack`, (n,).

        UNKNOWN where the wait has no stack, the kernel refused it, or no note so far has its
        frames.
        """
        ids, at = np.unique(stacks, return_inverse=True)
        for number in ids.tolist():
            if number != NO_STACK and number in self._stacks and number not in self._known:
                self._known[number] = reason_of(self._stacks[number])
        found = [self._known.get(number, WaitReason.UNKNOWN) for number in ids.tolist()]
        return np.array(found, dtype=np.uint8)[at]


KEPT = 64
"""A wait is recorded once its thread has a CPU again; so many commits may have ended by then."""


class LastCommits:
    """The newest commits of each journal's thread, window after window, in the log's order."""

    def __init__(self) -> None:
        self._last = Commits.none()

    def of(self, waits: Waits, commits: Commits) -> tuple[I64, U32]:
        """Return (transaction, device) of the commit that each wait was for: `Waits.commit`, (n,).

        A wait with reason JOURNAL_COMMIT is ended by the thread that commits (`waker`), right after
        the commit's end. So it is the last commit of that thread that ended by the wake-up, if it
        did not end before the wait began. Else, and for waits with other reasons, NEVER and 0.
        waits, commits: those of the log's next window, waits with `reason`.
        """
        transaction = np.full(len(waits), NEVER, dtype=np.int64)
        dev = np.zeros(len(waits), dtype=np.uint32)
        known = Commits.concatenate([self._last, commits])
        known = known.take(np.lexsort((known.end, known.tid)))
        rows = np.flatnonzero(waits.reason == WaitReason.JOURNAL_COMMIT)
        last = _last_by(known, waits.waker[rows], waits.woken[rows])
        rows, last = rows[last >= 0], last[last >= 0]
        since = known.end[last] >= waits.out[rows]
        rows, last = rows[since], last[since]
        transaction[rows], dev[rows] = known.transaction[last], known.dev[last]
        behind = np.searchsorted(known.tid, known.tid, side="right") - np.arange(len(known))
        self._last = known.take(behind <= KEPT)
        return transaction, dev


def _last_by(known: Commits, waker: U32, woken: I64) -> I64:
    """Return the row of the last commit that a thread ended by a time (ns); -1: none.

    known: sorted by (tid, end).
    """
    if not len(known):
        return np.full(len(waker), -1, dtype=np.int64)
    ends, rank = np.unique(known.end, return_inverse=True)
    tids, code = np.unique(known.tid, return_inverse=True)
    # Each thread has its own range of ranks; rank 0 is before all of its commits.
    width = len(ends) + 1
    asked = np.searchsorted(tids, waker) * width + np.searchsorted(ends, woken, side="right")
    row = np.searchsorted(code * width + rank + 1, asked, side="right") - 1
    return np.where((row >= 0) & (known.tid[row] == waker), row, -1)
