# SPDX-License-Identifier: Apache-2.0
"""The life of a followed object, held against what the kernel's own tracer saw of its pointer.

The two see a function's entry one after the other, so times differ by what the probes take. Order
does not: within a thread both see entries and returns as they happen. Only an interrupt that
comes between the two probes of one entry is later for one of them than that entry.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from tests.support.traced_calls import MICROSECOND, Passing

Context = tuple[int, int]


@dataclass
class Difference:
    """What two recordings of one life do not share; true if there is anything.

    missing: seen by the tracer alone. extra: by the recording alone. order: seen by both, in
    another order, without an interrupt that would explain it. entries, returns: seen by both, in
    one order. apart: the largest difference of a passing's two times, ns.
    """

    missing: list[Passing] = field(default_factory=list)
    extra: list[Passing] = field(default_factory=list)
    order: list[Passing] = field(default_factory=list)
    entries: int = 0
    returns: int = 0
    apart: int = 0

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.order)

    def __str__(self) -> str:
        words = [f"{self.entries} entries, {self.returns} returns, {self.apart // 1000} us apart"]
        words += [f"the tracer alone: {passing}" for passing in self.missing]
        words += [f"the recording alone: {passing}" for passing in self.extra]
        words += [f"in another order: {passing}" for passing in self.order]
        return "\n".join(words)


def compare(
    truth: Iterable[Passing],
    life: Sequence[Passing],
    reach: int,
    *,
    unseen: Collection[str] = (),
    died: bool = True,
) -> Difference:
    """Hold a life's entries and returns against the tracer's.

    truth: what the tracer saw, of any pointer, by time. life: the hits of functions, by time.
    reach: ns by which the two may see one passing apart. unseen: functions that the recording says
    it did not attach. died: the last entry is the death; False: no later object has the address.
    """
    found = Difference()
    if not life:
        return found
    seen = [passing for passing in during(truth, life, reach, died) if passing.name not in unseen]
    ours, theirs = _by_context(life), _by_context(seen)
    for context in sorted(ours.keys() | theirs.keys()):
        _hold(found, theirs.get(context, []), ours.get(context, []), reach)
    # What returns after the death is of no life any more.
    death = max((hit.time for hit in life if not hit.is_return), default=0)
    found.missing = [p for p in found.missing if not p.is_return or p.time + MICROSECOND < death]
    return found


def during(
    truth: Iterable[Passing], life: Sequence[Passing], reach: int, died: bool = True
) -> list[Passing]:
    """Return what the tracer saw of a life's pointer, from its first hit to its last.

    died: False: to the end of what it saw.

    What it has of the pointer just before or after is another life's, so the borders are the
    passings that are the first and last hits, by name and thread, nearest in time.
    """
    mine = [passing for passing in truth if passing.pointer == life[0].pointer]
    first, last = (_nearest(mine, hit, reach) for hit in (life[0], life[-1]))
    begin = 0 if first is None else mine.index(first)
    end = len(mine) if last is None or not died else mine.index(last) + 1
    early = life[0].time - reach
    late = life[-1].time + reach if died else max(passing.time for passing in mine or life)
    return [passing for passing in mine[begin:end] if early <= passing.time <= late]


def _hold(found: Difference, theirs: list[Passing], ours: list[Passing], reach: int) -> None:
    """Add to `found` what the two have of one thread: `theirs` is the tracer's."""
    matcher = SequenceMatcher(None, list(map(_what, theirs)), list(map(_what, ours)), False)
    left, rest = list(ours), list(theirs)
    for i, j, size in matcher.get_matching_blocks():
        for mine, yours in zip(theirs[i : i + size], ours[j : j + size], strict=True):
            if abs(mine.time - yours.time) <= reach:
                _share(found, mine, yours)
                rest.remove(mine)
                left.remove(yours)
    for passing in rest:
        match = _nearest(left, passing, reach)
        if match is None:
            found.missing.append(passing)
            continue
        left.remove(match)
        _share(found, passing, match)
        near = (p for p in theirs if abs(p.time - passing.time) <= reach)
        if not any(p.in_interrupt for p in near):
            found.order.append(passing)
    found.extra += left


def _share(found: Difference, mine: Passing, yours: Passing) -> None:
    found.returns += mine.is_return
    found.entries += not mine.is_return
    found.apart = max(found.apart, abs(mine.time - yours.time))


def _nearest(passings: Iterable[Passing], wanted: Passing, reach: int) -> Passing | None:
    """Return the passing of the same function and thread that is nearest in time; None: none."""
    alike = [p for p in passings if _what(p) == _what(wanted) and p.context == wanted.context]
    found = min(alike, key=lambda passing: abs(passing.time - wanted.time), default=None)
    return found if found and abs(found.time - wanted.time) <= reach else None


def _what(passing: Passing) -> tuple[str, bool]:
    return passing.name, passing.is_return


def _by_context(passings: Iterable[Passing]) -> dict[Context, list[Passing]]:
    found: dict[Context, list[Passing]] = defaultdict(list)
    for passing in passings:
        found[passing.context].append(passing)
    return found
