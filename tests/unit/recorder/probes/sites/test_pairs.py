# SPDX-License-Identifier: Apache-2.0
"""Pairs before anything is loaded: what is refused, the header's facts, the programs' constants."""

from dataclasses import replace

import pytest

from biotrail.recorder.probes.sites.pair_facts import pair_facts, shown
from biotrail.recorder.probes.sites.pairs import PairConfig, _check, resolve_all, section
from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.schema.limits import MAX_CONDITIONS, MAX_PAIRS, Operator
from biotrail.recorder.sites.declarations import Event, Pair, Variant
from biotrail.recorder.sites.expressions import OPERATORS, Source, Value
from biotrail.recorder.sites.resolving import resolve
from tests.support.named_scopes import scopes_of
from tests.support.pair_recording import pair

FIELDS = {
    "a:begin": {"typed": ["rq", "left"], "format": ["dev", "sector"]},
    "a:end": {"typed": ["rq", "error"], "format": ["dev", "sector"]},
    "a:other": {"typed": ["rq", "left"]},
}
SCOPES = scopes_of(FIELDS)


def resolved(*keys: str, **variant):
    return resolve(pair("a:begin", "a:end", *keys, **variant), SCOPES)


class Known:
    """Tracepoints of which only names are known."""

    scopes = staticmethod(SCOPES)


def test_the_header_says_what_a_pair_is() -> None:
    # GIVEN a pair whose two events name the key differently, with a condition and --by
    found = resolved("rq", "left|error", by=("left",), where=("left == 3",))
    # WHEN its facts are asked for THEN they are as the user wrote them
    facts = pair_facts(found)
    assert (facts["begin"], facts["end"], facts["way"]) == ("a:begin", "a:end", "typed")
    assert facts["keys"] == ["rq", "left|error"]
    assert (facts["by"], facts["where"]) == ("left", ["left == 3"])
    assert set(facts["formats"]) == {"key0", "key1", "by"}


def test_constants_are_those_of_the_sides() -> None:
    # GIVEN a pair of two begins, and --by at the begin
    variant = Variant((Event("a:begin"), Event("a:other")), Event("a:end"), ("rq",), by=("left",))
    # WHEN the programs' constants are made of it
    made = section([resolve(Pair("two", "", (variant,)), SCOPES)]).pairs[0]
    # THEN each begin takes key and --by, the end only the key
    for begin in made.begins[:2]:
        assert (begin.key[0].source, begin.key[0].at[0]) == (Source.ARGUMENT, 0)
        assert (begin.by.source, begin.by.at[0]) == (Source.ARGUMENT, 1)
    assert made.begins[2].key[0].source == Source.NONE
    assert (made.end.key[0].source, made.end.by.source) == (Source.ARGUMENT, Source.NONE)


def test_operators_have_the_programs_numbers() -> None:
    # GIVEN the operators of conditions THEN their order is that of the programs' numbers
    names = {"==": "EQ", "!=": "NE", "<": "LT", "<=": "LE", ">": "GT", ">=": "GE", "&": "AND"}
    assert [Operator[names[text]] for text in OPERATORS] == list(range(len(OPERATORS)))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (resolved("rq", where=("left == 1",) * (MAX_CONDITIONS + 1)), "at most 4 can be"),
        (resolved("rq->a->b->c->d->e->f"), "follows 6 pointers, at most 5"),
    ],
)
def test_what_programs_have_no_room_for_is_refused(found, said: str) -> None:
    # GIVEN a pair that is too large WHEN it is checked THEN the message says what can be
    with pytest.raises(SiteError, match=said):
        _check(found, needs_device=False)


def test_devices_need_a_field() -> None:
    # GIVEN chosen devices WHEN a pair does not say which field is one THEN it is refused
    with pytest.raises(SiteError, match="--device-field"):
        _check(resolved("rq"), needs_device=True)
    _check(resolved("sector", device=("dev",)), needs_device=True)


def test_too_many_pairs_are_refused() -> None:
    # GIVEN more pairs than programs have room for WHEN they are resolved THEN it is said
    many = [pair("a:begin", "a:end", "rq")] * (MAX_PAIRS + 1)
    with pytest.raises(SiteError, match="at most 8"):
        resolve_all(PairConfig(many), Known())


@pytest.mark.parametrize(
    ("value", "number", "text"),
    [
        (Value(Source.TID, "x"), 12, "12"),
        (Value(Source.TID, "x", format="signed"), (1 << 64) - 2, "-2"),
        (Value(Source.TID, "x", format="hex"), 255, "0xff"),
        (Value(Source.TID, "x", format="dev"), 9999 << 20 | 3, "9999:3"),
        (Value(Source.TID, "x", format="text"), int.from_bytes(b"abc", "little"), "abc"),
        (Value(Source.TID, "x", names={4: "BLOCK"}), 4, "BLOCK (4)"),
        (Value(Source.TID, "x", format="symbol"), 7, "seven"),
        (Value(Source.TID, "x", format="symbol"), 8, "0x8"),
    ],
)
def test_values_are_shown_in_their_form(value: Value, number: int, text: str) -> None:
    # GIVEN a value's form WHEN one of its numbers is shown THEN it is in that form
    assert shown(value, number, {7: "seven"}) == text


def test_a_changed_copy_is_another_pair() -> None:
    # GIVEN a pair WHEN its way is forced THEN the other way's names are those that count
    one = pair("a:begin", "a:end", "sector")
    forced = replace(one, variants=(replace(one.variants[0], way="typed"),))
    with pytest.raises(SiteError, match="no field sector; there is rq, left"):
        resolve(forced, SCOPES)
