# SPDX-License-Identifier: Apache-2.0
"""Pairs before anything is loaded: what is refused, the header's facts, the programs' constants."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biotrail.recorder.probes.sites.attaching import COOKIE, Template
from biotrail.recorder.probes.sites.pairs import (
    BOUNDS,
    OCTAVES,
    Latencies,
    Tracepoints,
    pair_facts,
    resolve_all,
    section,
    shown,
)
from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.schema.limits import HIST_SLOTS, MAX_CONDITIONS, MAX_PAIRS, Operator
from biotrail.recorder.sites.declarations import FORMAT, Event, Pair, ResolvedPair, Variant, resolve
from biotrail.recorder.sites.expressions import OPERATORS, Source, Value
from tests.support.crafted_kernel import crafted
from tests.support.named_scopes import scopes_of
from tests.support.pair_recording import pair

FIELDS = {
    "a:begin": {"typed": ["rq", "left"], "format": ["dev", "sector"]},
    "a:end": {"typed": ["rq", "error"], "format": ["dev", "sector"]},
    "a:other": {"typed": ["rq", "left"]},
}
SCOPES = scopes_of(FIELDS)


def own(*keys: str, **variant: tuple[str, ...]) -> Pair:
    return pair("a:begin", "a:end", *keys, **variant)


class Known:
    """Tracepoints of which only names are known."""

    scopes = staticmethod(SCOPES)


def test_header_constants_and_operators_are_those_of_the_programs() -> None:
    # GIVEN a pair whose two events name the key differently, with a condition and --by
    found = resolve(own("rq", "left|error", by=("left",), where=("left == 3",)), SCOPES)
    # WHEN its facts are asked for THEN they are as the user wrote them
    facts = pair_facts(found)
    assert (facts["begin"], facts["end"], facts["way"]) == ("a:begin", "a:end", "typed")
    assert facts["keys"] == ["rq", "left|error"]
    assert (facts["by"], facts["where"]) == ("left", ["left == 3"])
    assert set(facts["formats"]) == {"key0", "key1", "by"}
    # GIVEN a pair of two begins, and --by at the begin
    variant = Variant((Event("a:begin"), Event("a:other")), Event("a:end"), ("rq",), by=("left",))
    # WHEN the programs' constants are made of it
    made = section([resolve(Pair("two", "", (variant,)), SCOPES)])[0]
    # THEN each begin takes key and --by, the end only the key
    for begin in made.begins[:2]:
        assert (begin.key[0].source, begin.key[0].at[0]) == (Source.ARGUMENT, 0)
        assert (begin.by.source, begin.by.at[0]) == (Source.ARGUMENT, 1)
    assert made.begins[2].key[0].source == Source.NONE
    assert (made.end.key[0].source, made.end.by.source) == (Source.ARGUMENT, Source.NONE)
    # GIVEN the operators of conditions THEN their order is that of the programs' numbers
    names = {"==": "EQ", "!=": "NE", "<": "LT", "<=": "LE", ">": "GT", ">=": "GE", "&": "AND"}
    assert [Operator[names[text]] for text in OPERATORS] == list(range(len(OPERATORS)))


def asked(*pairs: Pair, needs_device: bool = False) -> list[ResolvedPair]:
    return resolve_all(pairs, Known(), needs_device=needs_device)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([own("rq", where=("left == 1",) * (MAX_CONDITIONS + 1))], "at most 4 can be"),
        ([own("rq")] * (MAX_PAIRS + 1), "at most 8"),
    ],
)
def test_what_programs_have_no_room_for_is_refused(pairs: list[Pair], said: str) -> None:
    # GIVEN pairs that are too large, or too many WHEN resolved THEN the message says what can be
    with pytest.raises(SiteError, match=said):
        asked(*pairs)


def test_what_a_pair_lacks_is_refused() -> None:
    # GIVEN chosen devices WHEN a pair does not say which field is one THEN it is refused
    with pytest.raises(SiteError, match="--device-field"):
        asked(own("rq"), needs_device=True)
    assert asked(own("sector", device=("dev",)), needs_device=True)
    # GIVEN a pair WHEN its way is forced THEN the other way's names are those that count
    one = own("sector")
    forced = replace(one, variants=(replace(one.variants[0], way="typed"),))
    with pytest.raises(SiteError, match="no field sector; there is rq, left"):
        resolve(forced, SCOPES)


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


# Histograms of latencies, as the programs' slots are defined.

SHARES = (0.5, 0.9, 0.99, 0.999)


def slot_of(ns: int) -> int:
    """bt_slot_of() of bpf/pairs.h."""
    if ns < 32:
        return ns
    octave = ns.bit_length() - 1
    return min((octave - 3) * 16 + (ns >> (octave - 4) & 15), HIST_SLOTS - 1)


def counted(values: list[int]) -> Latencies:
    slots = np.bincount([slot_of(ns) for ns in values], minlength=HIST_SLOTS).astype(np.uint64)
    return Latencies(len(values), sum(values), max(values, default=0), slots)


@given(st.integers(0, (1 << OCTAVES) - 1))
def test_a_latency_lies_in_its_slots_bounds(ns: int) -> None:
    # GIVEN a latency WHEN the program chooses its slot THEN it is within that slot's bounds
    slot = slot_of(ns)
    assert BOUNDS[slot] <= ns < BOUNDS[slot + 1]


def test_slots_lie_side_by_side_and_end_at_an_octave() -> None:
    # GIVEN the bounds THEN they ascend, one for each slot and the end, up to 2^47 ns
    assert len(BOUNDS) == HIST_SLOTS + 1
    assert (np.diff(BOUNDS) > 0).all()
    assert BOUNDS[-1] == 1 << OCTAVES == 1 << 47
    # GIVEN no latency THEN its figures are 0
    assert Latencies().percentiles(SHARES) == [0.0] * 4
    assert Latencies().mean == 0
    # GIVEN latencies at the ends of octaves WHEN they are counted by powers of two
    found = counted([0, 1, 2, 3, 4, 1023, 1024, 2047, 2048]).octaves()
    # THEN 0 and 1 are together, as bcc's log2 histogram has them
    assert {octave: int(count) for octave, count in enumerate(found) if count} == {
        0: 2, 1: 2, 2: 1, 9: 1, 10: 2, 11: 1,
    }  # fmt: skip
    # AND a latency beyond the last slot's end is counted there
    assert {slot_of(ns) for ns in (1 << 47, 1 << 60)} == {HIST_SLOTS - 1}


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=200))
def test_percentiles_are_within_a_slot(values: list[int]) -> None:
    # GIVEN latencies WHEN percentiles are read from their slots
    found = counted(values).percentiles(SHARES)
    # THEN each is within 1/16 of the one at its rank, and none is above the maximum
    ordered = sorted(values)
    for share, value in zip(SHARES, found, strict=True):
        exact = ordered[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)]
        assert abs(value - exact) <= exact / 16 + 1
        assert value <= max(values)


def test_what_came_since_is_a_difference() -> None:
    # GIVEN two readings, of which the second has smaller latencies alone
    before = counted([100, 5000])
    after = before + counted([200, 300])
    # WHEN the second is read since the first
    found = after.since(before)
    # THEN it has those alone; its maximum is at most the end of their highest slot
    assert (found.count, found.sum) == (2, 500)
    assert 300 <= found.max < 320
    # AND a new maximum is exact
    assert (after + counted([70_001])).since(after).max == 70_001


# Clones of a template: its instructions with another constant, or another call.


class FakeObject:
    """A BPF object with one loaded program."""

    def __init__(self, code: bytes) -> None:
        self.code = code

    def instructions(self, name: str) -> bytes:
        return self.code


def immediate(register: int, value: int) -> bytes:
    """BPF_LD_IMM64: two instructions with the halves of a constant."""
    return struct.pack("<BBhI", 0x18, register, 0, value & 0xFFFFFFFF) + struct.pack(
        "<BBhI", 0, 0, 0, value >> 32
    )


def call(number: int, source: int = 0) -> bytes:
    return struct.pack("<BBhi", 0x85, source << 4, 0, number)


EXIT = struct.pack("<BBhi", 0x95, 0, 0, 0)


def template(code: bytes) -> Template:
    return Template.of(FakeObject(code), "hit")  # type: ignore[arg-type]


def test_a_clone_differs_in_its_cookie_alone() -> None:
    # GIVEN a program that loads the cookie twice, and another constant
    code = immediate(1, COOKIE) + immediate(2, 0x1122) + call(14) + immediate(3, COOKIE) + EXIT
    # WHEN it is cloned with a cookie of 64 bits
    clone = template(code).with_cookie(0xFFFFFFFF80000001)
    # THEN both loads have the new constant, and all else is as it was
    changed = immediate(1, 0xFFFFFFFF80000001), immediate(3, 0xFFFFFFFF80000001)
    assert clone == changed[0] + immediate(2, 0x1122) + call(14) + changed[1] + EXIT
    # AND one without a cookie is cloned as it is
    assert template(call(14) + EXIT).with_cookie(7) == call(14) + EXIT
    # GIVEN a program that calls helper 173, helper 14, and a function of its own at distance 173
    code = call(173) + call(14) + call(173, source=1) + EXIT
    # WHEN helper 173 stands for the kernel function 98765
    changed = template(code).calling(173, 98765).code
    # THEN only that call has changed
    assert changed == call(98765, source=2) + call(14) + call(173, source=1) + EXIT


# Tracepoints by name, in a tracefs made of files.

FORMAT_TEXT = """name: {name}
ID: {number}
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:unsigned int vec;\toffset:8;\tsize:4;\tsigned:0;

print fmt: "vec=%u", REC->vec
"""
KNOWN = ("irq/softirq_entry", "irq/softirq_exit", "smmu/fault", "other/fault")


@pytest.fixture
def known(tmp_path: Path) -> Tracepoints:
    for number, name in enumerate(KNOWN):
        directory = tmp_path / "events" / name
        directory.mkdir(parents=True)
        text = FORMAT_TEXT.format(name=directory.name, number=number + 100)
        (directory / "format").write_text(text)
    return Tracepoints(crafted().table, tmp_path)


@pytest.mark.parametrize("text", ["irq:softirq_exit", "softirq_exit", " softirq_exit "])
def test_tracepoints_are_found_by_name(known: Tracepoints, text: str) -> None:
    # GIVEN a tracepoint of a name that is its alone WHEN it is named THEN it is found
    found = known.find(text)
    assert (found.name, found.format.number) == ("irq:softirq_exit", 101)
    # GIVEN two systems with a tracepoint of one name WHEN it is named alone THEN both are named
    with pytest.raises(SiteError, match="other:fault, smmu:fault"):
        known.find("fault")
    assert known.find("smmu:fault").name == "smmu:fault"
    # GIVEN a tracepoint without BTF, as of a module built apart WHEN it is asked what names mean
    scopes = known.scopes("irq:softirq_entry")
    # THEN it is by its format alone
    assert list(scopes) == [FORMAT]
    assert scopes[FORMAT].value("vec").at == (8,)


@pytest.mark.parametrize("text", ["irq:softirq_entri", "softirq_entri", "iqr:softirq_entry"])
def test_an_unknown_one_has_near_names(known: Tracepoints, text: str) -> None:
    # GIVEN a misspelt name WHEN it is looked for THEN the message has what is near
    with pytest.raises(SiteError, match=rf"no tracepoint {text}; near: .*irq:softirq_entry"):
        known.find(text)
