# SPDX-License-Identifier: Apache-2.0
"""Counterexamples that generated histories found, of addresses that live again; shrunk, named."""

from pathlib import Path

import captures
import numpy as np
from captures import BASE_NS
from scenario_cases_more import REQUEST_BASED
from scenario_tools import events_of, tables_of

from converters.model.association import associate
from converters.model.lives import Known, Lives
from converters.model.tables import NEVER
from converters.model.trace import Trace


def test_a_bio_is_not_of_a_request_that_lies_elsewhere_than_it_was_merged() -> None:
    # GIVEN a merged bio whose issue and end were lost, and its memory in a later request
    events = events_of(
        """
        0  Q W 80+8 bio=1
        1  M W 80+8 bio=1
        40 D W 680+40 bio=2 rq=1 chain=2,1
        60 C W 680+40 bio=2 rq=1
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED,))
    # THEN the first life of the address is in no request
    assert t.bios.queue[0] == BASE_NS
    assert t.bios.number[0] not in t.edges.bio


def test_a_bio_is_not_of_a_request_of_another_operation_or_place() -> None:
    # GIVEN a bio whose end was lost, and a request for its memory, elsewhere
    events = events_of(
        """
        0  Q W 112+8 bio=1
        40 G W 64+40 bio=1
        41 s W 64+40 bio=1 rq=1
        42 D W 64+40 bio=1 rq=1
        60 C W 64+40 bio=1 rq=1
        70 Q R 8+8 bio=2
        80 G D 8+8 bio=2
        81 s D 8+8 bio=2 rq=2
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED,))
    # THEN the queued bios were given no request
    queued = t.bios.number[t.bios.queue >= 0]
    assert len(queued) == 2
    assert not set(queued.tolist()) & set(t.edges.bio.tolist())


def test_what_lives_again_stays_known_in_the_next_window(tmp_path: Path) -> None:
    # GIVEN a window that keeps a bio of which it saw the address queued again
    events = events_of(
        """
        0  Q W 80+8 bio=1
        10 Q W 800+8 bio=1
        """
    )
    path = tmp_path / "x.biotrail"
    captures.write_log(path, events, {})
    trace = Trace(path)
    window, _ = next(iter(trace.events()))
    found = associate(window, trace.context)
    known = Known.of(window, found.bios, np.array([True, False]))
    # WHEN the next window is associated, which has the kept bio alone
    kept = window.take(np.array([0]))
    told = associate(kept, trace.context, Lives(bios=known))
    # THEN that bio is over there too, and only by what the first window told
    assert told.bios.superseded.tolist() == [True]
    assert associate(kept, trace.context).bios.superseded.tolist() == [False]


def test_a_completion_for_a_bio_queued_since_is_not_of_a_requeued_request() -> None:
    # GIVEN a requeued read whose end was lost, and its memory, which ends an fsync unissued
    events = events_of(
        """
        0  Q R 16+8 bio=1
        1  D R 16+8 bio=1 rq=1
        2  R R 16+8 bio=1 rq=1
        80 Q FWS 0+0 bio=2
        90 C FWS 0+0 bio=2 rq=1
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED,))
    # THEN the fsync has a request of its own
    assert t.requests.issue.tolist() == [BASE_NS + 1000, NEVER]
    assert t.bios.request.tolist()[0] != t.bios.request.tolist()[1]


def test_what_another_bio_carries_out_is_not_sent_on_itself() -> None:
    # GIVEN a flush above that a clone carries out, its end lost, and its memory as the clone of
    # the next flush
    events = events_of(
        """
        0  Q 9:0 FWS 0+0 bio=5
        1  A 254:0 FWS 0+0 bio=7 from=9:0+0
        2  Q 254:0 FWS 0+0 bio=7
        5  C 254:0 WS 0+0 bio=7 rq=1
        10 Q 9:0 FWS 0+0 bio=4
        11 A 254:0 FWS 0+0 bio=5 from=9:0+0
        12 Q 254:0 FWS 0+0 bio=5
        20 C 254:0 WS 0+0 bio=5 rq=1
        21 c 9:0 FWS 0+0 bio=4
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED,))
    # THEN they are two bios above, and two below
    assert [(ns - BASE_NS) // 1000 for ns in t.bios.queue] == [0, 2, 10, 12]
    assert t.bios.parent.tolist()[1] == t.bios.number.tolist()[0]


def test_a_completion_before_the_issue_that_is_known_ends_what_lies_there_alone() -> None:
    # GIVEN a request whose issue was lost, completed in part and requeued, and a bio queued
    # before that which came to it later, with a request whose allocation was lost
    events = events_of(
        """
        0  Q W 48+8 bio=1
        20 C W 0+32 bio=3 rq=1
        21 R W 32+8 bio=4 rq=1
        22 Q W 40+8 bio=2
        23 F W 40+8 bio=2
        24 m W 40+16 bio=2 rq=2
        30 D W 32+24 bio=4 rq=1 chain=4,2,1
        60 C W 32+24 bio=4 rq=1
        """
    )
    # WHEN the log is read
    t = tables_of(events, devices=(REQUEST_BASED,))
    # THEN both ended with the rest
    queued = t.bios.queue >= 0
    assert [(ns - BASE_NS) // 1000 for ns in t.bios.complete[queued]] == [60, 60]
