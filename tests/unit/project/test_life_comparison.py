# SPDX-License-Identifier: Apache-2.0
"""A followed object's life held against what the kernel's own tracer saw."""

from collections.abc import Sequence
from dataclasses import replace

from tests.support.life_comparison import compare
from tests.support.traced_calls import Passing

REACH = 500_000
REQUEST, OTHER = 0xFFFF888000001000, 0xFFFF888000002000


def entry(time: int, name: str, tid: int = 7, pointer: int = REQUEST) -> Passing:
    return Passing(time * 1000, 0, tid, name, pointer=pointer)


def back(time: int, name: str, tid: int = 7) -> Passing:
    return replace(entry(time, name, tid), is_return=True)


LIFE = [
    entry(1000, "init"),
    back(1010, "init"),
    entry(1020, "insert"),
    entry(1030, "issue"),
    back(1040, "issue"),
    entry(3000, "complete", tid=0),
    entry(3010, "free", tid=0),
]


def later(life: Sequence[Passing], micros: int = 20) -> list[Passing]:
    """The same, as the recording's probe sees it."""
    return [replace(passing, time=passing.time + micros * 1000) for passing in life]


def test_equal_lives_have_no_difference() -> None:
    # GIVEN a life of which the tracer saw the same, besides another pointer
    truth = [*LIFE, entry(1025, "insert", pointer=OTHER)]
    # WHEN the two are compared
    found = compare(truth, later(LIFE), REACH)
    # THEN nothing differs, and the times are as far apart as they are
    assert not found
    assert (found.entries, found.returns, found.apart) == (5, 2, 20_000)


def test_other_lives_of_the_address_are_left_out() -> None:
    # GIVEN earlier and later lives of the same address, close by
    truth = [entry(800, "free", tid=0), *LIFE, entry(3100, "init"), back(3110, "init")]
    # WHEN the middle one is compared THEN it is whole
    assert not compare(truth, later(LIFE), REACH)


def test_a_function_that_was_not_recorded_is_missing() -> None:
    # GIVEN a recording without one of the functions
    life = [hit for hit in LIFE if hit.name != "issue"]
    # WHEN it is compared THEN that function is named, its entry and its return
    assert [p.name for p in compare(LIFE, life, REACH).missing] == ["issue", "issue"]
    # AND a function that the recording says it could not attach is not missing
    assert not compare(LIFE, life, REACH, unseen={"issue"})


def test_a_function_that_was_not_called_is_extra() -> None:
    # GIVEN a recording with a function that the tracer did not see
    life = [*LIFE[:3], entry(1025, "merge"), *LIFE[3:]]
    # WHEN it is compared THEN that function is named
    assert [p.name for p in compare(LIFE, life, REACH).extra] == ["merge"]


def test_another_order_is_a_difference() -> None:
    # GIVEN a recording that has two functions of a thread the other way round
    life = [*LIFE[:2], entry(1021, "issue"), entry(1031, "insert"), *LIFE[4:]]
    # WHEN it is compared THEN the order differs, and nothing else
    found = compare(LIFE, life, REACH)
    assert len(found.order) == 1
    assert not found.missing
    assert not found.extra


def test_an_interrupt_between_two_probes_explains_an_order() -> None:
    # GIVEN a completion in an interrupt between the two probes of a thread's function
    interrupt = replace(entry(1035, "complete"), in_interrupt=True)
    truth = [*LIFE[:4], interrupt, *LIFE[4:]]
    life = [*LIFE[:3], entry(1033, "complete"), entry(1034, "issue"), *LIFE[4:]]
    # WHEN they are compared THEN nothing differs
    assert not compare(truth, life, REACH)


def test_times_that_are_far_apart_are_not_of_one_call() -> None:
    # GIVEN a hit a second later than the tracer saw that function
    life = [*LIFE[:5], entry(1_003_000, "complete", tid=0), entry(1_003_010, "free", tid=0)]
    # WHEN it is compared THEN neither has the other's
    found = compare(LIFE, life, REACH)
    assert [p.name for p in found.missing] == ["complete", "free"]
    assert [p.name for p in found.extra] == ["complete", "free"]


def test_a_life_without_a_death_goes_on_to_the_end() -> None:
    # GIVEN a life whose last functions were not recorded, nor its death
    life = LIFE[:5]
    # WHEN it is compared THEN what the tracer saw of the address later is missing
    found = compare(LIFE, life, REACH, died=False)
    assert [p.name for p in found.missing] == ["complete", "free"]
    assert not compare(LIFE, LIFE, REACH, died=False)


def test_what_returns_after_the_death_is_no_part_of_the_life() -> None:
    # GIVEN functions that return after the object was freed, recorded or not
    returns = [back(3020, "free", tid=0), back(3030, "complete", tid=0)]
    # WHEN they are compared THEN neither is a difference
    assert not compare([*LIFE, *returns], LIFE, REACH)
    assert not compare([*LIFE, *returns], [*LIFE, *returns], REACH)
    assert not compare([*LIFE, *returns], [*LIFE, returns[1]], REACH)
