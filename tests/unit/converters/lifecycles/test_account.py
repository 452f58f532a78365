# SPDX-License-Identifier: Apache-2.0
"""The account: every event is used or has one reason, every row has one certainty."""

from pathlib import Path

import pytest

from biotrail.converters.lifecycles.account import Account, Reason
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.schema.records import BY_LETTER, Kind
from tests.scenarios import cases, cases_more, losses, stacks, variants
from tests.scenarios.tools import Scenario, Tables, events_of, run, tables_of
from tests.support import captures
from tests.support.capture_text import Event
from tests.support.record_rings import record, ring

CASES = [
    *cases.CASES,
    *cases_more.CASES,
    *variants.CASES,
    *stacks.CASES,
    *losses.CASES,
]
FILES = sorted(path.stem for path in captures.DATA.glob("*.txt"))


def counted(events: list[Event]) -> dict[str, int]:
    """Events by letter."""
    counts: dict[str, int] = {}
    for event in events:
        counts[event["letter"]] = counts.get(event["letter"], 0) + 1
    return counts


def own(account: Account) -> dict[str, int]:
    """Counts by letter without what the encoder adds."""
    return {k: n for k, n in account.by_letter().items() if k not in "TKb"}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.slug)
def test_every_event_of_a_scenario_is_accounted_for_once(case: Scenario) -> None:
    # GIVEN a scenario / WHEN read
    events = events_of(case.given)
    account = run(case).account
    # THEN the sums are those of its events, by letter, by reason and by device
    assert own(account) == counted(events)
    assert sum(account.by_reason().values()) == account.total
    on_devices: dict[str, int] = {}
    for (_, letter), count in account.devices.items():
        on_devices[letter] = on_devices.get(letter, 0) + count
    assert on_devices == counted(events)


@pytest.mark.parametrize("name", FILES)
def test_every_event_of_a_capture_is_used_or_says_why(name: str) -> None:
    # GIVEN a capture / WHEN read
    events = captures.load(name)
    account = tables_of(events).account
    # THEN what is left out is plugging and names, and nothing else
    assert own(account) == counted(events)
    reasons = account.by_reason()
    assert set(reasons) <= {Reason.USED, Reason.PLUGGING, Reason.DICTIONARY}
    assert account.by_letter().get("P", 0) + account.by_letter().get("U", 0) == reasons.get(
        Reason.PLUGGING, 0
    )


def account_of(path: Path, records: bytes) -> Account:
    """The account of a log of these records."""
    with path.open("wb") as stream:
        log = LogWriter(stream, captures.header())
        log.write_chunk([Segment(0, 0, 0, records)], captures.clock(10_000))
        log.close({})
    trace = Trace(path)
    list(trace.lifecycles())
    return trace.account


def test_comments_on_what_is_not_in_the_log() -> None:
    # GIVEN d and E of requests that ended before the log / THEN they are after an end
    found = run(losses.COMMENTS_ALONE).account.by_reason()
    assert found == {Reason.AFTER_END: 3, Reason.USED: 5}


def test_a_chain_without_its_issue(tmp_path: Path) -> None:
    # GIVEN two bios' chain whose D record was lost, its CHAIN record not
    text = "0 Q W 0+8 bio=1\n1 G W 0+8 bio=1\n2 Q W 8+8 bio=2\n3 M W 8+8 bio=2"
    issue = events_of(text + "\n4 D W 0+16 bio=1 rq=1 bios=2")[-1]
    segments = captures.records([*events_of(text), issue])
    whole = segments[0].data
    d = BY_LETTER["D"].size
    at = sum(BY_LETTER[letter].size for letter in "QGQM")
    cut = bytes(whole[:at]) + bytes(whole[at + d :])
    # WHEN read / THEN the account says so
    account = account_of(tmp_path / "a.biotrail", cut)
    assert account.by_reason() == {Reason.USED: 4, Reason.NO_ISSUE: 1}


def test_events_that_name_nothing(tmp_path: Path) -> None:
    # GIVEN request and bio events without any pointer / WHEN read
    rows = [record(kind, i, bytes=512) for i, kind in enumerate((Kind.I, Kind.D, Kind.C, Kind.Q))]
    account = account_of(tmp_path / "a.biotrail", ring(rows))
    # THEN they are counted as such
    assert account.by_reason() == {Reason.NO_POINTER: 4}


def test_the_reasons_are_a_closed_list_without_other() -> None:
    # GIVEN the reasons / THEN each says something, and none is "other"
    texts = [str(reason).lower() for reason in Reason]
    assert len(set(texts)) == len(texts)
    assert not any("other" in text.split() or "misc" in text for text in texts)


def test_certainties_and_unseen_completions() -> None:
    # GIVEN a lost completion and what follows it
    t: Tables = run(cases_more.COMPLETION_LOST)
    # THEN the account holds them by certainty
    assert {k: n for k, n in t.account.bios.items() if n} == {"exact": 1, "lost": 1}
    assert {k: n for k, n in t.account.requests.items() if n} == {"exact": 1, "lost": 1}
    assert t.account.completions_not_seen == 1


def test_as_json() -> None:
    # GIVEN an account / WHEN made plain / THEN its sums agree
    plain = run(cases.PLUGGED_WRITES).account.as_dict()
    assert plain["events"] == sum(plain["kinds"].values()) == sum(plain["reasons"].values())
    assert (plain["first_ns"], plain["last_ns"]) == (captures.BASE_NS, captures.BASE_NS + 201_000)


def test_an_empty_log(tmp_path: Path) -> None:
    # GIVEN a log without a single event
    path = captures.write_log(tmp_path / "a.biotrail", [])
    # WHEN read / THEN there are empty tables and an empty account
    trace = Trace(path)
    windows = list(trace.lifecycles())
    assert sum(len(w.bios) + len(w.requests) + len(w.edges) for w in windows) == 0
    assert (trace.account.total, trace.account.first_ns) == (0, -1)
