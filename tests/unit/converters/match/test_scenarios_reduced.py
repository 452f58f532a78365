# SPDX-License-Identifier: Apache-2.0
"""Every scenario again: on kernels with fewer events, with fewer events asked for, in windows."""

from typing import Any

import numpy as np
import pytest

from biotrail.recorder.probes.programs import EVENT_SETS
from tests.scenarios import cases, cases_more, losses, stacks, variants
from tests.scenarios.tools import (
    STARTS,
    Scenario,
    Tables,
    describe,
    events_of,
    run,
    tables_of,
    tidy,
)
from tests.support.capture_text import Event

WHOLE = [
    *cases.CASES,
    *cases_more.CASES,
    *variants.CASES,
    *stacks.CASES,
]
CASES = [*WHOLE, *losses.CASES]
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
    assert facts(t.bios, [*BIO_FACTS, "getrq", "insert"]) == facts(
        full.bios, [*BIO_FACTS, "getrq", "insert"]
    )
    inserted = [*REQUEST_FACTS, "insert"]
    found = list(facts(t.requests, inserted))
    wanted = facts(full.requests, inserted)
    if "m" in {e["letter"] for e in events_of(case.given)}:
        # A request that is absorbed before anything names it is known by its m alone.
        found = [r for r in found if r[4] >= 0]
        wanted = [r for r in wanted if r[4] >= 0]
    assert found == wanted
    assert parents(t) == parents(full)
    # THEN stages are those of the bios, to the nanosecond
    assert np.array_equal(t.bio_stages.stage, full.bio_stages.stage)
    assert np.array_equal(t.bio_stages.start, full.bio_stages.start)
    assert np.array_equal(t.bio_stages.end, full.bio_stages.end)


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
