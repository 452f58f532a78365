# SPDX-License-Identifier: Apache-2.0
"""Names of declared pairs, and what became no pair."""

from biotrail.converters.events.context import Context
from biotrail.converters.sites import pair_names
from biotrail.converters.sites.pair_names import PairNames
from biotrail.recorder.schema.payloads import PairCounts
from tests.support.site_logs import SOFTIRQ


def test_every_count_of_events_in_no_pair_has_words() -> None:
    # GIVEN the counts that the recorder writes for each pair
    counts = set(PairCounts.__annotations__) - {"name", "pairs", "names"}
    # THEN all are shown, and no others are looked for
    assert set(pair_names._EVENTS) == counts


def test_counts_are_those_of_the_end() -> None:
    # GIVEN a log whose END counts events that became no pair
    names = PairNames(Context({"sites": {"pairs": [SOFTIRQ]}}))
    counts: PairCounts = {"name": "softirq", "ends_alone": 3, "full": 0, "bad_reads": 2}
    # WHEN its END is read  THEN those above 0 are told
    names.finish({"sites": {"pairs": [counts]}})
    assert names.unpaired(0) == {"ends_alone": 3, "bad_reads": 2}
