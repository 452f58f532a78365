# SPDX-License-Identifier: Apache-2.0
"""Flushes whose completion is one of several, without pointers: how far their times may be off."""

import json
from pathlib import Path

import pytest

from biotrail.converters.association.without_pointers.flush_pairing import FlushPairing
from biotrail.converters.association.without_pointers.pairing import Pairing
from biotrail.converters.association.without_pointers.pending import InFlight
from biotrail.converters.events.tables import Bios, Certainty
from biotrail.converters.pipeline import Trace
from biotrail.text.tallies import pairing_lines
from tests.simulation.model import LIFECYCLE, MINIMAL
from tests.support import heavy_loads
from tests.support.cli_runner import Cli


def held(number: int) -> InFlight:
    return InFlight(number, 0, 0, 1, 100, number)


def test_completions_at_one_time_leave_only_the_pairing_open() -> None:
    # GIVEN three flushes, of which two could be either of two completions at one time
    one, two, three = held(1), held(2), held(3)
    pairing = FlushPairing()
    # WHEN they end
    pairing.complete(500, [one, two], others=False)
    pairing.complete(500, [two], others=False)
    pairing.complete(900, [three], others=False)
    # THEN both have exact times
    assert pairing.counts.as_dict() == {
        "completions": 2, "same_time": 2, "half_within_ns": 0, "all_within_ns": 0
    }  # fmt: skip
    assert pairing_lines(pairing.counts) == [
        "2 flushes could have ended by one of several completions",
        "  2 came at one time: times are exact, only which is whose is open",
    ]


def test_requests_that_share_completions_end_between_the_first_and_the_last() -> None:
    # GIVEN two and two flushes that a third completion ties together
    a, b, c, d = (held(number) for number in range(4))
    pairing = FlushPairing()
    # WHEN they end
    pairing.complete(100, [a, b], others=False)
    pairing.complete(130, [c, d], others=False)
    pairing.complete(140, [b, d], others=False)
    assert not pairing.counts.completions
    pairing.complete(164, [d], others=False)
    # THEN all are off by the whole span at most
    assert (pairing.counts.completions, pairing.counts.same) == (4, 0)
    assert (pairing.counts.half_ns, pairing.counts.most_ns) == (64, 64)


def test_bios_that_one_request_could_be_of_share_what_ends_them() -> None:
    # GIVEN two bios, the first request of which could be of either, and two flushes apart
    bios, requests = [held(1), held(2)], [held(3), held(4)]
    pairing = FlushPairing()
    pairing.share(bios)
    for bio, request in zip(bios, requests, strict=True):
        pairing.serve(bio, request)
    # WHEN each request ends by the only completion that fits it
    pairing.complete(100, [requests[0]], others=False)
    pairing.complete(145, [requests[1]], others=False)
    # THEN either bio may have ended by either
    assert (pairing.counts.completions, pairing.counts.most_ns) == (2, 45)


@pytest.mark.parametrize("others", [True, False])
def test_nothing_is_said_where_others_may_have_ended(others: bool) -> None:
    # GIVEN two flushes, one of whose completions may be of a third
    one, two = held(1), held(2)
    pairing = FlushPairing()
    # WHEN they end
    pairing.complete(100, [one, two], others=others)
    pairing.complete(120, [two], others=False)
    # THEN nothing is said of how far they may be off
    assert pairing.counts.completions == (0 if others else 2)


def test_nothing_is_said_while_one_that_shares_them_has_not_ended() -> None:
    # GIVEN two flushes of which one completion was not seen
    pairing = FlushPairing()
    # WHEN the other one comes
    pairing.complete(100, [held(1), held(2)], others=False)
    # THEN nothing is said
    assert pairing_lines(pairing.counts) == []


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
