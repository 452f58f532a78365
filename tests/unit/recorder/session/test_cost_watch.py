# SPDX-License-Identifier: Apache-2.0
"""What ends or warns a recording: its cost, a budget of calls, pressure and hanging devices."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from biotrail.recorder.accounting import cost
from biotrail.recorder.accounting.cost import CALL_NS, OTHER_CALL_NS, ns_per_run, part_seconds
from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.filters.triggers import Pressure
from biotrail.recorder.log import LogReader, Segment
from biotrail.recorder.probes.backend import ProgramInfo
from biotrail.recorder.probes.maps.path_maps import PathChoice, PathRuns
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import CallTimingNote
from biotrail.recorder.schema.records import Kind
from biotrail.recorder.session.cost_watch import (
    EARLY_TICKS,
    LOOK_NS,
    QUIET_NS,
    SAMPLE_BYTES,
    SAMPLE_TICKS,
    TICK_NS,
    WINDOW_NS,
    CallBudget,
    CostWatch,
)
from biotrail.recorder.session.session import record
from biotrail.recorder.session.watches import PressureWatch, StuckWatch
from biotrail.text.values import LEAST_PER_CENT, percent_from
from tests.support.fake_probes import FakeProbes, options
from tests.support.log_samples import ring
from tests.support.stack_logs import record as path_record

# The cost in the open: runs counted now and then, a warning above --max-cpu.


def program(runs: int, spent: int, misses: int = 0) -> ProgramInfo:
    return ProgramInfo("bt_queue", "Q", "block_bio_queue", True, "", runs, spent, misses)


def test_runs_are_counted_for_one_tick_in_many() -> None:
    # GIVEN a watch
    asked: list[bool] = []
    watch = CostWatch(FakeProbes(), asked.append, None, 0)
    # WHEN twice as many ticks pass as lie between two samples
    now_ns, calls = 0, 0
    while now_ns < 2 * SAMPLE_TICKS * TICK_NS:
        now_ns = watch.due_ns
        watch.tick(now_ns, 0)
        calls += 1
    watch.count(False)
    # THEN counting was on for two of them, and some at the beginning; it is off at the end
    assert asked.count(True) == 2 + len(EARLY_TICKS)
    assert not asked[-1]
    # AND the recorder was woken at their ends alone: runs are counted no longer than a tick
    assert calls == 2 * (2 + len(EARLY_TICKS)) - 1


def test_a_sample_ends_early_where_much_is_recorded() -> None:
    # GIVEN a watch that begins a sample
    asked: list[bool] = []
    watch = CostWatch(FakeProbes(), asked.append, None, 0)
    watch.end_full_sample(SAMPLE_BYTES)
    watch.tick(watch.due_ns, 0)
    assert asked[-1]
    # WHEN little comes out of the rings THEN it goes on
    watch.end_full_sample(2 * SAMPLE_BYTES - 1)
    assert asked[-1]
    # WHEN enough has come THEN it ends, once
    asked.clear()
    watch.end_full_sample(2 * SAMPLE_BYTES)
    watch.end_full_sample(4 * SAMPLE_BYTES)
    assert asked == [False]


def test_a_warning_comes_above_the_limit_and_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN programs that take a microsecond a run, and a recorder that takes nothing itself
    programs = [program(1000, 1_000_000)]
    probes = FakeProbes()
    monkeypatch.setattr(probes, "programs", lambda: programs)
    monkeypatch.setattr(cost, "read", lambda p: cost.Reading(0, 0.0, p))
    watch = CostWatch(probes, lambda _on: None, 5.0, 0)
    # WHEN a million events a window come: 20 % of a core; and after that none
    first = watch.tick(WINDOW_NS, 1e6)
    second = watch.tick(2 * WINDOW_NS, 2e6)
    idle = watch.tick(3 * WINDOW_NS, 2e6)
    later = watch.tick(QUIET_NS + 4 * WINDOW_NS, 1e9)
    # THEN the first and the last are told, the second only counted
    assert first.startswith("recording takes 20.0 % of one core, more than --max-cpu 5")
    assert (second, idle) == ("", "")
    assert later.startswith("recording takes")
    assert watch.warnings == 3
    assert ns_per_run(programs) == 1000
    assert ns_per_run([]) == 0


def test_the_end_says_what_recording_cost(tmp_path: Path) -> None:
    # GIVEN a recording with a limit
    path = tmp_path / "x"
    # WHEN it ends
    summary = record(options(path, duration=0.05, max_cpu=1000.0), probes=FakeProbes())
    # THEN its end has the recorder's account, and each program's
    end = LogReader(path).end
    assert end is not None
    assert end["recorder"]["max_cpu"] == 1000.0
    assert end["recorder"]["max_cpu_exceeded"] == 0
    assert end["recorder"]["max_rss_bytes"] > 0
    assert end["events"] == summary.events
    assert {"run_count", "run_ns", "recursion_misses"} <= set(end["programs"][0])
    # GIVEN two readings WHEN the second is told from the first THEN it holds what came between
    then, now = (cost.Reading(0, 0.0, [program(*n)]) for n in ((5, 500, 1), (8, 900, 3)))
    (row,) = cost.program_rows(then, now)
    assert (row["run_count"], row["run_ns"], row["recursion_misses"]) == (3, 400, 2)


def test_percentages_are_understood() -> None:
    # GIVEN what users write WHEN it is converted THEN it is a number, or refused
    read = percent_from(LEAST_PER_CENT)
    assert (read("5"), read("2.5%")) == (5.0, 2.5)
    for bad in ("0", "-1", "nan", "inf", "x", ""):
        with pytest.raises(Exception, match=r"not a percentage|not between"):
            read(bad)


# Timed calls end where they cost more than their budget.


@dataclass
class Host:
    """Probes whose calls a test counts, and what was reported."""

    budget: float = 5.0
    parts: frozenset[str] = frozenset({"call", "time"})
    entered: int = 1000
    notes: list[tuple[CallTimingNote, str]] = field(default_factory=list)

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
        if (note := self.watched.look(self.now_ns)) is not None:
            self.notes.append(note)


def calls_of(percent: float) -> int:
    """How many calls in a period cost so much of a CPU."""
    return int(percent / 100 * LOOK_NS / CALL_NS)


def test_calls_are_timed_up_to_the_budget() -> None:
    # GIVEN a budget of 5 %
    host = Host()
    # WHEN calls cost a little less, for several periods
    for _ in range(5):
        host.run(calls_of(4.9))
    # THEN they are timed on
    assert host.notes == []
    assert host.probes.calls == []
    # GIVEN a recording whose calls were cheap at first
    host = Host()
    host.run(calls_of(1))
    # WHEN a load of many calls begins
    host.run(calls_of(20))
    host.run(calls_of(20))
    # THEN timing ended once, at the first look, and the note says when and why
    assert host.probes.calls == ["stop timing"]
    ((note, words),) = host.notes
    assert (note["until"], note["budget"], round(note["percent"])) == (2 * LOOK_NS, 5.0, 20)
    assert "20.0 % of a CPU, more than --call-budget 5;" in words
    # GIVEN recordings without a limit, and without the part `time`
    for host in (Host(budget=0.0), Host(parts=frozenset({"call"}))):
        # WHEN calls would cost a whole CPU
        host.run(calls_of(100))
        # THEN nothing happens
        assert host.notes == []
        assert host.probes.calls == []


# Triggers that no event fires: pressure, and a device that hangs.

SECOND = 1_000_000_000


def disk(block: Path, name: str, dev: str, completed: int, in_flight: int) -> None:
    """A disk's files in sysfs; of what it completed half were reads, and one in three discards."""
    (block / name).mkdir(exist_ok=True)
    (block / name / "dev").write_text(f"{dev}\n")
    reads, discards = completed // 2, completed // 3
    counts = [reads, 0, 0, 0, completed - reads - discards, 0, 0, 0, in_flight, 0, 0, discards]
    counts += [0] * 5
    (block / name / "stat").write_text(" ".join(map(str, counts)) + "\n")


def test_a_disk_that_completes_nothing_fires_once_until_it_completes_again(tmp_path: Path) -> None:
    # GIVEN a disk that hangs, one that works, and one that is idle
    watch = StuckWatch(2 * SECOND, (), 0, tmp_path)
    fired = []
    for half_seconds in range(12):
        disk(tmp_path, "hung", "8:0", 70, 3)
        disk(tmp_path, "busy", "8:16", 100 + half_seconds, 3)
        disk(tmp_path, "idle", "8:32", 5, 0)
        # WHEN they are looked at each half second
        fired += watch.hits(half_seconds * SECOND // 2)
    # THEN the one that hangs is told, once, when it has completed nothing for as long
    assert [(hit.trigger, hit.dev, hit.value, hit.what) for hit in fired] == [
        ("stuck", 8 << 20, 2 * SECOND, "3 in flight")
    ]
    # AND again where it hangs anew after it has completed something
    disk(tmp_path, "hung", "8:0", 71, 2)
    disk(tmp_path, "busy", "8:16", 200, 0)
    assert watch.hits(6 * SECOND) == []
    assert [hit.what for hit in watch.hits(8 * SECOND)] == ["2 in flight"]


def test_what_a_hanging_disk_needs_is_kept_until_it_has_fired(tmp_path: Path) -> None:
    # GIVEN a disk with I/O in flight since a look at second 10
    watch = StuckWatch(2 * SECOND, (), 0, tmp_path)
    disk(tmp_path, "sda", "8:0", 7, 0)
    watch.hits(9 * SECOND)
    assert watch.hold_from() is None
    disk(tmp_path, "sda", "8:0", 7, 1)
    watch.hits(10 * SECOND)
    # WHEN it is asked what to keep THEN the records since as long before that as the trigger waits
    assert watch.hold_from() == 8 * SECOND
    # AND nothing more once it has fired
    assert watch.hits(12 * SECOND)
    assert watch.hold_from() is None
    # GIVEN two disks that hang, of which one is recorded, and one that goes away
    watch = StuckWatch(SECOND, {8 << 20 | 16}, 0, tmp_path)
    disk(tmp_path, "sdb", "8:16", 1, 1)
    (tmp_path / "gone").mkdir()
    # WHEN they are looked at THEN the one is told
    watch.hits(0)
    assert [hit.dev for hit in watch.hits(SECOND)] == [8 << 20 | 16]


def test_what_cannot_be_watched_is_refused(tmp_path: Path) -> None:
    # GIVEN no /proc/pressure WHEN pressure is to be watched THEN that is refused, with the option
    with pytest.raises(ProbeError, match=r"pressure=full-io:150ms/1s: this kernel measures no"):
        PressureWatch([Pressure(150_000, 1_000_000, full=True)], str(tmp_path / "io"))
    # GIVEN a cgroup's path that leads out of the hierarchy WHEN its pressure is to be watched
    # THEN that is refused
    with pytest.raises(ProbeError, match=r"/a/\.\./\.\./b"):
        PressureWatch([Pressure(1000, 2_000_000, cgroup="/a/../../b")])


# What the programs of the path cost, from the runs that the kernel counted and all their runs.


def ran(part: str, runs: int, spent: int) -> ProgramInfo:
    return ProgramInfo("bt_x", "Q", "x", True, "", runs, spent, 0, part)


def test_parts_of_the_path_cost_what_their_programs_take() -> None:
    # GIVEN programs of the block layer, and one of the path that ran much more often
    programs = [ran("", 10, 3000), ran("", 10, 1000), ran("wait", 1000, 50_000)]
    # WHEN the mean is taken  THEN it is of the former
    assert ns_per_run(programs) == 200
    assert ns_per_run([ran("wait", 5, 5)]) == 0
    # GIVEN a part's programs, of which the kernel counted few of their many runs
    programs = [ran("irq", 30, 3000), ran("irq", 10, 1000)]
    # WHEN its cost is estimated  THEN all runs count
    runs = PathRuns(by_part={"irq": 1_000_000})
    assert part_seconds(programs, runs, 0) == {"irq": pytest.approx(0.1)}
    # GIVEN a part of the path that does not count its runs
    programs = [ran("", 100, 20_000), ran("other", 50, 5000)]
    # WHEN there were ten times as many events as runs were counted  THEN it took ten times as long
    assert part_seconds(programs, PathRuns(), 1000) == {"other": pytest.approx(50e-6)}
    # AND nothing is known where the kernel counted none
    assert part_seconds([ran("other", 0, 0)], PathRuns(), 1000) == {}
    assert part_seconds([ran("", 100, 20_000)], PathRuns(), 1000) == {}
    # GIVEN 1,000 calls, of which 900 are timed
    runs = PathRuns(1000, 900)
    least = (900 * CALL_NS + 100 * OTHER_CALL_NS) / 1e9
    # WHEN the kernel counted no run, or short ones  THEN it is that
    assert part_seconds([ran("time", 0, 0)], runs, 0) == {"time": least}
    assert part_seconds([ran("time", 10, 100)], runs, 0) == {"time": least}
    # WHEN runs were longer: two for each call  THEN it is what they took
    assert part_seconds([ran("time", 10, 5000)], runs, 0) == {"time": pytest.approx(1e-3)}
    # GIVEN records of a bio with its call and submission, of a call's return, and of a wait
    of_bio = (Kind.Q, Kind.CALL, Kind.DIRTIED, Kind.SUBMISSION)
    kinds = (Kind.TASK, *of_bio, Kind.RETURN, Kind.WAIT, Kind.WAIT_STACK)
    data = ring([path_record(kind, 1000) for kind in kinds], 0)
    meter = Meter()
    # WHEN they are counted
    meter.add([Segment(0, 0, 0, data)])
    # THEN names, and what only adds to the bio, are no events; the return and the wait are
    assert (meter.events, meter.path_events) == (3, 2)
