# SPDX-License-Identifier: Apache-2.0
"""Timed calls end where they cost more than their budget."""

from dataclasses import dataclass, field

from biotrail.recorder.accounting.cost import CALL_NS
from biotrail.recorder.probes.maps.path_maps import PathChoice, PathRuns
from biotrail.recorder.schema.payloads import CallTimingNote
from biotrail.recorder.session.cost_watch import LOOK_NS, CallBudget, end_message
from tests.support.fake_probes import FakeProbes


@dataclass
class Host:
    """Probes whose calls a test counts, and what was reported."""

    budget: float = 5.0
    parts: frozenset[str] = frozenset({"call", "time"})
    entered: int = 1000
    notes: list[CallTimingNote] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.probes = FakeProbes()
        self.probes.path = PathChoice(self.parts)
        self.probes.path_runs = self.runs  # type: ignore[method-assign]
        self.watched = CallBudget(self.probes, self.budget, 0)
        self.now_ns = 0

    def runs(self) -> PathRuns:
        """All calls were timed."""
        return PathRuns(self.entered, self.entered)

    def run(self, calls: int) -> None:
        """Let `calls` calls enter within one period, and have a look."""
        self.entered += calls
        self.now_ns += LOOK_NS
        self.watched.look(self.now_ns, self.notes.append)


def calls_of(percent: float) -> int:
    """How many calls in a period cost so much of a CPU."""
    return int(percent / 100 * LOOK_NS / CALL_NS)


def test_calls_within_the_budget_stay_timed() -> None:
    # GIVEN a budget of 5 %
    host = Host()
    # WHEN calls cost a little less, for several periods
    for _ in range(5):
        host.run(calls_of(4.9))
    # THEN they are timed on
    assert host.notes == []
    assert host.probes.calls == []


def test_calls_beyond_the_budget_are_no_longer_timed() -> None:
    # GIVEN a recording whose calls were cheap at first
    host = Host()
    host.run(calls_of(1))
    # WHEN a load of many calls begins
    host.run(calls_of(20))
    host.run(calls_of(20))
    # THEN timing ended once, at the first look, and the note says when and why
    assert host.probes.calls == ["stop timing"]
    (note,) = host.notes
    assert (note["until"], note["budget"], round(note["percent"])) == (2 * LOOK_NS, 5.0, 20)
    assert "20.0 % of a CPU, more than --call-budget 5;" in end_message(note)


def test_without_a_budget_or_timed_calls_nothing_is_looked_at() -> None:
    # GIVEN recordings without a limit, and without the part `time`
    for host in (Host(budget=0.0), Host(parts=frozenset({"call"}))):
        # WHEN calls would cost a whole CPU
        host.run(calls_of(100))
        # THEN nothing happens
        assert host.notes == []
        assert host.probes.calls == []
