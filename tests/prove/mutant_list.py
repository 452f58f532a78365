# SPDX-License-Identifier: Apache-2.0
"""Bugs, seeded on purpose: the rules of the machine that are switched off, by `TABLE/RULE`."""

from dataclasses import dataclass

from biotrail.converters.match.rules import TABLES


@dataclass(frozen=True)
class Mutant:
    """One bug, by the rules that it lacks."""

    name: str
    rules: tuple[str, ...]


def _all_of(table: str, *, but: str) -> tuple[str, ...]:
    return tuple(f"{table}/{rule.name}" for rule in TABLES[table] if rule.name != but)


MUTANTS = (
    # By identity: where a pointer's generations begin.
    Mutant("a request's generation ends at C alone, not at s", ("requests/started",)),
    Mutant(
        "a request that was issued, then issued elsewhere, is still the same",
        ("requests/issued-other-sector",),
    ),
    Mutant("an absorbed request's address is not free at once", ("requests/absorbed",)),
    Mutant("what has ended lives on with the next D, I or M", ("requests/ended",)),
    Mutant("bios join a request that is with the driver", ("requests/joined-after-issue",)),
    Mutant(
        "every C after a C is the same request's", _all_of("completed", but="no-completion-yet")
    ),
    Mutant("a bio's generation ends at its request's C alone, not at Q", ("bios/queued",)),
    Mutant("a bio that X split off is what had its address", ("bios/split-off",)),
    # By identity: who belongs to whom.
    Mutant(
        "a remap's device is not looked at",
        ("resubmissions/from-its-device", "resubmissions/begins-inside"),
    ),
    Mutant("an upper bio's operation is not looked at", ("upper bios/same-operation",)),
    Mutant(
        "a loop's lower bio: the page alone tells, not when",
        ("loops/in-flight", "loops/issued-before", "loops/not-ended"),
    ),
    # By identity: ends, and what is sure.
    Mutant("a request never ends by its bytes", ("request ends/bytes-completed",)),
    Mutant("a flush sequence never ends", ("request ends/flush-sequence-ended",)),
    Mutant(
        "an address that lives again does not close what it was",
        _all_of("lost completions", but=""),
    ),
    Mutant("what is not in the log is taken for known", ("certainty of bios/outside-the-log",)),
    Mutant("a lost completion is not marked", ("certainty of bios/completion-lost",)),
    # By intervals.
    Mutant("who queued a bio is not looked at", ("finder/own-thread",)),
    Mutant("a bio that an A sent is looked for anew", ("finder/sent-by-remap",)),
    Mutant("a flush ends what came after its issue", ("finder/flush-ends-those-before",)),
    Mutant("a tag that is used again tells nothing", ("finder/tags-reused",)),
    Mutant("a c of no bytes is of no bio", ("finder/ends-without-size",)),
    Mutant(
        "what a guess may have changed is not marked", ("finder/guesses-blur", "finder/parts-blur")
    ),
    Mutant(
        "discards join without a doubt",
        ("finder/discards-that-grew", "finder/discards-from-anywhere"),
    ),
    Mutant("what is held cannot fail", ("finder/fails-before-issue",)),
    Mutant("the thread's own plug is not looked at first", ("finder/own-plug",)),
    Mutant("of several candidates the first is sure", ("finder/several-are-ambiguous",)),
    Mutant("a request's range does not grow by merges", ("finder/merges-widen",)),
    Mutant("FUA is the device's business alone", ("finder/fua-is-a-sequence",)),
)
