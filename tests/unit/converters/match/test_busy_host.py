# SPDX-License-Identifier: Apache-2.0
"""A driver that is too busy gives a request back before its issue; a lost D would look the same."""

import pytest

from biotrail.converters.events.tables import Certainty
from tests.scenarios import cases_more
from tests.scenarios.tools import events_of, tables_of

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
