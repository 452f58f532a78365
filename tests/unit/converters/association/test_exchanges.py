# SPDX-License-Identifier: Apache-2.0
"""Exchanges: between which times each of several I/Os ended that may have swapped events."""

from biotrail.converters.association.without_pointers.doubt import Ends, Member, share


def members(*began: int) -> list[Member]:
    return [Member(began=at) for at in began]


def test_an_end_lies_between_the_first_and_the_last_completion() -> None:
    # GIVEN two I/Os that may have each other's completion
    ends, (a, b) = Ends(), members(0, 5)
    share([a, b])
    # WHEN one has ended / THEN when is open
    ends.add(1, 100, a, last=True)
    assert (ends.bounds.known, ends.bounds.pending) == ({}, {1})
    # WHEN both have / THEN each ended with the first or the last
    ends.add(2, 108, b, last=True)
    assert (ends.bounds.known, ends.bounds.pending) == ({1: (100, 108), 2: (100, 108)}, set())


def test_who_is_shared_with_one_is_shared_with_all() -> None:
    # GIVEN two pairs, of which one of each may then have an event of the other
    ends, (a, b, c, d) = Ends(), members(0, 0, 0, 0)
    share([a, b])
    share([c, d])
    share([b, c])
    # WHEN they end / THEN no end is known before the last, and each may be any
    for number, one in enumerate((a, b, c), 1):
        ends.add(number, 100 + number, one, last=True)
    assert ends.bounds.pending == {1, 2, 3}
    ends.add(4, 104, d, last=True)
    assert ends.bounds.known == dict.fromkeys((1, 2, 3, 4), (101, 104))


def test_those_that_have_ended_stay_among_the_rest() -> None:
    # GIVEN two pairs, one of each ended / WHEN the others then share an event, and end
    for order in (1, -1):
        ends, (a, b, c, d) = Ends(), members(0, 0, 0, 0)
        share([a, b])
        share([c, d])
        ends.add(1, 101, a, last=True)
        ends.add(2, 102, c, last=True)
        share([b, d][::order])
        ends.add(3, 103, b, last=True)
        ends.add(4, 104, d, last=True)
        # THEN those that had ended may have done so as late as the last
        assert ends.bounds.known == {1: (101, 104), 2: (102, 104), 3: (101, 104), 4: (102, 104)}


def test_what_is_open_is_open_for_all() -> None:
    # GIVEN a choice that decides more than whose end is whose, and one that shares a member of it
    for order in (1, -1):
        ends, (a, b, c, d, e) = Ends(), members(0, 0, 0, 0, 0)
        share([a, b], open_=True)
        share([c, d, e])
        share([b, c][::order])
        # WHEN all have ended / THEN no end is bounded
        for number, one in enumerate((a, b, c, d, e), 1):
            ends.add(number, 100, one, last=True)
        assert (ends.bounds.known, ends.bounds.pending) == ({}, set())


def test_completions_before_it_could_be_meant_are_not_its_own() -> None:
    # GIVEN an I/O that ended while two others shared their completions
    ends, (a, b, c) = Ends(), members(0, 0, 50)
    share([a, b])
    ends.add(1, 100, a, last=True)
    # WHEN a third shares the next completion with the one that is left
    share([b, c])
    ends.add(2, 104, b, last=True)
    ends.add(3, 105, c, last=True)
    # THEN it did not end with the first; the first may have ended with any
    assert ends.bounds.known == {1: (100, 105), 2: (100, 105), 3: (104, 105)}


def test_a_request_stands_for_its_bio() -> None:
    # GIVEN two bios, of which either may be in a request
    ends, (b1, b2, r1, r2) = Ends(), members(0, 1, 10, 50)
    share([b1, b2])
    r1.serve(b1)
    # WHEN it ends before the other bio has one / THEN its end may be the other's, and so later
    ends.add(1, 100, r1, last=True)
    assert ends.bounds.pending == {1}
    r2.serve(b2)
    ends.add(2, 101, r2, last=True)
    assert ends.bounds.known == {1: (100, 101), 2: (100, 101)}
    assert (r1.began, r2.began) == (0, 1)


def test_nobody_waits_longer_than_a_tenth() -> None:
    # GIVEN two I/Os of which one has ended
    ends, (a, b) = Ends(), members(0, 0)
    share([a, b])
    ends.add(1, 1000, a, last=True)
    # WHEN a tenth of its latency has passed / THEN its end is given up
    ends.pass_time(1100)
    assert ends.bounds.pending == {1}
    ends.pass_time(1101)
    assert ends.bounds.pending == set()
    ends.add(2, 1200, b, last=True)
    # THEN so is the other's, which may be either completion
    assert (ends.bounds.known, ends.bounds.pending) == ({}, set())


def test_a_completion_that_is_missing_opens_all() -> None:
    # GIVEN three I/Os / WHEN one is known to have ended without a completion
    ends, (a, b, c) = Ends(), members(0, 0, 0)
    share([a, b, c])
    ends.add(1, 100, a, last=True)
    ends.lose(b)
    ends.add(2, 101, c, last=True)
    # THEN no end is bounded
    assert (ends.bounds.known, ends.bounds.pending) == ({}, set())


def test_what_is_alone_has_no_bounds() -> None:
    # GIVEN an I/O that nobody can be taken for / WHEN it ends / THEN there is nothing to say
    ends, (a,) = Ends(), members(0)
    ends.add(1, 100, a, last=True)
    assert (ends.bounds.known, ends.bounds.pending) == ({}, set())
