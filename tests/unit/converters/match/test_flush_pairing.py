# SPDX-License-Identifier: Apache-2.0
"""Flushes whose completion is one of several, without pointers: how far their times may be off."""

import json
from pathlib import Path

import pytest

from biotrail.converters.events.tables import Bios, Certainty
from biotrail.converters.lifecycles.account import Pairing
from biotrail.converters.pipeline import Trace
from biotrail.text.tallies import pairing_lines
from tests.simulation.model import LIFECYCLE, MINIMAL
from tests.support import heavy_loads
from tests.support.cli_runner import Cli


def test_completions_at_one_time_leave_only_the_pairing_open() -> None:
    # GIVEN two flushes that could each have ended by either of two completions at one time
    pairing = Pairing()
    assert pairing_lines(pairing) == []
    pairing.add(2, 0)
    # THEN both have exact times
    assert pairing.as_dict() == {
        "completions": 2, "same_time": 2, "half_within_ns": 0, "all_within_ns": 0
    }  # fmt: skip
    assert pairing_lines(pairing) == [
        "2 flushes could have ended by one of several completions",
        "  2 came at one time: times are exact, only which is whose is open",
    ]


@pytest.mark.parametrize("letters", [LIFECYCLE, MINIMAL])
def test_ends_are_within_what_is_said(letters: str) -> None:
    # GIVEN a log of flushes, some of which end at once
    one = heavy_loads.stretch("flushes", letters)

    def read(associate: str) -> tuple[Bios, Pairing]:
        trace = Trace(heavy_loads.log_of(one, 900)[0], associate)
        windows = [window.bios for window in trace.lifecycles()]
        return Bios.concatenate(windows), trace.account.pairing

    # WHEN they are associated with pointers, and without
    (truth, none), (found, said) = read("identity"), read("intervals")
    # THEN what is ambiguous is said, and no bio's end is further off
    assert not none.completions
    ambiguous = int((found.certainty == Certainty.AMBIGUOUS).sum())
    assert 0 < said.completions == ambiguous
    ends = dict(zip(truth.number.tolist(), truth.complete.tolist(), strict=True))
    pairs = zip(found.number.tolist(), found.complete.tolist(), strict=True)
    assert all(abs(end - ends[number]) <= said.most_ns for number, end in pairs)


def test_info_and_report_say_how_far_ends_may_be_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a log of flushes
    path = tmp_path / "flushes.biotrail"
    path.write_bytes(heavy_loads.log_of(heavy_loads.stretch("flushes", LIFECYCLE), 900)[0].read())
    cli = Cli(capsys)
    # WHEN it is asked about, without pointers and with
    text = cli("info", "--associate", "intervals", path).out
    facts = json.loads(cli("info", "--json", "--associate", "intervals", path).out)
    report = cli("report", "--associate", "intervals", path).out
    exact = cli("info", path).out
    # THEN it says so where there is something to say
    told = facts["account"]["flushes_to_pair"]
    line = f"{told['completions']} flushes could have ended by one of several completions"
    assert line in text
    assert line in report
    assert 0 < told["half_within_ns"] <= told["all_within_ns"]
    assert "one of several completions" not in exact
