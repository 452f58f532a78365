# SPDX-License-Identifier: Apache-2.0
"""The scenarios of the block layer: with pointers and without, whole and with fewer events."""

from typing import Any

import numpy as np
import pytest

from biotrail.recorder.probes.programs import EVENT_SETS
from tests.scenarios import cases, cases_more, losses, stacks, variants
from tests.scenarios.intervals import OTHERWISE, SAME, Otherwise
from tests.scenarios.tools import (
    STARTS,
    Scenario,
    Tables,
    bio_lines,
    describe,
    events_of,
    run,
    tables_of,
    tidy,
)
from tests.support.captures import Event

# The twenty scenarios of the block layer, each as its events and as its lifecycles.

WHOLE = [*cases.CASES, *cases_more.CASES, *variants.CASES, *stacks.CASES]
CASES = [*WHOLE, *losses.CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.slug)
def test_scenario(case: Scenario) -> None:
    # GIVEN a scenario's events / WHEN its log is read
    found = describe(run(case))
    # THEN its lifecycles are those expected, to the nanosecond
    assert found == tidy(case.then)


# Every scenario again: on kernels with fewer events, with fewer events asked for, in windows.
LATE = cases_more.LATE_ARRIVAL
MINIMAL = EVENT_SETS["minimal"]
WINDOW_SCALE = 20_000_000
"""ns that stand for a microsecond: longer than what a window holds back."""

BIO_FACTS = [
    *("dev", "part", "sector", "bytes", "opf", "queue", "merge", "issue", "complete"),
    *("fragments", "requests", "requeues", "status", "done_bytes", "certainty"),
]
REQUEST_FACTS = [
    *("dev", "sector", "bytes", "issue", "complete", "bios", "requeues", "status", "done_bytes"),
    *("kind", "certainty"),
]


def facts(table: Any, names: list[str]) -> list[tuple[int, ...]]:
    """Rows of some columns, sorted: what must not depend on numbers."""
    return sorted(zip(*(getattr(table, name).tolist() for name in names), strict=True))


def parents(t: Tables) -> list[tuple[int, int]]:
    """(Q of a bio, Q of its parent), (D of a request, D of its parent)."""
    queue = dict(zip(t.bios.number.tolist(), t.bios.queue.tolist(), strict=True))
    found = zip(t.bios.queue.tolist(), t.bios.parent.tolist(), strict=True)
    below = [(own, queue[parent]) for own, parent in found if parent >= 0]
    issue = dict(zip(t.requests.number.tolist(), t.requests.issue.tolist(), strict=True))
    found = zip(t.requests.issue.tolist(), t.requests.parent.tolist(), strict=True)
    return sorted([*below, *((own, issue[parent]) for own, parent in found if parent >= 0)])


def without(case: Scenario, letters: str) -> list[Event]:
    return [e for e in events_of(case.given) if e["letter"] not in letters]


@pytest.mark.parametrize("case", WHOLE, ids=lambda c: c.slug)
def test_without_block_io_start(case: Scenario) -> None:
    # GIVEN a scenario as a kernel before 6.5 tells it / WHEN read
    full = run(case)
    t = tables_of(without(case, STARTS), devices=case.devices)
    # THEN nothing but the requests' start is different
    queued = [*BIO_FACTS, "getrq", "insert"]
    assert facts(t.bios, queued) == facts(full.bios, queued)
    inserted = [*REQUEST_FACTS, "insert"]
    found, wanted = facts(t.requests, inserted), facts(full.requests, inserted)
    if "m" in {e["letter"] for e in events_of(case.given)}:
        # A request that is absorbed before anything names it is known by its m alone.
        found, wanted = ([r for r in rows if r[4] >= 0] for rows in (found, wanted))
    assert found == wanted
    assert parents(t) == parents(full)
    # THEN stages are those of the bios, to the nanosecond
    for column in ("stage", "start", "end"):
        assert np.array_equal(getattr(t.bio_stages, column), getattr(full.bio_stages, column))


@pytest.mark.parametrize("case", WHOLE, ids=lambda c: c.slug)
def test_with_the_minimal_set_of_events(case: Scenario) -> None:
    # GIVEN a scenario recorded with the minimal set / WHEN read
    full = run(case)
    events = [e for e in events_of(case.given) if e["letter"] in MINIMAL]
    t = tables_of(events, devices=case.devices)
    # THEN bios have the same queue, merge, issue and completion
    assert facts(t.bios, BIO_FACTS) == facts(full.bios, BIO_FACTS)
    assert parents(t) == parents(full)
    # THEN so have the requests that were issued
    found = [r for r in facts(t.requests, REQUEST_FACTS) if r[3] >= 0]
    assert found == [r for r in facts(full.requests, REQUEST_FACTS) if r[3] >= 0]


@pytest.mark.parametrize("case", [c for c in CASES if c is not LATE], ids=lambda c: c.slug)
def test_in_windows_of_one_event(case: Scenario) -> None:
    # GIVEN a scenario slowed down, so that every event ends a window
    given = events_of(case.given, WINDOW_SCALE)
    # WHEN its log of as many chunks is read in windows of one event
    t = run(case, scale=WINDOW_SCALE, chunks=len(given), window_events=1)
    # THEN there are many windows, and the lifecycles are those of one
    assert len(t.windows) > 3 or len(given) < 4
    assert describe(t, WINDOW_SCALE) == tidy(case.then)


def test_what_comes_later_than_windows_wait_is_counted() -> None:
    # GIVEN an issue that arrives 2.25 s after it happened
    scale = 10_000_000
    # WHEN the log is read in small windows, and in one
    t = run(LATE, scale=scale, chunks=len(events_of(LATE.given)), window_events=1)
    whole = run(LATE, scale=scale)
    # THEN small windows say that it came late, and mark the I/O that misses it
    assert t.account.late == 1
    assert describe(t, scale).splitlines()[0].endswith("Q2G 1, unknown 89 | r1 | lost")
    # THEN one window sorts it into its place
    assert whole.account.late == 0
    assert describe(whole, scale) == tidy(LATE.then)


# The scenarios without pointers: what ranges, operations, tasks, age and tags tell.

ONE_QUEUE = (("254:0", {"name": "vda", "kind": "disk", "queue": {"nr_hw_queues": 1}}),)


def bios(events: str) -> list[str]:
    """The bios of a sequence, associated without pointers, a line each."""
    t = tables_of(events_of(events), devices=ONE_QUEUE, associate="intervals")
    return bio_lines(t, 1000)


def certainty(line: str) -> str:
    return line.split(" | ")[3].split(",", maxsplit=1)[0]


@pytest.mark.parametrize("case", SAME, ids=lambda c: c.slug)
def test_ranges_tell_as_much_as_pointers(case: Scenario) -> None:
    # GIVEN a scenario whose ranges are its own / WHEN its log is read without pointers
    found = describe(run(case, associate="intervals"))
    # THEN its lifecycles are those that pointers give, known by interval
    assert found == tidy(case.then).replace("exact", "interval")


@pytest.mark.parametrize("other", OTHERWISE, ids=lambda o: o.case.slug)
def test_what_ranges_do_not_tell_is_marked(other: Otherwise) -> None:
    # GIVEN a scenario that ranges do not settle / WHEN its log is read without pointers
    found = describe(run(other.case, associate="intervals"))
    # THEN what is told is told, and the rest is ambiguous or incomplete, and never exact
    assert found == tidy(other.then), other.why
    assert "exact" not in found


@pytest.mark.parametrize("case", [*SAME, *(o.case for o in OTHERWISE)], ids=lambda c: c.slug)
def test_with_the_minimal_set_nothing_is_claimed_that_pointers_deny(case: Scenario) -> None:
    # GIVEN a scenario recorded with the minimal set, which tells no allocations
    events = [e for e in events_of(case.given) if e["letter"] in MINIMAL]
    exact = tables_of(events, devices=case.devices)
    # WHEN its log is read without pointers
    found = tables_of(events, devices=case.devices, associate="intervals")
    # THEN every bio that is called known has the times that pointers give it
    times = ("queue", "merge", "issue", "complete", "requeues", "status")
    known = {
        tuple(int(getattr(exact.bios, name)[i]) for name in times) for i in range(len(exact.bios))
    }
    for i in range(len(found.bios)):
        if found.bios.certainty[i] == 1:
            assert tuple(int(getattr(found.bios, name)[i]) for name in times) in known


UNSEEN_END = """
    0 Q R 0+8 bio=1
    1 s R 0+8 bio=1 rq=1 tag={first}
    3 D R 0+8 bio=1 rq=1 tag={first} hctx=0
    lost 40  C R 0+8 bio=1 rq=1
    60 Q R 512+8 bio=2
    61 s R 512+8 bio=2 rq=2 tag={between}
    63 D R 512+8 bio=2 rq=2 tag={between} hctx=0
    90 C R 512+8 bio=2 rq=2
    100 Q R 0+8 bio=3
    101 s R 0+8 bio=3 rq=3 tag={last}
    103 D R 0+8 bio=3 rq=3 tag={last} hctx=0
    150 C R 0+8 bio=3 rq=3
"""


def test_a_tag_given_again_ends_a_request_whose_completion_was_not_seen() -> None:
    # GIVEN a read whose C no program saw, and its tag given to another read
    # WHEN a third one of the same range completes
    found = bios(UNSEEN_END.format(first="7/-1", between="7/-1", last="9/-1"))
    # THEN the first one is lost, and the third is not in doubt
    assert [certainty(b) for b in found] == ["lost", "interval", "interval"]
    assert "C50" in found[2]
    # GIVEN the same under a scheduler, with driver tags that are not given again
    found = bios(UNSEEN_END.format(first="7/3", between="8/3", last="9/4"))
    # THEN the scheduler's tag tells as much, where there is one hardware queue
    assert [certainty(b) for b in found] == ["lost", "interval", "interval"]
    # GIVEN the same, where the tag of the first read stays out, or is not told
    for first in ("7/-1", "-1/-1"):
        found = bios(UNSEEN_END.format(first=first, between="8/-1", last="9/-1"))
        # THEN either read may be the one that completes: the oldest is taken, both are marked
        assert [certainty(b) for b in found] == ["ambiguous", "interval", "ambiguous"]


def test_a_flush_goes_by_the_tag_of_the_commit_that_waits_for_it() -> None:
    # GIVEN a journal commit, between whose data and end a flush is issued with its tag
    found = bios(
        """
        0 Qs FWFSM 0+8 bio=1 rq=1 tag=5/-1
        2 D 30 C FF 18446744073709551615+0 rq=9 tag=5/-1 hctx=0
        31 D 60 C WSM 0+8 bio=1 rq=1 tag=5/-1 hctx=0
        61 D 90 C FF 18446744073709551615+0 rq=9 tag=5/-1 hctx=0
        91 C WSM 0+0 bio=1 rq=1
        """
    )
    # THEN the commit has not ended before its flush
    assert found == [
        "b1 vda write 0+8 Q@0 G1 D31 C91 | "
        "Q2G 1, pre-flush 30, D2C 29, post-flush 31 | r1 | interval"
    ]


def test_fsyncs_whose_end_was_not_seen_do_not_blur_later_ones() -> None:
    # GIVEN an fsync whose end no program saw, and whose scheduler tag a read then gets
    found = bios(
        """
        0 Qs FWS 0+0 bio=1 rq=1 tag=-1/3
        2 D 30 C FF 18446744073709551615+0 rq=9 tag=5/3 hctx=0
        lost 31 C WS 0+0 bio=1 rq=1
        40 Qs R 64+8 bio=2 rq=2 tag=-1/3
        42 D 50 C R 64+8 bio=2 rq=2 tag=5/3 hctx=0
        60 Qs FWS 0+0 bio=1 rq=1 tag=-1/4
        62 D 90 C FF 18446744073709551615+0 rq=9 tag=5/4 hctx=0
        91 C WS 0+0 bio=1 rq=1
        """
    )
    # THEN it is lost, and the next fsync is not in doubt
    assert [certainty(b) for b in found] == ["lost", "interval", "interval"]
    assert "C31" in found[2]


def test_requests_taken_for_each_other_have_their_tags_together() -> None:
    # GIVEN two identical reads in flight; one completes, and its tag is given to a third
    found = bios(
        """
        0 QsD R 0+8 bio=1 rq=1 tag=1/-1 hctx=0
        3 QsD 40 C R 0+8 bio=2 rq=2 tag=2/-1 hctx=0
        50 QsD R 0+8 bio=3 rq=3 tag=2/-1 hctx=0
        80 C R 0+8 bio=1 rq=1
        90 C R 0+8 bio=3 rq=3
        """
    )
    # THEN the other one, whichever it is, is still in flight, and the third is in doubt, too
    assert [certainty(b) for b in found] == ["ambiguous"] * 3
