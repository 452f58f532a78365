# SPDX-License-Identifier: Apache-2.0
"""Chooses the variant of a declared pair that this kernel has, and compiles its expressions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.sites.declarations import Event, Pair, Variant
from biotrail.recorder.sites.expressions import NO_VALUE, Condition, Scope, Value, sides

WAYS = ("typed", "format")
"""Ways to attach to a tracepoint, the cheaper first."""
Scopes = Callable[[str], Mapping[str, Scope]]
"""What names mean at a tracepoint ("system:name"), by way. Raises SiteError: there is none."""


@dataclass(frozen=True)
class ResolvedSide:
    """One event of a pair. by, device, process: NO_VALUE: not taken from this side.

    choosing: how many of the conditions, the first, are the event's own, as declared: where one
    does not hold, the tracepoint's event is no event of the pair. Another that does not hold leaves
    the begin out or, at an end, the whole pair.
    """

    event: str
    way: str
    keys: tuple[Value, ...]
    by: Value = NO_VALUE
    device: Value = NO_VALUE
    process: Value = NO_VALUE
    conditions: tuple[Condition, ...] = ()
    choosing: int = 0


@dataclass(frozen=True)
class ResolvedPair:
    """A pair as this kernel can time it. begins: one or more; all are attached by one way.

    by: its label or, without one, its expression; "": none is declared. device: its expression.
    """

    pair: Pair
    variant: Variant
    way: str
    begins: tuple[ResolvedSide, ...]
    end: ResolvedSide
    by: str = ""
    device: str = ""


def resolve(pair: Pair, scopes: Scopes) -> ResolvedPair:
    """Return the first variant of `pair` whose tracepoints and fields exist.

    Raises SiteError with the reason of each variant: none does.
    """
    reasons: list[str] = []
    for variant in pair.variants:
        for way in (variant.way,) if variant.way else WAYS:
            try:
                return _resolved(pair, variant, way, scopes)
            except SiteError as error:
                reasons.append(f"{way}: {error}")
    # Two ways fail for one reason where the tracepoint is missing.
    said = dict.fromkeys(reason.partition(": ")[2] for reason in reasons)
    joined = next(iter(said)) if len(said) == 1 else "; ".join(dict.fromkeys(reasons))
    raise SiteError(f"pair {pair.name}: {joined}")


def _resolved(pair: Pair, variant: Variant, way: str, scopes: Scopes) -> ResolvedPair:
    begins = [_Side(event, variant, 0, way, scopes) for event in variant.begins]
    end = _Side(variant.end, variant, 1, way, scopes)
    # An alternative of `by` may have a label: "LABEL=EXPRESSION".
    parts = [text.rpartition("=") for text in variant.by]
    labels = {expression.strip(): label.strip() for label, _, expression in parts}
    by, device = _first(tuple(labels), begins, end), _first(variant.device, begins, end)
    made = tuple(side.made(by, device, variant.where) for side in begins)
    at_end = "" if by and begins[0].knows(by) else by
    # The device on both sides: an end of another device has no begin to look for.
    ended = end.made(at_end, device, ())
    for text in variant.where:
        if not begins[0].can_test(text):
            ended = replace(ended, conditions=(*ended.conditions, end.scope.condition(text)))
    _check(made, ended)
    shown = [_shown(pair, side, by) for side in (*made, ended)]
    label = labels.get(by, "") or by
    return ResolvedPair(pair, variant, way, tuple(shown[:-1]), shown[-1], label, device)


class _Side:
    """One event of a variant, and what names mean at it."""

    def __init__(self, event: Event, variant: Variant, half: int, way: str, scopes: Scopes) -> None:
        """half: 0 for a begin, 1 for the end. Raises SiteError: no such tracepoint, or way."""
        found = scopes(event.event)
        if way not in found:
            lacking = "types (BTF)" if way == "typed" else "format"
            raise SiteError(f"tracepoint {event.event} has no {lacking} on this kernel")
        self.scope, self._event, self._way = found[way], event, way
        self._keys = [sides(text)[half] for text in event.key or variant.key]
        process = event.process or variant.process
        self._process = sides(process)[half] if process else ""

    def knows(self, text: str) -> bool:
        return _compiles(self.scope.value, text)

    def can_test(self, text: str) -> bool:
        return _compiles(self.scope.condition, text)

    def made(self, by: str, device: str, where: Iterable[str]) -> ResolvedSide:
        """Return the side; expressions that it does not know are left out, but not its key's."""
        own = tuple(self.scope.condition(text) for text in self._event.where)
        common = tuple(self.scope.condition(text) for text in where if self.can_test(text))
        return ResolvedSide(
            self._event.event,
            self._way,
            tuple(self.scope.value(text) for text in self._keys),
            self.scope.value(by) if by and self.knows(by) else NO_VALUE,
            self.scope.value(device) if device and self.knows(device) else NO_VALUE,
            self.scope.value(self._process) if self._process else NO_VALUE,
            own + common,
            len(own),
        )


def _compiles(compiled: Callable[[str], object], text: str) -> bool:
    try:
        compiled(text)
    except SiteError:
        return False
    return True


def _first(texts: tuple[str, ...], begins: list[_Side], end: _Side) -> str:
    """Return the first alternative that every begin or the end knows; "": none is declared."""
    for text in texts:
        if all(side.knows(text) for side in begins) or end.knows(text):
            return text
    if texts:
        begins[0].scope.value(texts[-1])
    return ""


def _shown(pair: Pair, side: ResolvedSide, by: str) -> ResolvedSide:
    """Return the side with the pair's names and form for `by`, and for a key that is the same."""

    def shown(value: Value) -> Value:
        if value is NO_VALUE or value.text != by:
            return value
        return replace(value, format=pair.show or value.format, names={**value.names, **pair.names})

    return replace(side, keys=tuple(shown(key) for key in side.keys), by=shown(side.by))


def _check(begins: tuple[ResolvedSide, ...], end: ResolvedSide) -> None:
    for side in begins:
        for begin, ended in zip(side.keys, end.keys, strict=True):
            if (begin.format == "text") != (ended.format == "text"):
                raise SiteError(
                    f"the key {begin.text} of {side.event} is {begin.type}, that of {end.event}, "
                    f"{ended.text}, is {ended.type}: they are never equal"
                )
