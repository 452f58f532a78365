# SPDX-License-Identifier: Apache-2.0
"""Association bugs, seeded on purpose: the rule or function that is broken, and how."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from biotrail.converters.association.identity.association import Findings
from biotrail.converters.association.identity.neighbours import of
from biotrail.converters.association.without_pointers.pending import InFlight, merge_tag_groups
from biotrail.converters.events.tables import Stage
from biotrail.recorder.schema.records import Kind
from tests.prove.seeding import Patched, RuleBroken, without

Function = Callable[..., Any]


@dataclass(frozen=True)
class Mutant:
    """One bug, by what it makes of a rule or a function."""

    name: str
    broken: RuleBroken | Patched


def returning(value: Any) -> Callable[[Function], Function]:
    """Return the change that makes a function return this value."""
    return lambda right: lambda *_, **__: value


def holds(predicate: Function) -> Function:
    """Return the change that gives a rule this predicate."""
    return lambda rule: replace(rule, holds=predicate)


def keeping_ranges(pending: Function) -> Callable[[Function], Function]:
    """Return the change of a method (self, event, device): what is in flight keeps its range.

    pending: device → the PendingSet in question.
    """

    def change(right: Function) -> Function:
        def wrong(self: Any, event: Any, device: Any, *arguments: Any) -> None:
            before = {held: (held.sector, held.end) for held in pending(device)}
            right(self, event, device, *arguments)
            for held, (sector, end) in before.items():
                if held in pending(device) and (held.sector, held.end) != (sector, end):
                    pending(device).move(held, sector, end)

        return wrong

    return change


def still_issued(right: Function) -> Function:
    """Return `requeue`, after which the request is among those issued as well."""

    def wrong(self: Any, event: Any, device: Any) -> None:
        before = list(device.issued)
        right(self, event, device)
        for held in before:
            if held not in device.issued:
                device.issued.add(held)

    return wrong


def never_ambiguous(right: Function) -> Function:
    """Return `Finding.choose`, which marks none of several candidates."""

    def wrong(self: Any, event: Any, candidates: list[InFlight]) -> InFlight | None:
        if len(candidates) > 1:
            merge_tag_groups(candidates)
            if event.sector == event.end and not self.is_flush_machinery(event):
                self.pairing.share(candidates)
        found: InFlight | None = right(self, event, candidates[:1])
        return found

    return wrong


def without_fua(right: Function) -> Function:
    """Return `issue`, which takes only PREFLUSH for a flush sequence."""

    def wrong(self: Any, event: Any, device: Any) -> None:
        right(self, event, device)
        for held in device.issued:
            if held.identity == event.request:
                held.sequence = bool(held.flags & self._find.preflush)

    return wrong


def flushing_all(right: Function) -> Function:
    """Return `_end_of_flush`, for which every flush was issued after all that waits."""

    def wrong(self: Any, event: Any, device: Any) -> None:
        issued, device.flush_issued = device.flush_issued, 1 << 62
        right(self, event, device)
        device.flush_issued = issued

    return wrong


def one_sector_more(right: Function) -> Function:
    """Return `PendingSet.within`, to which what ends one sector behind lies within."""

    def wrong(self: Any, sector: int, end: int, op: int) -> list[InFlight]:
        return [held for held in right(self, sector, end + 8, op) if held.sector < end]

    return wrong


def never_superseded(right: Function) -> Function:
    """Return `build`, whose generations are never followed by another."""

    def wrong(*arguments: Any) -> Any:
        found = right(*arguments)
        return replace(found, again=np.full(len(found), -1, dtype=np.int64))

    return wrong


IN_REQUEST = of(Kind.START, Kind.M, Kind.F, Kind.I, Kind.RQ_MERGE, Kind.D, Kind.C)
IDENTITY, COMPLETION, RANGES, WITHOUT = (
    f"association.{room}" for room in ("identity", "completion", "ranges", "without_pointers")
)

MUTANTS = (
    # By identity: where a pointer's generations begin.
    Mutant(
        "a request's generation ends at C alone, not at s",
        RuleBroken("requests", ("started",), lambda rule: replace(rule, after=of(Kind.C))),
    ),
    Mutant(
        "a request that was issued, then issued elsewhere, is still the same",
        RuleBroken("requests", ("issued-other-sector",)),
    ),
    Mutant(
        "an absorbed request's address is not free at once",
        RuleBroken("requests", ("absorbed",)),
    ),
    Mutant(
        "every C after a C is the same request's",
        RuleBroken("completed", ("*",), keeps=("no-completion-yet",)),
    ),
    Mutant(
        "a partial completion is the end of the request",
        RuleBroken(
            "completed",
            ("completed-in-full",),
            holds(lambda rows: ~rows.empty & (rows.begun >= 0)),
        ),
    ),
    Mutant(
        "the C of no bytes of a flush sequence is another request's",
        RuleBroken("completed", ("second-empty-completion",), holds(lambda rows: rows.empty)),
    ),
    Mutant(
        "a zone append's C is another request's, for it has another sector",
        RuleBroken("requests", ("issued-other-sector",), without("zone-append")),
    ),
    Mutant(
        "a bio's generation ends at its request's C alone, not at Q",
        RuleBroken("bios", ("queued",), lambda rule: replace(rule, after=IN_REQUEST)),
    ),
    Mutant(
        "a bio stays with the request that was absorbed",
        RuleBroken("bios", ("other-request",), without("absorbed")),
    ),
    # By identity: who belongs to whom.
    Mutant(
        "X: front and parent are taken for each other",
        Patched(
            f"{IDENTITY}.association:split_links",
            lambda right: lambda bios: right(bios)[::-1],
        ),
    ),
    Mutant(
        "dm's X for the rest is read as one for the front",
        Patched(
            f"{IDENTITY}.bio_generations:_rest_splits",
            lambda right: lambda events: np.zeros(len(events), dtype=np.bool_),
        ),
    ),
    Mutant(
        "m: the absorbed request's bios stay with it",
        Patched(
            f"{IDENTITY}.absorptions:absorptions",
            lambda right: lambda a: replace(right(a), request=None),
        ),
    ),
    Mutant(
        "m: of a chain of merges, only the first is followed",
        Patched(
            f"{IDENTITY}.absorptions:last_absorbers",
            lambda right: lambda absorbed_by, merges: absorbed_by,
        ),
    ),
    Mutant(
        "a bio that the whole chain leaves out stays with the request",
        Patched(f"{IDENTITY}.joins:exclude_by_chains", returning(Findings())),
    ),
    Mutant(
        "the chain's order is not that of the bytes",
        Patched(
            f"{COMPLETION}.partial_completion:_InOrder._chain_order",
            lambda right: lambda self, named, here: right(self, named, here)[::-1],
        ),
    ),
    Mutant(
        "bytes are counted since the first issue, not since the last",
        Patched(
            f"{COMPLETION}.completion:_done_since",
            lambda right: lambda r, size, issue: right(r, size, r.first(Kind.D)),
        ),
    ),
    Mutant(
        "a flush sequence ends with its data",
        RuleBroken("request ends", ("bytes-completed",), without("flush-sequence")),
    ),
    Mutant(
        "a split bio ends with its first piece",
        Patched(
            f"{COMPLETION}.families:_order_of_ends",
            lambda right: lambda *arguments: right(*arguments)[::-1],
        ),
    ),
    Mutant(
        "a remap's device is not looked at",
        RuleBroken("resubmissions", ("from-its-device", "begins-inside")),
    ),
    Mutant(
        "an upper bio's operation is not looked at",
        RuleBroken("upper bios", ("same-operation",)),
    ),
    Mutant(
        "a loop's lower bio: the page alone tells, not when",
        RuleBroken("loops", ("issued-before", "not-ended")),
    ),
    Mutant(
        "of several candidates, by identity, none is ambiguous",
        Patched(
            f"{RANGES}.queries:only_candidates",
            lambda right: (
                lambda candidates, certainty: right(
                    {bio: ids[:1] for bio, ids in candidates.items()}, certainty
                )
            ),
        ),
    ),
    Mutant(
        "who covers a range: one sector too few is enough",
        Patched(
            f"{RANGES}.intervals:PendingRanges.covering",
            lambda right: lambda self, sector, end: right(self, sector, end - 8),
        ),
    ),
    Mutant(
        "what was in flight while records were lost is not marked",
        Patched("events.loss:mark_lost", returning(None)),
    ),
    Mutant(
        "an address that lives again does not close what it was",
        Patched(f"{IDENTITY}.generations:build", never_superseded),
    ),
    Mutant(
        "what lives again is forgotten by the next window",
        Patched(
            f"{IDENTITY}.address_reuse:ReusedGenerations.superseding",
            lambda right: lambda self, events, generations: generations,
        ),
    ),
    Mutant(
        "R to D counts as device time",
        Patched(
            "lifecycles.stages:_parts_between_requeues",
            lambda right: lambda a, request, start, end: [(int(Stage.D2C), start, end)],
        ),
    ),
    # By intervals.
    Mutant(
        "of several candidates, by intervals, none is ambiguous",
        Patched(f"{WITHOUT}.finding:Finding.choose", never_ambiguous),
    ),
    Mutant(
        "front merges are looked for behind",
        Patched(
            f"{WITHOUT}.requests:RequestRules.front_merge",
            lambda right: lambda self, event, device: self.back_merge(event, device),
        ),
    ),
    Mutant(
        "a merge does not make the request larger",
        Patched(
            f"{WITHOUT}.requests:RequestRules._merge",
            keeping_ranges(lambda device: device.allocated),
        ),
    ),
    Mutant(
        "an issue of unknown allocation takes one sector more",
        Patched(f"{WITHOUT}.pending:PendingSet.within", one_sector_more),
    ),
    Mutant(
        "a requeued request stays issued",
        Patched(f"{WITHOUT}.requests:RequestRules.requeue", still_issued),
    ),
    Mutant(
        "a partial completion leaves the request where it was",
        Patched(f"{WITHOUT}.ends:EndRules.complete", keeping_ranges(lambda device: device.issued)),
    ),
    Mutant(
        "FUA of a device without it is not a flush sequence",
        Patched(f"{WITHOUT}.requests:RequestRules.issue", without_fua),
    ),
    Mutant(
        "a flush ends what came after its issue",
        Patched(f"{WITHOUT}.ends:EndRules._end_of_flush", flushing_all),
    ),
    Mutant(
        "a split's parent keeps the front's sectors",
        Patched(f"{WITHOUT}.bios:BioRules.split", keeping_ranges(lambda device: device.waiting)),
    ),
    Mutant(
        "who queued a bio is not looked at",
        Patched(f"{WITHOUT}.finding:same_task", lambda right: lambda event, found: found),
    ),
)
