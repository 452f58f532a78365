# SPDX-License-Identifier: Apache-2.0
"""Records that are missing or out of order without a word: what is called exact is still true."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from biotrail.converters.events.tables import NEVER, Certainty
from tests.scenarios import cases, cases_more
from tests.scenarios.tools import Scenario, Tables, bio_lines, describe, events_of, run, tables_of
from tests.support.captures import Event, format_event
from tests.support.window_loads import CASES, HEADER, SOURCES, loads, shifted

# Records that are missing without a word: what is called exact must still be true.
#
# Now and then completions reach no program and no counter tells. What is then left can look
# like other I/O, for addresses are used again at once.

COMPLETIONS = "CEd"
Truth = dict[tuple[int, int, int], tuple[int, int, int] | None]
PATIENT = settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
piece = st.tuples(
    st.integers(0, len(SOURCES) - 1),
    st.sampled_from([0, 0, 0, 1 << 12]),  # pointers: mostly recycled
    st.integers(0, 2_000_000),
    st.just(1),
)


def associated(events: Sequence[Event]) -> Tables:
    return tables_of(events, header={"devices": HEADER["devices"]})


def facts(t: Tables) -> Truth:
    """Issue, completion and status of exact bios by (queue, device, sector); None: not known."""
    found: Truth = {}
    b = t.bios
    for i in range(len(b)):
        key = (int(b.queue[i]), int(b.dev[i]), int(b.sector[i]))
        exact = b.certainty[i] == Certainty.EXACT and key not in found
        told = (int(b.issue[i]), int(b.complete[i]), int(b.status[i]))
        found[key] = told if exact else None
    return found


def assert_true(events: Sequence[Event], dropped: Sequence[bool], truth: Truth) -> None:
    """Every bio that is called exact without the dropped events is what it is with them."""
    kept = [e for e, drop in zip(events, dropped, strict=True) if not drop]
    t = associated(kept)
    for key, told in facts(t).items():
        true = truth.get(key)
        if told is not None and true is not None:
            gone = [format_event(e) for e, drop in zip(events, dropped, strict=True) if drop]
            assert told == true, f"without {gone}:\n{describe(t)}"


@PATIENT
@given(
    pieces=st.lists(piece, min_size=1, max_size=5),
    seed=st.integers(0, 1 << 20),
    share=st.sampled_from([0.02, 0.1, 0.3]),
)
def test_completions_that_nobody_saw(
    pieces: list[tuple[int, int, int, int]], seed: int, share: float
) -> None:
    # GIVEN loads with recycled pointers, of which some completions are missing
    events = loads(pieces)
    rng = np.random.default_rng(seed)
    dropped = [e["letter"] in COMPLETIONS and rng.random() < share for e in events]
    # WHEN associated / THEN no bio that is called exact has another's end
    assert_true(events, dropped, facts(associated(events)))


@pytest.mark.parametrize("index", range(len(CASES)), ids=[case.slug for case in CASES])
def test_any_one_event_missing(index: int) -> None:
    # GIVEN a scenario twice, the second time with the same bios and requests again
    own = SOURCES[index]
    later = max(e["ns"] for e in own) + 5_000
    events = sorted(own, key=lambda e: e["ns"]) + sorted(
        shifted(own, 0, later, 1), key=lambda e: e["ns"]
    )
    truth = facts(associated(events))
    # WHEN any one event of it is missing / THEN what is called exact is true
    for gone in range(len(events)):
        assert_true(events, [i == gone for i in range(len(events))], truth)


# Two requests became one, and the record of that was lost: the issue's chain tells.

MERGE_CASES = [c for c in cases.CASES if "m" in {e["letter"] for e in events_of(c.given)}]


@pytest.mark.parametrize("case", MERGE_CASES, ids=lambda c: c.slug)
def test_bios_are_as_if_it_had_been_recorded(case: Scenario) -> None:
    # GIVEN requests that merged
    told = run(case)
    # WHEN no m is in the log / THEN every bio is there once, with its times, stages and request
    found = run(case, drop="m")
    assert bio_lines(found) == bio_lines(told)
    # THEN who took the absorbed requests is known; they are marked, for their end was not seen
    assert found.requests.absorbed_by.tolist() == told.requests.absorbed_by.tolist()
    absorbed = found.requests.absorbed_by != NEVER
    assert set(found.requests.certainty[absorbed].tolist()) == {Certainty.LOST}
    assert set(found.requests.certainty[~absorbed].tolist()) == {Certainty.EXACT}


@pytest.mark.parametrize("case", MERGE_CASES, ids=lambda c: c.slug)
def test_an_issue_elsewhere_is_another_bios(case: Scenario) -> None:
    # GIVEN the same, but for chains that are of other sectors
    events = [e for e in events_of(case.given) if e["letter"] not in "mC"]
    assert any(len(e.get("chain", ())) > 1 for e in events)
    moved = case.given.replace(" D W 0+", " D W 4096+").replace(" C W 0+", " C W 4096+")
    elsewhere = Scenario(case.number, case.name, moved, case.then)
    # WHEN no m is in the log / THEN what waited is not said to have gone there
    found = run(elsewhere, drop="m")
    assert (found.requests.absorbed_by == NEVER).all()


# A driver that is too busy gives a request back before its issue; a lost D would look the same.

(REQUEUE,) = (case for case in cases_more.CASES if case.slug == "12-requeue")


@pytest.mark.parametrize(
    ("counts_skips", "certainty"), [(True, Certainty.EXACT), (False, Certainty.LOST)]
)
def test_a_requeue_before_the_issue(counts_skips: bool, certainty: Certainty) -> None:
    # GIVEN a request that was requeued, without its first issue
    events = events_of(REQUEUE.given)
    first = next(i for i, event in enumerate(events) if event["letter"] == "D")
    del events[first]
    # WHEN nothing is told as lost, on a kernel that tells all that is, or on one that does not
    t = tables_of(events, header={"counts_skips": counts_skips})
    # THEN it was given back before its issue, or that is not sure
    assert t.bios.certainty.tolist() == [certainty]
    assert t.requests.certainty.tolist() == [certainty]
    assert t.requests.requeues.tolist() == [1]
    # AND all of it is there
    assert t.bios.done_bytes.tolist() == t.bios.bytes.tolist()
    assert (t.bios.queue < t.bios.issue).all()
    assert (t.bios.issue < t.bios.complete).all()
