# SPDX-License-Identifier: Apache-2.0
"""Pairs' latencies as text and JSON."""

import json

import numpy as np

from biotrail.recorder.probes.sites.pairs import BOUNDS, Latencies
from biotrail.recorder.schema.limits import HIST_SLOTS
from biotrail.recorder.sites.declarations import resolve
from biotrail.text.sites import pair_latencies as text
from tests.support.named_scopes import scopes_of
from tests.support.pair_recording import pair

FIELDS = {"a:begin": {"typed": ["rq", "kind"]}, "a:end": {"typed": ["rq"]}}


def counted(*values: int) -> Latencies:
    slots = np.zeros(HIST_SLOTS, np.uint64)
    for value in values:
        slots[np.searchsorted(BOUNDS, value, side="right") - 1] += np.uint64(1)
    return Latencies(len(values), sum(values), max(values), slots)


def resolved(**variant):
    return resolve(pair("a:begin", "a:end", "rq", **variant), scopes_of(FIELDS))


def test_a_histogram_and_its_values_are_printed_and_in_json() -> None:
    # GIVEN latencies in two octaves, with an empty one between
    lines = list(text.histogram(counted(1100, 1100, 5000)))
    # THEN there is a line for each octave from the first to the last, then the figures
    assert lines[:4] == [
        "     nsecs               : count     distribution",
        "      1024 -> 2047       : 2        |****************************************|",
        "      2048 -> 4095       : 0        |                                        |",
        "      4096 -> 8191       : 1        |********************                    |",
    ]
    assert lines[4].startswith("3 pairs, mean 2.4 µs, p50 1.1")
    assert lines[4].endswith("max 5 µs")
    # GIVEN two values of --by, and others that share a histogram
    found = list(
        text.lines(resolved(by=("kind",)), counted(9), {1: counted(5, 5), 2: counted(7)}, {})
    )
    # THEN that of the most pairs is last, where a terminal shows it
    titles = [line for line in found if line.startswith("own")]
    assert titles == ["own, kind = (all others)", "own, kind = 2", "own, kind = 1"]
    # GIVEN latencies by value WHEN they are JSON
    found = text.as_json(resolved(by=("kind",)), Latencies(), {3: counted(40, 41)}, {})
    # THEN each value has its figures and slots
    (one,) = json.loads(json.dumps(found))
    assert (one["by"], one["by_text"], one["count"], one["max_ns"]) == (3, "3", 2, 41)
    assert one["histogram"] == [{"from_ns": 40, "below_ns": 42, "count": 2}]


def test_what_no_pair_has_is_not_printed() -> None:
    # GIVEN no latency THEN there is no histogram
    assert list(text.histogram(Latencies())) == []
    assert list(text.lines(resolved(), Latencies(), {}, {})) == []
    # GIVEN a pair with lost begins WHEN its counts are printed THEN the remedy is there
    counts = {"open": 2, "no_begin": 0, "full": 1, "left_begin": 0}
    assert text.counts_line(resolved(), counted(5), counts, filtered=False) == (
        "own: 1 pair; 2 begins without an end so far; "
        "1 begin LOST as too many were open: use a larger --max-open"
    )
    # GIVEN begins that a filter left out THEN their ends are not said to have had none
    counts = {"no_begin": 3, "left_begin": 3, "left_end": 2}
    line = text.counts_line(resolved(), counted(5), counts, filtered=True)
    assert line == (
        "own: 1 pair; 3 ends whose begin was left out, or not seen; "
        "3 begins left out by filters or conditions; 2 pairs left out by a condition on their end"
    )
    # AND what a declared pair's own conditions left out is not said
    line = text.counts_line(resolved(), counted(5), counts, filtered=False)
    assert line == "own: 1 pair; 3 ends without a begin"
