# SPDX-License-Identifier: Apache-2.0
"""What a device had before an I/O: the list is bounded, and right for any number of neighbours."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from biotrail.converters.analysis.slow.surroundings import MOST_BEFORE, Before, Neighbour
from biotrail.converters.events.tables import NEVER, Bios, Tasks

QUEUE, END, FOREVER = 1_000_000, 9_000_000, np.iinfo(np.int64).max


def bios(count: int, **columns: Any) -> Bios:
    """Bios of 4 KiB by one task, numbered from 0."""
    given = {"number": np.arange(count), "bytes": np.full(count, 4096), **columns}
    return Bios(**{f.name: given.get(f.name, np.zeros(count, np.int64)) for f in fields(Bios)})


def neighbours(
    table: Bios, end: Any, parts: int = 1, mates: frozenset[int] = frozenset()
) -> Before:
    found = Before(QUEUE, END, mates)
    tasks = Tasks(np.zeros(1), np.zeros(1), np.array(["fio"], dtype=object))
    for rows in np.array_split(np.arange(len(table)), parts):
        codes, every = np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
        found.add(table.take(rows), end[rows], every, ["write"], codes, tasks)
    return found


def expected(table: Bios, end: Any, mates: frozenset[int]) -> list[tuple[int, int]]:
    """(least number, I/Os) of those that were beside it the longest, by a look at each."""
    requests: dict[tuple[int, int], list[int]] = {}
    rows = zip(table.number.tolist(), table.issue.tolist(), end.tolist(), strict=True)
    for number, issue, over in rows:
        if number not in mates:
            requests.setdefault((issue, over), []).append(number)
    ranked = sorted(
        requests.items(), key=lambda of: (max(of[0][0], QUEUE) - min(of[0][1], END), of[1][0])
    )
    return [(numbers[0], len(numbers)) for _, numbers in ranked[:MOST_BEFORE]]


@pytest.mark.parametrize("count", [5, 300, 30_000])
@pytest.mark.parametrize("parts", [1, 7])
def test_those_longest_beside_it_are_kept(count: int, parts: int) -> None:
    # GIVEN bios of many requests, some of several bios, some mates of the I/O
    draw = np.random.default_rng(count)
    issue = np.sort(draw.integers(0, END - 1, count) // 50 * 50)
    issue[1::3] = issue[0::3][: len(issue[1::3])]
    end = issue + draw.integers(1, 3, count) * 700_000 + QUEUE
    mates = frozenset(draw.integers(0, count, min(count // 4, 64)).tolist())
    table = bios(count, queue=issue - 5, issue=issue, complete=end)
    # WHEN they are gathered, in one window or in several
    found = neighbours(table, end, parts, mates)
    # THEN those that had the device the longest are kept, a request as one, and all are counted
    kept = found.neighbours()
    assert len(kept) <= MOST_BEFORE
    assert sum(n.ios for n in kept) + found.left_out == count - len(mates)
    if parts == 1:  # bios of one request are told together
        assert {(n.number, n.ios) for n in kept} == set(expected(table, end, mates))
    assert [n.issue_ns for n in kept] == sorted(n.issue_ns or 0 for n in kept)


def test_times_are_since_the_io_was_queued() -> None:
    # GIVEN two bios of one request, one still under way, and one of a device without requests
    end = np.array([QUEUE + 90, QUEUE + 90, FOREVER, QUEUE + 70])
    table = bios(
        4,
        queue=np.array([QUEUE - 40, QUEUE - 30, QUEUE - 20, QUEUE - 10]),
        issue=np.array([QUEUE - 5, QUEUE - 5, QUEUE + 1, NEVER]),
        complete=np.array([QUEUE + 90, QUEUE + 90, NEVER, QUEUE + 70]),
    )
    # WHEN they are gathered THEN each has its times, where these are known
    assert neighbours(table, end).neighbours() == [
        Neighbour(3, "write", 1, 4096, "fio", -10, None, 70, None, None),
        Neighbour(0, "write", 2, 8192, "fio", -40, -5, 90, 35, 95),
        Neighbour(2, "write", 1, 4096, "fio", -20, 1, None, 21, None),
    ]
