# SPDX-License-Identifier: Apache-2.0
"""Chooses the variant of a declared pair that this kernel has, and compiles its expressions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.sites.declarations import Event, Pair, Variant
from biotrail.recorder.sites.expressions import NO_VALUE, Condition, Scope, Value, sides

TYPED, FORMAT = "typed", "format"
"""Ways to attach to a tracepoint, the cheaper first: by its arguments' types, or its format."""
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
    by: Value
    device: Value
    process: Value
    conditions: tuple[Condition, ...]
    choosing: int


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
    by: str
    device: str

    @property
    def by_value(self) -> Value:
        """The value of --by, from the side that has it; NO_VALUE: there is none."""
        begin = self.begins[0].by
        return begin if begin.source else self.end.by


def resolve(pair: Pair, scopes: Scopes) -> ResolvedPair:
    """Return the first variant whose tracepoints and fields exist. Raises SiteError: none does."""
    reasons: list[str] = []
    for variant in pair.variants:
        for way in (variant.way,) if variant.way else (TYPED, FORMAT):
            try:
                return _resolved(pair, variant, way, scopes)
            except SiteError as error:
                reasons.append(f"{way}: {error}")
    # Two ways fail for one reason where the tracepoint is missing.
    said = dict.fromkeys(reason.partition(": ")[2] for reason in reasons)
    joined = next(iter(said)) if len(said) == 1 else "; ".join(dict.fromkeys(reasons))
    raise SiteError(f"pair {pair.name}: {joined}")


def _resolved(pair: Pair, variant: Variant, way: str, scopes: Scopes) -> ResolvedPair:
    *begins, end = (_scope(event, way, scopes) for event in (*variant.begins, variant.end))
    # An alternative of `by` may have a label: "LABEL=EXPRESSION".
    parts = [text.rpartition("=") for text in variant.by]
    labels = {expression.strip(): label.strip() for label, _, expression in parts}
    by, device = _first(labels, begins, end), _first(variant.device, begins, end)

    def side(
        scope: Scope, half: int, event: Event, by: str, conditions: Iterable[Condition]
    ) -> ResolvedSide:
        own = tuple(scope.condition(text) for text in event.where)
        process = event.process or variant.process
        keys = tuple(scope.value(sides(text)[half]) for text in event.key or variant.key)
        return ResolvedSide(
            event.event,
            way,
            keys,
            scope.value(by) if by and _compiles(scope.value, by) else NO_VALUE,
            scope.value(device) if device and _compiles(scope.value, device) else NO_VALUE,
            scope.value(sides(process)[half]) if process else NO_VALUE,
            (*own, *conditions),
            len(own),
        )

    made = []
    for scope, event in zip(begins, variant.begins, strict=True):
        texts = [text for text in variant.where if _compiles(scope.condition, text)]
        made.append(side(scope, 0, event, by, map(scope.condition, texts)))
    at_end = "" if by and _compiles(begins[0].value, by) else by
    rest = [text for text in variant.where if not _compiles(begins[0].condition, text)]
    # The device on both sides: an end of another device has no begin to look for.
    ended = side(end, 1, variant.end, at_end, map(end.condition, rest))
    for one in made:
        for begin_key, end_key in zip(one.keys, ended.keys, strict=True):
            if (begin_key.format == "text") != (end_key.format == "text"):
                raise SiteError(
                    f"the key {begin_key.text} of {one.event} is {begin_key.type}, that of "
                    f"{ended.event}, {end_key.text}, is {end_key.type}: they are never equal"
                )

    def shown(value: Value) -> Value:
        """Return `by`, or a key that is the same, with the pair's names and form."""
        if value is NO_VALUE or value.text != by:
            return value
        return replace(value, format=pair.show or value.format, names={**value.names, **pair.names})

    *made, ended = (
        replace(one, keys=tuple(map(shown, one.keys)), by=shown(one.by)) for one in (*made, ended)
    )
    return ResolvedPair(pair, variant, way, tuple(made), ended, labels.get(by, "") or by, device)


def _scope(event: Event, way: str, scopes: Scopes) -> Scope:
    found = scopes(event.event)
    if way not in found:
        lacking = "types (BTF)" if way == TYPED else "format"
        raise SiteError(f"tracepoint {event.event} has no {lacking} on this kernel")
    return found[way]


def _compiles(compiled: Callable[[str], object], text: str) -> bool:
    try:
        compiled(text)
    except SiteError:
        return False
    return True


def _first(texts: Iterable[str], begins: list[Scope], end: Scope) -> str:
    """Return the first alternative that every begin or the end knows; "": none is declared."""
    text = ""
    for text in texts:
        if all(_compiles(scope.value, text) for scope in begins) or _compiles(end.value, text):
            return text
    if text:
        begins[0].value(text)  # raises: says what there is instead
    return ""
