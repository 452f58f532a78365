# SPDX-License-Identifier: Apache-2.0
"""What each wait of a call was for: the stacks of waits, read by the rules of `reason_rules`."""

from collections.abc import Sequence

import numpy as np

from biotrail.converters.calls.reason_rules import PASSED_OVER, RULES, Rule, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import NO_STACK
from biotrail.converters.events.tables import I32, U8

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
            if not rule.callers or _caller(names[depth:], rule) in rule.callers.split():
                return rule.reason
    return WaitReason.OTHER if any(names) else WaitReason.UNKNOWN


def _caller(names: Sequence[str], rule: Rule) -> str:
    """Return the innermost of the functions `names` that calls what the rule names; "" without one.

    That is the first which is neither in the rule nor in PASSED_OVER.
    """
    passed = {*rule.functions.split(), *_PASSED_OVER}
    return next((name for name in names if name not in passed), "")


class WaitReasons:
    """The reasons of a log's waits, by the stacks of its notes so far."""

    def __init__(self, context: Context) -> None:
        """Start without stacks. context: the log's, whose `wait_stacks` grow while it is read."""
        self._stacks = context.wait_stacks
        self._known: dict[int, WaitReason] = {}

    def of(self, stacks: I32) -> U8:
        """Return the WaitReason of each wait, (n,). stacks: `Waits.stack`.

        UNKNOWN where the wait has no stack, the kernel refused it, no note so far has its frames,
        or none of these has a name; OTHER where no rule holds (see `reason_of`).
        """
        ids, at = np.unique(stacks, return_inverse=True)
        return np.array([self._one(number) for number in ids.tolist()], dtype=np.uint8)[at]

    def _one(self, number: int) -> WaitReason:
        """Return the reason of a stack id, and keep it in `_known` once the stack is known."""
        if number == NO_STACK or number not in self._stacks:
            return WaitReason.UNKNOWN
        if number not in self._known:
            self._known[number] = reason_of(self._stacks[number])
        return self._known[number]
