# SPDX-License-Identifier: Apache-2.0
"""Pairs of events in OTF2 archives: a region for each, at a location for each key."""

from io import BytesIO
from pathlib import Path

import pytest

from biotrail.converters.outputs.otf2 import pairs
from biotrail.converters.outputs.otf2.convert import Otf2Summary, convert
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from tests.support.otf2_archives import Call, calls, event_files, otf2_print, rewritten
from tests.support.site_logs import SiteLog
from tests.support.stack_logs import START

TIMER, BLOCK, RCU = 1, 4, 9
SOFTIRQ, ISSUE, WORK = 0, 1, 2


def archived(log: SiteLog, directory: Path, window: int = WINDOW_EVENTS) -> Otf2Summary:
    trace = Trace(BytesIO(log.data()))
    return convert(trace.lifecycles(window, small=True), trace.context, directory)


def spans(found: list[Call]) -> list[tuple[str, int, int]]:
    """(region, begin, end) of each, ns since START."""
    return [(one.name, one.begin - START, one.end - START) for one in found]


def sample() -> SiteLog:
    log = SiteLog()
    log.pair(100, 300, BLOCK, 0, by=BLOCK, comm=b"ksoftirqd/0", tid=13)
    log.pair(150, 400, BLOCK, 1, by=BLOCK, cpu=1)
    log.pair(300, 310, BLOCK, 0, by=BLOCK)
    log.pair(120, 900, 0xFFFF888000000000, pair=WORK)
    return log


def test_each_key_has_a_location_with_its_pairs(tmp_path: Path) -> None:
    # GIVEN pairs of several keys, of which those of one key follow each other
    # WHEN they are converted
    summary = archived(sample(), tmp_path / "otf2")
    found = calls(summary.anchor)
    # THEN each key has a location, with a region for each pair
    assert {name: spans(mine) for name, mine in found.items()} == {
        "vec=BLOCK, @cpu=0": [("BLOCK", 100, 300), ("BLOCK", 300, 310)],
        "vec=BLOCK, @cpu=1": [("BLOCK", 150, 400)],
        "work=0xffff888000000000": [("workqueue", 120, 900)],
    }
    # AND its end says who ended it
    first = found["vec=BLOCK, @cpu=0"][0]
    assert first.told == {"ended by": "ksoftirqd/0", "ended by tid": 13, "ended on CPU": 0}
    assert (summary.pairs, summary.moved) == (4, 0)
    assert (summary.first_ns, summary.last_ns) == (START + 100, START + 900)


def test_both_readers_take_an_archive_of_pairs(tmp_path: Path) -> None:
    # GIVEN an archive of pairs WHEN otf2-print reads it THEN it warns of nothing
    anchor = archived(sample(), tmp_path / "otf2").anchor
    printed = otf2_print(anchor)
    assert "softirq: irq:softirq_entry to irq:softirq_exit" in printed
    # AND the library writes the same events in the same bytes
    assert event_files(anchor) == rewritten(anchor, tmp_path / "again")


@pytest.mark.parametrize("window", [1, 2, 3])
def test_windows_of_any_size_have_the_same_pairs(tmp_path: Path, window: int) -> None:
    # GIVEN the same log WHEN it is read in small windows THEN the same is in the archive
    whole = calls(archived(sample(), tmp_path / "whole").anchor)
    assert calls(archived(sample(), tmp_path / "parts", window).anchor) == whole


def test_further_keys_share_locations_without_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN room for one key, and pairs of others of which two overlap
    monkeypatch.setattr(pairs, "MOST_KEYS", 1)
    log = SiteLog()
    log.pair(0, 10, 0x10, pair=WORK)
    log.pair(20, 60, 0x20, pair=WORK)
    log.pair(30, 50, 0x30, pair=WORK)
    log.pair(60, 70, 0x40, pair=WORK)
    # WHEN they are converted
    found = calls(archived(log, tmp_path / "otf2").anchor)
    # THEN those that overlap are at different locations, and each says its key
    assert {name: [one.asked.get("key") for one in mine] for name, mine in found.items()} == {
        "work=0x10": [None],
        "other keys 1": ["work=0x20"],
        "other keys 2": ["work=0x30", "work=0x40"],
    }
    assert spans(found["other keys 2"]) == [("workqueue", 30, 50), ("workqueue", 60, 70)]


def test_a_log_of_pairs_and_calls_has_both(tmp_path: Path) -> None:
    # GIVEN a call, and a pair whose value of --by is called as the call's own region
    log = SiteLog()
    log.pairs[0]["names"]["by"]["7"] = "read"
    log.returns(500, 900, number=0, result=0)
    log.pair(600, 700, 7, 0, by=7)
    # WHEN they are converted
    summary = archived(log, tmp_path / "otf2")
    # THEN both are regions, each at its own location
    names = {name: spans(mine) for name, mine in calls(summary.anchor).items()}
    assert ("read", 600, 700) in names["vec=7, @cpu=0"]
    assert (summary.calls, summary.pairs) == (1, 1)
    assert len(names) == 2
